"""What a tool's answer says of the call, and whether a turn asks the user: documented rules on text alone."""

from __future__ import annotations

import re

from logforge.schemas.episode import ResultStatus

_ERROR_START = re.compile(
    r"\s*[\[(\"']*(?:<[a-z_]*error[a-z_]*>|error\b|\w*(?:Error|Exception)\b|traceback \(most recent|fatal:|failed\b|failure\b"
    r"|usage:|invalid\b|permission denied|command not found|bash: |sh: \d+: )"
    r"|\s*\{\s*[\"']error[\"']\s*:(?!\s*(?:null|none|false|[\"']{2}))",
    re.IGNORECASE,
)
_CLASSES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(pattern, re.IGNORECASE))
    for name, pattern in (
        ("timeout", r"timed?[ -]?out|deadline exceeded"),
        ("rate_limit", r"rate.?limit|too many requests|\b429\b|quota"),
        ("auth", r"unauthori[sz]ed|forbidden|permission denied|access denied|\b40[13]\b|not allowed"),
        ("not_found", r"not found|no such|does not exist|unknown|\b404\b"),
        (
            "invalid_arguments",
            r"invalid|argument|parameter|expected|missing|does not add up|must be|required|usage:|syntax",
        ),
        ("server", r"\b5\d\d\b|internal error|unavailable|connection"),
    )
)
_TIMEOUT_START = re.compile(
    r"\s*(?:execution |command |request |operation |the command )?timed?[ -]?out\b", re.IGNORECASE
)
_HEAD = 400

ERROR_CLASSES: tuple[str, ...] = (*(name for name, _ in _CLASSES), "other")
"""Every value `error_class` can take, in order."""


def classify_result(text: str | None, failed: bool | None = None) -> tuple[ResultStatus, str | None]:
    """Status and error class of a tool's answer.

    `failed` is the log's own flag and wins over the text; without one, an answer that begins like an error is one.
    """
    if not text or not text.strip():
        return ("error", "other") if failed else ("empty", None)
    if failed is False:
        return "ok", None
    if _TIMEOUT_START.match(text):
        return "timeout", "timeout"
    if failed or _ERROR_START.match(text):
        return "error", error_class(text)
    return "ok", None


def error_class(text: str) -> str:
    """The first class whose words stand in the beginning of an error's text."""
    head = text[:_HEAD]
    return next((name for name, pattern in _CLASSES if pattern.search(head)), "other")


_COURTESY = re.compile(
    r"(?:anything|something) else|(?:help|assist)(?: you)? (?:with|further)|how (?:can|may) i (?:help|assist)",
    re.IGNORECASE,
)
_SENTENCE_ENDS = ".!?。！？\n"
_CLOSERS = " \t\r\n\"'”’)*_"


def asks_user(text: str | None) -> bool:
    """True when a turn ends by asking for something (its last sentence is a question and not a closing courtesy)."""
    if not text or ("?" not in text[-80:] and "？" not in text[-80:]):
        return False
    tail = text[-500:].rstrip(_CLOSERS)
    if not tail.endswith(("?", "？")):
        return False
    start = max(tail.rfind(mark, 0, len(tail) - 1) for mark in _SENTENCE_ENDS) + 1
    return not _COURTESY.search(tail, start)
