"""What a tool's answer says of the call, and whether a turn asks the user: documented rules on text alone."""

from __future__ import annotations

import re
from collections.abc import Iterator

from logforge.connectors.episodes.soft_refusal import SOFT_REFUSAL, is_soft_refusal
from logforge.schemas import ResultStatus

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
_LABEL = re.compile(r"\s*OBSERVATION:[ \t]*\n?")
_EXIT_CODE = re.compile(
    r"\[(?:the )?command (?:finished|completed) with exit code (-?\d+)\.?\]\s*\Z", re.IGNORECASE
)
_EXIT_TAIL = 120
_TRACEBACK_TAIL = 600
_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(?::.*)?$", re.MULTILINE)
_HEAD = 400

ERROR_CLASSES: tuple[str, ...] = (*(name for name, _ in _CLASSES), "other")
"""Every class of an error, in order. The class of a refusal that is none is SOFT_REFUSAL."""


def classify_result(
    text: str | None, failed: bool | None = None, status: ResultStatus | None = None
) -> tuple[ResultStatus, str | None]:
    """Status and error class of a tool's answer.

    `status` is the log's own verdict and stands (a refusal that it tells is a person's or a guard's, and no tool's); `failed` is its own flag and wins over the text; without one, an exit code at the answer's end decides, then
    whether it begins like an error or ends with a traceback. A label `OBSERVATION:` is no part of the answer.

    What is no error may still refuse (soft_refusal.py): `refused`, of the class SOFT_REFUSAL. A flag that says that nothing failed
    does not speak against it.
    """
    found, kind = _read(text, failed)
    if status is None:
        return found, kind
    return status, None if kind == SOFT_REFUSAL else kind


def _read(text: str | None, failed: bool | None) -> tuple[ResultStatus, str | None]:
    if text and "OBSERVATION:" in text:
        text = _LABEL.sub("", text, count=1)
    if not text or not text.strip():
        return ("error", "other") if failed else ("empty", None)
    if failed is None and (code := _EXIT_CODE.search(text, max(0, len(text) - _EXIT_TAIL))):
        failed = code.group(1).strip("-0") != ""
    if failed is False:
        return _answered(text)
    if _TIMEOUT_START.match(text):
        return "timeout", "timeout"
    if failed or _ERROR_START.match(text):
        return "error", error_class(text)
    raised = _raised(text)
    return _answered(text) if raised is None else ("error", error_class(raised))


def _answered(text: str) -> tuple[ResultStatus, str | None]:
    return ("refused", SOFT_REFUSAL) if is_soft_refusal(text) else ("ok", None)


def _raised(text: str) -> str | None:
    """The exception with which a text ends: after the last frame of a traceback, when that frame is near the end."""
    tail = text[-_TRACEBACK_TAIL:]
    frame = max(tail.rfind(' File "'), tail.rfind('\tFile "'))
    if frame < 0 or "Traceback (most recent call last" not in text:
        return None
    raised = _EXCEPTION.search(tail, frame)
    return raised and raised.group()


def error_class(text: str) -> str:
    """The first class whose words stand in the beginning of an error's text."""
    head = text[:_HEAD]
    return next((name for name, pattern in _CLASSES if pattern.search(head)), "other")


FINISHING: frozenset[str] = frozenset(
    {"mark_task_complete", "task_complete", "finish", "submit", "complete_task", "attempt_completion", "done"}
)
"""Calls by which agents end a run; nothing need answer them."""

