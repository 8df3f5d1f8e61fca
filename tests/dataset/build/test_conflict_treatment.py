"""Policies in a build: whole episodes set aside with a reason, weights in rows and arrays, contrasts left alone."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from logforge.checks.pipeline import check_dataset
from logforge.cli.commands import main
from logforge.dataset.build.pipeline import BuildConfig, build_dataset
from logforge.forgetting.pipeline import forget
from logforge.ingestion.pipeline import ingest
from logforge.schemas.errors import CheckFailed, UnknownName
from logforge.shards.reader import load_shards
from logforge.store.store import Store

SPEC = "gamma: 0.9\nterms: {success: {when: success, value: 10, at: terminal}}\n"


@pytest.fixture
def home(tmp_path, conversation, write_jsonl):
    """Twenty quiet episodes, two that differ in outcome, two that contrast, and a label told twice."""
    rows = [conversation(f"quiet {word}") for word in "qwertyuiopasdfghjklz"]
    pairs = (("noise", "lookup", "lookup"), ("choice", "lookup", "search"))
    for name, *tools in pairs:
        for side, tool in enumerate(tools):
            row = conversation(name, tool, result=f"result of {'ab'[side]}")
            rows.append({**row, "id": f"{name} {side}", "success": side == 0})
    label = conversation("told twice")
    rows += [{**label, "id": f"label {n}", "success": n != 2} for n in range(3)]
    for row in rows:
        row["task_id"] = row["id"]
    write_jsonl(tmp_path / "logs.jsonl", rows)
    (tmp_path / "reward.yaml").write_text(SPEC)
    with Store(tmp_path / "store.duckdb") as store:
        ingest(store, [tmp_path / "logs.jsonl"], workers=1)
    return tmp_path


def build(home, *words, name="d", **more):
    config = BuildConfig(encoder="hashing", text_size=4, near_threshold=1, conflicts=words, **more)
    with Store(home / "store.duckdb") as store:
        report = build_dataset(store, home / "reward.yaml", name=name, out=home / "datasets", config=config)
        check_dataset(store, name)
        rows = store.con.sql(
            "SELECT e.native_id, t.step, t.weight, t.split, t.parent_id FROM transitions t LEFT JOIN episodes e USING (episode_id) "
            f"WHERE dataset = '{name}' ORDER BY t.split, t.episode_id, t.step"
        ).fetchall()
        conflicts = store.con.sql(
            f"SELECT kind, level, count(*) FROM conflicts WHERE dataset = '{name}' GROUP BY ALL"
        ).fetchall()
        aside = store.con.sql(
            "SELECT native_id, rule, reason, step, q.locator FROM quarantine q JOIN episodes USING (episode_id) "
            f"WHERE dataset = '{name}' ORDER BY 1"
        ).fetchall()
    return report, rows, sorted(conflicts), aside


FOUND = [("contrast", "exact", 1), ("label", "exact", 1), ("outcome", "exact", 1)]


def test_flagging_is_the_default_and_changes_nothing(home):
    _, rows, conflicts, aside = build(home)
    assert conflicts == FOUND
    assert {weight for _, _, weight, _, _ in rows} == {1.0}
    assert aside == []


def test_weights_reach_rows_and_arrays_of_train(home):
    _, rows, conflicts, aside = build(home, "weight", fractions=(1.0, 0.0, 0.0))
    assert conflicts == FOUND
    assert aside == []
    halved = sorted((name, step) for name, step, weight, _, _ in rows if weight == 0.5)
    assert halved == [("label 2", 0), ("label 2", 1), ("noise 0", 0), ("noise 1", 0)]
    assert np.array_equal(load_shards(home / "datasets" / "d", "train").weights, [row[2] for row in rows])


def test_held_out_rows_weigh_one_and_their_conflicts_weigh_nothing(home):
    _, rows, conflicts, _ = build(home, "weight", fractions=(0.5, 0.25, 0.25), seed=1)
    held = [row for row in rows if row[3] != "train"]
    assert conflicts == FOUND
    assert {("noise 0", 0), ("label 2", 0)} & {row[:2] for row in held}
    assert {row[2] for row in held} == {1.0}
    for split in ("train", "validation", "test"):
        shard = load_shards(home / "datasets" / "d", split)
        assert np.array_equal(shard.weights, [row[2] for row in rows if row[3] == split])


def test_filtering_sets_whole_episodes_aside_with_the_place_and_leaves_contrasts(home):
    _, rows, conflicts, aside = build(home, "filter")
    assert conflicts == FOUND[:1]
    assert [item[:4] for item in aside] == [
        ("label 2", "conflict", "contradicted by a conflict of kind label", 0),
        ("noise 0", "conflict", "contradicted by a conflict of kind outcome", 0),
        ("noise 1", "conflict", "contradicted by a conflict of kind outcome", 0),
    ]
    assert all(item[4] for item in aside)
    assert len(rows) == 2 * (27 - 3)
    assert sum(
        load_shards(home / "datasets" / "d", split).size for split in ("train", "validation", "test")
    ) == len(rows)


def test_contrasts_are_filtered_only_by_name(home):
    _, _, conflicts, aside = build(home, "contrast=filter")
    assert conflicts == FOUND[1:]
    assert [item[0] for item in aside] == ["choice 1"]


def test_copies_of_what_is_set_aside_go_too(home):
    _, rows, _, _ = build(home, "filter", augment=("paraphrase",))
    parents = {parent.split("/")[0] for *_, parent in rows if parent}
    with Store(home / "store.duckdb") as store:
        kept = {
            name
            for (name,) in store.con.sql(
                "SELECT episode_id FROM transitions WHERE parent_id IS NULL"
            ).fetchall()
        }
    assert parents <= kept


def test_a_policy_that_leaves_nothing_stops_the_build(tmp_path, conversation, write_jsonl):
    rows = [{**conversation("same", result=f"r{n}"), "id": n, "success": n > 0} for n in range(2)]
    write_jsonl(tmp_path / "logs.jsonl", rows)
    (tmp_path / "reward.yaml").write_text(SPEC)
    with Store(tmp_path / "store.duckdb") as store:
        ingest(store, [tmp_path / "logs.jsonl"], workers=1)
    with pytest.raises(CheckFailed, match="leaves no episode"):
        build(tmp_path, "filter", fractions=(1.0, 0.0, 0.0))


def test_a_policy_that_there_is_not_is_refused_before_anything_is_built(home):
    with pytest.raises(UnknownName, match="weight"):
        build(home, "outcome=halve")


def test_forgetting_an_episode_finds_the_conflicts_of_the_rest(home):
    build(home)
    with Store(home / "store.duckdb") as store:
        ((gone,),) = store.con.sql("SELECT episode_id FROM episodes WHERE native_id = 'noise 1'").fetchall()
        forget(store, episode=gone)
        left = store.con.sql("SELECT kind, level FROM conflicts ORDER BY ALL").fetchall()
    assert left == [item[:2] for item in FOUND[:2]]


def test_the_command_line_takes_policies_and_shows_conflicts(home, monkeypatch):
    monkeypatch.chdir(home)
    run = CliRunner().invoke
    options = ["--reward", "reward.yaml", "--store", "store.duckdb", "--encoder", "hashing", "--name", "d"]
    built = run(
        main,
        [
            "build-dataset",
            *options,
            "--conflicts",
            "filter",
            "--conflicts",
            "outcome=flag",
            "--near-threshold",
            "1",
        ],
    )
    assert built.exit_code == 0, built.output
    shown = run(
        main, ["conflicts", "d", "--store", "store.duckdb", "--kind", "outcome", "--tool", "lookup", "--json"]
    )
    found = json.loads(shown.stdout)
    assert found["total"] == 1
    assert {found["conflicts"][0][side]["locator"].split("#")[0] for side in "ab"} == {
        "logs.jsonl:21",
        "logs.jsonl:22",
    }
    assert (
        run(main, ["conflicts", "d", "--store", "store.duckdb", "--kind", "label"]).stdout == "no conflicts\n"
    )
    assert run(main, ["conflicts", "d", "--store", "store.duckdb", "--split", "dev"]).exit_code == 2
    assert run(main, ["build-dataset", *options, "--conflicts", "halve"]).exit_code == 2
