"""A classifier of the user's own flags messages; it is run because the user names it, and never because a log or a store does."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from logforge.cli.commands import main
from logforge.dataset.build.pipeline import BuildConfig, build_dataset
from logforge.ingestion.hygiene.flaggers import flagger_versions
from logforge.ingestion.pipeline import ingest, read_again
from logforge.ingestion.reading import ReadOptions
from logforge.schemas.errors import UsageError
from logforge.store.store import Store
from support.made_conversations import PASSWORD, SPEC, conversation, rows

CODE = """
seen = []
def rude(texts):
    seen.append(list(texts))
    return [["toxic"] if "idiot" in text.lower() else [] for text in texts]
rude.version = "1"
def wrong(texts): return ["toxic" for text in texts]
def short(texts): return []
def odd(texts): return [["Not A Flag"] for text in texts]
def fails(texts): raise ValueError("no model")
number = 3
"""


@pytest.fixture
def module(tmp_path, monkeypatch, request):
    """A module of the user's in the working folder, named so that no other test has it."""
    name = f"own_flags_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


@pytest.fixture
def logs(tmp_path, write_jsonl):
    made = [conversation(f"e{number}", f"do {number}", f"echo {number}") for number in range(12)]
    made += [conversation("rude", f"you idiot, password={PASSWORD}"), conversation("answer", result="IDIOT!")]
    made[0]["messages"][0]["content"] = "never say idiot"
    return write_jsonl(tmp_path / "logs" / "a.jsonl", made)


def flagged(store):
    return rows(
        store,
        "SELECT native_id, role, flags FROM messages JOIN episodes USING (episode_id) WHERE flags IS NOT NULL ORDER BY 1",
    )


FLAGGED = [("answer", "tool", ["toxic"]), ("rude", "user", ["toxic"])]


def test_flags_are_stored_reported_and_leave_episodes_out(module, logs, store, tmp_path):
    report = ingest(store, [logs], flag_with=[f"{module}:rude"])
    assert flagged(store) == FLAGGED
    assert report.flags == {"toxic": 2}
    (tmp_path / "spec.yaml").write_text(SPEC)
    config = BuildConfig(encoder="hashing", exclude_flags=("toxic",))
    built = build_dataset(store, tmp_path / "spec.yaml", out=tmp_path / "out", config=config)
    assert sum(split["episodes"] for split in built.splits.values()) == 12
    assert rows(store, "SELECT count(DISTINCT episode_id) FROM quarantine WHERE rule = 'flagged'") == [(2,)]


def test_it_sees_each_text_once_and_no_secret_and_no_system_prompt(module, logs, store):
    ingest(store, [logs], flag_with=[f"{module}:rude"])
    seen = [text for batch in __import__(module).seen for text in batch]
    assert len(seen) == len(set(seen))
    assert "you idiot, password=<PASSWORD>" in seen
    assert "never say idiot" not in seen


def test_another_version_reads_again(module, logs, store):
    name = f"{module}:rude"
    assert flagger_versions([name]) == {name: "1"}
    assert ingest(store, [logs], flag_with=[name]).read == 1
    assert ingest(store, [logs], flag_with=[name]).read == 0
    __import__(module).rude.version = "2"
    flagger_versions.__globals__["_version"].cache_clear()
    assert ingest(store, [logs], flag_with=[name]).read == 1
    assert ingest(store, [logs]).read == 1
    assert flagged(store) == []


def test_a_copy_that_takes_over_is_flagged_too(module, logs, store):
    copy = logs.with_name("b.jsonl")
    copy.write_text(logs.read_text())
    ingest(store, [logs.parent], flag_with=[f"{module}:rude"])
    ((owner,),) = rows(store, "SELECT path FROM sources WHERE kept > 0")
    (logs.parent / str(owner).rpartition("/")[2]).write_text("")
    ingest(store, [logs.parent], flag_with=[f"{module}:rude"])
    assert flagged(store) == FLAGGED
    assert ingest(store, [logs.parent], flag_with=[f"{module}:rude"]).read == 0


def test_a_store_names_no_code_to_run(module, logs, store):
    ingest(store, [logs], flag_with=[f"{module}:rude"])
    settings = dict(rows(store, "SELECT path, settings FROM sources"))
    assert all(ReadOptions.of(text, None).flag_with == () for text in settings.values())
    before = len(__import__(module).seen)
    read_again(store, settings)
    assert len(__import__(module).seen) == before
    assert ingest(store, [logs], flag_with=[f"{module}:rude"]).read == 1, "the flags it lost come back"
    assert flagged(store) == FLAGGED


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("wrong", "'toxic' for a text"), ("short", "0 answers for"), ("odd", "Not A Flag"), ("fails", "ValueError: no model"),
        ("number", "is no function"), ("missing", "cannot be imported"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_it_is_said_and_nothing_is_stored(module, logs, store, function, says):
    with pytest.raises(UsageError, match=says):
        ingest(store, [logs], flag_with=[f"{module}:{function}"])
    assert rows(store, "SELECT count(*) FROM episodes") == [(0,)]


@pytest.mark.parametrize("name", ["toxic", ":toxic", "no_such_module_at_all:toxic", "json:"])
def test_a_name_of_nothing_is_refused(name):
    with pytest.raises(UsageError, match=r"names no function|cannot be imported"):
        flagger_versions([name])


@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_command_and_its_workers_find_it_in_the_working_folder(module, logs, tmp_path, workers):
    arguments = ["ingest", "logs", "--flag-with", f"{module}:rude", "--workers", workers]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    assert "messages flagged: 2 toxic" in done.output
    with Store(tmp_path / "logforge.duckdb", read_only=True) as store:
        assert flagged(store) == FLAGGED
