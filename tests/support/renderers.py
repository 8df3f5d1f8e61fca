"""Talks between a user, an agent and its tools, written in the shapes of other people's logs.

Each renderer gives what a file of its shape would hold; tests/connectors/test_round_trips.py reads it back. `Shape` says what a shape
cannot hold, so that no talk is made that it would lose.
"""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from logforge.connectors.episodes.outcome import asks_user


@dataclass(frozen=True)
class Said:
    """A text of the system or the user."""

    role: str
    text: str


@dataclass(frozen=True)
class Act:
    """A call: its id, the tool, its arguments, and its answer (None: none was logged)."""

    call_id: str
    name: str
    arguments: dict[str, Any]
    answer: str | None


@dataclass(frozen=True)
class Turn:
    """A turn of the agent. The answers come in the order of `answered` (indices of its calls)."""

    text: str | None
    thought: str | None
    acts: tuple[Act, ...]
    answered: tuple[int, ...]


@dataclass(frozen=True)
class Talk:
    """A whole conversation with its outcome (None: unknown)."""

    name: str
    entries: tuple[Said | Turn, ...]
    success: bool | None


@dataclass(frozen=True)
class Shape:
    """A shape that talks can be written in, and what it can hold."""

    format: str
    suffix: str
    render: Callable[[list[Talk], random.Random], bytes]
    system: bool = True
    thoughts: bool = True
    parallel: bool = True
    ids: bool = True
    text_with_calls: bool = True
    unanswered: bool = True
    one_talk: bool = False
    ends_with_agent: bool = False
    speech: bool = True
    users_later: bool = True
    flags_failure: bool = False
    """The log says of every result whether it failed, so that its text does not decide."""
    ordered: bool = False
    """Results stand in the order of their calls."""
    ids_repeat: bool = True
    """A later turn may use the ids of an earlier one's calls."""
    spoken_thoughts: bool = True
    """A turn that calls nothing may have a thought."""
    acts: bool = True
    silence: str | None = None
    """What the log has as the text of a turn that says nothing."""
    judged: bool = False
    """The log tells the outcome."""
    ending: Callable[[Talk], bool] = field(default=lambda talk: has_last_word(talk))
    """Whether a talk ended for good, as the shape tells it."""


def has_last_word(talk: Talk) -> bool:
    """The agent spoke last and calls nothing."""
    last = talk.entries[-1]
    return isinstance(last, Turn) and not last.acts


def ends_open(talk: Talk) -> bool:
    """The last decision is a turn whose calls are not all answered."""
    turns = [entry for entry in talk.entries if isinstance(entry, Turn)]
    return bool(turns) and any(act.answer is None for act in turns[-1].acts)


