"""What hygiene finds in distinct texts: cheap tests over all of them, then a close look at the few that fail one.

A clean text costs a microsecond or two and is not touched.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

import polars as pl
import xxhash

from logforge.connectors.records import NotJson, canonical, loads
from logforge.ingestion.hygiene import injection, personal_data
from logforge.ingestion.hygiene.characters import SUSPECT, clean
from logforge.ingestion.hygiene.injection import injections
from logforge.ingestion.hygiene.redaction import (
    HINTS,
    Redacted,
    Redaction,
    Secret,
    redact,
    redact_json,
    with_strings,
)
from logforge.ingestion.hygiene.secrets import SHAPELESS
from logforge.ingestion.hygiene.secrets import vendors as vendor_secrets

_LONG = 1000
_REMEMBERED = 50_000
_DIRTY_JSON = re.compile(SUSPECT + r"|\\u00[01]|\\[bf]")
_HIDDEN = 4


class Inspected(NamedTuple):
    """What becomes of a text that is not clean: its flags, and its secrets, one for each place; `allowed` are those that stay."""

    text: str
    flags: tuple[str, ...] = ()
    secrets: tuple[Secret, ...] = ()
    allowed: tuple[Secret, ...] = ()


def inspect(texts: pl.Series, *, redaction: Redaction, as_json: bool = False) -> dict[str, Inspected]:
    """What is not clean among distinct texts, by the text as it was. `as_json`: canonical JSON, which it stays."""
    seen = _seen(redaction, as_json)
    long = texts.filter(texts.str.len_chars() >= _LONG).to_list()
    keys = {text: xxhash.xxh3_128_digest(text.encode()) for text in long}
    known = {text: seen[key] for text, key in keys.items() if key in seen}
    if known:
        texts = texts.filter(~texts.is_in(list(known)))
    suspects = _suspects(texts, redaction, as_json)
    look = _look_at_json if as_json else _look
    found = {text: item for text in suspects if (item := look(text, redaction)) is not None}
    if len(seen) > _REMEMBERED:
        seen.clear()
    seen |= {key: found.get(text) for text, key in keys.items() if text not in known}
    return found | {text: item for text, item in known.items() if item is not None}


@cache
def _seen(redaction: Redaction, as_json: bool) -> dict[bytes, Inspected | None]:
    """Long texts (system prompts, say) that this process has seen, by hash: each is scanned once."""
    return {}


def forget_texts() -> None:
    """Forget the long texts that were seen, to measure what a new process does."""
    _seen.cache_clear()


def _suspects(texts: pl.Series, redaction: Redaction, as_json: bool) -> Iterable[str]:
    patterns = [_DIRTY_JSON.pattern if as_json else SUSPECT]
    patterns += [SHAPELESS] if redaction.secrets else []
    patterns += [personal_data.SUSPECT] if redaction.personal else []
    mask = texts.str.contains("|".join(patterns))
    hints, cased = _hints(redaction.secrets, not as_json)
    if hints:
        mask |= texts.str.contains_any(hints, ascii_case_insensitive=True)
    if foreign := [*cased, *([] if as_json else [injection.SUSPECT])]:
        beyond_ascii = texts.filter(texts.str.len_bytes() != texts.str.len_chars())
        if len(found := beyond_ascii.filter(beyond_ascii.str.contains("|".join(foreign)))):
            mask |= texts.is_in(found)
    if not redaction.secrets:
        return list(texts.filter(mask))
    plain = texts.filter(~mask)
    values: list[str] = plain.to_list()
    escaped = plain.str.contains("\\", literal=True).arg_true().to_list()
    hits = vendor_secrets.hits([*values, *(_unescaped(values[index]) for index in escaped)])
    places = {index if index < len(values) else escaped[index - len(values)] for index in hits}
    return [*texts.filter(mask), *(values[index] for index in sorted(places))]


@cache
def _hints(secrets: bool, injected: bool) -> tuple[list[str], list[str]]:
    """Words that what is looked for has, and patterns (of Rust's kind) for those that another case has other letters beyond ASCII
    for."""
    words = sorted({*(HINTS if secrets else ()), *(injection.HINTS if injected else ())})
    cased = [f"(?i:{re.escape(word)})" for word in words if any(c.upper() != c > "\x7f" for c in word)]
    return words, cased


def _unescaped(text: str) -> str:
    """Roughly what `redaction.views` shows, at a tenth of the cost."""
    for escape, plain in (
        ("\\\\", "\\"),
        ('\\"', '"'),
        ("\\n", "\n"),
        ("\\t", "\t"),
        ("\\/", "/"),
        ("\\u0026", "&"),
    ):
        text = text.replace(escape, plain)
    return text


def _look(text: str, redaction: Redaction) -> Inspected | None:
    cleaned = clean(text)
    redacted = redact(cleaned.text, redaction) if redaction else Redacted(cleaned.text)
    flags = {*cleaned.flags, *injections(cleaned.text), *_hidden(cleaned.hidden)}
    return _inspected(redacted, flags)


def _inspected(redacted: Redacted, flags: set[str]) -> Inspected | None:
    if not (flags or redacted.secrets or redacted.allowed):
        return None
    return Inspected(redacted.text, tuple(sorted(flags)), redacted.secrets, redacted.allowed)


def _look_at_json(text: str, redaction: Redaction) -> Inspected | None:
    try:
        value = loads(text)
    except NotJson:
        return _look(text, redaction)
    flags: set[str] = set()
    dirty = _DIRTY_JSON.search(text)

    def cleaned(_: object, leaf: str) -> str:
        found = clean(leaf)
        flags.update(found.flags, _hidden(found.hidden))
        return found.text

    value = with_strings(value, cleaned) if dirty else value
    changed = canonical(value) if flags else text
    redacted = redact_json(changed, redaction) if redaction else Redacted(changed)
    return _inspected(redacted, flags)


def _hidden(text: str) -> list[str]:
    """Tag characters that spelt words were meant for a model's eyes alone."""
    return ["injection:hidden_text"] if sum(letter.isalpha() for letter in text) >= _HIDDEN else []
