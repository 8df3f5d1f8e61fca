"""Rules and shapes that find keys and passwords in texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.ingestion.hygiene.secrets import rules, shapes, vendors
    from logforge.ingestion.hygiene.secrets.findings import Finding
    from logforge.ingestion.hygiene.secrets.hints import holds, lower, windows
    from logforge.ingestion.hygiene.secrets.rules import contextual, kind_of_name, named_secret
    from logforge.ingestion.hygiene.secrets.shapes import SHAPELESS, shaped
    from logforge.ingestion.hygiene.secrets.values import is_telling
    from logforge.ingestion.hygiene.secrets.vendors import engine_version, vendor_findings

__all__ = [
    "SHAPELESS", "Finding", "contextual", "engine_version", "holds", "is_telling", "kind_of_name",
    "lower", "named_secret", "rules", "shaped", "shapes", "vendor_findings", "vendors", "windows",
]  # fmt: skip

face(
    __name__,
    findings="Finding",
    hints="holds lower windows",
    rules="contextual kind_of_name named_secret",
    shapes="SHAPELESS shaped",
    values="is_telling",
    vendors="engine_version vendor_findings",
)
