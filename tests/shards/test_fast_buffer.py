"""The fast buffer gives what d3rlpy's own buffer gives, and every discrete algorithm trains on it."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logforge.core.extras import import_d3rlpy
from logforge.schemas.errors import UsageError
from logforge.shards.arrays import ARRAYS
from logforge.shards.d3rlpy import to_mdp_dataset
from logforge.shards.fast_buffer import FastBuffer
from logforge.shards.reader import Shard, load_shards, write_dataset
from support.made_arrays import DIM, VOCABULARY, episode_kinds, make, manifest

KINDS = [(3, True), (7, False), (1, False), (1, True), (6, True), (2, False)]
BATCH = ("observations", "actions", "rewards", "next_observations", "next_actions", "terminals", "intervals")
TRAJECTORY = ("observations", "actions", "rewards", "terminals", "timesteps", "masks")


def shard_of(kinds, seed=0):
    arrays = make(kinds, seed)
    return Shard(
        **{name: getattr(arrays, name) for name in ARRAYS}, manifest=manifest(), path=".", split="train"
    )


def stock(shard, n_steps=1, gamma=0.9):
    buffer = to_mdp_dataset(shard)
    if n_steps > 1:
        buffer._transition_picker = import_d3rlpy().dataset.MultiStepTransitionPicker(n_steps, gamma)
    return buffer


def assert_same(found, expected, names):
    for name in names:
        one, other = getattr(found, name), getattr(expected, name)
        assert (one.dtype, one.shape) == (other.dtype, other.shape), name
        assert np.array_equal(one, other), name


@settings(max_examples=60, deadline=None)
@given(kinds=episode_kinds, n_steps=st.integers(1, 5), gamma=st.sampled_from([0.0, 0.5, 0.9, 1.0]))
def test_every_transition_equals_d3rlpys_own(kinds, n_steps, gamma):
    shard = shard_of(kinds)
    theirs, ours = stock(shard, n_steps, gamma), FastBuffer(shard, n_steps, gamma)
    assert theirs.transition_count == ours.transition_count == shard.size
    every = np.arange(shard.size)
    mini_batch = import_d3rlpy().dataset.TransitionMiniBatch
    expected = mini_batch.from_transitions(
        [theirs.transition_picker(*theirs.buffer[index]) for index in every]
    )
    found = ours.transitions(every)
    assert_same(found, expected, BATCH)
    for one, other in zip(found.transitions, expected.transitions, strict=True):
        assert np.array_equal(one.rewards_to_go, other.rewards_to_go)
        assert (one.terminal, one.interval) == (other.terminal, other.interval)


@settings(max_examples=60, deadline=None)
@given(kinds=episode_kinds, length=st.integers(1, 6))
def test_every_trajectory_equals_d3rlpys_own(kinds, length):
    shard = shard_of(kinds)
    theirs, ours = stock(shard), FastBuffer(shard)
    every = np.arange(shard.size)
    mini_batch = import_d3rlpy().dataset.TrajectoryMiniBatch
    slices = [theirs.trajectory_slicer(*theirs.buffer[index], length) for index in every]
    found, expected = ours.trajectories(every, length), mini_batch.from_partial_trajectories(slices)
    assert_same(found, expected, TRAJECTORY)
    assert np.allclose(found.returns_to_go, expected.returns_to_go, rtol=1e-5)
    assert found.returns_to_go.dtype == np.float32


@pytest.mark.parametrize("n_steps", [1, 3])
def test_the_same_seed_draws_the_same_batches(n_steps):
    shard = shard_of(KINDS)
    theirs, ours = stock(shard, n_steps), FastBuffer(shard, n_steps)
    import_d3rlpy().seed(5)
    expected = [theirs.sample_transition_batch(16) for _ in range(3)], theirs.sample_trajectory_batch(8, 4)
    import_d3rlpy().seed(5)
    found = [ours.sample_transition_batch(16) for _ in range(3)], ours.sample_trajectory_batch(8, 4)
    for one, other in zip(found[0], expected[0], strict=True):
        assert_same(one, other, BATCH)
    assert_same(found[1], expected[1], TRAJECTORY)


def test_batches_that_are_held_keep_their_values():
    buffer = FastBuffer(shard_of(KINDS))
    import_d3rlpy().seed(1)
    kept = [buffer.sample_transition_batch(8) for _ in range(20)]
    part = buffer.sample_transition_batch(8).observations[2:4]
    copies = [batch.observations.copy() for batch in kept], part.copy()
    for _ in range(30):
        buffer.sample_transition_batch(8)
    assert all(np.array_equal(b.observations, copy) for b, copy in zip(kept, copies[0], strict=True))
    assert np.array_equal(part, copies[1])


@pytest.mark.parametrize(("dtype", "part_bytes"), [("float32", 60), ("float16", 1 << 20), ("float16", 30)])
def test_parts_and_float16_give_the_same_batches(tmp_path, dtype, part_bytes):
    arrays = make(KINDS)
    write_dataset(tmp_path / "d", {"train": arrays}, manifest(observation_dtype=dtype), part_bytes=part_bytes)
    shard = load_shards(tmp_path / "d")
    every = np.arange(shard.size)
    found = FastBuffer(shard, 2).transitions(every)
    expected = FastBuffer(shard_of(KINDS), 2).transitions(every)
    assert_same(found, expected, [name for name in BATCH if "observations" not in name])
    exact = np.float16 if dtype == "float16" else np.float32
    for name in ("observations", "next_observations"):
        assert np.array_equal(getattr(found, name), getattr(expected, name).astype(exact).astype(np.float32))
    assert found.observations.dtype == np.float32
    theirs = stock(shard, 2)
    own = [theirs.transition_picker(*theirs.buffer[index]) for index in every]
    assert_same(found, import_d3rlpy().dataset.TransitionMiniBatch.from_transitions(own), BATCH)


def test_it_looks_like_a_replay_buffer():
    d3rlpy = import_d3rlpy()
    shard = shard_of(KINDS)
    buffer, theirs = FastBuffer(shard), stock(shard)
    assert isinstance(buffer, d3rlpy.dataset.ReplayBufferBase)
    assert all(hasattr(buffer, name) for name in d3rlpy.dataset.ReplayBufferBase.__abstractmethods__)
    assert buffer.dataset_info == theirs.dataset_info
    assert buffer.size() == len(buffer.episodes) == theirs.size()
    assert [e.compute_return() for e in buffer.episodes] == [e.compute_return() for e in theirs.episodes]
    assert [place for _, place in buffer.buffer] == [place for _, place in theirs.buffer._transitions]
    assert len(buffer.episodes[1:3]) == 2
    assert buffer.buffer.transition_count == shard.size
    assert len(buffer.buffer.episodes) == len(KINDS)
    one = buffer.sample_transition()
    assert one.observation.shape == (DIM,)
    assert buffer.sample_trajectory(4).length == 4


def test_what_it_cannot_do_it_refuses():
    buffer = FastBuffer(shard_of(KINDS))
    calls = [
        lambda: buffer.append(0, 0, 0.0), lambda: buffer.append_episode(buffer.episodes[0]), lambda: buffer.clip_episode(True),
        lambda: buffer.buffer.append(buffer.episodes[0], 0), lambda: FastBuffer.load(io.BytesIO(), None),
        lambda: FastBuffer.from_episode_generator(None, None), lambda: FastBuffer(buffer.shard, 0),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(UsageError):
            call()
    with pytest.raises(IndexError):
        buffer.episodes[len(KINDS)]


def test_dump_is_d3rlpys_own():
    stream = io.BytesIO()
    FastBuffer(shard_of(KINDS)).dump(stream)
    stream.seek(0)
    dataset = import_d3rlpy().dataset
    assert dataset.ReplayBuffer.load(stream, dataset.InfiniteBuffer()).transition_count == 20


def algorithms():
    algos = import_d3rlpy().algos
    return {
        "BC": algos.DiscreteBCConfig, "BCQ": algos.DiscreteBCQConfig, "CQL": algos.DiscreteCQLConfig, "SAC": algos.DiscreteSACConfig,
        "DQN": algos.DQNConfig, "DoubleDQN": algos.DoubleDQNConfig, "NFQ": algos.NFQConfig,
    }  # fmt: skip


def fitted(config, buffer):
    """The network's parameters after a few steps from the same seed."""
    d3rlpy = import_d3rlpy()
    d3rlpy.seed(3)
    algo = config.create(device="cpu:0")
    quiet = {"n_steps": 6, "n_steps_per_epoch": 3, "show_progress": False, "save_interval": 100}
    algo.fit(buffer, logger_adapter=d3rlpy.logging.NoopAdapterFactory(), **quiet)
    return algo, parameters(algo)


