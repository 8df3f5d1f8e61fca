"""Reads reward specs: YAML with includes and shared expressions, checked as a whole before there is any data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from logforge.connectors.records import read_text
from logforge.core import Expression, first_line, sandbox
from logforge.core import sql as expressions
from logforge.schemas import (
    COLUMNS,
    KNOWN,
    LogforgeError,
    Place,
    Problem,
    RewardSpec,
    SpecError,
    Term,
    faults,
    parse,
    problem_at,
)

MAX_INCLUDES = 5
"""How deep files may include each other."""
MAX_NAME = 1000
"""Characters of an included file's name."""
_SHARED = ("let", "terms", "layers", "detectors")
_TYPES = {
    "when": ("boolean",),
    "value": ("tinyint", "smallint", "integer", "bigint", "hugeint", "float", "double", "decimal"),
}
_SETTINGS = {"completeness": "completeness", "done_so_far": "completeness", "came_back": "came_back"}
"""Columns that need settings, and which."""


def load_spec(path: str | Path) -> RewardSpec:
    """The reward spec in a YAML file. Raises SpecError, listing every problem with its file and line."""
    return parse_spec(read_text(path), str(path))


def parse_spec(text: str, path: str = "<text>") -> RewardSpec:
    """The reward spec in a text; `path` is the file its errors name, and that its includes are relative to."""
    draft = _read(text, path, ())
    data, lets = draft.data, _lets(draft)
    parsed: dict[str, Expression] = {}
    for where, term in _terms(data):
        for word in ("when", "value"):
            _parse_word(draft, term.get(word), f"{where}.{word}", lets, parsed)
    draft.problems += [problem_at(draft.places, what, where) for what, where in faults(data)]
    _fail(draft.problems)
    spec = RewardSpec.model_validate(_canonical(data, parsed)).written_in(draft.places)
    _fail(list(_meaning_problems(spec)))
    _fail(list(_type_problems(spec)))
    return spec


def _fail(problems: list[Problem]) -> None:
    if problems:
        raise SpecError(sorted(problems, key=lambda problem: (problem.path, problem.line or 0)))


@dataclass
class _Draft:
    """A spec's data as written, includes merged in, with the place of every field and what is wrong so far."""

    data: Any
    places: dict[str, Place]
    problems: list[Problem] = field(default_factory=list)


def _read(text: str, path: str, outer: tuple[str, ...]) -> _Draft:
    data, lines = parse(text, path)
    draft = _Draft(data, {name: Place(path, line) for name, line in lines.items()})
    names = data.get("include") if isinstance(data, dict) else None
    for index, name in enumerate(names if isinstance(names, list) else ()):
        if isinstance(name, str):
            _include(draft, name, f"include.{index}", path, (*outer, path))
    return draft


def _include(draft: _Draft, name: str, where: str, path: str, outer: tuple[str, ...]) -> None:
    target = str(Path(path).parent / name)
    if "\0" in name or len(name) > MAX_NAME:
        draft.problems.append(problem_at(draft.places, f"{name[:40]!r} is no file's name", where))
    elif path == "<text>":
        draft.problems.append(problem_at(draft.places, "a text cannot include files: write a file", where))
    elif Path(target).resolve() in {Path(item).resolve() for item in outer} or len(outer) > MAX_INCLUDES:
        draft.problems.append(
            problem_at(draft.places, f"{name} is included in a circle, or too deeply", where)
        )
    elif not _is_file(target):
        draft.problems.append(
            problem_at(draft.places, f"cannot be included: there is no file {target}", where)
        )
    else:
        try:
            _merge(draft, _read(read_text(target), target, outer), where)
        except SpecError as error:
            draft.problems += error.problems
        except LogforgeError as error:
            draft.problems.append(problem_at(draft.places, f"cannot be included: {error}", where))


def _is_file(target: str) -> bool:
    try:
        return Path(target).is_file()
    except OSError:  # a part of the name is longer than the file system takes
        return False


def _merge(draft: _Draft, other: _Draft, where: str) -> None:
    """Add what an included spec says. The including file's gamma counts; any other name may be there once only."""
    draft.problems += other.problems
    if not isinstance(other.data, dict):
        draft.problems.append(problem_at(draft.places, "what is included must be a mapping", where))
        return
    for word in other.data:
        if word == "gamma":
            draft.data.setdefault("gamma", other.data[word])
        elif word in _SHARED and isinstance(other.data[word], dict):
            _merge_word(draft, other, word)
        elif word != "include":
            draft.data.setdefault(word, other.data[word])
    draft.places = {**other.places, **draft.places}


def _merge_word(draft: _Draft, other: _Draft, word: str) -> None:
    ours = draft.data.setdefault(word, {})
    if not isinstance(ours, dict):
        return
    for name in other.data[word]:
        if name in ours:
            there = other.places.get(f"{word}.{name}")
            what = f"is there already, in {there.path}:{there.line}" if there else "is there already"
            draft.problems.append(problem_at(draft.places, what, f"{word}.{name}"))
    draft.data[word] = {**other.data[word], **ours}


