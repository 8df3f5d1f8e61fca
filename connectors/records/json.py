"""JSON as logs hold it: exact integers, lone surrogates and NaN made harmless, a limit on depth, canonical text out."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

import msgspec

from logforge.connectors.records.brackets import BLOCK, deepest, openings

MAX_DEPTH = 200
"""Deeper nesting is refused, so that whatever walks a value never meets Python's own limit (1,000 calls)."""

TOLD = frozenset(
    {"reward", "score", "final_reward", "final_score", "max_reward", "success", "resolved", "passed"}
)
"""Keys that hold an outcome: NaN there is no outcome that was left out, so whoever reads it must see it."""

_decode = msgspec.json.decode
_cut_up = msgspec.json.Decoder(list[msgspec.Raw]).decode
_encode = msgspec.json.Encoder(order="sorted").encode
_SURROGATE = re.compile("[\ud800-\udfff]")


class Halved(str):
    """A text with halves of characters (lone surrogates), each replaced by U+FFFD. `logged` has the halves: the next piece of a
    stream may hold the other one (see `joined`). Only `loads(…, halves=True)` gives it."""

    logged: str

    @classmethod
    def of(cls, text: str) -> str:
        """The text as it is where it has no lone half."""
        whole = _replaced(text)
        if whole == text:
            return text
        halved = cls(whole)
        halved.logged = text
        return halved


def joined(pieces: Iterable[str]) -> str:
    """The pieces of a stream as one text. Two halves of a character that meet are the character; one that stays alone is U+FFFD."""
    found = list(pieces)
    if not any(isinstance(piece, Halved) for piece in found):
        return "".join(found)
    text = "".join(piece.logged if isinstance(piece, Halved) else piece for piece in found)
    met = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return _replaced(met)


class NotJson(ValueError):
    """The bytes are no JSON document, or none that is read; the message says where and why.

    `rule` and `reason` name the kind for a Reject.
    """

    rule = "malformed_record"
    reason = "not valid JSON (cut off or damaged)"


class TooDeep(NotJson):
    """Objects and lists that hold one another more than MAX_DEPTH levels deep."""

    rule = "nested_too_deep"
    reason = f"nested more than {MAX_DEPTH} levels deep"


class LongNumber(NotJson):
    """An integer of more digits than Python converts (4,300): no log means that, and the time grows with their square."""

    rule = "number_too_long"
    reason = "an integer of more than 4,300 digits"


class SeveralDocuments(NotJson):
    """One document directly behind another: two writers, or a pretty-printed stream."""

    rule = "several_documents"
    reason = "one JSON document directly behind another; `jq -c .` writes each on a line of its own"


def loads(data: bytes | str, *, is_shallow: bool = False, halves: bool = False) -> Any:
    """Parse one JSON document. Integers stay exact; a lone surrogate becomes U+FFFD; NaN and infinities become None, but where an outcome
    stands.

    Raises NotJson; for what is nested more than MAX_DEPTH levels deep TooDeep. `is_shallow` says that it is not. With `halves`
    a text with lone surrogates is Halved.
    """
    try:
        value = _decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        value = _loads_lenient(data, Halved.of if halves else _replaced)
    if not is_shallow and openings(data) > MAX_DEPTH and _is_deep(value, data):
        raise _too_deep(data)
    return value


def cut_up(data: bytes) -> list[msgspec.Raw]:
    """The elements of a JSON array, unparsed; none when the array is damaged."""
    try:
        return _cut_up(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return []


def until_damaged(parts: Iterable[msgspec.Raw], *, halves: bool = False) -> Iterator[Any]:
    """What each part holds, up to the first that is not read."""
    with suppress(NotJson):
        for part in parts:
            yield loads(bytes(part), halves=halves)


def _replaced(text: str) -> str:
    return _SURROGATE.sub("\ufffd", text)


def _loads_lenient(data: bytes | str, clean: Callable[[str], str]) -> Any:
    try:
        text = data.decode("utf-8") if isinstance(data, bytes) else data
        odd: list[float] = []
        value = json.loads(
            text, parse_constant=lambda word: _odd(word, odd), parse_float=lambda word: _odd(word, odd)
        )
        value = _nulled(value) if odd else value
        return _without_surrogates(value, clean) if "\\u" in text or "\\U" in text else value
    except UnicodeDecodeError as error:
        raise NotJson(f"not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        follows = error.msg == "Extra data" and error.doc[error.pos] in "{["
        kind = SeveralDocuments if follows else NotJson
        raise kind(f"{error.msg.removesuffix(' at')} at character {error.pos}") from None
    except RecursionError:
        raise _too_deep(data) from None
    except ValueError as error:  # that of int(), which json.loads lets through
        raise LongNumber(str(error).partition(";")[0]) from None


def _is_deep(value: Any, data: bytes | str) -> bool:
    """Look at the bytes of a long text; else at the value level by level, which needs no call for each."""
    if len(data) > BLOCK and isinstance(data, bytes):
        return deepest(data) > MAX_DEPTH
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(MAX_DEPTH):
        level = [
            item
            for held in level
            for item in (held.values() if type(held) is dict else held)
            if type(item) is dict or type(item) is list
        ]
        if not level:
            return False
    return True


def _too_deep(data: bytes | str) -> TooDeep:
    levels = deepest(data if isinstance(data, bytes) else data.encode("utf-8", "replace"))
    return TooDeep(f"{levels:,} levels, the limit is {MAX_DEPTH}")


def _odd(text: str, odd: list[float]) -> float:
    """The number; one that is not finite is noted too."""
    value = float(text)
    if not math.isfinite(value):
        odd.append(value)
    return value


def _nulled(value: Any, *, told: bool = False) -> Any:
    """A value with None in the place of numbers that are not finite, but where an outcome stands (`told`)."""
    if isinstance(value, list):
        return [_nulled(item) for item in value]
    if isinstance(value, dict):
        return {key: _nulled(item, told=key in TOLD) for key, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) and not told else value


def without_halves(value: Any) -> Any:
    """The value with plain texts in place of those that are Halved."""
    return _without_surrogates(value, str)


def _without_surrogates(value: Any, clean: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_without_surrogates(item, clean) for item in value]
    if isinstance(value, dict):
        return {_replaced(key): _without_surrogates(item, clean) for key, item in value.items()}
    return value


def canonical(value: Any) -> str:
    """JSON text with sorted keys and no spaces: equal values give equal text."""
    try:
        return _encode(value).decode()
    except (TypeError, OverflowError, msgspec.MsgspecError):
        return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
