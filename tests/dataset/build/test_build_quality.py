"""What keeps a bad dataset from being built: broken rows, leaks, gates; and what a build says of its splits."""

from __future__ import annotations

import json

import polars as pl
import pytest
from click.testing import CliRunner

from logforge.checks.pipeline import check_dataset
from logforge.cli.commands import main
from logforge.dataset.build import encoding, splitting
from logforge.dataset.build.pipeline import BuildConfig, build_dataset
from logforge.forgetting.pipeline import forget
from logforge.ingestion.pipeline import ingest
from logforge.schemas.errors import CheckFailed, UnknownName
from logforge.shards.reader import load_shards
from logforge.splits.assign import grouping_frame
from logforge.store.store import Store
from support.made_texts import prose

SPEC = "gamma: 0.9\nterms:\n  success: {when: success, value: 10, at: terminal}\n  step_cost: {value: -0.1}\n"
HASHING = BuildConfig(encoder="hashing", text_size=8)
TWINS = {"task 3", "task 3 again"}


@pytest.fixture
def logs(tmp_path, conversation, write_jsonl):
    """Thirty tasks with texts of their own, and a copy of one of them, changed by a word, under another task."""
    rows = []
    for n in range(30):
        row = conversation(f"task {n}", success=n % 3 != 0, started_at=n)
        row["messages"][0]["content"] = " ".join(prose(n, 60))
        rows.append(row)
    twin = json.loads(json.dumps(rows[3]))
    twin |= {"id": "task 3 again", "task_id": "task 3 again"}
    twin["messages"][0]["content"] += " please"
    write_jsonl(tmp_path / "logs" / "a.jsonl", [*rows, twin])
    (tmp_path / "reward.yaml").write_text(SPEC)
    return tmp_path / "logs"


@pytest.fixture
def filled(tmp_path, logs):
    with Store(tmp_path / "s.duckdb") as opened:
        ingest(opened, [logs])
        yield opened


def build(store, config=HASHING, **more):
    home = store.path.parent
    return build_dataset(store, home / "reward.yaml", name="d", out=home / "out", config=config, **more)


def query(store, text):
    return store.con.sql(text).fetchall()


def break_rows(store, count):
    """Give episodes a chance above 1: two rows each break a rule."""
    store.con.execute(
        "UPDATE steps SET propensity = 2, propensity_kind = 'logged' WHERE episode_id IN "
        f"(SELECT episode_id FROM episodes ORDER BY task_id LIMIT {count})"
    )


def test_a_twin_under_another_task_stays_on_one_side(filled):
    report = build(filled)
    assert query(
        filled, "SELECT similarity > 0.9 AND similarity < 1 FROM near_duplicates WHERE dataset = 'd'"
    ) == [(True,)]
    found = query(
        filled,
        "SELECT task_id, split, group_key, reason FROM splits JOIN episodes USING (episode_id) WHERE reason <> 'alone'",
    )
    assert {row[0] for row in found} == TWINS
    assert len({row[1:] for row in found}) == 1
    assert found[0][3] == "near"
    assert report.split_report.near_joins == 1
    assert "split proof: 0 keys in two splits" in report.render()


def test_a_leak_stops_the_build_with_the_pair_named(filled, monkeypatch):
    """Whatever is wrong with the splits, the proof does not depend on it."""
    build(filled)
    before = query(filled, "SELECT * FROM splits ORDER BY ALL")
    assign = splitting.assign_splits
    leaky = assign(grouping_frame(filled.episodes()), 0).with_columns(
        split=pl.when(pl.int_range(pl.len()) % 2 == 0).then(pl.lit("train")).otherwise(pl.lit("test"))
    )
    twins = [
        row[0]
        for row in query(filled, "SELECT episode_id FROM episodes WHERE task_id LIKE 'task 3%' ORDER BY 1")
    ]
    pair = query(filled, "SELECT episode_a, episode_b FROM near_duplicates")[0]
    assert set(pair) <= set(twins)
    leaky = leaky.with_columns(
        split=pl.when(pl.col("episode_id") == pair[0])
        .then(pl.lit("train"))
        .when(pl.col("episode_id") == pair[1])
        .then(pl.lit("test"))
        .otherwise("split")
    )
    monkeypatch.setattr(splitting, "assign_splits", lambda *_: leaky)
    with pytest.raises(CheckFailed, match=f"near {pair[0]} ~ {pair[1]} lies in test, train"):
        build(filled)
    assert query(filled, "SELECT * FROM splits ORDER BY ALL") == before


