"""YAML that people write, with the line of every field: plain values only, every trap of the format refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml

from logforge.schemas.errors import Problem, SpecError

MAX_BYTES = 1_000_000
"""No hand-written file is longer."""
MAX_DEPTH = 20

_TAGS = ("null", "bool", "int", "float", "str")
_COLLECTIONS = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")


class Marked(NamedTuple):
    """A document's value and the line of each field (`terms.success.value`; the document itself is "")."""

    value: Any
    lines: dict[str, int]


def parse(text: str, path: str) -> Marked:
    """The one document of a text. Raises SpecError, listing every problem found in it."""
    node = _compose(text, path)
    if node is None:
        raise _error(path, "empty: nothing but blanks and comments", 1)
    walk = _Walk(path)
    value = walk.value(node, "")
    if walk.problems:
        raise SpecError(walk.problems)
    return Marked(value, walk.lines)


def _error(path: str, what: str, line: int | None = None) -> SpecError:
    return SpecError([Problem(what, path, line)])


def _compose(text: str, path: str) -> yaml.Node | None:
    try:
        problems = list(_traps(text, path))
        if problems:
            raise SpecError(problems)
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = " ".join(part for part in (error.context, error.problem) if part)
        raise _error(path, f"not valid YAML: {what}", mark.line + 1 if mark else None) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise _error(path, f"not valid YAML: character {error.character!r} is not allowed", line) from None


def _traps(text: str, path: str) -> Iterator[Problem]:
    """Aliases can make a short file endless and no spec needs one; deep nesting would exhaust the composer."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        line = event.start_mark.line + 1 if event.start_mark else None
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            yield Problem("nested too deeply", path, line)
            return
        if isinstance(event, yaml.AliasEvent):
            yield Problem(f"alias *{event.anchor} is not accepted: write the value out", path, line)


class _Walk:
    def __init__(self, path: str) -> None:
        self.path = path
        self.problems: list[Problem] = []
        self.lines: dict[str, int] = {}
        self._constructor = yaml.SafeLoader("")

    def value(self, node: yaml.Node, field: str) -> Any:
        self.lines.setdefault(field, node.start_mark.line + 1)
        if isinstance(node, yaml.CollectionNode) and node.tag not in _COLLECTIONS:
            return self._refused(node, field)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, field)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, _inside(field, str(index))) for index, item in enumerate(node.value)]
        return self._scalar(node, field)

    def _mapping(self, node: yaml.MappingNode, field: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self._problem("a key must be text", line, field)
                continue
            # `on:` and `1:` are keys as written, not the truth value and the number YAML makes of them
            key = key_node.value
            inner = _inside(field, key)
            if key in found:
                self._problem(f"key {key!r} is there twice, first on line {self.lines[inner]}", line, inner)
                continue
            self.lines[inner] = line
            found[key] = self.value(value_node, inner)
        return found

    def _scalar(self, node: yaml.Node, field: str) -> Any:
        tag = node.tag.removeprefix("tag:yaml.org,2002:")
        if tag == "timestamp":
            return node.value
        if tag not in _TAGS:
            return self._refused(node, field)
        try:
            return self._constructor.construct_object(node)
        except (ValueError, yaml.YAMLError):
            self._problem(f"{node.value[:40]!r} is no valid {tag}", node.start_mark.line + 1, field)
            return None

    def _refused(self, node: yaml.Node, field: str) -> None:
        what = f"tag {node.tag} is not accepted: only text, numbers, true and false"
        self._problem(what, node.start_mark.line + 1, field)

    def _problem(self, what: str, line: int, field: str) -> None:
        self.problems.append(Problem(what, self.path, line, field))


def _inside(field: str, key: str) -> str:
    return f"{field}.{key}" if field else key
