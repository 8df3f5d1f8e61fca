"""What people said of an answer: thumbs, likes and ratings as success and score. The rule is in docs/formats/dialogue.md.

A word, a truth value, or 1 and -1 in a thumbs field is a verdict (success). Any other number is a score as it stands: its
scale is not in the log, so it is no verdict. A 0 among thumbs is neither: it means "down" to some and "no vote" to others.
"""

from __future__ import annotations

from typing import Any, NamedTuple

RATING_KEYS = (
    "rating",
    "user_rating",
    "human_rating",
    "stars",
    "thumbs",
    "thumb",
    "thumbs_up",
    "feedback",
    "user_feedback",
    "vote",
    "liked",
    "like",
)
"""Keys that hold a rating, in the order in which they are asked."""
_THUMBS = frozenset({"thumbs", "thumb", "thumbs_up", "feedback", "user_feedback", "vote", "liked", "like"})
_YES_OR_NO = frozenset({"thumbs_up", "liked", "like"})
_INNER = ("rating", "score", "value", "thumbs", "thumb", "vote", "label")
_UP = frozenset(
    "up thumbs_up thumbsup thumb_up like liked positive good yes helpful upvote upvoted 👍 +1 true".split()
)
_DOWN = frozenset(
    "down thumbs_down thumbsdown thumb_down dislike disliked negative bad no unhelpful downvote downvoted 👎 -1 false".split()
)


class Rating(NamedTuple):
    """What a rating says: a verdict, a score, or (a free text, say) neither; and the fields that said so."""

    success: bool | None = None
    score: float | None = None
    source: str | None = None

    def __bool__(self) -> bool:
        return self.success is not None or self.score is not None

    @property
    def reward(self) -> float | None:
        """The rating as one number: the score, or 1 and 0 for a verdict."""
        if self.score is not None:
            return self.score
        return None if self.success is None else float(self.success)


_NONE = Rating()
_RATING_KEYS = frozenset(RATING_KEYS)


def rating_of(row: dict[str, Any]) -> Rating:
    """The verdict and the score that a row's rating fields give; the first field that gives one decides on it."""
    if _RATING_KEYS.isdisjoint(row):
        return _NONE
    found = [(_read(key, row[key]), key) for key in RATING_KEYS if key in row]
    success, judge = next(((r.success, key) for r, key in found if r.success is not None), (None, None))
    score, scorer = next(((r.score, key) for r, key in found if r.score is not None), (None, None))
    named = dict.fromkeys(key for key in (judge, scorer) if key is not None)
    return Rating(success, score, "+".join(named) or None)


def _read(key: str, value: Any) -> Rating:
    if isinstance(value, dict):
        inner = next((name for name in _INNER if value.get(name) is not None), None)
        return _read(key if inner in ("score", "value") else inner, value[inner]) if inner else Rating()
    if isinstance(value, bool):
        return Rating(success=value)
    if isinstance(value, str):
        return _read_text(key, value)
    if not isinstance(value, int | float) or not abs(value) < 1e300:
        return Rating()
    if key in _THUMBS and value in (1, 0, -1):
        return Rating() if value == 0 and key not in _YES_OR_NO else Rating(success=value == 1)
    return Rating(score=float(value))


def _read_text(key: str, text: str) -> Rating:
    word = (
        text.strip().lower().replace(" ", "_").replace("-", "_")
        if text.strip() not in ("-1", "+1")
        else text.strip()
    )
    if word in _UP:
        return Rating(success=True)
    if word in _DOWN:
        return Rating(success=False)
    try:
        number = float(text)
    except ValueError:
        return Rating()
    return _read(key, number)
