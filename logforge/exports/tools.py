"""Definitions of the tools, for chat templates. The store holds tools' names; what arguments they take is told by their calls.

A property has the JSON types that the split's calls gave it, and none is said to be required: that cannot be seen in logs.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from logforge.connectors.episodes import bare_name
from logforge.schemas import Episode
from logforge.store import Store

Definition = dict[str, Any]

_CALLS = """
SELECT DISTINCT e.format, t.action, s.arguments
FROM transitions t JOIN steps s USING (episode_id, step) JOIN episodes e USING (episode_id)
WHERE t.dataset = ? AND t.split = ? AND s.kind = 'tool' AND s.arguments_status <> 'invalid'
"""
_FETCHED = 1024
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}


@dataclass(frozen=True)
class Toolbox:
    """What is known of a split's tools: `properties` by action, and the actions seen `by_format`."""

    properties: dict[str, dict[str, set[str]]]
    by_format: dict[str, set[str]]

    def offered(self, episode: Episode, step: int | None = None) -> list[Definition]:
        """What was on offer at a step, or anywhere in the episode; where the log does not say, all that its format's calls
        name."""
        named = self.named(episode, step)
        return named or [
            self._definition(action) for action in sorted(self.by_format.get(episode.format, ()))
        ]

    def named(self, episode: Episode, step: int | None = None) -> list[Definition]:
        """What the log says was on offer at a step, or anywhere in the episode."""
        lists = [
            episode.tools if s.tools is None else s.tools for s in episode.steps if step in (None, s.step)
        ]
        known = [action for named in lists if named is not None for action in named]
        return [self._definition(action) for action in dict.fromkeys(known)]

    def _definition(self, action: str) -> Definition:
        seen = self.properties.get(action, {})
        properties = {name: {"type": _one_or_list(seen[name])} for name in sorted(seen)}
        return {
            "type": "function",
            "function": {
                "name": bare_name(action),
                "description": "",
                "parameters": {"type": "object", "properties": properties},
            },
        }


def toolbox(store: Store, dataset: str, split: str) -> Toolbox:
    """The tools of a split of a dataset, by its logged calls."""
    properties: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    by_format: dict[str, set[str]] = defaultdict(set)
    found = store.con.execute(_CALLS, [dataset, split])
    while rows := found.fetchmany(_FETCHED):
        for form, action, arguments in rows:
            by_format[form].add(action)
            value = json.loads(arguments)
            for name, one in value.items() if isinstance(value, dict) else ():
                properties[action][name].add(_TYPES.get(type(one), "null"))
    return Toolbox(properties, by_format)


def as_text(definitions: list[Definition]) -> str:
    """As the column `tools` has them: JSON text, since their properties have no common shape."""
    return json.dumps(definitions, ensure_ascii=False)


def _one_or_list(types: set[str]) -> str | list[str]:
    named = sorted(types)
    return named[0] if len(named) == 1 else named
