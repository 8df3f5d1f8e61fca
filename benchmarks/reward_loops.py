"""The example specs (logforge/templates/rewards) as plain Python loops over tuples: the reference of `benchmarks.rewards`.

Each loop gives for every step its reward and its terms, in the order of their names; None where an input is missing. That
is the bare loop. `named` adds what the query gives besides: the terms' names, and why a reward is null.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

FAULTS = ("error", "timeout")
Number = float | None
Numbers = tuple[Number, ...]


class Row(NamedTuple):
    """A step as the loops see it. `scores` are those of the spec's scorers, in the order of their terms' names."""

    step: int
    kind: str
    action: str
    arguments: str
    valid: bool
    result: str | None
    status: str
    last: bool
    ended: bool
    success: bool | None
    scores: Numbers


class Scored(NamedTuple):
    """What query and loop give for a step: its terms, its reward (None where an input is missing), and why."""

    terms: dict[str, Number]
    reward: Number
    null_reason: str | None


Bare = list[tuple[Any, ...]]
"""For each step its reward, then its terms."""


def sparse(rows: list[Row]) -> Bare:
    """The outcome at the end."""
    found: Bare = []
    for _, _, _, _, _, _, _, last, ended, success, _ in rows:
        outcome = (None if success is None else 1.0 if success else -1.0) if last and ended else 0.0
        found.append((outcome, outcome))
    return found


def similarity_naive(rows: list[Row]) -> Bare:
    """A score at the end and a cost for each step."""
    found: Bare = []
    for *_, last, _, _, scores in rows:
        alike = scores[0] if last else 0.0
        found.append((None if alike is None else alike + -0.01, alike, -0.01))
    return found


def similarity_fixed(rows: list[Row]) -> Bare:
    """The outcome, a cost for each step, and a key step paid once."""
    found: Bare = []
    paid = False
    for step, _, action, _, _, _, status, last, ended, success, _ in rows:
        if step == 0:
            paid = False
        key = 0.0
        if not paid and action == "get_user_details" and status == "ok":
            paid, key = True, 0.5
        solved = (None if success is None else 10.0 if success else 0.0) if last and ended else 0.0
        found.append((None if solved is None else key + -0.1 + solved, key, -0.1, solved))
    return found


def commands_naive(rows: list[Row]) -> Bare:
    """The outcome, and pay for every command that works."""
    found: Bare = []
    for _, _, _, _, _, _, status, last, ended, success, _ in rows:
        worked = 0.05 if status == "ok" else 0.0
        failed = solved = 0.0
        if last and ended:
            if success is None:
                found.append((None, worked, None, None))
                continue
            failed, solved = (0.0, 1.0) if success else (-1.0, 0.0)
        found.append((worked + failed + solved, worked, failed, solved))
    return found


def commands_fixed(rows: list[Row]) -> Bare:
    """The outcome, and the same hint as a potential of the command before."""
    found: Bare = []
    before = 0.0
    for step, _, _, _, _, _, status, last, ended, success, _ in rows:
        if step == 0:
            before = 0.0
        after = 0.05 if status == "ok" else 0.0
        failed = solved = 0.0
        if last and ended:
            hint = 0.99 * 0.0 - before
            if success is None:
                found.append((None, hint, None, None))
                continue
            failed, solved = (0.0, 1.0) if success else (-1.0, 0.0)
        else:
            hint = 0.99 * after - before
        found.append((hint + failed + solved, hint, failed, solved))
        before = after
    return found


def clarify_naive(rows: list[Row]) -> Bare:
    """The outcome, a cost for each turn, and pay for every question."""
    found: Bare = []
    for _, kind, _, _, _, _, _, last, ended, success, _ in rows:
        asked = 0.5 if kind == "clarify" else 0.0
        solved = (None if success is None else 5.0 if success else 0.0) if last and ended else 0.0
        found.append((None if solved is None else asked + solved + -0.1, asked, solved, -0.1))
    return found


def clarify_fixed(rows: list[Row]) -> Bare:
    """The same with one question paid."""
    found: Bare = []
    paid = False
    for step, kind, _, _, _, _, _, last, ended, success, _ in rows:
        if step == 0:
            paid = False
        asked = 0.0
        if kind == "clarify" and not paid:
            paid, asked = True, 0.5
        solved = (None if success is None else 5.0 if success else 0.0) if last and ended else 0.0
        found.append((None if solved is None else asked + solved + -0.1, asked, solved, -0.1))
    return found


def detectors(rows: list[Row]) -> Bare:
    """Faults and time. Nothing can be missing."""
    found: Bare = []
    seen: dict[tuple[str, str], int] = {}
    results: set[str | None] = set()
    calls = news = worked = 0
    latest = "none"
    for step, kind, action, arguments, valid, result, status, last, ended, _, _ in rows:
        if step == 0:
            seen, results = {}, set()
            calls = news = worked = 0
            latest = "none"
        invalid = looping = stuck = 0.0
        if kind == "tool":
            call = (action, arguments)
            calls += 1
            latest = status
            if status == "ok":
                worked += 1
                if result not in results:
                    results.add(result)
                    news = calls
            elif status == "empty":
                worked += 1
            if not valid:
                invalid = -1.0
            if step - seen.get(call, -9) <= 3:
                looping = -1.0
            if calls - news >= 3:
                stuck = -1.0
            seen[call] = step
        error = -1.0 if status in FAULTS else 0.0
        closed = -1.0 if last and ended and _closes(latest, calls, worked) else 0.0
        reward = closed + error + invalid + looping + -0.1 + stuck
        found.append((reward, closed, error, invalid, looping, -0.1, stuck))
    return found


def layers(scales: Mapping[str, tuple[float, float]]) -> Callable[[list[Row]], Bare]:
    """The loop of the 40/60 spec under scales (mean and spread of each term)."""
    mean, spread = {name: m for name, (m, _) in scales.items()}, {name: s for name, (_, s) in scales.items()}
    names = ("fluency", "knowledge", "satisfaction")
    shares = tuple((mean[name], spread[name]) for name in names)
    nothing = (0.0, 0.0, 0.0)

    def loop(rows: list[Row]) -> Bare:
        found: Bare = []
        calls = worked = 0
        latest = "none"
        turn_cost = -0.1 / spread["turn_cost"] * TURN_SHARE
        for step, kind, _, _, _, _, status, last, ended, success, scores in rows:
            if step == 0:
                calls = worked = 0
                latest = "none"
            if kind == "tool":
                calls += 1
                latest = status
                worked += status in ("ok", "empty")
            solved: Number = 0.0
            if last and ended:
                solved = _outcome(success, _closes(latest, calls, worked))
                solved = (
                    None if solved is None else (solved - mean["solved"]) / spread["solved"] * SOLVED_SHARE
                )
            quality: Numbers = nothing
            if last:
                quality = tuple(
                    None if score is None else (score - m) / s * QUALITY_SHARE
                    for score, (m, s) in zip(scores, shares, strict=True)
                )
            reward = None
            if solved is not None:
                reward = (quality[0] or 0.0) + (quality[1] or 0.0) + (quality[2] or 0.0) + solved + turn_cost
            found.append((reward, *quality, solved, turn_cost))
        return found

    return loop


SOLVED_SHARE = 0.4 * 4 / 5
TURN_SHARE = 0.4 * 1 / 5
QUALITY_SHARE = 0.6 * 1 / 3


def _closes(latest: str, calls: int, worked: int) -> bool:
    return latest in ("error", "timeout", "refused") or (calls > 0 and worked == 0)


def _outcome(success: bool | None, closed: bool) -> Number:
    """What `success and not premature_close` pays: an unknown success that was closed in haste is none."""
    if closed or success is False:
        return 0.0
    return None if success is None else 5.0


class Loop(NamedTuple):
    """A spec's loop, with the names of its terms and of what each of them may lack; those that may lack it are left out."""

    run: Callable[[list[Row]], Bare]
    terms: tuple[str, ...]
    lacks: Mapping[str, str]
    optional: frozenset[str] = frozenset()


