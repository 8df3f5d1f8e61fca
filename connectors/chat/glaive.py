"""Glaive's function-calling set as it is published: a chat as one text, `USER:`, `ASSISTANT:`, `FUNCTION RESPONSE:`.

A call is `<functioncall>` and JSON in what the assistant says. The functions stand in the system prompt as JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from logforge.connectors.chat.described_tools import functions_in
from logforge.connectors.chat.labelled_chat import labelled_chat
from logforge.connectors.episodes import EpisodeBuilder, close, read_rows, reject, said_calls
from logforge.connectors.records import Head, Source, at
from logforge.schemas import Reading

_LABEL = re.compile(r"(?:\A|(?<=\S))(?P<gap>\s*+)(?P<label>SYSTEM|USER|ASSISTANT|FUNCTION RESPONSE):")
"""Each run of blanks is looked at once, from its begin."""
_HEAD = re.compile(rb'"(?:chat|sample)"\s*:\s*"(?:\\n|\s)*(?:SYSTEM|USER|ASSISTANT): ')
_END = "<|endoftext|>"


class _Piece(NamedTuple):
    """Who speaks, and what."""

    label: str
    text: str


class Glaive:
    """Chats of Glaive's sets."""

    name = "glaive"
    version = 1
    record = "one chat (a line, an array element or the document)"
    fills = ("tools",)
    splittable = True

    def sniff(self, head: Head) -> float:
        """Rows whose `chat` or `sample` begins with a label of Glaive's."""
        mine = {"chat", "sample"} & head.top and head.has_rows
        return 0.9 if mine and _HEAD.search(head.data) else 0.0

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per chat."""
        yield from read_rows(source, self._row)

    def _row(self, row: Any, locator: str) -> Iterator[Reading]:
        keys = [
            key
            for key in ("system", "chat", "sample")
            if isinstance(row, dict) and isinstance(row.get(key), str)
        ]
        if not {"chat", "sample"} & set(keys):
            yield reject(locator, "no text under `chat`", "", row)
            return
        builder, offered = EpisodeBuilder(), None
        for key in keys:
            for piece in _pieces(row[key], "SYSTEM" if key == "system" else "USER"):
                offered = functions_in(piece.text) if piece.label == "SYSTEM" else offered
                _add(builder, piece, offered, at(locator, f"/{key}"))
        told = {"tools": offered} if offered is not None and "tools" not in row else {}
        yield from close(
            builder, labelled_chat(self.name, builder, [], row | told, locator, ("tools", *keys))
        )


def _pieces(text: str, first: str) -> Iterator[_Piece]:
    """The text cut at its labels; what stands before the first label is `first`'s."""
    label, begin = first, 0
    for mark in _LABEL.finditer(text):
        if mark.start() and "\n\n" not in mark["gap"]:
            continue
        if said := text[begin : mark.start()].strip():
            yield _Piece(label, said)
        label, begin = mark["label"], mark.end()
    if said := text[begin:].strip():
        yield _Piece(label, said)


def _add(builder: EpisodeBuilder, piece: _Piece, offered: list[str] | None, where: str) -> None:
    text = piece.text.removesuffix(_END).rstrip() if piece.label == "ASSISTANT" else piece.text
    if piece.label == "FUNCTION RESPONSE":
        builder.result(None, text, where)
    elif piece.label != "ASSISTANT":
        builder.message(piece.label.lower(), text, where)
    elif text:
        calls = said_calls(text, offered, where)
        if calls == []:
            builder.unparsed(text, where)
        else:
            builder.turn(text, calls or [], where)