def test_check_finds_a_leak_and_an_altered_row(filled):
    build(filled)
    assert "no key in two splits" in check_dataset(filled, "d").render()
    pair = query(filled, "SELECT episode_a, episode_b FROM near_duplicates")[0]
    filled.con.execute(
        "UPDATE splits SET split = CASE split WHEN 'test' THEN 'train' ELSE 'test' END WHERE episode_id = ?",
        [pair[1]],
    )
    with pytest.raises(CheckFailed, match=r"near .* lies in"):
        check_dataset(filled, "d")


def test_check_holds_the_arrays_against_the_rows(filled):
    build(filled)
    filled.con.execute(
        "UPDATE transitions SET weight = 3 WHERE episode_id = (SELECT min(episode_id) FROM transitions) AND step = 1"
    )
    with pytest.raises(CheckFailed, match=r"arrays: weights differs from weight .*logs/a.jsonl"):
        check_dataset(filled, "d")


def test_a_forgotten_twin_leaves_no_pair(filled):
    build(filled)
    ((twin,),) = query(filled, "SELECT episode_id FROM episodes WHERE task_id = 'task 3 again'")
    forget(filled, episode=twin)
    assert query(filled, "SELECT * FROM near_duplicates") == []
    check_dataset(filled, "d")


def test_broken_rows_stop_the_build_all_in_one_go(filled):
    break_rows(filled, 3)
    with pytest.raises(CheckFailed, match="6 rows of 3 episodes break a rule"):
        build(filled)
    found = query(filled, "SELECT DISTINCT rule, level, dataset, locator LIKE '%a.jsonl:%' FROM quarantine")
    assert found == [("propensity", "transition", "d", True)]
    assert query(filled, "SELECT count(*) FROM quarantine") == [(6,)]
    assert query(filled, "SELECT count(*) FROM datasets") == [(0,)]


@pytest.mark.parametrize(("allowed", "built"), [("2", False), ("3", True), ("5%", False), ("10%", True)])
def test_up_to_the_allowance_whole_episodes_are_set_aside(filled, allowed, built):
    break_rows(filled, 3)
    filled.con.execute("UPDATE steps SET propensity = NULL, propensity_kind = 'missing' WHERE step = 1")
    if not built:
        with pytest.raises(CheckFailed, match="break a rule"):
            build(filled, max_quarantine=allowed)
        return
    report = build(filled, max_quarantine=allowed)
    assert report.left_out == {"breaks the rule propensity": 3}
    assert query(filled, "SELECT count(*), count(DISTINCT episode_id), any_value(step) FROM quarantine") == [
        (3, 3, 0)
    ]
    assert query(
        filled, "SELECT count(DISTINCT episode_id) FROM transitions SEMI JOIN quarantine USING (episode_id)"
    ) == [(0,)]
    assert query(filled, "SELECT count(DISTINCT episode_id), count(*) FROM transitions") == [(28, 56)]
    check_dataset(filled, "d")


def test_copies_of_what_is_set_aside_go_with_it(filled):
    break_rows(filled, 3)
    config = BuildConfig(encoder="hashing", text_size=8, augment=("tool_failure",), retryable=("lookup",))
    report = build(filled, config, max_quarantine="50%")
    left = query(
        filled,
        "SELECT count(*) FROM transitions WHERE split_part(parent_id, '/', 1) IN (SELECT episode_id FROM quarantine)",
    )
    assert left == [(0,)]
    assert report.augmented["tool_failure"] > 0
    check_dataset(filled, "d")


def test_everything_broken_is_no_dataset(filled):
    break_rows(filled, 1000)
    with pytest.raises(CheckFailed, match="62 rows of 31 episodes"):
        build(filled, max_quarantine="100%")


def test_arrays_that_are_not_their_rows_stop_the_build(filled, monkeypatch):
    made = encoding.split_arrays

    def shifted(*given):
        arrays = made(*given)
        arrays.masks[0, 0] = ~arrays.masks[0, 0]
        return arrays

    monkeypatch.setattr(encoding, "split_arrays", shifted)
    with pytest.raises(CheckFailed, match="break a rule"):
        build(filled, max_quarantine="100%")
    assert {row[0] for row in query(filled, "SELECT rule FROM quarantine")} == {"arrays"}


