"""A checkpoint that is killed within a write leaves a store that the next command opens, with every row."""

from __future__ import annotations

import gc
import random
import shutil
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np
import pytest

from logforge.checks.pipeline import check_store
from logforge.ingestion.pipeline import ingest
from logforge.schemas.errors import StoreError
from logforge.schemas.tables import TABLES
from logforge.store import block_journal, duckdb_file
from logforge.store.block_journal import journal_of, saved_blocks
from logforge.store.checkpoint import CHECKPOINT_BYTES, checkpoint_when_due, log_bytes, log_of
from logforge.store.duckdb_file import sound
from logforge.store.files import own_files
from logforge.store.store import Store
from logforge.texts.encoders import _keep
from logforge.texts.hashing import HashingEncoder
from support.killing import rows_of
from support.stored import assert_conserved, assert_whole

HEADERS, BLOCK = 3 * 4096, 1 << 18
"""Of a file of DuckDB: three headers, then blocks."""


class Checkpoint(NamedTuple):
    """A store's files before a checkpoint wrote into them, its file after, and its rows."""

    before: Path
    after: bytes
    rows: dict[str, list[tuple]]


def copy_store(path: Path, target: Path) -> None:
    for name in (Path, log_of, journal_of):
        if name(path).exists():
            shutil.copy(name(path), name(target))


@pytest.fixture(scope="module")
def made_checkpoint(tmp_path_factory, conversation, write_jsonl):
    """One after some that left holes: sources that came, grew and went."""
    home = tmp_path_factory.mktemp("checkpoint")
    path, logs, before = home / "s.duckdb", home / "logs", home / "before.duckdb"
    for state in range(4):
        for number in range(state + 2):
            rows = [conversation(f"{number}/{row}", result="x" * 300) for row in range(40 + 30 * state)]
            write_jsonl(logs / f"{number}.jsonl", rows)
        with Store(path) as store:
            ingest(store, [logs])
    with Store(path) as store:
        with store.transaction():
            store.con.execute("UPDATE episodes SET user_id = 'one'")
            store.con.execute("UPDATE messages SET content = content || ' more' WHERE position % 2 = 0")
        rows = rows_of(store)
        with saved_blocks(path, store.con):
            copy_store(path, before)
            store.con.execute("CHECKPOINT")
        after = path.read_bytes()
    return Checkpoint(before, after, rows)


@pytest.fixture
def checkpoint(made_checkpoint, tmp_path):
    """A copy of it, to be torn."""
    before = tmp_path / "before.duckdb"
    copy_store(made_checkpoint.before, before)
    return made_checkpoint._replace(before=before)


def torn(checkpoint: Checkpoint, cut) -> bytes:
    """The file as a kill leaves it before the headers turn: each block that was written, only up to a byte."""
    data = bytearray(checkpoint.before.read_bytes())
    data.extend(bytes(max(0, len(checkpoint.after) - len(data))))
    for start in range(HEADERS, len(data), BLOCK):
        end = start + cut()
        data[start:end] = checkpoint.after[start:end]
    return bytes(data)


def assert_same(path: Path, rows: dict[str, list[tuple]], *, read_only: bool = False) -> None:
    with Store(path, read_only=read_only) as store:
        assert_whole(store)
        assert_conserved(store)
        assert rows_of(store) == rows
    assert not journal_of(path).exists()


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("read_only", [False, True])
def test_blocks_that_were_torn_are_put_back(checkpoint, seed, read_only):
    chance = random.Random(seed)
    checkpoint.before.write_bytes(torn(checkpoint, lambda: chance.randrange(0, BLOCK, 512)))
    assert_same(checkpoint.before, checkpoint.rows, read_only=read_only)


def test_without_them_the_store_is_lost(checkpoint):
    """DuckDB still writes over blocks in use: as long as this holds, the journal is needed."""
    checkpoint.before.write_bytes(torn(checkpoint, lambda: 4096))
    journal_of(checkpoint.before).unlink()
    with pytest.raises(StoreError, match="checksum") as caught:
        Store(checkpoint.before)
    assert caught.value.rule == "store_damaged"


