"""What is forgotten is gone, to the byte, from the store and the published datasets, and no ingest brings it back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from logforge.api import ingest
from logforge.checks.pipeline import check_dataset
from logforge.cli.commands import main
from logforge.dataset.build.pipeline import BuildConfig, build_dataset
from logforge.evaluation.pipeline import evaluate
from logforge.forgetting import pipeline as forgetting
from logforge.forgetting import shards as forgotten_shards
from logforge.forgetting.pipeline import complete, forget, revoke
from logforge.ingestion.dry_runs import dry_run
from logforge.ingestion.reading import ReadOptions
from logforge.schemas.errors import Mismatch, StoreError, UsageError
from logforge.shards.reader import load_shards, read_manifest
from logforge.store.forgotten import key_of, pending
from logforge.store.store import Store
from logforge.texts.encoders import text_hash
from support.killing import kill_forget
from support.made_sessions import session as claude_session
from support.places import SAMPLES
from support.stored import assert_conserved, content
from support.thoroughness import enough

REWARD = """
gamma: 0.9
terms:
  success: {when: success, value: 1, at: end}
"""
FIELDS = (
    "task",
    "message",
    "argument",
    "result",
    "thought",
    "metadata",
    "native",
    "user",
    "session",
    "excerpt",
)


def mark(field):
    """A text that is in no other place, long enough to be found."""
    return f"MARK-{field}-quokka-wombat"


def marked(**more):
    """A conversation in which every field carries a mark."""
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "lookup", "arguments": json.dumps({"key": mark("argument")})},
    }
    return {
        "id": mark("native"),
        "session_id": mark("session"),
        "user_id": mark("user"),
        "success": True,
        "note": mark("metadata"),
        "messages": [
            {"role": "user", "content": f"please {mark('task')} and {mark('message')}"},
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": mark("thought"),
                "tool_calls": [call],
            },
            {"role": "tool", "tool_call_id": "c1", "content": mark("result")},
            {"role": "assistant", "content": "done"},
        ],
        **more,
    }


def found(folder: Path) -> set[str]:
    """The fields whose marks lie in any file below a folder."""
    data = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    return {field for field in FIELDS if mark(field).encode() in data}


def found_in(text: str) -> set[str]:
    """The fields whose marks lie in a text."""
    return {field for field in FIELDS if mark(field) in text}


def plain(path: Path) -> Store:
    """A store that compresses nothing, so that a search of its bytes finds what it holds."""
    store = Store(path)
    store.con.execute("SET force_compression = 'uncompressed'")
    return store


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Where the store and the datasets lie; the logs lie elsewhere."""
    monkeypatch.setattr("logforge.store.store.LONG_TEXTS", frozenset())  # as `plain`
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def logs(tmp_path, conversation, write_jsonl):
    """Ten conversations; the marked one is in two files, beside others and a torn line that holds a mark too."""
    torn = '{"messages": [{"role": "user", "content": "' + mark("excerpt")
    for name in "ab":
        rows = [conversation(f"{name}{number}") for number in range(5)]
        path = write_jsonl(tmp_path / "logs" / f"{name}.jsonl", [*rows, marked()])
        path.write_text(path.read_text() + torn)
    return tmp_path / "logs"


@pytest.fixture
def built(home, logs):
    """A store with a dataset in which every group is in train."""
    with plain(home / "s.duckdb") as store:
        ingest(store, [logs])
        spec = home.parent / "reward.yaml"
        spec.write_text(REWARD)
        config = BuildConfig(encoder="hashing", text_size=4, augment=("tool_failure",), retryable=("lookup",))
        build_dataset(store, spec, out=home / "datasets", config=config)
        yield store


def marked_id(store):
    ((identifier,),) = store.con.sql(
        "SELECT episode_id FROM episodes WHERE native_id LIKE 'MARK%'"
    ).fetchall()
    return identifier


