"""Logs in shapes that no connector reads, made from talks that are known: what `logforge inspect` is measured on.

A talk is a list of turns: what the user said, the calls that the agent made with their results, and its answer.
"""

from __future__ import annotations

import csv
import io
import json
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from logforge.schemas.episode import Episode

Event = tuple[Any, ...]
"""("user", text), ("assistant", text) or ("call", name, arguments, result)."""

_WANTS = (
    "Where is order {n}?",
    "I want my money back for {n}.",
    "Please book flight {n} for me",
    "How warm is it in city {n}?",
    "My router {n} does not start any more.",
)
_TOOLS = (
    ("find_order", "order"),
    ("refund", "order"),
    ("search_docs", "query"),
    ("get_weather", "city"),
    ("book_flight", "flight"),
)
_ANSWERS = (
    "It is on its way, parcel {n}.",
    "I have sent you the money for {n}.",
    "Done: booking {n} is confirmed.",
    "It is {n} degrees there today.",
    "Please press the button for {n} seconds.",
)
_MORE = (
    "Thanks, and what about {n}?",
    "That does not work, {n} is still red.",
    "Ok. Can you also check {n} for me?",
    "No, I meant {n} of last week.",
)


@dataclass(frozen=True)
class Use:
    """A call with its result."""

    tool: str
    arguments: dict[str, Any]
    result: str


@dataclass(frozen=True)
class Turn:
    """What was asked, done and answered."""

    asked: str
    uses: tuple[Use, ...]
    answer: str
    at: datetime


@dataclass(frozen=True)
class Talk:
    """A conversation."""

    id: str
    turns: tuple[Turn, ...]
    solved: bool

    def events(self, calls: bool = True) -> list[Event]:
        """What a right reading gives."""
        found: list[Event] = []
        for turn in self.turns:
            found.append(("user", turn.asked))
            found += [("call", u.tool, u.arguments, u.result) for u in turn.uses] if calls else []
            found.append(("assistant", turn.answer))
        return found


@dataclass(frozen=True)
class Shape:
    """A way to write talks down. `calls`: whether it can hold calls."""

    name: str
    file: str
    write: Callable[[list[Talk]], bytes | None]
    calls: bool = True
    database: Callable[[list[Talk], Path], None] | None = None
    one: bool = False
    """A file holds one talk."""
    first_turns: bool = False
    """A record holds one question: talks have one turn."""
    one_call: bool = False
    """A turn has at most one call."""

    def make(self, folder: Path, seed: int = 1, many: int = 12) -> tuple[Path, list[list[Event]]]:
        """A file of this shape, and the talks in it."""
        talks = [self._told(talk) for talk in made_talks(seed, 1 if self.one else many)]
        path = folder / self.file
        if self.database is not None:
            self.database(talks, path)
        else:
            data = self.write(talks)
            assert data is not None
            path.write_bytes(data)
        return path, [talk.events(self.calls) for talk in talks]

    def _told(self, talk: Talk) -> Talk:
        """What the shape can hold of a talk."""
        turns = talk.turns[:1] if self.first_turns else talk.turns
        return replace(
            talk, turns=tuple(replace(t, uses=t.uses[:1] if self.one_call else t.uses) for t in turns)
        )


def made_talks(seed: int, many: int) -> list[Talk]:
    """Talks that differ in every text."""
    rng = random.Random(seed)
    number = iter(range(1000 + seed, 10**6, 7))
    talks = []
    for index in range(many):
        at = datetime(2025, 3, 1 + index % 20, 9, tzinfo=UTC)
        turns = []
        for turn in range(rng.choice((1, 2, 2, 3, 4)) if many > 1 else 5):
            n = next(number)
            uses = tuple(
                _use(rng, next(number)) for _ in range(rng.choice((0, 1, 1, 2)) if turn or many > 1 else 1)
            )
            asked = rng.choice(_MORE if turn else _WANTS).format(n=n)
            at += timedelta(seconds=90)
            turns.append(Turn(asked, uses, rng.choice(_ANSWERS).format(n=n), at))
        talks.append(Talk(f"{rng.getrandbits(48):012x}", tuple(turns), rng.random() < 0.6))
    return talks


def _use(rng: random.Random, n: int) -> Use:
    tool, key = rng.choice(_TOOLS)
    result = rng.choice((f"status {n}: shipped", f'{{"found": {n}, "ok": true}}', f"no entry for {n}"))
    return Use(tool, {key: n, "limit": rng.randint(1, 5)} if rng.random() < 0.5 else {key: f"x{n}"}, result)


# --- what a reading gives ---------------------------------------------------------------------------------------------


