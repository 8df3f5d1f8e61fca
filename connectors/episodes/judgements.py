"""What a log says of how a run went: success and score, in whatever form they were written, and the field that said so.

A value that stands where an outcome stands is read, or set aside with its place; it is never passed over. A value that
only fills the place of an outcome (the run was stopped by a failure of its surroundings, and nobody judged it) is none:
the outcome is then unknown, with the reason.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from logforge.connectors.episodes.content import bad_part
from logforge.connectors.records import at
from logforge.schemas import Reject

SUCCESS_KEYS = (
    "success",
    "resolved",
    "passed",
    "solved",
    "is_success",
    "is_resolved",
    "is_solved",
    "is_correct",
    "label",
)
"""Keys that hold a verdict, in the order in which they are asked."""
SCORE_KEYS = ("reward", "score", "final_reward", "final_score")
"""Keys that hold a number that tells how good a run was, in the order in which they are asked."""

PASS = frozenset(
    {
        "pass",
        "passed",
        "success",
        "successful",
        "succeeded",
        "correct",
        "resolved",
        "solved",
        "true",
        "yes",
    }
)
"""Words for a success."""
FAIL = frozenset(
    {
        "fail",
        "failed",
        "failure",
        "unsuccessful",
        "incorrect",
        "unresolved",
        "unsolved",
        "false",
        "no",
        "wrong",
    }
)
"""Words for a failure."""
_OPEN = frozenset({"unknown", "none", "null", "n/a", "na", "pending", "unrated", "unlabeled", "unlabelled"})
"""Words that say themselves that there is no verdict."""
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_LIMIT = re.compile(
    r"max(imum)?[ _-]?(number of )?(iterations?|steps?|turns?)|(iteration|step|turn|cost|budget|time)[ _-]?limit"
    r"|agent\w*timeout|limits?exceeded",
    re.IGNORECASE,
)
"""What stopped a run that went as far as it was allowed to: a verdict on it is one."""
_STOPS = ("error", "exception", "exception_info")
_SHORT = 80


class Outcome(NamedTuple):
    """How a run went. `source` names the fields that said so; `unknown` says why a run has no outcome that might have one."""

    success: bool | None = None
    score: float | None = None
    source: str | None = None
    unknown: str | None = None

    @property
    def known(self) -> bool:
        """Whether anything is known."""
        return self.success is not None or self.score is not None

    def void(self, why: str | None) -> Outcome:
        """The same without an outcome, for this reason; a success stands, since no placeholder is one."""
        if why is None or self.success is True or (self.success is None and (self.score or 0) > 0):
            return self
        return Outcome(unknown=why)

    def judged(self, *, passed: float = 1.0, failed: float | None = None) -> Outcome:
        """The same where the score is the verdict: `passed` is a success and `failed` (None: all else) a failure."""
        if self.score is None or self.success is not None:
            return self
        if abs(self.score - passed) <= 1e-6:
            return self._replace(success=True)
        return self._replace(success=False) if failed is None or self.score == failed else self

    def or_else(self, other: Outcome) -> Outcome:
        """The same with what another reading says, where this one says nothing."""
        success = self.success if self.success is not None else other.success
        score = self.score if self.score is not None else other.score
        if (success, score) == (self.success, self.score):
            return self
        named = dict.fromkeys(part for part in (self.source, other.source) if part)
        return Outcome(success, score, "+".join(named) or None, self.unknown or other.unknown)

    def fields(self) -> dict[str, Any]:
        """As fields of schemas.episode.Episode."""
        return {
            "success": self.success,
            "score": self.score,
            "outcome_from": self.source if self.known else None,
            "outcome_unknown": None if self.known else self.unknown,
        }


UNKNOWN = Outcome()
"""Of a log that says nothing."""


def truth_of(value: Any) -> bool | None:
    """True or false: as such, as 1 or 0, or as a word for it; None for everything else."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        word = value.strip().lower()
        if word in PASS or word in FAIL:
            return word in PASS
    number = amount_of(value)
    return None if number not in (0.0, 1.0) else number == 1.0


