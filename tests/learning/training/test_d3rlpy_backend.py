"""d3rlpy's learners: their bundles score and choose as d3rlpy does, and the settings arrive."""

from __future__ import annotations

import numpy as np
import pytest

from logforge.core import extras as optional
from logforge.core.extras import one_thread
from logforge.learning.policies.bundle import load_policy
from logforge.learning.training.config import D3RLPY_LEARNERS, TrainConfig
from logforge.learning.training.d3rlpy_backend import LEARNERS, _bundle, _seeded, points
from logforge.learning.training.pipeline import train
from logforge.shards.d3rlpy import to_mdp_dataset
from logforge.shards.reader import load_shards
from support import made_chain as chain
from support.made_chain import CELLS, VOCABULARY


@pytest.fixture
def dataset(tmp_path):
    parts = chain.walk(12, 0.5, 0), chain.walk(4, 0.5, 1), chain.walk(6, 0.5, 2)
    return chain.write_chain(tmp_path / "chain", *parts)


def test_the_learners_are_those_that_a_configuration_may_name():
    assert tuple(LEARNERS) == D3RLPY_LEARNERS


@pytest.mark.parametrize("name", LEARNERS)
def test_the_bundle_scores_and_chooses_as_d3rlpy_does(dataset, name):
    import torch

    shard = load_shards(dataset)
    learner, config = LEARNERS[name], TrainConfig(batch_size=16, backend="d3rlpy")
    buffer = to_mdp_dataset(shard)
    with one_thread(), _seeded(0):
        algo = learner.make(optional.import_d3rlpy(), config, 0.99)
        algo.build_with_dataset(buffer)
        for _step in range(30):
            algo.update(buffer.sample_transition_batch(16))
    bundle = _bundle(name, learner, algo, shard, config)
    bundle.verify()
    rows = np.random.default_rng(0).normal(size=(50, CELLS)).astype(np.float32)
    scores = bundle.scores(rows)
    assert [layer.weight.shape for layer in bundle.layers] == [(64, CELLS), (64, 64), (VOCABULARY.size, 64)]
    everything = np.ones_like(scores, dtype=bool)
    if name != "bcq":  # whose choice looks at the invalid action too
        assert (scores.argmax(axis=1) == algo.predict(rows)).all()
    if learner.kind == "q":
        theirs = [algo.predict_value(rows, np.full(len(rows), a)) for a in range(VOCABULARY.size)]
        assert np.allclose(scores, np.stack(theirs, axis=1), atol=1e-5)
    else:
        with torch.no_grad():
            theirs = algo.impl.modules.imitator(torch.from_numpy(rows)).probs.numpy()
        everything[:, VOCABULARY.invalid] = False
        ours = bundle.probabilities(rows, everything)
        rest = theirs[:, : VOCABULARY.invalid] / theirs[:, : VOCABULARY.invalid].sum(axis=1, keepdims=True)
        assert np.allclose(ours[:, : VOCABULARY.invalid], rest, atol=1e-5)


def test_the_target_is_renewed_and_gamma_is_the_manifests(dataset):
    made = LEARNERS["cql"].make(optional.import_d3rlpy(), TrainConfig(alpha=0.3), 0.9)
    assert (made.config.target_update_interval, made.config.gamma, made.config.alpha) == (100, 0.9, 0.3)
    assert made.config.encoder_factory.hidden_units == [64, 64]


def test_each_member_is_a_policy_of_its_own(dataset, tmp_path):
    settings = {"updates": 10, "batch_size": 16, "hidden": (8,), "backend": "d3rlpy"}
    both = train(dataset, out=tmp_path / "both", members=2, seed=3, **settings)
    assert set(both.policies) == {"cql", "cql-4", "bc", "bc-4", "bc_success", "bc_success-4"}
    train(dataset, out=tmp_path / "second", seed=4, **settings)
    rows = np.eye(CELLS, dtype=np.float32)
    theirs = load_policy(tmp_path / "second" / "cql").scores(rows)
    assert (load_policy(tmp_path / "both" / "cql-4").scores(rows) == theirs).all()


def test_a_halted_member_is_left_and_the_next_one_trained(dataset):
    config = TrainConfig(batch_size=16, backend="d3rlpy", updates=6, epochs=3, members=2)
    halted, seen = set(), []
    for found in points("dqn", "dqn", load_shards(dataset), config, halted):
        seen += [(point.seed, point.epoch) for point in found]
        if (0, 1) in seen:
            halted.add(0)
    assert seen == [(0, 1), (1, 1), (1, 2), (1, 3)]
