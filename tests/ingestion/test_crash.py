"""`kill -9` at any moment of an ingest loses nothing and doubles nothing: the next run completes the store."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter

import pytest

from logforge.ingestion.pipeline import ingest
from logforge.store.store import Store
from support.killing import POINTS, kill_ingest, rows_of
from support.made_sessions import session, turn
from support.places import SHARED
from support.stored import assert_conserved, assert_whole, content
from support.thoroughness import enough

KILLS = enough(16, 200)
ROUND = enough(8, 20)
"""After so many kills the run is completed and held against a clean one."""


class Logs:
    """A folder of logs that grows: sources that share episodes, resumed and forked sessions, torn lines."""

    def __init__(self, folder, conversation, write_jsonl):
        self.folder, self.conversation, self.write = folder, conversation, write_jsonl

    def grow(self, state):
        """Write the logs as they are at a moment; the higher the state, the more there is, and some of it moves."""
        for number in range(4):
            rows = [self.conversation(f"{number}/{row}", result="x" * 200) for row in range(3 + state % 3)]
            shared = [self.conversation(f"shared {row}") for row in range(number, number + 2)]
            # a copy that leaves its file makes another one the owner
            self.write(self.folder / f"{number}.jsonl", [*rows, *shared[: 1 + (state + number) % 2]])
        self.write(self.folder / "a.jsonl", session("a", *range(1, 2 + state % 4), end=99))
        self.write(self.folder / "b.jsonl", [*session("b", 1, 2), *turn("b", 3 + state % 2)])
        self.write(self.folder / "fork.jsonl", session("fork", 1, 5))
        with (self.folder / "b.jsonl").open("a") as file:
            file.write('{"type": "assistant", "uuid": "to')


@pytest.fixture
def logs(tmp_path, conversation, write_jsonl):
    made = Logs(tmp_path / "logs", conversation, write_jsonl)
    made.grow(0)
    return made


def clean_rows(tmp_path, logs, number):
    """What one run over the logs as they are leaves in an empty store, and how long it takes."""
    with Store(tmp_path / f"clean{number}.duckdb") as store:
        start = time.monotonic()
        ingest(store, [logs.folder])
        return rows_of(store), time.monotonic() - start


def aim(chance, number, length):
    """Half of the kills anywhere in the run, the others at a point where something is half done."""
    point = "anywhere" if number % 2 else POINTS[1 + number // 2 % (len(POINTS) - 1)]
    spread = length if point == "anywhere" else 0.004
    return point, chance.uniform(0, spread), chance.randrange(3) if point == "commit" else 0


def test_killed_runs_end_in_the_store_of_one_clean_run(tmp_path, logs):
    """Files change between the kills, too. After each kill the store is whole: every source is in it as it was at some
    moment, or not at all."""
    chance = random.Random(7)
    path = tmp_path / "killed.duckdb"
    hits: Counter[str] = Counter()
    length = 0.1
    for number in range(KILLS):
        if number % 3 == 0:
            logs.grow(chance.randrange(100))
        target = aim(chance, number, length)
        hits[target[0]] += kill_ingest(path, logs.folder, target)
        if path.exists():
            with Store(path) as store:
                assert_conserved(store)
                assert_whole(store)
        if number % ROUND == ROUND - 1:
            expected, length = clean_rows(tmp_path, logs, number)
            with Store(path) as store:
                ingest(store, [logs.folder])
                assert_conserved(store)
                assert rows_of(store) == expected
            if number % (2 * ROUND) == ROUND - 1:
                path.unlink()
    assert hits.total() > KILLS // 2, hits
    least = enough(0, 6)  # a few kills may miss a point; the test below aims at each of them
    assert all(hits[point] >= least for point in POINTS), hits


@pytest.mark.parametrize("point", POINTS[1:])
@pytest.mark.parametrize("delay", [0, 0.001])
def test_a_kill_at_each_point_is_completed_by_the_next_run(tmp_path, logs, point, delay):
    expected, _ = clean_rows(tmp_path, logs, 0)
    path = tmp_path / "killed.duckdb"
    kill_ingest(path, logs.folder, (point, delay, 0))
    with Store(path) as store:
        assert_conserved(store)
        assert_whole(store)
        ingest(store, [logs.folder])
        assert rows_of(store) == expected


def test_a_store_killed_in_the_making_is_made_by_the_next_run(tmp_path, logs, monkeypatch):
    """Half a header could never be opened: the file appears whole or not at all."""
    path = tmp_path / "s.duckdb"

    class Killed(BaseException):
        pass

    def kill(*_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("logforge.store.store._lay_out", kill)
        with pytest.raises(Killed):
            Store(path)
    assert not path.exists()
    with Store(path) as store:
        assert ingest(store, [logs.folder]).kept > 0


@pytest.mark.skipif(not SHARED.exists(), reason="the shared logs are not here")
def test_real_logs_end_the_same_after_a_kill(tmp_path):
    logs = SHARED / "logs" / "star"
    code = f"from logforge.ingestion.pipeline import ingest; from logforge.store.store import Store\nwith Store({str(tmp_path / 'k.duckdb')!r}) as s: ingest(s, [{str(logs)!r}])"
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        time.sleep(1.2)
        process.kill()
    with Store(tmp_path / "k.duckdb") as killed, Store(tmp_path / "c.duckdb") as clean:
        ingest(killed, [logs])
        ingest(clean, [logs])
        assert content(killed) == content(clean)
