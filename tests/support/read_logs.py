"""What a connector makes of a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from logforge.lineage import locate
from logforge.schemas.episode import Episode, Reject
from logforge.testing import variants
from logforge.testing.kit import unsound

mutate, texts_at = variants.mutate, locate.texts_at
"""Other test files take them from here."""


def episodes(readings: list[Any]) -> list[Episode]:
    return [item for item in readings if isinstance(item, Episode)]


def rejects(readings: list[Any]) -> list[Reject]:
    return [item for item in readings if isinstance(item, Reject)]


def tool_steps(episode: Episode) -> list[Any]:
    return [step for step in episode.steps if step.kind == "tool"]


def assert_sound(readings: list[Any]) -> None:
    """What holds for everything a connector yields."""
    assert list(unsound(readings)) == []


def resolve(path: Path, locator: str) -> Any:
    """The value that a locator leads to, of a file read under the label `log`."""
    return locate.resolve(path, locator, "log")
