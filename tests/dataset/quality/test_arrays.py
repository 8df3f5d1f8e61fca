import dataclasses
from itertools import pairwise

import numpy as np
import polars as pl
import pytest

from logforge.dataset.actions.vocabulary import ActionSpace
from logforge.dataset.build.transitions import split_arrays
from logforge.dataset.quality.arrays import validate_arrays
from logforge.dataset.quality.transitions import FAILURES
from logforge.schemas.manifest import Vocabulary
from support.made_transitions import episode, frame

SPACE = ActionSpace(Vocabulary(("respond", "clarify", "search", "<invalid>")), {})
MASKS = ([True, False, True, False], [True, True, True, False])


def made():
    """Three episodes, masks that change from step to step, and the arrays that build makes of them."""
    data = [
        *episode("a", [0.1, 0.2, 1.0], success=True),
        *episode("b", [0.5, -1.0], truncated=True),
        *episode("c", [2.0], propensity=0.25, propensity_kind="logged", success=False),
    ]
    for number, row in enumerate(data):
        row["mask"] = MASKS[number % 2]
    rows = frame(data)
    observations = np.random.default_rng(0).normal(size=(len(data) + 3, 5)).astype(np.float32)
    return rows, split_arrays(rows, [3, 2, 1], ["g", "g", "h"], observations, SPACE)


def check(rows, arrays):
    found = validate_arrays(rows, arrays)
    assert found.schema == FAILURES
    return found.select("rule", "episode_id", "step").rows()


def changed(arrays, name, index, value):
    array = getattr(arrays, name).copy()
    array[index] = value
    return dataclasses.replace(arrays, **{name: array})


def test_arrays_of_their_rows_have_no_failures():
    rows, arrays = made()
    assert check(rows, arrays) == []
    assert check(rows[::-1], arrays) == []
    assert check(rows.clear(), type(arrays).empty(5, 4)) == []


@pytest.mark.parametrize(
    ("name", "index", "value", "found"),
    [
        ("actions", 4, 0, [("arrays", "b", 1)]),
        ("rewards", 0, 7.0, [("arrays", "a", 0)]),
        ("returns", 5, np.nan, [("arrays", "c", 0)]),
        ("terminals", 2, False, [("arrays", "a", 2)]),
        ("timeouts", 4, False, [("arrays", "b", 1)]),
        ("weights", 1, 2.0, [("arrays", "a", 1)]),
        ("propensities", 5, 0.5, [("arrays", "c", 0)]),
        ("propensities", 0, 0.5, [("arrays", "a", 0)]),
        ("success", 2, 1, [("arrays", "c", 0)]),
        ("observations", (1, 2), np.nan, [("finite", "a", 1)]),
        ("observations", (3, 0), np.inf, [("finite", "a", 2)]),
        ("masks", (0, 1), True, [("arrays", "a", 0)]),
        # the mask of a step is the next mask of the step before it
        ("masks", (2, 1), True, [("next_state", "a", 1), ("arrays", "a", 2)]),
        ("observation_offsets", 2, 6, [("next_state", "c", 0)]),
    ],
)
def test_each_change_is_named_with_its_step(name, index, value, found):
    rows, arrays = made()
    assert check(rows, changed(arrays, name, index, value)) == found


def test_states_in_another_order_are_found_by_their_masks():
    rows, arrays = made()
    swapped = dataclasses.replace(arrays, masks=arrays.masks[[1, 0, *range(2, len(arrays.masks))]])
    assert ("next_state", "a", 0) in check(rows, swapped)


def test_a_mask_of_another_length_is_a_difference():
    rows, arrays = made()
    short = pl.when(pl.col("episode_id") == "c").then(pl.lit([True])).otherwise("mask")
    assert check(rows.with_columns(mask=short), arrays) == [("arrays", "c", 0)]


def test_arrays_of_other_episodes_are_one_failure():
    rows, arrays = made()
    found = validate_arrays(rows.filter(pl.col("episode_id") != "b"), arrays)
    assert found.select("rule", "detail").rows() == [("arrays", "3 episodes of 6 steps for 2 of 4")]


def test_the_next_observation_is_where_readers_look_for_it():
    _, arrays = made()
    for start, stop in pairwise(arrays.episode_offsets):
        following = arrays.next_observations(np.arange(start, stop - 1))
        np.testing.assert_array_equal(
            following, arrays.observations[arrays.observation_rows[start + 1 : stop]]
        )
