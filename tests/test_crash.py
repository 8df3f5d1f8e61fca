"""`kill -9` at any moment of an ingest loses nothing and doubles nothing: the next run completes the store."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from conftest import SHARED
from logforge.ingestion import ingest
from logforge.store import Store
from test_ingest import assert_conserved, content

KILLS = 12


@pytest.fixture
def logs(tmp_path, conversation, write_jsonl):
    """Enough files for an ingest to be killed within."""
    for number in range(120):
        rows = [conversation(f"{number}/{row}", result="x" * 200) for row in range(40)]
        write_jsonl(tmp_path / "logs" / f"{number:03}.jsonl", rows)
    return tmp_path / "logs"


@pytest.mark.slow
def test_a_killed_ingest_is_completed_by_the_next(tmp_path, logs):
    with Store(tmp_path / "clean.duckdb") as store:
        start = time.monotonic()
        ingest(store, [logs])
        length = time.monotonic() - start
        expected = content(store)
    path = tmp_path / "killed.duckdb"
    code = (
        "import logforge.ingestion as module; from logforge.store import Store\n"
        "module.COMMIT_BYTES = 100_000\n"
        f"with Store({str(path)!r}) as store:\n    print('go', flush=True)\n    module.ingest(store, [{str(logs)!r}])\n"
    )
    chance = random.Random(7)
    hit = 0
    for _ in range(KILLS):
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(chance.uniform(0, length))
            os.kill(process.pid, signal.SIGKILL)
            hit += process.wait() == -signal.SIGKILL
        with Store(path) as store:
            assert_conserved(store)
            whole = store.con.sql("SELECT count(*) FROM sources").fetchall()[0][0]
            assert store.con.sql("SELECT count(*) FROM episodes").fetchall() == [(40 * whole,)]
    assert hit > 0
    with Store(path) as store:
        ingest(store, [logs])
        assert content(store) == expected


@pytest.mark.skipif(not SHARED.exists(), reason="the shared logs are not here")
def test_real_logs_end_the_same_after_a_kill(tmp_path):
    logs = SHARED / "logs" / "star"
    code = f"from logforge.ingestion import ingest; from logforge.store import Store\nwith Store({str(tmp_path / 'k.duckdb')!r}) as s: ingest(s, [{str(logs)!r}])"
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        time.sleep(1.2)
        process.kill()
    with Store(tmp_path / "k.duckdb") as killed, Store(tmp_path / "c.duckdb") as clean:
        ingest(killed, [logs])
        ingest(clean, [logs])
        assert content(killed) == content(clean)
