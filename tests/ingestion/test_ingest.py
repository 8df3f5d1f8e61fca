"""Nothing lost, nothing twice, nothing dependent on order: the laws of ingest."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import zipfile

import duckdb
import msgspec
import pytest

from logforge.connectors import detection as connectors
from logforge.ingestion import batches, looking, rounds
from logforge.ingestion import workers as crews
from logforge.ingestion.pipeline import ingest
from logforge.schemas.errors import InputError, StoreError, UnknownName
from logforge.store.store import Store
from support.places import SAMPLES
from support.stored import assert_conserved, content


def test_sample_logs_are_conserved_and_a_second_run_changes_nothing(tmp_path):
    shutil.copytree(SAMPLES, tmp_path / "logs")
    with Store(tmp_path / "s.duckdb") as store:
        first = ingest(store, [tmp_path / "logs"])
        assert first.kept > 0
        assert first.unchanged == 0
        assert_conserved(store)
        before = content(store), store.con.sql("SELECT * FROM sources ORDER BY ALL").fetchall()
        second = ingest(store, [tmp_path / "logs"])
        assert second.read == 0
        assert second.unchanged == first.read
        assert (content(store), store.con.sql("SELECT * FROM sources ORDER BY ALL").fetchall()) == before
        assert second.formats == first.formats


def test_the_store_does_not_depend_on_the_order_or_number_of_workers(tmp_path, monkeypatch):
    monkeypatch.setattr(crews, "POOL_BYTES", 0)
    shutil.copytree(SAMPLES, tmp_path / "logs")
    files = sorted(path for path in (tmp_path / "logs").rglob("*") if path.is_file())
    stores = []
    for number, (order, workers) in enumerate([(files, 1), (files[::-1], 1), (files, 2)]):
        with Store(tmp_path / f"{number}.duckdb") as store:
            if workers == 1:
                for file in order:
                    ingest(store, [file])
            else:
                ingest(store, order, workers=workers)
            stores.append(content(store))
    assert stores[0] == stores[1] == stores[2]


def test_a_grown_file_replaces_its_rows_and_touches_no_other(store, tmp_path, conversation, write_jsonl):
    grown = write_jsonl(tmp_path / "a.jsonl", [conversation("one")])
    write_jsonl(tmp_path / "b.jsonl", [conversation("two")])
    ingest(store, [tmp_path / "a.jsonl", tmp_path / "b.jsonl"])
    untouched = store.con.sql("SELECT ingested_at FROM sources WHERE path = 'b.jsonl'").fetchall()
    write_jsonl(grown, [conversation("one"), conversation("three")])
    report = ingest(store, [tmp_path / "a.jsonl", tmp_path / "b.jsonl"])
    assert (report.read, report.unchanged) == (1, 1)
    assert store.con.sql("SELECT native_id FROM episodes ORDER BY 1").fetchall() == [
        ("one",),
        ("three",),
        ("two",),
    ]
    assert store.con.sql("SELECT ingested_at FROM sources WHERE path = 'b.jsonl'").fetchall() == untouched
    assert_conserved(store)


@pytest.mark.parametrize("order", list(itertools.permutations(["a", "b", "c"])))
def test_the_owner_of_a_copy_does_not_depend_on_arrival(tmp_path, conversation, write_jsonl, order):
    write_jsonl(tmp_path / "a.jsonl", [conversation("shared"), conversation("only a")])
    write_jsonl(tmp_path / "b.jsonl", [conversation("shared")])
    write_jsonl(
        tmp_path / "c.jsonl", [conversation("only c"), conversation("shared"), conversation("shared")]
    )
    with Store(tmp_path / "s.duckdb") as store:
        for name in order:
            ingest(store, [tmp_path / f"{name}.jsonl"])
        assert_conserved(store)
        got = content(store)
    with Store(tmp_path / "at once.duckdb") as store:
        ingest(store, [tmp_path / f"{name}.jsonl" for name in "abc"])
        assert content(store) == got
        counts = store.con.sql("SELECT sum(kept), sum(duplicates) FROM sources").fetchall()
    assert counts == [(3, 3)]


def held(store):
    return dict(
        store.con.sql(
            "SELECT e.native_id, s.path FROM episodes e JOIN sources s USING (source_id)"
        ).fetchall()
    )


def owner_of(store, native_id):
    return held(store)[native_id]


@pytest.mark.parametrize("one_by_one", [True, False])
def test_when_the_owner_drops_an_episode_the_best_copy_takes_over(
    store, tmp_path, conversation, write_jsonl, one_by_one, monkeypatch
):
    """Also when the copy's file was already read in the same run, in an earlier batch."""
    monkeypatch.setattr(batches, "COMMIT_SOURCES", 1)
    names = ["a.jsonl", "b.jsonl", "c.jsonl"]
    for name in names:
        write_jsonl(tmp_path / name, [conversation("shared"), conversation(f"only {name}")])
    ingest(store, [tmp_path / name for name in names])
    owner = owner_of(store, "shared")
    write_jsonl(tmp_path / owner, [conversation(f"only {owner}"), conversation("new")])
    others = [] if one_by_one else [name for name in names if name != owner]
    for name in others:
        write_jsonl(
            tmp_path / name,
            [conversation("shared"), conversation(f"only {name}"), conversation(f"new {name}")],
        )
    ingest(store, [tmp_path / name for name in [*others, owner]])
    assert owner_of(store, "shared") in set(names) - {owner}
    assert_conserved(store)
    got = content(store)
    with Store(tmp_path / "clean.duckdb") as clean:
        ingest(clean, [tmp_path / name for name in names])
        assert content(clean) == got
    again = ingest(store, [tmp_path / name for name in names])
    assert (again.read, content(store)) == (0, got)


