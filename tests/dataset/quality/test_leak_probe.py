import numpy as np
import pytest

from logforge.dataset.quality.leak_probe import leak_auc


def world(leak, episodes=240, trials=4, seed=0, width=30):
    """First observations of `episodes / trials` tasks; `leak` is how much of the outcome stands in one feature."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(episodes // trials), trials)
    task = rng.normal(size=(episodes // trials, width))[groups]
    success = rng.integers(0, 2, episodes)
    task[:, 3] += leak * success
    return task, success, groups


def test_an_outcome_in_the_first_state_is_found():
    found = leak_auc(*world(leak=8.0))
    assert found.value > 0.97
    assert found.low > 0.9


def test_noise_predicts_nothing():
    values = [leak_auc(*world(leak=0.0, seed=seed)).value for seed in range(8)]
    assert abs(np.mean(values) - 0.5) < 0.03, "no bias by the base rates of the folds"


def test_knowing_a_task_by_heart_is_no_leak():
    """Each task has its own outcome and its own features: a random split would predict it, a grouped one cannot."""
    rng = np.random.default_rng(1)
    groups = np.repeat(np.arange(40), 6)
    features = rng.normal(size=(40, 60))[groups]
    success = rng.integers(0, 2, 40)[groups]
    found = leak_auc(features, success, groups)
    assert found.low < 0.5 < found.high
    assert leak_auc(features, success, np.arange(240)).value > 0.95


def test_unknown_outcomes_are_left_out():
    features, success, groups = world(leak=8.0)
    more = np.vstack([features, np.full((50, 30), 1e6)])
    unknown = np.concatenate([success, np.full(50, -1)])
    assert leak_auc(more, unknown, np.concatenate([groups, groups[:50]])) == leak_auc(
        features, success, groups
    )


def test_the_same_input_gives_the_same_answer_and_constant_features_none():
    features, success, groups = world(leak=1.0)
    assert leak_auc(features, success, groups, seed=3) == leak_auc(features, success, groups, seed=3)
    assert leak_auc(np.ones_like(features), success, groups).value == pytest.approx(0.5)


@pytest.mark.parametrize("success", [np.ones(20), np.full(20, -1), np.r_[np.ones(18), 0, 0]])
def test_too_little_gives_the_reason(success):
    found = leak_auc(np.zeros((20, 2)), success, np.arange(20))
    assert found.value is None
    assert "independent episodes" in found.reason
