"""Packed files: read as the plain folder would be, unpacked once, within limits, and nothing of them lost in silence."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import re
import shutil
import socket
import stat
import struct
import tarfile
import tracemalloc
import zipfile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logforge.ingestion import batches, rounds
from logforge.ingestion import workers as crews
from logforge.ingestion.dry_runs import dry_run
from logforge.ingestion.pipeline import ingest
from logforge.ingestion.reading import ReadOptions
from logforge.ingestion.sources import containers, unpacking
from logforge.ingestion.sources.containers import Budget, Refused, inner_path, kind_of, unpack_stream
from logforge.ingestion.sources.limits import Limits, bytes_of
from logforge.ingestion.sources.streams import plain_name
from logforge.lineage.locate import resolve, unpacked
from logforge.schemas.errors import StoreError, UsageError
from logforge.schemas.rules import CATALOGUE
from logforge.store.store import Store
from support.packing import ARCHIVES, STREAMS, members_of, tarred, zipped
from support.places import ROOT, SAMPLES
from support.stored import assert_conserved

DATA = ROOT / "tests" / "data"
TOLD = (
    "SELECT * EXCLUDE (source_id) FROM episodes ORDER BY ALL",
    "SELECT * FROM messages ORDER BY ALL",
    "SELECT * FROM steps ORDER BY ALL",
    "SELECT level, locator, rule, reason, detail FROM quarantine ORDER BY ALL",
    "SELECT path, format, bytes, records, kept, duplicates, quarantined, skip_reasons FROM sources "
    "WHERE format IS DISTINCT FROM 'archive' ORDER BY ALL",
)


def told(store, prefix="", packed_suffix=""):
    """Everything in the store, with `prefix` (where the logs lay) taken out of labels and locators."""

    def plain(value):
        if isinstance(value, str) and value.startswith(prefix):
            return (
                value[len(prefix) :].replace(packed_suffix, "", 1) if packed_suffix else value[len(prefix) :]
            )
        return value

    rows = [
        [tuple(plain(value) for value in row) for row in store.con.sql(query).fetchall()] for query in TOLD
    ]
    return [sorted(table, key=repr) for table in rows]


def rules_of(store):
    return sorted(row[0] for row in store.con.sql("SELECT rule FROM quarantine").fetchall())


def lines(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    """What the samples give as plain files."""
    home = tmp_path_factory.mktemp("plain")
    shutil.copytree(SAMPLES, home / "logs")
    with Store(home / "s.duckdb") as store:
        ingest(store, [home / "logs"])
        return told(store, "logs/")


@pytest.mark.parametrize("kind", ARCHIVES)
def test_an_archive_gives_what_its_folder_gives_and_its_locators_name_the_member(tmp_path, samples, kind):
    (tmp_path / f"logs.{kind}").write_bytes(ARCHIVES[kind](members_of(SAMPLES)))
    with Store(tmp_path / "s.duckdb") as store:
        report = ingest(store, [tmp_path / f"logs.{kind}"])
        assert told(store, f"logs.{kind}!") == samples
        assert_conserved(store)
        again = ingest(store, [tmp_path / f"logs.{kind}"])
        assert (again.read, again.unchanged, again.formats) == (0, report.read, report.formats)
    assert not (tmp_path / ".s.duckdb.unpacked").exists()


@pytest.mark.parametrize("suffix", STREAMS)
def test_compressed_files_give_what_the_plain_ones_give(tmp_path, samples, suffix):
    for name, data in members_of(SAMPLES).items():
        path = tmp_path / "logs" / f"{name}.{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(STREAMS[suffix](data))
    with Store(tmp_path / "s.duckdb") as store:
        ingest(store, [tmp_path / "logs"])
        assert told(store, "logs/", f".{suffix}") == samples
        assert_conserved(store)


def test_what_a_file_is_does_not_depend_on_its_name(store, tmp_path, conversation):
    (tmp_path / "a.jsonl").write_bytes(gzip.compress(lines(conversation("one"))))
    (tmp_path / "b").write_bytes(tarred({"x": lines(conversation("two"))}))
    (tmp_path / "c.gz").write_bytes(lines(conversation("three")))
    ingest(store, [tmp_path / "a.jsonl", tmp_path / "b", tmp_path / "c.gz"])
    rows = store.con.sql("SELECT native_id, locator FROM episodes ORDER BY 1").fetchall()
    assert rows == [("one", "a.jsonl:1"), ("three", "c.gz:1"), ("two", "b!x:1")]


NAMES = st.text(
    st.characters(exclude_characters="/\\\x00", exclude_categories=("Cs",)), min_size=1, max_size=12
)
TREES = st.dictionaries(
    st.lists(
        NAMES.filter(lambda name: name.strip(".") and not name.endswith(".unpacked")), min_size=1, max_size=3
    )
    .map("/".join)
    .filter(lambda name: not re.match("[A-Za-z]:/", name)),  # a drive: such a member is set aside
    st.lists(st.sampled_from("abcdef"), min_size=1, max_size=3, unique=True),
    min_size=1,
    max_size=5,
)


@given(tree=TREES, kind=st.sampled_from([*ARCHIVES, "zip of tar.gz", "tar of .zst"]))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_tree_of_files_comes_out_as_it_went_in(tmp_path_factory, tree, kind):
    home = tmp_path_factory.mktemp("tree")
    members = {name: json.dumps(names).encode() for name, names in tree.items()}
    try:
        for name, data in members.items():
            path = home / "logs" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    except OSError:  # the name of a file and of a folder at once, or too long for this file system
        return
    prefix, suffix = "p!", ""
    if kind in ARCHIVES:
        packed = ARCHIVES[kind](members)
    elif kind == "zip of tar.gz":
        packed, prefix = zipped({"in.tgz": ARCHIVES["tar.gz"](members)}), "p!in.tgz!"
    else:
        packed, suffix = (
            tarred({f"{name}.zst": STREAMS["zst"](data) for name, data in members.items()}),
            ".zst",
        )
    (home / "p").write_bytes(packed)
    with unpacked(home / "p", "p") as files:
        found = {label: path.read_bytes() for label, path in files.items()}
    assert found == {prefix + name + suffix: data for name, data in members.items()}
    for label in found:
        assert resolve(home / "p", f"{label}#/0", "p") == json.loads(found[label])[0]


def joined_logs():
    """Logs of several files each: an export of Langfuse in folders and one in a folder, a trial of Harbor."""
    yield members_of(DATA / "traces" / "langfuse_export")
    scores = (DATA / "traces" / "langfuse_export" / "scores" / "2026-05-28-22.jsonl").read_bytes()
    yield {**members_of(DATA / "connectors" / "langfuse"), "scores.jsonl": scores}
    run = (DATA / "connectors" / "atif" / "terminus.json").read_bytes()
    yield {"agent/trajectory.json": run, "result.json": b'{"verifier_result": {"rewards": {"reward": 1}}}'}


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
@pytest.mark.parametrize("logs", list(joined_logs()), ids=["folders", "folder", "trial"])
def test_members_that_belong_together_are_joined_as_in_a_folder(tmp_path, logs, kind):
    for prefix in ("", "deep/"):
        members = {prefix + name: data for name, data in logs.items()}
        home = tmp_path / f"{prefix}x"
        for name, data in members.items():
            path = home / "logs" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        (home / "p").write_bytes(ARCHIVES[kind](members))
        (home / "q").write_bytes(ARCHIVES[kind]({f"{k}.gz": gzip.compress(v) for k, v in members.items()}))
        with Store(home / "a") as plain, Store(home / "b") as packed, Store(home / "c") as twice:
            ingest(plain, [home / "logs"])
            ingest(packed, [home / "p"])
            ingest(twice, [home / "q"])
            assert told(packed, "p!") == told(plain, "logs/")
            assert len(packed.con.sql("FROM sources").fetchall()) == 2
            counts = "SELECT count(*), sum(records), sum(kept) FROM sources WHERE format <> 'archive'"
            assert twice.con.sql(counts).fetchall() == plain.con.sql(counts).fetchall()


def test_an_archive_is_unpacked_once_and_workers_change_nothing(tmp_path, samples, monkeypatch):
    monkeypatch.setattr(crews, "POOL_BYTES", 0)
    (tmp_path / "p").write_bytes(ARCHIVES["tar.zst"](members_of(SAMPLES)))
    (tmp_path / "q.gz").write_bytes(gzip.compress((SAMPLES / "star" / "1.json").read_bytes()))
    with Store(tmp_path / "s.duckdb") as store:
        ingest(store, [tmp_path / "p"], workers=2)
        assert told(store, "p!") == samples
        ingest(store, [tmp_path / "q.gz"])
        monkeypatch.setattr("logforge.ingestion.packed.unpack", lambda *_: pytest.fail("unpacked again"))
        assert ingest(store, [tmp_path / "p", tmp_path / "q.gz"]).read == 0


def test_a_kill_after_some_members_is_completed_by_the_next_run(tmp_path, conversation, monkeypatch):
    members = {f"{n}.jsonl": lines(conversation(str(n))) for n in range(6)}
    (tmp_path / "p.zip").write_bytes(zipped(members))
    monkeypatch.setattr(batches, "COMMIT_SOURCES", 2)
    left = tmp_path / ".s.duckdb.unpacked" / "0"
    with Store(tmp_path / "s.duckdb") as store:
        commit, made = rounds.commit, []

        def killed(*arguments):
            if made:
                raise KeyboardInterrupt
            made.append(commit(*arguments))

        monkeypatch.setattr(rounds, "commit", killed)
        with pytest.raises(KeyboardInterrupt):
            ingest(store, [tmp_path / "p.zip"])
        monkeypatch.setattr(rounds, "commit", commit)
        left.mkdir(parents=True)
        (left / "a secret").write_text("left by a kill")
        report = ingest(store, [tmp_path / "p.zip"])
        assert (report.read, report.unchanged) == (5, 2)
        assert not left.parent.exists()
        assert len(store.con.sql("SELECT * FROM episodes").fetchall()) == 6
        assert_conserved(store)


def test_a_changed_archive_replaces_its_members_and_those_that_vanished_go(store, tmp_path, conversation):
    one, two, three = (lines(conversation(name)) for name in ("one", "two", "three"))
    (tmp_path / "p.zip").write_bytes(zipped({"a": one, "b": two, "c/d": three}))
    ingest(store, [tmp_path / "p.zip"])
    (tmp_path / "p.zip").write_bytes(zipped({"a": one, "b": three}))
    ingest(store, [tmp_path / "p.zip"])
    rows = store.con.sql("SELECT native_id, locator FROM episodes ORDER BY 1").fetchall()
    assert rows == [("one", "p.zip!a:1"), ("three", "p.zip!b:1")]
    (tmp_path / "p.zip").write_bytes(two)
    ingest(store, [tmp_path / "p.zip"])
    assert store.con.sql("SELECT native_id, locator FROM episodes").fetchall() == [("two", "p.zip:1")]
    assert store.con.sql("SELECT path FROM sources").fetchall() == [("p.zip",)]
    assert_conserved(store)


def test_copies_of_a_log_count_once_and_a_packed_copy_takes_over(store, tmp_path, conversation):
    both = lines(conversation("one"), conversation("two"))
    (tmp_path / "a.jsonl").write_bytes(both)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(both))
    (tmp_path / "p.zip").write_bytes(zipped({"a.jsonl": both, "other.jsonl": lines(conversation("three"))}))
    report = ingest(store, [tmp_path])
    assert report.kept == 3
    assert sum(item.duplicates for item in report.formats) == 4
    for name in ("a.jsonl", "a.jsonl.gz"):
        (tmp_path / name).write_bytes(lines(conversation(f"new {name}")))
        ingest(store, [tmp_path / name])
    rows = store.con.sql("SELECT native_id, locator FROM episodes WHERE locator LIKE 'p.zip%' ORDER BY 1")
    assert rows.fetchall() == [
        ("one", "p.zip!a.jsonl:1"),
        ("three", "p.zip!other.jsonl:1"),
        ("two", "p.zip!a.jsonl:2"),
    ]
    assert rules_of(store) == []
    assert_conserved(store)


def test_an_archive_that_a_connector_reads_itself_stays_one_source(store, tmp_path):
    log = DATA / "connectors" / "inspect_eval" / "mock_tools_limit.eval"
    shutil.copy(log, tmp_path / "x.eval")
    ingest(store, [tmp_path / "x.eval"])
    assert store.con.sql("SELECT DISTINCT format FROM sources").fetchall() == [("inspect_eval",)]


def test_a_dry_run_shows_members_and_leaves_nothing(tmp_path, conversation, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "tmp").mkdir()
    (tmp_path / "p.zip").write_bytes(zipped({"a.jsonl": lines(conversation("one")), "../b": b"x"}))
    (tmp_path / "c.gz").write_bytes(gzip.compress(lines(conversation("two"))))
    plan = dry_run([tmp_path / "p.zip", tmp_path / "c.gz"], tmp_path / "s.duckdb", ReadOptions())
    assert [(item.path, item.format, item.kept, item.quarantined) for item in plan.files] == [
        ("c.gz", "openai_messages", 1, 0),
        ("p.zip!a.jsonl", "openai_messages", 1, 0),
        ("p.zip", "archive", 0, 1),
    ]
    assert "unsafe_member_name" in plan.render()
    assert list((tmp_path / "tmp").iterdir()) == []


# What is refused, and what is kept beside it.


def encrypted(data):
    """A zip archive with the mark of encryption on its last member."""
    at = data.rindex(b"PK\x01\x02") + 8
    return data[:at] + bytes([data[at] | 1]) + data[at + 1 :]


def with_method(data, method):
    at = data.rindex(b"PK\x01\x02") + 10
    return data[:at] + struct.pack("<H", method) + data[at + 2 :]


def flipped(data):
    """The content of the last member damaged."""
    at = data.index(b"PK\x01\x02") - 20
    return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


def overlapping(members):
    """A zip archive whose members all lie where the first one does."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
        for member in archive.infolist():
            member.header_offset = 0
    return sink.getvalue()


