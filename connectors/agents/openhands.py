"""OpenHands: a trajectory as exported (a list of events) and the evaluation's outputs (rows with a `history` of events).

In an exported trajectory the record is an event; in outputs it is a row. Old rows hold pairs of action and
observation instead of a flat list. Events of the SDK (1.x), which name their `kind`, stand in the same places.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from logforge.connectors.agents.openhands_run import Run
from logforge.connectors.agents.openhands_sdk import SdkRun, is_sdk_event
from logforge.connectors.episodes import (
    UNKNOWN,
    Outcome,
    bad_part,
    close,
    content_id,
    cost_or_none,
    episode_id,
    failure_in,
    first_number,
    first_text,
    first_user_text,
    read_outcome,
    read_rows,
    reject,
    task_group,
    text_or_none,
)
from logforge.connectors.records import Head, Source, at, canonical
from logforge.schemas import Episode, Reading, Reject

_VERDICTS = ("resolved", "success")
_NO_EVENT = "neither an action nor an observation"
_SDK = re.compile(rb'"kind"\s*:\s*"(?:SystemPrompt|Message|Action|Observation|ConversationStateUpdate)Event"')
_ALONE = re.compile(r"event-\d+-")
"""How the SDK names a file of one event. Each such file for itself is no run."""


class OpenHandsEvents:
    """A trajectory as OpenHands exports it."""

    name = "openhands_events"
    version = 4
    record = "one event: an array element or a line (a file is one run)"
    fills = ("tools", "thoughts", "tokens", "latency", "times")

    def sniff(self, head: Head) -> float:
        """A list of events: an action or an observation, or the SDK's `kind`; who sent it, and when."""
        if {"kind", "id", "source", "timestamp"} <= head.top and _SDK.search(head.data):
            return 0.95 if head.container in ("array", "object") and not _ALONE.match(head.name) else 0.0
        event = {"action", "observation"} & head.top and {"source", "timestamp"} <= head.top
        return 0.95 if head.container == "array" and event and {"args", "extras"} & head.top else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode, and one for each agent that was delegated to."""
        events: list[tuple[Any, str]] = []
        cut = False

        def row(event: Any, locator: str) -> Iterator[Reading]:
            if _is_event(event):
                events.append((event, locator))
            else:
                yield reject(locator, _NO_EVENT, "", event)

        for reading in read_rows(source, row):
            cut = isinstance(reading, Reject) and reading.rule == "malformed_record"
            yield reading
        run = _run_of(event for event, _ in events)
        taken = []
        for event, locator in events:
            if _takes(run, event):
                taken.append(event)
                run.add(event, locator if "#" in locator else f"{locator}#")
            else:
                yield reject(locator, _NO_EVENT, "", event)
        run.close()
        if taken:
            error = "the log is cut off" if cut else None
            yield from _episodes(self.name, run, _identity(self.name, taken), error=error)


class OpenHandsOutput:
    """`output.jsonl` of OpenHands' evaluations and its issue resolver."""

    name = "openhands_output"
    version = 4
    record = "one row: a run on one instance"
    fills = ("outcome", "tools", "thoughts", "tokens", "cost", "latency", "times")
    splittable = True

    def sniff(self, head: Head) -> float:
        """A row with a history of events and the instance or the issue it worked on."""
        known = "history" in head.top and {"instance_id", "issue"} & head.top
        ours = {"instruction", "test_result", "git_patch", "metrics"} & head.top
        events = head.keys.get("history", set())
        return 0.95 if known and ours and (not events or {"action", "observation", "kind"} & events) else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per row, and one for each agent that was delegated to."""
        yield from read_rows(source, self._row)

    def _row(self, row: Any, locator: str) -> Iterator[Reading]:
        history = row.get("history") if isinstance(row, dict) else None
        if not isinstance(history, list):
            yield reject(locator, "no list `history` of events", "", row)
            return
        events = list(_flat(history, at(locator, "/history")))
        run = _run_of(event for event, _ in events)
        for event, where in events:
            if _takes(run, event):
                run.add(event, where)
            else:
                run.builder.rejects.append(bad_part(where, _NO_EVENT, "bad_event", event))
        run.close()
        run.locator = locator
        yield from _episodes(self.name, run, content_id(self.name, row), row, error=_error(row))


def _identity(name: str, events: list[Any]) -> str:
    """An export of a conversation that went on is the same episode: its first event's time, to the microsecond, tells it."""
    time = events[0].get("timestamp")
    exact = isinstance(time, str) and "." in time
    return content_id(name, events[0] if exact else events)


