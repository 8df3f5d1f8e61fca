"""LangSmith runs: batches {post: [runs], patch: [runs]} as the SDK sends them, or one run per record as it is exported.

A run begins in `post` and ends in `patch`, joined by id. The conversation of a trace is in its model runs (`run_type`
llm); a chain around them repeats it, so that is read only where there is no model run. A record is a batch or a run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from logforge.connectors.chat import add_requested, message_name, offer_requested, thought_of
from logforge.connectors.episodes import (
    Continuations,
    EpisodeBuilder,
    close,
    cost_or_none,
    count_or_none,
    episode_id,
    first_number,
    first_text,
    first_user_text,
    is_uuid,
    keyed,
    limit_met,
    micros,
    native_or_content,
    reject,
    text_or_none,
)
from logforge.connectors.records import Head, Source, canonical
from logforge.connectors.traces.envelopes import is_foreign
from logforge.connectors.traces.langsmith_runs import Run, Runs, answers_of, is_run, messages_of
from logforge.schemas import Ending, Episode, Reading, Reject, Skip

_FIELDS = frozenset(
    {
        "id",
        "trace_id",
        "dotted_order",
        "parent_run_id",
        "run_type",
        "name",
        "inputs",
        "outputs",
        "extra",
        "events",
    }
    | {
        "serialized",
        "metadata",
        "tags",
        "error",
        "feedback_stats",
        "session_id",
        "reference_example_id",
        "attachments",
    }
)
"""Fields of a run in which no answer lies that is not in its outputs."""


class LangsmithRuns:
    """LangSmith's run logs."""

    name = "langsmith_runs"
    version = 5
    record = "one batch of runs (a document or line), or one run"
    fills = ("tools", "thoughts", "tokens", "cost", "times")

    def sniff(self, head: Head) -> float:
        """A batch whose runs have a trace, or a run itself."""
        if head.container not in ("object", "array"):
            return 0.0
        runs = head.keys.get("post", set()) | head.keys.get("patch", set())
        batch = {"post", "patch"} & head.top and {"id", "trace_id", "dotted_order"} <= runs
        return 0.95 if batch or {"run_type", "trace_id", "inputs"} <= head.top else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per conversation of a trace, after what is set aside."""
        runs = Runs()
        for locator, row in source.records():
            reading = row if isinstance(row, Reject) else self._take(runs, row, locator)
            if reading is not None:
                yield reading
        yield from _account(runs, [reading for trace in runs.traces() for reading in _read_trace(trace)])

    def _take(self, runs: Runs, row: Any, locator: str) -> Reading | None:
        try:
            batch = isinstance(row, dict) and any(isinstance(row.get(k), list) for k in ("post", "patch"))
            if batch or is_run(row):
                runs.add(row, locator)
                return None
            return reject(locator, "neither a batch of runs nor a run", "", row)
        except RecursionError:
            return Reject(locator=locator, reason="nested too deep", rule="nested_too_deep")


def _account(runs: Runs, readings: list[tuple[Reading, list[Run]]]) -> Iterator[Reading]:
    """Each record counts for the first episode that has a run of it. One without any is set aside or skipped."""
    owners: dict[str, str | None] = {}
    for reading, used in readings:
        if isinstance(reading, Episode) or (isinstance(reading, Reject) and reading.level == "record"):
            taken = {record for run in used for record in run.records if record not in owners}
            owners |= dict.fromkeys(taken, reading.episode_id)
            if isinstance(reading, Episode) or taken:
                yield msgspec.structs.replace(reading, records=len(taken))
            else:
                yield msgspec.structs.replace(reading, level="part", records=1)
        elif isinstance(reading, Reject):
            yield reading
    for record in runs.records:
        parts = runs.rejects.get(record, [])
        if record in owners:
            yield from (msgspec.structs.replace(part, episode_id=owners[record]) for part in parts)
        elif parts:
            yield msgspec.structs.replace(parts[0], level="record")
        else:
            yield Skip(reason="no_conversation")


def _read_trace(trace: list[Run]) -> list[tuple[Reading, list[Run]]]:
    """The conversations of a trace. One below a tool's run is that of a sub-agent."""
    talks = [run for run in trace if run.kind == "llm" and messages_of(run)]
    talks = talks or [run for run in trace if messages_of(run)][:1]
    continuations: Continuations[Run] = Continuations()
    for run in talks:
        asked = [message_name(message) for message, _ in messages_of(run)]
        continuations.add(asked, [message_name(message) for message, _ in answers_of(run)], run)
    found: list[tuple[Reading, list[Run]]] = []
    for number, chain in enumerate(continuations.chains):
        used = trace if not number else chain
        try:
            readings = list(_episode(chain, trace, number))
        except RecursionError:
            where = chain[0].locator
            readings = [Reject(level="part", locator=where, reason="nested too deep", rule="nested_too_deep")]
        found += [(reading, used) for reading in readings]
    return found


