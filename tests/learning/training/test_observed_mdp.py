"""The MDP that a log shows, and where CQL comes to rest in it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from logforge.learning.training.observed_mdp import clone_share, observed
from support import made_chain as chain
from support.made_chain import ALLOWED, CELLS, FORWARD, GAMMA, IDLE, VOCABULARY


def sparse(arrays):
    rewards = np.where(arrays.terminals, 1, 0).astype(np.float32)
    return replace(arrays, rewards=rewards, returns=chain.returns_to_go(rewards, arrays.episode_offsets))


def test_it_is_the_chain():
    arrays = chain.walk(300, 0.4)
    mdp = observed(arrays, GAMMA)
    order = np.unique(arrays.observations, axis=0).argmax(axis=1)  # the cell of each state
    assert sorted(order) == list(range(CELLS))
    assert mdp.counts.sum() == arrays.size
    for state, cell in enumerate(order[: CELLS - 1]):
        follow = mdp.follow[state, FORWARD]
        assert follow.sum() == pytest.approx(float(cell < CELLS - 2))
        if cell < CELLS - 2:
            assert follow[list(order).index(cell + 1)] == 1
        assert mdp.follow[state, IDLE[0], state] == pytest.approx(float(cell < CELLS - 1))
    assert mdp.targets(np.zeros(CELLS))[mdp.taken].max() == pytest.approx(9.9)


@pytest.mark.parametrize("seed", range(4))
def test_the_facts_of_the_chain(seed):
    """α 1: with +10 and −0.1 a step forward in 5 of 5; with +1 at the end and γ 0.99 it clones; with a small α it does not."""
    arrays = chain.walk(200, 0.25, seed)
    assert clone_share(observed(arrays, GAMMA), 1.0) == (0, 0, 0)
    risky = clone_share(observed(sparse(arrays), GAMMA), 1.0)
    assert risky.astray > 0.3
    assert 0 < risky.gap < 0.05
    assert risky.cloned <= risky.astray
    assert clone_share(observed(sparse(arrays), GAMMA), 0.01).astray == 0
    assert clone_share(observed(sparse(arrays), 0.9), 0.3).astray == 0


def test_an_alpha_beyond_all_bounds_leaves_the_favourite_everywhere():
    arrays = chain.walk(200, 0.1, 3)
    found = clone_share(observed(arrays, GAMMA), 1e4)
    assert found.cloned == found.astray == pytest.approx(1.0)
    assert FORWARD in ALLOWED


def test_a_log_whose_states_do_not_repeat_has_none():
    arrays = chain.walk(200, 0.25)
    noise = np.random.default_rng(0).normal(size=arrays.observations.shape).astype(np.float32)
    assert observed(replace(arrays, observations=arrays.observations + noise), GAMMA) is None
    assert observed(chain.walk(2, 1.0), GAMMA) is None
    assert VOCABULARY.size == arrays.action_size