REQUESTS = [{"session": mark("session")}, {"user": mark("user")}, {"session": mark("native")}]


@pytest.mark.parametrize("request_", REQUESTS, ids=["session", "user", "native id"])
def test_a_search_of_all_bytes_finds_nothing(built, home, logs, request_):
    built.checkpoint()
    assert found(home) == set(FIELDS)  # the search would find it
    report = forget(built, **request_)
    assert (report.episodes, report.messages, report.steps) == (1, 4, 2)
    assert len(report.files) == 2
    assert found(home) == set()
    assert_conserved(built)
    assert check_dataset(built, "default").transitions > 0
    # … nor after another ingest of the same logs, which still hold it, also once they have grown
    for path in logs.iterdir():
        path.write_text(path.read_text() + "\n" + json.dumps(marked()) + "\n")
    again = ingest(built, [logs])
    assert again.read == 2
    assert again.skip_reasons["forgotten"] > 0
    built.checkpoint()
    assert found(home) == set()
    assert_conserved(built)


def test_nothing_but_it_is_gone(built, home):
    before = {row[0] for row in built.con.sql("SELECT episode_id FROM episodes").fetchall()}
    gone = marked_id(built)
    tables = ("episodes", "messages", "steps", "copies", "splits", "transitions")
    others = {
        name: built.con.sql(
            f"SELECT {'episode_id, split' if name == 'splits' else '*'} FROM {name} WHERE episode_id <> '{gone}' "
            + (f"AND coalesce(parent_id, '') NOT LIKE '{gone}%' " if name == "transitions" else "")
            + "ORDER BY ALL"
        ).fetchall()
        for name in tables
    }
    forget(built, episode=gone)
    assert {row[0] for row in built.con.sql("SELECT episode_id FROM episodes").fetchall()} == before - {gone}
    for name, rows in others.items():
        columns = "episode_id, split" if name == "splits" else "*"
        assert built.con.sql(f"SELECT {columns} FROM {name} ORDER BY ALL").fetchall() == rows


def test_shards_are_written_again_without_it(built, home):
    gone = marked_id(built)
    folder = home / "datasets" / "default"
    rows = built.con.sql(
        "SELECT DISTINCT episode_id, split_part(parent_id, '/', 1), split FROM transitions ORDER BY 1"
    ).fetchall()
    ((split,),) = {(row[2],) for row in rows if row[0] == gone}
    old = load_shards(folder, split)
    old_hash, vectors = old.manifest.hash, {name: np.array(old.observations) for name in ("before",)}
    places = [row[:2] for row in rows if row[2] == split]
    stay = [gone not in place for place in places]
    expected = [ep for ep, keep in zip(old.episodes(), stay, strict=True) if keep]
    expected = [tuple(np.array(part) for part in ep[:7]) for ep in expected]
    lost = [np.array(ep.observations) for ep, keep in zip(old.episodes(), stay, strict=True) if not keep]
    forget(built, episode=gone)
    new = load_shards(folder, split)
    new.verify()
    assert new.manifest.hash != old_hash
    assert new.manifest.replaces == old_hash
    assert new.manifest.forgotten == len(lost) == 1 + (split == "train")
    for got, want in zip(new.episodes(), expected, strict=True):
        assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(got[:7], want, strict=True))
    kept = {row.tobytes() for row in np.vstack([want[5] for want in expected])}
    bytes_now = (folder / split / "observations.npy").read_bytes()
    own = [row.tobytes() for part in lost for row in part if row.tobytes() not in kept]
    assert own
    assert all(row in vectors["before"].tobytes() for row in own)
    assert not any(row in bytes_now for row in own)


def test_vectors_of_its_texts_leave_the_cache(built):
    texts = [f"please {mark('task')} and {mark('message')}", mark("result")]
    hashes = {text_hash(text) for text in texts}
    query = "SELECT text_hash, vector FROM embeddings"
    before = dict(built.con.sql(query).fetchall())
    assert hashes <= set(before)
    forget(built, user=mark("user"))
    after = dict(built.con.sql(query).fetchall())
    assert not hashes & set(after)
    assert text_hash("please look up a0") in after
    data = built.path.read_bytes()
    assert not any(before[name] in data for name in hashes)


