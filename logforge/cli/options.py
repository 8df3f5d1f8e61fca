"""What the commands share: options made from the fields of settings, common options, and how a report is shown.

Loads click and nothing heavy.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import Field, fields, is_dataclass
from types import EllipsisType
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from logforge.core import KEY, BaseReport, Option, printable

F = TypeVar("F", bound=Callable[..., Any])

STORE = click.option(
    "--store",
    default="logforge.duckdb",
    show_default=True,
    envvar="LOGFORGE_STORE",
    help="The store: one DuckDB file.",
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
WAIT = click.option(
    "--wait",
    default=0.0,
    show_default=True,
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="While another process has the store open, try again for so long.",
)
_TYPES: dict[str, type] = {"str": str, "int": int, "float": float}


def options(struct: type, *names: str | EllipsisType) -> Callable[[F], F]:
    """Add an option for each field of settings that has one, in their order; or for the named ones, `...` for all between two."""
    known = {field.name: field for field in fields(struct)}
    chosen = [known[name] for name in _spelt_out(names, list(known))] if names else list(known.values())

    def added(command: F) -> F:
        for field in reversed(chosen):
            if (inner := _inner(field)) is not None:
                command = options(inner)(command)
            elif KEY in field.metadata:
                command = _option(field)(command)
        return command

    return added


def taken(struct: type, given: dict[str, Any]) -> dict[str, Any]:
    """Take the fields of settings out of a command's parsed options, each as the field holds it."""
    values: dict[str, Any] = {}
    for field in fields(struct):
        if (inner := _inner(field)) is not None:
            values[field.name] = inner(**taken(inner, given))
        elif field.name in given:
            values[field.name] = _read(field, given.pop(field.name))
    return values


def stated(values: dict[str, Any]) -> dict[str, Any]:
    """Those that have a value."""
    return {name: value for name, value in values.items() if value is not None}


def is_set(name: str) -> bool:
    """Whether an option of the running command was set by the user or a config file."""
    return click.get_current_context().get_parameter_source(name) is not ParameterSource.DEFAULT


def is_given(name: str) -> bool:
    """Whether an option was set for this run alone: what a config file sets is for the runs that it fits."""
    source = click.get_current_context().get_parameter_source(name)
    return source not in (ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP)


def flag(struct: type, name: str) -> str:
    """The option of a field, as a user writes it."""
    known = {field.name: field for field in fields(struct)}
    return _flags(known[name], known[name].metadata[KEY])[0]


def _spelt_out(names: Sequence[str | EllipsisType], known: list[str]) -> Iterator[str]:
    for place, name in enumerate(names):
        if isinstance(name, str):
            yield name
        else:
            before, after = (known.index(str(names[place + step])) for step in (-1, 1))
            yield from known[before + 1 : after]


def _inner(field: Field[Any]) -> type | None:
    """The settings that a field holds; they are options of the same command."""
    made: Any = field.default_factory
    return made if isinstance(made, type) and is_dataclass(made) else None


def _option(field: Field[Any]) -> Callable[[F], F]:
    told: Option = field.metadata[KEY]
    default = field.default if told.given is None else told.given
    several, is_flag = isinstance(default, tuple), field.type == "bool"
    more: dict[str, Any] = {"type": _type(field, told)} if not is_flag else {"is_flag": True}
    if default is not None and default != ():
        more["default"] = default
        more["show_default"] = told.shown and (told.switch or not is_flag) and default != ""
    return click.option(
        *_flags(field, told), field.name, multiple=several, metavar=told.metavar, help=told.help, **more
    )


def _flags(field: Field[Any], told: Option) -> tuple[str, ...]:
    name = field.name.replace("_", "-")
    return told.flags or ((f"--{name}/--no-{name}",) if told.switch else (f"--{name}",))


def _type(field: Field[Any], told: Option) -> Any:
    if told.choices:
        return click.Choice(told.choices)
    if told.path:
        return click.Path(file_okay=told.path != "folder")
    name = str(field.type).removeprefix("tuple[").partition(",")[0].partition(" |")[0]
    kind = str if told.read is not None else _TYPES[name]
    if told.least is None and told.most is None:
        return kind
    bounds: dict[str, Any] = {"min_open": told.above, "max_open": told.below}
    whole = kind is int
    return (click.IntRange if whole else click.FloatRange)(told.least, told.most, **bounds)  # type: ignore[arg-type]


def _read(field: Field[Any], written: Any) -> Any:
    told: Option = field.metadata[KEY]
    if told.read is None:
        return written
    try:
        return told.read(written)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=_flags(field, told)[0]) from None


def show(report: BaseReport, as_json: bool) -> None:
    """Print a report to stdout: one JSON document, or text that is safe for a terminal."""
    text = json.dumps(report.as_dict(), default=str, ensure_ascii=False) if as_json else report.render()
    click.echo(printable(text))


def say(text: str) -> None:
    """A word to the user, on stderr."""
    click.echo(printable(text), err=True)
