"""The closed loop in small: logs of a simulator are learnt from, and what was learnt acts in it."""

from __future__ import annotations

import numpy as np

from logforge.core.extras import one_thread
from logforge.core.intervals import Span
from logforge.dataset.build.pipeline import BuildConfig, build_dataset
from logforge.envs.behaviour import behaviour
from logforge.envs.catalogue import make
from logforge.envs.evaluating import checked_restarts, evaluate_policy
from logforge.envs.learnt import feature_arrays, served
from logforge.envs.rollout import View, on_features
from logforge.envs.simulation import logged, simulate
from logforge.ingestion.pipeline import ingest
from logforge.learning.policies.bundle import load_policy
from logforge.learning.training.experience import Replay
from logforge.learning.training.learners import LEARNERS, Fit, Rules
from logforge.learning.training.pipeline import train
from logforge.rewards.returns import returns_to_go
from logforge.schemas.manifest import Vocabulary
from logforge.serving.server import StateServer
from logforge.shards.array_rules import check_arrays
from logforge.store.store import Store

GAMMA = 0.99
REWARD = """
gamma: 0.99
terms:
  success: {when: success, value: 1, at: terminal}
  failure: {when: NOT success, value: -1, at: terminal}
"""


def test_rollouts_as_arrays_are_a_sound_split():
    world = make("it-ops")
    run, _, _ = logged(world, behaviour("mix"), 200, 3)
    arrays = feature_arrays(run, GAMMA)
    check_arrays(arrays, Vocabulary((*world.actions, "<invalid>")), arrays.observation_size)
    assert arrays.episode_count == 200
    assert arrays.size == run.lengths.sum()
    assert (arrays.rewards[arrays.episode_offsets[1:] - 1] == run.rewards).all()
    wanted = returns_to_go(arrays.rewards.astype(np.float64), arrays.episode_offsets, GAMMA)
    assert np.allclose(arrays.returns, wanted, atol=1e-6)
    for number in (0, 7, 199):
        episode = arrays.episode(number)
        for time in range(run.lengths[number]):
            view = View(run, np.array([number]), time)
            assert (episode.observations[time] == view.features[0]).all()
            assert episode.actions[time] == run.actions[number, time]


def fitted(name, arrays, seed):
    actions = arrays.action_size
    with one_thread():
        replay = Replay(arrays, actions - 1)
        sizes = (arrays.observation_size, 64, 64, actions)
        fit = Fit(LEARNERS[name], Rules(GAMMA, Span(-1, 1), alpha=0.3), (seed,), sizes, 1e-3, 0.005)
        for _, batch in zip(range(1500), replay.batches((seed,), 128), strict=False):
            fit.update(batch)
    return lambda features: np.eye(actions - 1)[
        fit.scores(features.astype(np.float32), 0)[:, :-1].argmax(axis=1)
    ]


def test_cql_beats_cloning_in_it_ops_as_the_prototype_did():
    """And it looks before it restarts, which the author of the best logs never does."""
    world = make("it-ops")
    arrays = feature_arrays(logged(world, behaviour("mix"), 2000, 7)[0], GAMMA)
    cql, clone = (
        evaluate_policy(world, on_features(fitted(name, arrays, 7)), 1000, 77) for name in ("cql", "bc")
    )
    assert cql.minus(clone).low > 0.12
    assert checked_restarts(cql.rollout).value > 0.9 > checked_restarts(clone.rollout).value


def test_a_policy_trained_on_raw_logs_reads_the_dialogue_and_acts(tmp_path):
    world = make("it-ops")
    simulate(world, "rule-10", 120, 0, tmp_path / "logs")
    (tmp_path / "reward.yaml").write_text(REWARD)
    with Store(tmp_path / "s.duckdb") as store:
        ingest(store, [tmp_path / "logs"])
        build_dataset(
            store, tmp_path / "reward.yaml", out=tmp_path, config=BuildConfig(encoder="hashing", text_size=8)
        )
    train(tmp_path / "default", out=tmp_path / "run", algo="bc", updates=400)
    server, bundle = StateServer(tmp_path / "default"), load_policy(tmp_path / "run" / "bc")
    clone = evaluate_policy(world, served(server, bundle), 60, 1)
    again = evaluate_policy(world, served(server, bundle), 60, 1)
    assert (clone.rollout.actions == again.rollout.actions).all()
    assert clone.minus(evaluate_policy(world, "random", 60, 1)).low > 0
