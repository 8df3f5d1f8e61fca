"""Which states are near: alike in all but the wording of their texts."""

import numpy as np
import polars as pl
import pytest

from logforge.dataset.conflicts.near import near_states
from logforge.schemas.errors import UsageError
from logforge.schemas.manifest import FeatureSlice
from logforge.shards.arrays import SplitArrays

LAYOUT = (
    FeatureSlice("task", 0, 2, ""),
    FeatureSlice("last_message", 2, 4, ""),
    FeatureSlice("meta.errors", 4, 5, ""),
    FeatureSlice("meta.hour_sin", 5, 6, ""),
    FeatureSlice("mask", 6, 8, ""),
)


def dataset(*rows):
    """One step per episode: (split, key, observation), with a parent for those that have a fourth value."""
    named = [(f"e{n}", 0, row[0], row[1], row[3] if len(row) > 3 else None) for n, row in enumerate(rows)]
    schema = {
        "episode_id": pl.String,
        "step": pl.Int32,
        "split": pl.String,
        "state_key": pl.String,
        "parent_id": pl.String,
    }
    arrays = {}
    for split in ("train", "validation", "test"):
        seen = [row[2] for row in rows if row[0] == split]
        final = np.full(len(LAYOUT) + 3, 9.0, np.float32)
        count = len(seen)
        empty = SplitArrays.empty(8, 2)
        arrays[split] = SplitArrays(
            **{
                **{name: getattr(empty, name) for name in empty.__dataclass_fields__},
                "actions": np.zeros(count, np.int32),
                "success": np.zeros(count, np.int8),
                "episode_offsets": np.arange(count + 1),
                "observations": np.array(
                    [r for o in seen for r in (np.array(o, np.float32), final)], np.float32
                ).reshape(-1, 8),
            }
        )
    return pl.DataFrame(named, schema=schema, orient="row"), arrays


def near(*rows, threshold=0.98, layout=LAYOUT):
    transitions, arrays = dataset(*rows)
    return near_states(transitions, arrays, layout, threshold).rows()


A = [1.0, 0.0, 1.0, 0.0, 0.0, 0.3, 1.0, 0.0]
B = [1.0, 0.0, 1.0, 0.1, 0.0, 0.9, 1.0, 0.0]  # other words, another hour


def changed(row, place, value):
    return [value if n == place else v for n, v in enumerate(row)]


def test_states_with_other_words_are_near_whatever_the_time_and_the_split():
    found = near(("train", "a", A), ("test", "b", B))
    assert [row[:2] for row in found] == [("a", "a"), ("b", "a")]
    assert found[0][2] == 1.0
    assert 0.98 <= found[1][2] < 1


def test_the_most_frequent_state_leads():
    found = near(("train", "a", A), ("test", "b", B), ("train", "b", B))
    assert [row[:2] for row in found] == [("a", "b"), ("b", "b")]


@pytest.mark.parametrize(("place", "value"), [(4, 0.5), (6, 0.0), (7, 1.0)])
def test_what_is_no_text_must_be_equal(place, value):
    assert near(("train", "a", A), ("train", "b", changed(B, place, value))) == []


def test_far_texts_augmented_rows_and_a_threshold_of_one_are_near_nothing():
    assert near(("train", "a", A), ("train", "b", changed(B, 3, 2.0))) == []
    assert near(("train", "a", A), ("train", "b", B, "e0/0")) == []
    assert near(("train", "a", A), ("train", "b", B), threshold=1) == []
    assert near(("train", "a", A), ("train", "b", B), layout=LAYOUT[2:]) == []
    assert near() == []


def test_a_threshold_that_is_no_cosine_is_refused():
    for threshold in (0, -0.5, 1.1, float("nan")):
        with pytest.raises(UsageError):
            near(threshold=threshold)
