"""Secrets out of a text, a placeholder that says what was there in.

A text is judged alone, so that the same text is always redacted alike; and again until nothing is found, so that a
redacted text stays as it is. JSON text is judged by its decoded strings and stays JSON. What is allowed stays, and is counted.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, NamedTuple

from logforge.connectors.records import NotJson, canonical, loads
from logforge.ingestion.hygiene.personal_data import personal_findings
from logforge.ingestion.hygiene.secrets import (
    Finding,
    contextual,
    engine_version,
    kind_of_name,
    lower,
    named_secret,
    shaped,
    vendor_findings,
)
from logforge.ingestion.hygiene.secrets import rules as secret_rules
from logforge.ingestion.hygiene.secrets import shapes as secret_shapes

HINTS = tuple(sorted({*secret_rules.HINTS, *secret_shapes.HINTS}))
"""Every text with a secret holds one of these, or kingfisher sees it: the cheap test that comes first."""
RULES_VERSION = 2
"""Of the own rules; sources that were read with another version are read again."""
ALLOWED = "allowed"
"""The rule of a secret that stays because it is on the list of what is allowed."""

_ROUNDS = 4
_DEPTH = 3
_PLACEHOLDER = re.compile(r"<[A-Z][A-Z0-9_]*>")
_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{4}|[\"'\\/nrtbf])")
_PLAIN = {"n": "\n", "r": "\r", "t": "\t", "b": " ", "f": " "}


@dataclass(frozen=True)
class Redaction:
    """What is taken out: secrets, and the kinds of personal data that `personal` names (see `personal_data`). What `allowed`
    lists stays: values, globs over them (`AKIA*EXAMPLE`) or their SHA-256 in hex."""

    secrets: bool = True
    personal: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.secrets or bool(self.personal)

    def allows(self, value: str) -> bool:
        """Whether a value stays."""
        if not self.allowed:
            return False
        digest = hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()
        return any(fnmatchcase(value, entry) or digest == entry.lower() for entry in self.allowed)


SECRETS_ONLY = Redaction()
"""What ingest does when it is told nothing."""


class Secret(NamedTuple):
    """A secret that a text held. It lives in memory alone: what is stored is its keyed hash."""

    value: str
    kind: str
    rule: str

    @property
    def placeholder(self) -> str:
        """What stands in its place."""
        return f"<{self.kind}>"


class Redacted(NamedTuple):
    """A text without secrets, and those that it held, one for each place; `allowed` are those that it still holds."""

    text: str
    secrets: tuple[Secret, ...] = ()
    allowed: tuple[Secret, ...] = ()


def rules_version() -> str:
    """The rules' version, for `sources.settings`."""
    return f"{RULES_VERSION}/{engine_version()}"


def redact(text: str, how: Redaction = SECRETS_ONLY) -> Redacted:
    """A text without its secrets."""
    secrets: list[Secret] = []
    allowed: list[Secret] = []
    for _ in range(_ROUNDS):
        spans, allowed = _sorted_out(text, _spans(text, how), how)
        if not spans:
            break
        secrets += (Secret(text[span.start : span.end], span.kind, span.rule) for span in spans)
        text = _replaced(text, spans)
    return Redacted(text, tuple(secrets), tuple(allowed))


def _sorted_out(text: str, spans: list[Finding], how: Redaction) -> tuple[list[Finding], list[Secret]]:
    """What is to be replaced, and what of it stays because it is allowed."""
    if not how.allowed:
        return spans, []
    stays = [span for span in spans if how.allows(text[span.start : span.end])]
    allowed = [Secret(text[span.start : span.end], span.kind, ALLOWED) for span in stays]
    return [span for span in spans if span not in stays], allowed


def _replaced(text: str, spans: Iterable[Finding]) -> str:
    parts: list[str] = []
    end = 0
    for span in spans:
        parts += (text[end : span.start], f"<{span.kind}>")
        end = span.end
    return "".join([*parts, text[end:]])


def _spans(text: str, how: Redaction) -> list[Finding]:
    """What is found, in order, without overlaps."""
    found = set(_findings(text, how))
    for view in views(text):
        seen = _findings(view.text, how)
        found.update(item._replace(start=view.place(item.start), end=view.place(item.end)) for item in seen)
    return _merged(item for item in found if not _PLACEHOLDER.search(text, item.start, item.end))


def _findings(text: str, how: Redaction) -> Iterator[Finding]:
    """What every detector sees; it may overlap."""
    yield from personal_findings(text, how.personal)
    if not how.secrets:
        return
    yield from vendor_findings(text)
    low = lower(text)
    hints = frozenset(hint for hint in HINTS if hint in low)
    yield from shaped(text, hints)
    yield from contextual(text, low, hints)


def _merged(found: Iterable[Finding]) -> list[Finding]:
    """Findings that overlap become one; the best of them names it."""
    merged: list[Finding] = []
    for item in sorted(found):
        if not merged or item.start >= merged[-1].end:
            merged.append(item)
            continue
        last = merged[-1]
        best = min(last, item, key=lambda one: (one.rank, one.start - one.end, one.kind, one.rule))
        merged[-1] = best._replace(start=last.start, end=max(last.end, item.end))
    return merged


