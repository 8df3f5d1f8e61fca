"""A chat session of VS Code as it stands at the end of its file: one document, or a journal of what changed in one.

A line of a journal is `{kind: 0, v}` (the whole), `{kind: 1, k, v}` (set what is at the path k), `{kind: 2, k, v, i}` (cut the
list at k to i elements, then add those of v) or `{kind: 3, k}` (remove what is at k).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from logforge.connectors.records import at

Key = str | int


@dataclass
class _Place:
    """Where a value was written last; `inside` has the values in it that were written later."""

    where: str | None = None
    inside: dict[Key, _Place] = field(default_factory=dict)


@dataclass
class State:
    """A session, and where each piece of it stands in the file."""

    value: dict[str, Any]
    locator: str
    records: int = 1
    cut: bool = False
    """A line of the file is damaged."""
    ended: bool = False
    """A change did not fit, for what it builds on is lost: none is taken any more."""
    _root: _Place = field(default_factory=_Place)

    def start(self, pointer: str) -> State:
        """The same, when the value stands at a pointer of the locator."""
        self._root = _Place(at(self.locator, pointer))
        return self

    def where(self, *path: Key) -> str:
        """The locator of what is at a path."""
        place, found, rest = self._root, self._root.where or self.locator, list(path)
        for index, key in enumerate(path):
            if (inner := place.inside.get(key)) is None:
                break
            place = inner
            if inner.where is not None:
                found, rest = inner.where, list(path[index + 1 :])
        return found + "".join(f"/{_escape(key)}" for key in rest)

    def apply(self, entry: dict[str, Any], locator: str) -> bool:
        """Take in a line of a journal. False: it does not fit."""
        kind, path = entry.get("kind"), entry.get("k")
        if not isinstance(path, list) or not path or not all(isinstance(key, str | int) for key in path):
            return False
        holder = _reach(self.value, path[:-1])
        key = path[-1]
        if not _fits(holder, key):
            return False
        if kind == 2:
            return self._push(holder, path, entry, locator)
        if kind == 1:
            _put(holder, key, entry.get("v"))
            self._note(path, at(locator, "/v"))
            return True
        if kind == 3:
            holder.pop(key, None) if isinstance(holder, dict) else _put(holder, key, None)
            self._note(path, locator)
            return True
        return False

    def _push(self, holder: Any, path: list[Key], entry: dict[str, Any], locator: str) -> bool:
        """Cut a list and add to it."""
        key, added, size = path[-1], entry.get("v", []), entry.get("i")
        held = _reach(holder, [key])
        if not isinstance(held, list):
            if held is not None:
                return False
            held = []
        size = len(held) if size is None else size
        if not isinstance(added, list) or not isinstance(size, int) or not 0 <= size <= len(held):
            return False
        place = self._place(path)
        for index in [index for index in place.inside if isinstance(index, int) and index >= size]:
            del place.inside[index]
        _put(holder, key, held)
        del held[size:]
        for index, value in enumerate(added):
            place.inside[size + index] = _Place(at(locator, f"/v/{index}"))
            held.append(value)
        return True

    def _place(self, path: list[Key]) -> _Place:
        place = self._root
        for key in path:
            place = place.inside.setdefault(key, _Place())
        return place

    def _note(self, path: list[Key], where: str) -> None:
        self._place(path[:-1]).inside[path[-1]] = _Place(where)


def _reach(value: Any, path: list[Key]) -> Any:
    for key in path:
        if isinstance(value, dict) and isinstance(key, str):
            value = value.get(key)
        elif isinstance(value, list) and isinstance(key, int) and 0 <= key < len(value):
            value = value[key]
        else:
            return None
    return value


def _fits(holder: Any, key: Key) -> bool:
    if isinstance(holder, dict):
        return isinstance(key, str)
    return (
        isinstance(holder, list)
        and isinstance(key, int)
        and not isinstance(key, bool)
        and 0 <= key <= len(holder)
    )


def _put(holder: Any, key: Any, value: Any) -> None:
    if isinstance(holder, list) and key == len(holder):
        holder.append(value)
    else:
        holder[key] = value


def _escape(key: Key) -> str:
    return str(key).replace("~", "~0").replace("/", "~1")
