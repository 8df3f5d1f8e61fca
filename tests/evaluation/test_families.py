"""A held-out task family: whole groups in a split of their own, which nothing is fitted on, and policies judged on it."""

from __future__ import annotations

import json
import shutil

import numpy as np
import polars as pl
import pytest
from benchmarks import held_out
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from logforge.checks.pipeline import check_dataset
from logforge.cli.commands import main
from logforge.core.intervals import Estimate
from logforge.dataset.build.pipeline import BuildConfig, build_dataset
from logforge.evaluation.families import Side, compare
from logforge.evaluation.pipeline import evaluate
from logforge.exports.pipeline import export
from logforge.forgetting.pipeline import forget
from logforge.ingestion.pipeline import ingest
from logforge.learning.ope.fqe import Fitted
from logforge.schemas.errors import SpecError, UsageError
from logforge.schemas.transition import DRAWN_SPLITS, HELD_OUT, SPLIT_NAMES
from logforge.shards.arrays import ARRAYS
from logforge.shards.reader import load_shards, read_manifest, write_dataset
from logforge.splits.assign import assign_splits
from logforge.store.store import Store
from support import made_chain as chain
from support.made_chain import CELLS, FORWARD, IDLE
from support.made_runs import AHEAD, FAST, made_run, text_of
from support.made_splits import episode_frames

FAMILY = "task_id LIKE 'refund %'"


# Splits: what is held out takes its group along, and moves nobody else.


@settings(max_examples=60, deadline=None)
@given(episode_frames(), st.integers(0, 3), st.data())
def test_groups_are_held_out_whole_and_the_others_stay_where_they_were(episodes, seed, data):
    named = data.draw(st.sets(st.sampled_from(episodes["episode_id"].to_list())))
    before = assign_splits(episodes, seed)
    after = assign_splits(episodes, seed, held_out=named)
    touched = set(before.filter(pl.col("episode_id").is_in(list(named)))["group_key"])
    for old, new in zip(before.rows(named=True), after.rows(named=True), strict=True):
        wanted = HELD_OUT if old["group_key"] in touched else old["split"]
        assert new == {**old, "split": wanted}


def test_a_split_by_time_cuts_what_is_left():
    times = pl.DataFrame(
        [{"episode_id": f"e{n}", "format": "f", "started_at": None if n == 9 else n} for n in range(10)],
        schema={
            **dict.fromkeys(
                "episode_id format task_id task group_id session_id user_id parent_episode_id continues_episode_id".split(),
                pl.String,
            ),
            "started_at": pl.Int64,
        },
    )
    splits = assign_splits(times, 0, (0.5, 0.0, 0.5), by="time", held_out={"e9", "e6", "e7", "e8", "nobody"})
    assert splits["split"].to_list() == [*["train"] * 3, *["test"] * 3, *[HELD_OUT] * 4]


# Builds.


def build(store, name, **settings):
    folder = store.path.parent
    config = BuildConfig(encoder="hashing", text_size=6, **settings)
    return build_dataset(store, folder / "reward.yaml", name=name, out=folder, config=config)


TASKS = ("refund", "login", "address", "order", "price", "colour", "parcel", "invoice", "voucher")