@pytest.mark.parametrize("number", range(4))
def test_when_the_owners_file_changes_the_owner_is_still_the_best_copy(
    store, tmp_path, conversation, write_jsonl, number
):
    """Its rank depends on its bytes: it may be the best copy no more."""
    names = ["a.jsonl", "b.jsonl", "c.jsonl"]
    for name in names:
        write_jsonl(tmp_path / name, [conversation("shared"), conversation(f"only {name}")])
    ingest(store, [tmp_path / name for name in names])
    owner = owner_of(store, "shared")
    write_jsonl(tmp_path / owner, [conversation("shared"), conversation(f"new {number}")])
    ingest(store, [tmp_path / owner])
    with Store(tmp_path / "clean.duckdb") as clean:
        ingest(clean, [tmp_path / name for name in names])
        assert content(clean) == content(store)
    assert_conserved(store)


def test_a_run_killed_before_the_copy_took_over_is_completed_by_any_next_run(
    store, tmp_path, conversation, write_jsonl, monkeypatch
):
    for name in ("a.jsonl", "b.jsonl"):
        write_jsonl(tmp_path / name, [conversation("shared"), conversation(f"only {name}")])
    ingest(store, [tmp_path / "a.jsonl", tmp_path / "b.jsonl"])
    owner = owner_of(store, "shared")
    write_jsonl(tmp_path / owner, [conversation(f"only {owner}")])
    with monkeypatch.context() as patch:
        patch.setattr(rounds, "heirs", lambda *_: {})
        ingest(store, [tmp_path / owner])
    assert "shared" not in held(store)
    ingest(store, [tmp_path / owner])
    assert "shared" in held(store)
    assert_conserved(store)


def test_a_copy_read_with_a_forced_format_is_read_with_it_again(store, tmp_path, conversation, write_jsonl):
    write_jsonl(tmp_path / "a.jsonl", [conversation("shared")])
    write_jsonl(tmp_path / "b.txt", [conversation("shared"), conversation("only b")])
    ingest(store, [tmp_path / "a.jsonl"])
    ingest(store, [tmp_path / "b.txt"], format="openai_messages")
    for name in ("a.jsonl", "b.txt"):
        if owner_of(store, "shared") == name:
            write_jsonl(tmp_path / name, [conversation("other")])
            ingest(store, [tmp_path / name], format=None if name == "a.jsonl" else "openai_messages")
            break
    assert "shared" in held(store)
    assert_conserved(store)