def _lets(draft: _Draft) -> tuple[tuple[str, str], ...]:
    """The shared expressions in canonical text. Each may use those before it."""
    found: list[tuple[str, str]] = []
    lets = draft.data.get("let") if isinstance(draft.data, dict) else None
    for name, text in lets.items() if isinstance(lets, dict) else ():
        where = f"let.{name}"
        if name in KNOWN:
            draft.problems.append(problem_at(draft.places, f"{name} is a column's name", where))
        elif isinstance(text, str) and text.strip():
            try:
                found.append((name, expressions.parse(text, tuple(found)).text))
            except SpecError as error:
                draft.problems += [problem_at(draft.places, item.what, where) for item in error.problems]
        elif isinstance(text, bool | int | float):
            found.append((name, str(text).upper() if isinstance(text, bool) else repr(text)))
    return tuple(found)


def _terms(data: object) -> Iterator[tuple[str, dict[str, Any]]]:
    """The terms that are mappings, with their fields, wherever a spec may hold some."""
    if not isinstance(data, dict):
        return
    places = [("terms", data.get("terms"))]
    layers = data.get("layers")
    for name, layer in layers.items() if isinstance(layers, dict) else ():
        if isinstance(layer, dict):
            places.append((f"layers.{name}.terms", layer.get("terms")))
    for where, terms in places:
        for name, term in terms.items() if isinstance(terms, dict) else ():
            if isinstance(term, dict):
                yield f"{where}.{name}", term


def _parse_word(
    draft: _Draft, text: object, where: str, lets: tuple[tuple[str, str], ...], parsed: dict[str, Expression]
) -> None:
    if isinstance(text, str) and text.strip():
        try:
            parsed[where] = expressions.parse(text, lets)
            number = parsed[where].number
            if number is not None and not abs(number) < 1e300:
                draft.problems.append(problem_at(draft.places, "must be a finite number", where))
        except SpecError as error:
            draft.problems += [problem_at(draft.places, item.what, where) for item in error.problems]


def _canonical(data: Mapping[str, Any], parsed: Mapping[str, Expression]) -> dict[str, Any]:
    """The data with every expression in its one spelling; includes and shared expressions are in their places already."""
    for where, term in _terms(data):
        for word in ("when", "value"):
            expression = parsed.get(f"{where}.{word}")
            if expression is not None:
                is_number = word == "value" and expression.number is not None
                term[word] = expression.number if is_number else expression.text
    return {word: content for word, content in data.items() if word not in ("include", "let")}


def _meaning_problems(spec: RewardSpec) -> Iterator[Problem]:
    """What the words and expressions cannot mean together."""
    for name, term, _ in spec.entries():
        for word, columns in _columns(term).items():
            for column in columns:
                what = _meaning_problem(spec, term, column)
                if what:
                    yield spec.problem(what, f"{spec.field_of(name)}.{word}")
        if term.scorer is not None:
            from logforge.rewards.scorers import check_call

            what = check_call(term.scorer, term.at)
            if what:
                yield spec.problem(what, f"{spec.field_of(name)}.scorer")


def _columns(term: Term) -> dict[str, tuple[str, ...]]:
    texts = {"when": term.when, "value": term.value}
    return {word: expressions.parse(text).columns for word, text in texts.items() if isinstance(text, str)}


def _meaning_problem(spec: RewardSpec, term: Term, column: str) -> str | None:
    settings = _SETTINGS.get(column)
    if settings and getattr(spec.detectors, settings) is None:
        return f"{column} needs `detectors: {{{settings}: …}}`"
    if term.potential and KNOWN[column] != "before":
        valid = ", ".join(name for name, known in KNOWN.items() if known == "before")
        return f"a potential is a function of the state, and {column} is known only later. valid: {valid}"
    return None


def _type_problems(spec: RewardSpec) -> Iterator[Problem]:
    """Run each expression on a row of nulls, so that a wrong type or pattern is found before there is any data."""
    row = ", ".join(f"CAST(NULL AS {column.type}) AS {column.name}" for column in COLUMNS)
    with sandbox() as con:
        con.execute(f"CREATE TABLE inputs AS SELECT {row}")
        for name, term, _ in spec.entries():
            for word, text in (("when", term.when), ("value", term.value)):
                what = _type_problem(con, expressions.parse(text), word) if isinstance(text, str) else None
                if what:
                    yield spec.problem(what, f"{spec.field_of(name)}.{word}")


def _type_problem(con: duckdb.DuckDBPyConnection, expression: Expression, word: str) -> str | None:
    try:
        relation = con.sql(f"SELECT {expression.sql} FROM inputs")
        relation.fetchall()
    except duckdb.Error as error:
        return first_line(error)
    kind = relation.types[0].id
    wanted = "a truth value" if word == "when" else "a number"
    return None if kind in _TYPES[word] else f"gives {kind.upper()}, must give {wanted}"