def row(n):
    """A conversation. One of another task than `refund` has its user in common with one of that family."""
    task, tool = TASKS[n % len(TASKS)], ("look_up", "send")[n % 2]
    call = {"id": "c", "type": "function", "function": {"name": tool, "arguments": json.dumps({"n": n})}}
    return {
        "task_id": "a task of its own" if n == 1 else f"{task} {n % 5}",
        "user_id": "shared" if n < 2 else f"user {n}",
        "success": n % 4 != 1,
        "messages": [
            {"role": "user", "content": f"please see to the {task} matter of case {n * 7919}"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": f"the {task} of {n * 104729} is {n}"},
            {"role": "assistant", "content": f"case {n} about {task} is settled"},
        ],
    }


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A store of 90 conversations, and the dataset `held` without its family of refunds."""
    home = tmp_path_factory.mktemp("held")
    (home / "logs").mkdir()
    (home / "logs" / "a.jsonl").write_text("".join(json.dumps(row(n)) + "\n" for n in range(90)))
    (home / "reward.yaml").write_text("gamma: 0.9\nterms:\n  success: {when: success, value: 1, at: end}\n")
    with Store(home / "s.duckdb") as store:
        ingest(store, [home / "logs"])
        build(store, "held", hold_out=(FAMILY,), augment=("paraphrase",), curriculum=True)
    return home


def test_the_family_and_what_shares_a_group_with_it_is_held_out(home):
    with Store(home / "s.duckdb", read_only=True) as store:
        held = store.con.sql(
            "SELECT task_id, user_id FROM episodes JOIN splits USING (episode_id) WHERE split = 'held_out'"
        ).fetchall()
        check_dataset(store, "held")
    assert len([task for task, _ in held if task.startswith("refund")]) == 10
    assert ("a task of its own", "shared") in held
    manifest = read_manifest(home / "held")
    assert set(manifest.splits) == set(SPLIT_NAMES)
    assert manifest.splits[HELD_OUT].episodes == len(held)
    assert not load_shards(home / "held", HELD_OUT).augmented.any()
    assert f"| {HELD_OUT} | {len(held)} |" in (home / "held" / "README.md").read_text()


def test_nothing_is_fitted_on_it(home, tmp_path):
    """The other splits, the reduction and the golden states are those of a build that never saw the held-out episodes."""
    copy = shutil.copytree(home, tmp_path / "copy")
    with Store(copy / "s.duckdb") as store:
        gone = store.con.sql("SELECT episode_id FROM splits WHERE split = 'held_out'").fetchall()
        ids = ", ".join(f"'{name}'" for (name,) in gone)
        build(store, "without", exclude_where=(f"episode_id IN ({ids})",), augment=("paraphrase",))
    assert set(read_manifest(copy / "without").splits) == set(DRAWN_SPLITS)
    for name in ("encoder/pca.npz", "golden_states.json", "actions.json"):
        assert (copy / "without" / name).read_bytes() == (copy / "held" / name).read_bytes()
    for split in DRAWN_SPLITS:
        one, other = (load_shards(copy / name, split) for name in ("without", "held"))
        for name in ARRAYS:
            assert np.array_equal(
                getattr(one, name), getattr(other, name), equal_nan=name == "propensities"
            ), name


def test_the_build_says_how_many_came_along(home, tmp_path):
    copy = shutil.copytree(home, tmp_path / "copy")
    arguments = [
        "build-dataset", "--reward", str(copy / "reward.yaml"), "--store", str(copy / "s.duckdb"),
        "--out", str(copy), "--name", "held", "--encoder", "hashing", "--hold-out", FAMILY,
    ]  # fmt: skip
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.stderr
    assert "held out: 10 episodes, and 1 more that share a group with one" in done.stdout
    refused = CliRunner().invoke(main, [*arguments[:-1], "task_id = 'refnud'"])
    assert (refused.exit_code, "no stored episode meets --hold-out task_id = 'refnud'" in refused.stderr) == (
        2,
        True,
    )


def test_a_wrong_condition_names_its_option(home):
    with Store(home / "s.duckdb") as store:
        with pytest.raises(SpecError) as error:
            build(store, "wrong", hold_out=("1; 2",))
        assert error.value.problems[0].path.startswith("--hold-out")
        with pytest.raises(UsageError, match="the train split is empty"):
            build(store, "wrong", hold_out=("true",))


def test_it_can_be_exported_and_forgotten(home, tmp_path):
    copy = shutil.copytree(home, tmp_path / "copy")
    assert {part.split for part in export(copy / "held", "huggingface", tmp_path / "hub").written} == set(
        SPLIT_NAMES
    )
    with Store(copy / "s.duckdb") as store:
        ((name,), *rest) = store.con.sql(
            "SELECT episode_id FROM splits WHERE split = 'held_out' ORDER BY 1"
        ).fetchall()
        forget(store, episode=name)
        assert read_manifest(copy / "held").splits[HELD_OUT].episodes == len(rest)
        check_dataset(store, "held")


# Policies.

QUICK = {"members": 2, "updates": 100}
STUCK = [IDLE[0], *[FORWARD] * (CELLS - 1)]
"""What was cloned where the log never begins: it waits there for ever."""


def run_with_family(folder, **policies):
    """Logs begin in the second cell, the family in the first."""
    parts = [chain.walk(count, 0.5, seed, start=1) for seed, count in enumerate((40, 5, 15))]
    made = made_run(folder, train_part=parts[0], test_part=parts[2], **policies)
    splits = dict(zip(DRAWN_SPLITS, parts, strict=True)) | {HELD_OUT: chain.walk(15, 0.5, 3)}
    sealed = write_dataset(folder / "chain", splits, chain.manifest())
    told = json.loads((made / "train.json").read_text())
    told["dataset"]["hash"] = sealed.hash
    (made / "train.json").write_text(json.dumps(told))
    return made


def test_what_falls_apart_on_the_family_is_told_from_what_does_not(tmp_path):
    report = evaluate(run_with_family(tmp_path, cql=AHEAD, bc=STUCK, bc_success=AHEAD), **FAST)
    family = report.generalisation
    by_policy = {row.policy: row for row in family.rows}
    assert by_policy["cql"].iid.value == pytest.approx(by_policy["bc"].iid.value)
    assert by_policy["bc"].loss.low > 5 > abs(by_policy["cql"].loss.value)
    assert by_policy["cql"].loss.value == pytest.approx(by_policy["bc_success"].loss.value)
    assert by_policy["bc"].ood_family_match.value < by_policy["bc"].iid_match.value
    assert family.better is True
    assert "cql generalises better" in text_of(report)
    told = report.as_dict()["generalisation"]
    assert told["ood_family"] == {"split": HELD_OUT, "episodes": 15}
    (cql,) = (row for row in told["policies"] if row["policy"] == "cql")
    assert set(cql) == {"policy", "iid", "ood_family", "loss"}
    assert max(map(len, report.render().splitlines())) <= 100


def test_alike_policies_are_not_told_apart(tmp_path):
    report = evaluate(run_with_family(tmp_path, cql=AHEAD, bc=AHEAD), **QUICK)
    assert report.generalisation.difference[:3] == (0, 0, 0)
    assert "the losses cannot be told apart" in text_of(report)


def test_the_family_alone_and_datasets_without_one_are_compared_with_nothing(tmp_path):
    alone = evaluate(run_with_family(tmp_path, cql=AHEAD, bc=AHEAD), split=HELD_OUT, **QUICK)
    assert (alone.split, alone.episodes, alone.generalisation) == (HELD_OUT, 15, None)
    plain = evaluate(made_run(tmp_path / "plain", cql=AHEAD, bc=AHEAD), **QUICK)
    assert plain.as_dict()["generalisation"] is None


def side(split, *, reason="", drift=0.0, **values):
    fits = {name: Fitted(np.array(found, float), drift, 0.1) for name, found in values.items()}
    estimates = {name: fit.estimate() for name, fit in fits.items()}
    return Side(
        split, 9, estimates, dict.fromkeys(values, Estimate(0.5, 0.4, 0.6)), {} if reason else fits, reason
    )


def test_what_cannot_be_estimated_has_a_reason():
    good = side("test", cql=[1, 1.1, 1.2], bc=[1, 1.1, 1.2])
    few = compare(good, side(HELD_OUT, reason="only 2 groups", cql=[1, 1, 1], bc=[1, 1, 1]), "cql", "bc")
    assert (few.better, few.text) == (None, "cql cannot be compared with bc: held_out: only 2 groups")
    assert "— values of ood_family: only 2 groups" in list(few.lines())
    loose = compare(good, side(HELD_OUT, drift=3.0, cql=[1, 1, 1], bc=[1, 1, 1]), "cql", "bc")
    assert loose.better is None
    assert "did not settle" in loose.text
    worse = compare(good, side(HELD_OUT, cql=[-9, -9.1, -9], bc=[1, 1, 1.1]), "cql", "bc")
    assert (worse.better, worse.difference.high < -9) == (False, True)
    assert worse.text.endswith("bc generalises better")
    clones = compare(good, good, "bc", "bc")
    assert clones.text == "cql loses +0.00 [+0.00, +0.00]; bc loses +0.00 [+0.00, +0.00]"


def test_the_benchmark_counts_success_apart_on_the_kind_that_no_log_holds():
    sizes = held_out.Sizes(episodes=300, updates=150, played=400, members=2)
    rows = [held_out.play("it-ops", seed, sizes) for seed in (1, 2)]
    for one in rows:
        assert sum(one.counts) == 400
        assert {len(shares) for shares in one.without.values()} == {6}
        assert one.without["rule"] == one.with_it["rule"], "it learns from no log"
    assert held_out.over_logs(held_out.costs(rows, "bc_success"))[0] > 0
    told = "\n".join(held_out.part("it-ops", rows))
    assert "## it-ops, without `hardware`" in told
    assert "Of the kind that no log holds" in told
