"""Conversations that are trees: a message that was edited or answered again begins another branch.

One path is the conversation as its user left it; every other leaf ends a branch that was left.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from logforge.connectors.episodes import bad_part, content_id, episode_id, is_uuid
from logforge.schemas import Episode, Reading, Reject, Skip


class Branch(NamedTuple):
    """A path from the root to a leaf. `own` is where it leaves the path that the conversation goes on with.

    `fork` is the last node of it that has an older sibling: it tells the branch, however many others come later and whichever
    the conversation goes on with. None: the path takes the first way everywhere.
    """

    path: tuple[str, ...]
    own: int = 0
    fork: str | None = None


def branches(parents: Mapping[str, str | None], current: str | None) -> list[Branch]:
    """The path to `current` first, then one branch for each other leaf, in the order of the nodes, which is that of their age.

    Nodes that lead back to themselves end a branch too, so that every node is in one.
    """
    inner = {parent for parent in parents.values() if parent is not None}
    leaves = [node for node in parents if node not in inner and node != current]
    heads = leaves if current is None else [current, *leaves]
    first: dict[str | None, str] = {}
    for node, parent in parents.items():
        first.setdefault(parent, node)
    found: list[Branch] = []
    seen: set[str] = set()
    for head in [*heads, *parents]:
        if head in seen:
            continue
        path = _path(parents, head)
        main = found[0].path if found else ()
        own = _leaves(path, main) if found else 0
        goes_on = found and own == len(main) < len(
            path
        )  # the conversation ends above, at a node that was gone back to
        later = [
            at for at, node in enumerate(path) if first.get(parents[node]) != node or (goes_on and at == own)
        ]
        seen.update(path)
        found.append(Branch(path, own, path[later[-1]] if later else None))
    return found


def branch_id(format: str, native: str | None, row: Any, branch: Branch) -> str:
    """The episode of a branch: that of the conversation's id, where that is a UUID, else of all of it."""
    fork = [] if branch.fork is None else [branch.fork]
    return episode_id(format, native, *fork) if is_uuid(native) else content_id(format, [row, *fork])


def branch_name(native: str | None, branch: Branch) -> str | None:
    """The conversation's own id, and where the branch left the first way."""
    return native if branch.fork is None else f"{native or ''}/{branch.fork}"


def _leaves(path: tuple[str, ...], main: tuple[str, ...]) -> int:
    """Where a path leaves another."""
    pairs = enumerate(zip(path, main, strict=False))
    return next((at for at, (mine, theirs) in pairs if mine != theirs), min(len(path), len(main)))


def _path(parents: Mapping[str, str | None], head: str) -> tuple[str, ...]:
    path: dict[str, None] = {}
    at: str | None = head
    while at is not None and at in parents and at not in path:
        path[at] = None
        at = parents[at]
    return tuple(reversed(path))


class TreeNode(Protocol):
    """A message of a tree, and where it stands."""

    @property
    def message(self) -> dict[str, Any] | None:
        """The message; None or empty for a node that says nothing."""
        ...

    @property
    def where(self) -> str:
        """Its locator."""
        ...


N = TypeVar("N", bound=TreeNode)


def left_branches(
    found: Sequence[Branch],
    nodes: Mapping[str, N],
    decides: Callable[[N], bool],
    read: Callable[[Branch], Iterator[Reading]],
) -> Generator[Reading, None, list[Reject]]:
    """The readings of all branches but the first in which the agent decided something. Returns a part for each other one."""
    others: list[Reject] = []
    for branch in found[1:]:
        left = [nodes[key] for key in branch.path[branch.own :]]
        if any(decides(node) for node in left):
            yield from beside(read(branch))
        elif told := [node for node in left if node.message]:
            reason = "left branch without a decision"
            others.append(bad_part(told[0].where, reason, "other_branch", told[0].message))
    return others


def beside(readings: Iterator[Reading]) -> Iterator[Reading]:
    """The readings of a branch that was left: its record is counted with the conversation, so what is set aside of it is a part."""
    for reading in readings:
        if isinstance(reading, Episode):
            yield msgspec.structs.replace(reading, records=0)
        elif isinstance(reading, Reject):
            yield msgspec.structs.replace(reading, level="part")
        elif not isinstance(reading, Skip):
            yield reading
