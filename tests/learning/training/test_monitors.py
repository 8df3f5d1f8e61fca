"""What is measured of a policy, each number by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from logforge.core.intervals import Span
from logforge.envs.behaviour import behaviour
from logforge.envs.catalogue import make
from logforge.envs.learnt import feature_arrays
from logforge.envs.simulation import logged
from logforge.learning.policies.bundle import Golden, PolicyBundle, PolicyCard
from logforge.learning.policies.bundle import Layer as Linear
from logforge.learning.training.monitors import CAP, MEASURES, OOD_CHANCE, Monitor, _thinned, one_outcome
from logforge.learning.training.pipeline import train
from logforge.schemas.manifest import FeatureSlice
from support import made_chain as chain
from support.made_chain import CELLS, FORWARD, GAMMA, IDLE, VOCABULARY

SPAN = Span(-10.0, 9.9)


@pytest.fixture(scope="module")
def monitor():
    held = chain.walk(30, 0.5, 1, limit=12)
    return Monitor.of(chain.walk(100, 0.5, 0), held, SPAN, GAMMA, VOCABULARY)


def table(scores, kind="q"):
    """A policy with these scores [cells, actions]."""
    card = PolicyCard.of(chain.manifest(), algo="cql", kind=kind, golden=Golden([], []))
    return PolicyBundle(card, (Linear(np.float32(scores).T, np.zeros(VOCABULARY.size, np.float32)),))


def favouring(action, height=2.0):
    scores = np.zeros((CELLS, VOCABULARY.size))
    scores[:, action] = height
    return scores


@pytest.fixture(scope="module")
def clone(monitor):
    """Idles in one way mostly; forward is taken one time in a hundred or so."""
    return monitor.behaviour(table(favouring(IDLE[0], np.log(300.0)), "logits"))


def test_q_is_held_against_the_range_of_returns(monitor, clone):
    scores = favouring(FORWARD)
    scores[2, FORWARD], scores[3, FORWARD] = 12.0, 11.0
    scores[1, :] = -11.0
    found = monitor.measure(table(scores), clone).numbers
    cells = monitor.held.observations[monitor.held.observation_rows].argmax(axis=1)
    assert found["q_above"] == pytest.approx(np.isin(cells, (2, 3)).mean())
    assert found["q_below"] == pytest.approx((cells == 1).mean())
    assert found["validation_max_q"] == 12
    whole = [e for e in monitor.held.episodes() if e.terminal]
    assert 0 < len(whole) < 30
    assert found["start_q"] == 2
    assert found["start_return"] == pytest.approx(np.mean([e.returns[0] for e in whole]))


def test_the_gap_is_that_of_the_logged_action(monitor, clone):
    scores = np.random.default_rng(0).normal(size=(CELLS, VOCABULARY.size))
    found = monitor.measure(table(scores), clone).numbers
    gaps = []
    for episode in monitor.held.episodes():
        for cell, action, mask in zip(
            episode.observations.argmax(axis=1), episode.actions, episode.masks, strict=False
        ):
            gaps.append(np.log(np.exp(scores[cell, mask]).sum()) - scores[cell, action])
    assert found["conservative_gap"] == pytest.approx(np.mean(gaps), rel=1e-4)


def test_shares_and_entropies(monitor, clone):
    found = monitor.measure(table(favouring(FORWARD, 50.0)), clone).numbers
    assert (found["favourite"], found["favourite_share"], found["action_entropy"]) == ("forward", 1.0, 0.0)
    assert found["softmax_entropy"] == pytest.approx(0, abs=1e-6)
    assert (found["clone_share"], found["ood_share"]) == (0.0, 1.0)
    assert clone.chances[:, FORWARD].max() < OOD_CHANCE
    even = monitor.measure(table(np.zeros((CELLS, VOCABULARY.size))), clone).numbers
    assert even["softmax_entropy"] == pytest.approx(np.log(4), rel=1e-6)
    own = monitor.measure(table(favouring(IDLE[0])), clone).numbers
    assert (own["clone_share"], own["ood_share"], own["over_clone"]) == (1.0, 0.0, 0.0)


def test_the_improvement_is_that_of_the_definition(monitor, clone):
    held, total, count = monitor.held, 0.0, 0
    for index, (episode, offset) in enumerate(zip(held.episodes(), held.episode_offsets, strict=False)):
        assert held.groups[index] == index
        if not episode.terminal:
            continue
        for step, action in enumerate(episode.actions):
            count += 1
            if action == FORWARD:
                ratio = min(CAP, 1 / clone.chances[offset + step, FORWARD])
                total += ratio * (episode.returns[step] - monitor.baseline[offset + step])
    found = monitor.measure(table(favouring(FORWARD)), clone).numbers
    assert found["improvement"] == pytest.approx(total / count, rel=1e-5)
    assert found["improvement"] > 2 * found["improvement_se"] > 0


def test_the_value_of_the_log_is_found_by_regression(monitor):
    """One column per cell: the mean return of each, a little shrunk."""
    arrays = chain.walk(100, 0.5, 0)
    cells = arrays.observations[arrays.observation_rows].argmax(axis=1)
    shown = monitor.held.observations[monitor.held.observation_rows].argmax(axis=1)
    for cell in range(CELLS - 1):
        mean = arrays.returns[cells == cell].mean()
        assert monitor.baseline[shown == cell][0] == pytest.approx(mean, abs=0.15)


def test_too_few_whole_episodes_say_nothing():
    held = chain.walk(4, 0.5, 1)
    monitor = Monitor.of(held, held, SPAN, GAMMA, VOCABULARY)
    clone = monitor.behaviour(table(favouring(IDLE[0]), "logits"))
    assert "improvement" not in monitor.measure(table(favouring(FORWARD)), clone).numbers


def test_a_large_split_is_thinned_evenly(monkeypatch):
    monkeypatch.setattr("logforge.learning.training.monitors.MOST_DECISIONS", 100)
    held = chain.walk(200, 0.5)
    shown = _thinned(held)
    assert 60 <= shown.size <= 160
    assert _thinned(shown) is shown or shown.size > 100


def test_every_number_of_a_row_is_a_measure(monitor, clone):
    assert set(monitor.measure(table(favouring(FORWARD)), clone).numbers) == set(MEASURES)


def test_without_conservatism_the_log_is_left_more_often(tmp_path):
    """it-ops, structured features: double DQN (α = 0) chooses what the log hardly does, CQL with α = 1 does not."""
    run, _, _ = logged(make("it-ops"), behaviour("mix"), 700, 3)
    arrays = feature_arrays(run, GAMMA)
    part = np.arange(700) % 10
    splits = [arrays.only(part > 1), arrays.only(part == 0), arrays.only(part == 1)]
    size = arrays.observation_size
    manifest = {"actions": (*run.world.actions, VOCABULARY.actions[VOCABULARY.invalid])}
    layout = (FeatureSlice("features", 0, size, "what the world shows"),)
    at = chain.write_chain(tmp_path / "ops", *splits, **manifest, observation_size=size, layout=layout)
    settings = {"updates": 400, "epochs": 1, "batch_size": 64}
    shares = {}
    for algo in ("cql", "dqn"):
        report = train(at, out=tmp_path / algo, algo=algo, **settings)
        shares[algo] = report.policies[algo]["ood_share"]
    assert shares["cql"] < 0.05 < 0.1 < shares["dqn"]


def test_soft_opc_is_the_mean_q_of_successes_above_that_of_all(monitor, clone):
    """By hand: Q of a logged action is its cell's number; of 30 episodes a third each succeeded, failed and is unknown."""
    outcomes = (np.arange(30) % 3 - 1).astype(np.int8)
    told = replace(monitor, held=replace(monitor.held, success=outcomes))
    scores = np.tile(np.arange(float(CELLS))[:, None], VOCABULARY.size)
    found = told.measure(table(scores), clone).numbers
    cells = {-1: [], 0: [], 1: []}
    for outcome, episode in zip(outcomes.tolist(), told.held.episodes(), strict=True):
        cells[outcome] += episode.observations[: len(episode.actions)].argmax(axis=1).tolist()
    assert found["soft_opc"] == pytest.approx(np.mean(cells[1]) - np.mean(cells[0] + cells[1]), rel=1e-5)
    assert found["soft_opc"] != 0


@pytest.mark.parametrize("outcome", [-1, 0, 1])
def test_without_both_outcomes_soft_opc_is_unknown_and_says_why(monitor, clone, outcome):
    held = replace(monitor.held, success=np.full(30, outcome, np.int8))
    found = replace(monitor, held=held).measure(table(favouring(FORWARD)), clone).numbers
    assert found["soft_opc"] is None
    assert "of 30 validation episodes" in one_outcome(held)
    assert "soft_opc" not in monitor.measure(table(favouring(FORWARD), "logits"), clone).numbers
