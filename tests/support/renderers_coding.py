"""Talks written as the sessions and runs of coding agents: Claude Code, Codex, SWE-agent, mini-SWE-agent, OpenHands, Gemini CLI."""

from __future__ import annotations

import json
import random
import uuid
from typing import Any

from support.renderers import Act, Said, Shape, Talk, lines, openai_call, openai_messages, shuffled_together


def claude_lines(talks: list[Talk], chance: random.Random) -> bytes:
    """A line for each content block of a message, and for each result; sessions are written at the same time."""
    return lines(shuffled_together([claude_session(talk) for talk in talks], chance))


def claude_session(talk: Talk) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []

    def add(kind: str, **message: Any) -> None:
        parent = rows[-1]["uuid"] if rows else None
        same = {
            "sessionId": talk.name,
            "isSidechain": False,
            "uuid": f"{talk.name}-{len(rows)}",
            "parentUuid": parent,
        }
        rows.append({"type": kind, **same, "message": {"role": kind, **message}})

    for number, entry in enumerate(talk.entries):
        if isinstance(entry, Said):
            add("user", content=entry.text)
            continue
        blocks = [{"type": "thinking", "thinking": entry.thought}] if entry.thought is not None else []
        blocks += [{"type": "text", "text": entry.text}] if entry.text is not None else []
        for act in entry.acts:
            blocks.append({"type": "tool_use", "id": act.call_id, "name": act.name, "input": act.arguments})
        for block in blocks:
            add("assistant", id=f"{talk.name}-m{number}", content=[block])
        for index in entry.answered:
            act = entry.acts[index]
            add("user", content=[{"type": "tool_result", "tool_use_id": act.call_id, "content": act.answer}])
    return rows


def codex_rollout(talks: list[Talk], chance: random.Random) -> bytes:
    (talk,) = talks
    rows = [
        {
            "type": "session_meta",
            "payload": {"id": str(uuid.uuid5(uuid.NAMESPACE_URL, talk.name)), "cwd": "/"},
        }
    ]

    def item(kind: str, **payload: Any) -> None:
        rows.append({"type": "response_item", "payload": {"type": kind, **payload}})

    for entry in talk.entries:
        if isinstance(entry, Said):
            item("message", role=entry.role, content=[{"type": "input_text", "text": entry.text}])
            continue
        if entry.thought is not None:
            item("reasoning", summary=[{"type": "summary_text", "text": entry.thought}])
        if entry.text is not None:
            item("message", role="assistant", content=[{"type": "output_text", "text": entry.text}])
        for act in entry.acts:
            item("function_call", name=act.name, arguments=json.dumps(act.arguments), call_id=act.call_id)
        for index in entry.answered:
            act = entry.acts[index]
            item("function_call_output", call_id=act.call_id, output=act.answer)
    return lines(rows)


def swe_agent(talks: list[Talk], chance: random.Random) -> bytes:
    """Function calling: `history` has the calls, `trajectory` the decisions and what was observed."""
    (talk,) = talks
    history: list[dict[str, Any]] = []
    steps = []
    for entry in talk.entries:
        if isinstance(entry, Said):
            history.append({"role": entry.role, "content": entry.text})
            continue
        (act,) = entry.acts
        step = {"response": entry.text, "thought": entry.thought or "", "action": act.name}
        history.append(
            {"role": "assistant", "content": entry.text, "action": act.name, "tool_calls": [openai_call(act)]}
        )
        steps.append(step | {"observation": act.answer})
        if act.answer is not None:
            history.append({"role": "tool", "content": act.answer, "tool_call_ids": [act.call_id]})
    status = "submitted" if talk.success else "exit_cost"
    return json.dumps(
        {"environment": "x", "trajectory": steps, "history": history, "info": {"exit_status": status}},
        indent=1,
    ).encode()


def mini_swe_agent(talks: list[Talk], chance: random.Random) -> bytes:
    (talk,) = talks
    status = "Submitted" if talk.success else "LimitsExceeded"
    document = {
        "trajectory_format": "mini-swe-agent-1.1",
        "info": {"exit_status": status, "resolved": talk.success, "submission": ""},
        "messages": openai_messages(talk),
    }
    return json.dumps(document, indent=1).encode()


