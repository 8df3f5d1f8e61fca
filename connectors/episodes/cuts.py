"""Whether a run was cut off before it ended: what APIs, harnesses and trainers write beside a message or a run, by one rule.

A run that met a limit has not ended: what would have come is unknown, and a learner must not take it for nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

_FLAGS = ("truncated", "is_truncated", "isTruncated")
_REASONS = (
    "stop_condition",
    "stopCondition",
    "finish_reason",
    "finishReason",
    "finish_reasons",
    "stop_reason",
    "stopReason",
    "done_reason",
    "termination_reason",
    "incomplete_details",
    "incompleteDetails",
)
"""Keys that say why a run, or a response of the model, stopped."""
_ANY_REASON = frozenset(_REASONS)
_INNER = ("type", "reason", "unified", "name", "value")
"""Where the word lies when the value is an object."""

_MET = r"(?:_(?:reached|exceeded|hit|limit|error))?"
_WORDS = tuple(
    (re.compile(pattern), why)
    for pattern, why in (
        (
            rf"length|max_length|output_length|max_output|max_(?:\w+_)?tokens?{_MET}|(?:\w+_)?token_limit{_MET}|length_capped"
            r"|(?:generation|response|output|completion)_truncated|truncated|truncation",
            "the model's output limit",
        ),
        (
            r"(?:model_)?(?:context|prompt)_(?:\w+_)?(?:exceeded|overflow|full|too_long)|prompt_too_long|model_length"
            r"|context_(?:length|window)(?:_limit)?|context_overflow",
            "context overflow",
        ),
        (
            rf"(?:error_)?max_(?:\w+_)?(?:turns?|steps?|iterations?|rounds?|actions?|calls?){_MET}"
            rf"|(?:turns?|steps?|iterations?|recursion){_MET.removesuffix('?')}|too_many_(?:turns|steps|iterations|errors)|max_errors{_MET}",
            "the limit of turns",
        ),
        (
            rf"time_?out{_MET}|timed_out|time_limit{_MET}|max_(?:wall_?)?time{_MET}|deadline{_MET}",
            "the time limit",
        ),
        (
            rf"(?:error_)?(?:max_)?(?:cost|budget)(?:_\w+)?_(?:reached|exceeded|limit|usd)|limits_?exceeded{_MET}",
            "the budget",
        ),
        (r"content_filter(?:ed)?|safety|recitation", "the content filter stopped it"),
        (r"aborted|abort|cancell?ed|interrupted|incomplete", "it was stopped"),
        (r"(?:has_)?error|failed", "an error stopped it"),
    )
)
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_GAP = re.compile(r"[\W_]+")


def limit_met(value: Any) -> str | None:
    """Why a run that stopped for this reason was cut off; None for one that ended, and for reasons that are not known."""
    for word in _words(value):
        name = _GAP.sub("_", _HUMP.sub("_", word)).strip("_").lower()
        for pattern, why in _WORDS:
            if pattern.fullmatch(name):
                return why
    return None


def _words(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value[:100]
    elif isinstance(value, dict):
        yield from (value[key][:100] for key in _INNER if isinstance(value.get(key), str))
    elif isinstance(value, list):
        yield from (word[:100] for word in value[-1:] if isinstance(word, str))


def stopped_by(message: dict[str, Any]) -> str | None:
    """Why a message of the agent, or a response, was cut off, as its own keys say; None when they do not."""
    if _ANY_REASON.isdisjoint(message):
        return None
    return next((why for key in _REASONS if key in message and (why := limit_met(message[key]))), None)


def cut_by(run: dict[str, Any]) -> str | None:
    """Why a whole run was cut off, as the keys beside its messages say: a reason, or a flag that is true."""
    return stopped_by(run) or ("the log says so" if any(run.get(flag) is True for flag in _FLAGS) else None)
