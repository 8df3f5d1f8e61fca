"""Langfuse exports: observations (JSON, JSON lines, CSV or Parquet), joined with the scores and traces that lie beside them.

A record is a row: an observation, a score or a trace. The folder of an export (`observations_v2/`, `scores/`, `traces/`)
is one source, because a trace and its scores may lie in files of different time windows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from logforge.connectors.chat import tool_names
from logforge.connectors.episodes import (
    Call,
    Text,
    Verdict,
    bad_record,
    cost_or_none,
    count_or_none,
    first_text,
    micros,
    text_of,
    text_or_none,
)
from logforge.connectors.records import Head, Source, at, columns_of, plain_rows
from logforge.connectors.traces.attributes import number_of
from logforge.connectors.traces.envelopes import Where
from logforge.connectors.traces.episodes import Traces
from logforge.connectors.traces.messages import Said, inside, read_messages
from logforge.connectors.traces.spans import Kind, Span, ToolRun, skip_reason
from logforge.schemas import Duplicate, Reading, Reject, Skip

_OBSERVATION = frozenset({"trace_id", "type", "start_time"})
_SCORE = frozenset({"name", "value", "data_type"})
_TRACE = frozenset({"id", "timestamp", "bookmarked", "public"})
_KINDS: dict[str, Kind] = {
    "GENERATION": "model",
    "AGENT": "agent",
    "TOOL": "tool",
    "SPAN": "group",
    "CHAIN": "group",
}
TYPES = frozenset("span generation event agent tool chain retriever evaluator embedding guardrail".split())
"""Types of observations that are skipped under their own name when they belong to no run."""
_FOLDERS = ("observations_v2", "observations", "scores", "traces")
_SUFFIXES = frozenset({".json", ".jsonl", ".csv", ".parquet"})
_CAMEL = re.compile(r"(?<=[a-z0-9])([A-Z])")
_ABOUT = ("trace_name", "environment", "release", "version", "tags", "prompt_name", "name")


class Langfuse:
    """Langfuse's blob storage export, and rows of its API."""

    name = "langfuse"
    version = 5
    record = "one row: an observation, a score or a trace"
    fills = ("outcome", "score", "tools", "tokens", "cost", "latency", "times")

    def sniff(self, head: Head) -> float:
        """The columns that observations, scores or traces of an export have."""
        return 0.9 if _kind_of({snake(key) for key in columns_of(head)}) else 0.0

    def companions(self, path: Path) -> list[Path]:
        """Of the first observations file of an export: every other file of it."""
        members = _export_of(path)
        return [other for other in members if other != path] if members and members[0] == path else []

    def read(self, source: Source) -> Iterator[Reading]:
        """One episode per agent invocation or trace, with its scores."""
        export = _Export(self.name)
        for part in (source, *_parts(source)):
            for locator, row in export.traces.watched(plain_rows(part, "trace_id", "bookmarked")):
                if isinstance(row, Reject):
                    yield row
                    continue
                try:
                    reading = export.add(row, locator)
                except RecursionError:
                    reading = Reject(locator=locator, reason="nested too deep", rule="nested_too_deep")
                if reading is not None:
                    yield reading
        yield from export.episodes()


def snake(key: str) -> str:
    """A key as the export writes it; the API writes `traceId`."""
    return _CAMEL.sub(lambda match: "_" + match[1].lower(), key)


def _kind_of(keys: set[str]) -> str | None:
    if keys >= _SCORE and {"trace_id", "observation_id", "session_id", "dataset_run_id"} & keys:
        return "score"
    if keys >= _OBSERVATION and {"parent_observation_id", "usage_details", "level", "trace_name"} & keys:
        return "observation"
    return "trace" if keys >= _TRACE and {"session_id", "user_id", "tags"} & keys else None


def _export_of(path: Path) -> list[Path]:
    """The files of the export that a file belongs to, the first observations file first; empty when it is of none."""
    folder = path.parent
    if path.suffix not in _SUFFIXES or not (
        folder.name in _FOLDERS[:2] or path.name.startswith("observations")
    ):
        return []
    if folder.name in _FOLDERS[:2]:
        files = [
            file for name in _FOLDERS for file in sorted((folder.parent / name).glob("*")) if file.is_file()
        ]
    else:
        stems = ("observations", "scores", "traces")
        files = [file for stem in stems for file in sorted(folder.glob(f"{stem}*")) if file.is_file()]
    files = [file for file in files if file.suffix in _SUFFIXES]
    # One look into each file: other tools name their tables so too, and an hour without traces leaves an empty file.
    files = [file for file in files if _speaks(file)]
    return files if path in files else []


def _speaks(path: Path) -> bool:
    with path.open("rb") as file:
        data = file.read(16_384)
        file.seek(max(0, path.stat().st_size - 65_536))  # where Parquet has its columns
        data += file.read(65_536)
    return b"trace_id" in data or b"traceId" in data or (b"bookmarked" in data and b"public" in data)