# --- OpenHands ----------------------------------------------------------------------------------------------------------


def openhands_events(talks: list[Talk], chance: random.Random) -> bytes:
    (talk,) = talks
    return json.dumps(events_of(talk)).encode()


def openhands_sdk(talks: list[Talk], chance: random.Random) -> bytes:
    (talk,) = talks
    return lines(sdk_events(talk))


def openhands_output(talks: list[Talk], chance: random.Random) -> bytes:
    """Rows of an evaluation; their histories are of either kind, and the old ones may be pairs."""
    rows = []
    for talk in talks:
        history = chance.choice([events_of, sdk_events, paired_events])(talk)
        report = {} if talk.success is None else {"resolved": talk.success}
        about = {"instance_id": f"owner__repo-{talk.name}", "instruction": "", "metrics": {}, "error": None}
        rows.append({**about, "history": history, "test_result": {"report": report}})
    return lines(rows)


def paired_events(talk: Talk) -> list[list[Any]]:
    events = events_of(talk)
    return [events[index : index + 2] for index in range(0, len(events), 2)]


def events_of(talk: Talk) -> list[dict[str, Any]]:
    """An action for each call, with the model's response in each; an observation for each result."""
    events: list[dict[str, Any]] = []

    def add(source: str, **more: Any) -> int:
        time = f"2025-03-01T10:00:00.{len(events):06}"
        events.append({"id": len(events), "timestamp": time, "source": source, "message": "", **more})
        return len(events) - 1

    for number, entry in enumerate(talk.entries):
        if isinstance(entry, Said):
            kind = "system" if entry.role == "system" else "message"
            add("agent" if kind == "system" else "user", action=kind, args={"content": entry.text})
        elif not entry.acts:
            add("agent", action="message", args={"content": entry.text, "wait_for_response": False})
        else:
            message = {"role": "assistant", "content": entry.text, "reasoning_content": entry.thought}
            message["tool_calls"] = [openai_call(act) for act in entry.acts]
            response = {"id": f"chatcmpl-{talk.name}-{number}", "choices": [{"message": message}]}
            made = {
                act.call_id: {
                    "function_name": act.name,
                    "tool_call_id": act.call_id,
                    "model_response": response,
                }
                for act in entry.acts
            }
            cause = {
                act.call_id: add(
                    "agent",
                    action="call_tool_mcp",
                    args={"name": act.name, "arguments": act.arguments, "thought": entry.text or ""},
                    tool_call_metadata=made[act.call_id],
                )
                for act in entry.acts
            }
            for act in (entry.acts[index] for index in entry.answered):
                told = {"content": act.answer, "cause": cause[act.call_id], "extras": {}}
                add("agent", observation="mcp", tool_call_metadata=made[act.call_id], **told)
    return events


def sdk_events(talk: Talk) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []

    def add(kind: str, source: str, **more: Any) -> None:
        time = f"2026-02-03T10:00:00.{len(events):06}"
        events.append(
            {"id": f"{talk.name}-{len(events)}", "timestamp": time, "source": source, "kind": kind, **more}
        )

    for number, entry in enumerate(talk.entries):
        if isinstance(entry, Said) and entry.role == "system":
            add("SystemPromptEvent", "agent", system_prompt={"type": "text", "text": entry.text}, tools=[])
        elif isinstance(entry, Said):
            said = {"role": "user", "content": texts(entry.text)}
            add("MessageEvent", "user", llm_message=said)
        elif not entry.acts:
            said = {
                "role": "assistant",
                "content": texts(entry.text),
                "reasoning_content": entry.thought,
            }
            add("MessageEvent", "agent", llm_message=said)
        else:
            for index, act in enumerate(entry.acts):
                first = index == 0
                add(
                    "ActionEvent",
                    "agent",
                    thought=texts(entry.text) if first else [],
                    reasoning_content=entry.thought if first else None,
                    action=None,
                    tool_name=act.name,
                    tool_call_id=act.call_id,
                    tool_call={
                        "id": act.call_id,
                        "name": act.name,
                        "arguments": json.dumps(act.arguments),
                    },
                    llm_response_id=f"chatcmpl-{talk.name}-{number}",
                )
            for act in (entry.acts[index] for index in entry.answered):
                seen = {"kind": "MCPToolObservation", "content": texts(act.answer)}
                add(
                    "ObservationEvent",
                    "environment",
                    observation=seen,
                    tool_name=act.name,
                    tool_call_id=act.call_id,
                )
    return events


