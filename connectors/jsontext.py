"""JSON as logs hold it: exact integers of any size, lone surrogates and NaN made harmless, canonical text out."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import msgspec

_decode = msgspec.json.decode
_encode = msgspec.json.Encoder(order="sorted").encode
_SURROGATE = re.compile("[\ud800-\udfff]")


class NotJson(ValueError):
    """The bytes are no JSON document; the message says where and why."""


def loads(data: bytes | str) -> Any:
    """Parse one JSON document. Integers stay exact; a lone surrogate becomes U+FFFD; NaN and infinities become None.

    Raises NotJson. Nesting beyond Python's recursion limit is NotJson too.
    """
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return _loads_lenient(data)


def _loads_lenient(data: bytes | str) -> Any:
    try:
        text = data.decode("utf-8") if isinstance(data, bytes) else data
        value = json.loads(text, parse_constant=_no_constant, parse_float=_finite)
        return _without_surrogates(value) if "\\u" in text or "\\U" in text else value
    except UnicodeDecodeError as error:
        raise NotJson(f"not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise NotJson(f"{error.msg} at character {error.pos}") from None
    except (RecursionError, ValueError) as error:
        raise NotJson(f"too deep or too large: {type(error).__name__}") from None


def _no_constant(_: str) -> None:
    return None


def _finite(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    return value


def canonical(value: Any) -> str:
    """JSON text with sorted keys and no spaces: equal values give equal text."""
    try:
        return _encode(value).decode()
    except (TypeError, OverflowError, msgspec.MsgspecError):
        return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