def _parts(source: Source) -> Iterator[Source]:
    """The companions, with labels beside the source's own."""
    for path in source.companions:
        yield Source(path, source.beside(path), max_record=source.max_record)


class _Export:
    """Takes the rows of an export."""

    def __init__(self, name: str) -> None:
        self.traces = Traces(name)
        self._spans: dict[str, Span] = {}
        self._facts: dict[str, Span] = {}
        self._scores: dict[str, tuple[dict[str, Any], str]] = {}
        self._times: dict[str, str] = {}

    def add(self, raw: Any, locator: str) -> Reading | None:
        """Take a row, or say why not."""
        keys = {snake(key): key for key in raw} if isinstance(raw, dict) else {}
        kind = _kind_of(set(keys))
        row = {name: raw[key] for name, key in keys.items()}
        own = text_or_none(row.get("id"))
        if kind == "observation" and (trace := text_or_none(row.get("trace_id"))):
            span = _observation(row, trace, own, _Places(locator, keys))
            return self._add_observation(span, _updated(row))
        if kind == "score":
            known = self._scores.get(own or locator)
            if known is None or _updated(row) > _updated(known[0]):
                self._scores[own or locator] = (row, locator)
            return None if known is None else Duplicate()
        if kind == "trace" and own is not None:
            return self._add_trace(row, own, locator)
        return bad_record(locator, "neither an observation, a score nor a trace", "not_a_span", raw)

    def _add_observation(self, span: Span, updated: str) -> Reading | None:
        """A row that was exported again replaces the older one, which is then the duplicate."""
        known = self._spans.get(span.id) if span.id is not None else None
        if known is None:
            self.traces.add(span)
        elif updated > self._times[known.id or ""]:
            at = next(index for index, other in enumerate(self.traces.spans) if other is known)
            self.traces.spans[at] = span
        else:
            return Duplicate()
        if span.id is not None:
            self._spans[span.id], self._times[span.id] = span, updated
        return None if known is None else Duplicate()

    def _add_trace(self, row: dict[str, Any], own: str, locator: str) -> Reading | None:
        if own in self._facts:
            return Duplicate()
        span = Span(own, None, None, "group", locator, reason="trace_without_observations", keep=True)
        span.start = micros(row.get("timestamp"))
        span.session, span.user = text_or_none(row.get("session_id")), text_or_none(row.get("user_id"))
        span.about = _about({**row, "trace_name": row.get("name")})
        self._facts[own] = span
        self.traces.add(span)
        return None

    def episodes(self) -> Iterator[Reading]:
        """The scores find what they judge; then every row is in an episode or skipped."""
        sessions: dict[str, set[str]] = {}
        for span in self.traces.spans:
            if span.session:
                sessions.setdefault(span.session, set()).add(span.trace)
        traces = {span.trace for span in self.traces.spans}
        for row, locator in self._scores.values():
            reading = self._judge(row, locator, traces, sessions)
            if reading is not None:
                yield reading
        yield from self.traces.episodes()

    def _judge(
        self, row: dict[str, Any], locator: str, traces: set[str], sessions: dict[str, set[str]]
    ) -> Reading | None:
        trace, session = text_or_none(row.get("trace_id")), text_or_none(row.get("session_id"))
        target = self._spans.get(text_or_none(row.get("observation_id")) or "")
        verdict = _verdict(row, locator)
        if target is not None and (target.kind in ("model", "tool", "agent") or target.parent is not None):
            target.verdicts.append(verdict)
            target.records += 1
            return None
        if trace is None and session in sessions and len(sessions[session]) > 1:
            return Skip(reason="score_of_a_session_of_several_traces")
        if trace is None and session in sessions:
            (trace,) = sessions[session]
        if trace is None and text_or_none(row.get("dataset_run_id")) is not None:
            return Skip(reason="score_of_a_dataset_run")
        if trace not in traces or trace is None:
            return bad_record(
                locator, "a score of a trace that is not in this source", "verdict_without_run", row
            )
        span = Span(trace, None, None, "group", locator, verdicts=[verdict._replace(scope="trace")])
        self.traces.add(span)
        return None


def _updated(row: dict[str, Any]) -> str:
    return text_or_none(row.get("updated_at")) or ""


class _Places:
    """Locators of a row's fields."""

    def __init__(self, locator: str, keys: dict[str, str]) -> None:
        self.locator = locator
        self._keys = keys

    def of(self, name: str) -> Where:
        """The locators inside a field."""
        return lambda pointer: at(self.locator, f"/{self._keys.get(name, name)}{pointer}")