def lines(rows: list[Any]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


# --- OpenAI messages, and what is made of them ------------------------------------------------------------------------


def openai_messages(talk: Talk) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for entry in talk.entries:
        if isinstance(entry, Said):
            found.append({"role": entry.role, "content": entry.text})
            continue
        message: dict[str, Any] = {"role": "assistant", "content": entry.text}
        if entry.thought is not None:
            message["reasoning_content"] = entry.thought
        if entry.acts:
            message["tool_calls"] = [openai_call(act) for act in entry.acts]
        found.append(message)
        for index in entry.answered:
            act = entry.acts[index]
            found.append({"role": "tool", "tool_call_id": act.call_id, "content": act.answer})
    return found


def openai_call(act: Act) -> dict[str, Any]:
    function = {"name": act.name, "arguments": json.dumps(act.arguments, ensure_ascii=False)}
    return {"id": act.call_id, "type": "function", "function": function}


def openai_rows(talks: list[Talk]) -> list[dict[str, Any]]:
    return [{"id": t.name, "messages": openai_messages(t), "success": t.success} for t in talks]


def openai_lines(talks: list[Talk], chance: random.Random) -> bytes:
    return lines(openai_rows(talks))


def openai_array(talks: list[Talk], chance: random.Random) -> bytes:
    return json.dumps(openai_rows(talks), indent=1).encode()


def openai_text(talks: list[Talk], chance: random.Random) -> bytes:
    return lines([row | {"messages": json.dumps(row["messages"])} for row in openai_rows(talks)])


def session_lines(talks: list[Talk], chance: random.Random) -> bytes:
    """A line for each message; the sessions are written at the same time."""
    queues = [[{"session_id": talk.name, **message} for message in openai_messages(talk)] for talk in talks]
    return lines(shuffled_together(queues, chance))


def shuffled_together(queues: list[list[Any]], chance: random.Random) -> list[Any]:
    rows = []
    queues = [list(queue) for queue in queues if queue]
    while queues:
        queue = chance.choice(queues)
        rows.append(queue.pop(0))
        queues = [queue for queue in queues if queue]
    return rows


def openai_requests(talks: list[Talk], chance: random.Random) -> bytes:
    """A request for each turn of the agent, with all that was said before; the talks are held at the same time."""
    return lines(shuffled_together([exchanges(talk) for talk in talks], chance))


def exchanges(talk: Talk) -> list[dict[str, Any]]:
    messages = openai_messages(talk)
    sent = [{key: value for key, value in m.items() if key != "reasoning_content"} for m in messages]
    rows = []
    for index, message in enumerate(messages):
        if message["role"] == "assistant":
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            response = {"id": f"chatcmpl-{talk.name}-{index}", "choices": [choice]}
            rows.append({"request": {"model": "m", "messages": sent[:index]}, "response": response})
    return rows


def tau_bench(talks: list[Talk], chance: random.Random) -> bytes:
    rows = []
    for number, talk in enumerate(talks):
        reward = None if talk.success is None else float(talk.success)
        info = {
            "task": {"instruction": talk.name},
            "reward_info": None if reward is None else {"reward": reward},
        }
        traj = openai_messages(talk)
        rows.append({"task_id": number, "trial": 0, "reward": reward or 0.0, "info": info, "traj": traj})
    return json.dumps(rows).encode()


def trl_rows(talks: list[Talk], chance: random.Random) -> bytes:
    """What stands before the first turn is the prompt, all that follows the completion."""
    tools = [{"type": "function", "function": {"name": name}} for name in ("book", "find", "pay")]
    rows = []
    for talk in talks:
        start = next(i for i, entry in enumerate(talk.entries) if isinstance(entry, Turn))
        messages = openai_messages(talk)
        rows.append({"prompt": messages[:start], "completion": messages[start:], "tools": tools})
    return lines(rows)


# --- chats and tables ---------------------------------------------------------------------------------------------------


def sharegpt(talks: list[Talk], chance: random.Random) -> bytes:
    rows = []
    for talk in talks:
        turns = []
        for entry in talk.entries:
            if isinstance(entry, Said):
                turns.append({"from": {"user": "human"}.get(entry.role, entry.role), "value": entry.text})
            elif not entry.acts:
                turns.append({"from": "gpt", "value": entry.text})
            else:
                calls = [{"name": act.name, "arguments": act.arguments} for act in entry.acts]
                turns.append(
                    {"from": "function_call", "value": json.dumps(calls if len(calls) > 1 else calls[0])}
                )
                answers = [{"name": act.name, "content": act.answer} for act in entry.acts]
                value = json.dumps(answers) if len(answers) > 1 else answers[0]["content"]
                turns.append({"from": "observation", "value": value})
        rows.append({"id": talk.name, "conversations": turns})
    return json.dumps(rows).encode()


def step_rows(talks: list[Talk]) -> list[dict[str, Any]]:
    """What was seen last, what was done, and in the last row what was seen then."""
    rows: list[dict[str, Any]] = []
    for talk in talks:
        seen: str | None = None
        number = 0
        for entry in talk.entries:
            if isinstance(entry, Said):
                seen = entry.text
                continue
            act = entry.acts[0] if entry.acts else None
            row = {
                "episode_id": talk.name,
                "step": number,
                "observation": seen,
                "action": act.name if act else "clarify" if asks_user(entry.text) else "respond",
                "arguments": json.dumps(act.arguments) if act else None,
                "text": entry.text,
                "thought": entry.thought,
                "reward": 0.5 * number,
                "next_observation": act.answer if act else None,
            }
            seen, number = act.answer if act else None, number + 1
            rows.append(row | {"terminated": False, "truncated": False})
        rows[-1] |= {"terminated": bool(talk.success), "truncated": not talk.success}
    return rows


def step_lines(talks: list[Talk], chance: random.Random) -> bytes:
    return lines(step_rows(talks))


def step_csv(talks: list[Talk], chance: random.Random) -> bytes:
    rows = step_rows(talks)
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue().encode()


def step_parquet(talks: list[Talk], chance: random.Random) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(step_rows(talks)), file)
    return file.getvalue()


