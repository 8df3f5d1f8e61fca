"""The texts of a live session, cleaned one by one as ingest cleans a log: clean characters, and no secrets.

Ingest also takes a secret out of the texts that came before the one that gave it away; a live session cannot.
"""

from __future__ import annotations

import polars as pl

from logforge.inspection import Inspected, inspect
from logforge.spread import Spread

_SESSION = "session"


class LiveHygiene:
    """Of one session. `redacts`: whether secrets are taken out, as `logforge ingest` does without `--no-redact`."""

    def __init__(self, redacts: bool = True) -> None:
        self._redacts, self._spread = redacts, Spread()

    def text(self, text: str | None) -> str | None:
        """A text fit for a state."""
        return self._cleaned(text, as_json=False) if text else text

    def arguments(self, text: str) -> str:
        """The same of canonical JSON text, which it stays."""
        return self._cleaned(text, as_json=True)

    def _cleaned(self, text: str, as_json: bool) -> str:
        found = inspect(pl.Series([text], dtype=pl.String), redacts=self._redacts, as_json=as_json)
        item = found.get(text) or Inspected(text)
        self._spread.add(_SESSION, item.secrets)
        return self._spread.apply(_SESSION, item.text, as_json).text
