"""The second level of actions: a call's arguments as one of its tool's templates, and as numbers.

A template is what the arguments of many calls have in common: their keys, and those values that are one of a few words
(argument_fit.py says which). The tool stays the action; its template is what a second head may predict.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np

from logforge.schemas import ArgumentTemplate
from logforge.texts import mask_volatile

REST: Final = "*"
"""The template of every call of a tool that has none of its own."""
_LARGEST = float(np.finfo(np.float32).max)


class Arguments(NamedTuple):
    """A call's arguments as the arrays hold them: its template (None: there is no second level, or it is no tool call) and
    its numbers by `tool.argument`, as (key, value) pairs."""

    template: int | None = None
    numbers: tuple[dict[str, Any], ...] = ()


NOTHING: Final = Arguments()


@dataclass(frozen=True)
class ArgumentSpace:
    """The templates, the values that they spell out (`words`, by tool and key, each as JSON text) and the numeric arguments.

    Without templates there is no second level, and nothing is read from any arguments.
    """

    templates: tuple[ArgumentTemplate, ...] = ()
    numbers: tuple[str, ...] = ()
    words: Mapping[str, Mapping[str, frozenset[str]]] = field(default_factory=dict)

    @cached_property
    def _places(self) -> dict[tuple[str, str], int]:
        return {(item.action, item.template): place for place, item in enumerate(self.templates)}

    @cached_property
    def _numbers(self) -> frozenset[str]:
        return frozenset(self.numbers)

    def of(self, action: str, arguments: str) -> Arguments:
        """What the arguments of a call (canonical JSON text) are at the second level."""
        rest = self._places.get((action, REST))
        if rest is None:
            return NOTHING
        found = leaves(arguments)
        if found is None:
            return Arguments(rest)
        text = template(found, self.words.get(action, {}))
        numbers = ((f"{action}.{key}", number(value)) for key, value in found)
        known = {key: value for key, value in numbers if value is not None and key in self._numbers}
        pairs = tuple({"key": key, "value": known[key]} for key in sorted(known))
        return Arguments(self._places.get((action, text), rest), pairs)

    def own(self, action: str) -> frozenset[str]:
        """The templates of an action, REST among them; none for one that it does not know."""
        return frozenset(item.template for item in self.templates if item.action == action)

    def renamed(self, aliases: Mapping[str, str]) -> ArgumentSpace:
        """The same templates, words and numbers in the same places, told by the names of today. Where both names of a tool have
        templates already, those of the old one stay unused; of several old ones the first gives its own."""
        known = list(dict.fromkeys(item.action for item in self.templates))
        moved: dict[str, str] = {}
        for old in known:
            if aliases.get(old, old) not in (*known, *moved.values()):
                moved[old] = aliases[old]
        return ArgumentSpace(
            tuple(
                ArgumentTemplate(moved.get(item.action, item.action), item.template)
                for item in self.templates
            ),
            tuple(_renamed_number(name, known, moved) for name in self.numbers),
            {moved.get(action, action): words for action, words in self.words.items()},
        )

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        words = {
            action: {key: sorted(self.words[action][key]) for key in sorted(self.words[action])}
            for action in sorted(self.words)
        }
        templates = [[item.action, item.template] for item in self.templates]
        return {"templates": templates, "numbers": list(self.numbers), "words": words}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ArgumentSpace:
        """The inverse of `to_dict`."""
        return cls(
            tuple(ArgumentTemplate(*pair) for pair in data["templates"]),
            tuple(data["numbers"]),
            {
                action: {key: frozenset(values) for key, values in keys.items()}
                for action, keys in data["words"].items()
            },
        )


def _renamed_number(name: str, actions: Collection[str], moved: Mapping[str, str]) -> str:
    """`tool.argument` with the tool's new name. Both parts may hold dots: the longest tool is meant."""
    action = max((one for one in actions if name.startswith(f"{one}.")), key=len, default="")
    return moved.get(action, action) + name[len(action) :]


def leaves(arguments: str) -> list[tuple[str, Any]] | None:
    """The values of a JSON object by their keys joined with dots, in the order of the keys; None for what is no object.

    A list is one value.
    """
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    return sorted(_inner("", value), key=lambda pair: pair[0]) if isinstance(value, dict) else None


def _inner(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from _inner(f"{prefix}{key}.", value)
        else:
            yield f"{prefix}{key}", value


def template(found: list[tuple[str, Any]], words: Mapping[str, frozenset[str]]) -> str:
    """The template of these values: those that are words as they are, of others what kind of value they are."""
    shown = (f"{json.dumps(key, ensure_ascii=False)}: {_shown(key, value, words)}" for key, value in found)
    return f"{{{', '.join(shown)}}}"


def _shown(key: str, value: Any, words: Mapping[str, frozenset[str]]) -> str:
    text = word(key, value)
    if text is not None and (not isinstance(value, str) or text in words.get(key, ())):
        return text
    return kind_of(key, value)


def word(key: str, value: Any) -> str | None:
    """The value as JSON text, where it may be one of a few words: true, false and null are, and a short string without
    numbers, dates, ids, addresses or names in it (logforge/texts/placeholders.py)."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if not isinstance(value, str) or len(value) > 64 or "\n" in value:
        return None
    text = json.dumps({key: value}, ensure_ascii=False)
    return json.dumps(value, ensure_ascii=False) if mask_volatile(text) == text else None


def kind_of(key: str, value: Any) -> str:
    """What kind of value it is: `<num>`, `<list>`, `<object>`, the placeholder that a whole string is masked by, or
    `<text>`."""
    if isinstance(value, list | dict):
        return "<list>" if isinstance(value, list) else "<object>"
    if not isinstance(value, str):
        return "<num>"
    masked = mask_volatile(value)
    whole = masked[:1] == "<" and masked[-1:] == ">" and masked.count("<") == 1 and masked != value
    return masked if whole else "<text>"


def number(value: Any) -> float | None:
    """The value, where it is a number that float32 holds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) <= _LARGEST else None