def texts(text: str | None) -> list[dict[str, Any]]:
    return [] if text is None else [{"type": "text", "text": text}]


# --- Gemini CLI ---------------------------------------------------------------------------------------------------------


def gemini_document(talks: list[Talk], chance: random.Random) -> bytes:
    (talk,) = talks
    return json.dumps({**gemini_header(talk), "messages": gemini_messages(talk)}, indent=2).encode()


def gemini_lines(talks: list[Talk], chance: random.Random) -> bytes:
    """Sessions one after the other. A message whose calls were answered later is written again under its id."""
    rows: list[Any] = []
    for talk in talks:
        rows.append(gemini_header(talk))
        for message in gemini_messages(talk):
            calls = message.get("toolCalls")
            if calls and chance.random() < 0.5:
                begun = [
                    {k: v for k, v in call.items() if k != "result"} | {"status": "executing"}
                    for call in calls
                ]
                rows.append({**message, "toolCalls": begun})
            rows.append(message)
            rows += [{"$set": {"lastUpdated": "2026-01-02T10:00:09Z"}}] if chance.random() < 0.2 else []
    return lines(rows)


def gemini_header(talk: Talk) -> dict[str, Any]:
    own = str(uuid.uuid5(uuid.NAMESPACE_URL, talk.name))
    return {"sessionId": own, "projectHash": "abc", "startTime": "2026-01-02T10:00:00Z"}


def gemini_messages(talk: Talk) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for number, entry in enumerate(talk.entries):
        same = {"id": f"{talk.name}-{number}", "timestamp": f"2026-01-02T10:00:{number:02}Z"}
        if isinstance(entry, Said):
            found.append({**same, "type": "user", "content": [{"text": entry.text}]})
            continue
        message = {**same, "type": "gemini", "content": entry.text or "", "model": "gemini-x"}
        if entry.thought is not None:
            message["thoughts"] = [{"subject": "", "description": entry.thought}]
        if entry.acts:
            message["toolCalls"] = [gemini_call(act) for act in entry.acts]
        found.append(message)
    return found


def gemini_call(act: Act) -> dict[str, Any]:
    call = {"id": act.call_id, "name": act.name, "args": act.arguments}
    if act.answer is None:
        return {**call, "status": "scheduled"}
    told = {"id": act.call_id, "name": act.name, "response": {"output": act.answer}}
    return {**call, "status": "success", "result": [{"functionResponse": told}]}


SESSION: dict[str, Any] = {"system": False, "flags_failure": True}
SHAPES = {
    "claude code": Shape("claude_code", ".jsonl", claude_lines, **SESSION),
    "codex": Shape("codex_rollout", ".jsonl", codex_rollout, one_talk=True),
    "swe-agent": Shape(
        "swe_agent_traj",
        ".traj",
        swe_agent,
        one_talk=True,
        parallel=False,
        speech=False,
        users_later=False,
        ending=lambda talk: bool(talk.success),
    ),
    "mini-swe-agent": Shape(
        "mini_swe_agent",
        ".json",
        mini_swe_agent,
        one_talk=True,
        unanswered=False,
        judged=True,
        ending=lambda talk: bool(talk.success),
    ),
    "openhands events": Shape(
        "openhands_events", ".json", openhands_events, one_talk=True, spoken_thoughts=False
    ),
    "openhands sdk": Shape("openhands_events", ".jsonl", openhands_sdk, one_talk=True),
    "openhands output": Shape(
        "openhands_output", ".jsonl", openhands_output, spoken_thoughts=False, judged=True
    ),
    "gemini cli": Shape("gemini_cli", ".json", gemini_document, one_talk=True, ordered=True, **SESSION),
    "gemini cli lines": Shape("gemini_cli", ".jsonl", gemini_lines, ordered=True, **SESSION),
}
