"""Files that were read and are not what they were: `check --sources` refuses, `explain` says so."""

from __future__ import annotations

import json
import shutil
import zipfile

import pytest
from click.testing import CliRunner

from logforge.checks.pipeline import check, check_dataset
from logforge.cli.commands import main
from logforge.dataset.build.pipeline import BuildConfig, build_dataset
from logforge.ingestion.pipeline import ingest
from logforge.lineage.explanation import explain
from logforge.lineage.source_bytes import moved
from logforge.schemas.errors import CheckFailed
from logforge.store.store import Store
from support.made_exports import trial

SPEC = "gamma: 0.9\nterms:\n  success: {when: success, value: 10, at: terminal}\n"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A store of two plain files and an archive with two members, and a dataset."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "logs").mkdir()
    texts = [
        "".join(json.dumps(trial(f"task {n} {m}", "search", m, True)) + "\n" for m in range(3))
        for n in range(4)
    ]
    for name, text in zip(("a.jsonl", "b.jsonl"), texts[:2], strict=True):
        (folder / "logs" / name).write_text(text)
    with zipfile.ZipFile(folder / "logs" / "packed.zip", "w") as archive:
        for name, text in zip(("c.jsonl", "d.jsonl"), texts[2:], strict=True):
            archive.writestr(name, text)
    (folder / "reward.yaml").write_text(SPEC)
    with Store(folder / "logforge.duckdb") as store:
        ingest(store, [folder / "logs"])
        build_dataset(
            store,
            folder / "reward.yaml",
            name="d",
            out=folder / "out",
            config=BuildConfig(encoder="hashing", text_size=4),
        )
    return folder


@pytest.fixture
def folder(made, tmp_path):
    """A copy of it, to change."""
    return shutil.copytree(made, tmp_path / "made")


def told(folder):
    with Store(folder / "logforge.duckdb", read_only=True) as store:
        return {one.path: one.how for one in moved(store)}


def test_nothing_is_said_of_files_that_are_what_they_were(folder):
    assert told(folder) == {}
    assert check(folder / "logforge.duckdb", sources=True).sources


def test_changed_and_missing_files_are_named_once_archives_for_their_members(folder):
    (folder / "logs" / "a.jsonl").write_text(
        (folder / "logs" / "a.jsonl").read_text().replace("search", "lookup")
    )
    (folder / "logs" / "b.jsonl").unlink()
    with zipfile.ZipFile(folder / "logs" / "packed.zip", "a") as archive:
        archive.writestr("e.jsonl", "")
    assert told(folder) == {
        "logs/a.jsonl": "has changed since it was read",
        "logs/b.jsonl": "is gone",
        "logs/packed.zip": "has changed since it was read",
    }


def test_a_check_of_sources_lists_all_and_one_without_looks_at_none(folder):
    for name in ("a.jsonl", "b.jsonl"):
        (folder / "logs" / name).unlink()
    with pytest.raises(CheckFailed, match="2 problems") as caught:
        check(folder / "logforge.duckdb", sources=True)
    assert {problem.path for problem in caught.value.failures} == {"logs/a.jsonl", "logs/b.jsonl"}
    assert {problem.rule for problem in caught.value.failures} == {"source_moved"}
    assert "ingest it again" in str(caught.value)
    check(folder / "logforge.duckdb")
    with Store(folder / "logforge.duckdb", read_only=True) as store, pytest.raises(CheckFailed):
        check_dataset(store, "d", sources=True)
    done = CliRunner().invoke(main, ["check", "--sources", "--store", str(folder / "logforge.duckdb")])
    assert done.exit_code == 1


@pytest.mark.parametrize("where", ["logs/a.jsonl", "logs/packed.zip!c.jsonl"])
def test_an_explanation_says_when_its_places_may_lead_elsewhere(folder, where):
    with Store(folder / "logforge.duckdb", read_only=True) as store:
        query = (
            "SELECT episode_id FROM episodes JOIN sources USING (source_id) WHERE path = ? ORDER BY 1 LIMIT 1"
        )
        ((episode,),) = store.con.sql(query, params=[where]).fetchall()
        assert explain(store, episode).notes == ()
        file = folder / where.partition("!")[0]
        file.write_bytes(file.read_bytes() + b"\n")
        (note,) = explain(store, episode).notes
        assert "has changed since it was read" in note
        assert f"note: {note}" in explain(store, episode).render()
