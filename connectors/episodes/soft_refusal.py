"""Answers by which a tool refuses in its own world: "please give the account information first", with no error and no code.

A strict environment answers a call that comes too early, or of a tool that it lacks, as a person would. Such an answer is no runtime
error, and the call did nothing. It is told by its words alone, so the rule is narrow: one short paragraph, or a small JSON object's
message, of which one clause says what has to be there first. What an article, a letter or a listing says of conditions is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

SOFT_REFUSAL: Final = "soft_refusal"
"""What `error_class` calls it. Beside the status `refused` it tells a tool's own refusal from that of a person or a guard."""

_LONGEST, _LONGEST_JSON = 240, 400
_MESSAGE_KEYS = frozenset(
    {"message", "msg", "detail", "details", "reason", "result", "response", "answer", "text", "output"}
)
_CLAUSE_END = re.compile(r"[.!?;:]+(?:\s+|\Z)|\s+[–—-]\s+")
_ASKED = (
    r"(?:accounts?|numbers?|ids?|identifiers?|identity|names?|e-?mails?|address(?:es)?|dates?|codes?|tokens?|keys?|passwords?|pins?"
    r"|credentials|confirmations?|verification|authentication|approvals?|authori[sz]ation|log-?in|information|details|class|categor(?:y|ies)"
    r"|reasons?|arguments?|parameters?|fields?)"
)
_TELL = r"(?:provide|give|supply|specify|state|enter|confirm|verify|identify|obtain|attach|select|choose|classify)"
_DO_FIRST = (
    rf"(?:{_TELL}|authenticate|log\ in|sign\ in|ask|get|find|look\ up|pick|complete|open|read|create|connect)"
)
_CANNOT = r"(?:cannot|can\ ?not|can['’]t|may\ not|must\ not|(?:is|are)\ not\ (?:possible|allowed|permitted))"
_CHECKED = r"(?:is|are|has|have|been|was|you)"
_GO_ON = (
    r"(?:go\ on|proceed|continue|start|begin|do|try|use|touch|change|close|send|issue|make|call|act|can|may)"
)
_CLAUSE = re.compile(
    rf"""(?:
        (?:please|kindly)\b.*\bfirst
      | (?:please|kindly)\ first\ .+
      | (?:you\ (?:must|need\ to|have\ to|should)\ )?(?:please\ )?{_DO_FIRST}\b.*\bfirst(?:\ (?:before|so|to)\b.*)?
      | you\ (?:must|need\ to|have\ to)\ first\ .+
      | .*\b{_CANNOT}\b.*\b(?:until|before|unless)\b.*\b{_CHECKED}\b.*
      | .*\b{_CANNOT}\ (?:be\ done|do\ (?:this|that|it)|proceed|continue|go\ on|begin|start|help|process|access|look\ up|verify|authenticate)\b
        .*\bwithout\b.*
      | .*\b(?:is|are|stays?|remains?)\ (?:still\ )?(?:locked|blocked|disabled|restricted)\b.*\b(?:until|unless)\b.*\b{_CHECKED}\b.*
      | (?:this|that|it|the\ (?:action|operation|request|tool|call|command|step|function))\ can\ (?:be\ \w+\ only|only\ be\ \w+)
        \ (?:once|after|when|if|for)\b.*\b{_CHECKED}\b.*
      | (?:.*\ )?{_ASKED}\ (?:.{{0,20}}\ )?(?:is|are)\ (?:still\ )?(?:needed|required|missing)
        (?:\ (?:first|here|before\b.*|to\ {_GO_ON}\b.*))?(?:,.*)?
      | (?:i|we)\ need\ (?:your|the\ (?:customer|user)['’]s)\b.*\b{_ASKED}\b.*
      | you(?:\ are|['’]re)\ not\ (?:yet\ )?(?:authori[sz]ed|allowed|permitted|logged\ in|signed\ in|authenticated|verified)\b.*
      | (?:please\ |kindly\ )?{_DO_FIRST}\b.*\bbefore\ (?:you\ {_GO_ON}|(?:it|this|that)\ can)\b.*
      | (?:there\ is|there['’]s)\ nothing\ to\ \w+\ yet
      | no\ .{{2,40}}\ (?:has|have)\ been\ (?:given|provided|picked|chosen|selected|attached|specified|named|entered)\b.*
      | (?:there\ is\ )?no\ such\ (?:tool|command|function)\b.*
      | .*\b(?:does\ not|doesn['’]t)\ know\ (?:that|this)\ (?:command|tool|function)\b.*
      | (?:nobody|no\ one|nothing)\ .*\b(?:such\ an?\ (?:tool|command|function)|of\ (?:that|this)\ name)\b.*
      | .*\b(?:is\ not|isn['’]t)\ (?:one\ of\ (?:the|your)|an?)\ (?:available\ |known\ |offered\ )?(?:tools?|commands?|functions?)\b.*
    )\Z""",
    re.VERBOSE,
)
"""A clause that refuses, in lower case."""
_OPENING = re.compile(
    rf"you\ (?:must|need\ to|have\ to)\ (?:also\ )?(?:{_TELL}|authenticate|log\ in|sign\ in)\b"
    rf"|(?:please|kindly)\ {_TELL}\ .{{0,40}}\b{_ASKED}\b",
    re.VERBOSE,
)
"""What refuses where an answer begins with it; further on it may be advice."""
_SORRY = re.compile(r"(?:sorry|i['’]m sorry|i am sorry|unfortunately|however|but|so|ok|okay)[,:]?\s+")


def is_soft_refusal(text: str) -> bool:
    """Whether an answer says that something has to be there first, or that there is no such tool, as a world's reply and not as an
    error."""
    if len(text) > _LONGEST_JSON:
        return False
    said = text.strip()
    return any(map(_refuses, _messages(said) if said.startswith("{") else (said,)))


def _messages(text: str) -> Iterator[str]:
    """What a JSON object says in words."""
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return
    for key, value in found.items():
        if isinstance(value, str) and key.lower() in _MESSAGE_KEYS:
            yield value.strip()


def _refuses(said: str) -> bool:
    if len(said) > _LONGEST or " " not in said or "\n" in said:
        return False
    clauses = [_SORRY.sub("", clause.strip(" \t\"'*_(),"), 1) for clause in _CLAUSE_END.split(said.lower())]
    return bool(_OPENING.match(clauses[0])) or any(map(_CLAUSE.match, clauses))