def test_an_episode_whose_last_copy_is_gone_is_named_in_the_quarantine(
    store, tmp_path, conversation, write_jsonl
):
    for name in ("a.jsonl", "b.jsonl"):
        write_jsonl(tmp_path / name, [conversation("shared"), conversation(f"only {name}")])
    ingest(store, [tmp_path / "a.jsonl", tmp_path / "b.jsonl"])
    owner = owner_of(store, "shared")
    (tmp_path / ("b.jsonl" if owner == "a.jsonl" else "a.jsonl")).unlink()
    write_jsonl(tmp_path / owner, [conversation(f"only {owner}")])
    for _ in range(2):
        ingest(store, [tmp_path / owner])
        ((rule, episode),) = store.con.sql("SELECT rule, episode_id FROM quarantine").fetchall()
        assert rule == "copy_gone"
        assert len(episode) == 32


def test_a_wrong_format_does_not_stick(store, tmp_path, conversation, write_jsonl):
    write_jsonl(tmp_path / "a.jsonl", [conversation("one")])
    assert ingest(store, [tmp_path / "a.jsonl"], format="star").kept == 0
    assert ingest(store, [tmp_path / "a.jsonl"]).kept == 1


def test_logs_whose_names_begin_like_the_store_are_read(tmp_path, conversation, write_jsonl):
    write_jsonl(tmp_path / "logs.jsonl", [conversation("one")])
    write_jsonl(tmp_path / "logs-2024" / "a.jsonl", [conversation("two")])
    with Store(tmp_path / "logs") as store:
        assert ingest(store, [tmp_path]).kept == 2
        assert store.con.sql("SELECT count(*) FROM sources").fetchall() == [(2,)]


def test_odd_files_are_named_and_harm_no_neighbour(store, tmp_path, conversation, write_jsonl):
    logs = tmp_path / "logs"
    write_jsonl(logs / "good.jsonl", [conversation("one")])
    write_jsonl(logs / "linked" / "far.jsonl", [conversation("two")])
    os.mkfifo(logs / "pipe.jsonl")
    (logs / "broken.jsonl").symlink_to(logs / "nothing")
    (logs / "loop").symlink_to(logs)
    (logs / ".git").mkdir()
    (logs / "folder.jsonl").mkdir()
    with open(os.path.join(os.fsencode(logs), b"odd\xff.jsonl"), "w") as file:
        file.write(json.dumps(conversation("three")))
    report = ingest(store, [logs])
    assert report.kept == 3
    assert report.skip_reasons == {
        "broken_link": 1,
        "link_loop": 1,
        "not_a_regular_file": 1,
        "tool_folder": 1,
    }
    assert ingest(store, [logs]).read == 0
    assert_conserved(store)


def test_unreadable_files_and_folders_are_quarantined(
    store, tmp_path, conversation, write_jsonl, monkeypatch
):
    write_jsonl(tmp_path / "logs" / "good.jsonl", [conversation("one")])
    write_jsonl(tmp_path / "logs" / "secret.jsonl", [conversation("two")])
    real = looking.sha256_of

    def denied(path, *more):
        if path.name == "secret.jsonl":
            raise PermissionError(13, "Permission denied")
        return real(path, *more)

    monkeypatch.setattr(looking, "sha256_of", denied)
    report = ingest(store, [tmp_path / "logs"])
    assert report.kept == 1
    assert [(q.rule, q.times) for q in report.quarantine] == [("unreadable_file", 1)]
    monkeypatch.setattr(looking, "sha256_of", real)
    assert ingest(store, [tmp_path / "logs"]).kept == 2
    assert store.con.sql("SELECT count(*) FROM quarantine").fetchall() == [(0,)]


def test_what_was_read_stays_while_its_file_cannot_be_read(
    store, tmp_path, conversation, write_jsonl, monkeypatch
):
    logs = tmp_path / "logs"
    write_jsonl(logs / "a.jsonl", [conversation("one")])
    write_jsonl(tmp_path / "b.jsonl", [conversation("two")])
    with zipfile.ZipFile(logs / "b.zip", "w") as archive:
        archive.write(tmp_path / "b.jsonl", "b.jsonl")
    assert ingest(store, [logs]).kept == 2
    before = store.con.sql("SELECT * FROM episodes ORDER BY episode_id").fetchall()

    def denied(path, *more):
        raise PermissionError(13, "Permission denied")

    real = looking.sha256_of
    monkeypatch.setattr(looking, "sha256_of", denied)
    report = ingest(store, [logs])
    assert store.con.sql("SELECT * FROM episodes ORDER BY episode_id").fetchall() == before
    assert [why.partition(" ")[0] for why in report.stayed] == ["logs/a.jsonl", "logs/b.zip"]
    assert "Permission denied; what was read of it before stays" in report.render()
    assert_conserved(store)
    monkeypatch.setattr(looking, "sha256_of", real)
    assert ingest(store, [logs]).read == 0


