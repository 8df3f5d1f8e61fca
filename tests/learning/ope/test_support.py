"""Which decisions the log supports: similar states, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from logforge.learning.ope.support import NEIGHBOURS, similar_actions
from support.made_arrays import make


def placed(points, actions, lengths):
    """A split whose decisions lie at these points of a line."""
    arrays = make([(length, True) for length in lengths])
    observations = np.zeros_like(arrays.observations)
    observations[:] = 1e6  # final observations are no decisions and must not be found
    observations[arrays.observation_rows] = 0
    observations[arrays.observation_rows, 0] = points
    return replace(arrays, observations=observations, actions=np.array(actions, np.int32))


def test_similar_is_what_lies_within_the_radius_of_other_episodes():
    train = placed([0, 0.1, 1, 1.1, 2, 2.1], [0, 1, 2, 0, 1, 2], [2, 2, 2])
    found = similar_actions(train, placed([-0.05, 2.15, 50], [0, 0, 0], [3]))
    # From 0 to the nearest decision of another episode it is 1.0, from 0.1 it is 0.9: no decision is further than that.
    assert 0.9 <= found.radius <= 1.0
    assert [sorted(row[row >= 0]) for row in found.actions] == [[0, 1], [1, 2], []]
    assert found.shares(np.array([0, 1, 0])) == pytest.approx((0, 1 / 3))
    assert found.shares(np.array([2, 1, 0])) == pytest.approx((1 / 3, 1 / 3))


def test_equal_states_are_similar_whatever_their_size():
    points = np.array([1e3, 1e3, 2e3, 2e3, 3e3, 3e3]) + 0.123
    train = placed(points, [0, 1, 0, 1, 2, 2], [1] * 6)
    found = similar_actions(train, placed(points[::2], [0, 0, 0], [3]))
    assert found.radius == pytest.approx(0, abs=1e-2)
    assert [set(row[row >= 0]) for row in found.actions] == [{0, 1}, {0, 1}, {2}]


def test_only_the_nearest_are_looked_at():
    count = 3 * NEIGHBOURS
    train = placed(np.linspace(0, 1, count), [0] * NEIGHBOURS + [1] * (count - NEIGHBOURS), [1] * count)
    train = replace(train, observations=train.observations * np.float32(1))
    found = similar_actions(train, placed([0.0], [0], [1]))
    assert found.actions.shape == (1, NEIGHBOURS)
    assert set(found.actions[0]) <= {0, -1}


def test_one_train_episode_has_no_other_to_measure_a_radius_with():
    train = placed([0, 1], [0, 1], [2])
    found = similar_actions(train, placed([0, 0.5], [0, 0], [2]))
    assert found.radius == 0
    assert [list(row[row >= 0]) for row in found.actions] == [[0], []]


def test_augmented_copies_and_siblings_of_a_group_do_not_shrink_the_radius():
    """A twin lies where its parent lies, and trials of one task lie together; held-out episodes have neither in train."""
    plain = placed([0, 1, 2, 3], [0, 1, 2, 3], [1] * 4)
    with_twins = placed([0, 0.01, 1, 1.01, 2, 2.01, 3, 3.01], [0, 0, 1, 1, 2, 2, 3, 3], [1] * 8)
    held = placed([0.4], [0], [1])
    groups = np.repeat(np.arange(4, dtype=np.int32), 2)
    siblings = replace(with_twins, groups=groups)
    twins = replace(siblings, augmented=np.arange(8) % 2 == 1)
    assert similar_actions(plain, held).radius == pytest.approx(1)
    assert similar_actions(siblings, held).radius == pytest.approx(1, abs=0.02)
    assert similar_actions(twins, held).radius == pytest.approx(1)
    assert (similar_actions(twins, held).actions == similar_actions(plain, held).actions).all()
