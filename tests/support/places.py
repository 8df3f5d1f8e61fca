"""Where the repository, its sample logs and the logs beside it are."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "sample_logs"
SHARED = ROOT.parent / "shared"
DATA = ROOT / "tests" / "data"
