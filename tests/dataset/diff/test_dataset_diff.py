"""`logforge diff`: two builds of the same inputs differ in nothing; every kind of change is named with its counts."""

from __future__ import annotations

import json
import shutil

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from logforge.cli.commands import main
from logforge.dataset.build.pipeline import BuildConfig, build_dataset
from logforge.dataset.diff.changes import settings, vocabularies
from logforge.dataset.diff.pipeline import diff_datasets
from logforge.dataset.diff.report import PARTS
from logforge.ingestion.pipeline import ingest
from logforge.schemas.errors import LogforgeError, UnknownName
from logforge.store.store import Store

SPEC = "gamma: 0.9\nterms:\n  success: {when: success, value: 10, at: terminal}\n  step_cost: {value: -0.1}\n"
CONFIG = BuildConfig(encoder="hashing", text_size=4)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A store with builds: two alike, one under another reward, one with another seed and without what is short, one with
    further logs."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "reward.yaml").write_text(SPEC)
    (folder / "other.yaml").write_text(SPEC.replace("-0.1", "-5"))
    _write(folder / "logs" / "a.jsonl", [_row(n) for n in range(24)])
    with Store(folder / "store.duckdb") as store:
        ingest(store, [folder / "logs"])
        _build(store, "a")
        _build(store, "same")
        _build(store, "reward", spec="other.yaml")
        config = BuildConfig(
            encoder="hashing", text_size=4, seed=3, exclude_where=("task_id IN ('t0', 't1')",)
        )
        _build(store, "seed", config)
        _write(folder / "logs" / "b.jsonl", [_row(n, tool="further") for n in range(24, 30)])
        ingest(store, [folder / "logs"])
        _build(store, "more")
    return folder


def _row(n, tool=None):
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": tool or f"tool_{n % 3}", "arguments": f'{{"n": {n}}}'},
    }
    messages = [{"role": "user", "content": f"please do number {n}"}]
    for _ in range(1 + n % 4):
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": "c1", "content": f"found {n}"})
    messages.append({"role": "assistant", "content": "done"})
    return {"id": f"e{n}", "task_id": f"t{n}", "success": n % 3 != 0, "messages": messages}


def _write(path, rows):
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _build(store, name, config=CONFIG, spec="reward.yaml"):
    folder = store.path.parent
    build_dataset(store, folder / spec, name=name, out=folder / "out", config=config)


def diff(made, a, b):
    return diff_datasets(a, b, made / "store.duckdb")


def test_two_builds_of_the_same_inputs_differ_in_nothing(made):
    found = diff(made, "a", "same")
    assert (found.parts, found.differs, found.exit_code(True)) == ((), False, 0)
    assert {item.psi for item in found.drifts} == {0.0}
    assert len(found.drifts) > 50, "and every feature was looked at"
    assert (
        found.render()
        == f"a and same differ in nothing: 84 steps of 24 episodes alike (hash {found.hash_a[:12]})"
    )


@pytest.mark.parametrize("name", ["a", "reward", "seed", "more"])
def test_a_dataset_does_not_differ_from_itself_nor_from_its_folder(made, name):
    assert not diff(made, name, name).differs
    assert not diff(made, name, str(made / "out" / name)).differs


def test_another_reward(made):
    found = diff(made, "a", "reward")
    assert set(found.parts) - {"conflicts"} == {"settings", "files", "steps"}
    assert [(item.setting, item.a, item.b) for item in found.settings][1:] == [
        ("reward.terms.step_cost.value", -0.1, -5)
    ]
    steps = {change.column: change for change in found.steps}
    assert set(steps) == {"reward", "return_to_go"}
    assert (steps["reward"].steps, steps["reward"].episodes) == (84, 24)
    assert steps["reward"].mean_difference == pytest.approx(4.9)
    assert steps["return_to_go"].largest[0].locator.startswith("logs/a.jsonl:")
    assert [(term.term, term.mean_b / term.mean_a) for term in found.terms] == [
        ("step_cost", pytest.approx(50))
    ]
    assert found.tau is not None
    assert found.tau < 1
    assert found.movers
    assert all(file.endswith(("rewards.npy", "returns.npy")) for file in found.files)
    assert {item.of: item.level for item in found.drifts}["reward"] == "large"


def test_another_seed_and_episodes_left_out(made):
    found = diff(made, "a", "seed")
    assert {"settings", "sources", "episodes", "splits", "balance", "left_out"} - set(found.parts) == {
        "sources"
    }
    assert [item.setting for item in found.settings] == ["build.exclude_where", "build.seed"]
    assert sum(lone.episodes for lone in found.episodes) == 2
    assert {(lone.only_in, lone.other_side) for lone in found.episodes} == {
        ("A", "left out (excluded): excluded where task_id IN ('t0', 't1')")
    }
    assert {row["cause"] for row in found.splits} == {"other settings"}
    assert found.left_out == [
        {"rule": "excluded", "reason": "excluded where task_id IN ('t0', 't1')", "count": [0, 2]}
    ]
    moved = sum(row["episodes"] for row in found.splits)
    assert moved > 0
    back = diff(made, "seed", "a")
    assert sum(row["episodes"] for row in back.splits) == moved
    assert {lone.only_in for lone in back.episodes} == {"B"}