def test_a_dry_run_says_the_same_and_changes_nothing(built):
    built.checkpoint()
    before = content(built), built.path.stat().st_mtime_ns
    planned = forget(built, user=mark("user"), dry_run=True)
    assert (content(built), built.path.stat().st_mtime_ns) == before
    done = forget(built, user=mark("user"))
    assert {**planned.as_dict(), "dry_run": False} == done.as_dict()
    assert "nothing was changed" in planned.render()
    assert done.datasets[0].name in done.render()


def test_a_dry_run_of_an_ingest_leaves_out_what_was_forgotten(built, logs):
    forget(built, session=mark("session"))
    built.close()
    plan = dry_run([logs], built.path, ReadOptions())
    assert [(file.kept, file.episodes) for file in plan.files] == [(5, 5), (5, 5)]
    assert all("would skip 1 × forgotten" in file.reasons for file in plan.files)
    assert not found_in(json.dumps(plan.as_dict()))


def test_a_dry_run_does_not_look_into_a_forgotten_source(built, logs):
    forget(built, source=str(logs / "a.jsonl"))
    built.close()
    gone, other = sorted(dry_run([logs], built.path, ReadOptions()).files, key=lambda file: file.kept)
    assert (gone.kept, gone.evidence) == (0, "its source was forgotten")
    assert other.kept == 5  # what the forgotten source shared with it is forgotten too


def test_a_revoked_forget_is_read_again(built, logs, tmp_path):
    forget(built, session=mark("session"))
    ingest(built, [logs])
    with pytest.raises(UsageError, match="was not forgotten"):
        revoke(built, session="other")
    revoke(built, session=mark("session"))
    ingest(built, [logs])
    with Store(built.path.with_name("clean.duckdb")) as clean:
        ingest(clean, [logs])
        assert content(built) == content(clean)


def test_a_new_copy_under_another_name_is_kept_out_too(built, logs, write_jsonl, conversation):
    forget(built, episode=marked_id(built))
    shutil.copy(logs / "a.jsonl", logs / "copy.jsonl")
    write_jsonl(logs / "other.jsonl", [marked(), conversation("fresh")])
    ingest(built, [logs])
    rows = dict(built.con.sql("SELECT path, (kept, skip_reasons['forgotten']) FROM sources").fetchall())
    assert rows["../logs/other.jsonl" if "../logs/other.jsonl" in rows else str(logs / "other.jsonl")] == (
        1,
        1,
    )
    assert mark("result") not in str(content(built))
    assert_conserved(built)


@pytest.mark.parametrize("whole_folder", [False, True])
def test_a_source_is_forgotten_whole(built, home, logs, whole_folder):
    report = forget(built, source=logs if whole_folder else logs / "a.jsonl")
    assert len(report.sources) == 1 + whole_folder
    assert found(home) == set()
    if whole_folder:
        assert built.con.sql("SELECT count(*) FROM sources").fetchall() == [(0,)]
    for _ in range(2):
        again = ingest(built, [logs])
        assert again.skip_reasons["forgotten"] >= 1
        assert_conserved(built)
        built.checkpoint()
        assert found(home) == set()
    assert str(logs / "a.jsonl") not in str(built.con.sql("SELECT path FROM sources").fetchall())
    revoke(built, source=logs if whole_folder else logs / "a.jsonl")
    ingest(built, [logs])
    with Store(home / "clean.duckdb") as clean:
        ingest(clean, [logs])
        assert content(built) == content(clean)


