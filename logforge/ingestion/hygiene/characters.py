"""Characters that hide or damage a text: taken out, or replaced by U+FFFD, and said so. Clean text stays as it is.

| flag | what it was | what becomes of it |
|---|---|---|
| `unicode:control` | NUL and other control characters, but tab, line breaks, form feed, ESC (colour codes) | U+FFFD |
| `unicode:surrogate` | half of a surrogate pair | U+FFFD |
| `unicode:bidi` | embeddings, overrides and isolates; direction marks in a text without right-to-left letters | gone |
| `unicode:zero_width` | zero-width spaces, joiners where nothing joins, soft hyphens, invisible operators | gone |
| `unicode:tags` | tag characters, but those of a flag emoji | gone |
| `unicode:variation` | variation selectors after a variation selector (data is hidden so) | gone |
| `unicode:unreadable` | U+FFFD that is there already: the log, or its reader, lost a character | stays |
"""

from __future__ import annotations

import re
from typing import NamedTuple

REPLACEMENT = "\ufffd"

_CONTROL = "\x00-\x08\x0e-\x1a\x1c-\x1f\x7f-\x84\x86-\x9f"
_SURROGATE = "\ud800-\udfff"
_TAGS = "\U000e0000-\U000e007f"
_BIDI = "\u202a-\u202e\u2066-\u2069"
_MARKS = "\u061c\u200e\u200f"
_ZERO_WIDTH = "\u00ad\u180e\u200b\u2060-\u2064\u206a-\u206f\ufeff\ufff9-\ufffb"
_JOINERS = "\u200c\u200d"
_SELECTORS = "\ufe00-\ufe0f\U000e0100-\U000e01ef"

SUSPECT = (
    f"[{_CONTROL}{_TAGS}{_BIDI}{_MARKS}{_ZERO_WIDTH}{_JOINERS}{REPLACEMENT}]|[{_SELECTORS}][{_SELECTORS}]"
)
"""A regular expression, of Python's and of Rust's kind, that finds every text worth a closer look."""

_SUSPECT = re.compile(f"{SUSPECT}|[{_SURROGATE}]")
_DIRT = re.compile(
    "\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{2,6}\U000e007f"  # a flag emoji: no group, it stays
    f"|(?P<control>[{_CONTROL}])"
    f"|(?P<surrogate>[{_SURROGATE}])"
    f"|(?P<tags>[{_TAGS}]+)"
    f"|(?P<bidi>[{_BIDI}]+)"
    f"|(?P<mark>[{_MARKS}]+)"
    f"|(?P<zero_width>[{_ZERO_WIDTH}]+)"
    f"|(?P<joiner>[{_JOINERS}]+)"
    f"|(?<=[{_SELECTORS}])(?P<variation>[{_SELECTORS}]+)"
    f"|(?P<unreadable>{REPLACEMENT})"
)
_RIGHT_TO_LEFT = re.compile(
    "[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]"
)
_JOINING_SCRIPT = re.compile(
    "[\u0600-\u08ff\u0900-\u0dff\u0e80-\u0fff\u1000-\u109f\u1780-\u18af\ufb50-\ufdff\ufe70-\ufefc]"
)
"""Arabic and its neighbours, the scripts of India and South-East Asia, Mongolian: a joiner changes their letters."""
_EMOJI = re.compile("[\u203c\u2049\u2190-\u2bff\ufe0f\U0001f000-\U0001faff]")


class Cleaned(NamedTuple):
    """A text without what hid in it, and flags that say what that was. `hidden` is the text that tag characters spelt."""

    text: str
    flags: tuple[str, ...] = ()
    hidden: str = ""


def clean(text: str) -> Cleaned:
    """Clean one text; one without anything to clean comes back as it is."""
    if not _SUSPECT.search(text):
        return Cleaned(text)
    found: set[str] = set()
    hidden: list[str] = []

    def replace(match: re.Match[str]) -> str:
        kind = _kind(match)
        if kind is None:
            return match[0]
        found.add(kind)
        if kind == "tags":
            hidden.append("".join(chr(ord(letter) & 0x7F) for letter in match[0]))
        if kind == "unreadable":
            return match[0]
        return REPLACEMENT if kind in ("control", "surrogate") else ""

    before, after = "", text
    while after != before:  # what stood apart may now meet
        before, after = after, _DIRT.sub(replace, after)
    kinds = found - {"unreadable"} | ({"unreadable"} if REPLACEMENT in text else set())
    return Cleaned(after, tuple(f"unicode:{kind}" for kind in sorted(kinds)), "".join(hidden))


def _kind(match: re.Match[str]) -> str | None:
    """What is wrong with what was matched; None when it belongs there."""
    kind = match.lastgroup
    text = match.string
    if kind == "mark":
        return None if _RIGHT_TO_LEFT.search(text) else "bidi"
    if kind == "joiner":
        return None if _joins(text, match.start(), match.end()) else "zero_width"
    return kind


def _joins(text: str, start: int, end: int) -> bool:
    """One joiner after a letter of a script that needs it, or between two emoji."""
    before, after = text[start - 1 : start], text[end : end + 1]
    if end - start > 1:
        return False
    emoji = text[start] == "\u200d" and _EMOJI.match(before) and _EMOJI.match(after)
    return bool(emoji or _JOINING_SCRIPT.match(before))