def events_of(episode: Episode) -> list[Event]:
    """An episode as events."""
    found: list[Event] = []
    for message in episode.messages:
        if message.role == "user":
            found.append(("user", message.content))
        elif message.role == "assistant":
            steps = [
                step for step in episode.steps if step.position == message.position and step.kind == "tool"
            ]
            if message.content:
                found.append(("assistant", message.content))
            found += [("call", step.action, _plain(step.arguments), step.result) for step in steps]
    return found


def agreement(truth: list[list[Event]], read: list[list[Event]]) -> float:
    """The share of turns and calls that are right: in the right talk, in the right order, with the right text."""
    left = [list(map(_key, talk)) for talk in read]
    right = total = 0
    for talk in truth:
        wanted = list(map(_key, talk))
        best = max(left, key=lambda other: _common(wanted, other), default=[])
        right += _common(wanted, best)
        total += max(len(wanted), len(best))
        if best in left:
            left.remove(best)
    total += sum(map(len, left))
    return right / max(1, total)


def _key(event: Event) -> str:
    return json.dumps([_plain(item) for item in event], sort_keys=True)


def _plain(item: Any) -> Any:
    """A result that is JSON may come back in canonical form."""
    if isinstance(item, str) and item[:1] == "{":
        try:
            return json.loads(item)
        except ValueError:
            return item
    return item


def _common(one: list[str], other: list[str]) -> int:
    """The length of the longest common subsequence."""
    row = [0] * (len(other) + 1)
    for item in one:
        before = row[:]
        for at, theirs in enumerate(other):
            row[at + 1] = before[at] + 1 if item == theirs else max(row[at], before[at + 1])
    return row[-1]


# --- writing ----------------------------------------------------------------------------------------------------------