def test_sub_agents_and_resumed_sessions_go_with_it(store, tmp_path, write_jsonl):
    """A longer session that carries the history of a shorter one holds its text."""
    logs = tmp_path / "logs"
    write_jsonl(logs / "a.jsonl", claude_session("a", 1, end=19))
    write_jsonl(logs / "b.jsonl", claude_session("b", 1, 2, end=29))
    write_jsonl(logs / "c.jsonl", claude_session("x", 7, end=79))
    ingest(store, [logs])
    report = forget(store, session="a")
    assert (report.episodes, report.related) == (2, 1)
    assert store.con.sql("SELECT DISTINCT native_id FROM episodes").fetchall() != []
    assert_conserved(store)
    # a session that resumes it later brings the text along, and is known by its decisions
    write_jsonl(logs / "d.jsonl", claude_session("d", 1, 3))
    report = ingest(store, [logs])
    assert "d" not in {row[0] for row in store.con.sql("SELECT native_id FROM episodes").fetchall()}
    assert report.skip_reasons["forgotten"] > 0
    assert_conserved(store)


@pytest.mark.parametrize(
    ("names", "match"),
    [
        ({"session": mark("session")[:-1]}, f"did you mean {mark('session')}"),
        ({"user": "nobody"}, "no user 'nobody'"),
        ({"episode": "ffff"}, "no episode"),
        ({"source": "nowhere.jsonl"}, "no source"),
        ({}, "name one thing"),
        ({"user": "a", "session": "b"}, "name one thing"),
    ],
)
def test_unknown_names_are_refused_with_the_nearest(built, names, match):
    with pytest.raises(UsageError, match=match):
        forget(built, **names)
    assert built.con.sql("FROM forgotten").fetchall() == []


def test_names_are_kept_as_hashes_alone(built):
    forget(built, user=mark("user"))
    rows = built.con.sql("SELECT kind, key, pending FROM forgotten").fetchall()
    assert ("user", key_of("user", mark("user")), False) in rows
    assert "MARK" not in str(rows)
    assert forget(built, user=mark("user")).render().endswith("nothing of it is left")


class Killed(BaseException):
    """Stands for a kill: nothing catches it."""


STAGES = [
    (forgetting, "drop_from_datasets"),
    (forgotten_shards, "find_conflicts"),
    (forgotten_shards, "write_dataset"),
    (forgetting, "_count_out"),
    (forgetting, "_delete"),
    (forgetting, "_forget_vectors"),
]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(("module", "name"), STAGES)
def test_a_forget_that_was_cut_short_is_completed_by_the_next_ingest(
    built, home, logs, monkeypatch, module, name, after
):
    real = getattr(module, name)

    def cut(*args, **more):
        if after:
            real(*args, **more)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(module, name, cut)
        with pytest.raises(Killed):
            forget(built, user=mark("user"))
    assert pending(built)
    built.close()
    with plain(built.path) as again:
        report = ingest(again, [logs])
        assert report.skip_reasons["forgotten"] == 2
        assert not pending(again)
        assert found(home) == set()
        assert_conserved(again)
        assert check_dataset(again, "default").transitions > 0
        assert read_manifest(home / "datasets" / "default").forgotten > 0


def test_kill_9_at_any_moment_of_a_forget(built, home, tmp_path):
    """Real kills: afterwards the store is the old one or the new one, and the next run completes it."""
    built.close()
    shutil.copytree(home, tmp_path / "kept")
    hit = 0
    kills = enough(4, 12)
    for delay in np.linspace(0, 0.6, kills):
        shutil.rmtree(home)
        shutil.copytree(tmp_path / "kept", home)
        hit += kill_forget(built.path, mark("user"), ("anywhere", float(delay), 0))
        with plain(built.path) as store:
            complete(store)
            if store.con.sql("SELECT 1 FROM forgotten").fetchall():
                assert found(home) == set()
                assert not list(home.glob(".s.duckdb.fresh*"))
            else:
                assert marked_id(store)
            assert_conserved(store)
            check_dataset(store, "default")
    assert hit > kills // 4


