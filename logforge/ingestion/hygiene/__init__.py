"""What is cleaned and what is marked before anything is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.ingestion.hygiene.danger import Dangers
    from logforge.ingestion.hygiene.flaggers import flagger_versions
    from logforge.ingestion.hygiene.injection import PREFIX
    from logforge.ingestion.hygiene.inspection import inspect
    from logforge.ingestion.hygiene.live import Heard, LiveHygiene
    from logforge.ingestion.hygiene.personal_data import personal_kinds, personal_version
    from logforge.ingestion.hygiene.pipeline import Hygiene, cleaned
    from logforge.ingestion.hygiene.redaction import ALLOWED, Redaction, redact, redact_json, rules_version

__all__ = [
    "ALLOWED", "PREFIX", "Dangers", "Heard", "Hygiene", "LiveHygiene", "Redaction", "cleaned",
    "flagger_versions", "inspect", "personal_kinds", "personal_version", "redact", "redact_json",
    "rules_version",
]  # fmt: skip

face(
    __name__,
    danger="Dangers",
    flaggers="flagger_versions",
    injection="PREFIX",
    inspection="inspect",
    live="Heard LiveHygiene",
    personal_data="personal_kinds personal_version",
    pipeline="Hygiene cleaned",
    redaction="ALLOWED Redaction redact redact_json rules_version",
)
