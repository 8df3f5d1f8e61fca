"""Torch batches: every transition once, n steps ahead, and on the GPU what they are on the CPU."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logforge.schemas.errors import UsageError
from logforge.shards.batches import Batch
from logforge.shards.reader import load_shards, write_dataset
from support.made_arrays import DIM, VOCABULARY, episode_kinds, make, manifest

torch = pytest.importorskip("torch")
KINDS = [(3, True), (7, False), (1, False), (1, True), (6, True), (2, False)]


def numpy_of(batches):
    """Whole passes, field by field, in the order of the transitions."""
    columns = [
        np.concatenate([np.asarray(part.cpu()) for part in parts]) for parts in zip(*batches, strict=True)
    ]
    order = np.argsort(columns[Batch._fields.index("indices")])
    return Batch(*(column[order] for column in columns))


@settings(max_examples=40, deadline=None)
@given(episode_kinds, st.integers(1, 9), st.integers(0, 3))
def test_a_pass_holds_every_transition_once(kinds, size, seed):
    arrays = make(kinds)
    batches = list(arrays.torch_batches(size, seed, "cpu"))
    assert sum(len(batch.indices) for batch in batches) == arrays.size
    found = numpy_of(batches)
    assert np.array_equal(found.indices, np.arange(arrays.size))
    assert np.array_equal(found.observations, arrays.observations[arrays.observation_rows])
    assert np.array_equal(found.next_observations, arrays.next_observations())
    assert np.array_equal(found.masks, arrays.masks[arrays.observation_rows])
    assert np.array_equal(found.next_masks, arrays.masks[arrays.observation_rows + 1])
    for name in ("actions", "rewards", "terminals", "returns", "weights"):
        assert np.array_equal(getattr(found, name), getattr(arrays, name)), name
    assert (found.intervals == 1).all()


@settings(max_examples=40, deadline=None)
@given(episode_kinds, st.integers(1, 5), st.sampled_from([0.5, 1.0]))
def test_n_steps_ahead(kinds, n_step, gamma):
    """Against a walk through each episode, step by step."""
    arrays = make(kinds)
    found = numpy_of(arrays.torch_batches(4, 0, "cpu", n_step=n_step, gamma=gamma))
    place = 0
    for episode in arrays.episodes():
        steps = len(episode.actions)
        for step in range(steps):
            ahead = min(n_step, steps - step)
            total = sum(gamma**k * float(episode.rewards[step + k]) for k in range(ahead))
            assert found.intervals[place] == ahead
            assert found.rewards[place] == pytest.approx(total, rel=1e-6)
            assert np.array_equal(found.next_observations[place], episode.observations[step + ahead])
            assert np.array_equal(found.next_masks[place], episode.masks[step + ahead])
            assert found.terminals[place] == (episode.terminal and step + ahead == steps)
            place += 1


def test_a_shard_knows_its_discount(tmp_path):
    write_dataset(tmp_path / "d", {"train": make(KINDS)}, manifest(gamma=0.5))
    shard = load_shards(tmp_path / "d")
    one, other = (
        numpy_of(given.torch_batches(4, 0, "cpu", n_step=3, **more))
        for given, more in ((shard, {}), (make(KINDS), {"gamma": 0.5}))
    )
    assert np.array_equal(one.rewards, other.rewards)


def test_tensors_that_are_held_keep_their_values():
    arrays = make(KINDS)
    kept = [batch.observations for batch in arrays.torch_batches(2, 0, "cpu")]
    expected = [
        arrays.observations[arrays.observation_rows[b.indices.numpy()]]
        for b in arrays.torch_batches(2, 0, "cpu")
    ]
    assert all(np.array_equal(one.numpy(), other) for one, other in zip(kept, expected, strict=True))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_batches_are_float32_however_they_are_stored(tmp_path, dtype):
    write_dataset(tmp_path / "d", {"train": make(KINDS)}, manifest(observation_dtype=dtype), part_bytes=40)
    batch = next(load_shards(tmp_path / "d").torch_batches(5, 0))
    assert (batch.observations.dtype, tuple(batch.observations.shape)) == (torch.float32, (5, DIM))
    assert (batch.masks.dtype, tuple(batch.masks.shape)) == (torch.bool, (5, VOCABULARY.size))
    assert (batch.observations.device.type == "cuda") == torch.cuda.is_available()


def test_what_cannot_be_asked_for():
    arrays = make(KINDS)
    for wrong in ({"n_step": 2}, {"n_step": 0}):
        with pytest.raises(UsageError, match="steps ahead"):
            list(arrays.torch_batches(4, 0, "cpu", **wrong))
    with pytest.raises(UsageError, match="batches of 0"):
        arrays.torch_batches(0, 0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is CUDA")
def test_pinned_memory_needs_cuda():
    with pytest.raises(UsageError, match="there is none"):
        make(KINDS).torch_batches(4, 0, "cpu", pin=True)


@pytest.mark.skipif(
    not torch.cuda.is_available(),
    reason="this machine has no CUDA device: torch.cuda.is_available() is False",
)
@pytest.mark.parametrize("pin", [True, False])
def test_on_the_gpu_they_are_what_they_are_on_the_cpu(tmp_path, pin):
    arrays = make([(50, True), (30, False)] * 200)
    write_dataset(tmp_path / "d", {"train": arrays}, manifest())
    shard = load_shards(tmp_path / "d")
    found = list(shard.torch_batches(256, 0, "cuda", pin=pin, n_step=2))
    assert all(part.device.type == "cuda" for batch in found for part in batch)
    expected = list(shard.torch_batches(256, 0, "cpu", n_step=2))
    for one, other in zip(found, expected, strict=True):
        assert all(torch.equal(part.cpu(), reference) for part, reference in zip(one, other, strict=True))
