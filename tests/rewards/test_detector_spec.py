"""The spec of detectors alone: it ranks, and lint says that nobody should train on it."""

from __future__ import annotations

import pytest
from benchmarks.ranking import DETECTORS, EARLY_EXIT

from logforge.rewards.lint.pipeline import lint
from logforge.rewards.pipeline import load_spec, parse_spec
from logforge.rewards.sql.query import used_columns


def test_it_knows_no_outcome():
    assert not used_columns(load_spec(DETECTORS)) & {
        "success",
        "score",
        "ending",
        "ending_reason",
        "logged_reward",
    }


@pytest.mark.parametrize(
    "spec", [load_spec(DETECTORS), parse_spec(EARLY_EXIT)], ids=["detectors", "step cost"]
)
def test_a_spec_that_ranks_by_length_is_flagged(spec):
    """On tau-bench the length alone ranks as well as anything (AUC 0.68), and stopping at once is its optimum."""
    report = lint(spec)
    assert not report.passed
    assert "early_exit" in {item.rule for item in report.findings if item.level == "error"}
