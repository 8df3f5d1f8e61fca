"""The shape of records: which keys they have, of which types, how often; and a few samples without secrets."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from logforge.core import cut
from logforge.ingestion.hygiene import Redaction, redact, redact_json
from logforge.inspecting.routes import as_path, walk

_SAMPLES = 3
_SAMPLE = 1200
_TEXT = 200
_ITEMS = 2
_REDACTED = Redaction(secrets=True, personal=("card", "email", "iban", "ip", "ssn"))
"""Samples are shown to be passed on, so they lose what a person is told by too."""


@dataclass(frozen=True)
class Key:
    """A path of the records: the share of records that have it, and of its values of each type."""

    path: str
    share: float
    types: dict[str, float]

    @property
    def told(self) -> str:
        """The types, the most frequent first."""
        ordered = sorted(self.types.items(), key=lambda one: (-one[1], one[0]))
        return ", ".join(f"{name} {share:.0%}" if len(ordered) > 1 else name for name, share in ordered)


def keys_of(documents: Sequence[Any]) -> tuple[Key, ...]:
    """Every path with its types, in the order in which the records have them."""
    having: Counter[str] = Counter()
    types: dict[str, Counter[str]] = {}
    for document in documents:
        seen = set()
        for route, value in walk(document):
            if route:
                path = as_path(route)
                seen.add(path)
                types.setdefault(path, Counter())[type_of(value)] += 1
        having.update(seen)
    return tuple(
        Key(
            redact(path, _REDACTED).text,
            round(having[path] / len(documents), 4),
            {name: round(count / sum(counts.values()), 4) for name, count in sorted(counts.items())},
        )
        for path, counts in types.items()
    )


def type_of(value: Any) -> str:
    """A type as JSON names it; JSON text of an object or a list is told as what it holds."""
    if value is None:
        return "null"
    for name, kinds in (("flag", bool), ("number", (int, float)), ("text", str), ("list", list)):
        if isinstance(value, kinds):
            return name
    return "object"


def samples_of(documents: Sequence[Any]) -> tuple[str, ...]:
    """The first records as JSON without secrets and personal data, long lists and texts cut."""
    return tuple(
        cut(json.dumps(_short(json.loads(_clean(one))), ensure_ascii=False), _SAMPLE)
        for one in documents[:_SAMPLES]
    )


def _clean(document: Any) -> str:
    """Long lists are cut before, as what is not shown need not be looked at; long texts behind, so that no secret is halved."""
    text = json.dumps(_fewer(document), ensure_ascii=False, default=str)
    return redact_json(text, _REDACTED).text


def _fewer(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _fewer(item) for key, item in value.items()}
    if isinstance(value, list) and len(value) > _ITEMS + 1:
        return [*map(_fewer, value[:_ITEMS]), f"… {len(value) - _ITEMS:,} more"]
    return [_fewer(item) for item in value] if isinstance(value, list) else value


def _short(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _short(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_short(item) for item in value]
    return cut(value, _TEXT) if isinstance(value, str) else value
