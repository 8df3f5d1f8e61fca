"""How far credit can be relied on: spread by hand and by law, support on made cases, and what is said where there is none."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logforge.evaluation.credit.evidence import spread_of, support_of
from logforge.evaluation.credit.methods import METHODS, Evidence, Values
from logforge.evaluation.credit.pipeline import credit_of, fit_values
from logforge.learning.ope.fqe_fit import ByMember
from logforge.schemas.errors import UsageError
from logforge.shards.reader import Shard, load_shards
from logforge.store.store import Store
from support import made_chain as chain
from support.made_chain import CELLS, FORWARD
from support.made_credit import made_shard

VALUED = [name for name, method in METHODS.items() if method.needs == "values"]


def valued(shard, states, taken, ratios=None):
    """Values of members [K, N + E] and [K, N], and their means."""
    states, taken = np.asarray(states, float), np.asarray(taken, float)
    given = np.full(shard.size, np.nan) if ratios is None else ratios
    means = states.mean(axis=0), taken.mean(axis=0)
    return Values("bc", *means, given, "", members=ByMember(states, taken))


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.lists(st.floats(-10, 10, width=32), min_size=1, max_size=6), min_size=1, max_size=6),
    st.integers(0, 2**31),
    st.integers(2, 7),
)
def test_members_that_agree_have_spread_0_and_moving_one_gives_some(episodes, seed, members):
    shard, rng = made_shard(episodes, seed), np.random.default_rng(seed)
    states, taken = rng.normal(size=len(shard.observations)), rng.normal(size=shard.size)
    ratios = np.exp(rng.normal(size=shard.size))
    same = valued(shard, np.tile(states, (members, 1)), np.tile(taken, (members, 1)), ratios)
    for name in VALUED:
        assert (spread_of(METHODS[name], Evidence(shard, shard, same)) == 0).all(), name
    moved = np.tile(taken, (members, 1))
    moved[0] += 1
    other = replace(same, members=ByMember(np.tile(states, (members, 1)), moved))
    spread = spread_of(METHODS["counterfactual"], Evidence(shard, shard, other))
    assert spread == pytest.approx(np.sqrt(1 / members))  # of one 1 among 0s


def test_the_spread_is_that_of_the_methods_credit_by_each_members_values():
    shard = made_shard([[1.0, 0.0], [0.5]], 0)
    states = [[1.0, 2.0, 0.0, 4.0, 0.0], [3.0, 2.0, 0.0, 1.0, 0.0]]
    taken = [[2.0, 2.0, 4.0], [2.0, 3.0, 4.0]]
    evidence = Evidence(shard, shard, valued(shard, states, taken))
    # Q(s, a) − V(s) of the two members: 1, 0, 0 and −1, 1, 3
    assert spread_of(METHODS["counterfactual"], evidence) == pytest.approx(
        np.std([[1, 0, 0], [-1, 1, 3]], axis=0, ddof=1)
    )
    # TD errors differ by V(s) alone here: V(s′) of the first step is 2 for both
    assert spread_of(METHODS["td"], evidence) == pytest.approx(np.sqrt(2) / 2 * np.array([2.0, 0.0, 3.0]))


def test_methods_without_values_and_a_single_member_have_no_spread():
    shard = made_shard([[1.0, 0.0]], 0)
    one = Evidence(shard, shard, valued(shard, [[1.0, 2.0, 0.0]], [[2.0, 2.0]]))
    two = Evidence(shard, shard, valued(shard, [[1.0, 2.0, 0.0]] * 2, [[2.0, 2.0]] * 2))
    assert np.isnan(spread_of(METHODS["counterfactual"], one)).all()
    for name in set(METHODS) - set(VALUED) - {"decomposition", "shaped"}:
        assert np.isnan(spread_of(METHODS[name], two)).all(), name


def standing(cells, actions, groups, split):
    """Episodes of one step each, in these cells."""
    plain = made_shard([[0.0]] * len(cells), 0)
    observations = np.eye(CELLS, dtype=np.float32)[np.repeat(cells, 2)]
    arrays = {"observations": observations, "actions": np.array(actions, np.int32)}
    return replace(plain, **arrays, groups=np.array(groups, np.int32), split=split)


def test_support_counts_the_same_action_in_similar_states_of_other_groups():
    """Cells are √2 apart, and every train decision has another group's in its own cell: only equal cells are similar."""
    train = standing([0, 0, 0, 1, 1], [2, 2, 3, 2, 3], [0, 1, 2, 3, 4], "train")
    held = standing([0, 0, 0, 1, 2], [2, 3, 4, 2, 2], [7, 7, 8, 8, 9], "test")
    assert support_of(held, train).tolist() == [2, 1, 0, 1, 0]
    assert support_of(train, train).tolist() == [1, 1, 0, 0, 0]
    together = replace(train, groups=np.array([0, 0, 1, 2, 3], np.int32))
    assert support_of(together, together).tolist() == [0, 0, 0, 0, 0]