def test_a_gate_that_is_missed_publishes_nothing(filled, tmp_path):
    build(filled)
    before = query(filled, "SELECT hash FROM datasets"), load_shards(tmp_path / "out" / "d").manifest
    with pytest.raises(CheckFailed, match="min_failure_share"):
        build(filled, BuildConfig(encoder="hashing", text_size=4), gates={"min_failure_share": 0.9})
    assert (
        query(filled, "SELECT hash FROM datasets"),
        load_shards(tmp_path / "out" / "d").manifest,
    ) == before
    report = build(filled, gates={"min_failure_share": 0.2, "max_conflict_rate": 0.5})
    assert [gate.gate for gate in report.gates] == ["min_failure_share", "max_conflict_rate"]
    assert "gate min_failure_share 0.2: passed with 0.35" in report.render()
    with pytest.raises(UnknownName, match="valid: min_failure_share"):
        build(filled, gates={"nonsense": 0.1})


def test_gates_of_the_config_file_fail_the_command(filled, tmp_path, monkeypatch):
    filled.close()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logforge.toml").write_text(
        'store = "s.duckdb"\n[build-dataset]\nreward = "reward.yaml"\nencoder = "hashing"\nmin-failure-share = 0.9\n'
    )
    done = CliRunner().invoke(main, ["build-dataset"])
    assert done.exit_code == 1
    assert "must be at least 0.9" in done.stderr
    assert not (tmp_path / "datasets").exists()
    done = CliRunner().invoke(main, ["build-dataset", "--min-failure-share", "0.1", "--json"])
    assert done.exit_code == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["gates"] == [
        {"gate": "min_failure_share", "threshold": 0.1, "value": pytest.approx(11 / 31)}
    ]
    assert report["split_report"]["crossing"] == 0
    assert report["split_report"]["leak"]["ours"] == 0


def test_what_a_new_log_moves_is_reported(filled, logs, conversation, write_jsonl):
    """A session that spans two tasks joins their groups."""
    build(filled)
    splits = dict(query(filled, "SELECT task_id, split FROM splits JOIN episodes USING (episode_id)"))
    mine = next(task for task in splits if splits[task] == "train" and task not in TWINS)
    other = next(task for task in splits if splits[task] == "test" and task not in TWINS)
    assert build(filled).split_report.moved == []
    new = [conversation(f"new {n}", task_id=task, session_id="s") for n, task in enumerate((mine, other))]
    write_jsonl(logs / "b.jsonl", new)
    ingest(filled, [logs])
    report = build(filled)
    (moved,) = report.split_report.moved
    assert moved["cause"] == "groups merged by task,session"
    assert {moved["split_before"], moved["split_after"]} == {"train", "test"}
    assert moved["episodes"] == 1
    assert "1 episode changed group or split" in report.render()
    other_seed = build(filled, BuildConfig(encoder="hashing", text_size=8, seed=5))
    assert {row["cause"] for row in other_seed.split_report.moved} == {"other settings"}


def test_inferred_masks_do_not_tell_what_test_episodes_used(tmp_path, conversation, write_jsonl):
    rows = [conversation(f"task {n}") for n in range(40)]
    logs = write_jsonl(tmp_path / "logs" / "a.jsonl", rows)
    (tmp_path / "reward.yaml").write_text(SPEC)
    with Store(tmp_path / "s.duckdb") as store:
        ingest(store, [logs])
        build(store)
        tasks = dict(
            query(
                store,
                "SELECT split, any_value(task_id) FROM splits JOIN episodes USING (episode_id) GROUP BY 1",
            )
        )
        store.con.execute(
            "UPDATE steps SET action = 'only_in_test' WHERE kind = 'tool' AND episode_id = "
            "(SELECT episode_id FROM episodes WHERE task_id = ?)",
            [tasks["test"]],
        )
        build(store)
        found = query(
            store, "SELECT action_valid, mask_kind, split FROM transitions WHERE action = 'only_in_test'"
        )
    assert found == [(False, "inferred", "test")]
    shard = load_shards(tmp_path / "out" / "d", "test")
    vocabulary = shard.manifest.vocabulary
    assert "only_in_test" in vocabulary, "a vocabulary is a list of names"
    assert not shard.masks[:, vocabulary.id("only_in_test")].any()