def test_a_checkpoint_that_came_to_its_end_stays(checkpoint):
    """The kill came between its end and that of the journal."""
    log_of(checkpoint.before).unlink()
    checkpoint.before.write_bytes(checkpoint.after)
    assert_same(checkpoint.before, checkpoint.rows)


def test_a_kill_while_they_are_put_back_is_made_good(checkpoint, monkeypatch):
    checkpoint.before.write_bytes(torn(checkpoint, lambda: BLOCK // 3))

    class Killed(BaseException):
        pass

    def kill(*_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("logforge.store.block_journal.os.fsync", kill)
        with pytest.raises(Killed):
            Store(checkpoint.before)
    assert_same(checkpoint.before, checkpoint.rows)


@pytest.mark.parametrize("number", range(3))
def test_a_header_that_was_torn_is_put_back(checkpoint, number):
    """A power cut within the last write of a checkpoint: sectors of the new header stand among those of the old."""
    data = bytearray(torn(checkpoint, lambda: BLOCK // 2))
    start = number * 4096
    data[start + 512 : start + 1024] = random.Random(number).randbytes(512)
    assert not sound(bytes(data[:HEADERS]))
    checkpoint.before.write_bytes(data)
    assert_same(checkpoint.before, checkpoint.rows)


def headers_of(version: tuple[int, int], headers: bytes) -> bytes:
    """The same headers of another version, with the checksums that belong to them."""
    data = bytearray(headers)
    struct.pack_into("<Q", data, 12, version[0])
    for start in (4096, 8192):
        struct.pack_into("<Q", data, start + 56, version[1])
    for start in (0, 4096, 8192):
        words = struct.unpack_from("<511Q", data, start + 8)
        struct.pack_into("<Q", data, start, duckdb_file._checksum(words))
    return bytes(data)


@pytest.mark.parametrize("version", [(999, 70), (1000, 69), (68, 69)])
def test_a_file_of_another_version_is_not_changed(tmp_path, version):
    """DuckDB has read the file already: what it would write then, nobody here knows."""
    path = tmp_path / "s.duckdb"
    with Store(path) as store:
        data = path.read_bytes()
        changed = headers_of(version, data[:HEADERS])
        assert sound(changed)
        path.write_bytes(changed + data[HEADERS:])
        with pytest.raises(StoreError, match=f"{version[0]}/{version[1]}") as caught:
            store.checkpoint()
        assert caught.value.rule == "store_layout"
        assert not journal_of(path).exists()
        assert path.read_bytes() == changed + data[HEADERS:]
        path.write_bytes(data)


def test_a_store_in_an_older_file_is_read_and_not_changed(tmp_path):
    path, old = tmp_path / "s.duckdb", tmp_path / "old.duckdb"
    Store(path).close()
    with duckdb.connect() as con:
        con.execute(f"ATTACH '{path}' AS new (READ_ONLY)")
        con.execute(f"ATTACH '{old}' AS old (STORAGE_VERSION 'v1.2.0')")
        con.execute("COPY FROM DATABASE new TO old")
    with pytest.raises(StoreError, match="ingest the logs again") as caught:
        Store(old)
    assert caught.value.rule == "store_layout"
    with Store(old, read_only=True) as store:
        assert store.con.sql("SELECT count(*) FROM episodes").fetchall() == [(0,)]


def test_a_header_that_fails_its_checksum_is_not_trusted(tmp_path):
    path = tmp_path / "s.duckdb"
    with Store(path) as store:
        data = path.read_bytes()
        damaged = data[:5000] + bytes([data[5000] ^ 1]) + data[5001:]
        path.write_bytes(damaged)
        with pytest.raises(StoreError, match="fails its checksum") as caught:
            store.checkpoint()
        assert caught.value.rule == "store_damaged"
        assert not journal_of(path).exists()
        path.write_bytes(data)


@pytest.mark.parametrize("damage", [lambda data: data[: len(data) // 2], lambda data: data[:-1] + b"\x00"])
def test_a_damaged_journal_writes_nothing(checkpoint, damage):
    journal = journal_of(checkpoint.before)
    journal.write_bytes(damage(journal.read_bytes()))
    assert_same(checkpoint.before, checkpoint.rows)


def test_while_another_process_has_the_store_its_blocks_are_left_to_it(checkpoint):
    before = checkpoint.before.read_bytes()
    code = "import sys; from logforge.store.store import Store; store = Store(sys.argv[1], read_only=True); print('open', flush=True); sys.stdin.read()"
    saved = journal_of(checkpoint.before).read_bytes()
    journal_of(checkpoint.before).unlink()
    with subprocess.Popen(
        [sys.executable, "-c", code, checkpoint.before],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout.readline() == "open\n"
        journal_of(checkpoint.before).write_bytes(saved)
        with pytest.raises(StoreError, match="another process"):
            Store(checkpoint.before)
        with Store(checkpoint.before, read_only=True) as store:
            assert rows_of(store) == checkpoint.rows
        assert (checkpoint.before.read_bytes(), journal_of(checkpoint.before).read_bytes()) == (before, saved)
        other.communicate()
    assert_same(checkpoint.before, checkpoint.rows)


def test_a_store_that_this_process_still_has_open_stays_locked(checkpoint):
    """The system drops a process's locks on a file with the first handle of it that is closed."""
    code = "import sys; from logforge.store.store import Store; Store(sys.argv[1])"
    with Store(checkpoint.before):
        Store(checkpoint.before).close()
        other = subprocess.run(
            [sys.executable, "-c", code, checkpoint.before], capture_output=True, text=True, check=False
        )
        assert "has the store open" in other.stderr
    subprocess.run([sys.executable, "-c", code, checkpoint.before], check=True)


def test_no_commit_makes_a_checkpoint_of_its_own(tmp_path):
    """DuckDB's own would write over blocks that nobody saved."""
    path = tmp_path / "s.duckdb"
    with Store(path) as store:
        file = path.read_bytes()
        store.checkpoint_bytes = 1 << 40
        with store.transaction():
            store.con.execute(
                "INSERT INTO embeddings BY NAME SELECT 'e' AS encoder, repeat(i::VARCHAR, 60) AS text_hash FROM range(100000) r(i)"
            )
        assert log_bytes(path) > CHECKPOINT_BYTES
        assert path.read_bytes()[:HEADERS] == file[:HEADERS]
        store.checkpoint_bytes = 0
        with store.transaction():
            store.con.execute("DELETE FROM embeddings WHERE text_hash = '7'")
        assert log_bytes(path) == 0
        assert path.read_bytes()[:HEADERS] != file[:HEADERS]


def vectors(start: int, count: int) -> list[tuple[str, bytes]]:
    return [(f"{number:012}", number.to_bytes(8) * 96) for number in range(start, start + count)]


@pytest.mark.parametrize("link", [False, True])
def test_vectors_and_scores_that_pile_up_reach_the_file(tmp_path, link):
    """They are committed one batch at a time, without a transaction of the store."""
    path = tmp_path / "s.duckdb"
    if link:
        (tmp_path / "there").mkdir()
        path.symlink_to(tmp_path / "there" / "s.duckdb")
    encoder = HashingEncoder()
    sizes = []
    with Store(path) as store:
        for start in range(0, 40_000, 4000):
            batch = [np.frombuffer(vector, np.float16) for _, vector in vectors(start, 4000)]
            _keep(store.con, encoder, [name for name, _ in vectors(start, 4000)], np.array(batch, np.float32))
            sizes.append(log_bytes(store.path))
    assert sizes != sorted(sizes)
    assert max(sizes) < 2 * CHECKPOINT_BYTES
    assert log_bytes(path.resolve()) == 0
    assert {item.name for item in path.resolve().parent.iterdir()} == {"s.duckdb"}


def test_a_checkpoint_within_a_transaction_is_put_off(tmp_path):
    path = tmp_path / "s.duckdb"
    with Store(path) as store:
        with store.transaction():
            store.con.execute("INSERT INTO embeddings BY NAME SELECT 'e' AS encoder, 'x' AS text_hash")
            checkpoint_when_due(store.con, every=0)
            store.con.execute("UPDATE embeddings SET text_hash = 'y'")
            checkpoint_when_due(store.con, every=0)
        assert store.con.sql("SELECT text_hash FROM embeddings").fetchall() == [("y",)]
    with duckdb.connect() as memory:
        checkpoint_when_due(memory, every=0)


def test_threads_that_write_at_once_lose_nothing(tmp_path):
    path = tmp_path / "s.duckdb"

    def write(name: str) -> None:
        with Store(path) as store:
            store.checkpoint_bytes = 0
            for number in range(30):
                with store.transaction():
                    store.con.execute(
                        "INSERT INTO embeddings BY NAME SELECT ? AS encoder, ? AS text_hash",
                        [name, str(number)],
                    )

    Store(path).close()
    with ThreadPoolExecutor() as pool:
        list(pool.map(write, "abc"))
    with Store(path, read_only=True) as store:
        assert store.con.sql("SELECT count(*), count(DISTINCT encoder) FROM embeddings").fetchall() == [
            (90, 3)
        ]
    assert [item.name for item in tmp_path.iterdir()] == ["s.duckdb"]


def test_readers_that_come_at_once_after_a_kill_all_read(checkpoint):
    checkpoint.before.write_bytes(torn(checkpoint, lambda: 4096))
    code = "import sys; from logforge.store.store import Store; Store(sys.argv[1], read_only=True).close()"
    readers = [subprocess.Popen([sys.executable, "-c", code, checkpoint.before]) for _ in range(5)]
    assert [reader.wait() for reader in readers] == [0] * 5
    assert_same(checkpoint.before, checkpoint.rows)


def test_a_store_that_nobody_closed_is_let_go(checkpoint):
    path = checkpoint.before
    journal_of(path).unlink()
    store = Store(path)
    held = store._held.file
    assert held in block_journal._held
    del store
    gc.collect()
    assert held not in block_journal._held


def test_closing_leaves_one_file(tmp_path):
    path = tmp_path / "s.duckdb"
    with Store(path) as store, store.transaction():
        store.con.execute("INSERT INTO embeddings BY NAME SELECT 'e' AS encoder, 'x' AS text_hash")
    assert [item.name for item in tmp_path.iterdir()] == ["s.duckdb"]
    with duckdb.connect(str(path), read_only=True) as con:
        assert con.sql("SELECT text_hash FROM embeddings").fetchall() == [("x",)]


def test_the_journal_is_no_log(tmp_path):
    path = tmp_path / "s.duckdb"
    assert {journal_of(path), log_of(path)} < own_files(path)


def test_a_store_behind_a_link_stays_there(tmp_path, conversation, write_jsonl):
    """`forget` puts another file in the place of the one that holds what was forgotten."""
    (tmp_path / "there").mkdir()
    path, real = tmp_path / "s.duckdb", tmp_path / "there" / "s.duckdb"
    path.symlink_to(real)
    log = write_jsonl(tmp_path / "a.jsonl", [conversation("one"), conversation("kept-out-of-sight")])
    with Store(path) as store:
        ingest(store, [log])
        rows, before = rows_of(store), real.stat().st_ino
        store.rewrite()
        assert rows_of(store) == rows
    assert path.is_symlink()
    assert real.stat().st_ino != before
    with Store(real) as store:
        assert rows_of(store) == rows


def test_check_reads_every_block(checkpoint):
    """A byte that a disk changed is found wherever it lies, in a column that no law asks for as well."""
    path = checkpoint.before
    whole = checkpoint.after
    log_of(path).unlink()
    path.write_bytes(whole)
    with Store(path) as store:
        blocks = {
            number
            for table in TABLES
            for first, more in store.con.sql(
                f"SELECT block_id, additional_block_ids FROM pragma_storage_info('{table}') WHERE persistent"
            ).fetchall()
            for number in (first, *more)
            if number >= 0
        }
    assert len(blocks) > 3
    for number in blocks:
        spoiled = bytearray(whole)
        spoiled[HEADERS + number * BLOCK + 500] ^= 1
        path.write_bytes(spoiled)
        with pytest.raises(StoreError) as caught, Store(path, read_only=True) as store:
            check_store(store)
        assert caught.value.rule == "store_damaged"