def amount_of(value: Any) -> float | None:
    """A finite number, or the text of one; None for everything else."""
    if isinstance(value, str):
        value = float(value) if _NUMBER.fullmatch(value.strip()) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e300:
        return None
    return float(value)


def read_outcome(
    row: dict[str, Any],
    where: str,
    rejects: list[Reject],
    *,
    success: Sequence[str] = SUCCESS_KEYS,
    score: Sequence[str] = SCORE_KEYS,
    under: str = "",
) -> Outcome:
    """What the fields of an object say. `where` is the object's locator, `under` what its fields are called before their names.

    The first field that can be read decides. What cannot be read goes to `rejects`, and so does a verdict that contradicts
    the one that decided.
    """
    truth: tuple[bool, str] | None = None
    amount: tuple[float, str] | None = None
    unsaid = None
    for key in (*success, *score):
        value, name = row.get(key), f"{under}{key}"
        if value is None or value == "":
            continue
        told, number = _read(value, numeric=key in score)
        if isinstance(value, str) and value.strip().lower() in _OPEN:
            unsaid = unsaid or f"{name} says {value.strip()}"
        elif told is None and number is None:
            rejects.append(_unreadable(name, at(where, f"/{key}"), value, numeric=key in score))
            unsaid = unsaid or f"{name} cannot be read"
        elif told is not None and truth is not None and told != truth[0]:
            reason = f"{name} contradicts {truth[1]}, which stands"
            rejects.append(bad_part(at(where, f"/{key}"), reason, "conflicting_outcome", value))
        truth = (told, name) if truth is None and told is not None else truth
        amount = (number, name) if amount is None and number is not None else amount
    named = dict.fromkeys(found[1] for found in (truth, amount) if found is not None)
    return Outcome(truth and truth[0], amount and amount[0], "+".join(named) or None, unsaid)


def _read(value: Any, *, numeric: bool) -> tuple[bool | None, float | None]:
    """The verdict and the number of one value. A truth value in the place of a number is both."""
    number = amount_of(value) if numeric else None
    told = truth_of(value) if number is None else None
    return told, float(told) if numeric and told is not None else number


def read_reward(
    row: dict[str, Any], where: str, rejects: list[Reject], *, key: str = "reward"
) -> float | None:
    """The reward of one step; one that cannot be read goes to `rejects`."""
    value = row.get(key)
    number = float(value) if isinstance(value, bool) else amount_of(value)
    if number is None and value is not None and value != "":
        rejects.append(_unreadable(key, at(where, f"/{key}"), value, numeric=True))
    return number


def failure_in(*places: dict[str, Any]) -> str | None:
    """The failure of its surroundings that ended a run, where one of these objects names it; a limit of its own is none."""
    for place in places:
        for key in _STOPS:
            if (value := place.get(key)) and not isinstance(value, bool):
                words = _words(value)
                return None if _LIMIT.search(words) else f"the run ended by an error: {words[:_SHORT]}"
    return None


def _words(value: Any) -> str:
    """What an error says: its kind and its message, where it is an object."""
    if isinstance(value, dict):
        keys = ("type", "exception_type", "code", "message", "exception_message")
        return " ".join(str(value[key]) for key in keys if isinstance(value.get(key), str | int)) or "unknown"
    return " ".join(str(value).split())


def _unreadable(field: str, where: str, value: Any, numeric: bool) -> Reject:
    if isinstance(value, float) and not math.isfinite(value):
        reason = f"{field} is no finite number"
    else:
        reason = f"{field} is {'no single number' if numeric else 'neither true nor false'}"
    return bad_part(where, reason, "unreadable_outcome", value)


def contradicted(
    where: str, outcome: Outcome, changes: Callable[[], Sequence[str]], calls: int
) -> list[Reject]:
    """A mark on a success of which the log shows that it cannot be: the reference changes something, and nothing was called.

    `changes` names the actions of the reference that change something; it is asked for successes without a call alone.
    """
    if outcome.success is not True or calls or not (writes := changes()):
        return []
    reason = "a success without a call, though its reference has actions that change something"
    return [bad_part(where, reason, "contradicted_outcome", ", ".join(dict.fromkeys(writes)))]