@pytest.mark.parametrize(
    "junk", [b"WARNING: starting up\n", b"\x00" * 5000 + b"\n", b"a\nb\nc\n", b"\n" * 300_000]
)
def test_junk_before_the_first_record_costs_no_record(store, tmp_path, conversation, junk):
    rows = "".join(json.dumps(conversation(name)) + "\n" for name in ("one", "two"))
    (tmp_path / "a.jsonl").write_bytes(junk + rows.encode())
    assert ingest(store, [tmp_path / "a.jsonl"]).kept == 2
    assert store.con.sql("SELECT count(*) FROM quarantine").fetchall() == [
        (sum(bool(line.strip()) for line in junk.split(b"\n")),)
    ]


def test_a_value_of_the_wrong_type_sets_its_episode_aside_alone(
    store, tmp_path, conversation, write_jsonl, monkeypatch
):
    """A third-party connector may yield what the tables cannot hold."""
    path = write_jsonl(tmp_path / "a.jsonl", [conversation("one"), conversation("two")])
    connector = connectors.get("openai_messages")
    real = type(connector).read

    def spoiled(self, source):
        for item in real(self, source):
            yield (
                msgspec.structs.replace(item, score="high")
                if getattr(item, "native_id", "") == "one"
                else item
            )

    monkeypatch.setattr(type(connector), "read", spoiled)
    report = ingest(store, [path])
    assert (report.kept, [q.rule for q in report.quarantine]) == (1, ["unfit_value"])
    assert_conserved(store)


def test_a_foreign_duckdb_file_is_left_alone(tmp_path):
    path = tmp_path / "foreign.duckdb"
    with duckdb.connect(str(path)) as con:
        con.execute("CREATE TABLE episodes (a INTEGER)")
    with pytest.raises(StoreError, match="no logforge store"):
        Store(path)
    with duckdb.connect(str(path)) as con:
        assert con.sql("SELECT table_name FROM information_schema.tables").fetchall() == [("episodes",)]
    with pytest.raises(StoreError, match="a store is a file"):
        Store(":memory:")


def test_own_output_among_the_logs_is_skipped_as_one(store, tmp_path):
    (tmp_path / "datasets" / "d" / "train").mkdir(parents=True)
    (tmp_path / "datasets" / "d" / "manifest.json").write_text("{}")
    (tmp_path / "datasets" / "d" / "train" / "observations.npy").write_bytes(b"x")
    report = ingest(store, [tmp_path / "datasets"])
    assert report.skip_reasons == {"own_output": 1}


BAD = {
    "torn.jsonl": (
        b'{"messages":[{"role":"user","content":"a"}]}\n{"messages":[{"role":"us',
        "malformed_record",
        1,
    ),
    "words.jsonl": (b"this is not JSON\n", "not_json", 0),
    "empty.jsonl": (b"", "empty_file", 0),
    "shape.json": (b'{"foo": 1, "bar": [2]}', "unknown_shape", 0),
    "null.json": (b"[null]", "unknown_shape", 0),
    "voice.json": (b'{"id": "a", "task_id": "1", "ticks": [{}]}', "unsupported_shape", 0),
    "blank.jsonl": (b"\n\n  \n", "empty_file", 0),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_quarantined_with_place_and_reason_and_harms_no_neighbour(
    store, tmp_path, conversation, write_jsonl, name
):
    data, rule, kept = BAD[name]
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / name).write_bytes(data)
    write_jsonl(tmp_path / "logs" / "good.jsonl", [conversation("one")])
    report = ingest(store, [tmp_path / "logs"])
    assert report.kept == 1 + kept
    assert report.exit_code() == 0
    assert report.exit_code(strict=True) == 1
    ((found, locator, reason),) = store.con.sql("SELECT rule, locator, reason FROM quarantine").fetchall()
    assert found == rule
    assert locator.startswith(f"logs/{name}")
    assert len(reason) > 10
    assert_conserved(store)


