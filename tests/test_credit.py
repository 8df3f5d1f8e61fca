"""Credit on the chain MDP: values against the linear equations, methods against plain arithmetic, and the way from the store."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

import logforge
import made_chain as chain
from logforge import credit as crediting
from logforge.cli import main
from logforge.credit import METHODS, PLAIN, credit_of, fit_values, plain_credit
from logforge.ope import Span, q_values
from logforge.policy import Golden, Layer, PolicyBundle, PolicyCard
from logforge.schemas.errors import Mismatch, UnknownName, UsageError
from logforge.shards import load_shards
from logforge.store import Store
from logforge.targets import KINDS, targets_of
from made_chain import CELLS, FORWARD, GAMMA, GOAL, STEP, VOCABULARY

FAST = {"members": 5, "updates": 250}
CHANCE = 0.4


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


def drawing_policy(manifest):
    """Goes forward with CHANCE and idles evenly: the one that made the log."""
    weight = np.full((VOCABULARY.size, CELLS), -50.0, np.float32)
    weight[chain.IDLE] = np.log((1 - CHANCE) / len(chain.IDLE))
    weight[FORWARD] = np.log(CHANCE)
    card = PolicyCard.of(manifest, algo="bc", kind="logits", golden=Golden([], []))
    return PolicyBundle(card, (Layer(weight, np.zeros(VOCABULARY.size, np.float32)),))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("credit")
    held = chain.walk(12, CHANCE, 2)
    known = np.where(np.arange(held.size) % 2, np.where(held.actions == FORWARD, CHANCE, 0.2), np.nan)
    held = replace(held, propensities=known.astype(np.float32))
    dataset = chain.write_chain(folder / "chain", chain.walk(300, CHANCE, 0), chain.walk(3, CHANCE, 1), held)
    manifest = load_shards(dataset).manifest
    drawing_policy(manifest).save(folder / "run" / "bc")
    told = {
        "schema_version": 1,
        "dataset": {"path": str(dataset), "hash": manifest.hash},
        "config": {"algo": "bc"},
        "policies": {"bc": {}},
        "left_out": {},
    }
    (folder / "run" / "train.json").write_text(json.dumps(told))
    return folder / "run"


@pytest.fixture(scope="module")
def valued(run):
    return fit_values(run, "test", **FAST)


@pytest.fixture(scope="module")
def store(run):
    """The store's rows that the chain's test split would have come from; decisions 30 s apart, one time in each unknown."""
    held = load_shards(run.parent / "chain", "test")
    path = run.parent / "store.duckdb"
    steps = np.arange(held.size) - np.asarray(held.episode_offsets)[held.episode_index]
    frame = pl.DataFrame(
        {
            "dataset": "chain",
            "split": "test",
            "episode_id": [f"e{number:02}" for number in held.episode_index],
            "step": steps.astype(np.int32),
            "position": steps.astype(np.int32),
            "action": [VOCABULARY.actions[action] for action in held.actions],
            "reward": held.rewards.astype(np.float64),
            "success": held.success[held.episode_index] == 1,
            "locator": [f"log.jsonl:{number + 1}" for number in range(held.size)],
            "created_at": [
                None if step == 2 else datetime(2026, 1, 1) + timedelta(seconds=30 * step)
                for step in steps.tolist()
            ],
        }
    )
    with Store(path) as opened:
        opened.con.register("rows", frame.to_arrow())
        for table, columns in (
            ("transitions", "dataset, split, episode_id, step, action, reward, success, locator"),
            ("steps", "episode_id, step, position, action, locator"),
            ("messages", "episode_id, position, created_at"),
        ):
            opened.con.execute(f"INSERT INTO {table} BY NAME SELECT {columns} FROM rows")
        opened.con.execute(
            "INSERT INTO datasets BY NAME SELECT 'chain' AS dataset, ? AS hash", [held.manifest.hash]
        )
    return path


def test_values_are_those_of_the_linear_equations(valued):
    shard, values = valued
    v, q = true_values(CHANCE)
    cell = shard.observations.argmax(axis=1)
    inside = cell < CELLS - 1  # nothing is learnt of the state behind a true end, and nothing reads it
    assert values.states[inside] == pytest.approx(v[cell[inside]], abs=0.5)
    cells, forward = cell[shard.observation_rows], shard.actions == FORWARD
    assert values.taken == pytest.approx(np.where(forward, q[0][cells], q[1][cells]), abs=0.6)


def test_the_advantage_credits_going_forward_and_blames_idling(valued):
    shard, values = valued
    advantage = crediting.VALUED["advantage"](shard, values, 1, 0.95)
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
    from logforge import targets

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


@pytest.mark.parametrize("method", ["uniform", "discounted", "last"])
def test_what_is_shared_out_is_what_came_in(valued, method):
    shard, _ = valued
    found = plain_credit(shard, method)
    for start, stop in zip(shard.episode_offsets[:-1], shard.episode_offsets[1:], strict=True):
        rewards, shares = shard.rewards[start:stop].astype(np.float64), found[start:stop]
        assert shares.sum() == pytest.approx(rewards.sum(), abs=1e-9)
        if method == "uniform":
            assert shares == pytest.approx(rewards.mean())
        elif method == "last":
            assert not shares[:-1].any()
        else:
            assert shares[:-1] == pytest.approx(GAMMA * shares[1:])


@pytest.mark.parametrize("method", METHODS)
def test_every_method_gives_every_step_a_number_with_its_line(run, store, method, tmp_path):
    with Store(store, read_only=True) as opened:
        report = credit_of(opened, run, method=method, out=tmp_path / "c.parquet", members=2, updates=5)
    shard = load_shards(run.parent / "chain", "test")
    written = pl.read_parquet(tmp_path / "c.parquet")
    assert written.equals(report.frame)
    assert written.columns == ["episode_id", "step", "action", "reward", "success", "locator", "credit"]
    assert written.height == shard.size
    assert np.isfinite(written["credit"].to_numpy()).all()
    assert written["locator"].to_list() == [f"log.jsonl:{number + 1}" for number in range(shard.size)]
    assert np.array_equal(written["reward"].to_numpy(), shard.rewards.astype(np.float64))
    assert ("propensity" in " ".join(report.notes)) == (method == "retrace")
    assert (report.policy is None) == (method in PLAIN)


def test_a_discount_by_the_clock(run, store):
    """30 s between decisions, the time of step 2 unknown: that step and the one before it count as one unit."""
    with Store(store, read_only=True) as opened:
        report = credit_of(opened, run, method="return", per_seconds=60)
    shard = load_shards(run.parent / "chain", "test")
    found, start = report.frame["credit"].to_numpy(), 0
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
        with pytest.raises(UnknownName, match="advantage"):
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
    assert told["method"] == "uniform"
    shown = CliRunner().invoke(main, ["credit", str(run), "--store", str(store), "--method", "last"])
    assert "most owed to" in shown.stdout
    assert "log.jsonl:" in shown.stdout


def test_it_is_in_the_public_api():
    assert logforge.credit_of is credit_of
    assert logforge.targets_of is targets_of
