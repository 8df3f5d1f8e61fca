"""Secrets that one text of an episode gave away, taken out of its other texts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote

from logforge.connectors.records import NotJson, canonical, loads
from logforge.ingestion.hygiene.redaction import Redacted, Secret, with_strings
from logforge.ingestion.hygiene.secrets import is_telling


class Spread:
    """The telling secrets of each scope (an episode)."""

    def __init__(self) -> None:
        self._secrets: dict[str, dict[str, Secret]] = {}
        self._patterns: dict[str, re.Pattern[str]] = {}

    def add(self, scope: str, secrets: Iterable[Secret]) -> None:
        """Note the secrets of one of the scope's texts. Those that may well stand elsewhere by chance are not."""
        for secret in secrets:
            if is_telling(secret.value):
                for form in _forms(secret.value):
                    known = self._secrets.setdefault(scope, {})
                    known[form] = min(secret, known.get(form, secret))
                self._patterns.pop(scope, None)

    def scopes(self) -> frozenset[str]:
        """Those that have telling secrets."""
        return frozenset(self._secrets)

    def apply(self, scope: str, text: str, as_json: bool) -> Redacted:
        """A text of the scope without them."""
        if scope not in self._secrets:
            return Redacted(text)
        pattern = self._pattern(scope)
        if not pattern.search(text):
            return Redacted(text)
        found: list[Secret] = []

        def replaced(match: re.Match[str]) -> str:
            secret = self._secrets[scope][match[0]]
            found.append(secret)
            return secret.placeholder

        if as_json:
            try:
                value = with_strings(loads(text), lambda _, leaf: pattern.sub(replaced, leaf))
                return Redacted(canonical(value), tuple(found)) if found else Redacted(text)
            except NotJson:
                found.clear()
        return Redacted(pattern.sub(replaced, text), tuple(found))

    def _pattern(self, scope: str) -> re.Pattern[str]:
        """The longest first, so that no secret is cut by one that it holds."""
        if scope not in self._patterns:
            forms = sorted(self._secrets[scope], key=lambda form: (-len(form), form))
            self._patterns[scope] = re.compile("|".join(map(re.escape, forms)))
        return self._patterns[scope]


def _forms(value: str) -> Iterator[str]:
    """As it is, as JSON writes it, and as a URL does."""
    yield from {
        value,
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        quote(value, safe=""),
    }
