"""However sources are grouped, cut into chunks and overlapped, they give the same rows."""

from __future__ import annotations

import gc
import shutil
import subprocess
import sys

import msgspec
import pytest

from logforge.connectors import detection as connectors
from logforge.ingestion import batches, reading
from logforge.ingestion import workers as crews
from logforge.ingestion.pace import few_collections
from logforge.ingestion.pipeline import ingest
from logforge.ingestion.reading import Job, read_lazily, read_together
from logforge.ingestion.sources.discover import sha256_of
from logforge.store.store import Store
from support.places import SAMPLES
from support.stored import assert_conserved, content


@pytest.fixture
def logs(tmp_path, conversation, write_jsonl):
    """The samples, and files that share episodes with one another and within themselves."""
    shutil.copytree(SAMPLES, tmp_path / "logs")
    for number in range(12):
        rows = [conversation(f"{number}/{row}") for row in range(3)]
        shared = [conversation(f"shared {row}") for row in range(number % 4, number % 4 + 2)]
        write_jsonl(tmp_path / "logs" / "more" / f"{number:02}.jsonl", [*rows, *shared, *rows[:1]])
    (tmp_path / "logs" / "more" / "torn.jsonl").write_bytes(b'{"messages": [{"role": "user", "content": "a"}')
    return tmp_path / "logs"


def stored(logs, name, **options):
    with Store(logs.parent / f"{name}.duckdb") as store:
        ingest(store, [logs], **options)
        assert_conserved(store)
        return content(store)


@pytest.mark.parametrize(
    ("module", "name", "value", "workers"),
    [
        (batches, "GROUP_SOURCES", 1, 1),
        (batches, "GROUP_BYTES", 3_000, 1),
        (batches, "COMMIT_BYTES", 5_000, 1),
        (batches, "STREAM_BYTES", 0, 1),
        (batches, "STREAM_BYTES", 0, 2),
        (reading, "CHUNK_WEIGHT", 7, 1),
    ],
)
def test_how_sources_are_grouped_and_cut_changes_no_row(logs, monkeypatch, module, name, value, workers):
    """With two workers and everything a large source, reading and storing overlap."""
    expected = stored(logs, "as it is")
    monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(crews, "POOL_BYTES", 0)
    assert stored(logs, "otherwise", workers=workers) == expected


def job(path):
    return Job(path, path.name, path.name, sha256_of(path), path.stat().st_size)


def test_small_sources_share_a_chunk_and_copies_of_an_episode_do_not(tmp_path, conversation, write_jsonl):
    jobs = [
        job(write_jsonl(tmp_path / f"{name}.jsonl", [conversation(episode) for episode in episodes]))
        for name, episodes in (("a", ("one", "two")), ("b", ("three",)), ("c", ("two", "four")))
    ]
    group = read_together(jobs)
    native = [chunk.tables.episodes["native_id"].to_pylist() for chunk in group.chunks]
    assert native == [["one", "two", "three"], ["two", "four"]]
    sources = [chunk.tables.episodes["source_id"].to_pylist() for chunk in group.chunks]
    assert sources == [["a.jsonl", "a.jsonl", "b.jsonl"], ["c.jsonl", "c.jsonl"]]
    assert [reading.counts.kept for reading in group.readings] == [2, 1, 2]


@pytest.mark.parametrize("overlapping", [False, True])
def test_a_value_of_the_wrong_type_is_charged_to_its_own_source(
    tmp_path, conversation, write_jsonl, monkeypatch, overlapping
):
    connector = connectors.get("openai_messages")
    real = type(connector).read

    def spoiled(self, source):
        for item in real(self, source):
            wrong = getattr(item, "native_id", "") == "bad"
            yield msgspec.structs.replace(item, score="high") if wrong else item

    monkeypatch.setattr(type(connector), "read", spoiled)
    good = job(write_jsonl(tmp_path / "good.jsonl", [conversation("one")]))
    bad = job(write_jsonl(tmp_path / "bad.jsonl", [conversation("bad"), conversation("two")]))
    group = read_lazily(bad, overlapping) if overlapping else read_together([good, bad])
    rejected = [row for chunk in group.chunks for row in chunk.quarantine.to_pylist()]
    assert [(row["rule"], row["source_id"]) for row in rejected] == [("unfit_value", "bad.jsonl")]
    assert [(r.counts.kept, r.counts.quarantined) for r in group.readings][-2:] == (
        [(1, 1)] if overlapping else [(1, 0), (1, 1)]
    )


def test_the_garbage_collector_is_as_it_was_after_an_ingest(logs):
    before = gc.get_threshold()
    with few_collections():
        assert gc.get_threshold() != before
    assert gc.get_threshold() == before
    stored(logs, "s")
    assert gc.get_threshold() == before


def test_what_a_killed_run_spilled_is_removed_when_the_store_is_opened_again(tmp_path):
    """It holds the texts of logs, and DuckDB itself removes it only when it spills again."""
    code = (
        "import os; from logforge.store.store import Store\n"
        f"store = Store({str(tmp_path / 's.duckdb')!r})\n"
        "store.con.execute(\"SET memory_limit = '64MB'\")\n"
        "store.con.execute(\"CREATE TEMP TABLE t AS SELECT hash(i)::VARCHAR || repeat('secret', 20) FROM range(1000000) r(i)\")\n"
        "os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code], check=False)
    spilled = tmp_path / "s.duckdb.tmp"
    assert any(b"secret" in file.read_bytes() for file in spilled.iterdir())
    with Store(tmp_path / "s.duckdb"):
        assert list(spilled.iterdir()) == []
