"""Scores that a judge gave when the log was made, read from its metadata."""

from __future__ import annotations

import json
from typing import Annotated, Any, ClassVar

from pydantic import Field, model_validator

from logforge.rewards.scorers.base import InputName, Reads, Ready, Resources, Score, Scorer, Texts, each
from logforge.rewards.scorers.judgements import put_together, scores_in

Bound = Annotated[float, Field(allow_inf_nan=False)]


class LoggedJudge(Scorer):
    """A judge's score in the log, brought from `low`..`high` to 0..1; of several, the mean, and their spread."""

    name = "logged_judge"
    reads: ClassVar[Reads | None] = "outcome"

    text: InputName = "metadata"
    key: Annotated[str, Field(min_length=1)] = "judge_score"
    """Where it lies in the JSON, as `scores.helpfulness.value`; a number is a place in a list."""
    low: Bound = 0.0
    high: Bound = 10.0

    @model_validator(mode="after")
    def _ordered(self) -> LoggedJudge:
        if self.low >= self.high:
            raise ValueError("`low` must lie below `high`")
        return self

    def ready(self, resources: Resources) -> Ready:
        """Needs nothing."""
        return Ready(self.version(), each(self._read))

    def _read(self, texts: Texts) -> Score:
        try:
            data = json.loads(texts[0])
        except (ValueError, RecursionError):
            return Score(None, reason=f"{self.text} is no JSON")
        value = _at(data, self.key)
        if value is None or value == []:
            return Score(None, reason=f"no {self.key} in {self.text}")
        return put_together(scores_in(value, self.low, self.high), self.low, self.high)


def _at(data: Any, key: str) -> Any:
    """The value at a dotted place; a key that holds dots itself is found whole. None where there is none."""
    if isinstance(data, dict) and key in data:
        return data[key]
    head, _, rest = key.partition(".")
    if isinstance(data, list) and head.isdecimal() and int(head) < len(data):
        inner = data[int(head)]
    elif isinstance(data, dict) and head in data and rest:
        inner = data[head]
    else:
        return None
    return _at(inner, rest) if rest else inner
