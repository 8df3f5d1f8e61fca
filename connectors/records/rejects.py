"""Records that cannot be read, set aside with place and reason; and the beginning of a record, for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from logforge.connectors.records import json as jsontext
from logforge.schemas import Episode, Reading, Reject, Skip

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


def as_one_record(readings: Iterable[Reading], locator: str) -> Iterator[Reading]:
    """Count a document's readings as one record: its first episode takes it, whatever is set aside beside it is a part.

    Without an episode the first reject takes it, and without that the first skip.
    """
    found = list(readings)
    first = next((item for item in found if isinstance(item, Episode)), None)
    if first is None:
        chosen = next((item for item in found if isinstance(item, Reject)), found[0] if found else None)
        if isinstance(chosen, Reject):
            yield msgspec.structs.replace(chosen, level="record", records=1, episode_id=None)
        else:
            yield Skip(reason=chosen.reason if isinstance(chosen, Skip) else "empty_conversation")
        return
    for item in found:
        if isinstance(item, Episode):
            yield msgspec.structs.replace(item, records=int(item is first))
        elif isinstance(item, Reject):
            yield msgspec.structs.replace(
                item, level="part", records=1, episode_id=item.episode_id or first.episode_id
            )
        elif isinstance(item, Skip):
            # Beside an episode it can take no record, but it leaves its trace.
            reason = item.reason.replace("_", " ")
            yield Reject(
                level="part", locator=locator, reason=reason, rule=item.reason, episode_id=first.episode_id
            )
