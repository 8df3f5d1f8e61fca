"""Small made-up splits and their manifest, for tests of whatever reads them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from logforge.schemas.manifest import EncoderRef, FeatureSlice, Manifest, SourceRef, Vocabulary
from logforge.shards.arrays import SplitArrays
from logforge.shards.sides import plain_sides

VOCABULARY = Vocabulary.build(["search", "refund", "unused"])
DIM = 3
LAST = VOCABULARY.id("unused")

episode_kinds = st.lists(st.tuples(st.integers(1, 4), st.booleans()), min_size=1, max_size=8)
"""Length of each episode and whether it truly ended."""


def make(kinds: Sequence[tuple[int, bool]], seed: int = 0) -> SplitArrays:
    """A split with these episodes; column 0 of an observation is its row, a reward is its row plus 1."""
    lengths = np.array([length for length, _ in kinds], np.int64)
    count, steps = len(kinds), int(lengths.sum())
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], lengths.cumsum()]).astype(np.int64)
    ends = np.zeros(steps, bool)
    ends[offsets[1:] - 1] = True
    truly = np.repeat([ended for _, ended in kinds], lengths).astype(bool)
    observations = rng.normal(size=(steps + count, DIM)).astype(np.float32)
    observations[:, 0] = np.arange(steps + count)
    masks = np.ones((steps + count, VOCABULARY.size), bool)
    masks[:, VOCABULARY.invalid] = False
    # The last tool is never used: a guess from the largest id would come out too small.
    used = [i for i in range(VOCABULARY.size) if i not in (LAST, VOCABULARY.invalid)]
    actions = rng.choice(used, steps).astype(np.int32)
    propensities = np.where(np.arange(steps) % 2, np.nan, 0.5).astype(np.float32)
    return SplitArrays(
        **plain_sides(actions, propensities),
        actions=actions,
        rewards=np.arange(1, steps + 1, dtype=np.float32),
        terminals=ends & truly,
        timeouts=ends & ~truly,
        returns=rng.normal(size=steps).astype(np.float32),
        propensities=propensities,
        weights=np.ones(steps, np.float32),
        success=(np.arange(count) % 3 - 1).astype(np.int8),
        groups=np.arange(count, dtype=np.int32),
        augmented=np.zeros(count, bool),
        episode_offsets=offsets,
        observations=observations,
        masks=masks,
        observation_offsets=offsets + np.arange(count + 1),
    )


def altered(arrays: SplitArrays, name: str, where: Any, value: Any) -> SplitArrays:
    """The same with one array changed at one place."""
    array = getattr(arrays, name).copy()
    array[where] = value
    return replace(arrays, **{name: array})


def manifest(**changes: Any) -> Manifest:
    """The manifest of these splits, before it is sealed."""
    fields: dict[str, Any] = {
        "dataset": "made",
        "actions": VOCABULARY.actions,
        "layout": (FeatureSlice("row", 0, 1, "its row"), FeatureSlice("noise", 1, DIM, "noise")),
        "observation_size": DIM,
        "gamma": 0.9,
        "spec_hash": "5bec",
        "config": {"window": 10, "fractions": [0.7, 0.15, 0.15]},
        "sources": (SourceRef("b" * 64, "tau_bench"), SourceRef("a" * 64, "tau_bench")),
        "encoder": EncoderRef("hashing", "1", 64, 2),
        "mask_kinds": {"logged": 3},
        "packages": {"numpy": "2"},
    }
    return Manifest(**{**fields, **changes})
