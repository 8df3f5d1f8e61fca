"""Sources whose path holds a secret: every row's locator would name it, so they are set aside under a label without it.

A locator must lead back to its file, which a redacted one does not: the remedy is to rename the file. What was read under the
label as it is, before that was to be redacted, goes when such a file is set aside.
"""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from logforge.ingestion.hygiene import Redaction, inspect
from logforge.ingestion.sources import Found, Verdict
from logforge.ingestion.stored_sources import source_id_of
from logforge.store import short_hash

RULE = "secret_in_path"


def with_safe_labels(found: Iterable[Found], redaction: Redaction, key: bytes) -> list[Found]:
    """The files, those whose label holds what is to be redacted with another label and a verdict. The keyed hash at its end
    keeps two such labels apart."""
    found = list(found)
    if not redaction:
        return found
    labels = pl.Series([item.label for item in found], dtype=pl.String)
    dirty = inspect(labels, redaction=redaction)
    return [
        _set_aside(item, dirty[item.label].text, dirty[item.label].secrets[0].kind, key)
        if item.label in dirty and dirty[item.label].secrets
        else item
        for item in found
    ]


def _set_aside(item: Found, label: str, kind: str, key: bytes) -> Found:
    reason = f"its path holds what is taken out of texts (<{kind}>), and the place of every row would name it"
    verdict = item.verdict or Verdict(None, True, RULE, reason)
    return Found(item.path, f"{label}~{short_hash(item.label, key)}", verdict=verdict, instead_of=item.label)


def replaced_by(item: Found) -> tuple[str, ...]:
    """The id of the source that a file was before its label was to be redacted."""
    return () if item.instead_of is None else (source_id_of(item.instead_of),)
