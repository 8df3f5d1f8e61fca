"""What was read with a mapping or a forced format is read with it again: reading again never lowers what is kept."""

from __future__ import annotations

import gzip
import json
import threading
import zipfile

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from logforge.cli.commands import main
from logforge.connectors.mapping import connector as mappings
from logforge.ingestion.dry_runs import dry_run
from logforge.ingestion.pipeline import ingest
from logforge.ingestion.replaying import replay
from logforge.ingestion.request import read_options
from logforge.ingestion.sources.limits import Limits
from logforge.ingestion.stored_options import remembered, stored_mapping
from logforge.ingestion.watching import watch
from logforge.store.store import Store
from support.made_mapping import MAPPING
from support.stored import assert_conserved, content
from support.thoroughness import enough

OTHER = MAPPING.replace("mine", "better").replace("content: $.t", "content: $.t\n  thought: $.who")
TORN = '{"who": "me", "lines": [{"by'


def record(name):
    return json.dumps({"who": "me", "lines": [{"by": "u", "t": f"hello {name}"}, {"by": "a", "t": "bye"}]})


@pytest.fixture
def logs(tmp_path):
    """Three records of a shape that only the mapping knows, one of them torn."""
    (tmp_path / "map.yaml").write_text(MAPPING)
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "a.jsonl").write_text(f"{record(1)}\n{record(2)}\n{TORN}\n")
    return folder


@pytest.fixture
def mapped(store, logs, tmp_path):
    """A store that read them with the mapping, which is gone since."""
    ingest(store, [logs], mapping=tmp_path / "map.yaml")
    (tmp_path / "map.yaml").unlink()
    assert kept(store) == 2
    return store


def kept(store):
    return store.con.sql("SELECT sum(kept)::BIGINT FROM sources").fetchall()[0][0]


def formats(store):
    return [row[0] for row in store.con.sql("SELECT format FROM sources ORDER BY path").fetchall()]


def append(logs, name):
    with (logs / "a.jsonl").open("a") as file:
        file.write(f"{record(name)}\n")


def test_a_replay_without_the_mapping_reads_with_the_one_it_was_read_with(mapped):
    before = content(mapped)
    done = replay(mapped)
    assert (done.read, done.rescued, done.lost, done.exit_code()) == (1, 0, 0, 1)
    assert content(mapped) == before


@pytest.mark.parametrize(
    "other",
    [
        {"redact": False},
        {"strict_arguments": True},
        {"danger": ["pay=buy_*"]},
        {"limits": Limits(record=10**6)},
    ],
)
def test_so_does_an_ingest_with_other_settings(mapped, logs, other):
    assert ingest(mapped, [logs], **other).read == 1
    assert (kept(mapped), formats(mapped)) == (2, ["mine"])
    assert ingest(mapped, [logs], **other).read == 0, "then nothing has changed"
    assert_conserved(mapped)


def test_so_does_one_after_the_language_was_raised(mapped, logs, monkeypatch):
    stored_mapping.cache_clear()
    monkeypatch.setattr(mappings, "_VERSION", mappings._VERSION + 1)
    assert ingest(mapped, [logs]).read == 1
    assert (kept(mapped), ingest(mapped, [logs]).read) == (2, 0)
    stored_mapping.cache_clear()


def test_so_does_a_watch_when_the_file_grows(tmp_path, logs):
    path = tmp_path / "s.duckdb"
    with Store(path) as store:
        ingest(store, [logs], mapping=tmp_path / "map.yaml")
    stop = threading.Event()
    following = watch(path, [logs], interval=0.01, stop=stop)
    assert next(following).new.episodes == 0
    append(logs, 3)
    assert (grown := next(following)).new.episodes == 1
    assert grown.render() == "1 source read: +1 episode, +2 messages, +1 step, 1 record in quarantine"
    stop.set()


@pytest.mark.parametrize("pack", ["gzip", "zip"])
def test_so_do_packed_files(store, logs, tmp_path, pack):
    plain, packed = logs / "a.jsonl", logs / ("a.jsonl.gz" if pack == "gzip" else "a.zip")
    if pack == "gzip":
        packed.write_bytes(gzip.compress(plain.read_bytes()))
    else:
        with zipfile.ZipFile(packed, "w") as archive:
            archive.write(plain, "deep/a.jsonl")
    plain.unlink()
    ingest(store, [logs], mapping=tmp_path / "map.yaml")
    before = content(store)
    assert ingest(store, [logs]).read == 0
    replay(store)
    assert content(store) == before
    ingest(store, [logs], redact=False)
    assert (kept(store), ingest(store, [logs], redact=False).read) == (2, 0)


def test_a_plan_says_what_an_ingest_would_do(mapped, logs, tmp_path):
    mapped.close()
    (plan,) = dry_run([logs], mapped.path, read_options([logs], None, None, False)).files
    assert (plan.format, plan.kept) == ("mine", 2)


def test_a_mapping_that_is_given_wins(mapped, logs, tmp_path):
    (tmp_path / "other.yaml").write_text(OTHER)
    assert ingest(mapped, [logs], mapping=tmp_path / "other.yaml").read == 1
    assert formats(mapped) == ["better"]
    (tmp_path / "other.yaml").write_text(OTHER.replace("$.who", "$.by"))
    assert ingest(mapped, [logs], mapping=tmp_path / "other.yaml").read == 1, "the same name, another text"
    assert (kept(mapped), ingest(mapped, [logs]).read) == (2, 0)


def test_one_of_another_shape_does_not(mapped, logs, tmp_path):
    (tmp_path / "other.yaml").write_text(OTHER.replace("$.lines", "$.rows"))
    assert ingest(mapped, [logs], mapping=tmp_path / "other.yaml").read == 0
    assert ingest(mapped, [logs], mapping=tmp_path / "other.yaml", redact=False).read == 1
    assert (kept(mapped), formats(mapped)) == (2, ["mine"])


