"""What stands where an outcome stands is read, or leaves a trace; a placeholder is no outcome."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logforge.connectors.benchmarks.tau_bench import Agent, agent_of
from logforge.connectors.detection import detect
from logforge.connectors.episodes.judgements import (
    SCORE_KEYS,
    SUCCESS_KEYS,
    Outcome,
    failure_in,
    read_outcome,
    read_reward,
)
from logforge.connectors.records import Source
from logforge.schemas.episode import Episode, Reject

TALK = [{"role": "user", "content": "Fix it"}, {"role": "assistant", "content": "Fixed."}]
ROWS: dict[str, dict[str, Any]] = {
    "openai_messages": {"messages": TALK},
    "sharegpt_tools": {
        "conversations": [{"from": "human", "value": "Fix it"}, {"from": "gpt", "value": "Fixed."}]
    },
    "trl": {"prompt": "Fix it", "completion": "Fixed."},
    "rated_chat": {"question": "Fix it", "answer": "Fixed.", "rating": 4},
}
"""Rows with a place for an outcome, by the connector that reads them."""


def readings(tmp_path, rows, name=None, file="rows.jsonl"):
    path = tmp_path / file
    text = json.dumps(rows[0]) if file.endswith(".json") else "\n".join(map(json.dumps, rows))
    path.write_text(text, "utf-8")
    connector = detect(path)[0].connector
    assert name is None or connector.name == name
    return list(connector.read(Source(path, "log")))


def episodes(found):
    return [reading for reading in found if isinstance(reading, Episode)]


def parts(found):
    return [reading for reading in found if isinstance(reading, Reject) and reading.level == "part"]


@pytest.mark.parametrize(
    ("row", "outcome"),
    [
        ({"resolved": 1}, (True, None, "resolved")),
        ({"resolved": 0}, (False, None, "resolved")),
        ({"resolved": "true"}, (True, None, "resolved")),
        ({"passed": "FAIL"}, (False, None, "passed")),
        ({"success": "1.0"}, (True, None, "success")),
        ({"label": False, "reward": 0.25}, (False, 0.25, "label+reward")),
        ({"reward": "0.8"}, (None, 0.8, "reward")),
        ({"reward": " -1e-3 "}, (None, -0.001, "reward")),
        ({"reward": True}, (True, 1.0, "reward")),
        ({"score": "PASS"}, (True, 1.0, "score")),
        ({"score": 1}, (None, 1.0, "score")),
        ({"success": None, "resolved": True}, (True, None, "resolved")),
        ({}, (None, None, None)),
    ],
)
def test_values_that_are_read(row, outcome):
    rejects: list[Reject] = []
    assert read_outcome(row, "log:1", rejects)[:3] == outcome
    assert rejects == []


@pytest.mark.parametrize(
    ("row", "place", "reason"),
    [
        ({"reward": {"format": 0.1}}, "log:1#/reward", "reward is no single number"),
        ({"reward": [0.0, 1.0]}, "log:1#/reward", "reward is no single number"),
        ({"reward": math.nan}, "log:1#/reward", "reward is no finite number"),
        ({"score": math.inf}, "log:1#/score", "score is no finite number"),
        ({"score": "1_000"}, "log:1#/score", "score is no single number"),
        ({"score": "80%"}, "log:1#/score", "score is no single number"),
        ({"passed": 12}, "log:1#/passed", "passed is neither true nor false"),
        ({"resolved": {"tests": True}}, "log:1#/resolved", "resolved is neither true nor false"),
        ({"success": "maybe"}, "log:1#/success", "success is neither true nor false"),
    ],
)
def test_values_that_are_set_aside(row, place, reason):
    rejects: list[Reject] = []
    outcome = read_outcome(row, "log:1", rejects)
    assert not outcome.known
    assert outcome.unknown == f"{next(iter(row))} cannot be read"
    assert [(r.locator, r.reason, r.rule, r.level) for r in rejects] == [
        (place, reason, "unreadable_outcome", "part")
    ]


def test_a_verdict_that_contradicts_the_first_is_told():
    rejects: list[Reject] = []
    assert read_outcome({"success": True, "resolved": 0, "passed": 1}, "log:1", rejects).success is True
    assert [(r.rule, r.locator) for r in rejects] == [("conflicting_outcome", "log:1#/resolved")]


def test_a_word_that_says_that_nobody_judged_is_a_reason():
    outcome = read_outcome({"success": "Unknown"}, "log:1", [])
    assert outcome.fields() == {
        "success": None,
        "score": None,
        "outcome_from": None,
        "outcome_unknown": "success says Unknown",
    }


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    | st.sampled_from(["true", "PASS", "fail", "0.8", "1", "NaN", "unknown"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=4,
)  # fmt: skip


@given(st.sampled_from((*SUCCESS_KEYS, *SCORE_KEYS)), ANYTHING)
def test_any_value_under_an_outcomes_key_is_read_or_leaves_a_trace(key, value):
    rejects: list[Reject] = []
    outcome = read_outcome({key: value}, "log:1", rejects)
    if value is None or value == "":
        assert (outcome, rejects) == (Outcome(), [])
    elif outcome.known:
        assert outcome.source == key
        assert rejects == []
    else:
        assert outcome.unknown is not None
        assert len(rejects) == (0 if "says" in outcome.unknown else 1)
    assert outcome.score is None or math.isfinite(outcome.score)


@given(ANYTHING)
def test_any_reward_of_a_step_is_read_or_leaves_a_trace(value):
    rejects: list[Reject] = []
    number = read_reward({"reward": value}, "log:1", rejects)
    assert (number is None) == (value in (None, "") or len(rejects) == 1)


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("value", [[1.0], {"a": 1}, math.nan, "maybe", math.inf])
def test_no_connector_of_rows_drops_an_outcome_in_silence(name, value, tmp_path):
    for key in ("success", "reward"):
        found = readings(tmp_path, [ROWS[name] | {key: value}], name)
        assert [(p.rule, p.locator) for p in parts(found)] == [("unreadable_outcome", f"log:1#/{key}")]
        (read,) = episodes(readings(tmp_path, [ROWS[name] | {key: 1}], name))
        assert (read.success, read.score) != (None, None)
        assert key in read.outcome_from


def test_an_error_voids_a_verdict_that_nobody_gave_and_a_limit_does_not():
    failed, won = Outcome(False, 0.0, "reward"), Outcome(True, 1.0, "reward")
    why = failure_in({"error": {"type": "APIError", "code": 503}})
    assert why == "the run ended by an error: APIError 503"
    assert failed.void(why) == Outcome(unknown=why)
    assert won.void(why) == won
    for limit in ("Agent reached maximum iteration", "AgentTimeoutError", "LimitsExceeded", "cost limit", ""):
        assert failed.void(failure_in({"error": limit})) == failed


def tau(**row: Any) -> dict[str, Any]:
    task = {"actions": [{"name": "cancel_order", "arguments": {}}], "instruction": "i"}
    return {
        "task_id": 1,
        "trial": 2,
        "reward": 0.0,
        "info": {"task": task, "reward_info": {}},
        "traj": TALK,
    } | row


def test_tau_bench_runs_that_an_error_ended_have_no_outcome(tmp_path):
    (path := tmp_path / "gpt-4o-retail.json").write_text(
        json.dumps([tau(), tau(info={"error": "RateLimitError: 429", "traceback": "…"})]), "utf-8"
    )
    plain, stopped = episodes(detect(path)[0].connector.read(Source(path, "log")))
    assert (plain.success, plain.score, plain.outcome_from, plain.trial) == (False, 0.0, "reward", "2")
    assert (plain.model, plain.policy_id) == ("gpt-4o", "gpt-4o")
    assert (stopped.success, stopped.score, stopped.ending) == (None, None, "truncated")
    assert stopped.outcome_unknown == "the run ended by an error: RateLimitError: 429"


def test_a_success_that_the_log_contradicts_is_marked_and_stays(tmp_path):
    (path := tmp_path / "x.json").write_text(json.dumps([tau(reward=1.0)]), "utf-8")
    found = list(detect(path)[0].connector.read(Source(path, "log")))
    assert [e.success for e in episodes(found)] == [True]
    assert [(p.rule, p.excerpt) for p in parts(found)] == [("contradicted_outcome", "cancel_order")]


def simulation(**row: Any) -> dict[str, Any]:
    return {"id": "s", "task_id": "t", "messages": TALK, "reward_info": {"reward": 0.0}} | row


@pytest.mark.parametrize(
    ("row", "success", "unknown"),
    [
        ({"termination_reason": "user_stop"}, False, None),
        ({}, False, None),
        ({"reward_info": {"reward": 1.0}}, True, None),
        ({"termination_reason": "too_many_errors"}, None, "the harness judges no run that ends with too_many_errors"),
        (
            {"reward_info": {"reward": 0.0, "info": {"note": "Simulation terminated prematurely. …"}}},
            None,
            "the harness judges no run that was terminated prematurely",
        ),
    ],
)  # fmt: skip
def test_simulations_are_judged_alike_in_results_and_in_rows(row, success, unknown, tmp_path):
    (told,) = episodes(readings(tmp_path, [simulation(**row)], "openai_messages"))
    document = {
        "info": {"agent_info": {"llm": "m"}, "environment_info": {}},
        "tasks": [],
        "simulations": [simulation(**row)],
    }
    (kept,) = episodes(readings(tmp_path, [document], "tau2_bench", "results.json"))
    for episode in (told, kept):
        assert (episode.success, episode.outcome_unknown) == (success, unknown)
        assert episode.outcome_from == (None if success is None else "reward_info.reward")


def test_an_agentdojo_error_leaves_utility_and_security_open(tmp_path):
    run = {
        "suite_name": "banking",
        "pipeline_name": "gpt-4o",
        "user_task_id": "user_task_1",
        "injection_task_id": "injection_task_2",
        "attack_type": "important_instructions",
        "messages": [
            {"role": "user", "content": [{"type": "text", "content": "Pay"}]},
            {"role": "assistant", "content": [{"type": "text", "content": "Paid."}], "tool_calls": []},
        ],
        "utility": False,
        "security": True,
        "error": None,
    }
    (judged,) = episodes(readings(tmp_path, [run], "agentdojo", "none.json"))
    stopped_run = run | {"error": "context_length_exceeded"}
    (stopped,) = episodes(readings(tmp_path, [stopped_run], "agentdojo", "none.json"))
    assert (judged.success, judged.attack, judged.injection) == (
        False,
        "important_instructions",
        "injection_task_2",
    )
    assert json.loads(judged.metadata)["attack_succeeded"] is True
    assert (stopped.success, json.loads(stopped.metadata)["attack_succeeded"]) == (None, None)
    assert stopped.outcome_unknown == "the run ended by an error: context_length_exceeded"


@pytest.mark.parametrize(
    ("name", "agent"),
    [
        ("gpt-4o-airline.json", Agent("gpt-4o", "gpt-4o")),
        ("sonnet-35-new-retail.json", Agent("sonnet-35-new", "sonnet-35-new")),
        (
            "tool-calling-gpt-4o-0.0_range_0--1_user-gpt-4o-llm_0325121212.json",
            Agent("tool-calling-gpt-4o", "gpt-4o", 0.0),
        ),
        (
            "tool-calling-with-subtasks-none-0.1_range_0-100_user-none-llm_0626123715.json",
            Agent("tool-calling-with-subtasks", None, 0.1),
        ),
        ("tool-calling-l1-4.1.json", Agent("tool-calling-l1-4.1")),
        ("results.json", Agent()),
        ("glmdata.json", Agent()),
    ],
)
def test_a_file_of_results_names_its_agent(name, agent):
    assert agent_of(name) == agent
