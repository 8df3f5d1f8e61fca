"""Scores that judges gave in words or numbers: read from a text, brought to 0..1, and put together."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Sequence
from typing import Any

from logforge.rewards.scorers.base import Score

_NUMBER = r"[-+]?\d+(?:\.\d+)?"
_ALONE = re.compile(rf"\**({_NUMBER})\**(?: ?/ ?({_NUMBER}))?\.?")
_NAMED = re.compile(
    rf"^[\W_]*(?:final |overall )?(?:score|rating|grade)[\W_]*[:=][\W_]*({_NUMBER})(?: ?(?:/|out of) ?({_NUMBER}))?[*_.]*[ \t]*$",
    re.IGNORECASE | re.MULTILINE,
)
_WORDS = ("score", "rating", "grade")


def read_score(answer: str, low: float = 0.0, high: float = 10.0) -> float | None:
    """The score that an answer holds: alone (`7`, `7/10`), as JSON (`{"score": 7}`) or in the last line of the form
    `SCORE: 7`. None when there is none, or when it lies outside of low..high."""
    text = re.sub(r"^```\w*\n|\n?```$", "", answer.strip()).strip()
    alone = _ALONE.fullmatch(text)
    found = alone.groups() if alone else _in_json(text)
    if found is None:
        lines = _NAMED.findall(text)
        found = lines[-1] if lines else None
    if found is None:
        return None
    number, of = float(found[0]), float(found[1]) if found[1] else high
    return number if of == high and low <= number <= high else None


def _in_json(text: str) -> tuple[str, str | None] | None:
    if not text.startswith("{"):
        return None
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    value = next((data[word] for word in _WORDS if word in data), None)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return repr(value), None


def scores_in(value: Any, low: float = 0.0, high: float = 10.0) -> list[float | None]:
    """The scores of a logged value: a number, a text, an object with a score, or a list of these. None: one that is none."""
    if isinstance(value, list):
        return [score for item in value for score in scores_in(item, low, high)]
    if isinstance(value, dict):
        inner = next((value[word] for word in (*_WORDS, "value") if word in value), None)
        return [None] if isinstance(inner, dict | list) else scores_in(inner, low, high)
    if isinstance(value, str):
        return [read_score(value, low, high)]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return [None]
    return [float(value) if low <= value <= high else None]


def put_together(
    votes: Sequence[float | None], low: float = 0.0, high: float = 10.0, source: str | None = None
) -> Score:
    """Mean and spread (standard deviation) of some votes, brought to 0..1; null unless more than half of them hold a score."""
    known = [(vote - low) / (high - low) for vote in votes if vote is not None]
    if 2 * len(known) <= len(votes):
        what = f"{len(votes) - len(known)} of {len(votes)} votes hold no score from {low:g} to {high:g}"
        return Score(None, reason=what, source=source)
    spread = statistics.pstdev(known) if len(votes) > 1 else None
    return Score(statistics.fmean(known), spread, source=source)
