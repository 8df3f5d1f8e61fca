"""Evaluation sets of the Agent Development Kit (ADK): {eval_set_id, eval_cases: [{eval_id, conversation}]}.

A record is the document: one set, of which every case is an episode. Keys may be in snake or camel case.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from logforge.connectors.agents.adk import add_event, add_responses, add_turn
from logforge.connectors.chat import (
    CallOrder,
    GoogleParts,
    key_of,
    read_call,
    read_parts,
    read_response,
    value_of,
)
from logforge.connectors.episodes import (
    bad_part,
    close,
    content_id,
    first_user_text,
    micros,
    read_rows,
    reject,
    text_or_none,
)
from logforge.connectors.records import Head, Source, as_one_record, at, canonical
from logforge.schemas import Reading


class AdkEvalSet:
    """ADK's evaluation sets: recorded conversations that later runs are compared with."""

    name = "adk_evalset"
    version = 4
    record = "the document (or line): one set; every case is an episode"
    fills = ("times",)

    def sniff(self, head: Head) -> float:
        """A document with a set's id and cases."""
        keys = head.top
        named = {"eval_set_id", "eval_cases"} <= keys or {"evalSetId", "evalCases"} <= keys
        return 0.95 if head.container in ("object", "array") and named else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per case."""
        yield from read_rows(source, self._row)

    def _row(self, row: Any, locator: str) -> Iterator[Reading]:
        cases = value_of(row, "eval_cases")
        if not isinstance(cases, list) or not cases:
            yield reject(locator, "no list of evaluation cases", "", row)
            return
        place = at(locator, "/" + key_of(row, "eval_cases"))
        readings = [
            reading
            for index, case in enumerate(cases)
            for reading in self._case(case, f"{place}/{index}", value_of(row, "eval_set_id"))
        ]
        yield from as_one_record(readings, locator)

    def _case(self, case: Any, where: str, set_id: Any) -> Iterator[Reading]:
        turns = case.get("conversation") if isinstance(case, dict) else None
        if not isinstance(turns, list):
            yield reject(where, "case without a conversation", "", case)
            return
        builder = CallOrder()
        ended = False
        progress: list[Any] = []
        for index, turn in enumerate(turns):
            ended = _add_invocation(builder, turn, at(where, f"/conversation/{index}"), progress)
        session = value_of(case, "session_input")
        expected = value_of(case, "final_session_state")
        facts = {"eval_set_id": set_id, "session_input": session, "rubrics": case.get("rubrics")}
        facts |= {"intermediate_responses": progress or None}
        task_id = text_or_none(value_of(case, "eval_id"))
        episode = builder.finish(
            id=content_id(self.name, case),
            format=self.name,
            locator=where,
            ending="terminal" if ended else "truncated",
            ending_reason="the last turn has its final response" if ended else "no final response",
            native_id=task_id,
            task_id=task_id,
            task=first_user_text(builder),
            user_id=text_or_none(value_of(session, "user_id")),
            reference=canonical(expected) if expected else None,
            metadata=canonical({k: v for k, v in facts.items() if v is not None}),
        )
        yield from close(builder, episode)


_TURN: Final = frozenset(
    {"invocation_id", "invocationId", "user_content", "userContent", "final_response", "finalResponse"}
    | {"intermediate_data", "intermediateData", "creation_timestamp", "creationTimestamp"}
    | {"rubrics", "app_details", "appDetails"}
)
"""The keys of a turn, in either spelling."""


def _add_invocation(builder: CallOrder, turn: Any, where: str, progress: list[Any]) -> bool:
    """One turn: what the user said, what the agent did, its final response. Returns whether that is there."""
    if not isinstance(turn, dict):
        builder.rejects.append(bad_part(where, "turn is no object", "bad_turn", turn))
        return False
    time = micros(value_of(turn, "creation_timestamp") or None)
    asked = read_parts(value_of(turn, "user_content"), at(where, "/" + key_of(turn, "user_content")))
    builder.rejects += asked.rejects
    builder.note(asked.unknown, decides=asked.decides)
    if asked.texts:
        builder.message("user", asked.text, asked.texts[0].locator, created_at=time)
    elif not asked.unknown:
        builder.silent(turn, _TURN, where, decides=True)
    data, place = value_of(turn, "intermediate_data"), at(where, "/" + key_of(turn, "intermediate_data"))
    if isinstance(data, dict):
        _add_work(builder, data, place)
        progress += [said for said, _ in _listed(data, "intermediate_responses", place)]
    final = read_parts(value_of(turn, "final_response"), at(where, "/" + key_of(turn, "final_response")))
    builder.rejects += final.rejects
    builder.note(final.unknown, decides=True)
    add_turn(builder, final, where, created_at=time)
    return bool(final.texts)


def _add_work(builder: CallOrder, data: dict[str, Any], where: str) -> None:
    """What the agent did before its final response: a list of events, or calls and responses in two lists.

    Two lists do not tell which calls were made in one breath: each is a turn of its own, followed by its response.
    """
    for event, place in _listed(data, "invocation_events", where):
        add_event(builder, event, place)
    responses = []
    for response, place in _listed(data, "tool_responses", where):
        if isinstance(response, dict):
            responses.append(read_response(response, place))
        else:
            builder.rejects.append(bad_part(place, "response is no object", "bad_response", response))
    for use, place in _listed(data, "tool_uses", where):
        parts = GoogleParts()
        read_call(parts, use, place)
        builder.rejects += parts.rejects
        add_turn(builder, parts, place)
        for call in parts.calls:
            answers = [r for r in responses if (r.call_id, r.name) == (call.call_id, call.name)]
            add_responses(builder, answers[:1], None)
            responses = [r for r in responses if r not in answers[:1]]
    for response in responses:
        reason = "result without a call it could answer"
        builder.rejects.append(bad_part(response.locator, reason, "orphan_result", response.text))


def _listed(data: dict[str, Any], name: str, where: str) -> list[tuple[Any, str]]:
    """The elements of a list and where they stand; none when it is no list."""
    found, place = value_of(data, name), at(where, "/" + key_of(data, name))
    return [(item, f"{place}/{index}") for index, item in enumerate(found if isinstance(found, list) else ())]