def _is_event(event: Any) -> bool:
    return _is_named(event) or is_sdk_event(event)


def _is_named(event: Any) -> bool:
    return isinstance(event, dict) and any(isinstance(event.get(k), str) for k in ("action", "observation"))


def _run_of(events: Iterable[Any]) -> Run | SdkRun:
    """What most of the events speak: one that is damaged may look like one of the other kind."""
    sdk = [is_sdk_event(event) for event in events if _is_event(event)]
    return SdkRun() if 2 * sum(sdk) > len(sdk) else Run()


def _takes(run: Run | SdkRun, event: Any) -> bool:
    return is_sdk_event(event) if isinstance(run, SdkRun) else _is_named(event)


def _flat(history: list[Any], where: str) -> Iterator[tuple[Any, str]]:
    """The events of a history, which in old rows is a list of pairs."""
    for index, item in enumerate(history):
        if isinstance(item, list):
            yield from ((event, f"{where}/{index}/{inner}") for inner, event in enumerate(item))
        else:
            yield item, f"{where}/{index}"


def _episodes(
    name: str, run: Run | SdkRun, own_id: str, row: dict[str, Any] | None = None, *, error: str | None = None
) -> Iterator[Reading]:
    """The run's episode, then those of the agents it delegated to, each below its parent."""
    yield from close(run.builder, _episode(name, run, own_id, row, error, None))
    for number, child in enumerate(run.children):
        yield from _children(name, child, own_id, number, row is not None)


def _children(name: str, run: Run | SdkRun, parent: str, number: int, in_row: bool) -> Iterator[Reading]:
    own_id = episode_id(name, parent, number)
    if in_row:
        run.records = 0
    yield from close(run.builder, _episode(name, run, own_id, None, None, parent))
    for index, child in enumerate(run.children):
        yield from _children(name, child, own_id, index, in_row)


def _episode(
    name: str,
    run: Run | SdkRun,
    own_id: str,
    row: dict[str, Any] | None,
    error: str | None,
    parent: str | None,
) -> Episode:
    ending, reason = run.ending(error)
    about = row or {}
    config = _inside(about, "metadata", "llm_config") or _inside(about, "metadata", "llm")
    model = text_or_none(config.get("model")) or run.model
    patch = text_or_none(_inside(about, "instance").get("patch"))
    task = first_user_text(run.builder) or run.task or text_or_none(about.get("instruction"))
    return run.builder.finish(
        id=own_id,
        format=name,
        locator=run.locator,
        records=run.records if row is None else 1,
        ending=ending,
        ending_reason=reason,
        native_id=_task_id(about),
        task_id=_task_id(about),
        task=task,
        group_id=task_group(task),
        parent_episode_id=parent,
        model=model,
        policy_id=model,
        temperature=first_number(config, "temperature"),
        **_outcome(about, run).fields(),
        cost_usd=cost_or_none(_inside(about, "metrics").get("accumulated_cost")),
        reference=None if patch is None else canonical(patch),
        metadata=canonical(
            {key: value for key, value in about.items() if key != "history"} | {"other_events": run.others}
        ),
    )


def _inside(value: Any, *keys: str) -> dict[str, Any]:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def _error(row: dict[str, Any]) -> str | None:
    """What stopped the run from outside: the cap on iterations, a crash, a lost runtime."""
    error = row.get("error")
    return (error if isinstance(error, str) else canonical(error)) if error else None


def _task_id(row: dict[str, Any]) -> str | None:
    issue = _inside(row, "issue")
    if issue.get("number") is not None:
        return f"{issue.get('owner')}/{issue.get('repo')}#{issue['number']}"
    return first_text(row, "instance_id")


def _outcome(row: dict[str, Any], run: Run | SdkRun) -> Outcome:
    """The tests' verdict, or the resolver's own (judged by a model); a patch alone is no verdict."""
    for keys in (("test_result", "report"), ("report",), ()):
        place, under = at(run.locator, "".join(f"/{key}" for key in keys)), "".join(f"{key}." for key in keys)
        inner = _inside(row, *keys) if keys else row
        told = read_outcome(inner, place, run.builder.rejects, success=_VERDICTS, score=(), under=under)
        if told.known:
            return told.void(failure_in(row))
    return UNKNOWN.void(failure_in(row))