def test_each_member_is_asked_and_their_mean_is_what_was_given(run):
    _, values = fit_values(run, "test", members=4, updates=30)
    assert values.members.states.shape == (4, *values.states.shape)
    assert values.members.taken.shape == (4, *values.taken.shape)
    assert values.members.taken.std(axis=0).min() > 0
    assert values.members.states.mean(axis=0) == pytest.approx(values.states, abs=0.05)
    assert values.members.taken.mean(axis=0) == pytest.approx(values.taken, abs=0.05)


def test_what_no_similar_decision_did_is_flagged_wherever_credit_is_shown(run, store, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "logforge.evaluation.credit.pipeline.support_of", lambda shard, train: np.arange(shard.size) % 3
    )
    with Store(store, read_only=True) as opened:
        report = credit_of(opened, run, members=2, updates=5, out=tmp_path / "c.parquet")
    frame = pl.read_parquet(tmp_path / "c.parquet")
    assert frame["unsupported"].to_list() == [number % 3 == 0 for number in range(frame.height)]
    lacking = frame["unsupported"].sum()
    assert any(note.startswith(f"{lacking} of {frame.height} steps are unsupported") for note in report.notes)
    shown = frame.sort("counterfactual", "episode_id", "step", descending=[True, False, False])
    shown = pl.concat([shown.head(5), shown.tail(5)])
    assert report.render().count("0 unsupported") == shown["unsupported"].sum()
    assert "spread" in report.render()
    assert json.loads(json.dumps(replace(report, file=None).as_dict()))["rows"][0]["unsupported"] is True


def test_the_chains_steps_are_supported_where_the_log_went(run, store):
    with Store(store, read_only=True) as opened:
        frame = credit_of(opened, run, method="uniform").frame
    assert frame["support"].min() >= 0
    assert frame["support"].max() <= 20
    assert frame["support"].mean() > 3
    assert (frame["unsupported"] == (frame["support"] == 0)).all()


def test_of_all_methods_those_that_cannot_be_had_are_unknown_with_the_reason(run, store, tmp_path):
    folder = few(run, tmp_path)
    path = Path(shutil.copy(store, tmp_path / "store.duckdb"))
    with Store(path) as opened:
        opened.con.execute("UPDATE datasets SET hash = ?", [load_shards(tmp_path / "few").manifest.hash])
        report = credit_of(opened, folder, method="all")
        kept = opened.sql("SELECT method, count(credit) AS known, count(*) AS n FROM credit GROUP BY 1")
        with pytest.raises(UsageError, match="FQE cannot"):
            credit_of(opened, folder, method="td")
    unknown = {*VALUED, "decomposition"}
    for name in METHODS:
        assert report.frame[name].null_count() == (report.frame.height if name in unknown else 0), name
    assert dict(kept.select("method", pl.col("known") == 0).iter_rows()) == {n: n in unknown for n in METHODS}
    told = " ".join(report.notes)
    assert "no values can be fitted" in told
    assert "credit by decomposition is unknown" in told


def few(run, home):
    """The run over a dataset with 3 train episodes and the same test split."""
    held: Shard = load_shards(run.parent / "chain", "test")
    dataset = chain.write_chain(home / "few", chain.walk(3, 0.4, 0), chain.walk(3, 0.4, 1), held)
    folder = Path(shutil.copytree(run, home / "run"))
    record = json.loads((folder / "train.json").read_text())
    record["dataset"] = {"path": str(dataset), "hash": load_shards(dataset).manifest.hash}
    (folder / "train.json").write_text(json.dumps(record))
    assert FORWARD in held.actions
    return folder
