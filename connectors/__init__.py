"""Other people's formats: each connector reads one, and all are found the same way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.connectors import detection
    from logforge.connectors.detection import claims, get, registry, registry_version

__all__ = ["claims", "detection", "get", "registry", "registry_version"]

face(
    __name__,
    detection="claims get registry registry_version",
)
