"""Google's Taskmaster: dialogues that one person wrote for both sides (`taskmaster4`), and judged single answers
(`taskmaster_reward`). A record is an array element.

A dialogue's API calls hang on the user turn that triggered them, as a flat list of annotations whose values are JSON
text. A judged answer is one decision of a model: the turns of its context were made by people and are no steps.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Any, NamedTuple

from logforge.connectors.chat import chat_ending, json_field
from logforge.connectors.episodes import (
    Call,
    EpisodeBuilder,
    Outcome,
    bad_part,
    close,
    content_id,
    episode_id,
    first_user_text,
    read_outcome,
    read_rows,
    reject,
    text_of,
    text_or_none,
)
from logforge.connectors.records import Head, Source, at, canonical
from logforge.schemas import Episode, Reading, Reject

_UNIQUE = re.compile(r"dlg-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""A dialogue id that holds a UUID, and so is the same dialogue in every file."""


class Taskmaster4:
    """Taskmaster-4's dialogues."""

    name = "taskmaster4"
    version = 4
    record = "one dialogue (an array element, a line or the document)"
    fills: tuple[str, ...] = ()
    splittable = True

    def sniff(self, head: Head) -> float:
        """Rows with a conversation_id and utterances with a speaker and a text."""
        said = {"speaker", "text"} <= head.keys.get("utterances", set())
        mine = head.has_rows and "conversation_id" in head.top
        return 0.9 if mine and said else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per dialogue."""
        yield from read_rows(source, self._row)

    def _row(self, row: Any, locator: str) -> Iterator[Reading]:
        if not isinstance(row, dict) or not isinstance(row.get("utterances"), list):
            yield reject(locator, "no list of `utterances`", "", row)
            return
        builder = EpisodeBuilder()
        for index, turn in enumerate(row["utterances"]):
            _add_utterance(builder, turn, at(locator, f"/utterances/{index}"))
        yield from close(builder, self._episode(builder, row, locator))

    def _episode(self, builder: EpisodeBuilder, row: dict[str, Any], locator: str) -> Episode:
        native = text_or_none(row.get("conversation_id"))
        unique = native is not None and _UNIQUE.fullmatch(native)
        ending, reason = chat_ending(builder)
        spans = {
            str(index): turn["segments"]
            for index, turn in enumerate(row["utterances"])
            if isinstance(turn, dict) and turn.get("segments")
        }
        return builder.finish(
            id=episode_id(self.name, native) if unique else content_id(self.name, row),
            format=self.name,
            locator=locator,
            ending=ending,
            ending_reason=reason,
            native_id=native,
            task_id=text_or_none(row.get("scenario")),
            task=first_user_text(builder),
            source_kind="human_demo",
            policy_id="human",
            metadata=canonical({k: v for k, v in row.items() if k != "utterances"} | {"segments": spans}),
        )


def _add_utterance(builder: EpisodeBuilder, turn: Any, where: str) -> None:
    speaker = turn.get("speaker") if isinstance(turn, dict) else None
    if speaker == "user":
        builder.message("user", turn.get("text"), f"{where}/text" if turn.get("text") else where)
    elif speaker == "assistant":
        builder.turn(turn.get("text"), [], f"{where}/text" if turn.get("text") else where)
    else:
        builder.rejects.append(
            bad_part(where, "utterance of neither user nor assistant", "unknown_role", turn)
        )
        return
    # Newer releases call the list `apis` in their documentation; all that are published call it `annotations`.
    key = "annotations" if "annotations" in turn else "apis"
    listed = turn.get(key)
    notes = [
        note
        for index, value in enumerate(listed if isinstance(listed, list) else ())
        if (note := _note(builder, value, f"{where}/{key}/{index}"))
    ]
    for context, group in groupby(notes, key=lambda note: note.context):
        _add_exchange(builder, context, list(group))


class _Note(NamedTuple):
    context: str
    name: str
    value: Any
    where: str


def _note(builder: EpisodeBuilder, value: Any, where: str) -> _Note | None:
    known = ("api_call", "request", "api_response", "response")
    if not isinstance(value, dict) or value.get("name") not in known:
        builder.rejects.append(bad_part(where, "annotation of an unknown kind", "unknown_annotation", value))
        return None
    return _Note(text_or_none(value.get("context")) or "", value["name"], value.get("value"), where)


def _add_exchange(builder: EpisodeBuilder, context: str, notes: list[_Note]) -> None:
    """What annotations of one context say: a call and its arguments, or a response (`api_response_3` answers `api_call_3`)."""
    found = {note.name: note for note in reversed(notes)}
    number = context.rpartition("_")[2]
    call_id = f"api_call_{number}" if number.isdigit() else None
    call, request = found.get("api_call"), found.get("request")
    response = found.get("response") or found.get("api_response")
    if call is not None and isinstance(call.value, str) and call.value:
        arguments = request.value if request else None
        builder.turn(None, [Call(call.value, arguments, call_id, call.where)], call.where)
    elif call is not None or request is not None:
        where = (call or request or notes[0]).where
        builder.rejects.append(
            bad_part(where, "call without a name", "nameless_call", [n.value for n in notes])
        )
    if response is not None:
        said = response.name == "response" and response.value
        text, where = (text_of(response.value), f"{response.where}/value") if said else ("", response.where)
        builder.result(call_id, text, where)


class TaskmasterReward:
    """Taskmaster's judged answers: one decision each."""

    name = "taskmaster_reward"
    version = 5
    record = "one judged answer (an array element, a line or the document)"
    fills = ("outcome", "rewards")
    splittable = True

    def sniff(self, head: Head) -> float:
        """Rows with a conversation_id, a context, a generation and a reward."""
        mine = {"conversation_id", "context", "generation", "reward"} <= head.top
        return 0.95 if mine and head.has_rows else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode of one decision per row."""
        yield from read_rows(source, self._row)

    def _row(self, row: Any, locator: str) -> Iterator[Reading]:
        if not isinstance(row, dict):
            yield reject(locator, "no object with a context and a generation", "", row)
            return
        context, answer = (json_field(row, key, locator) for key in ("context", "generation"))
        damaged = next((value for value in (context, answer) if isinstance(value, Reject)), None)
        if damaged is not None:
            yield damaged
            return
        if not isinstance(context, list) or not isinstance(answer, dict):
            yield reject(locator, "its context is no list of turns, or its generation no turn", "", row)
            return
        if answer.get("api") is None and answer.get("text") is None:
            yield reject(locator, "its generation neither calls nor says anything", "", row)
            return
        builder = EpisodeBuilder()
        marks = {key: "#" if isinstance(row[key], str) else "" for key in ("context", "generation")}
        for index, turn in enumerate(context):
            _add_context(builder, turn, at(locator, f"/context{marks['context']}/{index}"))
        told = read_outcome(row, locator, builder.rejects, success=(), score=("reward",))
        outcome = told.judged(failed=0.0)
        reward = outcome.score
        _add_answer(builder, answer, at(locator, f"/generation{marks['generation']}"), reward)
        yield from close(builder, self._episode(builder, row, locator, outcome))

    def _episode(
        self, builder: EpisodeBuilder, row: dict[str, Any], locator: str, outcome: Outcome
    ) -> Episode:
        task = first_user_text(builder) or next(
            (m.content for m in builder.messages if m.role == "user"), None
        )
        judged = outcome.known
        return builder.finish(
            id=content_id(self.name, row),
            format=self.name,
            locator=locator,
            ending="terminal" if judged else "truncated",
            ending_reason="the judged answer is the whole episode" if judged else "no judgement",
            native_id=text_or_none(row.get("conversation_id")),
            group_id=None if task is None else episode_id(self.name, task),
            task=task,
            **outcome._replace(score=None).fields(),
            metadata=canonical({k: v for k, v in row.items() if k not in ("context", "generation")}),
        )


def _add_context(builder: EpisodeBuilder, turn: Any, where: str) -> None:
    """A turn that people made. Their calls are text, and an API's response is what the agent was told (role user)."""
    role = turn.get("role") if isinstance(turn, dict) else None
    key = (
        next((key for key in ("text", "api", "response") if turn.get(key) is not None), None)
        if role
        else None
    )
    if role not in ("user", "agent", "api") or key is None:
        builder.rejects.append(bad_part(where, "turn without a known role or content", "bad_turn", turn))
        return
    value = turn[key]
    text = value if isinstance(value, str) else canonical(value)
    builder.message("assistant" if role == "agent" else "user", text, f"{where}/{key}")


def _add_answer(builder: EpisodeBuilder, turn: dict[str, Any], where: str, reward: float | None) -> None:
    """The model's decision: the calls that it makes, or what it says."""
    api = turn.get("api")
    if api is None:
        builder.turn(turn.get("text"), [], f"{where}/text" if turn.get("text") else where, reward=reward)
        return
    named = [(name, arguments) for name, arguments in api.items() if name] if isinstance(api, dict) else []
    if named:
        calls = [Call(name, arguments, None, f"{where}/api") for name, arguments in named]
        builder.turn(turn.get("text"), calls, where, reward=reward)
    else:
        # It called something that the log does not name; a `respond` step would be an invention.
        builder.message("assistant", canonical(api), f"{where}/api")
        builder.rejects.append(bad_part(f"{where}/api", "call without a name", "nameless_call", api))
