import dataclasses

import numpy as np
import polars as pl
import pytest

from logforge.dataset.quality.gates import GATES, Measures, check_thresholds, pass_gates
from logforge.schemas.errors import CheckFailed, UsageError
from support.made_chain import walk

ROWS = ("episode_id", "success", "state_key", "state_key_canonical", "action_id", "action_valid", "parent_id")
SEEN = [
    ("a", True, "s1", "c1", 0, True, None),
    ("a", True, "s2", "c2", 0, True, None),
    ("b", False, "s1", "c1", 1, True, None),
    ("b", False, "s3", "c2", 0, True, None),
    ("c", None, "s4", "c4", 0, True, None),
    ("a+", False, "s1", "c2", 1, True, "a/0"),
]
CONFLICTS = [
    ("outcome", "exact", "s1", "a"),
    ("contrast", "exact", "s2", "a"),
    ("outcome", "canonical", "s4", "c"),
]


def measures(rows=SEEN, conflicts=CONFLICTS, arrays=None):
    frame = pl.DataFrame(rows, schema=list(ROWS), orient="row")
    schema = dict.fromkeys(("kind", "level", "state_key", "episode_a"), pl.String)
    return Measures(frame, pl.DataFrame(conflicts, schema=schema, orient="row"), arrays or {})


def test_measures_count_logged_rows_alone():
    found = measures()
    assert found.failure_share.value == 1 / 2, "a succeeds, b fails, c is unknown, the copy does not count"
    assert found.conflict_rate.value == 2 / 5, "both rows of s1; a contrast is no flaw"
    assert found.coverage.value == 1 / 2, "c1 saw two actions, c2 one, and c4 was seen once"


def test_a_label_contradicts_in_every_state_of_its_trajectory():
    label = [("label", "exact", "hash of a trajectory", "b")]
    assert measures(conflicts=label).conflict_rate.value == 3 / 5, "s1 (twice) and s3"


def test_an_invalid_action_covers_nothing():
    rows = [("a", True, "s", "c", 0, True, None), ("b", True, "s", "c", 9, False, None)]
    assert measures(rows).coverage.value is None
    assert measures([*rows, ("d", True, "s", "c", 0, True, None)]).coverage.value == 0


@pytest.mark.parametrize(
    ("gate", "met", "missed"),
    [("min_failure_share", 0.5, 0.51), ("max_conflict_rate", 0.4, 0.39), ("min_coverage", 0.5, 0.6)],
)
def test_a_gate_holds_up_to_its_threshold_and_no_further(gate, met, missed):
    assert [(p.gate, p.threshold) for p in pass_gates({gate: met}, measures())] == [(gate, met)]
    with pytest.raises(CheckFailed, match=gate) as caught:
        pass_gates({gate: missed}, measures())
    assert caught.value.exit_code == 1


def test_every_gate_that_is_missed_is_named():
    with pytest.raises(CheckFailed, match="3 of 4 gates not met") as caught:
        pass_gates(
            {"min_failure_share": 1, "max_conflict_rate": 0, "min_coverage": 1, "max_leak_auc": 1},
            measures(arrays={"train": first_states(leak=0)}),
        )
    assert [problem.rule for problem in caught.value.failures] == list(GATES)[:3]


@pytest.mark.parametrize(
    ("gate", "reason"),
    [
        ("min_failure_share", "no episode has a known outcome"),
        ("min_coverage", "no state was seen twice"),
        ("max_leak_auc", "independent episodes"),
    ],
)
def test_what_cannot_be_measured_fails_its_gate(gate, reason):
    few = measures([("a", None, "s", "c", 0, True, None)], arrays={"train": first_states(0, episodes=4)})
    with pytest.raises(CheckFailed, match=f"cannot be measured: .*{reason}"):
        pass_gates({gate: 0.0 if gate.startswith("min") else 1.0}, few)


def test_without_gates_nothing_is_measured():
    assert pass_gates({}, Measures(pl.DataFrame(), pl.DataFrame(), {})) == []


def first_states(leak, episodes=120):
    """Arrays of a chain whose first observation tells the outcome as plainly as `leak` says."""
    rng = np.random.default_rng(0)
    arrays = walk(episodes, 0.5, seed=1)
    success = rng.integers(0, 2, episodes).astype(np.int8)
    observations = rng.normal(size=arrays.observations.shape).astype(np.float32)
    observations[arrays.observation_offsets[:-1], 0] += leak * success
    return dataclasses.replace(arrays, success=success, observations=observations)


def test_the_leak_gate_sees_an_outcome_in_the_first_state():
    leaky = measures(arrays={"train": first_states(8), "test": first_states(8, 40)})
    with pytest.raises(CheckFailed, match=r"AUC .* is (0\.9|1).* must be at most 0\.9"):
        pass_gates({"max_leak_auc": 0.9}, leaky)
    (passed,) = pass_gates({"max_leak_auc": 0.9}, measures(arrays={"train": first_states(0)}))
    assert passed.value < 0.7


def test_unknown_gates_and_thresholds_outside_0_and_1_are_refused():
    with pytest.raises(UsageError, match="did you mean 'min_coverage'"):
        check_thresholds({"min_covrage": 0.1})
    with pytest.raises(UsageError, match="no share"):
        check_thresholds({"min_coverage": 3})