_SUCCESS = "missing success"
LOOPS: Mapping[str, Loop] = {
    "sparse": Loop(sparse, ("outcome",), {"outcome": _SUCCESS}),
    "similarity_naive": Loop(
        similarity_naive, ("similarity", "step_cost"), {"similarity": "missing reference"}
    ),
    "similarity_fixed": Loop(similarity_fixed, ("key_step", "step_cost", "success"), {"success": _SUCCESS}),
    "commands_naive": Loop(
        commands_naive, ("command", "failed", "solved"), {"failed": _SUCCESS, "solved": _SUCCESS}
    ),
    "commands_fixed": Loop(
        commands_fixed, ("command", "failed", "solved"), {"failed": _SUCCESS, "solved": _SUCCESS}
    ),
    "clarify_naive": Loop(clarify_naive, ("clarification", "solved", "turn_cost"), {"solved": _SUCCESS}),
    "clarify_fixed": Loop(clarify_fixed, ("clarification", "solved", "turn_cost"), {"solved": _SUCCESS}),
    "detectors": Loop(detectors, ("closed", "error", "invalid", "looping", "step_cost", "stuck"), {}),
}
"""The loop of each example spec but the layered one, whose scales are fitted: `layered`."""


def layered(scales: Mapping[str, tuple[float, float]]) -> Loop:
    """The loop of the 40/60 spec."""
    quality = ("fluency", "knowledge", "satisfaction")
    return Loop(layers(scales), (*quality, "solved", "turn_cost"), {"solved": _SUCCESS}, frozenset(quality))


def named(loop: Loop, bare: Bare) -> list[Scored]:
    """The terms by name, without the optional ones that are missing, and why each missing reward is."""
    found = []
    for reward, *values in bare:
        terms = dict(zip(loop.terms, values, strict=True))
        if None in values:
            lacking = [name for name, value in terms.items() if value is None]
            reason = "; ".join(f"{name}: {loop.lacks[name]}" for name in lacking if name in loop.lacks)
            terms = {name: value for name, value in terms.items() if value is not None or name in loop.lacks}
            found.append(Scored(terms, reward, reason or None))
        else:
            found.append(Scored(terms, reward, None))
    return found


def returns(bare: Bare, rows: list[Row], gamma: float) -> list[float]:
    """The returns to go, backwards; nan where a later reward of the episode is missing."""
    found = [0.0] * len(rows)
    after = 0.0
    for number in range(len(rows) - 1, -1, -1):
        if rows[number][7]:
            after = 0.0
        reward = bare[number][0]
        after = found[number] = (math.nan if reward is None else reward) + gamma * after
    return found
