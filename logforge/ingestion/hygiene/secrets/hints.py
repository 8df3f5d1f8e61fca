"""Where in a text a slow pattern is worth trying: around the words that it needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def lower(text: str) -> str:
    """Lower case of the same length, so that places agree (a few letters grow: those texts stay as they are)."""
    low = text.lower()
    return low if len(low) == len(text) else text.translate(_LOWER)


_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


def windows(low: str, words: Iterable[str], before: int, after: int) -> Iterator[tuple[int, int]]:
    """The stretches of a text (in lower case) around each occurrence of a word, joined where they overlap, in order."""
    begin = end = -1
    for place in sorted(_places(low, words)):
        if place - before > end:
            if end >= 0:
                yield begin, end
            begin = max(place - before, 0)
        end = min(max(end, place + after), len(low))
    if end >= 0:
        yield begin, end


def _places(low: str, words: Iterable[str]) -> Iterator[int]:
    for word in words:
        place = low.find(word)
        while place >= 0:
            yield place
            place = low.find(word, place + len(word))


def holds(low: str, groups: Iterable[Iterable[str]]) -> bool:
    """Whether the text has a word of each group."""
    return all(any(word in low for word in group) for group in groups)
