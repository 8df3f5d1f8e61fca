"""Success, steps and learning curves against numbers reckoned by hand."""

from __future__ import annotations

import numpy as np
import pytest

from logforge.evaluation.sample_efficiency import Reached, curve_area, interactions_to, outcomes
from logforge.schemas.errors import UsageError

SIZES = (100, 200, 400)


def test_the_area_is_the_mean_success_on_the_way():
    assert curve_area(SIZES, (0.2, 0.4, 0.8)) == pytest.approx((100 * 0.3 + 200 * 0.6) / 300)
    assert curve_area(SIZES, (0.5, 0.5, 0.5)) == pytest.approx(0.5)


def test_a_goal_is_reached_between_two_points_or_never():
    assert interactions_to(0.6, SIZES, (0.2, 0.4, 0.8)) == Reached(pytest.approx(300), 400)
    assert interactions_to(0.4, SIZES, (0.2, 0.4, 0.8)).interactions == pytest.approx(200)
    assert interactions_to(0.1, SIZES, (0.2, 0.4, 0.8)).interactions == 100
    never = interactions_to(0.9, SIZES, (0.2, 0.4, 0.8))
    assert never == Reached(None, 400)
    assert str(never) == "never reached (by 400)"
    assert interactions_to(0.6, SIZES, (0.2, 0.7, 0.3)).interactions == pytest.approx(180)


@pytest.mark.parametrize("sizes", [(100,), (100, 100, 200), (200, 100, 300)])
def test_what_is_no_curve_is_refused(sizes):
    with pytest.raises(UsageError, match="no learning curve"):
        curve_area(sizes, (0.5,) * len(sizes))
    with pytest.raises(UsageError, match="no learning curve"):
        interactions_to(0.5, sizes, (0.5,) * len(sizes))


def test_outcomes_count_steps_of_successes_alone():
    won = np.arange(40) % 4 > 0
    steps = np.where(won, 6, 20)
    found = outcomes(won, steps)
    assert found.success.value == pytest.approx(0.75)
    assert found.success.low < 0.75 < found.success.high
    assert found.steps[:3] == (6.0, 6.0, 6.0)
    few = outcomes(np.zeros(40, bool), steps)
    assert few.success.value == 0.0
    assert few.steps.value is None
    assert "only 0 independent" in few.steps.reason
