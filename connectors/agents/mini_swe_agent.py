"""mini-SWE-agent trajectories: a bare list of messages, or a document with `info`, `messages` and `trajectory_format`.

The agent writes one fenced command per message (or, since 2.0, calls the tool `bash`, in messages or in objects of the
Responses API); the next user message is its output. A record is the document, or, in a bare list, one message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from logforge.connectors.agents.codex_items import read_item
from logforge.connectors.chat import calls_of
from logforge.connectors.episodes import (
    Call,
    EpisodeBuilder,
    Transcript,
    bad_part,
    close,
    command_call,
    content_id,
    cost_or_none,
    count_or_none,
    failure_in,
    fenced,
    first_number,
    first_text,
    first_user_text,
    micros,
    object_or_empty,
    parse_arguments,
    place_of,
    read_outcome,
    read_rows,
    reject,
    task_group,
    text_of,
    text_or_none,
)
from logforge.connectors.records import Head, NotJson, Source, at, canonical, loads
from logforge.schemas import Ending, Episode, Reading, Reject

_FENCES = ("mswea_bash_command", "bash")
_SUBMITS = re.compile(
    r"(?:\A|[\n;&|({])\s*(?:echo|printf)\s+(?:-\w+\s+)?[\"']?"
    r"(?:COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT|MINI_SWE_AGENT_FINAL_OUTPUT)\b"
)
_RETURN_CODE = re.compile(r"\s*<returncode>(-?\d{1,9})</returncode>")
_TIMED_OUT = re.compile(r"\s*(?:<exception>|The last command\b).{0,4000}\btimed out", re.DOTALL)
_COMMANDS = re.compile(rb"```mswea_bash_command|```bash\\n(?=.*<returncode>)", re.DOTALL)


_RESULT_KEYS = frozenset(
    {
        "role",
        "content",
        "tool_call_id",
        "extra",
        "timestamp",
        "type",
        "call_id",
        "output",
        "name",
        "id",
        "status",
    }
)
"""The keys of a command's result."""


