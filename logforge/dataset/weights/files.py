"""Reads the settings of sample weights from YAML files; several are taken together, the later word counts.

half_life_days: 30
no_progress: 0.5
episodes:
  4f2a0c11d0a1…: 2
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from logforge.connectors.records import read_text
from logforge.dataset.weights.parts import SETTINGS, Weights, wrong_number
from logforge.schemas import Marked, Problem, SpecError, UnknownName, parse

_REMEDY = "docs/weights.md lists the settings"


def load_weights(paths: Iterable[str | Path]) -> Weights:
    """The settings in some files. Episodes of all files are gathered; of one that two files name, the last factor counts.

    Raises SpecError listing every unknown word and wrong number with its file and line.
    """
    given: dict[str, Any] = {}
    episodes: dict[str, float] = {}
    for path in paths:
        read = parse(read_text(path), str(path))
        problems = list(_problems(read, str(path)))
        if problems:
            raise SpecError(problems, _REMEDY)
        own = dict(read.value)
        episodes |= {name: float(factor) for name, factor in (own.pop("episodes", None) or {}).items()}
        given |= own
    return Weights(**given, episodes=episodes)


def _problems(read: Marked, path: str) -> Iterator[Problem]:
    if not isinstance(read.value, dict):
        yield Problem("must be a mapping of settings", path, 1)
        return
    for name, value in read.value.items():
        if name not in SETTINGS:
            unknown = UnknownName("setting", name, SETTINGS)
            yield Problem(f"{unknown.message}: {unknown.remedy}", path, read.lines[name], name)
        elif name != "episodes":
            yield from _number_problems(name, value, path, read.lines[name], name)
        elif not isinstance(value, dict | None):
            yield Problem("must map episode ids to factors", path, read.lines[name], name)
        else:
            for identifier, factor in (value or {}).items():
                where = f"episodes.{identifier}"
                yield from _number_problems(name, factor, path, read.lines[where], where)


def _number_problems(setting: str, value: Any, path: str, line: int, where: str) -> Iterator[Problem]:
    if isinstance(value, bool) or not isinstance(value, int | float | None):
        yield Problem(f"{value!r:.40} is no number", path, line, where)
        return
    try:
        wrong = wrong_number(setting, None if value is None else float(value))
    except OverflowError:
        wrong = "give a smaller number"
    if wrong:
        yield Problem(f"{value!r:.40}: {wrong}", path, line, where)
