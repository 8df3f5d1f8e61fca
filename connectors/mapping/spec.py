"""The mapping language: which fields a spec has, and reading one from YAML with every problem's line."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from logforge.connectors.mapping.paths import BadPath, Path, Spot, Trail, parse_path
from logforge.connectors.records import BUILT_IN
from logforge.schemas import Marked, Problem, SourceKind, SpecError, parse

TOP = ("name", "records", "skip", "source_kind", "unique_id", "time_unit", "episode", "messages", "steps")
EPISODE = (
    *(
        "id",
        "task",
        "task_id",
        "group",
        "session",
        "user",
        "policy",
        "model",
        "temperature",
        "prompt_version",
    ),
    *(
        "tools",
        "success",
        "score",
        "cost",
        "reference",
        "ending",
        "terminated",
        "truncated",
        "parent",
        "started",
        "ended",
        "system",
    ),
)
SPEAKER = (
    *("role", "content", "thought", "time", "model", "tokens_in", "tokens_out", "cost", "reward", "tools"),
    *("call_id", "error", "turn", "calls", "results"),
)
MESSAGES = ("path", *SPEAKER, "skip", "rows", "order", "each")
CALLS = ("path", "name", "arguments", "id", "thought", "apart")
RESULTS = ("path", "id", "content", "error", "latency", "reward")
STEPS = (
    *(
        "order",
        "observation",
        "observation_role",
        "thought",
        "say",
        "action",
        "arguments",
        "call_id",
        "result",
    ),
    *("error", "latency", "reward", "time", "turn", "terminated", "truncated"),
)
ROWS = ("episode", "file")
"""What the records of one conversation have in common, when each is a message: their `episode.id`, or the file."""
TIME_UNITS = ("s", "ms", "us", "ns", "iso", "relative")
ANY, SAME = "*", "same"
"""In `values`: the entry for what no other lists, and the word for a value that stays as it is."""
ROLES = ("system", "developer", "user", "assistant", "tool")


@dataclass(frozen=True)
class Expression:
    """Where a field comes from: the first path that leads to something, translated by `values`; else `default`."""

    paths: tuple[Path, ...] = ()
    values: Mapping[str, Any] | None = None
    default: Any = None
    name: str = ""
    """The field's place in the mapping."""

    def raw(self, here: Spot, record: Spot) -> Spot | None:
        """What the field is read from, as the log has it."""
        return next((spot for spot in self.candidates(here, record) if self._counts(spot)), None)

    def _counts(self, spot: Spot) -> bool:
        return spot.value is not None and self.means(spot) is not None

    def candidates(self, here: Spot, record: Spot) -> Iterator[Spot]:
        """Everything its paths lead to, in order."""
        return (spot for path in self.paths for spot in path.find(here, record))

    def means(self, found: Spot) -> Spot | None:
        """What the mapping takes a value for; None when for nothing."""
        value = self._translate(found.value)
        return None if value is None else found._replace(value=value)

    def otherwise(self, here: Spot) -> Spot | None:
        """What it says where nothing is found."""
        return None if self.default is None else Spot(self.default, here.where, CONSTANT)

    def every(self, here: Spot, record: Spot) -> list[Spot]:
        """Everything the first fruitful path leads to."""
        return next((found for path in self.paths if (found := path.find(here, record))), [])

    def _translate(self, value: Any) -> Any:
        if self.values is None:
            return value
        found = self.values.get(written(value), self.values.get(ANY))
        return value if found == SAME and written(value) not in self.values else found


CONSTANT: Trail = ("constant of the mapping", -1)
"""The trail of what the mapping says itself; it leads nowhere, as no list has a negative index."""


def written(value: Any) -> str:
    """A value as one writes it as a key of `values`."""
    return (
        {True: "true", False: "false", None: "null"}.get(value, str(value))
        if isinstance(value, bool | None)
        else str(value)
    )


Fields = Mapping[str, Expression]
_BLOCKS = ("calls", "results", "each", "rows")
"""Keys that are no fields."""


@dataclass(frozen=True)
class Speaker:
    """How a message is read where one stands: its fields, the calls in it and the results."""

    fields: Fields
    calls: Fields | None = None
    results: Fields | None = None


@dataclass(frozen=True)
class MappingSpec:
    """A whole mapping. `speakers` read a message each, in order, from every place that `messages` leads to."""

    name: str
    records: Path | None = None
    skip: Expression | None = None
    source_kind: SourceKind = "agent_log"
    unique_id: bool = False
    time_unit: str | None = None
    episode: Fields = field(default_factory=dict)
    messages: Fields | None = None
    speakers: tuple[Speaker, ...] = ()
    rows: str | None = None
    """Each record is a message: of the conversation that its `episode` id names, or of the one that the `file` is."""
    steps: Fields | None = None

    @property
    def gathers(self) -> bool:
        """Records are parts of episodes: decisions or messages."""
        return self.steps is not None or self.rows is not None

    @property
    def blocks(self) -> tuple[Fields, ...]:
        """All its blocks of fields."""
        inner = [block for one in self.speakers for block in (one.fields, one.calls, one.results)]
        return tuple(
            block for block in (self.episode, self.messages, *inner, self.steps) if block is not None
        )