def test_when_the_owner_goes_a_mapped_copy_takes_over_by_its_own_mapping(store, logs, tmp_path):
    (logs / "b.jsonl").write_text(f"{record(1)}\n")
    ingest(store, [logs], mapping=tmp_path / "map.yaml")
    (logs / "a.jsonl").write_text("")
    (logs / "b.jsonl").touch()
    ingest(store, [logs])
    assert kept(store) == 1
    assert_conserved(store)


@pytest.mark.parametrize("text", [None, "name: [", "name: mine\nmessages: {path: 7}\n"])
def test_what_cannot_be_read_as_it_was_stays_and_is_said(mapped, logs, tmp_path, text):
    """The row of an older store, or a mapping that this version does not take."""
    ((found,),) = mapped.con.sql("SELECT settings FROM sources").fetchall()
    own = json.loads(remembered(found).settings)
    changed = json.dumps(own if text is None else {**own, "mapping": text})
    mapped.con.execute("UPDATE sources SET settings = ?", [changed])
    append(logs, 3)
    before = content(mapped)
    report, done = ingest(mapped, [logs], redact=False), replay(mapped)
    assert (report.read, report.unchanged, done.read, done.gone, done.exit_code()) == (0, 1, 0, (), 1)
    for said in (report.render(), done.render()):
        assert "logs/a.jsonl was read with" in said
        assert "give --mapping" in said
        assert (text is None) != ("mapping mine;" in said)
    assert content(mapped) == before
    (tmp_path / "map.yaml").write_text(MAPPING)
    assert ingest(mapped, [logs], mapping=tmp_path / "map.yaml").stayed == ()
    assert kept(mapped) == 3


def test_a_forced_format_is_the_last_resort_later_when_it_kept_something(
    store, tmp_path, conversation, write_jsonl
):
    logs = tmp_path / "logs"
    write_jsonl(logs / "odd.jsonl", [{"made_by": "them"}, conversation("x")])
    (logs / "wrong.jsonl").write_text('{"made_by": "them"}\n')
    ingest(store, [logs], format="openai_messages")
    assert (kept(store), formats(store)) == (1, ["openai_messages"] * 2)
    for _ in range(2):
        ingest(store, [logs])
        assert (kept(store), formats(store)) == (1, ["openai_messages", None])
    assert ingest(store, [logs]).read == 0
    ingest(store, [logs], redact=False)
    assert kept(store) == 1
    write_jsonl(logs / "odd.jsonl", [conversation("x"), conversation("y")])
    ingest(store, [logs])
    assert kept(store) == 2


ACTIONS = {
    "plain": {},
    "raw": {"redact": False},
    "strict": {"strict_arguments": True},
    "danger": {"danger": ["pay=buy_*"]},
    "short": {"limits": Limits(members=9)},
}


@settings(deadline=None, max_examples=enough(5, 30))
@given(steps=st.lists(st.sampled_from([*ACTIONS, "replay", "append", "mapping"]), min_size=1, max_size=5))
def test_no_order_of_reading_again_lowers_what_is_kept(tmp_path_factory, steps):
    home = tmp_path_factory.mktemp("again")
    (home / "map.yaml").write_text(MAPPING)
    logs = home / "logs"
    logs.mkdir()
    (logs / "a.jsonl").write_text(f"{record(1)}\n{TORN}\n")
    with zipfile.ZipFile(logs / "b.zip", "w") as archive:
        archive.writestr("b.jsonl", f"{record('b')}\n")
    with Store(home / "s.duckdb") as store:
        ingest(store, [logs], mapping=home / "map.yaml")
        most = kept(store)
        for number, step in enumerate(steps):
            if step == "append":
                append(logs, f"more {number}")
            elif step == "replay":
                replay(store)
            else:
                mapping = {"mapping": home / "map.yaml"} if step == "mapping" else {}
                ingest(store, [logs], **ACTIONS.get(step, {}), **mapping)
            assert kept(store) >= most
            most = kept(store)
        ingest(store, [logs])
        assert kept(store) == 2 + steps.count("append")
        assert_conserved(store)


def test_a_loss_is_said_and_is_no_success(mapped, logs):
    """The file lost records since: one thing less is set aside, and still something is worse."""
    (logs / "a.jsonl").write_text(f"{record(1)}\n")
    done = replay(mapped)
    assert (done.rescued, done.lost, done.before, done.after, done.exit_code()) == (0, 1, 1, 0, 1)
    assert "1 record is no longer kept" in done.render()


def test_more_set_aside_under_other_rules_is_not_better(mapped, logs, tmp_path):
    worse = json.dumps({"lines": [{"by": "x", "t": "?"}, {"by": "y", "t": "?"}, {"by": "u", "t": "now"}]})
    (logs / "a.jsonl").write_text(f"{record(1)}\n{record(2)}\n{worse}\n")
    done = replay(mapped)
    assert {change.rule: change.after for change in done.changes}["malformed_record"] == 0
    assert (done.rescued, done.lost) == (1, 0)
    nothing = json.dumps({"lines": [{"by": "x", "t": "?"}, {"by": "y", "t": "?"}]})
    (logs / "a.jsonl").write_text(f"{record(1)}\n{record(2)}\n{nothing}\n{TORN}\n")
    assert replay(mapped).exit_code() == 1


def test_the_command_says_so(mapped, logs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = mapped.path
    mapped.close()
    run = CliRunner().invoke(main, ["quarantine", "--replay", "--store", str(path), "--json"])
    data = json.loads(run.stdout)
    assert (run.exit_code, data["rescued"], data["lost"], data["stayed"]) == (1, 0, 0, [])
