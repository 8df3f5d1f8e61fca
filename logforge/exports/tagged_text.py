"""An episode as one text with tags, and the text read back: what was said, thought, done and answered, with credit at each step.

    <user>cancel my order</user>
    <thought>which one?</thought>
    <key credit="0.42" spread="0.05" support="3" by="credit" step="0" action="find_order">{"user": 7}</key>
    <result step="0" action="find_order" status="ok">order 12</result>
    <step credit="unknown" support="0" step="1" action="respond">Order 12 is cancelled.</step>

A part is a line (which texts may break). In texts `&` and `<` are written `&amp;` and `&lt;`, so nothing that a log says can open
or close a tag. `parse(render(parts)) == parts`, and what `parse` takes, `render` gives back byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Final, Literal

import msgspec

from logforge.schemas import InputError

Role = Literal["system", "user", "assistant", "tool"]
Kind = Literal["said", "thought", "step", "result"]
Key = Literal["", "credit", "human", "credit human"]

UNKNOWN: Final = "unknown"
_TAGS: Final[Mapping[tuple[Role, Kind], str]] = {
    ("system", "said"): "system",
    ("user", "said"): "user",
    ("assistant", "said"): "assistant",
    ("assistant", "thought"): "thought",
    ("assistant", "step"): "step",
    ("tool", "result"): "result",
}
_KEY: Final = "key"
_PARTS = {tag: names for names, tag in _TAGS.items()} | {_KEY: ("assistant", "step")}
_ELEMENT = re.compile(rf'<({"|".join(_PARTS)})((?: [a-z]+="[^"<>\n\r]*")*)>([^<]*)</\1>\n')
_ATTRIBUTE = re.compile(r' ([a-z]+)="([^"]*)"')
_TEXT = (("&", "&amp;"), ("<", "&lt;"))
_NAME = (*_TEXT, (">", "&gt;"), ('"', "&quot;"), ("\n", "&#10;"), ("\r", "&#13;"))


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One part of an episode, in its order: `said` by a role, a `thought`, a `step` (a decision: a call with its arguments, or an
    answer) or its `result`.

    `step` counts decisions from 0; `action`, and a result's `status`, are those of the table `steps`. Of steps: `credit` (null:
    unknown), its `spread` over the members of the fit of values (null: the method has none), `support` (in how many of the nearest
    train decisions the action was taken; null: nobody counted) and `key`, who calls it a key step: the rule on credit, people, both, or
    nobody.
    """

    role: Role
    kind: Kind
    text: str
    step: int | None = None
    action: str | None = None
    status: str | None = None
    credit: float | None = None
    spread: float | None = None
    support: int | None = None
    key: Key = ""

    def __post_init__(self) -> None:
        if (self.role, self.kind) not in _TAGS:
            raise ValueError(f"{self.role} has no part of kind {self.kind}")
        told = (self.credit, self.spread, self.support)
        if self.kind != "step" and (self.key or any(one is not None for one in told)):
            raise ValueError(f"only a step has credit, spread, support or key, no {self.kind}")
        for name in ("credit", "spread"):
            amount = getattr(self, name)
            if amount is not None and not isfinite(amount):
                raise ValueError(f"{name} {amount} is no number: unknown {name} is None")
        if self.spread is not None and (self.credit is None or self.spread < 0):
            raise ValueError(
                f"spread {self.spread} of credit {self.credit}: only known credit has one, and at least 0"
            )


def render(parts: Iterable[Part]) -> str:
    """The text: a part each line, in order."""
    return "".join(_element(part) for part in parts)


def parse(text: str) -> tuple[Part, ...]:
    """The parts of a text that `render` wrote. Raises InputError for any other text, with the character where it goes wrong."""
    found, place = [], 0
    while place < len(text):
        match = _ELEMENT.match(text, place)
        part = _part(*match.groups()) if match else None
        if match is None or part is None or _element(part) != match.group():
            what = f"no part of a tagged text begins at character {place}: {text[place : place + 40]!r}"
            raise InputError("text", what, remedy="give a row's `text` as the export wrote it")
        found.append(part)
        place = match.end()
    return tuple(found)


def _element(part: Part) -> str:
    tag = _KEY if part.key else _TAGS[part.role, part.kind]
    named = "".join(f' {name}="{_written(value, _NAME)}"' for name, value in _attributes(part).items())
    return f"<{tag}{named}>{_written(part.text, _TEXT)}</{tag}>\n"


def _attributes(part: Part) -> dict[str, str]:
    """In the order in which they are written; what a part does not have is left out."""
    found: dict[str, str] = {}
    if part.kind == "step":
        found["credit"] = UNKNOWN if part.credit is None else repr(part.credit)
        if part.spread is not None:
            found["spread"] = repr(part.spread)
        if part.support is not None:
            found["support"] = str(part.support)
        if part.key:
            found["by"] = part.key
    found |= {} if part.step is None else {"step": str(part.step)}
    told = {"action": part.action, "status": part.status}
    return found | {name: value for name, value in told.items() if value is not None}


def _part(tag: str, attributes: str, text: str) -> Part | None:
    """The part, or None where an attribute is none of its own or no value."""
    told = {name: _read(value, _NAME) for name, value in _ATTRIBUTE.findall(attributes)}
    role, kind = _PARTS[tag]
    credit = told.get("credit", UNKNOWN)
    fields = {
        "role": role,
        "kind": kind,
        "text": _read(text, _TEXT),
        "step": told.get("step"),
        "action": told.get("action"),
        "status": told.get("status"),
        "credit": None if credit == UNKNOWN else credit,
        "spread": told.get("spread"),
        "support": told.get("support"),
        "key": told.get("by", ""),
    }
    try:
        return msgspec.convert(fields, Part, strict=False)
    except msgspec.ValidationError:
        return None


def _written(text: str, marks: tuple[tuple[str, str], ...]) -> str:
    for mark, written in marks:
        text = text.replace(mark, written)
    return text


def _read(text: str, marks: tuple[tuple[str, str], ...]) -> str:
    for mark, written in reversed(marks):
        text = text.replace(written, mark)
    return text
