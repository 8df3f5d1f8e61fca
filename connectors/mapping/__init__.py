"""A YAML mapping for a shape that no connector knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.connectors.mapping.connector import MappingConnector, load_mapping, mapping_of
    from logforge.connectors.mapping.steps import rank

__all__ = ["MappingConnector", "load_mapping", "mapping_of", "rank"]

face(
    __name__,
    connector="MappingConnector load_mapping mapping_of",
    steps="rank",
)
