"""Credit against key steps: golden correlations and agreements, laws, and the way from a file to the report."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from logforge.cli.commands import main
from logforge.evaluation.credit.agreement import consistency, credit_agreement, krippendorff_alpha, spearman
from logforge.schemas.errors import CheckFailed, UsageError
from logforge.store.store import Store

NO = np.nan
FOUR = np.array([
    [1, 2, 3, 3, 2, 1, 4, 1, 2, NO, NO, NO],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, NO, 3],
    [NO, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, NO],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, NO],
])  # fmt: skip
"""Four observers, twelve units: Krippendorff (2011), part D, where the interval α is 0.849."""
TWO = np.array([[0, 1, 0, 0, 0, 0, 0, 0, 1, 0], [1, 1, 1, 0, 0, 1, 0, 0, 0, 0]], float)
"""Two observers, ten units, yes or no: the same source, part A, where α is 0.095."""
NUMBERS = st.lists(st.integers(-3, 3), min_size=2, max_size=12)


@pytest.mark.parametrize(
    ("a", "b", "rho"),
    [
        ([1, 2, 3, 4], [10, 20, 30, 40], 1.0),
        ([1, 2, 3, 4], [4, 3, 2, 1], -1.0),
        ([1, 2, 2, 3], [1, 3, 2, 4], 4.5 / np.sqrt(4.5 * 5)),
        ([0, 0, 1, 1], [0, 1, 0, 1], 0.0),
        ([0, 0, 0, 1], [1, 2, 3, 4], 3 / np.sqrt(3 * 5)),
    ],
)
def test_rank_correlations_with_ties_are_those_reckoned_by_hand(a, b, rho):
    assert spearman(a, b) == pytest.approx(rho)


def test_what_cannot_be_ranked_has_no_correlation():
    assert np.isnan(spearman([1, 1, 1], [1, 2, 3]))
    assert np.isnan(spearman([], []))
    with pytest.raises(UsageError, match="one length"):
        spearman([1, 2], [1, 2, 3])


@given(NUMBERS, st.randoms(use_true_random=False))
def test_only_the_order_counts(values, random):
    other = [random.randint(-3, 3) for _ in values]
    rho = spearman(values, other)
    assert spearman([v**3 + 1 for v in values], other) == pytest.approx(rho, nan_ok=True)
    assert spearman([-v for v in values], other) == pytest.approx(-rho, nan_ok=True)
    assert spearman(other, values) == pytest.approx(rho, nan_ok=True)


def test_agreement_is_that_of_its_source():
    assert krippendorff_alpha(FOUR.T) == pytest.approx(0.849, abs=5e-4)
    assert krippendorff_alpha(TWO.T) == pytest.approx(0.095, abs=5e-4)


def test_agreement_is_perfect_absent_or_unknown():
    same = np.array([[1.0, 0, 0.5], [1, 0, 0.5]])
    assert krippendorff_alpha(same.T) == 1.0
    assert krippendorff_alpha(np.array([[1.0, 0], [0, 1]]).T) < 0
    assert np.isnan(krippendorff_alpha(np.array([[1.0, NO], [NO, 1]]).T))
    assert np.isnan(krippendorff_alpha(np.zeros((2, 4)).T))


def test_silence_earns_nothing_and_what_ranks_nothing_is_left_out():
    truth = [np.array([0.0, 0, 1]), np.array([0.0, 0]), np.array([0.0, 1])]
    credit = [np.array([0.1, 0.1, 0.1]), np.array([1.0, 2]), np.array([1.0, 2])]
    assert np.array_equal(consistency(credit, truth), [0.0, NO, 1.0], equal_nan=True)


@pytest.fixture
def judged(run, store, tmp_path):
    """Two annotators to whom the last step of every episode is key; the second one also thinks so of the first."""
    with Store(store) as opened:
        last = opened.sql(
            "SELECT episode_id, max(step) AS step FROM transitions GROUP BY ALL ORDER BY ALL"
        ).rows()
    rows = {}
    for episode, step in last:
        rows[episode, 0, "bo"] = 0.5
        rows[episode, step, "ana"] = rows[episode, step, "bo"] = True
    fields = ("episode_id", "step", "annotator", "key")
    lines = [dict(zip(fields, (*place, key), strict=True)) for place, key in rows.items()]
    path = tmp_path / "key_steps.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_credit_of_the_last_step_agrees_with_who_blames_it(run, store, judged):
    with Store(store) as opened:
        report = credit_agreement(opened, run, judged, members=3, updates=50)
        assert opened.sql("SELECT count(*) FROM credit").rows() == [(0,)]
    found = report.consistency
    assert found["last"].value > 0.7
    assert found["uniform"].value == 0.0
    assert found["last"].low <= found["last"].value <= found["last"].high
    assert all(-1 <= one.value <= 1 for one in found.values())
    assert report.annotators == ("ana", "bo")
    assert report.episodes + report.unranked == 12
    assert 0.5 < report.alpha < 1
    assert "ρ with key steps" in report.render()


def test_the_command_tells_the_same_and_refuses_what_is_not_there(run, store, judged):
    call = ["credit-agreement", str(run), str(judged), "--store", str(store), "--method", "last"]
    done = CliRunner().invoke(main, [*call, "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert list(told["consistency"]) == ["last"]
    assert told["consistency"]["last"]["value"] > 0.7
    judged.write_text(
        judged.read_text() + '{"episode_id": "none", "step": 0, "annotator": "ana", "key": true}\n'
    )
    refused = CliRunner().invoke(main, call)
    assert refused.exit_code == 1
    assert "unknown_episode" in str(refused.exception or "") + refused.output


def test_too_few_judged_episodes_give_no_figure(run, store, judged, tmp_path):
    few = tmp_path / "few.jsonl"
    few.write_text("".join(judged.read_text().splitlines(keepends=True)[:2]))
    with Store(store) as opened:
        report = credit_agreement(opened, run, few, method="return")
        assert report.consistency["return"].value is None
        assert "independent episodes" in report.consistency["return"].reason
        few.write_text("{}\n")
        with pytest.raises(CheckFailed, match="missing_field"):
            credit_agreement(opened, run, few, method="return")
