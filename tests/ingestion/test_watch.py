"""`--watch`: at least once in, exactly once stored, whatever happens to the files and to the process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest

from logforge.ingestion.pipeline import ingest
from logforge.ingestion.watching import Pass, Summary, until_told, watch
from logforge.schemas.errors import InputError
from logforge.store.store import Store
from support.made_sessions import session, turn
from support.stored import assert_conserved, content

PATIENCE_S = 60


def follow(store, paths, *between, say=lambda text: None, **options):
    """What a watch yields that is stopped after one look more than there are acts `between` its looks."""
    acts = list(between)
    stop = threading.Event()

    def wait(_):
        if acts:
            acts.pop(0)()
        else:
            stop.set()

    stop.wait = wait  # type: ignore[assignment,method-assign]
    return list(watch(store, paths, stop=stop, say=say, **options))


def times(store):
    return dict(store.con.sql("SELECT path, ingested_at FROM sources").fetchall())


@pytest.fixture
def path(tmp_path):
    return tmp_path / "s.duckdb"


@pytest.fixture
def logs(tmp_path, conversation, write_jsonl):
    write_jsonl(tmp_path / "logs" / "a.jsonl", [conversation("a")])
    write_jsonl(tmp_path / "logs" / "b.jsonl", session("b", 1))
    return tmp_path / "logs"


def append(file, rows, end="\n"):
    with file.open("a") as stream:
        stream.write("".join(json.dumps(row) + "\n" for row in rows)[: -1 or None] + end if rows else "")


def test_only_what_changed_is_read_again(path, logs):
    seen = []

    def act(*changes):
        def run():
            with Store(path, read_only=True) as store:  # it is open only during a pass
                seen.append((times(store), content(store)))
            for change in changes:
                change()

        return run

    found = follow(
        path,
        [logs],
        act(),
        act(lambda: append(logs / "b.jsonl", turn("b", 2))),
        act(),
    )
    assert [item.read for item in found] == [2, 1, 3]
    assert [type(item) for item in found] == [Pass, Pass, Summary]
    (first, before), (second, _), (third, after) = seen
    assert first == second
    assert third["logs/a.jsonl"] == first["logs/a.jsonl"]
    assert third["logs/b.jsonl"] > first["logs/b.jsonl"]
    assert [row for row in after[0] if row in before[0]] != []
    assert found[1].new.steps == 1


def test_nothing_is_hashed_while_nothing_changes(path, logs):
    hashed = []

    def counted(store, paths):
        hashed.append(paths)
        return ingest(store, paths)

    follow(path, [logs], *[lambda: None] * 5, ingest=counted)
    assert len(hashed) == 1


def test_a_torn_line_leaves_the_quarantine_when_it_is_whole(path, logs):
    rows = turn("b", 2)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    found = []

    def quarantine():
        with Store(path) as store:
            found.append(store.con.sql("SELECT rule FROM quarantine").fetchall())
            assert_conserved(store)

    file = logs / "b.jsonl"
    follow(
        path,
        [logs],
        lambda: file.write_text(file.read_text() + text[:200]),
        lambda: (quarantine(), file.write_text(file.read_text() + text[200:])),
        quarantine,
    )
    assert [len(rules) for rules in found] == [1, 0]
    with Store(path) as store, Store(path.with_name("clean.duckdb")) as clean:
        ingest(clean, [logs])
        assert content(store) == content(clean)


def test_an_event_that_comes_twice_is_stored_once_and_a_late_one_reopens_its_episode(path, logs):
    late, _ = turn("b", 3)
    first = session("b", 1)[1]
    follow(path, [logs], lambda: append(logs / "b.jsonl", [first, late, first, late]))
    with Store(path) as store:
        assert_conserved(store)
        assert store.con.sql("SELECT duplicates FROM sources WHERE path = 'logs/b.jsonl'").fetchall() == [
            (3,)
        ]
        steps = store.con.sql(
            "SELECT count(*), count(DISTINCT tool_call_id) FROM steps WHERE tool_call_id LIKE 't%'"
        )
        assert steps.fetchall() == [(2, 2)]


def test_new_renamed_and_deleted_files(path, logs, conversation, write_jsonl):
    found = follow(
        path,
        [logs],
        lambda: write_jsonl(logs / "new" / "c.jsonl", [conversation("c")]),
        lambda: (logs / "new" / "c.jsonl").rename(logs / "d.jsonl"),
        lambda: (logs / "a.jsonl").unlink(),
    )
    assert [(item.read, item.gone) for item in found[:-1]] == [(2, 0), (1, 0), (1, 1), (0, 1)]
    with Store(path) as store:
        assert_conserved(store)
        names = "SELECT native_id FROM episodes ORDER BY 1"
        assert store.con.sql(names).fetchall() == [("a",), ("b",), ("c",)]


def test_what_lies_beside_the_logs_is_skipped_and_not_entered(path, logs, conversation, write_jsonl):
    write_jsonl(logs / ".git" / "x.jsonl", [conversation("hidden")])
    (logs / "broken.jsonl").symlink_to(logs / "nothing")
    inside = logs / "s.duckdb"  # the store among the logs is no log, though each pass changes it
    found = follow(inside, [logs], lambda: append(logs / "b.jsonl", turn("b", 2)), lambda: None)
    assert [item.read for item in found] == [4, 1, 5]
    with Store(inside) as store:
        assert store.con.sql("SELECT 1 FROM episodes WHERE native_id = 'hidden'").fetchall() == []


def test_a_pass_is_put_off_while_another_process_has_the_store(path, logs):
    Store(path).close()
    said = []
    code = f"from logforge.store.store import Store; s = Store({str(path)!r}); print('open', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        found = follow(path, [logs], lambda: None, lambda: other.communicate("\n"), say=said.append)
    assert len(said) == 1
    assert str(other.pid) in said[0]
    assert [item.read for item in found] == [2, 2]


def test_a_path_that_is_not_there_is_refused_at_the_start_only(path, logs):
    with pytest.raises(InputError, match="no such file"):
        follow(path, [logs / "nowhere"])
    found = follow(path, [logs / "a.jsonl", logs / "b.jsonl"], (logs / "a.jsonl").unlink)
    assert [(item.read, item.gone) for item in found[:-1]] == [(2, 0), (0, 1)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_sigterm_end_it_after_the_pass(path, logs, number):
    before = signal.getsignal(number)
    with until_told() as stop:
        items = watch(path, [logs], stop=stop)
        assert isinstance(next(items), Pass)
        os.kill(os.getpid(), number)
        last = next(items)
    assert (last.passes, last.total.episodes) == (1, 2)
    assert signal.getsignal(number) is before


@contextmanager
def running(path, logs):
    """`logforge ingest --watch` as a process, with the passes it has printed."""
    command = [sys.executable, "-m", "logforge", "ingest", str(logs), "--store", str(path)]
    with subprocess.Popen(
        [*command, "--watch", "--interval", "0.05", "--json"], stdout=subprocess.PIPE, text=True
    ) as process:
        lines: list[dict] = []
        assert process.stdout is not None
        reader = threading.Thread(
            target=lambda out: lines.extend(json.loads(line) for line in out), args=(process.stdout,)
        )
        reader.start()
        try:
            yield process, lines
        finally:
            process.kill()
            reader.join()


def until(condition):
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)


def test_a_process_that_is_fed_killed_and_stopped(path, logs):
    """Rows come in pieces while it runs, it is killed in between, and ends cleanly when it is told to."""
    file = logs / "b.jsonl"
    with running(path, logs) as (process, lines):
        until(lambda: lines)
        append(file, turn("b", 2))
        until(lambda: len(lines) > 1)
        append(file, turn("b", 3))
        os.kill(process.pid, signal.SIGKILL)
    append(file, [*turn("b", 3), *turn("b", 4)])  # delivered twice
    with running(path, logs) as (process, lines):
        until(lambda: lines)
        text = "".join(json.dumps(row) + "\n" for row in turn("b", 5))
        for piece in (text[:150], text[150:300], text[300:]):
            with file.open("a") as stream:
                stream.write(piece)
            count = len(lines)
            until(lambda count=count: len(lines) > count)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
        until(lambda: lines[-1]["event"] == "stopped")
    with Store(path) as store, Store(path.with_name("clean.duckdb")) as clean:
        ingest(clean, [logs])
        assert_conserved(store)
        assert content(store) == content(clean)
        assert lines[-1]["total"]["episodes"] == 2
