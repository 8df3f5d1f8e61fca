"""`logforge check`: a store, a dataset by name, and a folder, with and without its rows."""

from __future__ import annotations

import json
import shutil

import pytest
from click.testing import CliRunner

from logforge.checks.pipeline import check, check_dataset
from logforge.cli.commands import main
from logforge.dataset.build.pipeline import BuildConfig, build_dataset
from logforge.ingestion.pipeline import ingest
from logforge.schemas.errors import CheckFailed, UnknownName, UsageError
from logforge.store.store import Store
from support.made_texts import prose

SPEC = "gamma: 0.9\nterms:\n  success: {when: success, value: 10, at: terminal}\n"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A store with two datasets, `d` and `e`; two of the tasks are near-duplicates."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "logs").mkdir()
    (folder / "logs" / "a.jsonl").write_text("".join(json.dumps(_row(n)) + "\n" for n in range(12)))
    (folder / "reward.yaml").write_text(SPEC)
    with Store(folder / "logforge.duckdb") as store:
        ingest(store, [folder / "logs"])
        config = BuildConfig(encoder="hashing", text_size=4)
        for name in ("d", "e"):
            build_dataset(store, folder / "reward.yaml", name=name, out=folder / "out", config=config)
    return folder


def _row(n):
    call = {"id": "c1", "type": "function", "function": {"name": "lookup", "arguments": f'{{"n": {n}}}'}}
    messages = [
        {"role": "user", "content": " ".join(prose(n % 11, 60))},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "found"},
        {"role": "assistant", "content": "done"},
    ]
    return {"id": f"e{n}", "task_id": f"t{n}", "success": n % 3 != 0, "messages": messages}


@pytest.fixture
def folder(made, tmp_path):
    """A copy of it, to break."""
    return shutil.copytree(made, tmp_path / "made")


def run(folder, *arguments):
    done = CliRunner().invoke(main, ["check", *arguments, "--store", str(folder / "logforge.duckdb")])
    return done.exit_code, done.stdout + done.stderr


def altered(folder, *statements):
    with Store(folder / "logforge.duckdb") as store:
        for statement in statements:
            store.con.execute(statement)


def test_a_store_a_name_and_a_folder(folder):
    code, text = run(folder)
    assert (code, "all 26 laws hold" in text, text.count("all rules hold")) == (0, True, 2)
    assert run(folder, "d")[1].startswith("d: 24 transitions, shards train, validation, test")
    assert run(folder, str(folder / "out" / "e"))[1].startswith("e: 24 transitions")
    code, text = run(folder, "--json")
    assert (code, [item["dataset"] for item in json.loads(text)["datasets"]]) == (0, ["d", "e"])
    assert run(folder, "nothing")[0] == 2


def test_all_datasets_and_laws_are_told_at_once(folder):
    altered(
        folder,
        "UPDATE sources SET kept = kept + 1",
        "UPDATE transitions SET propensity = 2 WHERE dataset = 'e'",
    )
    (folder / "out" / "d" / "actions.json").write_text("{}")
    code, text = run(folder)
    assert code == 1
    for part in ("conservation: ", "kept_counted: ", "dataset d: ", "actions.json: checksum", "dataset e: "):
        assert part in text
    assert run(folder, "d")[1].count("\n  ") == 1, "another dataset's faults are not those of this one"


def test_a_folder_without_rows_is_checked_by_itself(folder, tmp_path):
    copy = shutil.copytree(folder / "out" / "d", tmp_path / "copy")
    altered(folder, "DELETE FROM transitions", "DELETE FROM datasets")
    report = check(folder / "logforge.duckdb", str(copy))
    assert (report.rows, report.transitions, "not in the store" in report.notes[0]) == (False, 24, True)
    assert "no key in two splits" not in report.render(), "what cannot be proven is not claimed"
    assert check(tmp_path / "no.duckdb", str(copy)).transitions == 24
    (copy / "train" / "rewards.npy").write_bytes(b"")
    (copy / "test" / "actions.npy").unlink()
    with pytest.raises(CheckFailed, match="2 problems"):
        check(tmp_path / "no.duckdb", str(copy))


@pytest.mark.parametrize("asked", [{"sources": True}, {"gates": {"max_conflict_rate": 0.5}}])
def test_what_needs_rows_is_refused_for_a_folder_without_them(folder, tmp_path, asked):
    copy = shutil.copytree(folder / "out" / "d", tmp_path / "copy")
    with pytest.raises(UsageError, match="does not hold the rows"):
        check(tmp_path / "none.duckdb", str(copy), **asked)


def test_a_copy_of_a_folder_is_held_against_the_rows_of_its_build(folder, tmp_path):
    copy = shutil.copytree(folder / "out" / "d", tmp_path / "copy")
    assert check(folder / "logforge.duckdb", str(copy)).rows
    altered(folder, "UPDATE transitions SET weight = 5 WHERE step = 0 AND dataset = 'd'")
    with pytest.raises(CheckFailed, match="arrays: weights differs") as caught:
        check(folder / "logforge.duckdb", str(copy))
    assert str(caught.value).startswith(str(copy))


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("DELETE FROM near_duplicates", "near-duplicates that are not listed"),
        (
            "INSERT INTO near_duplicates SELECT 'd', min(episode_id), max(episode_id), 0.9, 30 FROM episodes WHERE "
            "episode_id NOT IN (SELECT unnest([episode_a, episode_b]) FROM near_duplicates)",
            "listed, and no near-duplicates",
        ),
    ],
)
def test_near_duplicates_are_looked_for_again(folder, statement, what):
    altered(folder, statement)
    with pytest.raises(CheckFailed) as error:
        check(folder / "logforge.duckdb", "d")
    assert what in [p.what for p in error.value.failures if p.rule == "near_duplicates"]


def test_they_are_not_where_the_store_went_on(folder, conversation, write_jsonl):
    write_jsonl(folder / "more" / "b.jsonl", [conversation("late")])
    with Store(folder / "logforge.duckdb") as store:
        ingest(store, [folder / "more"])
        report = check_dataset(store, "d")
    assert "the store has changed since the build" in report.render()


def test_gates_can_be_asked_of_what_is_stored(folder):
    code, text = run(folder, "d", "--min-failure-share", "0.1")
    assert (code, "1 gate passed" in text) == (0, True)
    code, text = run(folder, "--min-failure-share", "0.9")
    assert (code, text.count("share of failures among")) == (1, 2)


def test_gates_of_a_damaged_dataset_are_not_passed_over(folder):
    (folder / "out" / "d" / "train" / "rewards.npy").unlink()
    code, text = run(folder, "d", "--min-failure-share", "0.1")
    assert (code, "rewards.npy" in text) == (1, True)


def test_progress_counts_to_the_end(folder):
    ticks = []
    check(folder / "logforge.duckdb", progress=lambda done, total, note: ticks.append((done, total)))
    assert ticks == sorted(ticks)
    assert ticks[-1] == (26 + 12, 26 + 12)


def test_a_name_that_is_nothing_is_refused(folder):
    with pytest.raises(UnknownName):
        check(folder / "logforge.duckdb", "nothing")
