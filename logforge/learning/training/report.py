"""What a run says of itself: in its folder, and to people."""

from __future__ import annotations

import importlib.metadata
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from logforge.core import BaseReport, Lines, noted, table, text
from logforge.learning.policies import METRICS_FILE, RUN_FILE, RUN_VERSION
from logforge.learning.training.notes import fresh_starts

_PACKAGES = ("d3rlpy", "logforge-rl", "numpy", "safetensors", "torch")


_COLUMNS = (
    "policy", "update", "episodes", "decisions", "match", "like bc", "ood", "max Q", "improvement", "FQE",
)  # fmt: skip


@dataclass(frozen=True)
class TrainReport(BaseReport):
    """What a run made. `policies` holds each policy's data, the metrics of the checkpoint that was kept and what a first member's is
    worth (`fqe`, see checkpoint_values.py), `left_out` the reason for each absent one, `stopped` the alarm that ended the training of a
    policy, `warnings` those that did not.
    `possible_returns` is the range that Q was held against, `started_from` what each policy began with beside a warm start (None:
    afresh)."""

    first = ("schema_version",)
    schema_version: ClassVar[int] = RUN_VERSION

    run: str
    dataset: dict[str, str]
    config: dict[str, Any]
    policies: dict[str, dict[str, Any]]
    left_out: dict[str, str]
    stopped: dict[str, dict[str, Any]]
    warnings: tuple[dict[str, Any], ...]
    notes: tuple[str, ...]
    packages: dict[str, str]
    seconds: float
    possible_returns: tuple[float, float]
    started_from: dict[str, str | None]

    @property
    def fresh(self) -> tuple[str, ...]:
        """What began otherwise than with its own earlier policy, beside a warm start."""
        return tuple(fresh_starts(self.config["warm_start"], self.started_from))

    @property
    def alarm(self) -> str:
        """What was stopped and why, line by line; empty when all went to the end."""
        return "\n".join(
            f"stopped {name} at update {found['update']:,} ({found['rule']}): {found['what']}. The policy of update "
            f"{found['kept_update']:,} is kept. Remedy: {found['remedy']}"
            for name, found in self.stopped.items()
        )

    def lines(self) -> Lines:
        """A row for each policy, and what is to be known of them."""
        numbers = ("validation_match", "clone_share", "ood_share", "validation_max_q", "improvement")
        keys = ("update", "episodes", "transitions", *numbers)
        rows = [
            (name, *(facts.get(key) for key in keys), facts.get("fqe", {}).get("value"))
            for name, facts in self.policies.items()
        ]
        source = f"{self.dataset['name']} ({self.dataset['hash'][:12]})"
        yield f"trained on {source} in {self.seconds:.0f} s: {self.run}\n"
        yield table(_COLUMNS, rows)
        told = [
            self.alarm or None,
            *(f"warning: {found['policy']}: {found['what']}" for found in self.warnings),
            *(f"left out: {name}: {reason}" for name, reason in self.left_out.items()),
            *noted((*self.fresh, *self.notes)),
        ]
        yield "\n" + text(told) if any(told) else None


def write_report(folder: Path, report: TrainReport, metrics: Iterable[dict[str, Any]]) -> None:
    """`metrics.jsonl` and `train.json` into a run's folder."""
    rows = "".join(json.dumps(_plain(row)) + "\n" for row in metrics)
    (folder / METRICS_FILE).write_text(rows, "utf-8")
    (folder / RUN_FILE).write_text(json.dumps(_plain(report.as_dict()), indent=1) + "\n", "utf-8")


def packages() -> dict[str, str]:
    """The versions of what a run was made with."""
    return {name: found for name in _PACKAGES if (found := _version(name))}


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _plain(value: Any) -> Any:
    """As JSON can hold it: NaN and infinity become null."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
