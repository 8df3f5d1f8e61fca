import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logforge.rewards.returns import returns_to_go
from logforge.schemas.errors import UsageError


def recursion(rewards, offsets, gamma):
    """G_t = r_t + γ G_{t+1}, step by step."""
    returns = [0.0] * len(rewards)
    for start, stop in pairwise(offsets):
        following = 0.0
        for row in range(stop - 1, start - 1, -1):
            following = float(rewards[row]) + gamma * following
            returns[row] = following
    return np.array(returns, dtype=np.float64)


def flat(episodes):
    offsets = np.concatenate([[0], np.cumsum([len(e) for e in episodes])]).astype(np.int64)
    return np.array([r for e in episodes for r in e], dtype=np.float64), offsets


floats = st.floats(-1e6, 1e6, allow_nan=False)
gammas = st.one_of(st.just(1.0), st.floats(0.01, 1.0))


@given(st.lists(st.lists(floats, max_size=12), max_size=8), gammas)
def test_equals_the_recursion_bit_for_bit(episodes, gamma):
    rewards, offsets = flat(episodes)
    assert np.array_equal(returns_to_go(rewards, offsets, gamma), recursion(rewards, offsets, gamma))


@given(st.lists(st.lists(floats, min_size=1, max_size=12), min_size=1, max_size=8), gammas, st.randoms())
def test_does_not_depend_on_the_order_of_episodes(episodes, gamma, random):
    shuffled = list(range(len(episodes)))
    random.shuffle(shuffled)
    rewards, offsets = flat(episodes)
    mixed, mixed_offsets = flat([episodes[i] for i in shuffled])
    straight, turned = returns_to_go(rewards, offsets, gamma), returns_to_go(mixed, mixed_offsets, gamma)
    for place, i in enumerate(shuffled):
        one = turned[mixed_offsets[place] : mixed_offsets[place + 1]]
        assert np.array_equal(straight[offsets[i] : offsets[i + 1]], one)


@settings(deadline=None)
@given(st.sampled_from([0.9, 0.99, 1.0]))
def test_a_long_episode_neither_underflows_nor_drifts(gamma):
    rewards = np.ones(10_000)
    found = returns_to_go(rewards, np.array([0, 10_000]), gamma)
    assert np.isfinite(found).all()
    exact = 10_000.0 if gamma == 1.0 else (1 - gamma**10_000) / (1 - gamma)
    assert math.isclose(found[0], exact, rel_tol=1e-12)
    assert found[-1] == 1.0
    assert np.array_equal(found, recursion(rewards, [0, 10_000], gamma))


def test_nothing_gives_nothing():
    assert returns_to_go(np.array([]), np.array([0]), 0.99).shape == (0,)
    assert returns_to_go(np.array([]), np.array([0, 0, 0]), 0.99).shape == (0,)


def test_one_step_episodes_return_their_reward():
    rewards = np.array([3.0, -1.0, 0.5])
    assert np.array_equal(returns_to_go(rewards, np.array([0, 1, 2, 3]), 0.5), rewards)


def test_an_episode_without_steps_takes_nothing_from_its_neighbours():
    found = returns_to_go(np.array([1.0, 2.0, 4.0]), np.array([0, 2, 2, 3]), 0.5)
    assert found.tolist() == [2.0, 2.0, 4.0]


def test_a_missing_reward_spoils_its_own_episode_only():
    found = returns_to_go(np.array([1.0, np.nan, 1.0, 5.0]), np.array([0, 3, 4]), 1.0)
    assert np.isnan(found[:2]).all()
    assert found[2:].tolist() == [1.0, 5.0]


def test_inputs_are_left_as_they_are():
    rewards, offsets = np.array([1.0, 2.0]), np.array([0, 2])
    returns_to_go(rewards, offsets, 0.5)
    assert rewards.tolist() == [1.0, 2.0]
    assert offsets.tolist() == [0, 2]


@pytest.mark.parametrize("gamma", [0.0, -0.1, 1.1, float("nan"), float("inf")])
def test_refuses_gamma_outside_its_range(gamma):
    with pytest.raises(UsageError, match="gamma"):
        returns_to_go(np.array([1.0]), np.array([0, 1]), gamma)


@pytest.mark.parametrize("offsets", [[], [0], [1, 2], [0, 1], [0, 3], [0, 2, 1, 2]])
def test_refuses_offsets_that_do_not_cut_the_rewards(offsets):
    with pytest.raises(UsageError, match="offsets"):
        returns_to_go(np.array([1.0, 2.0]), np.array(offsets, dtype=np.int64), 0.9)