def _episode(chain: list[Run], trace: list[Run], number: int) -> Iterator[Reading]:
    first, last = chain[0], chain[-1]
    builder = EpisodeBuilder()
    ids = _add_conversation(builder, chain)
    ending, reason = _ending(builder, last)
    whole = native_or_content(LangsmithRuns.name, first.trace, trace[0].fields)
    below = number and _below_tool(first, {run.id: run for run in trace})
    model = next((name for run in chain if (name := _model(run))), None)
    facts = {"name": first.get("name"), "project": first.get("session_name"), "tags": first.get("tags")}
    episode = builder.finish(
        id=episode_id(LangsmithRuns.name, whole, first.id) if number else whole,
        format=LangsmithRuns.name,
        locator=last.locator,
        records=0,
        ending=ending,
        ending_reason=reason,
        native_id=f"{first.trace}/{first.id}" if number else first.trace,
        parent_episode_id=whole if below else None,
        group_id=whole if len(trace) > 1 else None,
        task=first_user_text(builder),
        session_id=first_text(first.metadata, "session_id", "thread_id", "conversation_id"),
        user_id=first_text(first.metadata, "user_id"),
        model=model,
        policy_id=model,
        temperature=first_number(_settings(first), "temperature", "ls_temperature"),
        started_at=micros(first.get("start_time")),
        ended_at=micros(last.get("end_time")),
        metadata=canonical({k: v for k, v in facts.items() if v} | {"metadata": first.metadata}),
    )
    yield from keyed(close(builder, episode), ids)


def _add_conversation(builder: EpisodeBuilder, chain: list[Run]) -> dict[int, str]:
    """The last run's messages and its answer; each answer with what its own run told. Returns the ids of the runs by the
    position of their answers."""
    told = {len(messages_of(run)): run for run in chain}
    offer_requested(builder, _settings(chain[0]))
    ids: dict[int, str] = {}
    for index, (message, where) in enumerate(messages_of(chain[-1])):
        ids |= _add(builder, message, where, told.get(index))
    answers = answers_of(chain[-1])
    for message, where in answers:
        ids |= _add(builder, message, where, chain[-1])
    if not answers:
        _note_unread(builder, chain[-1])
    return ids


def _note_unread(builder: EpisodeBuilder, run: Run) -> None:
    """What a run without an answer gave, in outputs that are not understood or under a key that nobody reads."""
    for key, value in run.fields.items():
        where = run.places[key]
        if key == "outputs" and value:
            builder.unknown(where, value, decides=run.kind == "llm" or is_foreign(value))
        elif key not in _FIELDS and is_foreign(value):
            builder.unknown(where, value, decides=True)


def _add(builder: EpisodeBuilder, message: Any, where: str, told: Run | None) -> dict[int, str]:
    answer = add_requested(builder, message, where, None if told is None else _settings(told))
    if told is None or answer is None:
        return {}
    asked, said = told.tokens
    builder.messages[-1] = msgspec.structs.replace(
        answer,
        thought=answer.thought or _thought(told),
        model=_model(told),
        tokens_in=count_or_none(asked),
        tokens_out=count_or_none(said),
        cost_usd=cost_or_none(told.get("total_cost")),
        created_at=micros(told.get("end_time")),
    )
    return {answer.position: told.id} if is_uuid(told.id) else {}


def _thought(run: Run) -> str | None:
    """What the model thought before its answer; a later run is not sent it again."""
    found = answers_of(run)
    return thought_of(found[0][0]) if found and isinstance(found[0][0], dict) else None


def _model(run: Run) -> str | None:
    return first_text(_settings(run), "ls_model_name", "model", "model_name") or text_or_none(
        run.outputs.get("model")
    )


def _settings(run: Run) -> dict[str, Any]:
    """How the model was called: what the request says, then the invocation, then LangSmith's own notes."""
    extra = run.get("extra")
    invoked = extra.get("invocation_params") if isinstance(extra, dict) else None
    given = ("model", "temperature", "tools", "tool_choice")
    named = {k: v for k, v in run.inputs.items() if k in given and v is not None}
    return run.metadata | (invoked if isinstance(invoked, dict) else {}) | named


def _below_tool(run: Run, runs: dict[str, Run]) -> bool:
    seen: set[str] = set()
    above = text_or_none(run.get("parent_run_id"))
    while above is not None and above in runs and above not in seen:
        seen.add(above)
        if runs[above].kind == "tool":
            return True
        above = text_or_none(runs[above].get("parent_run_id"))
    return False


def _ending(builder: EpisodeBuilder, last: Run) -> tuple[Ending, str]:
    """The last run's error or finish reason; a run without an end is still going on."""
    error = text_or_none(last.get("error"))
    if error is not None:
        return "truncated", f"error: {error[:80]}"
    if not last.outputs:
        return "truncated", "the run has no outputs yet" if last.get("end_time") is None else "no outputs"
    if (why := limit_met(last.finish)) is not None:
        return "truncated", why
    if builder.ends_unanswered:
        return "truncated", "last call is unanswered"
    if builder.messages and builder.messages[-1].role == "assistant":
        return "terminal", f"the run ended: {last.finish}" if last.finish else "the run ended"
    return "truncated", "the log stops before the agent's answer"
