"""Which actions there are, and which of them an episode's agent could take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from logforge.dataset.actions.arguments import ArgumentSpace
from logforge.schemas import CLARIFY, INVALID, RESPOND, Episode, SideNames, UnknownName, Vocabulary

MaskKind = Literal["logged", "inferred"]
ALWAYS = frozenset({RESPOND, CLARIFY})
"""What every agent can do, whatever tools it is offered."""


SeenRow = tuple[str, Iterable[str] | None, Iterable[tuple[str, str, bool]]]
"""What an episode adds to an action space (see `seen_in`)."""


def seen_in(episode: Episode) -> SeenRow:
    """What an episode adds to an action space: its format, every tool it was ever offered, and what was done."""
    lists = [tools for tools in episode.offered if tools is not None]
    tools = list(dict.fromkeys(name for names in lists for name in names)) if lists else None
    return episode.format, tools, [(step.action, step.kind, step.action_valid) for step in episode.steps]


def _tools_of(rows: Iterable[SeenRow]) -> dict[str, set[str]]:
    """The tools of each format that were offered, or called and not marked invalid."""
    seen: dict[str, set[str]] = {}
    for format_name, offered, steps in rows:
        tools = seen.setdefault(format_name, set())
        tools.update(offered or ())
        tools.update(action for action, kind, valid in steps if kind == "tool" and valid)
    return seen


class Mask(NamedTuple):
    """Which actions were on offer, in vocabulary order, and how that is known."""

    allowed: npt.NDArray[np.bool_]
    kind: MaskKind


@dataclass(frozen=True)
class ActionSpace:
    """The vocabulary of actions and the tools seen in each log format."""

    vocabulary: Vocabulary
    tools_by_format: Mapping[str, frozenset[str]]
    arguments: ArgumentSpace = field(default_factory=ArgumentSpace)
    policies: tuple[str, ...] = ()

    @property
    def side_names(self) -> SideNames:
        """What the arrays beside the actions number."""
        return SideNames(self.arguments.templates, self.arguments.numbers, self.policies)

    @classmethod
    def build(
        cls,
        rows: Iterable[SeenRow],
        earlier: Vocabulary | None = None,
        train: Iterable[SeenRow] | None = None,
        aliases: Mapping[str, str] | None = None,
        others: Callable[[set[str]], Mapping[str, int]] | None = None,
    ) -> ActionSpace:
        """From one (format, tools offered or None, [(action, kind, action_valid)]) per episode (see `seen_in`).

        A tool counts when it was offered, or called and not marked invalid: a hallucinated tool adds nothing.
        With `earlier`, its ids stay and new tools follow. Masks are inferred from the rows of `train` alone, where it
        holds any of the format: what the test episodes used is not for their masks to tell. `aliases` are earlier names that
        the rows hold no more, and `others` says which of the tools seen are too rare for an id (see Vocabulary).
        """
        seen = _tools_of(rows)
        every = set().union(*seen.values())
        shown = seen if train is None else seen | _tools_of(train)
        by_format = {name: frozenset(shown[name] - {INVALID}) for name in sorted(seen)}
        rare = others(every) if others else None
        return cls(Vocabulary.build(every, earlier, aliases, rare), by_format)

    def offered(self, episode: Episode, now: list[str] | None = None) -> list[tuple[str, ...]]:
        """The names of the actions the episode's agent could take at each decision and after the last one, each sorted; rare
        tools among them as `<other>`.

        After the last one these are the tools `now`, which serving knows; without it, those of the last decision. An offered tool outside the vocabulary is left out: it has no id that a policy could choose.
        """
        lists = episode.offered if now is None else [*episode.offered[:-1], now]
        return [names for names, _ in self._choices(episode.format, lists)]

    def masks(self, episode: Episode) -> list[Mask]:
        """What `offered` names, as masks: `logged` when the log lists the tools offered then, else `inferred`: every tool
        of the episode's format, as far as the rows that `build` infers from show it."""
        rows: dict[tuple[str, ...], npt.NDArray[np.bool_]] = {}
        found = []
        for names, kind in self._choices(episode.format, episode.offered):
            if names not in rows:
                rows[names] = self.row(names)
            found.append(Mask(rows[names], kind))
        return found

    def _choices(
        self, format_name: str, lists: list[list[str] | None]
    ) -> list[tuple[tuple[str, ...], MaskKind]]:
        known: dict[int, tuple[tuple[str, ...], MaskKind]] = {}
        for tools in lists:
            if id(tools) not in known:
                kind: MaskKind = "inferred" if tools is None else "logged"
                known[id(tools)] = self.names(format_name, tools), kind
        return [known[id(tools)] for tools in lists]

    def names(self, format_name: str, tools: list[str] | None) -> tuple[str, ...]:
        """The actions on offer with these tools, sorted; without a list of them, those of every tool of the format."""
        names = ALWAYS.union(self._inferred(format_name) if tools is None else tools) - {INVALID}
        known = self.vocabulary
        return tuple(sorted({known.name(name) for name in names if name in known}))

    def row(self, names: Iterable[str]) -> npt.NDArray[np.bool_]:
        """Names of actions as booleans in vocabulary order, without what no policy can act by."""
        row = np.zeros(self.vocabulary.size, np.bool_)
        row[[self.vocabulary.id(name) for name in names]] = True
        row[self.vocabulary.unplayable] = False
        return row

    def _inferred(self, format_name: str) -> frozenset[str]:
        if format_name not in self.tools_by_format:
            raise UnknownName("format of the action space", format_name, list(self.tools_by_format))
        return self.tools_by_format[format_name]

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        tools = {name: sorted(self.tools_by_format[name]) for name in sorted(self.tools_by_format)}
        return {
            "actions": list(self.vocabulary.actions),
            "aliases": dict(sorted(self.vocabulary.aliases.items())),
            "others": dict(sorted(self.vocabulary.others.items())),
            "tools_by_format": tools,
            "arguments": self.arguments.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ActionSpace:
        """The inverse of `to_dict`."""
        tools = {name: frozenset(names) for name, names in data["tools_by_format"].items()}
        vocabulary = Vocabulary(tuple(data["actions"]), data["aliases"], data["others"])
        return cls(vocabulary, tools, ArgumentSpace.from_dict(data["arguments"]))
