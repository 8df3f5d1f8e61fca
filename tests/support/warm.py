"""What a process forked for a kill need not do itself: everything imported, the scanner for secrets built, no store open."""

from __future__ import annotations

import logforge.forgetting.pipeline
import logforge.ingestion.pipeline  # noqa: F401
from logforge.connectors.detection import registry
from logforge.ingestion.hygiene.redaction import redact

registry()
redact("password = hunter2hunter2")