def tar_of(*entries):
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as archive:
        for name, kind, data in entries:
            info = tarfile.TarInfo(name)
            info.type, info.size, info.linkname = kind, len(data), "/etc/passwd"
            archive.addfile(info, io.BytesIO(data))
    return sink.getvalue()


def twice_zipped(first, second):
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        archive.writestr("good.jsonl", first)
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("good.jsonl", second)
    return sink.getvalue()


def nested(data, depth):
    for _ in range(depth):
        data = zipped({"in.zip": data})
    return data


GOOD = "good.jsonl"
REFUSED = {
    "encrypted": (["encrypted_member"], lambda good: encrypted(zipped({GOOD: good, "bad": b"x" * 99}))),
    "method": (["unsupported_compression"], lambda good: with_method(zipped({GOOD: good, "bad": b"x"}), 93)),
    "dots": (["unsafe_member_name"], lambda good: tarred({"../../bad": b"{}", GOOD: good})),
    "absolute": (["unsafe_member_name"], lambda good: tarred({"/tmp/bad": b"{}", GOOD: good})),
    "drive": (["unsafe_member_name"], lambda good: zipped({"C:\\bad": b"{}", GOOD: good})),
    "long name": (["unsafe_member_name"], lambda good: tarred({"x" * 300: b"{}", GOOD: good})),
    "deep name": (["unsafe_member_name"], lambda good: tarred({"x/" * 3000 + "y": b"{}", GOOD: good})),
    "file and folder": (["duplicate_member"], lambda good: tarred({GOOD: good, f"{GOOD}/x": b"{}"})),
    "twice": (["duplicate_member"], lambda good: twice_zipped(b"{}", good)),
    "deep archive": (
        ["unpack_depth"],
        lambda good: zipped({GOOD: good, "in.zip": nested(zipped({"a": b"x"}), 2)}),
    ),
    "inner damage": (
        ["damaged_archive"],
        lambda good: zipped({GOOD: good, "in.zip": b"PK\x03\x04 and no more"}),
    ),
    "7z inside": (
        ["unsupported_compression"],
        lambda good: tarred({GOOD: good, "a.7z": b"7z\xbc\xaf\x27\x1c" * 9}),
    ),
    "no end mark": (["damaged_archive"], lambda good: tarred({GOOD: good}).rstrip(b"\x00") + b"\x00" * 9),
    "two tars": (["damaged_archive"], lambda good: tarred({GOOD: good}) + tarred({"lost": b"{}"})),
    "header": (
        ["damaged_archive"],
        lambda good: tarred({GOOD: good, "b": b"{}"}).replace(b"b\x00\x00", b"c\x00\x00", 1),
    ),
    "torn after": (
        ["damaged_stream"],
        lambda good: gzip.compress(tarred({GOOD: good, "b": os.urandom(9999)}))[:-5000],
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_takes_nothing_with_it(store, tmp_path, conversation, case):
    rules, build = REFUSED[case]
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "p").write_bytes(build(lines(conversation("packed"))))
    (logs / "plain.jsonl").write_bytes(lines(conversation("plain")))
    ingest(store, [logs])
    found = [rule for rule in rules_of(store) if rule != "malformed_record"]
    assert set(found) - {"damaged_member"} == set(rules)
    assert store.con.sql("SELECT native_id FROM episodes ORDER BY 1").fetchall() == [("packed",), ("plain",)]
    assert_conserved(store)
    assert sorted(path.name for path in tmp_path.iterdir() if "duckdb" not in path.name) == ["logs"]
    assert all(rule in CATALOGUE for rule in rules)
    assert ingest(store, [logs]).read == 0


BOMBS = {
    "ratio": ("unpack_ratio", lambda: gzip.compress(bytes(3 << 20)), Limits()),
    "zip ratio": ("unpack_ratio", lambda: zipped({"zeros": bytes(3 << 20)}), Limits()),
    "total": ("unpack_limit", lambda: zipped({str(n): os.urandom(1000) for n in range(9)}), Limits(5000)),
    "stream": ("unpack_limit", lambda: gzip.compress(os.urandom(9000)), Limits(5000)),
    "tar": ("unpack_limit", lambda: tarred({"a": os.urandom(9000)}), Limits(5000)),
    "members": ("unpack_members", lambda: zipped({str(n): b"" for n in range(9)}), Limits(members=8)),
    "nested": ("unpack_limit", lambda: zipped({"a.zip": zipped({"b": bytes(9000)})}), Limits(5000)),
    "overlap": ("overlapping_members", lambda: overlapping({"a": b"x" * 99, "b": b"y" * 99}), Limits()),
    "torn zip": ("damaged_archive", lambda: zipped({"a": os.urandom(999)})[:900], Limits()),
    "no tar": ("damaged_archive", lambda: tarred({"x" * 200: b"x"})[:700], Limits()),
    "7z": ("unsupported_compression", lambda: b"7z\xbc\xaf\x27\x1c" + bytes(99), Limits()),
}


@pytest.mark.parametrize("case", BOMBS)
def test_a_bomb_is_refused_as_a_whole_and_read_under_wider_limits(
    store, tmp_path, conversation, monkeypatch, case
):
    monkeypatch.setattr(containers, "SMALL", 1 << 20)
    rule, build, limits = BOMBS[case]
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "p").write_bytes(build())
    (logs / "plain.jsonl").write_bytes(lines(conversation("plain")))
    report = ingest(store, [logs], limits=limits)
    assert rules_of(store) == [rule]
    assert report.kept == 1
    assert_conserved(store)
    assert not (tmp_path / ".store.duckdb.unpacked").exists()
    assert ingest(store, [logs], limits=limits).read == 0
    if rule in ("unpack_ratio", "unpack_limit", "unpack_members"):
        ingest(store, [logs], limits=Limits(1 << 30, 10**6))
        assert rule not in rules_of(store)


