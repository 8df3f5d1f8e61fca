"""The population stability index: its formula, its bins, and what chance gives."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logforge.dataset.diff.drift import LARGE, MODERATE, drift, index, level

COUNTS = st.lists(st.integers(0, 1000), min_size=2, max_size=12)


def test_the_formula():
    a, b = np.array([900.0, 100.0]), np.array([500.0, 500.0])
    p, q = (a + 0.5) / 1001, (b + 0.5) / 1001
    by_hand = sum((y - x) * math.log(y / x) for x, y in zip(p, q, strict=True))
    assert index(a, b) == pytest.approx(by_hand)
    assert index(a, b) == pytest.approx(0.4 * math.log(9), abs=4e-3)  # without the halves


@given(COUNTS, st.randoms(use_true_random=False))
def test_it_is_symmetric_and_0_for_equal_histograms_alone(counts, chance):
    a = np.array(counts, float)
    b = a.copy()
    chance.shuffle(b)
    assert index(a, b) == pytest.approx(index(b, a))
    assert index(a, a) == 0
    assert (index(a, b) > 1e-12) == (not np.array_equal(a, b))


@settings(deadline=None)  # the first example imports scipy
@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=60))
def test_a_sample_has_not_drifted_from_itself_in_any_order(values):
    found = drift("x", values, values[::-1])
    assert (found.psi, found.level, found.count_a) == (0, "stable", len(values))


def test_a_shift_is_large_and_chance_is_not():
    chance = np.random.default_rng(0)
    a = chance.normal(size=5000)
    assert drift("x", a, chance.normal(size=5000)).psi < 0.02
    assert drift("x", a, chance.normal(0.3, size=5000)).level in ("stable", "moderate")
    shifted = drift("x", a, chance.normal(1, size=5000))
    assert (shifted.level, shifted.psi > LARGE) == ("large", True)


def test_few_values_that_differ_by_chance_are_called_noise():
    chance = np.random.default_rng(1)
    found = [drift("x", chance.normal(size=30), chance.normal(size=30)) for _ in range(200)]
    loud = [item for item in found if item.psi > item.noise]
    assert len(loud) <= 8  # 1 in 100 is due
    assert any(item.level == "noise" for item in found)
    assert not [item for item in found if item.level in ("moderate", "large") and item.psi <= item.noise]


@pytest.mark.parametrize("other", [5.0, -5.0, math.nan])
def test_a_constant_that_begins_to_vary_is_seen(other):
    found = drift("x", [0.0] * 100, [0.0] * 50 + [other] * 50)
    assert found.level == "large"


@pytest.mark.parametrize("other", [-1.0, 1.0])
def test_a_value_that_fills_deciles_has_a_bin_of_its_own(other):
    a = [-5.0] * 5 + [0.0] * 90 + [5.0] * 5
    assert drift("x", a, [-5.0] * 5 + [other] * 90 + [5.0] * 5).level == "large"


def test_words_are_their_own_bins():
    assert drift("w", ["a", "b"] * 50, ["b", "a"] * 50).psi == 0
    assert drift("w", ["a", "b"] * 50, ["a", "c"] * 50).level == "large"
    assert drift("w", [], ["a"]) is None


def test_levels_are_those_of_the_literature():
    assert [level(psi, 0) for psi in (0, 0.0999, MODERATE, 0.2499, LARGE)] == [
        "stable",
        "stable",
        "moderate",
        "moderate",
        "large",
    ]
    assert level(0.3, 0.5) == "noise"