def parameters(algo):
    import torch

    modules = [value for value in vars(algo.impl.modules).values() if isinstance(value, torch.nn.Module)]
    return [tensor.detach().numpy().copy() for module in modules for tensor in module.parameters()]


@pytest.mark.parametrize("name", ["BC", "BCQ", "CQL", "SAC", "DQN", "DoubleDQN", "NFQ"])
@pytest.mark.parametrize("n_steps", [1, 3])
def test_every_discrete_algorithm_learns_the_same_on_it(name, n_steps):
    shard = shard_of(KINDS)
    config = algorithms()[name](batch_size=8)
    algo, ours = fitted(config, FastBuffer(shard, n_steps))
    _, theirs = fitted(config, stock(shard, n_steps))
    assert len(ours) == len(theirs) > 0
    assert all(np.array_equal(one, other) for one, other in zip(ours, theirs, strict=True))
    assert algo.action_size == VOCABULARY.size


def test_the_decision_transformer_learns_the_same_on_it():
    shard = shard_of(KINDS)
    config = import_d3rlpy().algos.DiscreteDecisionTransformerConfig(
        batch_size=4,
        context_size=3,
        num_heads=2,
        num_layers=1,
        warmup_tokens=10,
        final_tokens=100,
        max_timestep=10,
    )
    _, ours = fitted(config, FastBuffer(shard))
    _, theirs = fitted(config, stock(shard))
    assert all(np.allclose(one, other, atol=1e-5) for one, other in zip(ours, theirs, strict=True))
