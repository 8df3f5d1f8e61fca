"""A connector outside the tree, as docs/write-a-connector.md builds it: installed as a package of its own, it keeps the
laws and is used by the command line. A broken one is a warning."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from logforge.connectors import detection as connectors
from logforge.connectors.records import catalogue
from support.doc_blocks import as_script, blocks, joined, run
from support.places import ROOT

PAGE = ROOT / "docs" / "write-a-connector.md"
BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The page as a script, run in an empty folder."""
    folder = tmp_path_factory.mktemp("plugin")
    output = run("".join(as_script(language, text) for language, text in joined(blocks(PAGE))), folder, BIN)
    return folder, output


def logforge(folder, *arguments, warnings="default"):
    env = {**os.environ, "PYTHONPATH": str(folder / "plugins"), "PYTHONWARNINGS": warnings}
    return subprocess.run([BIN / "logforge", *arguments], cwd=folder, env=env, capture_output=True, text=True)


def test_the_connector_of_the_page_is_short(built):
    folder, _ = built
    lines = (folder / "chatlog" / "chatlog.py").read_text("utf-8").splitlines()
    assert len(lines) < 60


def test_it_keeps_the_laws_and_its_log_is_ingested(built):
    folder, output = built
    assert "chatlog: 1 files, 12 laws, 0 findings" in output
    assert "records 4 = kept 3 + duplicates 0 + quarantined 1 + skipped 0" in output
    assert "unknown_role" in output
    done = logforge(
        folder,
        "sql",
        "SELECT native_id, success, ending, (SELECT list(action ORDER BY step) FROM steps s WHERE s.episode_id = "
        "e.episode_id) AS actions FROM episodes e ORDER BY 1",
        "--csv",
        "--store",
        "desk.duckdb",
    )
    assert done.stdout.splitlines()[1:] == [
        'm-1,true,terminal,"[""find_order"", ""respond""]"',
        'm-2,false,terminal,"[""cancel"", ""respond""]"',
        'm-3,,truncated,"[""clarify""]"',
    ]


def test_its_own_tests_run(built):
    folder, _ = built
    env = {**os.environ, "PYTHONPATH": str(folder / "plugins")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "chatlog/test_chatlog.py"],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert "11 passed" in done.stdout


def test_a_broken_entry_point_is_a_warning_and_not_a_crash(built, tmp_path):
    folder, _ = built
    broken = tmp_path / "plugins" / "broken-1.dist-info"
    broken.mkdir(parents=True)
    (broken / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (broken / "entry_points.txt").write_text("[logforge.connectors]\nbroken = nowhere:Missing\n")
    done = logforge(tmp_path, "formats")
    assert done.returncode == 0
    assert "openai_messages" in done.stdout
    assert "broken" not in done.stdout
    assert "connector 'broken' (nowhere:Missing) cannot be loaded: No module named 'nowhere'" in done.stderr
    done = logforge(tmp_path, "ingest", str(folder / "desk"), "--store", "s.duckdb")
    assert done.returncode == 1, "no connector knows the shape: nothing was kept"
    assert "unknown_shape" in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "body",
    [
        "class C: pass",
        "class C:\n    def __init__(self): raise OSError('no')",
        "raise SystemError('at import')",
        "C = 7",
        "class C:\n    name, version, record, read = 'other', 1, '', 0\n    def sniff(self, head): return 1",
    ],
)
def test_whatever_is_wrong_with_a_connector_the_others_are_there(tmp_path, monkeypatch, body):
    (tmp_path / "wrong_connector.py").write_text(body)
    info = tmp_path / "wrong-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: wrong\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[logforge.connectors]\nwrong = wrong_connector:C\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    connectors.registry.cache_clear()
    try:
        with pytest.warns(UserWarning, match="wrong"):
            found = connectors.registry()
        assert sorted(found) == sorted(catalogue.BUILT_IN)
    finally:
        sys.modules.pop("wrong_connector", None)
        monkeypatch.undo()
        connectors.registry.cache_clear()


def test_a_connector_that_cannot_look_at_a_file_claims_nothing(built, monkeypatch):
    class Falls:
        name, version, record, fills = "falls", 1, "", ()

        def sniff(self, head):
            raise KeyError("columns")

        def read(self, source):
            return iter(())

    monkeypatch.setattr(connectors, "registry", lambda: {"falls": Falls()})
    folder, _ = built
    with pytest.warns(UserWarning, match="'falls' failed to look at monday.jsonl: 'columns'"):
        assert connectors.detect(folder / "desk" / "monday.jsonl") == []