def test_further_logs(made):
    found = diff(made, "a", "more")
    assert [(source.only_in, source.path) for source in found.sources] == [("B", "logs/b.jsonl")]
    assert (found.vocabulary.added, found.vocabulary.removed) == (("further",), ())
    assert [name for name, _, _ in found.vocabulary.moved] == ["tool_0", "tool_1", "tool_2", "<invalid>"]
    assert {(lone.only_in, lone.other_side) for lone in found.episodes} == {("B", "not read, or forgotten")}
    assert {"action", "reward"}.isdisjoint(change.column for change in found.steps), (
        "ids moved, actions did not"
    )
    assert found.splits == [], "unrelated logs move nothing"
    assert any("further" in item.of for item in found.drifts) is False, "a feature of one side has no drift"


def test_a_folder_alone_is_compared_by_manifest_and_arrays(made, tmp_path):
    copy = shutil.copytree(made / "out" / "reward", tmp_path / "copy")
    found = diff_datasets(str(made / "out" / "a"), str(copy), None)
    assert set(found.parts) == {"settings", "files"}
    assert (found.shared_episodes, found.steps, found.movers) == (None, [], [])
    assert all("its rows are not in the store" in note for note in found.notes)
    drifts = {item.of: item for item in found.drifts}
    with_rows = {item.of: item for item in diff(made, "a", "reward").drifts}
    assert drifts == {name: with_rows[name] for name in drifts}, "arrays and rows tell the same"
    mixed = diff_datasets("a", str(copy), made / "store.duckdb")
    assert not mixed.notes, "the copy's rows are found by its hash"
    same = diff_datasets(str(made / "out" / "a"), str(made / "out" / "same"), None)
    assert not same.differs


def test_rows_alone_are_compared_where_the_folder_is_gone(made, tmp_path):
    shutil.copy(made / "store.duckdb", tmp_path / "store.duckdb")
    found = diff_datasets("a", "reward", tmp_path / "store.duckdb")
    assert {"settings", "steps"} <= set(found.parts)
    assert (found.files, found.sources) == ([], [])
    assert "no dataset in" in found.notes[0]
    assert not diff_datasets("a", "same", tmp_path / "store.duckdb").differs


def test_a_rebuild_leaves_the_folder_copied_before(made, tmp_path):
    shutil.copytree(made, tmp_path / "made")
    copy = shutil.copytree(made / "out" / "a", tmp_path / "before")
    with Store(tmp_path / "made" / "store.duckdb") as store:
        _build(store, "a", spec="other.yaml")
        _build(store, "same", spec="other.yaml")
    found = diff_datasets(str(copy), "a", tmp_path / "made" / "store.duckdb")
    assert {"settings", "files"} <= set(found.parts)
    assert found.shared_steps is None


def test_every_part_is_a_field_and_is_told(made):
    told = diff(made, "a", "seed")
    assert set(PARTS) <= set(told.as_dict())
    text = told.render()
    for part in ("build.seed", "excluded where task_id", "split_before", "success", "drift (PSI"):
        assert part in text
    assert max(map(len, text.splitlines())) <= 110


def test_exit_codes(made):
    store = ["--store", str(made / "store.duckdb")]
    codes = [
        CliRunner().invoke(main, ["diff", "a", *given, *store]).exit_code
        for given in (["same"], ["same", "--exit-code"], ["seed"], ["seed", "--exit-code"], ["nothing"])
    ]
    assert codes == [0, 0, 0, 1, 2]
    done = CliRunner().invoke(main, ["diff", "a", "more", "--json", *store])
    data = json.loads(done.stdout)
    assert data["differs"] is True
    assert data["vocabulary"]["added"] == ["further"]
    assert {"of", "psi", "noise", "level"} <= set(data["drifts"][0])


def test_what_is_neither_a_name_nor_a_folder_is_refused(made, tmp_path):
    with pytest.raises(UnknownName, match="a, more, reward"):
        diff(made, "a", "nothing")
    damaged = shutil.copytree(made / "out" / "a", tmp_path / "damaged")
    (damaged / "manifest.json").write_text("{}")
    with pytest.raises(LogforgeError):
        diff(made, "a", str(damaged))


def test_a_merged_group_is_named(made, tmp_path):
    shutil.copytree(made, tmp_path / "made")
    link = _row(40) | {"task_id": "t3", "user_id": "u"}
    other = _row(41) | {"task_id": "t4", "user_id": "u"}
    _write(tmp_path / "made" / "logs" / "c.jsonl", [link, other])
    with Store(tmp_path / "made" / "store.duckdb") as store:
        ingest(store, [tmp_path / "made" / "logs"])
        _build(store, "merged")
    found = diff_datasets("more", "merged", tmp_path / "made" / "store.duckdb")
    assert {row["cause"] for row in found.splits} == {"groups merged by task,user"}


@given(st.lists(st.sampled_from("abcdef"), unique=True), st.lists(st.sampled_from("abcdef"), unique=True))
def test_vocabularies_account_for_every_action(a, b):
    found = vocabularies(tuple(a), tuple(b))
    olds, news = {old for old, _ in found.renamed}, {new for _, new in found.renamed}
    assert {*found.removed, *olds, *(set(a) & set(b))} == set(a)
    assert {*found.added, *news, *(set(a) & set(b))} == set(b)
    assert all(a.index(old) == b.index(new) for old, new in found.renamed)
    assert {name for name, _, _ in found.moved} == {n for n in set(a) & set(b) if a.index(n) != b.index(n)}


def test_nested_settings_go_by_dotted_names():
    found = settings({"x": {"y": 1, "z": [1]}, "w": 0}, {"x": {"y": 2, "z": [1]}, "v": None})
    assert [tuple(item) for item in found] == [("x.y", 1, 2), ("w", 0, None)]