class View(NamedTuple):
    """A text as JSON or a shell would unescape it, and where its parts lie in the text itself, or in the view that it is
    the view of."""

    text: str
    starts: list[int]
    places: list[int]
    outer: View | None = None

    def place(self, position: int) -> int:
        """The place in the text of a position in the view."""
        index = bisect_right(self.starts, position) - 1
        place = self.places[index] + position - self.starts[index]
        return self.outer.place(place) if self.outer else place


def views(text: str) -> Iterator[View]:
    """The text unescaped once, twice, as long as that changes something (three times at most)."""
    view = None
    for _ in range(_DEPTH):
        inner = _unescaped(text)._replace(outer=view)
        if inner.text == text:
            return
        view, text = inner, inner.text
        yield view


def _unescaped(text: str) -> View:
    parts: list[str] = []
    starts, places = [0], [0]
    size = end = 0
    for match in _ESCAPE.finditer(text):
        plain = text[end : match.start()]
        parts += (plain, _plain(match[0]))
        size += len(plain) + 1
        end = match.end()
        starts += (size - 1, size)
        places += (match.start(), end)
    return View("".join([*parts, text[end:]]), starts, places)


def _plain(escape: str) -> str:
    if len(escape) == 2:
        return _PLAIN.get(escape[1], escape[1])
    letter = chr(int(escape[2:], 16))
    return letter if letter.isprintable() or letter.isspace() else " "


def redact_json(text: str, how: Redaction = SECRETS_ONLY) -> Redacted:
    """JSON text without the secrets of its strings, as canonical JSON; text that is no JSON as any other."""
    try:
        value = loads(text)
    except NotJson:
        return redact(text, how)
    if isinstance(value, str):
        inner = redact(value, how)
        return inner._replace(text=canonical(inner.text) if inner.secrets else text)
    secrets: list[Secret] = []
    allowed: list[Secret] = []
    for _ in range(_ROUNDS):
        leaves = [leaf for leaf in _leaves(value) if leaf.text]
        spans, allowed = _spans_of_leaves(leaves, how)
        if not spans:
            break
        secrets += (
            Secret(leaves[i].text[s.start : s.end], s.kind, s.rule) for i in sorted(spans) for s in spans[i]
        )
        changed = {leaves[i].path: _replaced(leaves[i].text, spans[i]) for i in spans}
        value = with_strings(value, partial(_at, changed))
    return Redacted(canonical(value) if secrets else text, tuple(secrets), tuple(allowed))


Path = tuple[object, ...]


def _at(changed: Mapping[Path, str], path: Path, leaf: str) -> str:
    return changed.get(path, leaf)


class _Leaf(NamedTuple):
    """A string of a JSON value (a key's path ends in None), with the name it goes by."""

    path: Path
    name: str
    text: str
    listed: bool


def _leaves(value: Any, path: Path = (), name: str = "", listed: bool = False) -> Iterator[_Leaf]:
    if isinstance(value, str):
        yield _Leaf(path, name, value, listed)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield _Leaf((*path, key, None), "", key, False)
            yield from _leaves(item, (*path, key), key)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _leaves(item, (*path, index), name, True)


def _spans_of_leaves(leaves: list[_Leaf], how: Redaction) -> tuple[dict[int, list[Finding]], list[Secret]]:
    """What is to be replaced in each leaf (by itself, by its name, and by what stands around it), and what is allowed."""
    found: dict[int, list[Finding]] = {}
    allowed: list[Secret] = []
    view, starts = _flat(leaves)
    around = list(_findings(view, how))
    for index, leaf in enumerate(leaves):
        inside = [
            item._replace(start=max(item.start, begin) - begin, end=min(item.end, end) - begin)
            for begin, end in ((start, start + len(leaf.text)) for start in starts[index])
            for item in around
            if item.start < end and item.end > begin
        ]
        if how.secrets and leaf.name and named_secret(leaf.name, leaf.text):
            inside.append(Finding(0, len(leaf.text), kind_of_name(leaf.name), "field", 2))
        inside = [item for item in inside if not _PLACEHOLDER.search(leaf.text, item.start, item.end)]
        if "\\" in leaf.text:
            inside += _spans(leaf.text, how)
        spans, stays = _sorted_out(leaf.text, _merged(inside), how)
        allowed += stays
        if spans:
            found[index] = spans
    return found, allowed


def _flat(leaves: list[_Leaf]) -> tuple[str, list[tuple[int, int]]]:
    """Each leaf twice, as `name="text"` and as a line of its own (those of a list as words of a line), and where it begins."""
    parts: list[str] = []
    starts: list[list[int]] = [[], []]
    size = 0
    for alone, places in enumerate(starts):
        for leaf in leaves:
            before = (" " if leaf.listed else "\n") if alone else f'\n{leaf.name}="'
            after = "" if alone else '"'
            places.append(size + len(before))
            parts += (before, leaf.text, after)
            size += len(before) + len(leaf.text) + len(after)
    return "".join(parts), list(zip(*starts, strict=True))


def with_strings(value: Any, change: Callable[[Path, str], str], path: Path = ()) -> Any:
    """A JSON value with every string and key changed; keys that become the same are numbered."""
    if isinstance(value, str):
        return change(path, value)
    if isinstance(value, list):
        return [with_strings(item, change, (*path, index)) for index, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    made: dict[str, Any] = {}
    for key, item in value.items():
        name = fresh = change((*path, key, None), key)
        number = 1
        while fresh in made or (fresh != key and fresh in value):
            number += 1
            fresh = f"{name}_{number}"
        made[fresh] = with_strings(item, change, (*path, key))
    return made
