"""Records that cannot be read, set aside with place and reason; and the beginning of a record, for people."""

from __future__ import annotations

from logforge.connectors.records import json as jsontext
from logforge.schemas.episode import Reject

_KEYS = 8
_KEY = 40


def at(locator: str, pointer: str) -> str:
    """The locator of something inside a record: `label:3` and `/a/0` give `label:3#/a/0`."""
    return f"{locator}#{pointer}" if locator.rpartition(":")[2].isdigit() else f"{locator}{pointer}"


def malformed(locator: str, error: Exception, data: bytes) -> Reject:
    """A record that is no JSON, or none that can be read; the error says which."""
    known = error if isinstance(error, jsontext.NotJson) else jsontext.NotJson(str(error))
    return Reject(
        locator=locator, reason=known.reason, rule=known.rule, detail=str(error), excerpt=excerpt(data)
    )


def too_deep(locator: str, records: int = 1) -> Reject:
    """A record whose parts hold one another in too long a chain."""
    return Reject(
        locator=locator, reason=jsontext.TooDeep.reason, rule=jsontext.TooDeep.rule, records=records
    )


def too_long(locator: str, what: str, size: int, limit: int, head: bytes) -> Reject:
    """A line, element or document (`what`) that has more bytes than may be held at once."""
    return Reject(
        locator=locator,
        reason=f"the {what} is too long to be read; --max-record sets the limit",
        rule=f"{what}_too_long",
        detail=f"{size:,} bytes, the limit is {limit:,}",
        excerpt=excerpt(head),
    )


def described(value: object) -> str:
    """What a value is, in few words: of an object its keys, of a list or a text its length."""
    if isinstance(value, dict):
        keys = ", ".join(str(key)[:_KEY] for key in list(value)[:_KEYS])
        more = f" and {len(value) - _KEYS} more" if len(value) > _KEYS else ""
        return f"an object with {keys}{more}" if keys else "an empty object"
    if isinstance(value, list | tuple):
        return f"a list of {len(value):,}"
    if isinstance(value, str | bytes):
        return f"text of {len(value):,} characters" if value else "empty text"
    return f"the value {jsontext.canonical(value)}"


def excerpt(value: object, limit: int = 200) -> str:
    """The beginning of a record, for people."""
    if isinstance(value, bytes):
        text = value[:limit].decode("utf-8", "replace")
    else:
        text = value if isinstance(value, str) else jsontext.canonical(value)
    return text[:limit]
