"""Logs from standard input and from pipes: at least once in, exactly once stored."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading

import pytest
from click.testing import CliRunner

from logforge.cli.commands import main
from logforge.ingestion.pipeline import ingest
from logforge.ingestion.replaying import replay
from logforge.ingestion.sources.pipes import apart
from logforge.ingestion.watching import watch
from logforge.schemas.errors import UsageError
from logforge.store.store import Store
from support.stored import assert_conserved, content


def lines(conversation, *names):
    return "".join(json.dumps(conversation(name)) + "\n" for name in names)


@pytest.fixture
def piped(tmp_path, monkeypatch):
    """Runs the command in the folder of a store with something on standard input."""
    monkeypatch.chdir(tmp_path)

    def run(text, *args):
        done = CliRunner().invoke(main, ["ingest", *args, "--json"], input=text)
        return json.loads(done.stdout)

    return run


def sources(folder):
    with Store(folder / "logforge.duckdb", read_only=True) as store:
        assert_conserved(store)
        return store.con.sql("SELECT path, kept, duplicates FROM sources ORDER BY kept DESC, path").fetchall()


def test_the_same_bytes_twice_are_one_source_and_others_replace_nothing(tmp_path, piped, conversation):
    first = lines(conversation, "one", "two")
    assert piped(first, "-")["kept"] == 2
    again = piped(first, "-")
    assert (again["read"], again["unchanged"]) == (0, 1)
    assert piped(lines(conversation, "two", "three"), "-")["read"] == 1
    (a, b) = sources(tmp_path)
    assert a[0].startswith("<stdin>/")
    assert a[0] != b[0]
    assert (a[1] + b[1], a[2] + b[2]) == (3, 1), "delivered twice, stored once"
    done = CliRunner().invoke(main, ["ingest", "-"], input=lines(conversation, "two"))
    assert done.exit_code == 0, "what is delivered once more is no failure"


def test_what_was_piped_equals_what_a_file_gives(tmp_path, piped, conversation):
    text = lines(conversation, "one", "two")
    piped(text, "-", "--name", "log.jsonl")
    (tmp_path / "log.jsonl").write_text(text)
    with Store(tmp_path / "file.duckdb") as store, Store(tmp_path / "logforge.duckdb") as other:
        ingest(store, [tmp_path / "log.jsonl"])
        ids = "SELECT episode_id FROM episodes ORDER BY ALL"
        assert store.con.sql(ids).fetchall() == other.con.sql(ids).fetchall()
        assert other.con.sql("SELECT min(locator) FROM episodes").fetchall() == [("<stdin>/log.jsonl:1",)]


def test_under_a_name_other_bytes_take_the_place_of_those_before(tmp_path, piped, conversation):
    piped(lines(conversation, "one"), "-", "--name", "queue.jsonl")
    piped(lines(conversation, "one", "two"), "-", "--name", "queue.jsonl")
    assert sources(tmp_path) == [("<stdin>/queue.jsonl", 2, 0)]


def test_a_replay_leaves_what_was_piped_as_it_is(tmp_path, piped, conversation):
    piped(lines(conversation, "one") + '{"messages": [{"ro', "-")
    with Store(tmp_path / "logforge.duckdb") as store:
        before = content(store)
        done = replay(store)
        assert ([path[:8] for path in done.gone], done.lost, done.exit_code()) == (["<stdin>/"], 0, 1)
        assert content(store) == before


def test_a_plan_reads_it_and_stores_nothing(tmp_path, piped, conversation):
    (plan,) = piped(lines(conversation, "one"), "-", "--dry-run")["files"]
    assert (plan["format"], plan["kept"]) == ("openai_messages", 1)
    assert os.listdir(tmp_path) == []


def test_what_is_no_log_is_set_aside_and_not_passed_over(tmp_path, piped):
    assert [item["rule"] for item in piped("good morning\n", "-")["quarantine"]] == ["not_json"]


def test_a_pipe_given_by_name_is_read_one_in_a_folder_is_not(store, tmp_path, conversation):
    logs = tmp_path / "logs"
    logs.mkdir()
    os.mkfifo(logs / "pipe.jsonl")
    feeding = threading.Thread(target=(logs / "pipe.jsonl").write_text, args=[lines(conversation, "one")])
    feeding.start()
    assert ingest(store, [logs / "pipe.jsonl"]).kept == 1
    feeding.join()
    assert ingest(store, [logs]).skip_reasons == {"not_a_regular_file": 1}


def test_the_device_of_standard_input_is_read_too(tmp_path, conversation):
    """What a shell does: `cat x.jsonl | logforge ingest /dev/stdin`."""
    code = "from logforge.cli.commands import main; main()"
    given = [sys.executable, "-c", code, "ingest", "/dev/stdin", "--json"]
    done = subprocess.run(
        given, input=lines(conversation, "one"), capture_output=True, text=True, cwd=tmp_path, check=True
    )
    assert json.loads(done.stdout)["kept"] == 1
    assert sorted(os.listdir(tmp_path)) == ["logforge.duckdb", "logforge.duckdb.key"]


def test_a_name_belongs_to_one_pipe_and_a_pipe_cannot_be_watched(tmp_path):
    for paths, name in (([tmp_path], "x"), (["-", "-"], "x"), (["-"], "/")):
        with pytest.raises(UsageError, match="--name"):
            apart(paths, name)
    with pytest.raises(UsageError, match="cannot be watched"):
        next(watch(tmp_path / "s.duckdb", ["-"]))
    assert not (tmp_path / "s.duckdb").exists()
