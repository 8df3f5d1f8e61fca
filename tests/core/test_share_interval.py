"""Intervals of shares: by published figures, at 0 and 1, and against what they promise, by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logforge.core.intervals import difference, share


def ones(won, of):
    return (np.arange(of) < won).astype(float)[None]


@pytest.mark.parametrize(
    ("won", "of", "low", "high"),
    [(0, 20, 0.0, 0.1684), (20, 20, 0.8316, 1.0), (10, 100, 0.0490, 0.1762), (1, 10, 0.0025, 0.4450)],
)
def test_clopper_and_pearsons_interval(won, of, low, high):
    """1 of 10 and 10 of 100 stand in tables; of 0 the upper end is 1 − 0.025 ** (1 / n)."""
    assert share(ones(won, of)) == pytest.approx((won / of, low, high, ""), abs=1e-3)


def test_seeds_on_the_same_episodes_are_no_more_episodes():
    alone, same = share(ones(3, 30)), share(np.repeat(ones(3, 30), 4, axis=0))
    assert same == pytest.approx(alone)
    assert share(np.zeros((5, 20))).high == pytest.approx(share(np.zeros((1, 20))).high)
    shaky = share(np.concatenate([ones(0, 40), ones(40, 40)]))
    steady = share(np.concatenate([ones(20, 40), ones(20, 40)]))
    assert shaky.high - shaky.low > 2 * (steady.high - steady.low)


def test_no_difference_in_a_few_episodes_is_no_proof_of_none():
    found = difference(ones(7, 20), ones(7, 20))
    assert (found.value, found.low) == (0, pytest.approx(-found.high))
    assert found.high == pytest.approx(2.093 / 22, abs=1e-3)
    assert difference(ones(20, 20), ones(0, 20)).low > 0.6


@given(st.integers(1, 60), st.integers(0, 60), st.integers(1, 3))
def test_an_interval_holds_its_share_and_is_never_a_point(of, won, seeds):
    wins = np.repeat(ones(min(won, of), of), seeds, axis=0)
    found = share(wins)
    assert 0 <= found.low <= found.value <= found.high <= 1
    assert found.high > found.low
    gap = difference(wins, 1 - wins)
    assert -1 <= gap.low < gap.high <= 1


@pytest.mark.parametrize("chance", [0.02, 0.5, 0.98])
def test_intervals_cover_what_they_promise(chance):
    rng = np.random.default_rng(0)
    found = [share((rng.random((1, 25)) < chance).astype(float)) for _ in range(400)]
    assert np.mean([one.low <= chance <= one.high for one in found]) >= 0.94
    pairs = [difference(*((rng.random((2, 1, 25)) < chance).astype(float))) for _ in range(400)]
    assert np.mean([one.low <= 0 <= one.high for one in pairs]) >= 0.93


@pytest.mark.parametrize(("seeds", "promised"), [(2, 0.86), (3, 0.91)])
def test_intervals_cover_what_they_promise_where_seeds_differ(seeds, promised):
    """Seeds 0.1 apart, half of their luck shared. By the episodes' degrees of freedom alone it is 76 to 85 % of two, 85 to 91 % of three."""
    rng, held = np.random.default_rng(seeds), np.zeros(2)

    def played():
        chances = np.clip(0.5 + 0.1 * rng.normal(size=(seeds, 1)), 0.01, 0.99)
        shared = rng.random((seeds, 200)) < 0.5
        return (np.where(shared, rng.random(200), rng.random((seeds, 200))) < chances).astype(float)

    for _ in range(500):
        one, other = played(), played()
        alone, gap = share(one), difference(one, other)
        held += alone.low <= 0.5 <= alone.high, gap.low <= 0 <= gap.high
    assert (held >= promised * 500).all(), held / 500


def test_one_episode_of_several_policies_still_has_an_interval():
    found = share(np.array([[1.0], [0.0]]))
    assert 0 <= found.low < 0.5 < found.high <= 1
    assert difference(np.array([[1.0]]), np.array([[0.0]]))[1:3] == (-1, 1)
