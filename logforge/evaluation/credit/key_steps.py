"""Which steps people hold to be decisive: `key_steps.jsonl`, one judgement a line, read with every mistake named.

    {"episode_id": "3f…", "step": 2, "annotator": "ana", "key": true}
    {"episode_id": "3f…", "step": 4, "annotator": "ana", "key": 0.5}

Who names one step of an episode has read all of it: the steps that are not named are not key (0). An episode without a key
step is named by one line with `"key": false`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from logforge.connectors.records import loads
from logforge.rewards import Floats
from logforge.schemas import CheckFailed, InputError, Problem

_FIELDS: Final = ("episode_id", "step", "annotator", "key")
_REMEDY: Final = "mend these lines; nothing was read in their place"


class KeyStep(NamedTuple):
    """One judgement, and the line it stands in. `score` is from 0 (not key) to 1."""

    episode_id: str
    step: int
    annotator: str
    score: float
    line: int


def read_key_steps(path: str | Path) -> tuple[KeyStep, ...]:
    """The judgements of a file, in its order; empty lines are passed over.

    Raises InputError where the file cannot be read or holds none, and CheckFailed with every line that is no judgement, or
    repeats the step of an annotator.
    """
    try:
        lines = Path(path).read_bytes().splitlines()
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror}", remedy=_REMEDY) from None
    found: dict[tuple[str, int, str], KeyStep] = {}
    problems = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        one = _judgement(line, str(path), number)
        if isinstance(one, KeyStep) and (earlier := found.setdefault(one[:3], one)) is not one:
            said = f"{one.annotator!r} judged this step in line {earlier.line} already"
            one = Problem(said, str(path), number, rule="repeated", remedy="keep one of the two")
        if isinstance(one, Problem):
            problems.append(one)
    if problems:
        raise CheckFailed(f"{path} is not a file of key steps", problems, _REMEDY)
    if not found:
        raise InputError(
            str(path), "holds no key step", remedy="write a line for each key step: docs/returns.md"
        )
    return tuple(found.values())


def _judgement(line: bytes, path: str, number: int) -> KeyStep | Problem:
    def wrong(what: str, rule: str, remedy: str, field: str = "") -> Problem:
        return Problem(what, path, number, field, rule, remedy)

    try:
        row = loads(line)
    except ValueError as error:
        return wrong(f"no JSON ({error})", "not_json", "write one JSON object a line")
    if not isinstance(row, dict) or (missing := [name for name in _FIELDS if name not in row]):
        what = "no object" if not isinstance(row, dict) else f"lacks {', '.join(missing)}"
        return wrong(what, "missing_field", f"give {', '.join(_FIELDS)}")
    for name in ("episode_id", "annotator"):
        if not isinstance(row[name], str) or not row[name]:
            return wrong(f"{name} is {row[name]!r}", "no_name", "give a text that is not empty", name)
    step, score = row["step"], row["key"]
    if isinstance(step, bool) or not isinstance(step, int) or step < 0:
        return wrong(f"step is {step!r}", "no_step", "give the step's number, from 0", "step")
    if not isinstance(score, bool | int | float) or not 0 <= score <= 1:
        return wrong(f"key is {score!r}", "no_score", "give true, false, or a number from 0 to 1", "key")
    return KeyStep(row["episode_id"], step, row["annotator"], float(score), number)


def scored(path: str | Path, judged: tuple[KeyStep, ...], lengths: Mapping[str, int]) -> dict[str, Floats]:
    """Each judged episode's scores, shape (annotators, steps), those of an annotator in a row, sorted by name.

    `lengths` are the steps of every episode known. Raises CheckFailed with every line about an episode or a step that is not.
    """
    if problems := list(_unknown(str(path), judged, lengths)):
        raise CheckFailed(f"{path} names what the split does not hold", problems, _REMEDY)
    rows: dict[str, dict[str, Floats]] = {}
    for one in judged:
        of = rows.setdefault(one.episode_id, {})
        of.setdefault(one.annotator, np.zeros(lengths[one.episode_id]))[one.step] = one.score
    return {episode: np.stack([of[name] for name in sorted(of)]) for episode, of in sorted(rows.items())}


def _unknown(path: str, judged: tuple[KeyStep, ...], lengths: Mapping[str, int]) -> Iterator[Problem]:
    for one in judged:
        place: dict[str, Any] = {"path": path, "line": one.line}
        count = lengths.get(one.episode_id)
        if count is None:
            remedy = "take ids from the table transitions, or name the episode's split with --split"
            yield Problem(f"no episode {one.episode_id!r}", **place, rule="unknown_episode", remedy=remedy)
        elif one.step >= count:
            what = f"no step {one.step} in {one.episode_id!r}"
            remedy = f"its steps are 0 to {count - 1}"
            yield Problem(what, **place, rule="unknown_step", remedy=remedy)