def test_shards_that_are_not_those_of_the_store_are_refused_before_anything_is_changed(built, home):
    folder = home / "datasets" / "default"
    with Store(home / "other.duckdb") as other:
        shutil.copytree(SAMPLES / "tau_bench", home / "more")
        ingest(other, [home / "more"])
        spec = home.parent / "reward.yaml"
        build_dataset(other, spec, out=home / "datasets", config=BuildConfig(encoder="hashing", text_size=4))
    with pytest.raises(Mismatch, match="delete its folder"):
        forget(built, user=mark("user"))
    assert not pending(built)
    shutil.rmtree(folder)
    assert forget(built, user=mark("user")).episodes == 1


def test_what_was_trained_before_is_refused(built, home):
    pytest.importorskip("d3rlpy")
    from logforge.learning.training.pipeline import train

    run = home / "run"
    train(home / "datasets" / "default", out=run, updates=20, algo="bc")
    forget(built, user=mark("user"))
    with pytest.raises(Mismatch, match="were forgotten: train again"):
        evaluate(run)


def test_a_full_disk_leaves_a_store_that_the_next_run_completes(built, home, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Store, "rewrite", lambda *_: (_ for _ in ()).throw(StoreError("s", "cannot write")))
        with pytest.raises(StoreError):
            forget(built, user=mark("user"))
    assert pending(built)
    complete(built)
    assert found(home) == set()


def test_on_the_command_line(tmp_path, logs, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = CliRunner().invoke
    assert run(main, ["ingest", "logs"]).exit_code == 0
    missing = run(main, ["forget", "--user", "nobody", "--json"])
    assert (missing.exit_code, json.loads(missing.stdout)["rule"]) == (2, "unknown_name")
    done = run(main, ["forget", "--user", mark("user"), "--json"])
    assert (done.exit_code, json.loads(done.stdout)["episodes"]) == (0, 1)
    assert json.loads(done.stdout)["files"] == ["logs/a.jsonl", "logs/b.jsonl"]
    lifted = run(main, ["forget", "--user", mark("user"), "--revoke"])
    assert "no longer kept out" in lifted.stdout


SESSION = "5f0c2a77-quokka-session-wombat"


def test_a_file_named_after_its_session_leaves_no_name(home, tmp_path, write_jsonl):
    """Claude Code names its files after their sessions, and sub-agents' folders too."""
    logs = tmp_path / "projects"
    path = write_jsonl(logs / f"{SESSION}.jsonl", claude_session(SESSION, 1, 2, end=3))
    path.write_text(path.read_text() + '{"type": "assistant", "message": {"torn')
    write_jsonl(logs / "other.jsonl", claude_session("other", 7, end=8))
    with plain(home / "s.duckdb") as store:
        ingest(store, [logs])
        before = store.con.sql("SELECT source_id FROM sources ORDER BY 1").fetchall()
        for again in (False, True):
            if not again:
                forget(store, session=SESSION)
            store.con.execute("CHECKPOINT")
            assert SESSION.encode() not in b"".join(file.read_bytes() for file in home.iterdir())
            assert store.con.sql("SELECT source_id FROM sources ORDER BY 1").fetchall() == before
            assert store.con.sql("SELECT count(*) FROM episodes").fetchall() == [(1,)]
            rows = store.con.sql("SELECT path FROM sources WHERE kept = 0").fetchall()
            assert len(rows) == 1
            assert rows[0][0].startswith("forgotten/")
            assert ingest(store, [logs]).read == 0
            path.write_text(path.read_text() + "\n")  # it is read again, and nothing comes back
            report = ingest(store, [logs])
            assert report.read == 1
            assert_conserved(store)
        revoke(store, session=SESSION)
        ingest(store, [logs])
        assert store.con.sql(
            "SELECT count(*) FROM sources WHERE path LIKE $1", params=[f"%{SESSION}%"]
        ).fetchall() == [(1,)]
