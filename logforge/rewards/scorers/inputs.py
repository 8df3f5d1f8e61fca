"""The texts that scorers read: of a step, and of a whole episode, taken from its tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

import polars as pl

from logforge.core import Tables, sandbox
from logforge.rewards.sql import paying_steps
from logforge.schemas import Detectors, Term

Known = Literal["step", "end"]
Author = Literal["agent", "world"]


class TextInput(NamedTuple):
    """A text that a scorer may read: from when on it is known, and whose words it holds."""

    name: str
    known: Known
    by: Author
    meaning: str


def _inputs(text: str) -> dict[str, TextInput]:
    rows = (line.split(None, 3) for line in text.strip().splitlines())
    return {name: TextInput(name, known, by, meaning) for name, known, by, meaning in rows}  # type: ignore[arg-type]


INPUTS = _inputs("""
    said        step  agent  the text of the turn
    thought     step  agent  the turn's reasoning, kept apart from its text
    arguments   step  agent  the call's arguments, as JSON text
    result      step  world  what the tool answered
    user_reply  step  world  what the user said between this turn and the next one
    task        step  world  the initial instruction
    reference   step  world  the reference answer the log has for the task
    answer      end   agent  the last text that the agent said in the episode
    transcript  end   agent  the whole conversation, calls and results included
    user_words  end   world  all that the user said after the agent's first turn
    results     end   world  all that the tools answered, in their order, with a record separator (U+001E) between them
    metadata    end   world  what else the log says of the episode, as JSON text
""")
"""Every text a scorer may read. `step`: it is known once the step is over (or before the episode began)."""

_STEP_COLUMNS = ("said", "thought", "arguments", "result", "user_reply")
_EPISODE_COLUMNS = ("task", "reference", "metadata")
_TURNS = "(SELECT episode_id, min(position) AS first FROM steps GROUP BY 1)"
_SPOKEN = "nullif(trim(content, ' ' || chr(9) || chr(10) || chr(13)), '') IS NOT NULL"
_MADE = {
    "answer": f"SELECT episode_id, arg_max(content, position) AS answer FROM messages WHERE role = 'assistant' AND {_SPOKEN} GROUP BY 1",
    "user_words": "SELECT m.episode_id, string_agg(m.content, chr(10) ORDER BY m.position) AS user_words "
    f"FROM messages AS m JOIN {_TURNS} AS t ON t.episode_id = m.episode_id AND m.position > t.first "
    "WHERE m.role = 'user' GROUP BY 1",
    "results": "SELECT episode_id, string_agg(result, chr(10) || chr(30) || chr(10) ORDER BY step) AS results FROM steps WHERE kind = 'tool' GROUP BY 1",
    "transcript": "SELECT episode_id, string_agg(line, chr(10) ORDER BY position, place) AS transcript FROM ("
    f"SELECT episode_id, position, -1 AS place, role || ': ' || content AS line FROM messages WHERE {_SPOKEN} "
    "UNION ALL SELECT episode_id, position, step, 'assistant calls ' || action || ' ' || arguments FROM steps WHERE kind = 'tool'"
    ") GROUP BY 1",
}
"""The texts of a whole episode that are put together of several."""


def texts(term: Term, inputs: Sequence[str], tables: Tables, detectors: Detectors) -> pl.DataFrame:
    """The inputs at each step where the term may pay: episode_id, step and a column for each input."""
    columns = [name for name in inputs if name in _STEP_COLUMNS]
    return _run(paying_steps(term, detectors, columns), inputs, tables)


def every_text(tables: Tables) -> Iterator[str]:
    """All the texts that scorers may have read of these episodes, some more than once."""
    always = Term()
    for name in INPUTS:
        yield from texts(always, [name], tables, Detectors())[name].drop_nulls().unique()


def _run(steps: str, inputs: Iterable[str], tables: Tables) -> pl.DataFrame:
    listed, joins = ["s.episode_id", "s.step"], []
    for name in inputs:
        listed.append(f"{_owner(name)}.{name}")
        if name in _MADE:
            joins.append(f"LEFT JOIN ({_MADE[name]}) AS of_{name} ON of_{name}.episode_id = s.episode_id")
    query = f"SELECT {', '.join(listed)} FROM ({steps}) AS s JOIN episodes AS e ON e.episode_id = s.episode_id {' '.join(joins)} ORDER BY 1, 2"
    with sandbox() as con:
        con.register("episodes", tables.episodes)
        con.register("messages", tables.messages)
        con.register("steps", tables.steps)
        frame: pl.DataFrame = con.sql(query).pl()
        return frame


def _owner(name: str) -> str:
    if name in _EPISODE_COLUMNS:
        return "e"
    return f"of_{name}" if name in _MADE else "s"