def _observation(row: dict[str, Any], trace: str, own: str | None, places: _Places) -> Span:
    named = (text_or_none(row.get("type")) or "").upper()
    parent = text_or_none(row.get("parent_observation_id"))
    reason = skip_reason(named.lower(), TYPES, "observation")
    span = Span(trace, own, parent, _KINDS.get(named, "other"), places.locator, reason)
    span.name = text_or_none(row.get("name"))
    span.start, span.end = micros(row.get("start_time")), micros(row.get("end_time"))
    span.failed = True if text_or_none(row.get("level")) == "ERROR" else None
    span.error, span.error_at = text_or_none(row.get("status_message")), places.of("status_message")("")
    span.session, span.user = text_or_none(row.get("session_id")), text_or_none(row.get("user_id"))
    span.about = _about(row)
    if span.kind in ("model", "agent"):
        span.agent = span.name if span.kind == "agent" else None
        _fill_model(span, row, places)
    elif span.kind == "tool":
        if span.name is None:
            span.kind = "other"
        else:
            span.run = _tool_run(row, span.name, places)
    return span


def _about(row: dict[str, Any]) -> dict[str, Any]:
    found = {key: row[key] for key in _ABOUT if key in row and row[key] not in (None, "", [], "[]")}
    found.pop("name", None)
    metadata, _ = inside(row.get("metadata"), lambda _: "")
    return found | ({"metadata": metadata} if metadata else {})


def _fill_model(span: Span, row: dict[str, Any], places: _Places) -> None:
    span.model = first_text(row, "provided_model_name", "model")
    parameters, _ = inside(row.get("model_parameters"), lambda _: "")
    if isinstance(parameters, dict):
        span.temperature = number_of(parameters.get("temperature"))
    usage, _ = inside(row.get("usage_details", row.get("usage")), lambda _: "")
    if isinstance(usage, dict):
        span.tokens_in = _count(usage.get("input", usage.get("prompt_tokens")))
        span.tokens_out = _count(usage.get("output", usage.get("completion_tokens")))
    span.cost = cost_or_none(row.get("total_cost"))
    prompt, version = text_or_none(row.get("prompt_name")), text_or_none(row.get("prompt_version"))
    span.prompt_version = ":".join(part for part in (prompt, version) if part) or None
    span.heard = read_messages(row.get("input"), places.of("input"), "user", span.rejects)
    span.replies = read_messages(row.get("output"), places.of("output"), "assistant", span.rejects)
    _add_listed_calls(span, row, places)
    span.tools = _tools(row)


def _count(value: Any) -> int | None:
    number = number_of(value)
    return count_or_none(int(number)) if number is not None else None


def _add_listed_calls(span: Span, row: dict[str, Any], places: _Places) -> None:
    """The column of calls, where the output does not have them itself."""
    listed, where = inside(row.get("tool_calls"), places.of("tool_calls"))
    if not isinstance(listed, list) or not listed or any(said.calls for said in span.replies):
        return
    shell = {"role": "assistant", "tool_calls": listed}
    found = read_messages(shell, lambda p: where(p.removeprefix("/tool_calls")), "assistant", span.rejects)
    calls: list[Call] = found[0].calls if found else []
    if not span.replies:
        span.replies = [Said("assistant", places.locator)]
    span.replies[0].calls += calls


def _tools(row: dict[str, Any]) -> list[str] | None:
    """Names of the tools offered. An empty object may mean that none was offered or that none was captured."""
    defined, _ = inside(row.get("tool_definitions"), lambda _: "")
    if isinstance(defined, dict) and defined:
        return sorted(defined)
    if isinstance(defined, list) and defined:
        return tool_names(defined)
    asked, _ = inside(row.get("input"), lambda _: "")
    return tool_names(asked.get("tools")) if isinstance(asked, dict) else None


def _tool_run(row: dict[str, Any], name: str, places: _Places) -> ToolRun:
    given, _ = inside(row.get("input"), lambda _: "")
    metadata, _ = inside(row.get("metadata"), lambda _: "")
    call_id = (
        first_text(metadata, "tool_call_id", "gen_ai.tool.call.id") if isinstance(metadata, dict) else None
    )
    run = ToolRun(name, call_id, given if given is None or isinstance(given, dict) else {"input": given})
    if row.get("output") is not None:
        run.result = Text(text_of(row["output"]) or "", places.of("output")(""))
    return run


def _verdict(row: dict[str, Any], locator: str) -> Verdict:
    kind = (text_or_none(row.get("data_type")) or "").upper()
    value = number_of(row.get("value"))
    label = text_or_none(row.get("string_value"))
    return Verdict(
        name=text_or_none(row.get("name")),
        score=value if kind in ("NUMERIC", "BOOLEAN") else None,
        label=label,
        source=text_or_none(row.get("source")),
        comment=text_or_none(row.get("comment")),
        locator=locator,
        passed=value == 1 if kind == "BOOLEAN" and value in (0, 1) else None,
    )
