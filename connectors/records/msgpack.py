"""MessagePack as plain values, so that what is packed is read and found again like JSON.

An extension comes as `{"ext": CODE, "value": …}`, with what is packed in it unpacked too. Nothing is built of what it names.
"""

from __future__ import annotations

from typing import Any

import msgspec

from logforge.connectors.records.json import MAX_DEPTH, NotJson


def unpacked_value(data: bytes) -> Any:
    """The value that is packed. Keys are texts, bytes a mark. Raises NotJson."""
    try:
        return _plain(msgspec.msgpack.decode(data, ext_hook=_extension), MAX_DEPTH)
    except (msgspec.MsgspecError, ValueError, RecursionError, TypeError) as error:
        raise NotJson(f"no MessagePack: {str(error)[:200]}") from None


def _extension(code: int, data: memoryview) -> Any:
    inner: Any
    try:
        inner = msgspec.msgpack.decode(data, ext_hook=_extension)
    except (msgspec.MsgspecError, ValueError, TypeError):
        inner = bytes(data)
    return {"ext": code, "value": inner}


def _plain(value: Any, depth: int) -> Any:
    if depth <= 0:
        raise NotJson("nested too deep")
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(key): _plain(v, depth - 1) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner, depth - 1) for inner in value]
    if isinstance(value, str | int | float | bool) or value is None:
        return value
    return f"[{len(value):,} bytes]" if isinstance(value, bytes | bytearray) else str(value)
