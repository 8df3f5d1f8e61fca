"""Logs into the store: find, read, clean, own, count."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.ingestion import pipeline, replaying, watching
    from logforge.ingestion.config import IngestConfig
    from logforge.ingestion.dry_runs import dry_run
    from logforge.ingestion.ownership import remove_sources
    from logforge.ingestion.pipeline import ingest
    from logforge.ingestion.quarantine import ROWS, overview, rows
    from logforge.ingestion.replaying import replay
    from logforge.ingestion.request import read_options
    from logforge.ingestion.settling import FILE_PRECEDENCE, RULE_PRECEDENCE, settle_labels
    from logforge.ingestion.stored_sources import holder_of, source_id_of
    from logforge.ingestion.watching import INTERVAL_S, Pass, Summary, until_told

__all__ = [
    "FILE_PRECEDENCE", "INTERVAL_S", "ROWS", "RULE_PRECEDENCE", "IngestConfig", "Pass", "Summary",
    "dry_run", "holder_of", "ingest", "overview", "pipeline", "read_options", "remove_sources", "replay",
    "replaying", "rows", "settle_labels", "source_id_of", "until_told", "watching",
]  # fmt: skip

face(
    __name__,
    config="IngestConfig",
    dry_runs="dry_run",
    ownership="remove_sources",
    pipeline="ingest",
    quarantine="ROWS overview rows",
    replaying="replay",
    request="read_options",
    settling="FILE_PRECEDENCE RULE_PRECEDENCE settle_labels",
    stored_sources="holder_of source_id_of",
    watching="INTERVAL_S Pass Summary until_told",
)
