"""Judgements that tracing tools attach to spans (evaluation events, annotations, scores) and what they say of a run."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from logforge.connectors.episodes.judgements import FAIL, PASS, Outcome

_OUTCOMES = (
    "success",
    "task_success",
    "task_completion",
    "resolved",
    "solved",
    "outcome",
    "goal",
    "correctness",
)
_REWARDS = ("reward", "score", "overall", *_OUTCOMES)


class Verdict(NamedTuple):
    """One judgement. `scope` is what it judges: the span it hangs on, its trace, or its session."""

    name: str | None
    score: float | None
    label: str | None
    source: str | None
    comment: str | None
    locator: str
    scope: Literal["span", "trace", "session"] = "span"
    passed: bool | None = None
    """Where the log types it as true or false itself."""

    @property
    def success(self) -> bool | None:
        """True or false when it says so; a number alone says neither."""
        if self.passed is not None:
            return self.passed
        label = (self.label or "").strip().lower()
        return True if label in PASS else False if label in FAIL else None

    def as_dict(self) -> dict[str, Any]:
        """Everything it says, for the metadata."""
        return {key: value for key, value in self._asdict().items() if value is not None and key != "locator"}


def _named(verdicts: list[Verdict], names: tuple[str, ...]) -> list[Verdict]:
    for name in names:
        if found := [v for v in verdicts if (v.name or "").strip().lower().replace(" ", "_") == name]:
            return found
    return verdicts


def outcome_of(verdicts: list[Verdict]) -> Outcome:
    """The outcome that verdicts on one run give, and the names of those that gave it."""
    success, score = success_of(verdicts), score_of(verdicts)
    judged = [v for v in verdicts if success is not None and v.success == success]
    scored = [v for v in verdicts if score is not None and v.score == score]
    named = [
        v.name or v.source or "a verdict"
        for found, names in ((judged, _OUTCOMES), (scored, _REWARDS))
        for v in _named(found, names)[:1]
    ]
    told = {v.success for v in verdicts} - {None}
    unknown = "the verdicts on it disagree" if success is None and len(told) > 1 else None
    return Outcome(success, score, "+".join(dict.fromkeys(named)) or None, unknown)


def success_of(verdicts: list[Verdict]) -> bool | None:
    """What verdicts on one run say: those named like an outcome where there are any, and only when they agree."""
    said = {v.success for v in _named([v for v in verdicts if v.success is not None], _OUTCOMES)}
    return said.pop() if len(said) == 1 else None


def score_of(verdicts: list[Verdict]) -> float | None:
    """The number of one run: the one named like a reward, else the only one; several different numbers are none."""
    said = {v.score for v in _named([v for v in verdicts if v.score is not None], _REWARDS)}
    return said.pop() if len(said) == 1 else None