def test_a_wider_limit_reads_no_member_again_that_was_read(store, tmp_path, conversation):
    (tmp_path / "p.zip").write_bytes(zipped({"a": lines(conversation("one"))}))
    ingest(store, [tmp_path / "p.zip"])
    report = ingest(store, [tmp_path / "p.zip"], limits=Limits(1 << 40))
    assert (report.read, report.unchanged) == (1, 1)


def test_a_nest_of_archives_unfolds_no_further_than_its_depth(store, tmp_path):
    """As 42.zip: every archive holds several of the next."""
    data = bytes(100)
    for level in range(6):
        data = zipped({f"{level}-{n}.zip" if level else str(n): data for n in range(3)})
    (tmp_path / "42.zip").write_bytes(data)
    ingest(store, [tmp_path / "42.zip"])
    assert set(rules_of(store)) == {"unpack_depth"}
    assert len(rules_of(store)) == 3**3


def test_a_stream_that_unpacks_to_itself_ends(store, tmp_path):
    data = b"end"
    for _ in range(9):
        data = gzip.compress(data)
    (tmp_path / "x.gz").write_bytes(data)
    ingest(store, [tmp_path / "x.gz"])
    assert rules_of(store) == ["unpack_depth"]


@pytest.mark.parametrize("suffix", STREAMS)
def test_a_torn_stream_gives_what_was_whole_and_says_it_was_torn(store, tmp_path, conversation, suffix):
    rows = lines(*(conversation(str(n), result=os.urandom(900).hex()) for n in range(200)))
    data = STREAMS[suffix](rows)
    (tmp_path / "x").write_bytes(data[: len(data) * 2 // 3])
    (tmp_path / "y").write_bytes(data + b"and something else")
    report = ingest(store, [tmp_path / "x"])
    assert 0 < report.kept < 200 or suffix == "bz2"
    assert set(rules_of(store)) - {"malformed_record"} == {"damaged_stream"} | (
        {"empty_file"} - {"empty_file"}
    )
    kept = report.kept
    ingest(store, [tmp_path / "y"])
    assert len(store.con.sql("SELECT * FROM episodes").fetchall()) == 200 >= kept
    assert rules_of(store).count("damaged_stream") == 1 + (suffix != "bz2")
    assert_conserved(store)


def test_a_damaged_member_is_flagged_and_its_neighbours_stay(store, tmp_path, conversation):
    noise = lines(*(conversation(str(n), result=os.urandom(900).hex()) for n in range(200)))
    (tmp_path / "p.zip").write_bytes(flipped(zipped({"good": lines(conversation("good")), "bad": noise})))
    ingest(store, [tmp_path / "p.zip"])
    assert "damaged_member" in rules_of(store)
    places = store.con.sql("SELECT locator FROM quarantine WHERE rule = 'damaged_member'").fetchall()
    assert places == [("p.zip!bad",)]
    ids = {row[0] for row in store.con.sql("SELECT native_id FROM episodes").fetchall()}
    assert {"good", "0", "100"} <= ids
    assert_conserved(store)


def test_links_devices_and_folders_in_an_archive_are_passed_over_with_a_reason(store, tmp_path, conversation):
    kinds = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE)
    entries = [(str(n), kind, b"") for n, kind in enumerate(kinds)]
    link = zipfile.ZipInfo("link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        archive.writestr(link, "/etc/passwd")
        archive.writestr("folder/", b"")
    (tmp_path / "p.zip").write_bytes(sink.getvalue())
    log = ("through/log", tarfile.REGTYPE, lines(conversation("one")))
    (tmp_path / "p.tar").write_bytes(tar_of(("through", tarfile.SYMTYPE, b""), *entries, log))
    report = ingest(store, [tmp_path / "p.tar", tmp_path / "p.zip"])
    assert report.skip_reasons == {"not_a_regular_file": 7}
    assert store.con.sql("SELECT locator FROM episodes").fetchall() == [("p.tar!through/log:1",)]
    assert_conserved(store)


def test_what_is_no_folder_of_logs_is_skipped(store, tmp_path, conversation):
    (tmp_path / "a.docx").write_bytes(zipped({"[Content_Types].xml": b"<x/>", "word/a.json": b"{}"}))
    (tmp_path / "b.zip").write_bytes(zipped({}))
    members = {
        "__MACOSX/._a": b"\x00",
        ".DS_Store": b"\x00",
        ".git/HEAD": b"x",
        "a": lines(conversation("one")),
    }
    (tmp_path / "c.zip").write_bytes(zipped(members))
    report = ingest(store, [tmp_path / name for name in ("a.docx", "b.zip", "c.zip")])
    assert report.skip_reasons == {"not_a_log": 3, "empty_archive": 1, "tool_folder": 1}
    assert report.kept == 1
    assert rules_of(store) == []


ODD = ["a!b.jsonl", "a:1.jsonl", "a#/b.jsonl", "a b%20.jsonl", "ä✓.jsonl", "x!y:3#z!.jsonl", "a"]


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_locators_lead_through_odd_names(store, tmp_path, conversation, kind):
    members = {name: lines(conversation(f"{name} 1"), conversation(f"{name} 2")) for name in ODD}
    members["in!.zip"] = zipped({"deep!:1.jsonl.gz": gzip.compress(lines(conversation("deep")))})
    path = tmp_path / "p!q.zip"
    path.write_bytes(ARCHIVES[kind](members))
    ingest(store, [path])
    rows = store.con.sql(
        "SELECT m.content, m.locator FROM messages m WHERE m.role = 'user' ORDER BY m.locator"
    ).fetchall()
    assert len(rows) == 2 * len(ODD) + 1
    for text, locator in rows:
        assert text in json.dumps(resolve(path, locator, "p!q.zip"), ensure_ascii=False)


def test_locators_lead_into_every_kind_of_packed_file(tmp_path, conversation):
    data = lines(conversation("one"))
    for number, pack in enumerate(
        [*STREAMS.values(), *(lambda d, p=p: p({"m": d}) for p in ARCHIVES.values())]
    ):
        path = tmp_path / str(number)
        path.write_bytes(pack(data))
        locator = "L:1#/id" if number < len(STREAMS) else "L!m:1#/id"
        assert resolve(path, locator, "L") == "one"
        with pytest.raises(LookupError):
            resolve(path, "L!nowhere:1", "L")


def test_names_that_are_no_utf8_have_an_escaped_label(store, tmp_path, conversation):
    name = os.fsdecode(b"caf\xe9.jsonl")
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=tarfile.GNU_FORMAT, errors="surrogateescape") as archive:
        info = tarfile.TarInfo(name)
        info.size = len(data := lines(conversation("one")))
        archive.addfile(info, io.BytesIO(data))
    (tmp_path / "p.tar").write_bytes(sink.getvalue())
    ingest(store, [tmp_path / "p.tar"])
    ((locator,),) = store.con.sql("SELECT locator FROM episodes").fetchall()
    assert locator == r"p.tar!caf\xe9.jsonl:1"
    assert resolve(tmp_path / "p.tar", locator, "p.tar")["id"] == "one"


def test_what_is_unpacked_is_private(tmp_path, conversation):
    path = tmp_path / "p.zip"
    path.write_bytes(zipped({"a/b.jsonl": b"{}", "c.gz": gzip.compress(b"{}")}))
    with unpacked(path, "p.zip") as files:
        assert sorted(files) == ["p.zip!a/b.jsonl", "p.zip!c.gz"]
        for file in files.values():
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
            assert 0o700 in {stat.S_IMODE(folder.stat().st_mode) for folder in list(file.parents)[:4]}
    assert not any(file.exists() for file in files.values())


def test_a_link_planted_where_files_are_unpacked_is_not_followed(tmp_path, conversation):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "precious").write_text("kept")
    (tmp_path / ".s.duckdb.unpacked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "p.zip").write_bytes(zipped({"a": lines(conversation("one"))}))
    with Store(tmp_path / "s.duckdb") as store:
        assert ingest(store, [tmp_path / "p.zip"]).kept == 1
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["precious"]


def test_a_full_disk_is_said_and_leaves_the_store_whole(store, tmp_path, conversation, monkeypatch):
    (tmp_path / "a.jsonl").write_bytes(lines(conversation("one")))
    ingest(store, [tmp_path / "a.jsonl"])
    (tmp_path / "p.gz").write_bytes(gzip.compress(lines(conversation("two"))))

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(containers.Budget, "spend", full)
    with pytest.raises(StoreError, match="full") as caught:
        ingest(store, [tmp_path / "p.gz"])
    assert "free some disk space" in caught.value.remedy
    assert store.con.sql("SELECT native_id FROM episodes").fetchall() == [("one",)]
    assert not (tmp_path / ".store.duckdb.unpacked").exists()


def test_loops_pipes_and_sockets_are_skipped_with_a_reason(store, tmp_path, conversation, monkeypatch):
    logs = tmp_path / "logs"
    (logs / "sub").mkdir(parents=True)
    (logs / "sub" / "a.jsonl").write_bytes(lines(conversation("one")))
    (logs / "sub" / "up").symlink_to(logs)
    (logs / "self").symlink_to("self")
    (logs / "other").mkdir()
    (logs / "other" / "there").symlink_to("../sub/back")  # two that lead to each other's folder
    (logs / "sub" / "back").symlink_to("../other")
    (logs / "nothing").symlink_to("no such file")
    (logs / "again.jsonl").symlink_to(logs / "sub" / "a.jsonl")
    os.mkfifo(logs / "pipe.jsonl")
    monkeypatch.chdir(logs)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket.jsonl")
        report = ingest(store, [logs])
    loops = store.con.sql(
        "SELECT path FROM sources WHERE skip_reasons['link_loop'] = 1 ORDER BY 1"
    ).fetchall()
    assert [path.rpartition("logs/")[2] for (path,) in loops] == ["other/there", "self", "sub/up"]
    assert report.skip_reasons == {"not_a_regular_file": 2, "broken_link": 1, "link_loop": 3}
    assert report.kept == 1
    assert rules_of(store) == []


def test_unpacking_holds_little_in_memory(tmp_path):
    """Whatever the size: 40 MB here, 300 MB in benchmarks/containers.py."""
    data = os.urandom(1 << 20) * 40
    for suffix, pack in STREAMS.items():
        if suffix in ("gz", "zst"):
            (tmp_path / suffix).write_bytes(pack(data))
            tracemalloc.start()
            unpack_stream(tmp_path / suffix, tmp_path / "out" / suffix, Budget(Limits(), 1 << 20))
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < 4 << 20
            assert (tmp_path / "out" / suffix).stat().st_size == len(data)


@given(name=st.text())
def test_an_inner_path_never_leads_out(name):
    inner = inner_path(name)
    if inner is not None:
        assert not inner.is_absolute()
        assert ".." not in inner.parts
        assert (inner.parts or [""])[0] != ""


@given(data=st.binary(max_size=600))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
def test_bytes_that_only_begin_like_a_packed_file_never_raise(tmp_path_factory, data):
    home = tmp_path_factory.mktemp("noise")
    for number, magic in enumerate(
        [b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"BZh91AY&SY", b"\xfd7zXZ\x00", b"PK\x03\x04", b"PK\x05\x06"]
    ):
        path = home / str(number)
        path.write_bytes(magic + data)
        contents = unpacking.unpack(path, "L", home / "out" / str(number), Limits(1 << 20, depth=2))
        assert contents.archive is False or contents.asides or contents.files or kind_of(path) == "zip"


def test_a_refusal_tells_whether_what_lies_around_it_is_refused_too():
    assert Refused("unpack_limit", "").ends_all
    assert not Refused("damaged_archive", "").ends_all


@pytest.mark.parametrize(
    ("text", "size"), [("5", 5), ("2KB", 2048), ("1.5 MB", 3 << 19), ("16gb", 16 << 30), ("1TiB", 1 << 40)]
)
def test_sizes_are_read(text, size):
    assert bytes_of(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-1", "1PB", "1e9", "five"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(UsageError, match="no size"):
        bytes_of(text)


@pytest.mark.parametrize(
    ("name", "plain"),
    [("a.jsonl.gz", "a.jsonl"), ("a.tgz", "a.tar"), ("a.TAR.ZST", "a.TAR"), ("a", "a"), (".gz", ".gz")],
)
def test_the_plain_name_of_a_compressed_file(name, plain):
    assert plain_name(name) == plain
