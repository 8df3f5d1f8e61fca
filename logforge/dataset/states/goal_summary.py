"""What an agent is to do, in a few sentences: a summary of the initial instruction alone.

An instruction can be longer than an encoder reads, and say most of it in passing. A summary is a function of its text and of
nothing else, so nothing that happens later can enter a state by it. `central` takes the sentences nearest to the whole
(centroid summary, Radev et al. 2004), `lead` the first ones; both keep their order and words.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from logforge.schemas import UnknownName

WHOLE: Final = "whole"
"""The instruction as it is."""
SENTENCES: Final = 3
_KEPT = 4096
_BREAK = re.compile(r"(?<=[.!?])\s+|\s*\n\s*")
_WORD = re.compile(r"\w+")
Summary = Callable[[str], str]


def lead(text: str) -> str:
    """The first sentences."""
    return " ".join(_sentences(text)[:SENTENCES])


def central(text: str) -> str:
    """The sentences whose words are most like those of the whole text; of equals the first."""
    sentences = _sentences(text)
    bags = [Counter(_WORD.findall(sentence.lower())) for sentence in sentences]
    whole = sum(bags, Counter[str]())
    best = sorted(range(len(bags)), key=lambda place: (-_cosine(bags[place], whole), place))
    return " ".join(sentences[place] for place in sorted(best[:SENTENCES]))


SUMMARIES: Final[dict[str, Summary]] = {"central": central, "lead": lead}
"""Every summary by its name; add one to choose it by `goal`."""


def check_summary(name: str) -> None:
    """Raises UnknownName."""
    if name != WHOLE and name not in SUMMARIES:
        raise UnknownName("goal summary", name, [WHOLE, *SUMMARIES])


@lru_cache(maxsize=_KEPT)
def goal_of(instruction: str | None, name: str) -> str | None:
    """The instruction, or the summary of that name."""
    return instruction if instruction is None or name == WHOLE else SUMMARIES[name](instruction)


def _sentences(text: str) -> list[str]:
    return [part for part in (piece.strip() for piece in _BREAK.split(text)) if part]


def _cosine(one: Counter[str], whole: Counter[str]) -> float:
    """With the whole, up to its own constant length; 0 for a sentence without words."""
    length = math.sqrt(sum(count * count for count in one.values()))
    return sum(count * whole[word] for word, count in one.items()) / length if length else 0.0
