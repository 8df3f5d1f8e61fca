"""Sources: lines, arrays and documents of any size and shape, read within a limit, their damage set aside alone."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logforge.connectors.episodes.content import read_content
from logforge.connectors.episodes.keyed_records import read_keyed
from logforge.connectors.episodes.nested import InnerList, read_inner
from logforge.connectors.records import json as jsontext
from logforge.connectors.records.base import Source, look
from logforge.connectors.records.brackets import BLOCK, Scanner, blocks, deepest, pieces
from logforge.connectors.records.json import MAX_DEPTH
from logforge.connectors.records.json_members import LONG_BYTES
from logforge.connectors.records.source import elements
from logforge.schemas.episode import Reject, Skip
from logforge.schemas.errors import InputError, SpecError
from logforge.schemas.yamltext import parse

BOM = b"\xef\xbb\xbf"

texts = st.text(st.sampled_from('ab"\\[]{},: \n\té\u2028😀\x00'), max_size=8)
scalars = (
    st.none() | st.booleans() | st.integers() | st.integers(2**53, 2**80) | st.floats(allow_nan=False) | texts
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3)
)
arrays = st.lists(values, max_size=6)
DAMAGE = [
    b"",
    b"@",
    b",",
    b"]",
    b"[",
    b'"',
    b"\\",
    b"\xff",
    b"NaN",
    b"1e999",
    b"\x00",
    b"[" * (MAX_DEPTH + 1),
]
layouts = st.sampled_from([{}, {"indent": 1}, {"separators": (",", ":")}, {"separators": (" ,\r\n", " : ")}])


def source(tmp_path: Path, data: bytes, limit: int = 1 << 20) -> Source:
    path = tmp_path / "log.json"
    path.write_bytes(data)
    return Source(path, "log", max_record=limit)


def streamed(data: bytes, block: int, limit: int = 1 << 20) -> list[tuple[str, Any]]:
    """The elements of an array, read in blocks of that size."""
    return list(elements(BytesIO(data), 0, "log#", limit, block=block))


def told_apart(data: bytes) -> list[tuple[bytes, bool]]:
    """The pieces of an array, byte by byte: the law that the scanner has to keep."""
    found: list[tuple[bytes, bool]] = []
    depth, start, slashes, in_text = 1, 1, 0, False
    for place in range(1, len(data)):
        byte = data[place : place + 1]
        if byte == b'"' and slashes % 2 == 0:
            in_text = not in_text
        elif not in_text and depth > 0:
            depth += (byte in b"[{") - (byte in b"]}")
            if depth == 0 or (byte == b"," and depth == 1):
                found.append((data[start:place], False))
                start = place + 1
        slashes = slashes + 1 if byte == b"\\" else 0
    return [*found, (data[start:], depth == 0)]


@settings(deadline=None)
@given(arrays, layouts, st.integers(1, 40), st.booleans())
def test_an_array_read_in_blocks_holds_what_the_whole_document_holds(array, layout, block, escaped):
    data = json.dumps(array, ensure_ascii=escaped, **layout).encode("utf-8", "surrogatepass")
    whole = jsontext.loads(data)
    assert streamed(data, block) == [(f"log#/{index}", value) for index, value in enumerate(whole)]
    assert all(
        type(mine) is type(theirs) for (_, mine), theirs in zip(streamed(data, block), whole, strict=True)
    )


@settings(deadline=None)
@given(st.lists(st.sampled_from(list('[]{},"\\ a1')), max_size=40).map("".join), st.integers(1, 12))
def test_damaged_arrays_are_cut_where_the_bytes_say(text, block):
    data = b"[" + text.encode()
    assert [(p.data, p.is_rest) for p in pieces(BytesIO(data), 0, 1 << 20, block)] == told_apart(data)


@settings(deadline=None)
@given(arrays, layouts, st.data())
def test_a_damaged_array_gives_its_whole_elements_and_a_reject_for_each_other(array, layout, data):
    written = [json.dumps(value, **layout) for value in array]
    hurt = data.draw(st.sets(st.integers(0, len(array))))
    pieces = ["@" if index in hurt else text for index, text in enumerate(written)]
    found = dict(streamed(f"[{','.join(pieces)}]".encode(), data.draw(st.integers(1, 30))))
    for index, _value in enumerate(array):
        mine = found[f"log#/{index}"]
        if index in hurt:
            assert (mine.rule, mine.locator, mine.excerpt) == ("malformed_record", f"log#/{index}", "@")
        else:
            assert mine == jsontext.loads(written[index])
    assert len(found) == len(array)


@settings(deadline=None)
@given(arrays.filter(bool), st.data())
def test_a_torn_array_gives_its_whole_elements_and_one_reject(array, data):
    text = json.dumps(array).encode()
    cut = text[: data.draw(st.integers(1, len(text) - 1))]
    found = [value for _, value in streamed(cut, 7)]
    whole = [value for value in found if not isinstance(value, Reject)]
    # A number that is cut off is a number all the same.
    written = [jsontext.loads(json.dumps(value)) for value in array]
    assert whole[:-1] == written[: max(len(whole) - 1, 0)]
    assert len(found) - len(whole) <= 1


def alike(found: Iterable[tuple[str, Any]]) -> str:
    """As text, which tells NaN from nothing and 1 from 1.0."""
    return repr(
        [(where, (v.rule, v.excerpt, v.locator) if isinstance(v, Reject) else v) for where, v in found]
    )


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(arrays, layouts, st.sampled_from([b"", BOM, b" \n"]), st.data())
def test_a_short_array_is_read_as_a_long_one_whatever_was_done_to_it(tmp_path, array, layout, head, data):
    """Cut up at once or streamed: bytes changed, put in, taken out, or cut off at any place."""
    text = bytearray(json.dumps(array, **layout).encode())
    for _ in range(data.draw(st.integers(0, 2))):
        place = data.draw(st.integers(1, len(text)))
        text[place : place + data.draw(st.integers(0, 2))] = data.draw(st.sampled_from(DAMAGE))
    at_hand = source(tmp_path, head + bytes(text) + data.draw(st.sampled_from([b"", b"\n", b" {}", b"]"])))
    short = alike(at_hand.records())
    with patch("logforge.connectors.records.source._SHORT", 0):
        assert short == alike(at_hand.records())


@pytest.mark.parametrize("size", [1, 10, 200_000], ids=["small", "short", "longer than a block"])
@pytest.mark.parametrize("head", [b"", BOM, b"\n\n \t", BOM + b" " * 70_000])
def test_arrays_of_any_size_are_read_alike(tmp_path, size, head):
    array = [{"n": 2**60 + index, "text": ']}, \\"['} for index in range(size // 10 + 1)]
    at_hand = source(tmp_path, head + json.dumps(array, indent=1).encode() + b"\n")
    assert list(at_hand.records()) == [(f"log#/{index}", value) for index, value in enumerate(array)]


def test_a_long_array_is_held_one_element_at_a_time(tmp_path):
    array = b"[" + b",\n".join(b'{"text": "%s"}' % (b"x" * 1000) for _ in range(33_000)) + b"]"
    at_hand = source(tmp_path, array)
    tracemalloc.start()
    count = sum(1 for _ in at_hand.records())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (count, len(array) > 30 << 20) == (33_000, True)
    assert peak < 12 << 20


@pytest.mark.parametrize(
    ("text", "values", "rule"),
    [
        ("[]", [], None),
        ("[ \n ]", [], None),
        ("[[1, 2], [], [[3]]]", [[1, 2], [], [[3]]], None),
        ('[{"a": 1}, {"b": 2}] trailing', [{"a": 1}, {"b": 2}], "malformed_record"),
        ('[{"a": 1}]\n[{"b": 2}]', [[{"a": 1}], [{"b": 2}]], None),
        ('[\n{"a": 1}\n]\n[\n{"b": 2}\n]', [{"a": 1}], "several_documents"),
        ('[\n{"a": 1}, {"b": 2},\n]', [{"a": 1}, {"b": 2}], None),
        ('[{"a": 1}]]', [{"a": 1}], "malformed_record"),
    ],
)
def test_arrays_of_many_shapes(tmp_path, text, values, rule):
    found = [value for _, value in source(tmp_path, text.encode()).records()]
    assert [value for value in found if not isinstance(value, Reject)] == values
    assert [value.rule for value in found if isinstance(value, Reject)] == ([rule] if rule else [])


@pytest.mark.parametrize("limit", [10, 11, 100, 1 << 18])
@pytest.mark.parametrize("end", [b"", b"\n", b"\n\n"])
def test_a_line_over_the_limit_is_set_aside_alone(tmp_path, limit, end):
    fits, over = b"1" * limit, b"2" * (limit + 1)
    lines = list(source(tmp_path, b"\n".join([b"0", fits, over, b"3"]) + end, limit).lines())
    assert [(number, line) for number, line in lines if number != 3] == [(1, b"0"), (2, fits), (4, b"3")]
    reject = lines[2][1]
    assert isinstance(reject, Reject)
    assert (reject.rule, reject.locator) == ("line_too_long", "log:3")
    assert f"{limit + 1:,} bytes" in reject.detail
    assert "--max-record" in reject.reason


@pytest.mark.parametrize("size", [BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK])
@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_lines_longer_than_a_block_are_whole(tmp_path, size, end):
    rows = [b"1" * size, b"2" * size, b"3"]
    at_hand = source(tmp_path, b"\n".join(rows) + end, 3 * BLOCK)
    assert [line for _, line in at_hand.lines()] == rows


def test_no_more_of_a_line_is_held_than_the_limit(tmp_path):
    at_hand = source(tmp_path, b'{"a": 1}\n' + b"x" * (40 << 20) + b'\n{"b": 2}\n', 1 << 20)
    tracemalloc.start()
    found = [value for _, value in at_hand.records()]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [found[0], found[1].rule, found[2]] == [{"a": 1}, "line_too_long", {"b": 2}]
    assert peak < 8 << 20


def test_the_last_line_may_be_the_long_one(tmp_path):
    found = list(source(tmp_path, b'{"a": 1}\n' + b"x" * 5000, 100).records())
    assert [where for where, _ in found] == ["log:1", "log:2"]
    assert found[1][1].detail.startswith("5,000 bytes")


@pytest.mark.parametrize("block", [1, 7, 4096])
def test_an_element_over_the_limit_is_set_aside_alone(block):
    data = json.dumps([{"a": 1}, "x" * 500, {"b": 2}]).encode()
    found = streamed(data, block, limit=100)
    assert [found[0][1], found[2][1]] == [{"a": 1}, {"b": 2}]
    assert (found[1][1].rule, found[1][1].locator) == ("element_too_long", "log#/1")
    assert found[1][1].excerpt.startswith('"xxx')


def test_a_giant_array_on_one_line_is_an_array(tmp_path):
    data = json.dumps([{"n": index} for index in range(1000)]).encode()
    assert len(list(source(tmp_path, data, limit=100).records())) == 1000


def test_a_document_over_the_limit_is_refused_unread(tmp_path):
    at_hand = source(tmp_path, json.dumps({"a": ["x" * 50] * 10}, indent=1).encode(), 100)
    [(where, reject)] = at_hand.records()
    assert (where, reject.rule) == ("log#", "document_too_long")
    with pytest.raises(InputError, match="--max-record") as error:
        at_hand.content()
    assert error.value.rule == "document_too_long"


def test_lines_over_the_limit_together_are_lines_though_the_first_is_damaged(tmp_path):
    rows = [b'{"torn": '] + [b'{"n": %d}' % index for index in range(50)]
    found = list(source(tmp_path, b"\n".join(rows), 100).records())
    assert len(found) == 51
    assert isinstance(found[0][1], Reject)
    assert found[50][1] == {"n": 49}


def read_runs(at_hand: Source) -> list[Any]:
    def record(value: Any, locator: str, document: dict[str, Any]) -> Any:
        yield (locator, value, document.get("info"), document.get("last"))

    return list(read_inner(at_hand, InnerList("runs", "info"), record))


@pytest.mark.parametrize("layout", [{"indent": 1}, {}])
def test_a_list_in_a_long_document_is_read_like_one_in_a_short_one(tmp_path, layout):
    document = {
        "info": {"k": 1},
        "runs": [{"text": "a" * 1000, "n": n} for n in range(50)],
        "last": [1, {"z": 2}],
    }
    short = read_runs(source(tmp_path, json.dumps(document, **layout).encode()))
    document["runs"] *= LONG_BYTES // 50_000 + 2
    data = json.dumps(document, **layout).encode()
    assert len(data) > LONG_BYTES
    long = read_runs(source(tmp_path, data, LONG_BYTES // 2))
    assert len(long) == len(document["runs"])
    assert long[:50] == short
    assert {value["n"] for _, value, _, _ in long} == set(range(50))


@pytest.mark.parametrize(
    ("end", "rules"),
    [(b"", ["malformed_record"]), (b"]", ["malformed_record"]), (b'], "x": }', ["malformed_record"])],
)
def test_a_long_torn_document_gives_its_whole_elements(tmp_path, end, rules):
    begin = b'{"info": {"k": 1}, "runs": [' + b'{"n": 1, "text": "%s"}, ' % (b"x" * 980) * (
        LONG_BYTES // 1000 + 1
    )
    found = read_runs(source(tmp_path, begin + (b'{"n": ' if end in (b"", b"]") else b'{"n": 1}') + end))
    whole = [item for item in found if isinstance(item, tuple)]
    assert len(whole) >= LONG_BYTES // 1000
    assert whole[0][2] == {"k": 1}
    assert [item.rule for item in found if isinstance(item, Reject)] == rules


def test_a_long_document_with_an_empty_list_or_none(tmp_path):
    filler = {"info": {"k": "x" * LONG_BYTES}}
    assert read_runs(source(tmp_path, json.dumps({**filler, "runs": []}).encode(), 1 << 30)) == [
        Skip(reason="no_runs")
    ]
    assert read_runs(source(tmp_path, json.dumps(filler).encode(), 1 << 30)) == [Skip(reason="no_runs")]
    [reject] = read_runs(source(tmp_path, json.dumps(filler, indent=1).encode(), 1000))
    assert reject.rule == "document_too_long"


@pytest.mark.parametrize("layout", [{"indent": 1}, {}])
@pytest.mark.parametrize("many", [3, 5000])
@pytest.mark.parametrize("torn", [False, True])
def test_entries_by_their_id(tmp_path, layout, many, torn):
    document = {f"k/{index}": {"text": "}{" * 500, "n": index} for index in range(many)}
    data = json.dumps(document, **layout).encode()
    assert (len(data) > LONG_BYTES) == (many == 5000)
    at_hand = source(tmp_path, data[:-500] if torn else data, 1 << 30)
    found = list(read_keyed(at_hand, lambda key, value, locator: iter([(key, value["n"], locator)])))
    line = "log#" if "indent" in layout else "log:1#"
    whole = many - 1 if torn else many
    assert found[:whole] == [(f"k/{n}", n, f"{line}/k~1{n}") for n in range(whole)]
    assert [item.rule for item in found[whole:]] == (["malformed_record"] if torn else [])


NESTED = {
    "lists": "[" * 10_000 + "]" * 10_000,
    "objects": '{"a":' * 10_000 + "1" + "}" * 10_000,
    "mixed": '[{"a":' * 5_000 + "1" + "}]" * 5_000,
    "unclosed": "[" * 10_000,
    "with NaN": '{"a":' * 10_000 + "NaN" + "}" * 10_000,
}


@pytest.mark.parametrize("text", NESTED.values(), ids=NESTED)
def test_what_is_nested_too_deep_is_set_aside_alone(tmp_path, text):
    lines = source(tmp_path, f'{{"a": 1}}\n{{"deep": {text}}}\n{{"b": 2}}\n'.encode())
    found = [value for _, value in lines.records()]
    assert [found[0], found[2]] == [{"a": 1}, {"b": 2}]
    assert (found[1].rule, found[1].locator) == ("nested_too_deep", "log:2")
    assert found[1].detail == f"10,001 levels, the limit is {MAX_DEPTH}"


@pytest.mark.parametrize("text", [text for name, text in NESTED.items() if name != "unclosed"])
def test_an_element_nested_too_deep_is_set_aside_alone(tmp_path, text):
    found = dict(source(tmp_path, f'[\n{{"a": 1}},\n{text},\n{{"b": 2}}\n]'.encode()).records())
    assert (found["log#/0"], found["log#/2"]) == ({"a": 1}, {"b": 2})
    assert found["log#/1"].rule == "nested_too_deep"


@settings(deadline=None)
@given(st.integers(MAX_DEPTH - 2, MAX_DEPTH + 2), st.booleans(), st.booleans())
def test_the_limit_on_depth_is_exact(depth, wide, as_text):
    text = "[" * depth + "]" * depth
    text = "[" + "[]," * 300 + text[1:-1] + "]" if wide else text
    data: str | bytes = text if as_text else text.encode()
    deep = depth > MAX_DEPTH
    if deep:
        with pytest.raises(jsontext.TooDeep, match=f"{depth} levels"):
            jsontext.loads(data)
    else:
        assert jsontext.canonical(jsontext.loads(data)) == text


def test_brackets_in_strings_nest_nothing():
    assert jsontext.loads(json.dumps(["[" * 5000, "{" * 5000])) == ["[" * 5000, "{" * 5000]
    assert deepest(b'["[[[", {"a]": "\\"["}]') == 2


def test_a_head_nested_deep_is_looked_at_quickly(tmp_path):
    path = tmp_path / "deep.json"
    path.write_text('{"messages": {"a":' + '{"a":' * 100_000)
    tracemalloc.start()
    head = look(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert head.top == {"messages"}
    assert peak < 64 << 20


def test_a_deep_mapping_file_is_refused():
    with pytest.raises(SpecError, match="nested too deeply"):
        parse("fields: " + "[" * 10_000, "map.yaml")


def test_blocks_never_end_within_an_escape():
    data = b'"' + b"\\\\" * 50 + b'\\"' + b'"'
    for size in range(1, 30):
        assert b"".join(blocks(BytesIO(data), size)) == data
        assert all((len(b) - len(b.rstrip(b"\\"))) % 2 == 0 for b in blocks(BytesIO(data), size))
    assert len(Scanner().marks(data).places) == 0


def test_lines_end_at_line_feeds_alone(tmp_path):
    texts = ["a\u0085b", "a\u2028b", "a\u2029b", "a\x0bb", "a\rb"]
    rows = b"\r\n".join(json.dumps(text, ensure_ascii=False).encode() for text in texts[:4])
    found = [
        value for _, value in source(tmp_path, BOM + rows + b"\n" + json.dumps(texts[4]).encode()).records()
    ]
    assert found == texts


@pytest.mark.parametrize("text", ['{"a": 1}{"b": 2}', '{"a": 1}{"b": 2}\n{"c": 3}', '{\n"a": 1}\n{\n"b": 2}'])
def test_documents_without_a_line_break_between_them_are_refused_by_name(tmp_path, text):
    found = [value for _, value in source(tmp_path, text.encode()).records()]
    assert found[0].rule == "several_documents"
    assert "jq" in found[0].reason
    assert found[1:] in ([], [{"c": 3}])


def test_content_of_any_depth_allowed_is_read():
    value: Any = "end"
    for _ in range(MAX_DEPTH - 1):
        value = [{"type": "tool_result", "content": value}] if isinstance(value, str) else [value]
    assert read_content(value, "log:1").rejects
