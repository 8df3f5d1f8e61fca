"""The base of reports: data from the fields in their order, text from the lines, and every printed class derives from it."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
from dataclasses import dataclass, fields, make_dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import logforge
from logforge.core.report import BaseReport, Lines, each, noted, picked, plain, rest, text

# Classes with a `render` of their own that are no report of a command.
NOT_PRINTED = {
    "ToolEnv": "Gymnasium asks for its render",
    "TermView": "a line in an explanation",
    "Moved": "a line in an explanation",
    "LabelView": "a line in an explanation",
    "Contradiction": "a line of the report on outcomes",
}


class Pair(NamedTuple):
    name: str
    share: float | None


class Stored(msgspec.Struct):
    parts: tuple[int, ...]


class Told(NamedTuple):
    calls: int
    named: int

    def as_dict(self) -> dict[str, Any]:
        return each(self, "share")

    @property
    def share(self) -> float:
        return self.named / self.calls


@dataclass(frozen=True)
class Inner(BaseReport):
    name: str
    pairs: tuple[Pair, ...] = ()

    def lines(self) -> Lines:
        yield self.name


@dataclass(frozen=True)
class Outer(BaseReport):
    first = ("event",)
    last = ("left",)
    event: ClassVar[str] = "pass"
    read: int
    kept: int
    inner: Inner | None = None
    notes: tuple[str, ...] = ()

    @property
    def left(self) -> int:
        return self.read - self.kept

    def lines(self) -> Lines:
        yield f"{self.read} read"
        yield f"  {self.left} left out" if self.left else None
        yield from noted(self.notes)


def test_the_data_are_the_fields_between_what_is_told_first_and_last():
    told = Outer(3, 2, Inner("a", (Pair("x", 0.5),)), ("n",)).as_dict()
    assert list(told) == ["event", "read", "kept", "inner", "notes", "left"]
    assert told["inner"] == {"name": "a", "pairs": [{"name": "x", "share": 0.5}]}
    assert (told["event"], told["left"], told["notes"]) == ("pass", 1, ["n"])
    assert Outer(3, 2).as_dict()["inner"] is None


def test_the_text_is_the_lines_less_those_that_are_nothing():
    assert Outer(3, 2, notes=("n", "m")).render() == "3 read\n  1 left out\nnote: n\nnote: m"
    assert Outer(3, 3).render() == "3 read"
    assert text(["a", "", None, "b"]) == "a\n\nb"
    with pytest.raises(NotImplementedError, match="BaseReport"):
        BaseReport().render()


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (Path("a") / "b", "a/b"),
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.arange(3), [0, 1, 2]),
        (Stored((1, 2)), {"parts": [1, 2]}),
        (Told(4, 2), {"calls": 4, "named": 2, "share": 0.5}),
        ({"a": [Pair("x", None)]}, {"a": [{"name": "x", "share": None}]}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_become_plain(value, told):
    found = plain(value)
    assert found == told
    assert type(found) is type(told)


def test_picked_names_fields_and_properties_in_the_order_asked_for():
    assert list(picked(Outer(3, 2), "left", "read").items()) == [("left", 1), ("read", 3)]


@pytest.mark.parametrize(("most", "told"), [(2, "… and 1 more (--json lists all)"), (3, None)])
def test_a_list_that_is_cut_says_how_much_is_left(most, told):
    assert rest(["a", "b", "c"], most) == told


_names = st.lists(st.from_regex(r"[a-z]{3}_", fullmatch=True), min_size=1, max_size=4, unique=True)
_leaf = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.text("ab", min_size=1).map(Path),
    st.integers(-9, 9).map(np.int32),
    st.builds(Pair, st.text(), st.none()),
)


def _nested(values):
    made = st.builds(_report, _names, st.lists(values, min_size=4, max_size=4))
    return st.one_of(made, st.lists(values).map(tuple), st.dictionaries(st.text(), values, max_size=3))


def _report(names, values):
    kind = make_dataclass("Made", names, bases=(BaseReport,), frozen=True)
    return kind(*values[: len(names)])


def _orders_held(report, told):
    if isinstance(report, BaseReport):
        assert list(told) == [field.name for field in fields(report)]
        for name, value in told.items():
            _orders_held(getattr(report, name), value)
    elif isinstance(report, dict):
        assert list(told) == list(report)
        for name, value in told.items():
            _orders_held(report[name], value)
    elif isinstance(report, tuple) and not hasattr(report, "_fields"):
        assert len(told) == len(report)
        for item, value in zip(report, told, strict=True):
            _orders_held(item, value)


@given(
    st.builds(_report, _names, st.lists(st.recursive(_leaf, _nested, max_leaves=12), min_size=4, max_size=4))
)
def test_nested_reports_are_json_with_their_fields_in_order(report):
    told = report.as_dict()
    _orders_held(report, json.loads(json.dumps(told)))


def _classes():
    for module in pkgutil.walk_packages(logforge.__path__, "logforge."):
        if ".templates" in module.name or module.name.endswith("__main__"):
            continue
        for kind in vars(importlib.import_module(module.name)).values():
            if inspect.isclass(kind) and kind.__module__ == module.name:
                yield kind


def test_every_class_that_prints_derives_from_the_base_or_says_why_not():
    printing = [kind for kind in _classes() if callable(getattr(kind, "render", None))]
    reports = {kind for kind in printing if issubclass(kind, BaseReport)} - {BaseReport}
    assert {kind.__name__ for kind in printing if not issubclass(kind, BaseReport)} == set(NOT_PRINTED)
    assert len(reports) > 30
    silent = [kind.__name__ for kind in reports if kind.lines is BaseReport.lines]
    assert not silent, "a report without lines"
    named = [(kind, name) for kind in reports for name in (*kind.first, *kind.last)]
    assert all(hasattr(kind, name) for kind, name in named), "only what is there can be told"
