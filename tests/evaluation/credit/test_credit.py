"""Credit on the chain MDP: values against the linear equations, methods against plain arithmetic, and the way from the store."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import logforge
from logforge.cli.commands import main
from logforge.core.intervals import Span
from logforge.evaluation.credit.decomposition import FOLDS, decompose
from logforge.evaluation.credit.methods import BONUS, METHODS, Evidence
from logforge.evaluation.credit.pipeline import credit_of, fit_values
from logforge.evaluation.credit.targets import KINDS, targets_of
from logforge.learning.ope.fqe import q_values
from logforge.schemas.errors import Mismatch, UnknownName, UsageError
from logforge.shards.reader import load_shards
from logforge.store.store import Store
from support import made_chain as chain
from support.made_chain import CELLS, FORWARD, GAMMA, GOAL, STEP
from support.made_credit import CHANCE, made_shard

FAST = {"members": 5, "updates": 250}


def true_values(forward: float) -> tuple[np.ndarray, np.ndarray]:
    """V of each cell, and Q of [going forward, staying], under a policy that goes forward with this chance."""
    v = np.zeros(CELLS)
    for cell in reversed(range(CELLS - 1)):
        ahead = STEP + (GOAL if cell == CELLS - 2 else GAMMA * v[cell + 1])
        # v = p · ahead + (1 − p)(STEP + γ v)
        v[cell] = (forward * ahead + (1 - forward) * STEP) / (1 - (1 - forward) * GAMMA)
    after = np.append(v[1:], 0.0)
    go = STEP + np.where(np.arange(CELLS) == CELLS - 2, GOAL, GAMMA * after)
    return v, np.stack([go, STEP + GAMMA * v])


@pytest.fixture(scope="module")
def valued(run):
    return fit_values(run, "test", **FAST)


def test_values_are_those_of_the_linear_equations(valued):
    shard, values = valued
    v, q = true_values(CHANCE)
    cell = shard.observations.argmax(axis=1)
    inside = cell < CELLS - 1  # nothing is learnt of the state behind a true end, and nothing reads it
    assert values.states[inside] == pytest.approx(v[cell[inside]], abs=0.5)
    cells, forward = cell[shard.observation_rows], shard.actions == FORWARD
    assert values.taken == pytest.approx(np.where(forward, q[0][cells], q[1][cells]), abs=0.6)


def test_the_counterfactual_credits_going_forward_and_blames_idling(valued):
    shard, values = valued
    advantage = METHODS["counterfactual"].give(Evidence(shard, shard, values)).amounts
    forward = shard.actions == FORWARD
    assert advantage[forward].min() > advantage[~forward].max()
    v, q = true_values(CHANCE)
    cells = shard.observations.argmax(axis=1)[shard.observation_rows]
    truth = np.where(forward, q[0][cells], q[1][cells]) - v[cells]
    assert np.corrcoef(advantage, truth)[0, 1] > 0.9


def test_ratios_are_known_where_propensities_are(valued):
    _shard, values = valued
    assert np.isnan(values.ratios[::2]).all()
    assert values.ratios[1::2] == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_targets_of_a_shard_are_those_of_its_arrays(valued, kind):
    from logforge.evaluation.credit import targets

    shard, values = valued
    offsets, ended = np.asarray(shard.episode_offsets), shard.terminals[shard.episode_offsets[1:] - 1]
    rewards = shard.rewards.astype(np.float64)
    plain = (rewards, values.states, offsets, ended, GAMMA)
    wanted = {
        "return": lambda: shard.returns,
        "n_step": lambda: targets.n_step(*plain, 3),
        "td_lambda": lambda: targets.td_lambda(*plain, 0.9),
        "td": lambda: targets.gae(*plain, 0.0),
        "gae": lambda: targets.gae(*plain, 0.9),
        "retrace": lambda: targets.retrace(
            rewards, values.taken, values.states, values.ratios, offsets, ended, GAMMA, 0.9
        ),
    }[kind]()
    found = targets_of(shard, kind, values.states, taken=values.taken, ratios=values.ratios, n=3, lam=0.9)
    assert found == pytest.approx(wanted, abs=1e-4)


def test_what_a_target_needs_is_asked_for(valued):
    shard, values = valued
    with pytest.raises(UsageError, match="needs the values"):
        targets_of(shard, "gae")
    with pytest.raises(UsageError, match="ratios"):
        targets_of(shard, "retrace", values.states)
    with pytest.raises(UnknownName, match="kind of target"):
        targets_of(shard, "magic")


SUMMING = [name for name, method in METHODS.items() if method.sums]


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.lists(st.floats(-10, 10, width=32), min_size=1, max_size=6), min_size=FOLDS, max_size=12),
    st.integers(0, 2**31),
    st.booleans(),
)
def test_what_is_shared_out_is_what_came_in(episodes, seed, same):
    """Whatever the rewards, what was observed and who is in the train split: credit that promises it sums to the rewards."""
    shard = made_shard(episodes, seed)
    train = shard if same else made_shard(episodes[::-1], seed + 1)
    shard = replace(shard, split="train" if same else "test")
    for method in SUMMING:
        found = METHODS[method].give(Evidence(shard, train)).amounts
        for rewards, (start, stop) in zip(episodes, pairwise(shard.episode_offsets), strict=True):
            assert found[start:stop].sum() == pytest.approx(sum(rewards), abs=1e-6)


def test_shares_are_even_by_gamma_or_all_at_the_end(valued):
    shard, _ = valued
    found = {
        name: METHODS[name].give(Evidence(shard, shard)).amounts for name in ("uniform", "discounted", "last")
    }
    for start, stop in pairwise(shard.episode_offsets):
        rewards = shard.rewards[start:stop].astype(np.float64)
        assert found["uniform"][start:stop] == pytest.approx(rewards.mean())
        assert not found["last"][start : stop - 1].any()
        assert found["discounted"][start : stop - 1] == pytest.approx(
            GAMMA * found["discounted"][start + 1 : stop]
        )


def test_the_decomposition_credits_what_leads_to_the_return():
    """A coin thrown at a known step decides the return: that step gets the difference, the others share the rest evenly."""
    train, held = coins(400, 0), coins(50, 1)
    found = decompose(held, train, same=False)
    assert 0.4 < found.explained <= 0.5  # half of the prefixes end before the toss
    credit = found.credit.reshape(50, 5)
    heads = held.rewards.reshape(50, 5).sum(axis=1) > 0
    rest = np.delete(credit, 2, axis=1)
    assert (credit[heads, 2] - rest[heads].mean(axis=1)).min() > 0.4
    assert (credit[~heads, 2] - rest[~heads].mean(axis=1)).max() < -0.4
    assert np.ptp(rest, axis=1).max() < 0.2


def coins(episodes, seed):
    """Five steps; at the third the agent goes forward or asks by the toss of a coin, and at the end is paid 1 or 0."""
    rng = np.random.default_rng(seed)
    heads = rng.random(episodes) < 0.5
    shard = made_shard([[0.0, 0.0, 0.0, 0.0, float(head)] for head in heads], seed)
    actions = shard.actions.reshape(episodes, 5).copy()
    actions[:] = chain.IDLE[0]
    actions[:, 2] = np.where(heads, FORWARD, chain.IDLE[1])
    observations = np.zeros_like(shard.observations)
    return replace(shard, actions=actions.ravel(), observations=observations)


def test_the_train_split_is_predicted_by_models_that_did_not_see_it():
    """Noise that names the episode explains nothing when its own group is left out, and all when it is not."""
    shard = made_shard([[reward] for reward in np.random.default_rng(0).choice([-1.0, 1.0], 40).tolist()], 0)
    names = np.zeros((80, 40), np.float32)
    names[np.arange(80), np.arange(80) // 2] = np.tile([0.0, 1.0], 40)
    shard = replace(shard, observations=names, actions=np.zeros(40, np.int32))
    assert decompose(shard, shard, same=True).explained < 0.05
    twins = replace(
        shard, groups=np.arange(40, dtype=np.int32) % 20, observations=np.tile(names[:40], (2, 1))
    )
    pairs = np.tile(shard.rewards[:20], 2)
    grouped = decompose(replace(twins, rewards=pairs), replace(twins, rewards=pairs), same=True)
    assert grouped.explained < 0.05
    apart = replace(
        twins, rewards=pairs, groups=np.argsort(np.argsort(np.arange(40) % 20 * 2 + np.arange(40) // 20))
    )
    assert decompose(apart, apart, same=True).explained > 0.3


def test_too_few_groups_give_no_decomposition():
    few = made_shard([[1.0]] * (FOLDS - 1), 0)
    with pytest.raises(UsageError, match="4 independent train episodes"):
        decompose(few, few, same=False)


def test_shaped_pays_more_for_commands_that_worked(run, store):
    with Store(store, read_only=True) as opened:
        frame = credit_of(opened, run, method="shaped").frame
    bonus = (frame["shaped"] - frame["reward"]).to_numpy()
    worked = np.array([action == "forward" for action in frame["action"]])
    assert bonus == pytest.approx(np.where(worked, BONUS, 0.0))


@pytest.mark.parametrize(("method", "told"), [("gae", True), ("td", False)])
def test_a_lambda_below_the_usual_is_told_where_it_counts(run, store, method, told):
    with Store(store, read_only=True) as opened:
        notes = credit_of(opened, run, method=method, lam=0.5, members=2, updates=5).notes
    assert any(note.startswith("λ 0.5 lies outside [0.9, 1]") for note in notes) == told


@pytest.mark.parametrize("method", METHODS)
def test_every_method_gives_every_step_a_number_with_its_line(run, store, method, tmp_path):
    with Store(store, read_only=True) as opened:
        report = credit_of(opened, run, method=method, out=tmp_path / "c.parquet", members=2, updates=5)
    shard = load_shards(run.parent / "chain", "test")
    written = pl.read_parquet(tmp_path / "c.parquet")
    assert written.equals(report.frame)
    evidence = ["support", "unsupported", method, f"{method}_spread"]
    assert written.columns == ["episode_id", "step", "action", "reward", "success", "locator", *evidence]
    unknown = written.height if METHODS[method].needs != "values" else 0
    assert written[f"{method}_spread"].null_count() == unknown
    assert written.height == shard.size
    assert np.isfinite(written[method].to_numpy()).all()
    assert written["locator"].to_list() == [f"log.jsonl:{number + 1}" for number in range(shard.size)]
    assert np.array_equal(written["reward"].to_numpy(), shard.rewards.astype(np.float64))
    assert ("propensity" in " ".join(report.notes)) == (method == "retrace")
    assert not any("λ" in note for note in report.notes)
    assert (report.policy is None) == (METHODS[method].needs != "values")
    assert not report.kept


def test_all_methods_are_kept_once_with_what_made_them(run, store, tmp_path):
    path = shutil.copy(store, tmp_path / "store.duckdb")
    with Store(path) as opened:
        for _ in range(2):
            report = credit_of(opened, run, method="all", members=2, updates=5)
        kept = opened.sql("SELECT * FROM credit ORDER BY method, episode_id, step")
        credit_of(opened, run, method="n_step", n=2, members=2, updates=5)
        both = opened.sql(
            "SELECT DISTINCT settings->>'n' AS n FROM credit WHERE method = 'n_step' ORDER BY n"
        )
        hash_ = opened.sql("SELECT hash FROM datasets").item()
    assert report.kept
    assert kept.height == len(METHODS) * report.frame.height
    assert set(kept["hash"]) == {hash_}
    for name, rows in kept.group_by("method"):
        wanted = report.frame.sort("episode_id", "step")[name[0]]
        assert rows.sort("episode_id", "step")["credit"].to_list() == wanted.to_list()
        told = report.frame.sort("episode_id", "step").select("support", spread=f"{name[0]}_spread")
        assert rows.sort("episode_id", "step").select("support", "spread").equals(told)
        assert set(rows["policy"]) == ({"bc"} if METHODS[name[0]].needs == "values" else {None})
    assert both["n"].to_list() == ["2", "3"]


def test_credit_of_an_earlier_build_goes_when_new_credit_is_kept(run, store, tmp_path):
    path = shutil.copy(store, tmp_path / "store.duckdb")
    with Store(path) as opened:
        for name in ("chain", "other"):
            opened.con.execute("INSERT INTO credit BY NAME SELECT ? AS dataset, 'old' AS hash", [name])
        credit_of(opened, run, method="uniform")
        held = opened.sql("SELECT DISTINCT dataset, hash = 'old' AS old FROM credit ORDER BY 1, 2").rows()
    assert held == [("chain", False), ("other", True)]


def test_a_discount_by_the_clock(run, store):
    """30 s between decisions, the time of step 2 unknown: that step and the one before it count as one unit."""
    with Store(store, read_only=True) as opened:
        report = credit_of(opened, run, method="return", per_seconds=60)
    shard = load_shards(run.parent / "chain", "test")
    found, start = report.frame["return"].to_numpy(), 0
    for stop in shard.episode_offsets[1:]:
        total = 0.0
        for row in range(int(stop) - 1, start - 1, -1):
            step = row - start
            total = float(shard.rewards[row]) + GAMMA ** (1.0 if step in (1, 2) else 0.5) * total
            assert found[row] == pytest.approx(total, abs=1e-6)
        start = int(stop)
    assert any("are not logged" in note for note in report.notes)


def test_what_cannot_be_had_is_refused(run, store):
    with Store(store, read_only=True) as opened:
        with pytest.raises(UsageError, match="gae cannot discount by the clock"):
            credit_of(opened, run, method="gae", per_seconds=60)
        with pytest.raises(UnknownName, match="counterfactual"):
            credit_of(opened, run, method="magic")
        with pytest.raises(UnknownName, match="policy of the run"):
            credit_of(opened, run, policy="cql")


def test_too_few_episodes_give_no_values():
    few = chain.walk(3, CHANCE, 1)
    with pytest.raises(UsageError, match="FQE cannot"):
        q_values(few, np.ones(few.masks.shape), few.observations, gamma=GAMMA, span=Span(-10, 10))
    enough = chain.walk(9, CHANCE, 1)
    with pytest.raises(Mismatch, match="chances"):
        q_values(enough, np.ones(3), enough.observations, gamma=GAMMA, span=Span(-10, 10))


def test_another_build_in_the_store_is_refused(run, tmp_path):
    with Store(tmp_path / "other.duckdb") as opened:
        with pytest.raises(Mismatch, match="no build of it"):
            credit_of(opened, run, method="return")
        opened.con.execute("INSERT INTO datasets BY NAME SELECT 'chain' AS dataset, 'other' AS hash")
        with pytest.raises(Mismatch, match="other"):
            credit_of(opened, run, method="return")


def test_the_command(run, store):
    done = CliRunner().invoke(
        main, ["credit", str(run), "--store", str(store), "--method", "uniform", "--json"]
    )
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["steps"] == len(told["rows"])
    assert told["methods"] == ["uniform"]
    assert told["kept"]
    plain = ["credit", str(run), "--store", str(store), "--no-keep"]
    shown = CliRunner().invoke(main, [*plain, "--method", "last"])
    assert "kept in the store" not in shown.stdout
    assert "most owed to" in shown.stdout
    assert "log.jsonl:" in shown.stdout


def test_it_is_in_the_public_api():
    assert logforge.credit_of is credit_of
    assert logforge.targets_of is targets_of
