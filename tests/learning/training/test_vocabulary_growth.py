"""An earlier dataset's actions and columns in a later one: what was known stays, what is new begins fresh."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logforge.learning.policies.layers import Layer, outputs
from logforge.learning.training.vocabulary_growth import Growth
from logforge.schemas.errors import Mismatch
from logforge.schemas.manifest import EncoderRef, FeatureSlice, Vocabulary
from support import made_tasks as tasks

OLD = tasks.vocabulary()
NEW = tasks.vocabulary(["e", "f"])


def net(rng, inputs, actions, hidden=5):
    shapes = ((hidden, inputs), (hidden, hidden), (actions, hidden))
    return tuple(
        Layer(rng.normal(size=shape).astype(np.float32), rng.normal(size=shape[0]).astype(np.float32))
        for shape in shapes
    )


@given(st.integers(0, 2**32 - 1))
def test_earlier_actions_score_as_before_whatever_stands_in_new_columns(seed):
    rng = np.random.default_rng(seed)
    old, new = tasks.manifest(OLD), tasks.manifest(NEW)
    growth = Growth.between(old, new, "it")
    before = net(rng, old.observation_size, OLD.size)
    fresh = net(rng, new.observation_size, NEW.size)
    rows = rng.normal(size=(7, old.observation_size)).astype(np.float32)
    after = growth.layers(before, fresh)
    grown = growth.observations(rows)
    assert grown.shape == (7, new.observation_size)
    assert np.allclose(outputs(after, grown)[:, : OLD.size], outputs(before, rows), atol=1e-4)
    elsewhere = np.setdiff1d(np.arange(new.observation_size), growth.columns)
    grown[:, elsewhere] = rng.normal(size=(7, len(elsewhere)))
    assert np.allclose(outputs(after, grown)[:, : OLD.size], outputs(before, rows), atol=1e-4)
    assert (after[-1].weight[OLD.size :] == fresh[-1].weight[OLD.size :]).all()
    for part in new.layout:
        if part.name != "mask":
            assert (grown[:, part.start : part.stop] == rows[:, part.start : part.stop]).all()


def test_nothing_new_changes_nothing():
    growth = Growth.between(tasks.manifest(OLD), tasks.manifest(OLD), "it")
    assert not growth.changes
    before = net(np.random.default_rng(0), growth.size, OLD.size)
    for mine, theirs in zip(growth.layers(before, before), before, strict=True):
        assert (mine.weight == theirs.weight).all()
        assert (mine.bias == theirs.bias).all()
    assert Growth.between(tasks.manifest(OLD), tasks.manifest(NEW), "it").changes


def test_masks_grow_by_what_was_not_on_offer():
    growth = Growth.between(tasks.manifest(OLD), tasks.manifest(NEW), "it")
    masks = growth.masks(np.ones((3, OLD.size), bool))
    assert masks[:, : OLD.size].all()
    assert not masks[:, OLD.size :].any()


@pytest.mark.parametrize(
    ("said", "later"),
    [
        ("action vocabulary", tasks.manifest(Vocabulary.build(["a", "b", "bb", "c", "d"]))),
        ("action vocabulary", tasks.manifest(Vocabulary.build(["a", "b"]))),
        (
            "blocks of an observation",
            tasks.manifest(OLD, layout=(FeatureSlice("all", 0, 15),), observation_size=15),
        ),
        (
            "columns of the block 'features'",
            tasks.manifest(
                OLD,
                layout=(
                    FeatureSlice("context", 0, 2),
                    FeatureSlice("features", 2, 9),
                    FeatureSlice("mask", 9, 16),
                ),
                observation_size=16,
            ),
        ),
        (
            "meaning of the block 'features'",
            tasks.manifest(
                OLD,
                layout=(
                    FeatureSlice("context", 0, 2),
                    FeatureSlice("features", 2, 8, "others"),
                    FeatureSlice("mask", 8, 15),
                ),
            ),
        ),
        ("encoder", tasks.manifest(OLD, encoder=EncoderRef("hashing", "1", 64, 2))),
        ("state settings", tasks.manifest(OLD, config={"state": {"window_turns": 3}})),
    ],
)
def test_another_meaning_is_refused_with_its_reason(said, later):
    with pytest.raises(Mismatch, match=f"it: {said}"):
        Growth.between(tasks.manifest(OLD), later, "it")


def test_another_reduction_of_texts_is_refused():
    sealed = [tasks.manifest(OLD).sealed({}, None, {"encoder/pca.npz": sum_}) for sum_ in ("one", "two")]
    with pytest.raises(Mismatch, match="encoder files"):
        Growth.between(*sealed, "it")
