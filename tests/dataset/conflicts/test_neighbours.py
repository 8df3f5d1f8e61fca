"""The index misses nothing, and groups depend on the vectors alone."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from logforge.dataset.conflicts import neighbours as near_vectors
from logforge.dataset.conflicts.neighbours import leaders, unit


def clustered(rng, rows, size, spread):
    centres = rng.normal(size=(max(1, rows // 8), size))
    return unit(
        (centres[rng.integers(0, len(centres), rows)] + spread * rng.normal(size=(rows, size))).astype(
            np.float32
        )
    )


def plainly(vectors, threshold):
    """Leader clustering, comparing every pair."""
    taken = np.full(len(vectors), -1)
    for row in range(len(vectors)):
        if taken[row] < 0:
            taken[row] = row
            near = vectors.astype(np.float64) @ vectors[row].astype(np.float64) >= threshold
            taken[near & (taken < 0)] = row
    return taken


@pytest.mark.parametrize(
    ("rows", "threshold", "spread"), [(1500, 0.98, 0.05), (1500, 0.6, 0.3), (100, 0.9, 0.1)]
)
def test_groups_are_those_of_comparing_every_pair(rows, threshold, spread):
    vectors = clustered(np.random.default_rng(0), rows, 40, spread)
    taken, cosines = leaders(vectors, threshold)
    assert np.array_equal(taken, plainly(vectors, threshold))
    assert 1 < len(set(taken)) < rows
    exact = (vectors.astype(np.float64) * vectors[taken]).sum(axis=1)
    assert np.allclose(cosines, exact, atol=1e-6)
    assert (cosines >= threshold).all()


@pytest.mark.parametrize("threads", [1, 4])
def test_batches_and_threads_change_nothing(monkeypatch, threads):
    vectors = clustered(np.random.default_rng(1), 900, 30, 0.05)
    expected, _ = leaders(vectors, 0.97)
    monkeypatch.setattr(near_vectors, "_BATCH", 37)
    with threadpool_limits(threads):
        assert np.array_equal(leaders(vectors, 0.97)[0], expected)


def test_both_ways_of_proposing_are_used(monkeypatch):
    vectors = clustered(np.random.default_rng(2), 600, 30, 0.05)
    expected, _ = leaders(vectors, 0.97)
    for selective in (1.0, -1.0):  # the tree always, plain products always
        monkeypatch.setattr(near_vectors, "_SELECTIVE", selective)
        assert np.array_equal(leaders(vectors, 0.97)[0], expected)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 40), st.sampled_from([0.5, 0.9, 0.99]))
def test_laws_of_leaders(seed, rows, threshold):
    rng = np.random.default_rng(seed)
    vectors = clustered(rng, rows, 4, 0.2)
    vectors[rng.random(rows) < 0.1] = 0
    taken, cosines = leaders(vectors, threshold)
    assert len(taken) == len(cosines) == rows
    for row, leader in enumerate(taken):
        assert taken[leader] == leader
        assert leader <= row
        assert row == leader or cosines[row] >= threshold
    heads = sorted(set(taken))
    between = vectors[heads].astype(np.float64) @ vectors[heads].T
    assert (between[np.triu_indices(len(heads), 1)] < threshold + 1e-6).all()


def test_unit_leaves_zeros_as_they_are():
    assert np.array_equal(
        unit(np.array([[0, 0], [3, 4]], np.float32)), np.array([[0, 0], [0.6, 0.8]], np.float32)
    )
