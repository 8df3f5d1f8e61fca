"""The seven metrics, on a fixture that was reckoned by hand, and what holds of them on any."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logforge.core.report import each
from logforge.evaluation.episode_metrics import SEVEN, metrics_of
from support.made_arrays import VOCABULARY, make

RESPOND, SEARCH, REFUND = (VOCABULARY.id(name) for name in ("respond", "search", "refund"))


def fixture():
    """Five episodes of 2, 1, 3, 1 and 1 steps: three succeed, one fails, of one nothing is known; one call was not on offer."""
    arrays = make([(2, True), (1, True), (3, True), (1, True), (1, False)])
    masks = arrays.masks.copy()
    masks[arrays.observation_rows[5], REFUND] = False
    return replace(
        arrays,
        actions=np.array([SEARCH, RESPOND, SEARCH, SEARCH, REFUND, REFUND, RESPOND, SEARCH], np.int32),
        rewards=np.array([0, 1, 1, 0, 0, -1, 1, 0], np.float32),
        success=np.array([1, 1, 0, 1, -1], np.int8),
        masks=masks,
    )


def test_they_are_what_a_hand_reckons():
    found = metrics_of([fixture()], VOCABULARY.actions, {"long": [np.array([1, 0, 1, 0, 0], np.bool_)]})
    assert (found.episodes, found.decisions) == (5, 8)
    assert found.success.value == pytest.approx(3 / 4)
    assert found.steps_of_successes.value == pytest.approx((2 + 1 + 1) / 3)
    assert found.reward.value == pytest.approx((1 + 1 - 1 + 1 + 0) / 5)
    assert found.invalid_calls.value == pytest.approx(1 / 6)
    assert found.tool_entropy.value == pytest.approx(-(4 / 6) * math.log2(4 / 6) - (2 / 6) * math.log2(2 / 6))
    assert found.decision_ms.value is None
    assert "does not say" in found.decision_ms.reason
    assert found.buckets["long"].episodes == 2
    assert found.buckets["long"].success.value == pytest.approx(1 / 2)
    assert set(SEVEN) <= set(each(found))
    for name in ("success", "reward", "invalid_calls", "tool_entropy"):
        one = getattr(found, name)
        assert one.low <= one.value <= one.high


def test_splits_are_taken_together():
    whole = fixture()
    parts = [whole.only(np.arange(5) < 2), whole.only(np.arange(5) >= 2)]
    one, two = metrics_of([whole], VOCABULARY.actions), metrics_of(parts, VOCABULARY.actions)
    for name in ("success", "steps_of_successes", "reward", "invalid_calls", "tool_entropy"):
        assert getattr(one, name).value == pytest.approx(getattr(two, name).value)


def test_what_cannot_be_told_has_a_reason():
    arrays = make([(1, True), (1, True)])
    arrays = replace(arrays, actions=np.full(2, RESPOND, np.int32), success=np.full(2, -1, np.int8))
    found = metrics_of([arrays], VOCABULARY.actions)
    assert found.success.reason == "no outcome is known"
    assert found.steps_of_successes.reason == "nothing succeeded"
    assert found.invalid_calls.reason == found.tool_entropy.reason == "no tool was called"


@given(st.integers(2, 40), st.sampled_from([0, 1]))
def test_a_share_of_none_or_all_is_no_certainty(episodes, verdict):
    arrays = replace(make([(1, True)] * episodes), success=np.full(episodes, verdict, np.int8))
    found = metrics_of([arrays], VOCABULARY.actions).success
    assert found.value == verdict
    assert found.low < found.high
    assert 0 <= found.low <= found.value <= found.high <= 1
    more = replace(make([(1, True)] * (episodes + 5)), success=np.full(episodes + 5, verdict, np.int8))
    wider = metrics_of([more], VOCABULARY.actions).success
    assert wider.high - wider.low < found.high - found.low


@given(st.lists(st.sampled_from([-1, 0, 1]), min_size=2, max_size=30), st.integers(0, 5))
def test_intervals_hold_the_value_and_repeat(verdicts, seed):
    kinds = [(1 + number % 3, True) for number in range(len(verdicts))]
    arrays = replace(make(kinds, seed), success=np.array(verdicts, np.int8))
    one, two = (metrics_of([arrays], VOCABULARY.actions) for _ in range(2))
    assert each(one) == each(two)
    for name in ("success", "reward"):
        found = getattr(one, name)
        assert found.value is None or found.low is None or found.low <= found.value <= found.high
