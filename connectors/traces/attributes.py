"""The attributes of a span, however they were written: OTLP's list of typed values, a flat object, or a nested one.

Keys are dotted (`llm.model_name`); every value knows its locator. Messages flattened into indexed keys
(`llm.input_messages.0.message.role`) come back as rows.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator
from typing import Any, NamedTuple

from logforge.connectors.episodes import first_text, micros, text_or_none
from logforge.connectors.traces.envelopes import Where
from logforge.connectors.traces.messages import inside

_INDEX = re.compile(r"(\d{1,6})(?:\.(.+))?\Z", re.DOTALL)
_TYPED = ("stringValue", "boolValue", "intValue", "doubleValue", "bytesValue", "arrayValue", "kvlistValue")


class Found(NamedTuple):
    """A value and the locators of what is inside it."""

    value: Any
    where: Where

    @property
    def locator(self) -> str:
        """Where the value itself stands."""
        return self.where("")


Row = dict[str, Found]
"""Dotted keys of one element of a flattened list."""


def escape(key: str) -> str:
    """A key as a token of a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")


class Attributes:
    """Read-only access by dotted key."""

    def __init__(self, raw: Any, locator: str) -> None:
        self.locator = locator
        self._flat: Row = {}
        if isinstance(raw, list):
            for index, pair in enumerate(raw):
                if isinstance(pair, dict) and isinstance(pair.get("key"), str):
                    self._add_typed(pair["key"], pair.get("value"), f"{locator}/{index}/value")
        elif isinstance(raw, dict):
            flatten(self._flat, "", raw, _at(locator))

    def _add_typed(self, key: str, value: Any, where: str) -> None:
        pointers: dict[str, str] = {}
        plain = _untyped(value, "", "", pointers)
        found = Found(plain, lambda pointer: where + pointers.get(pointer, _nearest(pointer, pointers)))
        if isinstance(plain, dict):
            flatten(self._flat, key + ".", plain, found.where)
        self._flat[key] = found

    def __len__(self) -> int:
        return len(self._flat)

    def __contains__(self, key: str) -> bool:
        return key in self._flat

    def __iter__(self) -> Iterator[str]:
        return iter(self._flat)

    def get(self, key: str) -> Any:
        """A value, or None."""
        found = self._flat.get(key)
        return found.value if found else None

    def find(self, *keys: str) -> Found | None:
        """The first of these keys that holds something."""
        return next(
            (f for key in keys if (f := self._flat.get(key)) is not None and f.value is not None), None
        )

    def text(self, *keys: str) -> str | None:
        """The first of these keys that holds a scalar, as text."""
        return next((t for key in keys if (t := text_or_none(self.get(key))) is not None), None)

    def number(self, *keys: str) -> float | None:
        """The first of these keys that holds a finite number, or text of one (OTLP writes integers as text)."""
        return next((n for key in keys if (n := number_of(self.get(key))) is not None), None)

    def count(self, *keys: str) -> int | None:
        """The first of these keys that holds a count."""
        number = self.number(*keys)
        return int(number) if number is not None and 0 <= number < 1 << 31 else None

    def rows(self, prefix: str) -> list[Row]:
        """The elements of a list, whether it is a list, JSON text of one, or flattened into `prefix.0.key` keys."""
        return rows_of(self._flat, prefix)


def rows_of(flat: Row, prefix: str) -> list[Row]:
    """The elements of a list inside dotted keys."""
    whole = flat.get(prefix)
    if whole is not None:
        value, where = inside(whole.value, whole.where)
        if isinstance(value, list):
            return [_row(element, where, index) for index, element in enumerate(value)]
    rows: dict[int, Row] = {}
    for key, found in flat.items():
        match = _INDEX.match(key, len(prefix) + 1) if key.startswith(prefix + ".") else None
        if match:
            rows.setdefault(int(match[1]), {})[match[2] or ""] = found
    return [rows[index] for index in sorted(rows)]


def _row(element: Any, where: Where, index: int) -> Row:
    row: Row = {}

    def here(pointer: str) -> str:
        return where(f"/{index}{pointer}")

    row[""] = Found(element, here)
    if isinstance(element, dict):
        flatten(row, "", element, here)
    return row