def as_columns(render: Callable[[list[Talk], random.Random], bytes], kind: str) -> Any:
    """The rows of JSON lines or of an array as a Parquet or Arrow file."""

    def columns(talks: list[Talk], chance: random.Random) -> bytes:
        import pyarrow as pa
        import pyarrow.parquet as pq

        text = render(talks, chance).decode()
        rows = (
            json.loads(text)
            if text.startswith("[")
            else [json.loads(line) for line in text.split("\n") if line]
        )
        table, file = pa.Table.from_pylist(rows), io.BytesIO()
        if kind == "parquet":
            pq.write_table(table, file)
        else:
            with (
                pa.ipc.new_file(file, table.schema)
                if kind == "file"
                else pa.ipc.new_stream(file, table.schema) as writer
            ):
                writer.write_table(table)
        return file.getvalue()

    return columns


def trajectories(talks: list[Talk], chance: random.Random) -> bytes:
    """As the sets of coding agents' runs on the Hub have them."""
    rows = [{"trajectory_id": t.name, "trajectory": openai_messages(t), "resolved": t.success} for t in talks]
    return lines(rows)


def openai_ending(talk: Talk) -> bool:
    return not ends_open(talk) and (talk.success is not None or has_last_word(talk))


TABLE: dict[str, Any] = {
    "system": False,
    "parallel": False,
    "ids": False,
    "unanswered": False,
    "ends_with_agent": True,
    "ending": lambda talk: bool(talk.success),
}
SHAPES = {
    "openai lines": Shape("openai_messages", ".jsonl", openai_lines, ending=openai_ending, judged=True),
    "openai array": Shape("openai_messages", ".json", openai_array, ending=openai_ending, judged=True),
    "openai messages as text": Shape(
        "openai_messages", ".jsonl", openai_text, ending=openai_ending, judged=True
    ),
    "openai parquet": Shape(
        "openai_messages",
        ".parquet",
        as_columns(openai_lines, "parquet"),
        ending=openai_ending,
        judged=True,
    ),
    "openai arrow file": Shape(
        "openai_messages", ".arrow", as_columns(openai_lines, "file"), ending=openai_ending, judged=True
    ),
    "openai arrow stream": Shape(
        "openai_messages", ".arrow", as_columns(openai_lines, "stream"), ending=openai_ending, judged=True
    ),
    "trajectory parquet": Shape(
        "openai_messages",
        ".parquet",
        as_columns(trajectories, "parquet"),
        ending=openai_ending,
        judged=True,
    ),
    "trl parquet": Shape("trl", ".parquet", as_columns(trl_rows, "parquet")),
    "session lines": Shape("openai_messages", ".jsonl", session_lines),
    "openai requests": Shape("openai_requests", ".jsonl", openai_requests, ends_with_agent=True),
    "tau-bench": Shape(
        "tau_bench", ".json", tau_bench, ending=lambda talk: talk.success is not None, judged=True
    ),
    "trl": Shape("trl", ".jsonl", trl_rows),
    "sharegpt": Shape(
        "sharegpt_tools",
        ".json",
        sharegpt,
        thoughts=False,
        ids=False,
        text_with_calls=False,
        unanswered=False,
    ),
    "sharegpt parquet": Shape(
        "sharegpt_tools",
        ".parquet",
        as_columns(sharegpt, "parquet"),
        thoughts=False,
        ids=False,
        text_with_calls=False,
        unanswered=False,
    ),
    "step lines": Shape("step_table", ".jsonl", step_lines, **TABLE),
    "step csv": Shape("step_table", ".csv", step_csv, **TABLE),
    "step parquet": Shape("step_table", ".parquet", step_parquet, **TABLE),
}