def parse_mapping(text: str, path: str) -> MappingSpec:
    """Read a mapping. Raises SpecError, which lists every problem with its line."""
    try:
        marked = parse(text, path)
    except SpecError as error:
        raise SpecError([_hinted(problem, text) for problem in error.problems]) from None
    return _Reader(marked, path).spec()


# From the first bracket on: looked for behind each of them, a long line of brackets would take forever.
_BARE = re.compile(r"""[^{\[]*+[{\[].*?(?<=[\s{\[,])\$[^\s'",{}\]]*\[""")


def _hinted(problem: Problem, text: str) -> Problem:
    """Inside braces YAML takes the [ of a bare path for a list of its own, and says something else."""
    line = text.splitlines()[problem.line - 1 :][:1] if problem.line else []
    if not line or not _BARE.match(line[0]):
        return problem
    return replace(
        problem, what=problem.what + '; inside { } and [ ] a path with brackets needs quotes: "$.name[*]"'
    )


class _Reader:
    def __init__(self, marked: Marked, path: str) -> None:
        self.value, self.lines, self.path = marked.value, marked.lines, path
        self.problems: list[Problem] = []

    def spec(self) -> MappingSpec:
        top = self._object(self.value, "", TOP)
        messages, steps = self._block(top, "messages", MESSAGES), self._block(top, "steps", STEPS)
        inner = top.get("messages") if isinstance(top.get("messages"), dict) else {}
        speakers = self._speakers(inner or {}, messages) if messages is not None else ()
        episode = self._block(top, "episode", EPISODE) or {}
        kind, name = top.get("source_kind", "agent_log"), top.get("name")
        if not isinstance(name, str) or not name:
            self._problem("name is missing: what the format is called", "name")
        elif name in BUILT_IN:
            self._problem(f"name {name!r} is that of a format logforge knows: choose another", "name")
        if top.get("time_unit", "s") not in TIME_UNITS:
            self._problem(f"time_unit is none of {', '.join(TIME_UNITS)}", "time_unit")
        if kind not in get_args(SourceKind):
            self._problem(f"source_kind is none of {', '.join(get_args(SourceKind))}", "source_kind")
        if not isinstance(top.get("unique_id", False), bool):
            self._problem("unique_id is true or false", "unique_id")
        if "parent" in episode and top.get("unique_id") is not True:
            self._problem("parent needs `unique_id: true`: ids then name episodes", "episode.parent")
        self._check(messages, steps, episode)
        if messages is not None:
            self._check_messages(inner or {}, messages, speakers, episode)
        spec = MappingSpec(
            name=str(name),
            records=self._records(top),
            skip=self._expression(top["skip"], "skip") if "skip" in top else None,
            source_kind=kind,
            unique_id=top.get("unique_id") is True,
            time_unit=top.get("time_unit"),
            episode=episode,
            messages=messages,
            speakers=speakers,
            rows=inner.get("rows") if inner else None,
            steps=steps,
        )
        if self.problems:
            raise SpecError(self.problems)
        return spec

    def _speakers(self, given: dict[str, Any], messages: Fields) -> tuple[Speaker, ...]:
        """The message at each place, or the several that `each` lists."""
        if "each" not in given:
            own = {key: value for key, value in messages.items() if key in SPEAKER}
            return (self._speaker(own, given, "messages"),)
        listed = given["each"]
        if not isinstance(listed, list) or not listed:
            self._problem("each is a list of messages, every one with role and content", "messages.each")
            return ()
        found = []
        for number in range(len(listed)):
            where = f"messages.each.{number}"
            fields = self._block({where: listed[number]}, where, SPEAKER) or {}
            found.append(
                self._speaker(fields, listed[number] if isinstance(listed[number], dict) else {}, where)
            )
        return tuple(found)

    def _speaker(self, fields: Fields, given: dict[str, Any], where: str) -> Speaker:
        calls = self._block(given, "calls", CALLS, f"{where}.")
        return Speaker(fields, calls, self._block(given, "results", RESULTS, f"{where}."))

    def _check(self, messages: Fields | None, steps: Fields | None, episode: Fields) -> None:
        if (messages is None) == (steps is None):
            self._problem("exactly one of messages and steps is needed", "")
        if steps is not None and not {"action", "say"} & steps.keys():
            self._problem("action or say is missing: what was decided", "steps")
        if steps is not None:
            self._check_id(episode, "steps")
        self._check_values(steps, "steps.observation_role", "observation_role", ROLES[:3])
        self._check_values(episode, "episode.ending", "ending", ("terminal", "truncated"))

    def _check_messages(
        self, given: dict[str, Any], messages: Fields, speakers: tuple[Speaker, ...], episode: Fields
    ) -> None:
        """Where the messages are, and what each has."""
        rows = given.get("rows")
        if rows is not None and rows not in ROWS:
            self._problem(f"rows is none of {', '.join(ROWS)}", "messages.rows")
        if rows is None and "path" not in messages:
            self._problem("path is missing", "messages")
        if rows == "episode":
            self._check_id(episode, "messages")
        self._need_path(messages, "messages")
        if "each" in given:
            for key in sorted(given.keys() & set(SPEAKER)):
                self._problem(f"{key} belongs into the messages that each lists", _inside("messages", key))
        for number, one in enumerate(speakers):
            self._check_speaker(one, f"messages.each.{number}" if "each" in given else "messages")

    def _check_speaker(self, one: Speaker, where: str) -> None:
        blocks = (
            (one.fields, where, ("role",)),
            (one.calls, f"{where}.calls", ("name",)),
            (one.results, f"{where}.results", ("content",)),
        )
        for block, name, needed in blocks:
            for key in needed if block is not None else ():
                if key not in (block or {}):
                    self._problem(f"{key} is missing", name)
            self._need_path(block, name)
        self._check_values(one.fields, f"{where}.role", "role", ROLES)

    def _check_id(self, episode: Fields, what: str) -> None:
        if "id" not in episode:
            self._problem(f"episode.id is missing: it tells which {what} belong together", "episode")
        elif not episode["id"].paths:
            self._problem("a path is needed, such as $.run", "episode.id")

    def _need_path(self, block: Fields | None, where: str) -> None:
        if block and "path" in block and not block["path"].paths:
            self._problem("a path is needed, such as $.name", f"{where}.path")

    def _check_values(self, block: Fields | None, where: str, key: str, valid: tuple[str, ...]) -> None:
        expression = (block or {}).get(key)
        listed = (expression.values or {}) if expression else {}
        given = [value for key, value in listed.items() if (key, value) != (ANY, SAME)]
        for value in [*given, expression.default if expression else None]:
            if value is not None and value not in valid:
                self._problem(f"{value!r} is none of {', '.join(valid)}", where)

    def _object(self, value: Any, where: str, valid: tuple[str, ...]) -> dict[str, Any]:
        if not isinstance(value, dict):
            self._problem(f"must be a mapping with some of: {', '.join(valid)}", where)
            return {}
        for key in value:
            if key not in valid:
                near = difflib.get_close_matches(key, valid, n=1)
                hint = f"did you mean {near[0]}? " if near else ""
                self._problem(f"unknown key {key!r}; {hint}valid: {', '.join(valid)}", _inside(where, key))
        return value

    def _block(
        self, outer: dict[str, Any], name: str, valid: tuple[str, ...], prefix: str = ""
    ) -> Fields | None:
        if name not in outer:
            return None
        where = prefix + name
        given = self._object(outer[name], where, valid)
        return {
            key: self._expression(value, _inside(where, key))
            for key, value in given.items()
            if key in valid and key not in _BLOCKS
        }

    def _records(self, top: dict[str, Any]) -> Path | None:
        if "records" not in top:
            return None
        path = self._path(top["records"], "records")
        if path is not None and path.of_record:
            self._problem("records begins with $, the document", "records")
        return path

    def _expression(self, value: Any, where: str) -> Expression:
        if isinstance(value, dict):
            given = self._object(value, where, ("path", "values", "default"))
            listed = given.get("path")
            paths = self._paths(listed if isinstance(listed, list) else [listed], _inside(where, "path"))
            values = given.get("values")
            if values is not None and not isinstance(values, dict):
                self._problem(
                    "values is a mapping from what the log has to what it means", _inside(where, "values")
                )
                values = None
            return Expression(paths, values, given.get("default"), where)
        if isinstance(value, list):
            return Expression(self._paths(value, where), name=where)
        if isinstance(value, str) and value.startswith("$"):
            return Expression(self._paths([value], where), name=where)
        return Expression(default=value, name=where)

    def _paths(self, values: list[Any], where: str) -> tuple[Path, ...]:
        return tuple(path for value in values if (path := self._path(value, where)) is not None)

    def _path(self, value: Any, where: str) -> Path | None:
        if not isinstance(value, str):
            self._problem("a path is needed, such as $.name", where)
            return None
        try:
            return parse_path(value)
        except BadPath as error:
            self._problem(str(error), where)
            return None

    def _problem(self, what: str, where: str) -> None:
        line, at = self.lines.get(where), where
        while line is None and at:
            at = at.rpartition(".")[0]
            line = self.lines.get(at)
        self.problems.append(Problem(what, self.path, line, where))


def _inside(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key