def flatten(flat: Row, prefix: str, value: dict[str, Any], where: Where) -> None:
    """Add an object's values under dotted keys; inner objects are there as a whole and by their own keys."""
    for key, inner in value.items():

        def here(pointer: str, key: str = key) -> str:
            return where(f"/{escape(key)}{pointer}")

        flat[prefix + key] = Found(inner, here)
        if isinstance(inner, dict):
            flatten(flat, f"{prefix}{key}.", inner, here)


def _at(locator: str) -> Where:
    return lambda pointer: locator + pointer


def typed(value: Any, where: str) -> Found:
    """An OTLP AnyValue that stands at a locator, as a plain value."""
    pointers: dict[str, str] = {}
    plain = _untyped(value, "", "", pointers)
    return Found(plain, lambda pointer: where + pointers.get(pointer, _nearest(pointer, pointers)))


def _nearest(pointer: str, pointers: dict[str, str]) -> str:
    """Of a pointer into JSON text or into what has no pointer of its own: that of the value around it, and the rest."""
    outer, mark, rest = pointer.partition("#")
    while outer and outer not in pointers:
        outer = outer.rpartition("/")[0]
    return pointers.get(outer, "") + mark + rest


def _untyped(value: Any, pointer: str, raw: str, pointers: dict[str, str]) -> Any:
    """The plain value of an OTLP AnyValue; `pointers` gets where each part of it stands in the typed one."""
    pointers[pointer] = raw
    kind = next((key for key in _TYPED if key in value), None) if isinstance(value, dict) else None
    if kind is None:
        return None if value == {} else value
    inner, raw = value[kind], f"{raw}/{kind}"
    pointers[pointer] = raw
    if kind == "intValue" and isinstance(inner, str):
        return int(inner) if re.fullmatch(r"-?\d{1,30}", inner) else inner
    listed = inner.get("values") if isinstance(inner, dict) else None
    if kind == "arrayValue":
        items = listed if isinstance(listed, list) else []
        return [_untyped(v, f"{pointer}/{i}", f"{raw}/values/{i}", pointers) for i, v in enumerate(items)]
    if kind == "kvlistValue":
        pairs = listed if isinstance(listed, list) else []
        return {
            pair["key"]: _untyped(
                pair.get("value"), f"{pointer}/{escape(pair['key'])}", f"{raw}/values/{i}/value", pointers
            )
            for i, pair in enumerate(pairs)
            if isinstance(pair, dict) and isinstance(pair.get("key"), str)
        }
    return inner


def number_of(value: Any) -> float | None:
    """A finite number, or text of one."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300:
        return float(value)
    return None


def time_of(row: dict[str, Any], keys: tuple[str, ...]) -> int | None:
    """Nanoseconds (as text or number) where the key says so, else ISO 8601 or Unix seconds, as microseconds."""
    for key in keys:
        value = row.get(key)
        if value is None or isinstance(value, bool):
            continue
        if "nano" in key.lower() or (isinstance(value, int) and value > 10**16):
            digits = value if isinstance(value, int) else value if isinstance(value, str) else ""
            text = str(digits)
            if re.fullmatch(r"\d{1,20}", text) and 0 < int(text) < 1 << 63:
                return int(text) // 1000
            continue
        if (found := micros(value)) is not None and abs(found) < 1 << 62:
            return found
    return None


_BASE64 = re.compile(r"[A-Za-z0-9+/]{22}==|[A-Za-z0-9+/]{11}=")
_HEX = re.compile(r"(?:0x)?([0-9a-fA-F]{32}|[0-9a-fA-F]{16})")


def otel_id(row: dict[str, Any], *keys: str) -> str | None:
    """The id of a trace or a span under one of these keys, in lower-case hex: protobuf's own JSON has it in base64, some exporters with 0x."""
    text = first_text(row, *keys)
    if text is None:
        return None
    if plain := _HEX.fullmatch(text):
        return plain[1].lower()
    return b64decode(text).hex() if _BASE64.fullmatch(text) else text
