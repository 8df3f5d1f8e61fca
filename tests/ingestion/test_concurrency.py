"""Two processes at one store, and disks that are full: it is said clearly, and nothing is lost or half done."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from logforge.api import ingest
from logforge.checks.pipeline import check_dataset
from logforge.dataset.build.pipeline import BuildConfig, build_dataset
from logforge.forgetting.pipeline import complete, forget
from logforge.ingestion import batches
from logforge.schemas.errors import StoreError
from logforge.store.store import Store, open_store
from support.killing import rows_of, started
from support.stored import assert_conserved

PATIENCE_S = 60
FULL = 44
"""The exit status of a process that said the disk is full."""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "s.duckdb"


@pytest.fixture
def logs(tmp_path, conversation, write_jsonl):
    for number in range(12):
        rows = [
            conversation(f"{number}/{row}", result=os.urandom(400).hex(), user_id=f"u{number}")
            for row in range(10)
        ]
        write_jsonl(tmp_path / "logs" / f"{number:02}.jsonl", rows)
    return tmp_path / "logs"


def logforge(*arguments, **more):
    return subprocess.run(
        [sys.executable, "-m", "logforge", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        **more,
    )


@contextmanager
def holding(path):
    """Another process that has the store open until the block ends (or its stdin gets a line)."""
    code = f"from logforge.store.store import Store\nwith Store({str(path)!r}): print('open', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        try:
            yield process
        finally:
            if process.poll() is None:
                process.communicate("\n")


def test_a_second_ingest_and_a_reader_say_who_has_the_store(path, logs):
    Store(path).close()
    with holding(path) as other:
        for command in (["ingest", logs], ["sql", "FROM sources"], ["forget", "--user", "u1"]):
            run = logforge(*command, "--store", path)
            assert run.returncode == 4
            assert f"another process (pid {other.pid}) has the store open" in run.stderr
            assert "Traceback" not in run.stderr
    assert logforge("sql", "FROM sources", "--store", path).returncode == 0


def test_with_wait_it_waits_says_so_and_goes_on(path, logs):
    Store(path).close()
    said = []
    with holding(path) as other:

        def heard(text):
            said.append(text)
            other.communicate("\n")

        with open_store(path, wait=PATIENCE_S, waiting=heard) as store:
            assert ingest(store, [logs]).kept > 0
    assert len(said) == 1
    assert f"pid {other.pid}" in said[0]


def test_a_wait_that_is_too_short_ends(path):
    Store(path).close()
    with holding(path), pytest.raises(StoreError) as caught:
        open_store(path, wait=0.3)
    assert caught.value.rule == "store_locked"


def _ingest(path, files):
    with open_store(path, wait=PATIENCE_S) as store:
        ingest(store, files)


def test_ingests_at_once_end_as_if_one_after_the_other(path, logs, tmp_path):
    """Even when both have to make the store."""
    files = sorted(logs.iterdir())
    processes = [started(_ingest, path, part) for part in (files[:8], files[4:], [logs])]
    for process in processes:
        process.join(PATIENCE_S)
        assert process.exitcode == 0
    with Store(path) as store, Store(tmp_path / "serial.duckdb") as serial:
        ingest(serial, [logs])
        assert_conserved(store)
        assert rows_of(store) == rows_of(serial)
    assert left_over(tmp_path) == []


def left_over(folder):
    """What should not lie beside a store that nobody has open."""
    return [
        item.name for item in folder.iterdir() if item.suffix in (".new", ".fresh", ".wal", ".tmp", ".blocks")
    ]


def test_an_ingest_that_waits_for_a_forget_finds_the_new_file(path, logs):
    """The file is swapped: one that had the old file open would write into the void."""
    with Store(path) as store:
        ingest(store, [logs])
        process = started(_ingest, path, [logs])
        try:
            forget(store, user="u3")
        except StoreError as error:  # the other one came first, and completes it
            taken = error.rule
        else:
            taken = "store_locked"
    process.join(PATIENCE_S)
    assert (process.exitcode, taken) == (0, "store_locked")
    with Store(path) as store:
        assert store.con.sql("SELECT 1 FROM episodes WHERE user_id = 'u3'").fetchall() == []
        assert store.con.sql("SELECT count(*) FROM episodes").fetchall() == [(110,)]
        assert_conserved(store)


def _limited(size, act, *arguments):
    """Act where no file may grow beyond a size, as on a full disk. The exit status says how it ended."""
    import resource
    import signal

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    batches.COMMIT_BYTES = 10_000
    try:
        act(*arguments)
    except StoreError as error:
        if not re.search("space|room", error.remedy):
            raise
        os._exit(FULL)


def limited(size, act, *arguments):
    """True when it ended with a clear error, False when all went well."""
    process = started(_limited, size, act, *arguments)
    process.join(PATIENCE_S)
    assert process.exitcode in (0, FULL), process.exitcode
    return process.exitcode == FULL


@pytest.mark.parametrize("share", [0, 0.002, 0.02, 0.05, 0.1, 0.3, 0.6, 0.8, 0.95])
def test_a_full_disk_is_said_and_the_next_run_completes_the_store(path, logs, tmp_path, share):
    """At each share of what the store takes something else fails first: making the file, the log of changes, a commit, a
    checkpoint."""
    with Store(tmp_path / "clean.duckdb") as clean:
        ingest(clean, [logs])
        expected = rows_of(clean)
    assert limited(int(share * clean.path.stat().st_size), _ingest, path, [logs])
    if path.exists():
        with Store(path) as store:
            assert_conserved(store)
    with Store(path) as store:
        ingest(store, [logs])
        assert rows_of(store) == expected
    assert left_over(tmp_path) == []


def _build(path, out, spec):
    with Store(path) as store:
        build_dataset(store, spec, out=out, config=BuildConfig(encoder="hashing", text_size=4))


def _forget(path):
    with Store(path) as store:
        forget(store, user="u3")


@pytest.fixture
def built(path, logs, tmp_path):
    spec = tmp_path / "reward.yaml"
    spec.write_text("gamma: 0.9\nterms:\n  success: {when: success, value: 1, at: end}\n")
    with Store(path) as store:
        ingest(store, [logs])
    _build(path, tmp_path / "datasets", spec)
    return spec


@pytest.mark.parametrize("size", [500, 5000, 20_000])
def test_a_build_on_a_full_disk_leaves_the_earlier_dataset(path, built, tmp_path, size):
    assert limited(size, _build, path, tmp_path / "datasets", built)
    with Store(path) as store:
        check_dataset(store, "default")
    _build(path, tmp_path / "datasets", built)


@pytest.mark.parametrize("share", [0.001, 0.01, 0.1, 0.5])
def test_a_forget_on_a_full_disk_is_completed_by_the_next_run(path, built, tmp_path, share):
    assert limited(int(share * path.stat().st_size), _forget, path)
    with Store(path) as store:
        complete(store)
        if store.con.sql("FROM forgotten").fetchall():
            assert store.con.sql("SELECT 1 FROM episodes WHERE user_id = 'u3'").fetchall() == []
        check_dataset(store, "default")
        assert_conserved(store)
        forget(store, user="u3")
    assert left_over(tmp_path) == []


def can_mount():
    return subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(
    not Path("/usr/bin/unshare").exists() or not can_mount(), reason="needs a mount of its own"
)
@pytest.mark.parametrize(
    ("options", "words"), [("size=200k", "No space left"), ("size=12k", "No space left"), ("ro", "Read-only")]
)
def test_a_small_and_a_read_only_file_system(tmp_path, logs, options, words):
    place = tmp_path / "mount"
    place.mkdir()
    script = (
        f"mount -t tmpfs -o {options} x {place} && {sys.executable} -m logforge ingest {logs} --json "
        f"--store {place}/s.duckdb; echo $?; ls -A {place}"
    )
    run = subprocess.run(["unshare", "-rm", "sh", "-c", script], capture_output=True, text=True, check=False)
    error, code, *left = run.stdout.splitlines()
    assert code == "4", run.stderr
    assert re.search(words, json.loads(error)["message"])
    assert re.search("space|room|writable|write", json.loads(error)["remedy"])
    assert not [name for name in left if name.endswith((".new", ".fresh"))]


def test_a_folder_that_is_not_there_is_said(tmp_path, logs):
    with pytest.raises(StoreError) as caught:
        Store(tmp_path / "nowhere" / "s.duckdb")
    assert caught.value.rule == "no_folder"
