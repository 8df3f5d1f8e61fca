"""Talks written as what harnesses and data sets hold: ATIF, Inspect, τ²-bench, AgentDojo, ADP, LLaMA-Factory, rated chats."""

from __future__ import annotations

import io
import json
import random
import zipfile
from typing import Any

from support.renderers import Said, Shape, Talk, Turn, has_last_word, lines, openai_messages


def atif(talks: list[Talk], chance: random.Random) -> bytes:
    """A step for each text and each turn, with what its calls gave."""
    rows = []
    for talk in talks:
        steps: list[dict[str, Any]] = []
        for number, entry in enumerate(talk.entries, 1):
            if isinstance(entry, Said):
                steps.append({"step_id": number, "source": entry.role, "message": entry.text})
                continue
            step: dict[str, Any] = {"step_id": number, "source": "agent", "message": entry.text or ""}
            step |= {"reasoning_content": entry.thought} if entry.thought is not None else {}
            if entry.acts:
                step["tool_calls"] = [
                    {"tool_call_id": act.call_id, "function_name": act.name, "arguments": act.arguments}
                    for act in entry.acts
                ]
            results = [
                {"source_call_id": entry.acts[index].call_id, "content": entry.acts[index].answer}
                for index in entry.answered
            ]
            steps.append(step | ({"observation": {"results": results}} if results else {}))
        about = {
            "schema_version": "ATIF-v1.4",
            "session_id": talk.name,
            "agent": {"name": "a", "version": "1"},
        }
        extra = {} if talk.success is None else {"success": talk.success}
        rows.append({**about, "steps": steps, "extra": extra})
    return lines(rows)


# --- Inspect ------------------------------------------------------------------------------------------------------------


def inspect_json(talks: list[Talk], chance: random.Random) -> bytes:
    samples = [inspect_sample(talk, number, chance) for number, talk in enumerate(talks)]
    return json.dumps({**inspect_header(), "samples": samples}).encode()


