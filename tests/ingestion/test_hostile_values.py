"""Values that no table has room for, in every format's logs: each gives a value, null or a named reject, never a failure.

The table of docs/ingest.md says what becomes of each; every row of it has its test here.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from logforge.connectors.episodes.content import count_or_none, micros
from logforge.connectors.records import json as jsontext
from logforge.connectors.records.base import Source
from logforge.ingestion.reading import Job, ReadOptions, read_source
from logforge.ingestion.sources.discover import judge
from logforge.ingestion.sources.limits import Limits
from logforge.schemas.episode import Reject
from support.places import ROOT

_NUMBER = re.compile(r"(?<=[:\[,\s])-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?=\s*[,\]}\n])")
_TIME = re.compile(r'"\d{4}-\d\d-\d\dT[^"]*"')
NUMBERS = (
    "1e999",
    "1" + "0" * 400,
    "-1" + "0" * 30,
    "NaN",
    "-Infinity",
    "-5",
    "18446744073709551616",
    "1e308",
    "1" * 5000,
)
TIMES = (
    '"99999-01-01T00:00:00Z"',
    '"0001-01-01T00:00:00+14:00"',
    "1" + "0" * 19,
    '"9999-12-31T23:59:59-14:00"',
)


def smallest_logs() -> dict[str, Path]:
    """The smallest text log of each format that lies here."""
    found: dict[str, Path] = {}
    files = [
        path
        for folder in ("tests/data", "sample_logs")
        for path in (ROOT / folder).rglob("*")
        if path.is_file()
    ]
    for path in sorted(files, key=lambda path: (path.stat().st_size, path.name)):
        if path.suffix in (".json", ".jsonl", ".traj", ".csv") and path.stat().st_size < 100_000:
            connector = judge(path).connector
            if connector is not None:
                found.setdefault(connector.name, path)
    return found


LOGS = smallest_logs()


def quarantined(path: Path, format_name: str) -> list[tuple[str, str]]:
    """Rule and detail of everything that reading a file sets aside, up to the tables that go into the store."""
    job = Job(path, path.name, "s", "", path.stat().st_size, ReadOptions(format=format_name))
    reading = read_source(job)
    rows = [row for chunk in reading.chunks for row in chunk.quarantine.to_pylist()]
    assert reading.counts.records > 0
    return [(row["rule"], row["detail"]) for row in rows]


@pytest.mark.parametrize("pattern", [_NUMBER, _TIME], ids=["numbers", "times"])
@pytest.mark.parametrize("name", sorted(LOGS))
def test_no_number_and_no_time_breaks_a_connector(tmp_path, name, pattern):
    text = LOGS[name].read_text("utf-8", "surrogateescape")
    for number, value in enumerate(NUMBERS if pattern is _NUMBER else TIMES):
        path = tmp_path / str(number) / LOGS[name].name
        path.parent.mkdir()
        path.write_text(pattern.sub(lambda _, value=value: value, text), "utf-8", "surrogateescape")
        broken = dict(quarantined(path, name))
        assert not broken.keys() & {"connector_failed", "unfit_value"}, (value[:20], broken)


@pytest.mark.parametrize("count", [-1, 1 << 31, 10**30, True, "7", 1.5])
def test_counts_that_no_column_holds_are_null(count):
    assert count_or_none(count) is None


@pytest.mark.parametrize("time", ["99999-01-01T00:00:00Z", 10**19, -(10**19), 1e300, 10**400, "", "-1", True])
def test_times_that_no_column_holds_are_null(time):
    assert micros(time) is None


def test_an_empty_array_holds_no_record(tmp_path):
    path = tmp_path / "x.json"
    path.write_text("[]")
    reading = read_source(Job(path, "x", "s", "", 2, ReadOptions(format="openai_messages")))
    assert [row["rule"] for chunk in reading.chunks for row in chunk.quarantine.to_pylist()] == ["no_records"]


def test_a_document_over_the_limit_is_a_reject_of_its_own_rule(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("Thought: " + "x" * 5000)
    options = ReadOptions(format="react_text", limits=Limits(record=1000))
    reading = read_source(Job(path, "x", "s", "", 5000, options))
    rows = [row for chunk in reading.chunks for row in chunk.quarantine.to_pylist()]
    assert [row["rule"] for row in rows] == ["document_too_long"]
    assert "--max-record" in rows[0]["reason"]
    assert reading.counts.quarantined == 1


def test_formats_enough_are_looked_at():
    assert len(LOGS) >= 30


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("9007199254740993", 2**53 + 1),
        ("1" + "0" * 400, 10**400),
        ("1e999", None),
        ("-1e999", None),
        ("NaN", None),
        ("Infinity", None),
        ("1e-999", 0.0),
        ('{"a": 1, "a": 2}', {"a": 2}),
        ('"\\ud800x"', "\ufffdx"),
        ('{"\\udfff": 1}', {"\ufffd": 1}),
        ('"\\ud83d\\ude00"', "😀"),
        ('{"a\\u0000b": "\\u0000"}', {"a\0b": "\0"}),
    ],
)
def test_values_that_are_read(text, value):
    found = jsontext.loads(text)
    assert (found, type(found)) == (value, type(value))
    assert jsontext.loads(jsontext.canonical(found)) == value


@pytest.mark.parametrize(
    ("text", "rule", "detail"),
    [
        (b"1" * 4301, "number_too_long", "4301 digits"),
        (b'{"a": -' + b"9" * 5000 + b"}", "number_too_long", "5000 digits"),
        (b'"\xff"', "malformed_record", "not UTF-8 at byte 1"),
        (b'"\xed\xa0\x80"', "malformed_record", "not UTF-8 at byte 1"),
        (b'{"a": 1} {"b": 2}', "several_documents", "character 9"),
        (b'{"a": 1} ]', "malformed_record", "character 9"),
        (b'"\x00"', "malformed_record", "control character"),
        (b"\x00\x00\x00", "malformed_record", "character 0"),
    ],
)
def test_values_that_are_set_aside_alone(tmp_path, text, rule, detail):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"n": 1}\n' + text + b'\n{"n": 2}\n')
    found = [value for _, value in Source(path, "x").records()]
    assert [found[0], found[2]] == [{"n": 1}, {"n": 2}]
    assert isinstance(found[1], Reject)
    assert found[1].rule == rule
    assert detail in found[1].detail


def kept(tmp_path: Path, rows: list[Any]) -> tuple[list[dict[str, Any]], list[str]]:
    path = tmp_path / "x.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    reading = read_source(Job(path, "x", "s", "", 0, ReadOptions(format="openai_messages")))
    chunks = list(reading.chunks)
    episodes = [row for chunk in chunks for row in chunk.tables.steps.to_pylist()]
    return episodes, [row["rule"] for chunk in chunks for row in chunk.quarantine.to_pylist()]


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_arguments_nested_too_deep_are_invalid_and_the_rest_is_kept(tmp_path, conversation, opening):
    rows = [conversation(name) for name in "abc"]
    closing = "]" if opening == "[" else "}"
    deep = opening * 10_000 + "1" + closing * 10_000
    rows[1]["messages"][1]["tool_calls"][0]["function"]["arguments"] = deep
    steps, rules = kept(tmp_path, rows)
    calls = [step for step in steps if step["kind"] == "tool"]
    assert [step["arguments_status"] for step in calls] == ["ok", "invalid", "ok"]
    assert (calls[1]["arguments"], rules) == (deep, [])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.jsonl", '{"a": 1}\n'.encode("utf-16")),
        ("x.json", '[{"a": 1}]'.encode("utf-16-be")),
        ("x.log", '{"a": 1}'.encode("utf-16-le")),
        ("x.json", '{"a": 1}'.encode("utf-32")),
        ("x.csv", "a,b\n1,2\n".encode("utf-16")),
    ],
)
def test_utf16_is_refused_by_name(tmp_path, name, text):
    path = tmp_path / name
    path.write_bytes(text)
    verdict = judge(path)
    assert (verdict.connector, verdict.quarantined, verdict.rule) == (None, True, "utf16_text")
