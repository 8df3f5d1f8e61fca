"""LangSmith's runs put together from their beginning and end, and the messages in their inputs and outputs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from logforge.connectors.episodes import bad_part, count_or_none, text_or_none
from logforge.connectors.records import at
from logforge.schemas import Reject

Placed = list[tuple[Any, str]]
"""Messages, each with where it stands."""

_ROLES = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool", "function": "function"}
"""LangChain's names of the roles."""
_CLASSES = {name + tail: role for name, role in _ROLES.items() for tail in ("", "message")}

_VENDORS = frozenset({"tool_calls", "function_call", "reasoning_content"})
"""What LangChain keeps of a vendor's own keys, below `additional_kwargs`."""


@dataclass
class Run:
    """One run, merged from everything that was logged of it."""

    id: str
    locator: str
    fields: dict[str, Any] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    records: list[str] = field(default_factory=list)

    def merge(self, piece: dict[str, Any], where: str, record: str) -> None:
        """Add what a piece tells. What is empty in it tells nothing."""
        for key, value in piece.items():
            if value not in (None, {}, [], ""):
                self.fields[key] = value
                self.places[key] = at(where, f"/{key}")
        if record not in self.records:
            self.records.append(record)

    def get(self, key: str) -> Any:
        """One of its fields."""
        return self.fields.get(key)

    @property
    def kind(self) -> str:
        """Its run type."""
        return text_or_none(self.get("run_type")) or ""

    @property
    def trace(self) -> str:
        """The trace that it is part of; a run that names none is one itself."""
        return text_or_none(self.get("trace_id")) or self.id

    @property
    def inputs(self) -> dict[str, Any]:
        """What it was given."""
        inputs = self.get("inputs")
        return inputs if isinstance(inputs, dict) else {}

    @property
    def outputs(self) -> dict[str, Any]:
        """What it gave."""
        outputs = self.get("outputs")
        return outputs if isinstance(outputs, dict) else {}

    @property
    def metadata(self) -> dict[str, Any]:
        """What was noted about it."""
        extra = self.get("extra")
        metadata = extra.get("metadata") if isinstance(extra, dict) else None
        return metadata if isinstance(metadata, dict) else {}

    @property
    def finish(self) -> str | None:
        """Why the model stopped."""
        choices = self.outputs.get("choices")
        first = choices[0] if isinstance(choices, list) and choices else self.outputs
        if not isinstance(first, dict):
            return None
        return text_or_none(first.get("finish_reason")) or text_or_none(first.get("stop_reason"))

    @property
    def tokens(self) -> tuple[int | None, int | None]:
        """Tokens read and written."""
        for key in ("usage_metadata", "usage"):
            usage = self.outputs.get(key)
            if isinstance(usage, dict):
                names = (("input_tokens", "prompt_tokens"), ("output_tokens", "completion_tokens"))
                asked, said = ([count_or_none(usage.get(name)) for name in pair] for pair in names)
                return _first(asked), _first(said)
        return None, None


def _first(values: list[int | None]) -> int | None:
    return next((value for value in values if value is not None), None)


