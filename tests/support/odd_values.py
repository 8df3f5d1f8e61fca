"""Values that a log should not hold, and writes all the same."""

from __future__ import annotations

from typing import Any

import msgspec


def raw(text: str) -> msgspec.Raw:
    """A value that is written as this text, JSON or not."""
    return msgspec.Raw(text.encode())


def nested(depth: int, kind: int, inner: str = "1") -> msgspec.Raw:
    """Lists, objects or both, so many levels deep."""
    begin, end = [("[", "]"), ('{"a":', "}"), ('[{"content":', "}]")][kind]
    return raw(begin * depth + inner + end * depth)


def encode(value: Any) -> bytes:
    """A value as JSON; raw ones as they are."""
    try:
        return msgspec.json.encode(value)
    except OverflowError:
        return msgspec.json.encode(_writable(value))


def _writable(value: Any) -> Any:
    """With integers of any size as text to be written."""
    if isinstance(value, dict):
        return {key: _writable(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_writable(item) for item in value]
    return raw(str(value)) if isinstance(value, int) and not -(2**63) <= value < 2**64 else value


NUMBERS = (
    *(raw(text) for text in "1e999 -1e999 -0 -0.0 1e308 1e-400 NaN Infinity -Infinity 1E+2 0.1 1e18".split()),
    raw("1" + "0" * 400),
    raw("-1" + "0" * 5000),
    *(
        raw(str(sign * 2**bits + more))
        for sign in (1, -1)
        for bits in (31, 53, 63, 64)
        for more in (-1, 0, 1)
    ),
    0,
    1,
    -1,
    3,
    1.5,
    253402300800,
    -62135596801,
    1_700_000_000_000,
)
TEXTS = (
    "", " ", "\n", "\x00", "a\x00b", "\ufeff", "\u202e\u200b", "\x1b[31m", "0", "-1", "1.5", "1e999", "NaN", "null", "true", "None",
    "[", "{", '{"a":', "[]", "{}", '{"a": [1, {"b": null}]}', "[1, 2", '"', "'", "\\", "\\u", "/", "~1", "#/0", "!", ":", "../../etc/passwd",
    "x" * 300, "é" * 50, "\U0001f378", "9" * 400, "1700000000", "1700000000000", "0000-00-00T00:00:00Z", "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59.999999-12:00", "2024-02-30T00:00:00Z", "2024-01-01", "2024-01-01T00:00:00.123456789Z", "+275760-09-13T00:00:00Z",
    "system", "user", "assistant", "tool", "developer", "human", "gpt", "function", "ghost", "ASSISTANT", "text", "tool_use", "tool_result",
    "<tool_call>", "</tool_call>", "<function=x>", "<think>", "Action: x[", "Thought:", "Observation:", "```", "```json\n{", "</s>", "%s%n{0}",
    "=cmd|' /C calc'!A0", "a,b;c\td", '"quoted', "line\r\nline", "\u2028", "\x85",
)  # fmt: skip
BROKEN = tuple(
    map(
        raw,
        (
            '"\\ud800"',
            '"\\udc00x"',
            '"a\\ud83dz"',
            '"\\u0000"',
            "tru",
            '"open',
            "'x'",
            "{,}",
            "[1,]",
            "undefined",
        ),
    )
)
LONG = ("a", " ", "\n", "[", "{", '"', "\\", "'", "<", "a b\n", '{"a":', "<tool_call>", "Action: x[y]\n", "`", "9", "(", "a=", "|", ",", "\t", "\u200b", "é", ": ", "- ", "<x>", "</x>", "\\n", "a.", "/a", "```\n")  # fmt: skip
ODD = (None, True, False, [], {}, [None], [[]], {"": None}, [7, "x"], {"type": "text"}, {"type": []}, {"role": "tool"}, [{"text": None}], {"text": {}})  # fmt: skip


def text_of(value: Any) -> str:
    """A value as JSON text inside a string."""
    return encode(value).decode("utf-8", "replace")