class MiniSweAgent:
    """mini-SWE-agent's `.traj.json`."""

    name = "mini_swe_agent"
    version = 4
    record = "one run: the document; in a bare list of messages, one message"
    fills = ("thoughts", "tokens", "cost", "times")

    def sniff(self, head: Head) -> float:
        """The document names its format; a bare list has messages with commands in fences."""
        if head.container == "object":
            named = "trajectory_format" in head.top and b"mini-swe-agent" in head.data
            return 0.95 if named and "messages" in head.top else 0.0
        bare = head.container == "array" and {"role", "content"} <= head.top and not head.top & {"messages"}
        return 0.9 if bare and _COMMANDS.search(head.data) else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per document; the messages of a bare list are one episode, which comes at the end."""
        listed: list[tuple[Any, str]] = []
        cut = False

        def row(value: Any, locator: str) -> Iterator[Reading]:
            if isinstance(value, dict) and isinstance(value.get("messages"), list):
                pointer = at(locator, "/messages")
                messages = [(message, f"{pointer}/{i}") for i, message in enumerate(value["messages"])]
                yield from self._run(messages, value, locator, 1, cut=False)
            elif isinstance(value, dict) and "role" in value:
                listed.append((value, locator))
            else:
                yield reject(locator, "neither a message nor a run with messages", "", value)

        for reading in read_rows(source, row):
            cut = isinstance(reading, Reject) and reading.rule == "malformed_record"
            yield reading
        if listed:
            yield from self._run(listed, {}, listed[0][1], len(listed), cut=cut)

    def _run(
        self, messages: list[tuple[Any, str]], row: dict[str, Any], locator: str, records: int, *, cut: bool
    ) -> Iterator[Reading]:
        run = _Run()
        for message, where in messages:
            run.add(message, where)
        yield from close(run.builder, self._episode(run, messages, row, locator, records, cut))

    def _episode(
        self,
        run: _Run,
        messages: list[tuple[Any, str]],
        row: dict[str, Any],
        locator: str,
        records: int,
        cut: bool,
    ) -> Episode:
        info = object_or_empty(row.get("info"))
        config = object_or_empty(object_or_empty(info.get("config")).get("model"))
        model = first_text(config, "model_name")
        task = first_user_text(run.builder)
        ending, reason = run.ending(info, cut)
        place = at(locator, "/info")
        told = read_outcome(info, place, run.builder.rejects, score=(), under="info.")
        return run.builder.finish(
            id=content_id(self.name, row or [message for message, _ in messages]),
            format=self.name,
            locator=locator,
            records=records,
            ending=ending,
            ending_reason=reason,
            native_id=first_text(row, "instance_id"),
            task_id=first_text(row, "instance_id"),
            group_id=task_group(task),
            task=task,
            model=model,
            policy_id=model,
            temperature=first_number(object_or_empty(config.get("model_kwargs")), "temperature"),
            **told.void(_broken_by(info)).fields(),
            cost_usd=cost_or_none(object_or_empty(info.get("model_stats")).get("instance_cost")),
            metadata=canonical(
                {key: value for key, value in row.items() if key != "messages"} | {"exit": run.exits}
            ),
        )


class _Run:
    """Takes a run's messages in order."""

    def __init__(self) -> None:
        self.builder = EpisodeBuilder()
        self.exits: list[Any] = []
        self._calls = 0
        self._submitted = False

    def add(self, message: Any, where: str) -> None:
        """Take one message."""
        role = message.get("role") if isinstance(message, dict) else None
        text = text_of(message.get("content")) if role is not None else None
        if role == "assistant":
            self._turn(message, text, where)
        elif isinstance(message, dict) and message.get("object") == "response":
            self._response(message, where)
        elif isinstance(message, dict) and message.get("type") == "function_call_output":
            answer = message | {"tool_call_id": message.get("call_id")}
            self._result(answer, text_of(message.get("output")), place_of(message, "output", where))
        elif role in ("user", "tool") and (role == "tool" or self._calls):
            self._result(message, text, where)
        elif role in ("system", "user"):
            self.builder.message(role, text, where, created_at=_time(message))
        elif role == "exit":
            self.exits.append(message)
        else:
            known = "system, user, assistant, tool, exit"
            self.builder.rejects.append(
                bad_part(where, f"message whose role is none of {known}", "unknown_role", message)
            )

    def _turn(self, message: dict[str, Any], text: str | None, where: str) -> None:
        calls = calls_of(message, where, self.builder.rejects)
        named = bool(message.get("tool_calls") or message.get("function_call"))
        if not calls and not named:
            blocks = fenced(text or "", *_FENCES)
            # Exactly one block is run. Several are refused by the program: a decision it did not take.
            calls = command_call(blocks[0], where) if len(blocks) == 1 else []
            named = len(blocks) > 1
        calls = [call._replace(name="submit") if _submits(call) else call for call in calls]
        self._calls = len(calls)
        self._submitted = any(call.name == "submit" for call in calls)
        usage = object_or_empty(
            object_or_empty(object_or_empty(message.get("extra")).get("response")).get("usage")
        )
        more: dict[str, Any] = {
            "thought": first_text(message, "reasoning_content"),
            "created_at": _time(message),
            "tokens_in": count_or_none(usage.get("prompt_tokens")),
            "tokens_out": count_or_none(usage.get("completion_tokens")),
        }
        if named and not calls:
            self.builder.message("assistant", text, where, **more)
        else:
            self.builder.turn(text, calls, where, **more)

    def _response(self, response: dict[str, Any], where: str) -> None:
        """An object of the Responses API: its items, in order, are one turn."""
        script, place = Transcript(model=text_or_none(response.get("model"))), at(where, "/output")
        items = response.get("output")
        for index, item in enumerate(items if isinstance(items, list) else ()):
            spot = f"{place}/{index}"
            given = read_item(script, item, spot, _time(response)) if isinstance(item, dict) else None
            if isinstance(given, Reject) or not isinstance(item, dict):
                part = bad_part(spot, "item that is no call, text or thought", "bad_item", item)
                self.builder.rejects.append(part)
        usage = object_or_empty(response.get("usage"))
        for turn in script.turns:
            turn.parts.calls = [c._replace(name="submit") if _submits(c) else c for c in turn.parts.calls]
            turn.tokens_in = count_or_none(usage.get("input_tokens"))
            turn.tokens_out = count_or_none(usage.get("output_tokens"))
            usage = {}
        calls = [call for turn in script.turns for call in turn.parts.calls]
        self._calls, self._submitted = len(calls), any(call.name == "submit" for call in calls)
        script.build(self.builder)

    def _result(self, message: dict[str, Any], text: str | None, where: str) -> None:
        """What a command gave. The last one gives the submission itself, and no return code."""
        if text is None:
            self.builder.silent(message, _RESULT_KEYS, where, decides=False)
        code: Any = object_or_empty(message.get("extra")).get("returncode")
        match = _RETURN_CODE.match(text or "")
        if not isinstance(code, int) and match:
            code = int(match.group(1))
        late = bool(_TIMED_OUT.match(text or ""))
        failed = (True if late else None) if not isinstance(code, int) else code != 0
        call_id = text_or_none(message.get("tool_call_id"))
        self._calls = max(0, self._calls - 1)
        self.builder.result(
            call_id,
            text,
            where,
            failed=failed,
            status="timeout" if late and failed else None,
            created_at=_time(message),
        )

    def ending(self, info: dict[str, Any], cut: bool) -> tuple[Ending, str]:
        """`Submitted` is the agent's own end; limits and errors stopped it. A bare list tells by its last command."""
        if cut:
            return "truncated", "the log is cut off"
        status = first_text(info, "exit_status")
        if status is not None:
            return "terminal" if status == "Submitted" else "truncated", f"exit status: {status[:60]}"
        if self._submitted:
            return "terminal", "no exit status, but the last command submits"
        return "truncated", "no exit status and no submission"


def _broken_by(info: dict[str, Any]) -> str | None:
    """The failure that ended the run, where its exit status names one; a limit of its own and a submission are none."""
    status = first_text(info, "exit_status")
    return failure_in({"error": status}) if status and status.endswith(("Error", "Exception")) else None


def _submits(call: Call) -> bool:
    """A command that prints the marker, by which the program knows that the agent is done. To search for it is none."""
    command = parse_arguments(call.arguments).text
    with suppress(NotJson):
        arguments = loads(command)
        command = str(arguments.get("command")) if isinstance(arguments, dict) else command
    return call.name == "bash" and _SUBMITS.search(command) is not None


def _time(message: dict[str, Any]) -> int | None:
    stamp = message.get("timestamp") or object_or_empty(message.get("extra")).get("timestamp")
    return None if stamp is None else micros(stamp)
