"""How a benchmark measures and what it reports."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Result:
    """One measured figure. `ratio` is against `reference`, measured in the same run; `target` is what the issue asks."""

    name: str
    figure: str
    reference: str
    ratio: float | None
    target: str
    met: bool | None


def cpu_seconds(call: Callable[[], object], repeats: int = 3) -> float:
    """Median CPU seconds of this process over some calls."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return statistics.median(times)
