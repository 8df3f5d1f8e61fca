"""Vectors of states are found by their episodes, wherever they lie."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logforge.core.scratch_files import RowSpool
from logforge.dataset.build.state_rows import StateRows
from logforge.schemas.errors import Mismatch

PLACED = {"episode_id": pl.String, "split": pl.String, "steps": pl.Int64}


def held(episodes, cut=3):
    """The rows of (name, split, steps), each row its episode's number and its own; the parts of a split hold `cut` rows or fewer."""
    parts = {}
    for split in ("train", "test"):
        rows = [
            (int(name), row) for name, where, steps in episodes if where == split for row in range(steps + 1)
        ]
        array = np.array(rows, np.float32).reshape(-1, 2)
        parts[split] = [array[start : start + cut] for start in range(0, len(array), cut)] or [array]
    return StateRows.of_splits(parts, pl.DataFrame(episodes, PLACED, orient="row"))


EPISODES = st.lists(st.tuples(st.sampled_from(["train", "test"]), st.integers(1, 4)), min_size=1, max_size=6)


@settings(deadline=None)
@given(EPISODES, EPISODES, st.integers(1, 5), st.data())
def test_any_episodes_in_any_order_come_with_their_own_rows(first, second, cut, data):
    ones = [(str(n), *told) for n, told in enumerate(first)]
    others = [(str(n + len(ones)), *told) for n, told in enumerate(second)]
    rows = held(ones, cut).joined(held(others, 2))
    chosen = data.draw(st.lists(st.sampled_from([*ones, *others]), unique=True))
    found = rows.observations([name for name, _, _ in chosen], [steps for _, _, steps in chosen])
    expected = [[int(name), row] for name, _, steps in chosen for row in range(steps + 1)]
    assert found[:].tolist() == expected
    assert found.shape == (len(expected), 2)


def test_a_whole_split_is_its_own_parts_and_nothing_is_gathered():
    rows = held([("1", "train", 4), ("2", "test", 2), ("3", "train", 3)])
    assert rows.observations(["1", "3"], [4, 3]).parts == rows.rows.parts[:3]


def test_episodes_that_are_left_out_are_not_found():
    rows = held([("1", "train", 1), ("2", "train", 1)]).only(pl.Series(["2"]))
    assert rows.places["episode_id"].to_list() == ["2"]
    assert rows.observations(["2"], [1])[:].tolist() == [[2, 0], [2, 1]]


def test_rows_that_are_not_those_of_the_episodes_are_refused():
    spool = RowSpool(np.float32, (2,))
    spool.append(np.zeros((3, 2)))
    placed = pl.DataFrame([("1", "train", 1)], PLACED, orient="row")
    with pytest.raises(Mismatch, match="train"):
        StateRows.of_splits({"train": [spool]}, placed)