def inspect_eval(talks: list[Talk], chance: random.Random) -> bytes:
    """The same samples, each a member of an archive."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", json.dumps(inspect_header()))
        for number, talk in enumerate(talks):
            sample = inspect_sample(talk, number, chance)
            archive.writestr(f"samples/{number}_epoch_1.json", json.dumps(sample))
    return file.getvalue()


def inspect_header() -> dict[str, Any]:
    about = {"task": "t", "model": "m", "run_id": "r", "dataset": {}}
    return {"version": 2, "status": "success", "eval": about}


def inspect_sample(talk: Talk, number: int, chance: random.Random) -> dict[str, Any]:
    """Some texts lie among the attachments."""
    attachments: dict[str, str] = {}

    def stored(text: str | None) -> str | None:
        if text is None or chance.random() < 0.7:
            return text
        key = f"{len(attachments):032x}"
        attachments[key] = text
        return f"attachment://{key}"

    messages: list[dict[str, Any]] = []
    for entry in talk.entries:
        if isinstance(entry, Said):
            messages.append({"role": entry.role, "content": stored(entry.text)})
            continue
        content: Any = stored(entry.text) or ""
        if entry.thought is not None:
            content = [{"type": "reasoning", "reasoning": stored(entry.thought)}]
            content.append({"type": "text", "text": stored(entry.text) or ""})
        messages.append({"role": "assistant", "content": content, "source": "generate"})
        if entry.acts:
            messages[-1]["tool_calls"] = [
                {"id": act.call_id, "function": act.name, "arguments": act.arguments, "type": "function"}
                for act in entry.acts
            ]
        for act in (entry.acts[index] for index in entry.answered):
            told = {"tool_call_id": act.call_id, "function": act.name, "content": stored(act.answer)}
            messages.append({"role": "tool", **told})
    scores = {} if talk.success is None else {"match": {"value": "C" if talk.success else "I"}}
    about = {"id": number, "epoch": 1, "input": talk.name, "target": "", "uuid": f"sample-{talk.name}"}
    return {**about, "messages": messages, "scores": scores, "attachments": attachments, "events": []}


# --- benchmarks ---------------------------------------------------------------------------------------------------------


def tau2_bench(talks: list[Talk], chance: random.Random) -> bytes:
    simulations = []
    for talk in talks:
        messages = []
        for message in openai_messages(talk):
            calls = [
                {
                    "id": c["id"],
                    "name": c["function"]["name"],
                    "arguments": json.loads(c["function"]["arguments"]),
                }
                for c in message.pop("tool_calls", ())
            ]
            if message["role"] == "tool":
                answers = {"id": message.pop("tool_call_id"), "requestor": "assistant", "error": False}
                messages.append({**message, **answers})
            else:
                messages.append({**message, "tool_calls": calls or None})
        reward = None if talk.success is None else {"reward": float(talk.success)}
        stop = "max_steps" if talk.success is None else "user_stop"
        about = {"id": f"sim-{talk.name}", "task_id": talk.name, "trial": 0, "termination_reason": stop}
        simulations.append({**about, "reward_info": reward, "messages": messages})
    info = {"agent_info": {"llm": "m"}, "environment_info": {"domain_name": "d"}}
    return json.dumps({"info": info, "tasks": [], "simulations": simulations}).encode()


def agentdojo(talks: list[Talk], chance: random.Random) -> bytes:
    (talk,) = talks
    messages: list[dict[str, Any]] = []
    for entry in talk.entries:
        if isinstance(entry, Said):
            messages.append({"role": entry.role, "content": dojo_text(entry.text)})
            continue
        calls = [{"function": act.name, "args": act.arguments, "id": act.call_id} for act in entry.acts]
        thoughts = [] if entry.thought is None else [{"type": "thinking", "content": entry.thought}]
        content = thoughts + dojo_text(entry.text) or None
        messages.append({"role": "assistant", "content": content, "tool_calls": calls or None})
        for index in entry.answered:
            told = {"tool_call": calls[index], "tool_call_id": calls[index]["id"], "error": None}
            messages.append({"role": "tool", "content": dojo_text(entry.acts[index].answer), **told})
    about = {"suite_name": "banking", "pipeline_name": "m", "user_task_id": "user_task_1"}
    verdict = {"error": None, "utility": talk.success, "security": True}
    return json.dumps({**about, "injection_task_id": None, "messages": messages, **verdict}).encode()


def dojo_text(text: str | None) -> list[dict[str, Any]]:
    return [] if text is None else [{"type": "text", "content": text}]


# --- data sets ----------------------------------------------------------------------------------------------------------


def adp_std(talks: list[Talk], chance: random.Random) -> bytes:
    rows = []
    for talk in talks:
        content: list[dict[str, Any]] = []
        for entry in talk.entries:
            if isinstance(entry, Said):
                content.append({"class_": "text_observation", "content": entry.text, "source": "user"})
            elif entry.acts:
                (act,) = entry.acts
                call = {"function": act.name, "kwargs": act.arguments, "description": entry.thought}
                content.append({"class_": "api_action", **call})
                told = {"content": act.answer, "source": "environment"}
                content.append({"class_": "text_observation", **told})
            else:
                content.append(
                    {"class_": "message_action", "content": entry.text, "description": entry.thought}
                )
        details = {} if talk.success is None else {"resolved": talk.success}
        rows.append({"id": talk.name, "content": content, "details": details})
    return lines(rows)


def llamafactory(talks: list[Talk], chance: random.Random) -> bytes:
    return lines([{"messages": llamafactory_messages(talk)} for talk in talks])


def llamafactory_messages(talk: Talk) -> list[dict[str, Any]]:
    """One tool message answers all calls of a turn: with a list, where there are several."""
    found: list[dict[str, Any]] = []

    def add(role: str, *blocks: tuple[str, str | None]) -> None:
        content = [{"type": kind, "value": value} for kind, value in blocks if value is not None]
        found.append({"role": role, "content": content, "loss_weight": float(role == "assistant")})

    for entry in talk.entries:
        if isinstance(entry, Said):
            add(entry.role, ("text", entry.text))
            continue
        calls = [json.dumps({"name": act.name, "arguments": act.arguments}) for act in entry.acts]
        add(
            "assistant",
            ("reasoning", entry.thought),
            ("text", entry.text),
            *(("tool_call", call) for call in calls),
        )
        if entry.acts:
            add("tool", ("text", answers_of(entry)))
    return found


def answers_of(turn: Turn) -> str | None:
    answers = [{"name": act.name, "content": act.answer} for act in turn.acts]
    return json.dumps(answers) if len(answers) > 1 else turn.acts[0].answer


def rated_chat(talks: list[Talk], chance: random.Random) -> bytes:
    rows = []
    for talk in talks:
        turns = [
            {"role": getattr(entry, "role", "assistant"), "content": entry.text} for entry in talk.entries
        ]
        rows.append({"id": talk.name, "conversation": turns, "thumbs_up": talk.success})
    return lines(rows)


def judged_or_last_word(talk: Talk) -> bool:
    return talk.success is not None or has_last_word(talk)


INSPECT: dict[str, Any] = {"judged": True, "ending": judged_or_last_word}
SHAPES = {
    "atif": Shape("atif", ".jsonl", atif, silence="", judged=True),
    "inspect json": Shape("inspect_json", ".json", inspect_json, **INSPECT),
    "inspect eval": Shape("inspect_eval", ".eval", inspect_eval, **INSPECT),
    "tau2-bench": Shape(
        "tau2_bench",
        ".json",
        tau2_bench,
        thoughts=False,
        flags_failure=True,
        judged=True,
        ending=lambda talk: talk.success is not None,
    ),
    "agentdojo": Shape("agentdojo", ".json", agentdojo, one_talk=True, judged=True),
    "adp": Shape(
        "adp_std",
        ".jsonl",
        adp_std,
        system=False,
        parallel=False,
        ids=False,
        text_with_calls=False,
        unanswered=False,
        judged=True,
    ),
    "llamafactory": Shape("llamafactory_v1", ".jsonl", llamafactory, ids=False, unanswered=False),
    "rated chat": Shape(
        "rated_chat",
        ".jsonl",
        rated_chat,
        thoughts=False,
        acts=False,
        judged=True,
        ending=judged_or_last_word,
    ),
}
