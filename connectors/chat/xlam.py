"""xLAM's rows: `query`, the `tools` on offer and the `answers`, which are calls; lists as JSON text. A record is one row.

The set holds no results: each row ends with its calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from logforge.connectors.chat.dialogue import call_of, json_field
from logforge.connectors.chat.labelled_chat import labelled_chat
from logforge.connectors.episodes import EpisodeBuilder, bad_part, close, read_rows, reject
from logforge.connectors.records import Head, Source, at
from logforge.schemas import Reading, Reject


class Xlam:
    """Rows of xLAM's function-calling set, and of sets of its shape."""

    name = "xlam"
    version = 1
    record = "one row (a line, an array element or the document)"
    fills = ("tools",)
    splittable = True

    def sniff(self, head: Head) -> float:
        """Rows with a query, tools and answers, and no messages."""
        mine = {"query", "answers", "tools"} <= head.top and not {"messages", "conversations"} & head.top
        return 0.9 if mine and head.has_rows else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per row."""
        yield from read_rows(source, self._row)

    def _row(self, row: Any, locator: str) -> Iterator[Reading]:
        if not isinstance(row, dict) or not isinstance(row.get("query"), str):
            yield reject(locator, "no text under `query`", "", row)
            return
        answers = json_field(row, "answers", locator)
        if isinstance(answers, Reject):
            yield answers
            return
        builder = EpisodeBuilder()
        builder.message("user", row["query"], at(locator, "/query"))
        where = at(locator, "/answers#" if isinstance(row.get("answers"), str) else "/answers")
        listed = answers if isinstance(answers, list) else []
        if answers is not None and not isinstance(answers, list):
            builder.rejects.append(bad_part(where, "answers that are no list of calls", "bad_call", answers))
        found = [call_of(item, f"{where}/{index}", builder.rejects) for index, item in enumerate(listed)]
        calls = [call for call in found if call is not None]
        if calls:
            builder.turn(None, calls, where.removesuffix("#"))
        yield from close(
            builder, labelled_chat(self.name, builder, [], row, locator, ("query", "answers", "tools"))
        )