def _lines(rows: list[Any]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def _document(value: Any) -> bytes:
    return json.dumps(value, indent=1).encode()


def _csv(columns: list[str], rows: list[list[Any]], delimiter: str = ",") -> bytes:
    file = io.StringIO()
    writer = csv.writer(file, delimiter=delimiter)
    writer.writerows([columns, *rows])
    return file.getvalue().encode()


def _iso(turn: Turn, seconds: int = 0) -> str:
    return (turn.at + timedelta(seconds=seconds)).isoformat()


def chat_csv(talks: list[Talk]) -> bytes:
    rows = []
    for talk in talks:
        for turn in talk.turns:
            rows.append([talk.id, "customer", turn.asked, _iso(turn)])
            rows.append([talk.id, "bot", turn.answer, _iso(turn, 5)])
    return _csv(["conversation_id", "sender", "message", "timestamp"], rows)


def question_csv(talks: list[Talk]) -> bytes:
    rows = [
        [talk.id, turn.asked, turn.answer, "gpt-4o-mini", int(turn.at.timestamp() * 1000)]
        for talk in talks
        for turn in talk.turns
    ]
    return _csv(["session", "question", "answer", "model", "created_at"], rows, ";")


def app_json(talks: list[Talk]) -> bytes:
    def turns(talk: Talk) -> list[Any]:
        found: list[Any] = []
        for turn in talk.turns:
            found.append({"by": "client", "text": turn.asked, "at": _iso(turn)})
            for use in turn.uses:
                does = [{"fn": use.tool, "with": use.arguments, "gives": use.result}]
                found.append(
                    {
                        "by": "bot",
                        "text": None,
                        "does": [{"fn": d["fn"], "with": d["with"], "result": d["gives"]} for d in does],
                        "at": _iso(turn, 2),
                    }
                )
            found.append({"by": "bot", "text": turn.answer, "at": _iso(turn, 5)})
        return found

    chats = [{"id": talk.id, "resolved": talk.solved, "lang": "en", "turns": turns(talk)} for talk in talks]
    return _document({"app": "helpdesk", "version": 3, "conversations": chats})


def event_lines(talks: list[Talk]) -> bytes:
    rows: list[Any] = [{"type": "session_start", "ts": "2025-03-01T08:00:00Z", "model": "m-1"}]
    for turn in talks[0].turns:
        rows.append({"type": "user_message", "ts": _iso(turn), "text": turn.asked})
        for number, use in enumerate(turn.uses):
            own = f"c{turn.at.minute}{number}"
            rows.append(
                {
                    "type": "tool_call",
                    "ts": _iso(turn, 1 + 2 * number),
                    "id": own,
                    "tool": use.tool,
                    "input": use.arguments,
                }
            )
            rows.append(
                {
                    "type": "tool_result",
                    "ts": _iso(turn, 2 + 2 * number),
                    "call_id": own,
                    "output": use.result,
                }
            )
        rows.append({"type": "assistant_message", "ts": _iso(turn, 5), "text": turn.answer})
    return _lines([*rows, {"type": "session_end", "ts": "2025-03-01T23:00:00Z"}])


def n8n_memory(talks: list[Talk]) -> bytes:
    rows: list[Any] = []
    for talk in talks:
        said: list[Any] = []
        for turn in talk.turns:
            said.append({"type": "human", "data": {"content": turn.asked, "additional_kwargs": {}}})
            for number, use in enumerate(turn.uses):
                own = f"{talk.id}-{turn.at.hour}{turn.at.minute}-{number}"
                called = [{"name": use.tool, "args": use.arguments, "id": own, "type": "tool_call"}]
                said.append({"type": "ai", "data": {"content": "", "tool_calls": called}})
                said.append(
                    {"type": "tool", "data": {"content": use.result, "tool_call_id": own, "name": use.tool}}
                )
            said.append({"type": "ai", "data": {"content": turn.answer, "tool_calls": []}})
        rows += [{"session_id": talk.id, "message": json.dumps(message)} for message in said]
    return _lines([{"id": number, **row} for number, row in enumerate(rows)])


def dify_rows(talks: list[Talk]) -> bytes:
    rows = [
        {
            "id": f"{talk.id}-{number}",
            "conversation_id": talk.id,
            "query": turn.asked,
            "answer": turn.answer,
            "created_at": int(turn.at.timestamp()),
            "inputs": {},
            "agent_thoughts": [
                {
                    "tool": use.tool,
                    "tool_input": json.dumps(use.arguments),
                    "observation": use.result,
                    "thought": "",
                }
                for use in turn.uses
            ],
            "message_tokens": 120,
            "from_source": "api",
        }
        for talk in talks
        for number, turn in enumerate(talk.turns)
    ]
    return _document({"data": rows, "has_more": False, "limit": 100})


def nested_turns(talks: list[Talk]) -> bytes:
    rows = [
        {
            "thread": {
                "key": talk.id,
                "turns": [
                    {
                        "user": {"text": turn.asked},
                        "agent": {
                            "calls": [
                                {"name": u.tool, "params": u.arguments, "response": u.result}
                                for u in turn.uses
                            ],
                            "text": turn.answer,
                        },
                    }
                    for turn in talk.turns
                ],
            },
            "outcome": "solved" if talk.solved else "not solved",
        }
        for talk in talks
    ]
    return _lines(rows)


def two_rows(talks: list[Talk]) -> bytes:
    rows: list[Any] = []
    for talk in talks:
        for turn in talk.turns:
            base = {"session": talk.id, "ts": int(turn.at.timestamp())}
            rows.append({**base, "kind": "request", "prompt": turn.asked})
            rows.append({**base, "kind": "response", "completion": turn.answer, "latency_ms": 812})
    return _lines(rows)


def react_steps(talks: list[Talk]) -> bytes:
    rows = [
        {
            "run": talk.id,
            "question": turn.asked,
            "steps": [
                {
                    "thought": f"I need {u.tool}",
                    "tool": u.tool,
                    "tool_input": u.arguments,
                    "observation": u.result,
                }
                for u in turn.uses
            ],
            "final_answer": turn.answer,
            "success": talk.solved,
        }
        for talk in talks
        for turn in talk.turns
    ]
    return _document(rows)


def pairs(talks: list[Talk]) -> bytes:
    return _lines([{"id": t.id, "history": [[turn.asked, turn.answer] for turn in t.turns]} for t in talks])


def numbered_turns(talks: list[Talk]) -> bytes:
    rows = []
    for talk in talks:
        said: dict[str, Any] = {}
        for turn in talk.turns:
            said[f"turn_{len(said) + 1}"] = {"speaker": "USER", "utterance": turn.asked}
            said[f"turn_{len(said) + 1}"] = {"speaker": "SYSTEM_BOT", "utterance": turn.answer}
        rows.append({"dialogue_id": talk.id, "log": said})
    return _document(rows)


def database(talks: list[Talk], path: Path) -> None:
    with closing(sqlite3.connect(path)) as made, made:
        made.execute("CREATE TABLE chats (id TEXT PRIMARY KEY, title TEXT, created_at TEXT)")
        made.execute(
            "CREATE TABLE messages (id INTEGER PRIMARY KEY, chat_id TEXT, role TEXT, body TEXT, tool_calls TEXT, created_at TEXT)"
        )
        rows: list[tuple[Any, ...]] = []
        for talk in talks:
            made.execute("INSERT INTO chats VALUES (?, ?, ?)", (talk.id, "Chat", "2025-03-01"))
            for turn in talk.turns:
                rows.append((talk.id, "human", turn.asked, None, _iso(turn)))
                for number, use in enumerate(turn.uses):
                    call = json.dumps(
                        [{"function": {"name": use.tool, "arguments": json.dumps(use.arguments)}}]
                    )
                    rows.append((talk.id, "ai", None, call, _iso(turn, 10 + 2 * number)))
                    rows.append((talk.id, "tool", use.result, None, _iso(turn, 11 + 2 * number)))
                rows.append((talk.id, "ai", turn.answer, None, _iso(turn, 60)))
        random.Random(3).shuffle(rows)
        made.executemany(
            "INSERT INTO messages (chat_id, role, body, tool_calls, created_at) VALUES (?, ?, ?, ?, ?)", rows
        )


def flowise(talks: list[Talk]) -> bytes:
    rows: list[Any] = []
    for talk in talks:
        for turn in talk.turns:
            used = [{"tool": u.tool, "toolInput": u.arguments, "toolOutput": u.result} for u in turn.uses]
            base = {"chatflowid": "f-1", "chatType": "EXTERNAL", "chatId": talk.id}
            rows.append(
                {
                    **base,
                    "role": "userMessage",
                    "content": turn.asked,
                    "usedTools": None,
                    "createdDate": _iso(turn),
                }
            )
            rows.append(
                {
                    **base,
                    "role": "apiMessage",
                    "content": turn.answer,
                    "usedTools": json.dumps(used) if used else None,
                    "createdDate": _iso(turn, 9),
                }
            )
    return _document([{"id": f"m{number}", **row} for number, row in enumerate(rows)])


def langflow(talks: list[Talk]) -> bytes:
    rows = [
        {
            "timestamp": _iso(turn, late).replace("T", " ").replace("+00:00", " UTC"),
            "sender": sender,
            "sender_name": name,
            "session_id": talk.id,
            "text": text,
            "files": "[]",
            "error": False,
            "flow_id": "3c1f0d",
        }
        for talk in talks
        for turn in talk.turns
        for sender, name, text, late in (("User", "User", turn.asked, 0), ("Machine", "AI", turn.answer, 7))
    ]
    return _csv([*rows[0]], [[*row.values()] for row in rows])


def rasa_tracker(talks: list[Talk]) -> bytes:
    rows = []
    for talk in talks:
        at = talk.turns[0].at.timestamp()
        events: list[Any] = [
            {"event": "action", "name": "action_session_start", "timestamp": at},
            {"event": "session_started", "timestamp": at},
        ]
        for turn in talk.turns:
            at = turn.at.timestamp()
            events.append({"event": "action", "name": "action_listen", "policy": None, "timestamp": at})
            intent = {"name": "ask", "confidence": 0.91}
            events.append(
                {"event": "user", "text": turn.asked, "parse_data": {"intent": intent}, "timestamp": at + 1}
            )
            events.append(
                {"event": "bot", "text": turn.answer, "data": {"buttons": None}, "timestamp": at + 2}
            )
        rows.append({"sender_id": talk.id, "slots": {}, "events": events, "latest_message": None})
    return _lines(rows)


def intercom(talks: list[Talk]) -> bytes:
    rows = []
    for talk in talks:
        parts = []
        for number, turn in enumerate(talk.turns):
            at = int(turn.at.timestamp())
            if number:
                parts.append(
                    {
                        "part_type": "comment",
                        "body": f"{turn.asked}",
                        "author": {"type": "user", "id": "u9"},
                        "created_at": at,
                    }
                )
            parts.append(
                {
                    "part_type": "comment",
                    "body": turn.answer,
                    "author": {"type": "bot", "id": "b1"},
                    "created_at": at + 4,
                }
            )
        first = talk.turns[0]
        rows.append(
            {
                "type": "conversation",
                "id": talk.id,
                "created_at": int(first.at.timestamp()),
                "source": {
                    "type": "conversation",
                    "body": first.asked,
                    "author": {"type": "user", "id": "u9"},
                },
                "conversation_parts": {"total_count": len(parts), "conversation_parts": parts},
                "state": "closed",
                "open": False,
            }
        )
    return _document({"type": "conversation.list", "conversations": rows})


def bot_framework(talks: list[Talk]) -> bytes:
    rows: list[Any] = []
    for turn in talks[0].turns:
        base = {"channelId": "webchat", "conversation": {"id": talks[0].id}}
        person, bot = (
            {"id": "u-7", "name": "Ann", "role": "user"},
            {"id": "b-1", "name": "Desk", "role": "bot"},
        )
        rows.append(
            {
                **base,
                "type": "message",
                "from": person,
                "recipient": bot,
                "text": turn.asked,
                "timestamp": _iso(turn),
            }
        )
        rows.append({**base, "type": "typing", "from": bot, "recipient": person, "timestamp": _iso(turn, 1)})
        rows.append(
            {
                **base,
                "type": "message",
                "from": bot,
                "recipient": person,
                "text": turn.answer,
                "timestamp": _iso(turn, 2),
                "inputHint": "expectingInput",
            }
        )
    return _document([{"id": f"a{number}", **row} for number, row in enumerate(rows)])


def dialogflow_rows(talks: list[Talk]) -> bytes:
    rows = [
        {
            "project_id": "p",
            "conversation_name": f"projects/p/sessions/{talk.id}",
            "turn_position": number + 1,
            "request_time": _iso(turn),
            "request": {
                "session": talk.id,
                "queryInput": {"text": {"text": turn.asked}, "languageCode": "en"},
            },
            "response": {
                "queryResult": {
                    "responseMessages": [{"text": {"text": [turn.answer]}}],
                    "intentDetectionConfidence": 0.8,
                }
            },
        }
        for talk in talks
        for number, turn in enumerate(talk.turns)
    ]
    random.Random(5).shuffle(rows)
    return _lines(rows)


def voiceflow(talks: list[Talk]) -> bytes:
    rows = []
    for talk in talks:
        turns: list[Any] = [{"type": "launch", "payload": None, "startTime": "2025-03-01T08:59:00Z"}]
        for turn in talk.turns:
            turns.append(
                {
                    "type": "request",
                    "payload": {"type": "text", "payload": turn.asked},
                    "startTime": _iso(turn),
                }
            )
            turns.append({"type": "block", "payload": {"blockID": "b7"}, "startTime": _iso(turn, 1)})
            turns.append(
                {
                    "type": "text",
                    "payload": {"payload": {"message": turn.answer, "ai": True}},
                    "startTime": _iso(turn, 2),
                }
            )
        rows.append({"sessionID": talk.id, "projectID": "vf", "turns": turns})
    return _lines(rows)


def chatwoot(talks: list[Talk]) -> bytes:
    rows: list[Any] = []
    for talk in talks:
        for turn in talk.turns:
            at = int(turn.at.timestamp())
            rows.append(
                {
                    "conversation_id": talk.id,
                    "message_type": 0,
                    "content": turn.asked,
                    "created_at": at,
                    "sender": {"type": "contact", "name": "Ann"},
                    "private": False,
                }
            )
            rows.append(
                {
                    "conversation_id": talk.id,
                    "message_type": 1,
                    "content": turn.answer,
                    "created_at": at + 5,
                    "sender": {"type": "agent_bot", "name": "Desk"},
                    "private": False,
                }
            )
    return _lines([{"id": number + 1, **row} for number, row in enumerate(rows)])


def agent_steps(talks: list[Talk]) -> bytes:
    """One row a model call: what the user said if anything, then an action or the final words."""
    rows: list[Any] = []
    for talk in talks:
        number = 0
        for turn in talk.turns:
            heard: str | None = turn.asked
            for use in turn.uses:
                rows.append(
                    {
                        "trace": talk.id,
                        "step": number,
                        "user_message": heard,
                        "action": {"tool": use.tool, "params": use.arguments},
                        "observation": use.result,
                        "final": None,
                    }
                )
                heard, number = None, number + 1
            rows.append(
                {
                    "trace": talk.id,
                    "step": number,
                    "user_message": heard,
                    "action": None,
                    "observation": None,
                    "final": turn.answer,
                }
            )
            number += 1
    return _lines(rows)


def mongo_dump(talks: list[Talk]) -> bytes:
    rows = [
        {
            "_id": {"$oid": f"65a{number:021x}"},
            "sessionId": talk.id,
            "userMessage": {"content": turn.asked, "ts": {"$date": _iso(turn)}},
            "aiMessage": {
                "content": turn.answer,
                "toolInvocations": [
                    {"toolName": u.tool, "args": u.arguments, "result": u.result, "state": "result"}
                    for u in turn.uses
                ],
                "finishReason": "stop",
            },
        }
        for talk in talks
        for number, turn in enumerate(talk.turns)
    ]
    return _lines(rows)


def wide_csv(talks: list[Talk]) -> bytes:
    rows = []
    for talk in talks:
        for number, turn in enumerate(talk.turns):
            use = turn.uses[0] if turn.uses else None
            cells = [use.tool, json.dumps(use.arguments), use.result] if use else ["", "", ""]
            rows.append([talk.id, number + 1, turn.asked, *cells, turn.answer])
    return _csv(
        ["session_id", "turn", "user_utterance", "tool_name", "tool_args", "tool_output", "agent_reply"], rows
    )


def slack_export(talks: list[Talk]) -> bytes:
    rows: list[Any] = []
    for talk in talks:
        start = f"{talk.turns[0].at.timestamp():.6f}"
        for turn in talk.turns:
            rows.append(
                {
                    "type": "message",
                    "user": "U04XK",
                    "text": turn.asked,
                    "ts": f"{turn.at.timestamp():.6f}",
                    "thread_ts": start,
                }
            )
            rows.append(
                {
                    "type": "message",
                    "subtype": "bot_message",
                    "bot_id": "B01",
                    "text": turn.answer,
                    "ts": f"{turn.at.timestamp() + 3:.6f}",
                    "thread_ts": start,
                }
            )
    return _document(rows)


def langchain_steps(talks: list[Talk]) -> bytes:
    rows = [
        {
            "input": turn.asked,
            "intermediate_steps": [
                [{"tool": u.tool, "tool_input": u.arguments, "log": f"Invoking {u.tool}"}, u.result]
                for u in turn.uses
            ],
            "output": turn.answer,
        }
        for talk in talks
        for turn in talk.turns
    ]
    return _lines(rows)


def traced_rows(talks: list[Talk]) -> bytes:
    rows = [
        {
            "op": "answer",
            "started_at": _iso(turn),
            "inputs": {"question": turn.asked, "user_id": "u1"},
            "outputs": {
                "answer": turn.answer,
                "tool_trace": [
                    {"function": {"name": u.tool, "arguments": json.dumps(u.arguments)}, "result": u.result}
                    for u in turn.uses
                ],
            },
            "passed": talk.solved,
        }
        for talk in talks
        for turn in talk.turns
    ]
    return _document({"project": "desk", "traces": rows})


def named_speakers(talks: list[Talk]) -> bytes:
    return _lines(
        [
            {
                "nr": number,
                "dialog": [
                    {"name": who, "line": text}
                    for turn in talk.turns
                    for who, text in (("Ann Lee", turn.asked), ("Max", turn.answer))
                ],
            }
            for number, talk in enumerate(talks)
        ]
    )


def growing_requests(talks: list[Talk]) -> bytes:
    rows = []
    for talk in talks:
        said: list[Any] = []
        for turn in talk.turns:
            said.append({"who": "customer", "said": turn.asked})
            said.append({"who": "bot", "said": turn.answer})
            rows.append({"call": len(rows), "talk": list(said)})
    return _lines(rows)


def incoming_outgoing(talks: list[Talk]) -> bytes:
    rows: list[Any] = []
    for talk in talks:
        for turn in talk.turns:
            rows.append(
                {
                    "conversationId": talk.id,
                    "direction": "incoming",
                    "payload": {"type": "text", "text": turn.asked},
                    "createdOn": _iso(turn),
                }
            )
            rows.append(
                {
                    "conversationId": talk.id,
                    "direction": "outgoing",
                    "payload": {"type": "text", "text": turn.answer},
                    "createdOn": _iso(turn, 3),
                }
            )
    random.Random(2).shuffle(rows)
    return _lines([{"id": f"e{number}", "botId": "desk", **row} for number, row in enumerate(rows)])


def lex_lines(talks: list[Talk]) -> bytes:
    rows = [
        {
            "messageVersion": "2.0",
            "bot": {"name": "desk", "aliasId": "T1"},
            "sessionId": talk.id,
            "inputTranscript": turn.asked,
            "messages": [{"contentType": "PlainText", "content": turn.answer}],
            "sessionState": {"intent": {"name": "Ask", "state": "Fulfilled"}},
            "timestamp": _iso(turn),
            "inputMode": "Text",
        }
        for talk in talks
        for turn in talk.turns
    ]
    return _lines(rows)


def message_map(talks: list[Talk]) -> bytes:
    rows = []
    for talk in talks:
        said: dict[str, Any] = {}
        parent = None
        for number, (role, text) in enumerate(
            (role, text)
            for turn in talk.turns
            for role, text in (("user", turn.asked), ("assistant", turn.answer))
        ):
            own = f"{talk.id[:8]}-{number:04}-4a5b-9c8d"
            said[own] = {
                "id": own,
                "parentId": parent,
                "role": role,
                "content": text,
                "timestamp": 1740000000 + number,
            }
            parent = own
        rows.append(
            {
                "id": talk.id,
                "user_id": "u1",
                "chat": {
                    "title": "New Chat",
                    "models": ["m"],
                    "history": {"currentId": parent, "messages": said},
                },
            }
        )
    return _document(rows)


def search_index(talks: list[Talk]) -> bytes:
    rows: list[Any] = []
    for talk in talks:
        for turn in talk.turns:
            events: list[tuple[str, int, dict[str, Any]]] = [("user.message", 0, {"message": turn.asked})]
            for number, use in enumerate(turn.uses):
                own = f"{talk.id}{turn.at.timestamp():.0f}{number}"
                events.append(
                    (
                        "agent.tool.call",
                        2 * number + 1,
                        {"tool": {"name": use.tool, "input": json.dumps(use.arguments), "call_id": own}},
                    )
                )
                events.append(
                    ("agent.tool.result", 2 * number + 2, {"tool": {"call_id": own}, "output": use.result})
                )
            events.append(("agent.message", 9, {"message": turn.answer}))
            rows += [
                {
                    "@timestamp": _iso(turn, late),
                    "session": {"id": talk.id},
                    "event": {"action": action, "dataset": "chat"},
                    **more,
                }
                for action, late, more in events
            ]
    random.Random(4).shuffle(rows)
    return _lines(
        [{"_index": "logs-chat", "_id": f"x{number}", "_source": row} for number, row in enumerate(rows)]
    )


def coded_speakers(talks: list[Talk]) -> bytes:
    rows = []
    for talk in talks:
        said = [(who, text) for turn in talk.turns for who, text in (("U", turn.asked), ("S", turn.answer))]
        rows += [[talk.id, number, who, text] for number, (who, text) in enumerate(said)]
    return _csv(["dlg", "no", "spk", "utt"], rows, "\t")


def numbered_roles(talks: list[Talk]) -> bytes:
    rows = []
    for talk in talks:
        activities: list[Any] = []
        for turn in talk.turns:
            at = int(turn.at.timestamp())
            activities.append(
                {"type": "message", "from": {"id": "a1", "role": 1}, "text": turn.asked, "timestamp": at}
            )
            activities.append(
                {"type": "message", "from": {"id": "b2", "role": 0}, "text": turn.answer, "timestamp": at + 2}
            )
        rows.append({"conversationtranscriptid": talk.id, "content": json.dumps({"activities": activities})})
    return _lines(rows)


def transcript_column(talks: list[Talk]) -> bytes:
    rows = [
        [
            talk.id,
            json.dumps(
                [
                    {"speaker": who, "message": text}
                    for turn in talk.turns
                    for who, text in (("customer", turn.asked), ("ai_agent", turn.answer))
                ]
            ),
            5 if talk.solved else 2,
            "yes" if talk.solved else "no",
        ]
        for talk in talks
    ]
    return _csv(["ticket_id", "transcript", "csat", "resolved"], rows)


def actor_and_verb(talks: list[Talk]) -> bytes:
    rows: list[Any] = []
    for talk in talks:
        number = 0
        for turn in talk.turns:
            events: list[Any] = [{"actor": "user", "verb": "say", "text": turn.asked}]
            events += [
                {"actor": "agent", "verb": "call", "tool": u.tool, "params": u.arguments, "result": u.result}
                for u in turn.uses
            ]
            events.append({"actor": "agent", "verb": "say", "text": turn.answer})
            for event in events:
                rows.append({"run_id": talk.id, "i": number, **event})
                number += 1
    return _lines(rows)


def rounds_of_messages(talks: list[Talk]) -> bytes:
    rows = [
        {
            "chat": talk.id,
            "status": "RESOLVED" if talk.solved else "UNRESOLVED",
            "rounds": [
                {
                    "messages": [
                        {"author": "END_USER", "body": turn.asked},
                        {
                            "author": "AI_AGENT",
                            "toolUse": [
                                {"toolName": u.tool, "input": u.arguments, "output": {"text": u.result}}
                                for u in turn.uses
                            ],
                            "body": turn.answer,
                        },
                    ]
                }
                for turn in talk.turns
            ],
        }
        for talk in talks
    ]
    return _document({"export": {"chats": rows}})


def parallel_lists(talks: list[Talk]) -> bytes:
    return _lines(
        [{"user": [t.asked for t in talk.turns], "bot": [t.answer for t in talk.turns]} for talk in talks]
    )


def sessions_by_key(talks: list[Talk]) -> bytes:
    held = {
        f"session_{talk.id}": [
            {
                "from": who,
                "type": "text",
                "content": text,
                "timestamp": int(turn.at.timestamp() * 1000) + late,
                "fingerprint": 7,
            }
            for turn in talk.turns
            for who, text, late in (("user", turn.asked, 0), ("operator", turn.answer, 900))
        ]
        for talk in talks
    }
    return _document({"website": "w1", "sessions": held})


def capital_columns(talks: list[Talk]) -> bytes:
    rows = [
        [talk.id, _iso(turn, late), name, role, text]
        for talk in talks
        for turn in talk.turns
        for name, role, text, late in (
            ("Ann", "Caller", turn.asked, 0),
            ("Desk", "Virtual Agent", turn.answer, 4),
        )
    ]
    return _csv(["Conversation ID", "Time", "Participant", "Role", "Utterance"], rows, ";")


def two_tables(talks: list[Talk]) -> bytes:
    said: list[Any] = []
    called: list[Any] = []
    for talk in talks:
        for turn in talk.turns:
            said.append({"id": len(said), "thread": talk.id, "role": "user", "text": turn.asked})
            called += [
                {"message": len(said), "name": u.tool, "args": u.arguments, "result": u.result}
                for u in turn.uses
            ]
            said.append({"id": len(said), "thread": talk.id, "role": "assistant", "text": turn.answer})
    return _document({"messages_table": said, "tool_calls_table": called})


def calls_by_key(talks: list[Talk]) -> bytes:
    rows = []
    for talk in talks:
        turns: list[Any] = []
        for turn in talk.turns:
            turns.append({"who": "user", "text": turn.asked})
            turns.append(
                {"who": "bot", "actions": [{u.tool: u.arguments} for u in turn.uses], "text": turn.answer}
            )
        rows.append({"id": talk.id, "turns": turns})
    return _lines(rows)


def gateway_lines(talks: list[Talk]) -> bytes:
    return _lines(
        [
            {
                "ts": _iso(turn),
                "session": talk.id,
                "req": {"path": "/chat", "body": {"text": turn.asked}},
                "res": {
                    "code": 200,
                    "body": {
                        "reply": turn.answer,
                        "functions": [
                            {"fn": u.tool, "kwargs": u.arguments, "ret": u.result} for u in turn.uses
                        ],
                    },
                },
            }
            for talk in talks
            for turn in talk.turns
        ]
    )


def messages_by_kind(talks: list[Talk]) -> bytes:
    """Each message is an object under the name of its kind."""
    rows = []
    for talk in talks:
        log: list[Any] = []
        for turn in talk.turns:
            log.append({"human": {"text": turn.asked}})
            log += [
                {"tool": {"name": u.tool, "arguments": u.arguments, "output": u.result}} for u in turn.uses
            ]
            log.append({"assistant": {"text": turn.answer}})
        rows.append({"uuid": talk.id, "log": log, "success": talk.solved})
    return _lines(rows)


SHAPES = (
    Shape("chat_csv", "chats.csv", chat_csv, calls=False),
    Shape("question_csv", "asked.csv", question_csv, calls=False),
    Shape("app_json", "app.json", app_json),
    Shape("event_lines", "events.jsonl", event_lines, one=True),
    Shape("n8n_memory", "n8n_chat_histories.jsonl", n8n_memory),
    Shape("dify_rows", "dify.json", dify_rows),
    Shape("nested_turns", "threads.jsonl", nested_turns),
    Shape("two_rows", "requests.jsonl", two_rows, calls=False),
    Shape("react_steps", "react.json", react_steps, first_turns=True),
    Shape("pairs", "history.jsonl", pairs, calls=False),
    Shape("numbered_turns", "dialogues.json", numbered_turns, calls=False),
    Shape("database", "app.db", lambda talks: None, database=database),
    # Written when the inference was done.
    Shape("flowise", "flowise.json", flowise),
    Shape("langflow", "langflow.csv", langflow, calls=False),
    Shape("rasa_tracker", "rasa.jsonl", rasa_tracker, calls=False),
    Shape("intercom", "intercom.json", intercom, calls=False),
    Shape("bot_framework", "transcript.json", bot_framework, calls=False, one=True),
    Shape("dialogflow_rows", "dialogflow.jsonl", dialogflow_rows, calls=False),
    Shape("voiceflow", "voiceflow.jsonl", voiceflow, calls=False),
    Shape("chatwoot", "chatwoot.jsonl", chatwoot, calls=False),
    Shape("agent_steps", "trace.jsonl", agent_steps),
    Shape("mongo_dump", "dump.jsonl", mongo_dump),
    Shape("wide_csv", "wide.csv", wide_csv, one_call=True),
    Shape("slack_export", "slack.json", slack_export, calls=False),
    Shape("langchain_steps", "steps.jsonl", langchain_steps, first_turns=True),
    Shape("traced_rows", "traces.json", traced_rows, first_turns=True),
    Shape("named_speakers", "named.jsonl", named_speakers, calls=False),
    Shape("growing_requests", "growing.jsonl", growing_requests, calls=False),
    # Written when the inference had been mended by those above.
    Shape("incoming_outgoing", "outgoing.jsonl", incoming_outgoing, calls=False),
    Shape("lex_lines", "lex.jsonl", lex_lines, calls=False),
    Shape("message_map", "chats.json", message_map, calls=False),
    Shape("search_index", "index.ndjson", search_index),
    Shape("coded_speakers", "coded.tsv", coded_speakers, calls=False),
    Shape("numbered_roles", "activities.jsonl", numbered_roles, calls=False),
    Shape("transcript_column", "tickets.csv", transcript_column, calls=False),
    Shape("actor_and_verb", "verbs.jsonl", actor_and_verb),
    Shape("rounds_of_messages", "rounds.json", rounds_of_messages),
    Shape("parallel_lists", "parallel.jsonl", parallel_lists, calls=False),
    # And a third time.
    Shape("sessions_by_key", "crisp.json", sessions_by_key, calls=False),
    Shape("capital_columns", "export.csv", capital_columns, calls=False),
    Shape("two_tables", "tables.json", two_tables),
    Shape("calls_by_key", "keyed.jsonl", calls_by_key),
    Shape("gateway_lines", "gateway.jsonl", gateway_lines),
    Shape("messages_by_kind", "kinds.jsonl", messages_by_kind),
)
