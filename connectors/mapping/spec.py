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
    ),
)
MESSAGES = (
    *("path", "role", "content", "thought", "time", "model", "tokens_in", "tokens_out", "cost"),
    *("reward", "tools"),
    *("call_id", "error", "turn", "skip", "calls", "results"),
)
CALLS = ("path", "name", "arguments", "id")
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
        """What the first fruitful path leads to, as the log has it."""
        return next((spot for spot in self.candidates(here, record) if spot.value is not None), None)

    def candidates(self, here: Spot, record: Spot) -> Iterator[Spot]:
        """Everything its paths lead to, in order."""
        return (spot for path in self.paths for spot in path.find(here, record))

    def means(self, found: Spot | None, here: Spot) -> Spot | None:
        """What the mapping takes a value for; None when for nothing."""
        if found is not None and self.values is None:
            return found
        if found is not None and (value := self._translate(found.value)) is not None:
            return found._replace(value=value)
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


@dataclass(frozen=True)
class MappingSpec:
    """A whole mapping."""

    name: str
    records: Path | None = None
    skip: Expression | None = None
    source_kind: SourceKind = "agent_log"
    unique_id: bool = False
    time_unit: str | None = None
    episode: Fields = field(default_factory=dict)
    messages: Fields | None = None
    calls: Fields | None = None
    results: Fields | None = None
    steps: Fields | None = None


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
        calls = self._block(inner or {}, "calls", CALLS, "messages.")
        results = self._block(inner or {}, "results", RESULTS, "messages.")
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
        self._check(messages, calls, results, steps, episode)
        spec = MappingSpec(
            name=str(name),
            records=self._records(top),
            skip=self._expression(top["skip"], "skip") if "skip" in top else None,
            source_kind=kind,
            unique_id=top.get("unique_id") is True,
            time_unit=top.get("time_unit"),
            episode=episode,
            messages=messages,
            calls=calls,
            results=results,
            steps=steps,
        )
        if self.problems:
            raise SpecError(self.problems)
        return spec

    def _check(
        self,
        messages: Fields | None,
        calls: Fields | None,
        results: Fields | None,
        steps: Fields | None,
        episode: Fields,
    ) -> None:
        if (messages is None) == (steps is None):
            self._problem("exactly one of messages and steps is needed", "")
        for block, name, needed in (
            (messages, "messages", ("path", "role")),
            (calls, "messages.calls", ("name",)),
            (results, "messages.results", ("content",)),
        ):
            for key in needed if block is not None else ():
                if key not in (block or {}):
                    self._problem(f"{key} is missing", name)
        if steps is not None and not {"action", "say"} & steps.keys():
            self._problem("action or say is missing: what was decided", "steps")
        if steps is not None and "id" not in episode:
            self._problem("episode.id is missing: it tells which steps belong together", "episode")
        places = [(messages, "messages"), (calls, "messages.calls"), (results, "messages.results")]
        for block, name in places:
            if block and "path" in block and not block["path"].paths:
                self._problem("a path is needed, such as $.name", f"{name}.path")
        if steps is not None and "id" in episode and not episode["id"].paths:
            self._problem("a path is needed, such as $.run", "episode.id")
        self._check_values(messages, "messages.role", "role", ROLES)
        self._check_values(steps, "steps.observation_role", "observation_role", ROLES[:3])
        self._check_values(episode, "episode.ending", "ending", ("terminal", "truncated"))

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
            if key in valid and key not in ("calls", "results")
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
