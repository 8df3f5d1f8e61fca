"""The texts of a live session, cleaned and flagged one by one as ingest does it with a log: clean characters, no secrets, and flags
that say what was suspect.

Ingest also takes a secret out of the texts that came before the one that gave it away; a live session cannot.
"""

from __future__ import annotations

from typing import NamedTuple

import polars as pl
import pyarrow as pa

from logforge.ingestion.hygiene.episode_secrets import Spread
from logforge.ingestion.hygiene.flaggers import with_own_flags
from logforge.ingestion.hygiene.injection import ROLES, in_place
from logforge.ingestion.hygiene.inspection import Inspected, inspect
from logforge.ingestion.hygiene.pipeline import Hygiene

_SESSION = "session"


class Heard(NamedTuple):
    """A text fit for a state, and the flags that ingest gives the message it belongs to."""

    text: str | None
    flags: frozenset[str] = frozenset()


class LiveHygiene:
    """Of one session: what ingest does under the same settings."""

    def __init__(self, hygiene: Hygiene) -> None:
        self._how, self._spread = hygiene, Spread()

    def text(self, text: str | None, role: str | None = None) -> Heard:
        """A plain text. `role` is that of the message whose content it is; None: it is something else (a thought, a name)."""
        if not text:
            return Heard(text)
        heard = self._cleaned(text, role in ROLES, as_json=False)
        return heard if role is None else heard._replace(flags=heard.flags | self._own(role, heard.text))

    def arguments(self, text: str) -> Heard:
        """Canonical JSON text, which it stays."""
        return self._cleaned(text, False, as_json=True)

    def glance(self, text: str, *, as_json: bool = False) -> str:
        """A name or arguments that are only looked at: cleaned by what is known, and nothing is learnt from them for later texts."""
        return self._spread.apply(_SESSION, self._inspected(text, as_json).text, as_json).text

    def _cleaned(self, text: str, heard: bool, as_json: bool) -> Heard:
        item = self._inspected(text, as_json)
        self._spread.add(_SESSION, item.secrets)
        clean = self._spread.apply(_SESSION, item.text, as_json).text
        return Heard(clean, frozenset(in_place(item.flags, heard)))

    def _inspected(self, text: str, as_json: bool) -> Inspected:
        texts = pl.Series([text], dtype=pl.String)
        return inspect(texts, redaction=self._how.redaction, as_json=as_json).get(text) or Inspected(text)

    def _own(self, role: str, text: str | None) -> frozenset[str]:
        """What the user's own functions say."""
        if not self._how.flag_with:
            return frozenset()
        row = pa.table({"role": [role], "content": [text], "flags": pa.array([None], pa.list_(pa.string()))})
        return frozenset(with_own_flags(row, self._how.flag_with)["flags"][0].as_py() or ())
