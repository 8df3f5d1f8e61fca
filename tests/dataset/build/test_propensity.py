"""Estimated propensities: calibrated where the truth is known, cross-fitted, refused where they say nothing."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from logforge.dataset.build.masked_softmax import Calibration, MaskedSoftmax, softmax
from logforge.dataset.build.propensity import calibration_error, estimate_propensities, log_loss
from logforge.envs.behaviour import behaviour
from logforge.envs.catalogue import make
from logforge.envs.learnt import feature_arrays
from logforge.envs.simulation import logged
from logforge.schemas.manifest import Vocabulary

WORLD = make("it-ops")
VOCABULARY = Vocabulary((*WORLD.actions, "<invalid>"))
POLICIES = ("logger", "noise")


def simulated(episodes, seed, text="rule-40"):
    run, *_ = logged(WORLD, behaviour(text), episodes, seed)
    made = feature_arrays(run, 0.99)
    return replace(made, behaviour_policies=np.zeros(made.size, np.int32))


def blank(part):
    """The same split with a log that says nothing of its propensities."""
    return replace(
        part,
        propensities=np.full(part.size, np.nan, np.float32),
        propensity_kinds=np.full(part.size, 3, np.int8),
    )


def rows_of(parts):
    split = [name for name, part in parts.items() for _ in range(part.size)]
    chance = np.concatenate([part.propensities for part in parts.values()]).astype(float)
    kinds = ["missing" if np.isnan(value) else "logged" for value in chance]
    return pl.DataFrame(
        {"split": split, "propensity": pl.Series(chance, nan_to_null=True), "propensity_kind": kinds}
    )


def estimate(parts, policies=("logger",), seed=0):
    return estimate_propensities(rows_of(parts), parts, VOCABULARY, policies, seed)


@pytest.fixture(scope="module")
def known():
    """Logs whose propensities are known, in three splits."""
    made, place = simulated(700, 0), np.arange(700)
    parts = {"train": place < 500, "validation": (place >= 500) & (place < 600), "test": place >= 600}
    return {name: made.only(chosen) for name, chosen in parts.items()}


@pytest.fixture(scope="module")
def found(known):
    return estimate({name: blank(part) for name, part in known.items()})


def test_estimates_are_calibrated_and_near_the_known_propensities(known, found):
    model = found.model
    assert model.refused == ""
    for part in (model.train, model.held_out):
        assert part.ece < 0.04
        assert part.log_loss < part.marginal_log_loss - 0.2
    for name, part in known.items():
        guessed = found.arrays[name].propensities
        assert (found.arrays[name].propensity_kinds == 2).all()
        assert np.corrcoef(guessed, part.propensities)[0, 1] > 0.95
        assert abs(guessed.mean() - part.propensities.mean()) < 0.03


def test_rows_hold_what_the_arrays_hold(known, found):
    held = np.concatenate([part.propensities for part in found.arrays.values()])
    assert (found.rows["propensity"].to_numpy().astype(np.float32) == held).all()
    assert set(found.rows["propensity_kind"]) == {"estimated"}
    assert found.model.written == sum(part.size for part in known.values())


def test_the_same_rows_give_the_same_numbers_and_the_test_split_no_other(known, found):
    parts = {name: blank(part) for name, part in known.items()}
    again = estimate(parts)
    without = estimate({"train": parts["train"], "validation": parts["validation"]})
    for name in ("train", "validation"):
        assert (again.arrays[name].propensities == found.arrays[name].propensities).all()
        assert (without.arrays[name].propensities == found.arrays[name].propensities).all()
    assert again.model.as_dict() == found.model.as_dict()


def test_a_split_group_has_no_part_in_its_own_estimates(known):
    """What one group did is turned round: estimates of the groups in other folds move, its own do not."""
    part = blank(known["train"])
    before = estimate({"train": part}, seed=1)
    group = part.groups[part.episode_index] == 0
    turned = part.actions.copy()
    turned[group] = (turned[group] + 1) % (VOCABULARY.size - 1)
    after = estimate({"train": replace(part, actions=turned)}, seed=1)
    # Same model and mask, other action: compare through a group of the same fold, whose rows stay as they were.
    rng = np.random.default_rng(1).permutation(len(np.unique(part.groups))) % 5
    fold = rng[part.groups[part.episode_index]]
    same, other = (fold == fold[0]) & ~group, fold != fold[0]
    scale = np.log(before.arrays["train"].propensities) - np.log(after.arrays["train"].propensities)
    assert np.abs(scale[same]).max() < np.abs(scale[other]).max()


def test_what_the_log_knows_stays(known):
    part = known["train"]
    half = np.arange(part.size) % 2 == 0
    mixed = replace(
        part,
        propensities=np.where(half, part.propensities, np.nan).astype(np.float32),
        propensity_kinds=np.where(half, 0, 3).astype(np.int8),
    )
    found = estimate({"train": mixed})
    assert (found.arrays["train"].propensities[half] == part.propensities[half]).all()
    assert found.arrays["train"].propensity_kinds.tolist() == np.where(half, 0, 2).tolist()
    assert found.model.written == (~half).sum()


def test_augmented_episodes_are_neither_learnt_from_nor_estimated(known):
    part = blank(known["train"])
    made = np.arange(part.episode_count) % 5 == 0
    found = estimate({"train": replace(part, augmented=made)})
    own = ~made[part.episode_index]
    assert (found.arrays["train"].propensity_kinds == np.where(own, 2, 3)).all()
    assert found.model.train.rows == own.sum()


def test_what_is_no_better_than_frequencies_is_not_written(known):
    part = blank(known["train"])
    noise = np.random.default_rng(0).choice(len(WORLD.actions), part.size).astype(np.int32)
    states = np.random.default_rng(1).normal(size=part.observations.shape).astype(np.float32)
    parts = {"train": replace(part, actions=noise, observations=states)}
    found = estimate(parts)
    assert "no better than how often each action is taken" in found.model.refused
    assert found.arrays["train"] is parts["train"]
    assert set(found.rows["propensity_kind"]) == {"missing"}


def test_too_few_episodes_and_nothing_to_do_are_said(known):
    few = known["train"].only(np.arange(known["train"].episode_count) < 6)
    assert "are needed" in estimate({"train": blank(few)}).model.refused
    assert "every propensity" in estimate({"train": few}).model.refused


def test_policies_that_chose_often_are_told_apart():
    one, two = simulated(250, 0, "rule-10"), simulated(250, 1, "random")
    joined = replace(two, behaviour_policies=np.ones(two.size, np.int32))
    both = blank(_together(one, joined))
    apart = estimate({"train": both}, POLICIES)
    assert set(apart.model.policies) == set(POLICIES)
    truth = np.concatenate([one.propensities, two.propensities])
    guessed = apart.arrays["train"].propensities
    noise = both.behaviour_policies == 1
    assert np.abs(guessed[noise] - truth[noise]).max() < 0.05
    assert (
        np.abs(guessed - truth).mean()
        < np.abs(estimate({"train": both}).arrays["train"].propensities - truth).mean()
    )


def _together(one, two):
    """Two splits as one."""
    fields = {name: getattr(one, name) for name in one.__dataclass_fields__}
    for name, array in fields.items():
        other = getattr(two, name)
        if name in ("episode_offsets", "observation_offsets"):
            fields[name] = np.concatenate([array, other[1:] + array[-1]])
        else:
            fields[name] = np.concatenate([array, other + len(one.groups) if name == "groups" else other])
    return type(one)(**fields)


def test_a_mask_is_kept_and_leaves_one():
    rng = np.random.default_rng(0)
    rows, allowed = rng.normal(size=(300, 4)), rng.random((300, 5)) < 0.6
    actions = rng.integers(0, 5, 300)
    allowed[np.arange(300), actions] = True
    fit = MaskedSoftmax.fit(rows, actions, allowed, 1.0)
    scores = fit.scores(rows)
    chances = Calibration.fit(scores, actions, allowed).chances(scores, allowed)
    assert (chances[~allowed] == 0).all()
    assert np.allclose(chances.sum(axis=1), 1)


def test_calibration_finds_the_temperature_and_the_even_share():
    rng = np.random.default_rng(0)
    scores, allowed = 3 * rng.normal(size=(6000, 4)), np.ones((6000, 4), bool)
    chances = Calibration(1.0, 0.3).chances(scores, allowed)
    actions = (rng.random((6000, 1)) > chances.cumsum(axis=1)).sum(axis=1)
    found = Calibration.fit(scores * 3, actions, allowed)
    assert found.temperature == pytest.approx(3, rel=0.1)
    assert found.even == pytest.approx(0.3, abs=0.04)
    assert calibration_error(chances, actions) < 0.03
    assert calibration_error(softmax(scores * 3, allowed), actions) > 0.1


def test_calibration_error_by_hand():
    chances = np.array([[0.9, 0.1], [0.9, 0.1], [0.2, 0.8], [0.4, 0.6]])
    actions = np.array([0, 1, 1, 1])
    # bin of 0.9: 0.9 against 1/2 (2 rows); 0.8: 1; 0.6: 1
    assert calibration_error(chances, actions) == pytest.approx((2 * 0.4 + 0.2 + 0.4) / 4)
    assert log_loss(chances, actions) == pytest.approx(-np.log([0.9, 0.1, 0.8, 0.6]).mean())
    assert calibration_error(chances[:0], actions[:0]) == 0
