"""A long file of lines read in parts gives what reading it whole gives."""

from __future__ import annotations

import json
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from logforge.connectors import detection as connectors
from logforge.connectors.records.base import NeedsWhole, Source
from logforge.ingestion import batches
from logforge.ingestion import long_files as parts
from logforge.ingestion import pipeline as ingestion
from logforge.ingestion import workers as crews
from logforge.ingestion.long_files import in_parts, spans
from logforge.ingestion.pipeline import ingest
from logforge.ingestion.reading import Job, read_lazily
from logforge.ingestion.workers import Crew
from logforge.store.store import Store
from support.killing import rows_of

KEY = "AKIAIOSFODNN7EXAMPLF"


class Pair(Crew):
    """A crew whose helper never comes to be prepared."""

    def __init__(self, *_: object) -> None:
        super().__init__(1, print, Path())
        self.helpers = 1


def small(size=400, block=90):
    """Parts of so many bytes."""
    return patch.multiple(parts, PART_BYTES=size, _BLOCK=block)


@given(
    st.lists(
        st.sampled_from([b"{}", b"\n", b" ", b"[1]", b"\r\n", b"\xef\xbb\xbf", b"abc" * 9]), max_size=60
    ),
    st.integers(1, 60),
    st.integers(1, 40),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@example([b"\n"] * 30 + [b"{}", b"\n"] * 9, 5, 3)
def test_the_spans_are_whole_lines_and_all_of_them(tmp_path, pieces, size, block):
    data = b"".join(pieces)
    source = Source(tmp_path / "f", "f")
    source.path.write_bytes(data)
    with small(size, block):
        found = list(spans(source))
    assert b"".join(data[span.begin : span.end] for span in found) == data
    assert [span.begin for span in found] == [0, *(span.end for span in found)][: len(found)]
    assert all(data[span.end - 1 : span.end] == b"\n" for span in found[:-1])
    assert [span.first for span in found] == [data.count(b"\n", 0, span.begin) + 1 for span in found]
    assert all(data[: span.end].removeprefix(b"\xef\xbb\xbf").strip() for span in found[:-1])
    lines = [line for span in found for line in Source(source.path, "f", span=span).lines()]
    assert lines == list(source.lines())


def stored(folder, name, logs, workers=1, **options):
    (folder / f"{name}.duckdb.key").write_bytes(bytes(32))  # one key: their hashes of secrets can be compared
    with Store(folder / f"{name}.duckdb") as store:
        ingest(store, [logs], workers=workers, **options)
        return rows_of(store)


@pytest.fixture
def shared(monkeypatch):
    """Everything is a large source, read in small parts by a crew of two."""
    monkeypatch.setattr(batches, "STREAM_BYTES", 0)
    monkeypatch.setattr(crews, "POOL_BYTES", 0)
    monkeypatch.setattr(ingestion, "Crew", Pair)
    with small():
        yield


def lines(rows):
    return b"".join(row if isinstance(row, bytes) else json.dumps(row).encode() + b"\n" for row in rows)


def chat(name, text="hello", **more):
    said = [{"role": "user", "content": f"{name}: {text}"}, {"role": "assistant", "content": f"yes, {text}"}]
    return {"id": name, "messages": said, **more}


ROWS = st.one_of(
    st.builds(chat, st.sampled_from("abcdefgh"), st.sampled_from(["hello", f"key {KEY}", "x" * 300])),
    st.sampled_from([b"\n", b'{"messages": [\n', b"7\n", b'{"messages": []}\n', b"  \r\n"]),
    st.builds(lambda name: chat(name, messages=[{"role": "odd", "content": KEY}, *chat(name)["messages"]]), st.sampled_from("abc")),
)  # fmt: skip


def read(group):
    """Every row of a source's chunks, sorted, and its account."""
    chunks = list(group.chunks)
    tables = zip(
        *((*chunk.tables, chunk.copies, chunk.quarantine, chunk.secrets) for chunk in chunks), strict=True
    )
    (reading,) = group.readings
    account = reading.counts, reading.redactions, reading.format, reading.connector_version
    return [sorted(pa.concat_tables(parts).to_pylist(), key=repr) for parts in tables], account


@given(st.lists(ROWS, max_size=30), st.booleans())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example([b"\n"] * 500 + [chat("a")], True)
def test_rows_counts_and_locators_are_those_of_the_whole(tmp_path, rows, ends_open):
    path = tmp_path / "log.jsonl"
    path.write_bytes(lines([chat("first"), *rows])[: -1 if ends_open else None])
    whole = read(read_lazily(job(path)))
    with small():
        try:
            got = read(in_parts(job(path), Pair(), 0))
        except NeedsWhole:
            return
    assert got == whole


def test_a_store_filled_in_parts_is_that_filled_at_once(tmp_path, shared, monkeypatch):
    log = tmp_path / "log.jsonl"
    rows = [chat(str(n % 13), f"key {KEY}") for n in range(40)]
    log.write_bytes(lines([*rows[:20], b'{"messages": [', *rows[20:], b'{"messages"']))
    got = stored(tmp_path, "parts", log, workers=2)
    monkeypatch.undo()
    assert got == stored(tmp_path, "whole", log)
    assert len(got["episodes"]) == 13


def test_equal_rows_without_an_id_are_counted_over_the_whole_file(tmp_path, shared, monkeypatch):
    log = tmp_path / "log.jsonl"
    rows = [{"messages": chat(str(n % 13))["messages"]} for n in range(40)]
    log.write_bytes(lines(rows))
    with pytest.raises(NeedsWhole):
        list(in_parts(job(log), Pair(), 0).chunks)
    got = stored(tmp_path, "parts", log, workers=2)
    copies = stored(tmp_path, "copies", log, workers=2, samples=False)
    monkeypatch.undo()
    assert got == stored(tmp_path, "whole", log)
    assert (len(got["episodes"]), len(copies["episodes"])) == (40, 13)


def test_a_line_that_needs_others_has_the_file_read_as_a_whole(tmp_path, shared, monkeypatch):
    log = tmp_path / "log.jsonl"
    single = [{"session_id": "s", "role": role, "content": "hi"} for role in ("user", "assistant")]
    log.write_bytes(lines([*[chat(str(n)) for n in range(20)], *single, *[chat(str(n)) for n in range(9)]]))
    group = in_parts(job(log), Pair(), 0)
    with pytest.raises(NeedsWhole):
        list(group.chunks)
    got = stored(tmp_path, "parts", log, workers=2)
    monkeypatch.undo()
    assert got == stored(tmp_path, "whole", log)
    assert len(got["episodes"]) == 21


def test_a_secret_in_a_part_of_a_duplicate_that_was_set_aside_counts_as_ever(tmp_path, shared, monkeypatch):
    odd = chat("a")
    odd["messages"] = [*odd["messages"], {"role": "odd", "content": f"my key is {KEY}"}]
    log = tmp_path / "log.jsonl"
    log.write_bytes(lines([odd, *[chat(str(n)) for n in range(20)], odd]))
    got = stored(tmp_path, "parts", log, workers=2)
    monkeypatch.undo()
    assert got == stored(tmp_path, "whole", log)


def test_behind_a_failure_of_the_connector_nothing_is_read(tmp_path, shared, monkeypatch):
    kind = type(connectors.get("openai_messages"))
    real = kind._row

    def row(self, value, locator):
        if value["id"] == "12":
            raise KeyError("12")
        yield from real(self, value, locator)

    monkeypatch.setattr(kind, "_row", row)
    log = tmp_path / "log.jsonl"
    log.write_bytes(lines([chat(str(n)) for n in range(40)]))
    got = stored(tmp_path, "parts", log, workers=2)
    monkeypatch.setattr(ingestion, "Crew", Crew)
    assert got == stored(tmp_path, "whole", log)
    assert len(got["episodes"]) == 12


def job(path: Path) -> Job:
    return Job(path, path.name, path.name, "", path.stat().st_size)


def test_what_cannot_be_read_in_parts_is_left_to_be_read_whole(tmp_path):
    pair = Pair()
    rows = [chat(str(n)) for n in range(9)]
    (tmp_path / "array.json").write_text(json.dumps(rows))
    (tmp_path / "lines.jsonl").write_bytes(lines(rows))
    session = [{"type": "user", "sessionId": "s", "uuid": "u", "message": {"role": "user", "content": "hi"}}]
    (tmp_path / "claude.jsonl").write_bytes(lines(session))
    assert in_parts(job(tmp_path / "lines.jsonl"), pair, 0) is not None
    assert in_parts(job(tmp_path / "lines.jsonl"), Crew(1, print, tmp_path), 0) is None
    assert in_parts(job(tmp_path / "array.json"), pair, 0) is None
    assert in_parts(job(tmp_path / "claude.jsonl"), pair, 0) is None


def test_a_helper_reads_files_and_parts_and_the_store_is_that_of_one_process(tmp_path, monkeypatch):
    logs = tmp_path / "logs"
    logs.mkdir()
    for number in range(12):
        rows = [chat(f"{number}/{row % 5}", f"key {KEY}") for row in range(9)]
        (logs / f"{number:02}.jsonl").write_bytes(lines([*rows, chat("everywhere"), b"{\n"]))
    (logs / "long.jsonl").write_bytes(lines([chat(f"long {n % 90}") for n in range(100)]))
    expected = stored(tmp_path, "one", logs)
    monkeypatch.setattr(batches, "STREAM_BYTES", 5000)
    monkeypatch.setattr(crews, "POOL_BYTES", 1)
    monkeypatch.setattr(batches, "GROUP_SOURCES", 1)
    start = Crew.start

    def start_and_wait(self):
        start(self)
        self._prepared.result()

    monkeypatch.setattr(Crew, "start", start_and_wait)
    handed = []
    submit = Crew._hand_out

    def hand_out(self, tasks, taken, ahead):
        submit(self, tasks, taken, ahead)
        handed.extend(work.task.call.__name__ for work in taken if not work.future.done())

    monkeypatch.setattr(Crew, "_hand_out", hand_out)
    with small():
        assert stored(tmp_path, "two", logs, workers=2) == expected
    assert set(handed) == {"read_together", "_read_part"}
