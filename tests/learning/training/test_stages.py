"""The stages of a training run: their order, and how much of the data each sees at a time."""

from __future__ import annotations

from logforge.core.stages import Scope
from logforge.learning.training.pipeline import MEMBER, STAGES
from support.chains import check_chain, scopes


def test_training_goes_from_a_dataset_to_a_report():
    check_chain(STAGES)
    assert scopes(STAGES) == {
        "load": [Scope.GLOBAL],
        "fit": [Scope.MEMBER, Scope.EPOCH],
        "value": [Scope.POLICY],
        "serve": [Scope.MEMBER],
        "tell": [Scope.GLOBAL],
    }


def test_a_member_is_measured_by_the_epoch_and_settled_once():
    assert scopes(MEMBER) == {"measured": [Scope.EPOCH], "settled": [Scope.MEMBER]}