@dataclass
class Runs:
    """Takes the records one by one; then `traces` tells the traces apart."""

    records: list[str] = field(default_factory=list)
    rejects: dict[str, list[Reject]] = field(default_factory=dict)
    """What is no run, by record."""
    _runs: dict[str, Run] = field(default_factory=dict)

    def add(self, row: dict[str, Any], locator: str) -> None:
        """Take a batch or a run."""
        self.records.append(locator)
        if is_run(row):
            self._piece(row, locator if "#" in locator else f"{locator}#", locator)
            return
        for kind in ("post", "patch"):
            pieces = row.get(kind)
            for index, piece in enumerate(pieces if isinstance(pieces, list) else ()):
                self._piece(piece, at(locator, f"/{kind}/{index}"), locator)
        for kind, pieces in row.items():
            if kind not in ("post", "patch") and isinstance(pieces, list | dict) and pieces:
                part = bad_part(
                    at(locator, f"/{kind}"), "neither runs nor ends of runs", "unknown_part", pieces
                )
                self.rejects.setdefault(locator, []).append(part)

    def _piece(self, piece: Any, where: str, record: str) -> None:
        run_id = text_or_none(piece.get("id")) if isinstance(piece, dict) else None
        if run_id is None:
            part = bad_part(where, "run without an id", "nameless_run", piece)
            self.rejects.setdefault(record, []).append(part)
            return
        run = self._runs.setdefault(run_id, Run(run_id, where))
        run.merge(piece, where, record)

    def traces(self) -> list[list[Run]]:
        """The runs of each trace, in the order in which they began."""
        found: dict[str, list[Run]] = {}
        for run in self._runs.values():
            found.setdefault(run.trace, []).append(run)
        return [
            sorted(runs, key=lambda run: text_or_none(run.get("dotted_order")) or "")
            for runs in found.values()
        ]


def is_run(row: Any) -> bool:
    """True for a record that is a run itself."""
    return isinstance(row, dict) and isinstance(row.get("run_type"), str) and "id" in row


def messages_of(run: Run) -> Placed:
    """The messages that a run was given; LangChain lays them in one more list, one per prompt."""
    messages, where = run.inputs.get("messages"), f"{run.places.get('inputs')}/messages"
    if isinstance(messages, list) and len(messages) == 1 and isinstance(messages[0], list):
        messages, where = messages[0], f"{where}/0"
    if not isinstance(messages, list):
        return []
    return [plain(message, f"{where}/{index}") for index, message in enumerate(messages)]


def answers_of(run: Run) -> Placed:
    """What the model answered: OpenAI's choices, LangChain's generations, or a message."""
    outputs, where = run.outputs, f"{run.places.get('outputs')}"
    choices, generations = outputs.get("choices"), outputs.get("generations")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        return [plain(choices[0].get("message"), f"{where}/choices/0/message")]
    if isinstance(generations, list) and generations:
        first, where = generations[0], f"{where}/generations/0"
        if isinstance(first, list) and first:
            first, where = first[0], f"{where}/0"
        if isinstance(first, dict) and isinstance(first.get("message"), dict):
            return [plain(first["message"], f"{where}/message")]
        if isinstance(first, dict) and isinstance(first.get("text"), str):
            return [({"role": "assistant", "content": first["text"]}, f"{where}/text")]
        return []
    if isinstance(outputs.get("message"), dict):
        return [plain(outputs["message"], f"{where}/message")]
    if isinstance(outputs.get("messages"), list):
        asked = len(messages_of(run))
        listed = [plain(m, f"{where}/messages/{i}") for i, m in enumerate(outputs["messages"])]
        # A chain's outputs hold the whole conversation, or only what is new of it.
        return (
            listed[asked:] if [m for m, _ in listed[:asked]] == [m for m, _ in messages_of(run)] else listed
        )
    if outputs.get("role") in ("assistant", "ai") or isinstance(outputs.get("content"), str | list):
        return [({**outputs, "role": "assistant"}, where)]
    return []


def plain(message: Any, where: str) -> tuple[Any, str]:
    """A message with a role. LangChain's are told by class or type, and lie under `kwargs` when serialized."""
    if not isinstance(message, dict):
        return message, where
    body, kind = message, message.get("type")
    if isinstance(message.get("kwargs"), dict) and isinstance(message.get("id"), list):
        names = message["id"]
        body, where = message["kwargs"], f"{where}/kwargs"
        kind = str(names[-1]) if names else None
    if "role" in body or not isinstance(kind, str):
        return body, where
    role = _CLASSES.get(kind.lower().removesuffix("chunk"))
    if role is None:
        return body, where
    inner = body.get("additional_kwargs")
    kept = {"reasoning_content"} if body.get("tool_calls") else _VENDORS
    own = {key: value for key, value in inner.items() if key in kept} if isinstance(inner, dict) else {}
    return {"role": role, **own, **body}, where
