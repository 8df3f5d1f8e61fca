"""The agents inside an Inspect sample are episodes of their own, below the agent that ran them.

`nested_agents.eval` was written by inspect_ai 0.3.285: an agent that runs another in its place, which calls a third as a tool, hands
off to a fourth, and runs a subtask; a fifth runs after it, and the scorer asks a model.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from logforge.connectors.detection import get
from logforge.connectors.records.base import Source
from logforge.schemas.episode import Episode
from support.places import DATA

NESTED = DATA / "connectors" / "inspect_eval" / "nested_agents.eval"


def read(path: Path, name: str) -> list[Episode]:
    return [item for item in get(name).read(Source(path, "log")) if isinstance(item, Episode)]


def agent(episode: Episode) -> str:
    return json.loads(episode.metadata)["agent"]


@pytest.fixture(scope="module")
def nested() -> list[Episode]:
    return read(NESTED, "inspect_eval")


def test_each_agent_is_an_episode_below_the_one_that_ran_it(nested):
    whole, *inner = nested
    assert [agent(e) for e in inner] == ["researcher", "writer", "summarize", "researcher"]
    assert {e.parent_episode_id for e in inner} == {whole.episode_id}
    assert whole.parent_episode_id is None
    assert len({e.episode_id for e in nested}) == 5
    assert [e.records for e in nested] == [1, 0, 0, 0, 0]
    assert {(e.task_id, e.group_id) for e in nested} == {(whole.task_id, whole.group_id)}
    assert [e.model for e in inner] == ["mockllm/sub", "mockllm/writer", "mockllm/summ", "mockllm/sub"]
    assert [(e.success, e.score) for e in nested] == [(True, 1.0)] + [(None, None)] * 4


def test_every_decision_of_a_sample_counts_once(nested):
    with zipfile.ZipFile(NESTED) as archive:
        sample = json.loads(archive.read("samples/one_epoch_1.json"))
    models = [event["model"] for event in sample["events"] if event["event"] == "model"]
    assert models.count("mockllm/judge") == 1  # the scorer's
    assert sum(len(e.steps) for e in nested) == len(models) - 1
    ids = [s.tool_call_id for e in nested for s in e.steps if s.kind == "tool"]
    assert len(ids) == len(set(ids)) == 6


def test_an_agent_that_worked_in_anothers_place_is_the_samples_own(nested):
    assert [s.action for s in nested[0].steps] == ["researcher", "transfer_to_writer", "lookup", "respond"]


def test_what_a_handoff_showed_is_read_and_not_decided(nested):
    whole, _, writer, *_ = nested
    assert [(m.role, m.content) for m in whole.messages[5:8]] == [
        ("assistant", "[writer] tool call for tool lookup\nlookup(key='bad')"),
        ("user", ""),
        ("assistant", "[writer] Written down."),
    ]
    assert [s.position for s in writer.steps] == [5, 7]
    assert [m.role for m in writer.messages[:5]] == ["user", "assistant", "user", "assistant", "user"]
    assert (writer.steps[0].result, writer.steps[0].result_status) == ("no such key", "error")
    assert json.loads(writer.metadata)["ran_by"] == whole.steps[1].tool_call_id


def test_locators_lead_to_the_events(nested):
    researcher = nested[1]
    where = "log!samples/one_epoch_1.json#"
    assert [m.locator.removeprefix(where) for m in researcher.messages] == [
        "/events_data/messages/1",
        "/events/11/output/choices/0/message",
        "/events_data/messages/3",
        "/events/15/output/choices/0/message",
    ]
    assert [m.tokens_out for m in researcher.messages] == [None, 3, None, 3]
    assert researcher.steps[0].locator == f"{where}/events/11/output/choices/0/message/tool_calls/0"


def test_both_containers_hold_the_same_episodes(nested, tmp_path):
    with zipfile.ZipFile(NESTED) as archive:
        header = json.loads(archive.read("header.json"))
        sample = json.loads(archive.read("samples/one_epoch_1.json"))
    path = tmp_path / "x.json"
    path.write_text(json.dumps(header | {"samples": [sample]}), "utf-8")
    found = read(path, "inspect_json")
    assert [(e.episode_id, e.parent_episode_id) for e in found] == [
        (e.episode_id, e.parent_episode_id) for e in nested
    ]


# --- logs of other versions -------------------------------------------------------------------------------------------


def said(own: str, text: str, *calls: dict[str, Any]) -> dict[str, Any]:
    return {"id": own, "role": "assistant", "content": text, "tool_calls": list(calls) or None}


def call(own: str, name: str) -> dict[str, Any]:
    return {"id": own, "function": name, "arguments": {}, "type": "function"}


def model(message: dict[str, Any], *heard: dict[str, Any], **more: Any) -> dict[str, Any]:
    output = {"choices": [{"message": message, "stop_reason": "stop"}]}
    return {"event": "model", "model": "m", "input": list(heard), "tools": [], "output": output, **more}


TASK = {"id": "u0", "role": "user", "content": "do it"}
ASKED = {"id": "u1", "role": "user", "content": "look"}
LEAD = said("a0", "", call("c0", "helper"))
TOLD = {"id": "t0", "role": "tool", "tool_call_id": "c0", "content": "found"}
END = said("a1", "done")
HELPS = said("b0", "", call("d0", "lookup"))
SEEN = {"id": "t1", "role": "tool", "tool_call_id": "d0", "content": "x"}
REPLY = said("b1", "found")
LOOKUP = {"event": "tool", "id": "d0", "function": "lookup", "result": "x"}
HELPER = [model(HELPS, ASKED), LOOKUP, model(REPLY, ASKED, HELPS, SEEN)]


def span(own: str, kind: str, name: str, parent: str | None = None) -> dict[str, Any]:
    return {"event": "span_begin", "id": own, "type": kind, "name": name, "parent_id": parent, "span_id": own}


def inside(own: str, *events: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"span_id": own} | event for event in events]


RAN = {"event": "tool", "id": "c0", "function": "helper", "result": "found"}
LAYOUTS = {
    "spans": [
        span("s", "solver", "lead"),
        span("s1", "agent", "lead", "s"),
        *inside("s1", model(LEAD, TASK)),
        span("s2", "tool", "helper", "s1"),
        *inside("s1", RAN),
        span("s3", "agent", "helper", "s2"),
        *inside("s3", *HELPER),
        *inside("s1", model(END, TASK, LEAD, TOLD)),
    ],
    "steps": [
        {"event": "step", "action": "begin", "type": "solver", "name": "lead"},
        model(LEAD, TASK),
        {"event": "step", "action": "begin", "type": "tool", "name": "helper"},
        {"event": "step", "action": "begin", "type": "agent", "name": "helper"},
        *HELPER,
        {"event": "step", "action": "end", "type": "agent", "name": "helper"},
        {"event": "step", "action": "end", "type": "tool", "name": "helper"},
        model(END, TASK, LEAD, TOLD),
        {"event": "step", "action": "end", "type": "solver", "name": "lead"},
    ],
    "events of the call": [model(LEAD, TASK), {**RAN, "agent": "helper", "events": HELPER}, model(END, TASK)],
    "events of a subtask": [
        model(LEAD, TASK),
        {**RAN, "events": [{"event": "subtask", "name": "helper", "events": HELPER}]},
        model(END, TASK),
    ],
}


def sample(events: list[Any], **more: Any) -> dict[str, Any]:
    messages = [TASK, LEAD, TOLD, END]
    about = {"id": 1, "epoch": 1, "input": "do it", "target": "", "uuid": "u", "output": {}, "scores": {}}
    return {**about, "messages": messages, "events": events, **more}


def read_sample(tmp_path: Path, one: dict[str, Any]) -> list[Episode]:
    path = tmp_path / "x.json"
    header = {"version": 2, "status": "success", "eval": {"task": "t", "model": "m", "run_id": "r"}}
    path.write_text(json.dumps(header | {"samples": [one]}), "utf-8")
    return read(path, "inspect_json")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_agents_are_found_wherever_a_version_logs_them(layout, tmp_path):
    whole, helper = read_sample(tmp_path, sample(LAYOUTS[layout]))
    assert [s.action for s in whole.steps] == ["helper", "respond"]
    assert (agent(helper), helper.parent_episode_id) == ("helper", whole.episode_id)
    assert [(s.action, s.result) for s in helper.steps] == [("lookup", "x"), ("respond", None)]
    assert helper.ending == "terminal"


def test_an_agent_inside_an_inner_agent_is_below_that_one(tmp_path):
    deep = said("e0", "deeper")
    events = [*LAYOUTS["spans"], span("s4", "tool", "lookup", "s3"), span("s5", "agent", "deep", "s4")]
    _, helper, deepest = read_sample(tmp_path, sample(events + inside("s5", model(deep, ASKED))))
    assert (agent(deepest), deepest.parent_episode_id) == ("deep", helper.episode_id)


def test_a_tool_that_asks_a_model_itself_is_no_agent(tmp_path):
    events = [span("s1", "agent", "lead"), span("s2", "tool", "web_search", "s1")]
    (whole,) = read_sample(tmp_path, sample(events + inside("s2", model(REPLY, ASKED))))
    assert len(whole.steps) == 2


@pytest.mark.parametrize(
    ("last", "ran", "ending", "reason"),
    [
        (model(HELPS, ASKED), {}, "truncated", "the log stops before the agent's answer"),
        (model(said("b", "", call("x", "lookup")), ASKED), {}, "truncated", "last call is unanswered"),
        (model(said("b", "", call("x", "submit")), ASKED), {}, "terminal", "the last action is submit"),
        (model(REPLY, ASKED, error="overloaded"), {}, "truncated", "error: overloaded"),
        (
            model(REPLY, ASKED),
            {"error": {"type": "limit", "message": "too many tokens"}},
            "truncated",
            "the call that ran it failed: limit",
        ),
    ],
)
def test_how_an_inner_agent_ended(last, ran, ending, reason, tmp_path):
    events = [
        span("s1", "agent", "lead"),
        span("s2", "tool", "helper", "s1"),
        *inside("s1", RAN | ran),
        span("s3", "agent", "helper", "s2"),
        *inside("s3", last, LOOKUP),
    ]
    _, helper = read_sample(tmp_path, sample(events))
    assert (helper.ending, helper.ending_reason) == (ending, reason)


def test_a_conversation_that_branches_off_counts_the_decisions_before_it_once(tmp_path):
    other = said("b9", "found elsewhere")
    events = [
        span("s2", "tool", "helper"),
        span("s3", "agent", "helper", "s2"),
        *inside("s3", *HELPER, model(other, ASKED, HELPS, SEEN)),
    ]
    _, first, second = read_sample(tmp_path, sample(events))
    assert [s.action for s in first.steps] == ["lookup", "respond"]
    assert [(s.action, s.position) for s in second.steps] == [("respond", 2)]
    assert [m.role for m in second.messages] == ["user", "user", "assistant"]
    assert first.episode_id != second.episode_id
