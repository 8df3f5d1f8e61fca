"""The stages of an evaluation: their order, and how much of the data each sees at a time."""

from __future__ import annotations

from logforge.core.stages import Scope
from logforge.evaluation.measuring import measure, row_of
from logforge.evaluation.pipeline import STAGES
from support.chains import check_chain, scopes


def test_an_evaluation_goes_from_a_run_to_a_report():
    check_chain(STAGES)
    assert scopes(STAGES) == {
        "load": [Scope.GLOBAL],
        "judge": [Scope.SPLIT],
        "weigh": [Scope.POLICY],
        "tell": [Scope.GLOBAL],
    }


def test_a_split_is_measured_policy_by_policy():
    assert scopes((measure, row_of)) == {"measure": [Scope.SPLIT], "row_of": [Scope.POLICY]}
