"""Raw data sets as the Agent Data Protocol collects them, told apart row by row. A record is one row.

Nebius' SWE-agent runs (`trajectory` of {role, text}), SWE-smith (`messages` with `<function=…>` tags), CodeActInstruct
(`conversations` with `<execute>` blocks) and AndroidControl (parallel arrays of a person's actions and screens). Rows
with structured calls (SWE-Gym) are plain messages and are read as `openai_messages` does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from logforge.connectors.chat import add_messages
from logforge.connectors.episodes import (
    FINISHING,
    Call,
    EpisodeBuilder,
    answer,
    bad_part,
    close,
    command_call,
    content_id,
    execute_calls,
    failure_in,
    fenced,
    first_text,
    first_user_text,
    function_calls,
    instance_task,
    interface,
    read_outcome,
    read_rows,
    reject,
    task_group,
    text_of,
    text_or_none,
)
from logforge.connectors.records import Head, Source, at, canonical
from logforge.connectors.trajectories.adp import codeact_id
from logforge.schemas import Ending, Episode, Reading

FindCalls = Callable[[str, str], list[Call]]
"""Finds the calls in a text; takes the text and its locator."""

_OFFERED = re.compile(r"---- BEGIN FUNCTION #\d+: (\S+) ----")
_SCREENS = "accessibility_trees"
_TEXTS = {"trajectory", "messages", "conversations", _SCREENS}


class AdpRaw:
    """ADP's `sample_raw.json` and the data sets behind them."""

    name = "adp_raw"
    version = 4
    record = "one row: a run, a conversation or a demonstration"
    fills = ("outcome", "tools", "thoughts")
    splittable = True

    def sniff(self, head: Head) -> float:
        """One of the four shapes; messages with structured calls are not among them."""
        if not head.has_rows:
            return 0.0
        keys = head.keys
        if {"target", "trajectory"} <= head.top and {"role", "text"} <= keys.get("trajectory", set()):
            return 0.95
        if {"goal", "actions", _SCREENS} <= head.top:
            return 0.95
        turns = {"role", "content"}
        if "conversations" in head.top and turns <= keys.get("conversations", set()):
            return 0.9 if b"<execute>" in head.data else 0.0
        plain = keys.get("messages", set())
        tagged = turns <= plain and not {"tool_calls", "function_call"} & plain and b"<function=" in head.data
        return 0.9 if tagged and "messages" in head.top else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per row."""
        yield from read_rows(source, self._row)

    def _row(self, row: Any, locator: str) -> Iterator[Reading]:
        builder = EpisodeBuilder()
        if not isinstance(row, dict):
            yield reject(locator, "row is no object", "", row)
        elif isinstance(row.get("actions"), list) and isinstance(row.get(_SCREENS), list):
            yield from close(builder, self._demonstration(builder, row, locator))
        elif (read := _reader(builder, row)) is not None:
            key, calls_in = read
            _add_texts(builder, row[key], at(locator, f"/{key}"), calls_in)
            yield from close(builder, self._conversation(builder, row, locator))
        else:
            yield reject(locator, "none of trajectory, messages, conversations, actions", "", row)

    def _conversation(self, builder: EpisodeBuilder, row: dict[str, Any], locator: str) -> Episode:
        native = first_text(row, "traj_id", "id", "instance_id", "run_id")
        known = codeact_id(native)
        task = first_user_text(builder)
        model = first_text(row, "model_name", "model") or known.model
        ending, reason = _ending(builder, row)
        told = read_outcome(row, locator, builder.rejects, success=("resolved", "target", "success"))
        return builder.finish(
            id=content_id(self.name, row),
            format=self.name,
            locator=locator,
            ending=ending,
            ending_reason=reason,
            native_id=native,
            task_id=instance_task(first_text(row, "instance_id")) or known.task,
            group_id=task_group(task),
            task=task,
            model=model,
            policy_id=model,
            tools=_offered(builder),
            **told.void(failure_in(row)).fields(),
            metadata=canonical({key: value for key, value in row.items() if key not in _TEXTS}),
        )

    def _demonstration(self, builder: EpisodeBuilder, row: dict[str, Any], locator: str) -> Episode:
        whole = _add_screens(builder, row, locator)
        task = text_or_none(row.get("goal"))
        return builder.finish(
            id=content_id(self.name, row),
            format=self.name,
            locator=locator,
            ending="terminal" if whole else "truncated",
            ending_reason=(
                "the demonstration is whole: a screen after its last action"
                if whole
                else "no screen after the last action"
            ),
            native_id=text_or_none(row.get("episode_id")),
            group_id=task_group(task),
            task=task,
            source_kind="human_demo",
            policy_id="human",
            metadata=canonical({key: value for key, value in row.items() if key not in _TEXTS | {"actions"}}),
        )


def _reader(builder: EpisodeBuilder, row: dict[str, Any]) -> tuple[str, FindCalls] | None:
    readers: dict[str, FindCalls] = {
        "trajectory": _last_fence(builder),
        "conversations": execute_calls,
        "messages": function_calls,
    }
    return next(((key, find) for key, find in readers.items() if isinstance(row.get(key), list)), None)


def _last_fence(builder: EpisodeBuilder) -> FindCalls:
    """SWE-agent runs the last fenced block of a message."""

    def find(text: str, where: str) -> list[Call]:
        blocks = fenced(text, "", "bash", "sh")
        return command_call(blocks[-1], where, interface(builder)) if blocks else []

    return find


def _add_texts(builder: EpisodeBuilder, messages: list[Any], pointer: str, calls_in: FindCalls) -> None:
    """Read messages whose calls are in their text: the message after a call is its result, without a mark."""
    if any(isinstance(m, dict) and (m.get("tool_calls") or m.get("function_call")) for m in messages):
        add_messages(builder, messages, pointer)
        return
    made = 0
    for index, message in enumerate(messages):
        where = f"{pointer}/{index}"
        role = message.get("role") if isinstance(message, dict) else None
        text, place = _text(message, where) if role is not None else (None, where)
        if role in ("assistant", "ai"):
            calls = calls_in(text or "", where)
            builder.turn(text, calls, place)
            made = len(calls)
        elif role in ("user", "tool") and made:
            answer(builder, text, place, made)
            made = 0
        elif role in ("system", "user"):
            builder.message(role, text, place)
        else:
            reason = "message whose role is none of system, user, assistant, ai"
            builder.rejects.append(bad_part(where, reason, "unknown_role", message))


def _text(message: dict[str, Any], where: str) -> tuple[str | None, str]:
    for key in ("content", "text", "system_prompt"):
        if message.get(key) is not None:
            first = "/0" if isinstance(message[key], list) else ""
            return text_of(message[key]), f"{where}/{key}{first}"
    return None, where


def _add_screens(builder: EpisodeBuilder, row: dict[str, Any], locator: str) -> bool:
    """Goal, first screen, then each action with the screen it led to. True when no screen is missing."""
    actions, screens = row["actions"], row[_SCREENS]
    wishes = row["step_instructions"] if isinstance(row.get("step_instructions"), list) else []
    if "goal" in row:
        builder.message("user", text_or_none(row["goal"]), at(locator, "/goal"))
    if screens:
        builder.message("user", canonical(screens[0]), at(locator, f"/{_SCREENS}/0"))
    for index, action in enumerate(actions):
        where = at(locator, f"/actions/{index}")
        name = text_or_none(action.get("action_type")) if isinstance(action, dict) else None
        if name is None:
            builder.rejects.append(bad_part(where, "action without a type", "nameless_call", action))
            continue
        arguments = {key: value for key, value in action.items() if key != "action_type"}
        thought = text_or_none(wishes[index]) if index < len(wishes) else None
        builder.turn(None, [Call(name, arguments, None, where)], where, thought=thought)
        if index + 1 < len(screens):
            place = at(locator, f"/{_SCREENS}/{index + 1}")
            builder.result(None, canonical(screens[index + 1]), place)
    return len(screens) == len(actions) + 1


def _ending(builder: EpisodeBuilder, row: dict[str, Any]) -> tuple[Ending, str]:
    """The harness's exit status; else a submission, or the agent's last word. A verdict alone ends nothing."""
    status = first_text(row, "exit_status")
    if status is not None:
        return "terminal" if status == "submitted" else "truncated", f"exit status: {status[:60]}"
    if builder.last_action in FINISHING:
        return "terminal", f"the last action is {builder.last_action}"
    if builder.ends_unanswered:
        return "truncated", "last call is unanswered"
    if builder.messages and builder.messages[-1].role == "assistant":
        return "terminal", "end of conversation"
    return "truncated", "the log stops before the agent's answer"


def _offered(builder: EpisodeBuilder) -> list[str] | None:
    """The functions that the system prompt lists, where it does so in OpenHands' way."""
    first = builder.messages[0] if builder.messages else None
    names = _OFFERED.findall(first.content or "") if first is not None and first.role == "system" else []
    return sorted(set(names)) or None
