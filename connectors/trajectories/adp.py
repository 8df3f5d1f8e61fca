"""ADP's standardised trajectories (Agent Data Protocol): `{id, content: [{class_, …}], details}`. A record is one trajectory.

Actions and observations stand in order; a result is the observation right after its action. The standard has no place
for an outcome, and the texts of success that its converters append after the agent's end are no observations: no reward is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from logforge.connectors.chat import tool_names
from logforge.connectors.episodes import (
    FINISHING,
    Call,
    EpisodeBuilder,
    bad_part,
    close,
    content_id,
    failure_in,
    first_text,
    first_user_text,
    instance_task,
    place_of,
    read_outcome,
    read_reward,
    read_rows,
    reject,
    run_task,
    task_group,
    text_of,
    text_or_none,
)
from logforge.connectors.records import Head, Source, at, canonical
from logforge.schemas import Ending, Episode, Reading

_CODEACT_ID = re.compile(r"[^/]+/(.+)/([^/]+)/max\d+_p\d+[^/]*")
_FINISH = re.compile(r"\s*<finish>")
_CONVERTERS_PRAISE = frozenset(
    {
        "Congratulations! You have successfully solved the task.",
        "Your solution has been verified as correct.",
        "Well done on successfully completing the task!",
        "Your implementation satisfies the task requirements.",
        "Task completed successfully.",
    }
)
"""What the converters of Nebius and SWE-smith append to every run, whatever became of it; no environment said it."""
_HUMAN = "androidcontrol"
_SHELLS = frozenset({"bash", "sh", "shell"})


class CodeActId(NamedTuple):
    """What an id of CodeActInstruct tells: `collection/TASK/MODEL/setting`."""

    task: str | None
    model: str | None


def codeact_id(native: str | None) -> CodeActId:
    """Task and model of a CodeActInstruct id; None for other ids."""
    match = _CODEACT_ID.fullmatch(native or "")
    return CodeActId(match.group(1), match.group(2)) if match else CodeActId(None, None)


class AdpStd:
    """ADP's `sample_std.json` and its data sets as JSON lines."""

    name = "adp_std"
    version = 4
    record = "one trajectory: an array element or a line"
    fills = ("outcome", "rewards", "tools", "thoughts")
    splittable = True

    def sniff(self, head: Head) -> float:
        """Rows whose content is made of actions and observations that name their class."""
        known = "content" in head.top and "class_" in head.keys.get("content", set())
        return 0.95 if known and head.has_rows else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per row."""
        is_human = any(_HUMAN in part.lower() for part in source.place.parts[-3:])
        yield from read_rows(source, lambda row, locator: self._row(row, locator, is_human))

    def _row(self, row: Any, locator: str, is_human: bool) -> Iterator[Reading]:
        content = row.get("content") if isinstance(row, dict) else None
        if not isinstance(content, list):
            yield reject(locator, "no list `content` of actions and observations", "", row)
            return
        trajectory = _Trajectory()
        for index, item in enumerate(content):
            trajectory.add(item, at(locator, f"/content/{index}"))
        yield from close(trajectory.builder, self._episode(trajectory, row, locator, is_human))

    def _episode(self, trajectory: _Trajectory, row: dict[str, Any], locator: str, is_human: bool) -> Episode:
        details = row["details"] if isinstance(row.get("details"), dict) else {}
        native = text_or_none(row.get("id"))
        known = codeact_id(native)
        task = first_user_text(trajectory.builder)
        model = None if is_human else first_text(details, "model_name", "model") or known.model
        ending, reason = trajectory.ending(details, is_human)
        place = at(locator, "/details")
        told = read_outcome(details, place, trajectory.builder.rejects, under="details.")
        return trajectory.builder.finish(
            id=content_id(self.name, row),
            format=self.name,
            locator=locator,
            ending=ending,
            ending_reason=reason,
            native_id=native,
            task_id=instance_task(first_text(details, "instance_id", "task_id"))
            or known.task
            or run_task(native),
            group_id=task_group(task),
            task=task,
            source_kind="human_demo" if is_human else "agent_log",
            policy_id="human" if is_human else model,
            model=model,
            tools=tool_names(row.get("available_apis")),
            **told.void(failure_in(details, row)).fields(),
            metadata=canonical(
                {key: value for key, value in row.items() if key != "content"}
                | ({"converter_end": trajectory.converter_end} if trajectory.converter_end else {})
            ),
        )


class _Trajectory:
    """Takes a trajectory's actions and observations in order."""

    def __init__(self) -> None:
        self.builder = EpisodeBuilder()
        self._last = ""
        self._said: str | None = None
        self.converter_end: list[Any] = []

    def add(self, item: Any, where: str) -> None:
        """Take one of them."""
        kind = item.get("class_") if isinstance(item, dict) else None
        if isinstance(kind, str) and self._is_converters(item):
            self.converter_end.append(item)
            self._last = "converter_end"
            return
        if kind in ("api_action", "code_action"):
            self._call(item, where)
        elif kind == "message_action":
            self._say(item, where)
        elif isinstance(kind, str) and kind.endswith("_observation"):
            self._observe(item, kind, where)
        else:
            reason = "neither an action nor an observation that names its class"
            self.builder.rejects.append(bad_part(where, reason, "bad_item", item))
            return
        self._last = str(kind)

    def _call(self, item: dict[str, Any], where: str) -> None:
        call = _code(item, where) if item["class_"] == "code_action" else _api(item, where)
        if call is None:
            self.builder.rejects.append(bad_part(where, "call without a name", "nameless_call", item))
            self.builder.message("assistant", None, where, thought=_thought(item))
        else:
            self.builder.turn(None, [call], where, thought=_thought(item), reward=self._reward(item, where))

    def _is_converters(self, item: dict[str, Any]) -> bool:
        """What the converter wrote after the agent had ended its run: that it was right, and that it finishes."""
        if self.builder.last_action not in FINISHING:
            return False
        text = text_of(item.get("content")) or ""
        if item["class_"] == "message_action":
            return bool(_FINISH.match(text))
        return item["class_"] == "text_observation" and text.strip() in _CONVERTERS_PRAISE

    def _say(self, item: dict[str, Any], where: str) -> None:
        text = text_of(item.get("content"))
        if not self.builder.messages:
            # Before anything was seen there is nothing to answer: the converter put the task here.
            self.builder.message("user", text, place_of(item, "content", where))
            return
        self._said = text
        self.builder.turn(
            text,
            [],
            place_of(item, "content", where),
            thought=_thought(item),
            reward=self._reward(item, where),
        )

    def _observe(self, item: dict[str, Any], kind: str, where: str) -> None:
        text, place = _seen(item, kind, where)
        if self._last in ("api_action", "code_action") and self.builder.ends_unanswered:
            self.builder.result(None, text, place, reward=self._reward(item, where))
        else:
            self.builder.message("user", text, place)

    def _reward(self, item: dict[str, Any], where: str) -> float | None:
        return read_reward(item, where, self.builder.rejects)

    def ending(self, details: dict[str, Any], is_human: bool) -> tuple[Ending, str]:
        """The harness's exit status, where it was kept; else the agent's `<finish>`, or its last word."""
        status = first_text(details, "exit_status")
        if status is not None:
            return "terminal" if status == "submitted" else "truncated", f"exit status: {status[:60]}"
        if self._last == "message_action":
            finished = bool(_FINISH.match(self._said or ""))
            return "terminal", "the agent finished" if finished else "end of conversation"
        if is_human and self._last.endswith("_observation") and self.builder.last_action:
            return "terminal", "the demonstration is whole: a screen after its last action"
        if self.builder.last_action in FINISHING:
            return "terminal", f"the last action is {self.builder.last_action}"
        return "truncated", "the log stops before the agent finishes"


