"""A streamed response of OpenAI's API, put together from its chunks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from logforge.connectors.episodes.builder import Call, EpisodeBuilder
from logforge.connectors.episodes.content import (
    Text,
    bad_part,
    cost_or_none,
    count_or_none,
    micros,
    text_or_none,
)
from logforge.connectors.records.base import at
from logforge.connectors.records.json import canonical
from logforge.schemas.episode import Reject


@dataclass
class _Fragments:
    """A call, as far as it has come."""

    where: str
    index: Any
    call_id: str | None
    name: str = ""
    arguments: str = ""


@dataclass
class Response:
    """The chunks of one response."""

    where: str
    texts: list[Text] = field(default_factory=list)
    thoughts: list[Text] = field(default_factory=list)
    calls: list[_Fragments] = field(default_factory=list)
    finish: str | None = None
    model: str | None = None
    time: int | None = None
    usage: dict[str, Any] = field(default_factory=dict)

    def add(self, chunk: dict[str, Any], locator: str, rejects: list[Reject]) -> None:
        """Take the next chunk."""
        self.model = self.model or text_or_none(chunk.get("model"))
        self.time = self.time if self.time is not None else micros(chunk.get("created"))
        self.usage = chunk["usage"] if isinstance(chunk.get("usage"), dict) else self.usage
        choices = chunk.get("choices")
        for number, choice in enumerate(choices if isinstance(choices, list) else ()):
            where = at(locator, f"/choices/{number}")
            if not isinstance(choice, dict):
                rejects.append(bad_part(where, "choice is no object", "bad_choice", choice))
            elif choice.get("index") not in (None, 0):
                rejects.append(
                    bad_part(where, "piece of another answer to the same request", "other_choice", choice)
                )
            else:
                self.finish = text_or_none(choice.get("finish_reason")) or self.finish
                if isinstance(choice.get("delta"), dict):
                    self._add_delta(choice["delta"], at(where, "/delta"), rejects)

    def _add_delta(self, delta: dict[str, Any], where: str, rejects: list[Reject]) -> None:
        for key in ("content", "refusal"):
            if isinstance(delta.get(key), str) and delta[key]:
                self.texts.append(Text(delta[key], f"{where}/{key}"))
        for key in ("reasoning_content", "reasoning"):
            if isinstance(delta.get(key), str) and delta[key]:
                self.thoughts.append(Text(delta[key], f"{where}/{key}"))
                break
        calls = delta.get("tool_calls")
        for number, piece in enumerate(calls if isinstance(calls, list) else ()):
            self._add_piece(piece, f"{where}/tool_calls/{number}", rejects)
        if isinstance(delta.get("function_call"), dict):
            self._add_piece(
                {"index": 0, "function": delta["function_call"]}, f"{where}/function_call", rejects
            )

    def _add_piece(self, piece: Any, where: str, rejects: list[Reject]) -> None:
        function = piece.get("function") if isinstance(piece, dict) else None
        if not isinstance(function, dict):
            rejects.append(bad_part(where, "fragment of a call is no object", "bad_fragment", piece))
            return
        call = self._call_of(piece.get("index"), text_or_none(piece.get("id")), where)
        name, arguments = function.get("name"), function.get("arguments")
        if isinstance(name, str) and name != call.name:  # some servers repeat the whole name
            call.where = call.where if call.name else where
            call.name += name
        if arguments is not None:
            call.arguments += arguments if isinstance(arguments, str) else canonical(arguments)

    def _call_of(self, index: Any, call_id: str | None, where: str) -> _Fragments:
        """The call that a fragment belongs to: by index, unless it brings an id of its own; without an index, by id or the last."""
        for call in reversed(self.calls):
            same_id = call_id is None or call.call_id is None or call.call_id == call_id
            if same_id and (index is None or call.index == index):
                call.call_id = call.call_id or call_id
                return call
        self.calls.append(_Fragments(where, index, call_id))
        return self.calls[-1]

    def build(self, builder: EpisodeBuilder) -> None:
        """Add the response as one assistant turn."""
        named = [Call(c.name, c.arguments, c.call_id, c.where) for c in self.calls if c.name]
        builder.rejects += [
            bad_part(c.where, "tool call without a name", "nameless_call", c.arguments)
            for c in self.calls
            if not c.name
        ]
        more: dict[str, Any] = {
            "thought": "".join(text for text, _ in self.thoughts) or None,
            "created_at": self.time,
            "model": self.model,
            "tokens_in": count_or_none(self.usage.get("prompt_tokens")),
            "tokens_out": count_or_none(self.usage.get("completion_tokens")),
            "cost_usd": cost_or_none(self.usage.get("cost")),
        }
        text = "".join(text for text, _ in self.texts) or None
        where = self.texts[0].locator if self.texts else self.where
        if named or (text is not None and not self.calls):
            builder.turn(text, named, where, **more)
        elif text is not None or self.thoughts:
            builder.message("assistant", text, where, **more)
