"""Characters that a stream cuts in two are whole again, wherever the cut lies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from logforge.connectors import get
from logforge.connectors.records import Source, joined, loads, without_halves
from logforge.schemas import Episode

TEXTS = st.text(st.sampled_from('a"\\ é😀🎉𝒳\n'), max_size=12)
UNITS = st.text(st.characters(), max_size=8)


def units(text: str) -> list[str]:
    """The text as JSON escapes it, one UTF-16 unit a piece."""
    data = text.encode("utf-16-be", "surrogatepass")
    return ["\\u" + data[i : i + 2].hex() for i in range(0, len(data), 2)]


def cut(text: str, sizes: list[int]) -> list[str]:
    """JSON strings that hold the text, cut after so many units, in turn."""
    left, pieces = units(text), []
    for size in sizes:
        pieces.append('"' + "".join(left[:size]) + '"')
        left = left[size:]
    return [*pieces, '"' + "".join(left) + '"']


@given(TEXTS, st.lists(st.integers(0, 4), max_size=6))
def test_pieces_make_the_text(text, sizes):
    assert joined(loads(piece, halves=True) for piece in cut(text, sizes)) == text


@given(UNITS, st.lists(st.integers(0, 4), max_size=6))
def test_a_half_that_stays_alone_is_replaced(text, sizes):
    text = text + "\ud83d" + "a"
    found = joined(loads(piece, halves=True) for piece in cut(text, sizes))
    assert found == loads(cut(text, [])[0])
    assert "\ufffd" in found
    found.encode()


@given(
    st.dictionaries(
        st.text(st.characters(), max_size=3), st.lists(st.text(st.characters(), max_size=3)), max_size=3
    )
)
def test_without_halves_is_what_is_read_without_them(value):
    text = json.dumps(value)
    plain = without_halves(loads(text, halves=True))
    assert plain == loads(text)
    assert all(type(item) is str for items in plain.values() for item in items)


def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {
        "id": "chatcmpl-aaaaaaaaaaaa",
        "object": "chat.completion.chunk",
        "model": "m",
        "choices": [choice],
    }


@settings(deadline=None)
@given(TEXTS, TEXTS, st.lists(st.integers(0, 4), min_size=1, max_size=6), st.booleans())
def test_a_stream_cut_anywhere_says_the_same(tmp_path_factory, said, named, sizes, as_array):
    arguments = json.dumps({"name": named}, ensure_ascii=False)
    lines = [json.dumps({"role": "user", "content": "Name it"})]
    hole = json.dumps(chunk({"content": "@"}))
    lines += [hole.replace('"@"', piece) for piece in cut(said, sizes)]
    first = {"index": 0, "id": "call_aaaaaaaaaaaa", "function": {"name": "save", "arguments": ""}}
    lines.append(json.dumps(chunk({"tool_calls": [first]})))
    hole = json.dumps(chunk({"tool_calls": [{"index": 0, "function": {"arguments": "@"}}]}))
    lines += [hole.replace('"@"', piece) for piece in cut(arguments, sizes)]
    lines.append(json.dumps(chunk({}, "tool_calls")))
    path = Path(tmp_path_factory.mktemp("stream")) / "stream.jsonl"
    path.write_text("[" + ",".join(lines) + "]" if as_array else "\n".join(lines) + "\n")
    (episode,) = get("openai_stream").read(Source(path, path.name))
    assert isinstance(episode, Episode)
    assert episode.messages[1].content == (said or None)
    assert json.loads(episode.steps[0].arguments) == {"name": named}