def _api(item: dict[str, Any], where: str) -> Call | None:
    name = text_or_none(item.get("function"))
    return None if name is None else Call(name, item.get("kwargs"), None, where)


def _code(item: dict[str, Any], where: str) -> Call:
    """Code is a call named after its language: the interpreter is the tool. A shell's is `bash`, as in other formats."""
    name, code = text_or_none(item.get("language")) or "code", text_of(item.get("content")) or ""
    if name in _SHELLS:
        return Call("bash", {"command": code}, None, where)
    return Call(name, {"code": code}, None, where)


def _thought(item: dict[str, Any]) -> str | None:
    parts = [text for key in ("reasoning_content", "description") if (text := text_or_none(item.get(key)))]
    return "\n".join(parts) or None


def _seen(item: dict[str, Any], kind: str, where: str) -> tuple[str | None, str]:
    """What was seen, as text: of a screen its labelled elements, of a web page its accessibility tree or its HTML."""
    if kind == "image_observation" and isinstance(item.get("annotations"), list):
        return canonical(item["annotations"]), f"{where}/annotations"
    if kind == "web_observation":
        for key in ("axtree", "html", "url"):
            if isinstance(item.get(key), str):
                return item[key], f"{where}/{key}"
    if item.get("content") is None:
        return canonical(item), where
    return text_of(item["content"]), f"{where}/content"
