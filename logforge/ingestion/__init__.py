"""Logs into the store: find, read, clean, own, count."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.ingestion import pipeline, replaying, watching
    from logforge.ingestion.config import IngestConfig
    from logforge.ingestion.dry_runs import dry_run
    from logforge.ingestion.pipeline import ingest
    from logforge.ingestion.quarantine import ROWS, overview, rows
    from logforge.ingestion.replaying import replay
    from logforge.ingestion.request import read_options
    from logforge.ingestion.stored_sources import holder_of
    from logforge.ingestion.watching import INTERVAL_S, Pass, Summary, until_told

__all__ = [
    "INTERVAL_S", "ROWS", "IngestConfig", "Pass", "Summary", "dry_run", "holder_of", "ingest", "overview",
    "pipeline", "read_options", "replay", "replaying", "rows", "until_told", "watching",
]  # fmt: skip

face(
    __name__,
    config="IngestConfig",
    dry_runs="dry_run",
    pipeline="ingest",
    quarantine="ROWS overview rows",
    replaying="replay",
    request="read_options",
    stored_sources="holder_of",
    watching="INTERVAL_S Pass Summary until_told",
)