def test_what_is_no_log_is_skipped_with_a_reason(store, tmp_path, conversation, write_jsonl):
    write_jsonl(tmp_path / "logs" / "good.jsonl", [conversation("one")])
    (tmp_path / "logs" / "LICENSE").write_text("do what you like")
    (tmp_path / "logs" / "spec.yaml").write_text("gamma: 1")
    report = ingest(store, [tmp_path / "logs"])
    assert report.skip_reasons == {"not_a_log": 2}
    assert report.exit_code(strict=True) == 0


def test_a_directory_without_logs_keeps_nothing_and_says_so(store, tmp_path):
    (tmp_path / "logs").mkdir()
    report = ingest(store, [tmp_path / "logs"])
    assert report.exit_code() == 1
    assert "nothing" in report.render()


def test_unknown_paths_and_formats_are_refused_before_anything_is_read(store, tmp_path):
    with pytest.raises(InputError, match="no such file"):
        ingest(store, [tmp_path / "nowhere"])
    with pytest.raises(UnknownName, match="valid: "):
        ingest(store, [tmp_path], format="tau_bnech")


def test_a_forced_format_that_does_not_fit_is_quarantined(store, tmp_path, conversation, write_jsonl):
    write_jsonl(tmp_path / "good.jsonl", [conversation("one")])
    report = ingest(store, [tmp_path / "good.jsonl"], format="star")
    assert report.kept == 0
    assert report.exit_code() == 1
    assert_conserved(store)


def test_a_locked_store_is_said_to_be_locked(tmp_path):
    import subprocess
    import sys

    path = tmp_path / "s.duckdb"
    Store(path).close()
    code = f"from logforge.store.store import Store; s = Store({str(path)!r}); print('open', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        with pytest.raises(StoreError, match="another process"):
            Store(path)
        other.communicate("\n")


def test_a_file_that_is_no_store_is_refused(tmp_path):
    (tmp_path / "s.duckdb").write_text(json.dumps({"not": "a store"}) * 1000)
    with pytest.raises(StoreError, match="cannot open"):
        Store(tmp_path / "s.duckdb")
    with pytest.raises(StoreError, match="logforge ingest"):
        Store(tmp_path / "none.duckdb", read_only=True)


@pytest.mark.parametrize("order", [("early", "late"), ("late", "early")])
def test_the_longer_of_two_states_of_a_session_is_kept(store, tmp_path, order):
    line = {"sessionId": "5c0375b4-57a5-4f26-b12d-d022ee4e51b7", "timestamp": "2026-01-01T00:00:00Z"}
    said = [
        {**line, "uuid": str(n), "type": role, "message": {"role": role, "content": f"text {n}"}}
        for n, role in enumerate(["user", "assistant", "user", "assistant"])
    ]
    for name, rows in (("early", said[:2]), ("late", said)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name in order:
        ingest(store, [tmp_path / f"{name}.jsonl"])
    assert store.con.sql("SELECT count(*) FROM messages").fetchall() == [(4,)]
    assert_conserved(store)


def test_a_connector_that_fails_at_naming_a_files_companions_costs_that_file_alone(
    tmp_path, write_jsonl, monkeypatch
):
    write_jsonl(tmp_path / "logs" / "a.jsonl", [{"messages": [{"role": "user", "content": "hi"}]}])
    write_jsonl(tmp_path / "logs" / "bad.jsonl", [{"messages": [{"role": "user", "content": "ho"}]}])

    def companions(self, path):
        if path.name == "bad.jsonl":
            raise ValueError("no such name")
        return []

    monkeypatch.setattr("logforge.connectors.traces.langfuse.Langfuse.companions", companions)
    with Store(tmp_path / "s.duckdb") as store:
        ingest(store, [tmp_path / "logs"])
        assert_conserved(store)
        rows = store.con.sql("SELECT locator, rule, detail FROM quarantine").fetchall()
        assert rows == [("logs/bad.jsonl", "connector_failed", "ValueError: no such name")]
        assert store.con.sql("SELECT kept FROM sources WHERE path = 'logs/a.jsonl'").fetchall() == [(1,)]