# The patterns from here on read lower case: ignoring case within them takes several times as long.
_COURTESY = re.compile(
    r"(?:anything|something) else|(?:help|assist)(?: you)? (?:with|further)|how (?:can|may) i (?:help|assist)"
)
_COURTESY_HOLDS = ("thing else", "help", "assist")
_SENTENCE_ENDS = ".!?。！？\n"
_CLOSERS = " \t\r\n\"'”’)*_"
_ANSWERS = re.compile(r"[?？][ \t*_]*\([^()?]{1,120}\)[.\s]*\Z")
_TELL = "(?:provide|share|tell|confirm|specify|clarify|give|send|describe|verify)"
_WHAT = r"(?:which|what|your|the|whether|how\ (?:many|much|you(?:['’]d|\ would)))\b"
_REQUEST = re.compile(
    rf"""(?:could|can|would|will)\ you\ (?:(?:please|kindly|also|first)\ )*(?:{_TELL}|let\ me\ know)\b
      | (?:may|can|could|might)\ i\ (?:(?:please|kindly|also|first)\ )*
        (?:(?:have|get)\ (?:your|the|a|an|some|more)|know|ask\ (?:for|you|what|which|how|why|whether|if))\b
      | please\ (?:(?:also|first|kindly)\ )*(?:
            (?:provide|specify|clarify|describe|indicate)\b
          | (?:confirm|verify)\b(?!\ with\b(?!\W+(?:an?\W+)?yes\b))
          | share\ (?:with\ me|your|any|more|some|details|which|what)\b
          | tell\ (?:me|us)\b | (?:give|send)\ (?:me|us|over|your)\b | enter\ your\b
          | (?:reply|respond|answer)\ (?:with|by|yes|to\ (?:this|these|the\ following))\b
          | let\ me\ know\ {_WHAT}
        )
      | let\ me\ know\ {_WHAT}
      | (?:tell|give|send)\ me\ (?:your|which|what|whether)\b
      | 请(?:您|你)?(?:提供|告诉我|告知)""",
    re.VERBOSE,
)
_REQUEST_WORDS = (
    *("please ", "let me know ", "tell me ", "give me ", "send me ", "请"),
    *("could you ", "can you ", "would you ", "will you "),
    *("may i ", "can i ", "could i ", "might i "),
)
"""How a request begins: looking for these words and matching there takes half the time of a search for the pattern."""
_NEED = re.compile(
    rf"""i(?:['’]ll|\ will|['’]d|\ would)?\ (?:(?:also|just|still|first)\ )*need\ (?:
            your\b | you\ to\ {_TELL}\b | to\ (?:know|verify|confirm)\ (?:your|which|what|whether)\b
        )""",
    re.VERBOSE,
)
_QUOTING = re.compile(r"""["“'‘\w]""")
"""What stands before a request that is part of a word or of somebody else's words."""
_NO_REQUEST = re.compile(
    r"""\A\W*(?:\d+[.)]\s*)?(?:if(?!\ so\b)|once|when(?:ever)?|after|should\ you|in\ case|unless|as\ soon\ as|feel\ free)\b
      | (?:anything|something)\ else | how\ (?:can|may)\ i\ (?:help|assist) | what\ i\ (?:can|may)\ do
      | what\ you\ think | if\ you\ (?:have|need|want|encounter|run)\b | (?:any|more|further)\ questions""",
    re.VERBOSE,
)
_SENTENCE_BREAK = re.compile(r"[.!?][\s*_]+|\n[\s*_]*")
_FULL_WIDTH = "。！？"
_LETTER_HOLDS = ("sincerely", "regards", "yours truly", "best wishes", "[your name]", "```")
_LETTER = re.compile(r"\b(?:sincerely|regards|yours truly|best wishes)\b|\[your name\]|```")
_REQUEST_TAIL = 1000
_QUESTION_TAIL = 500


def asks_user(text: str | None) -> bool:
    """True when a turn asks the user for something: its last sentence is a question, or one of its last sentences is a
    request; neither may be a courtesy."""
    if not text:
        return False
    tail = text[-_REQUEST_TAIL:].lower()
    return _ends_with_question(tail[-_QUESTION_TAIL:]) or _requests(tail, whole=len(text) <= _REQUEST_TAIL)


def _ends_with_question(tail: str) -> bool:
    answers = _ANSWERS.search(tail) if ")" in tail else None  # those to choose from: "Shall I? (yes/no)"
    tail = (tail[: answers.start() + 1] if answers else tail).rstrip(_CLOSERS)
    if not tail.endswith(("?", "？")):
        return False
    question = tail[max(map(tail[:-1].rfind, _SENTENCE_ENDS)) + 1 :]
    return not (_holds(question, _COURTESY_HOLDS) and _COURTESY.search(question))


def _requests(tail: str, whole: bool) -> bool:
    """A request in the last thousand characters. A letter that the agent wrote asks somebody else."""
    if not tail.isascii():
        for mark in _FULL_WIDTH:
            tail = tail.replace(mark, "\n")
    asks = any(_is_request(tail, place, whole) for place in _request_places(tail))
    return asks and not (_holds(tail, _LETTER_HOLDS) and _LETTER.search(tail))


def _request_places(tail: str) -> Iterator[int]:
    for word in _REQUEST_WORDS:
        place = tail.find(word)
        while place >= 0:
            if _REQUEST.match(tail, place):
                yield place
            place = tail.find(word, place + 1)
    if "need " in tail:
        yield from (found.start() for found in _NEED.finditer(tail))


def _is_request(tail: str, place: int, whole: bool) -> bool:
    """Whether what begins at a place stands in a sentence that asks; of a first sentence that is cut, the beginning, which
    may be an "if", is not there."""
    start = _sentence_start(tail, place)
    if (start == 0 and not whole) or (place > start and _QUOTING.match(tail[place - 1])):
        return False
    end = _SENTENCE_BREAK.search(tail, place)
    return not _NO_REQUEST.search(tail[start : end.start() if end else None])


def _sentence_start(tail: str, place: int) -> int:
    mark = place
    while (mark := max(map(tail[:mark].rfind, ".!?\n"))) >= 0:
        if found := _SENTENCE_BREAK.match(tail, mark):
            return found.end()
    return 0


def _holds(text: str, words: tuple[str, ...]) -> bool:
    for word in words:  # noqa: SIM110 (a generator takes twice as long)
        if word in text:
            return True
    return False
