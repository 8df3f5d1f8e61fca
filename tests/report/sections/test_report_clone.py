"""The section on clone risk: the log's habits as SQL, and what they mean for the dataset's spec."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from logforge.report.sections import clone
from logforge.rewards.lint.logs import _habit_shares
from logforge.rewards.spec import parse_spec
from support.made_report import episode, given, plant

SPEC = "gamma: 0.9\nterms:\n  success: {when: success, value: {pay}, at: terminal}\n  cost: {value: -0.1}\n"
TALK = {"action": "respond", "kind": "respond", "result": None, "result_status": None}


def habits():
    """Every habit of the small world, once or more."""
    again = {"action": "find", "arguments": "{}"}
    yield episode("won", "find", "book", again, dict(again), TALK)
    yield episode(
        "lost",
        {"action": "ask", "kind": "clarify", "result_status": None},
        {"action": "ghost", "action_valid": False},
        {"action": "find", "result_status": "error"},
        {"action": "clock"},
        TALK,
        TALK,
        success=False,
    )
    yield episode("cut", TALK, ending="truncated", success=None)


def measured(store, pay):
    spec = parse_spec(SPEC.replace("{pay}", str(pay)))
    return clone.measure(
        given(plant(store, *habits()), manifest=SimpleNamespace(reward={"scales": {}}), spec=spec)
    )


def test_habits_are_those_that_reward_lint_counts(store):
    query = measured(store, 10).queries[0]
    shares = dict(zip(query.column("habit"), query.column("share"), strict=True))
    assert len(shares) == 8
    assert shares == pytest.approx(_habit_shares(list(store.episodes())))


def test_a_small_pay_for_the_outcome_is_a_risk_and_a_large_one_is_none(store):
    small = measured(store, 1)
    assert small.level == "note"
    assert small.number("alpha_logged") < 1
    assert "clones the log" in small.findings[0].text
    store.con.execute("DELETE FROM episodes; DELETE FROM steps; DELETE FROM transitions; DELETE FROM splits")
    assert measured(store, 1000).level == "good"


def test_without_the_dataset_s_folder_it_says_why(store):
    section = clone.measure(plant(store, episode("a", "x")))
    assert section.findings[0].text.startswith("not told: no dataset in")
    assert section.numbers == ()
