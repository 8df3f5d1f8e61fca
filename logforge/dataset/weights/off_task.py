"""Steps that leave the task: how foreign what a step says is to its episode, and how unlike the goal.

The pollution of a step lies in [0, 1]. It is 0 where the step had a part in the task:

    it is the episode's last (a farewell), or its call did not work (an error is an attempt)
    it is grounded: its arguments, or what it says, take up a telling word that was said before
    it had an effect: a telling word that it says first comes back in later arguments, answers or user messages

Elsewhere it is foreign · unlike. `foreign` is the share of the step's words that are telling and new to the episode. `unlike` is
the share of the train split's steps with an effect that are more similar to their goal than this one is; the similarity is the
largest cosine between the text vectors of what the step says (or the action's name) and of the task and the user's messages
so far. So no threshold depends on the encoder.

A step *says* a tool's result, or the agent's own text. A word is *telling* when it has three letters or more (or belongs to a
script without blanks) and stands in at most a tenth of the train episodes of its format. Who says fewer than five telling new
words, numbers aside, is not judged. The rule is made for precision: docs/weights.md gives the figures.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import polars as pl
import xxhash
from numpy.typing import NDArray

from logforge.core import Tally, some_at_a_time
from logforge.schemas import Episode, Step
from logforge.texts import TextVectors, is_blank, tokens

THRESHOLD: Final = 0.15
"""From this pollution on a step counts as off-task."""
COMMON: Final = 0.1
"""A word of more than this share of the train episodes tells nothing."""
SHORTEST: Final = 3
FEWEST: Final = 5
"""So many telling new words, numbers aside, a stray step must say: of fewer nothing can be told."""
_SCHEMA = {"episode_id": pl.String, "step": pl.Int32, "pollution": pl.Float64}
_TEXTS_KEPT, _WORDS_KEPT = 1 << 11, 1 << 17

Words = frozenset[str]
Embedded = Callable[[set[str]], TextVectors]
_NONE: Words = frozenset()


class _Said(NamedTuple):
    """What one step says: the share of it that is foreign, whether that was taken up later, and whether it had no part in the
    task; `texts` are what it says (and its tool's name), `goals` what it is held against."""

    step: int
    foreign: float
    has_effect: bool
    is_stray: bool
    texts: tuple[str, ...]
    goals: tuple[str, ...]

    @property
    def compared(self) -> tuple[str, ...]:
        """The texts whose vectors tell how unlike the goal it is: of most steps nothing is asked."""
        return (*self.texts, *self.goals) if self.has_effect or self.is_stray else ()


def step_text(episode: Episode, step: Step) -> str:
    """What a step says: the result of a call that worked, or the agent's own text."""
    if step.kind == "tool":
        return (step.result or "") if step.result_status == "ok" else ""
    place = bisect_left(episode.messages, step.position, key=lambda message: message.position)
    return (episode.messages[place].content or "") if place < len(episode.messages) else ""


def pollution(episodes: Collection[Episode], embedded: Embedded) -> pl.DataFrame:
    """The pollution of every step of the train split's logged episodes: episode_id, step, pollution.

    The episodes are gone through twice, some at a time. `embedded` gives the vectors of some texts.
    """
    telling = _telling(episodes)
    names: list[str] = []
    steps, strays, foreign, similar, worked = array("i"), array("b"), array("d"), array("d"), array("d")
    for batch in some_at_a_time(episodes):
        said = [(e.episode_id, item) for e in batch for item in _read(e, telling[e.format])]
        vectors = embedded({text for _, item in said for text in item.compared if not is_blank(text)})
        for name, item in said:
            names.append(name)
            steps.append(item.step)
            strays.append(item.is_stray)
            foreign.append(item.foreign)
            similar.append(_similarity(item, vectors) if item.compared else 0.0)
            if item.has_effect:
                worked.append(similar[-1])
    unlike = _unlike(np.asarray(similar), np.sort(np.asarray(worked)))
    polluted = np.where(np.asarray(strays) != 0, np.asarray(foreign) * unlike, 0.0)
    rows = {"episode_id": names, "step": np.asarray(steps), "pollution": polluted}
    return pl.DataFrame(rows, schema=_SCHEMA).sort("episode_id", "step")


def _unlike(similar: NDArray[np.float64], worked: NDArray[np.float64]) -> NDArray[np.float64]:
    """The share of the sorted similarities `worked` that are larger than each."""
    if not len(worked):
        return np.zeros(len(similar))
    return 1.0 - np.searchsorted(worked, similar, side="right") / len(worked)


def _telling(episodes: Collection[Episode]) -> dict[str, Callable[[str | None], Words]]:
    """For each format a function from a text to its telling words."""
    counts: dict[str, _Counts] = {}
    for batch in some_at_a_time(episodes):
        by_format: dict[str, list[Episode]] = {}
        for episode in batch:
            by_format.setdefault(episode.format, []).append(episode)
        for form, found in by_format.items():
            counts.setdefault(form, _Counts()).add(found)
    return {form: count.telling() for form, count in counts.items()}


class _Counts:
    """In how many episodes of a format each word stands. Words are held as 64-bit hashes: logs hold no end of them."""

    def __init__(self) -> None:
        self._episodes, self._words = 0, Tally(np.uint64)

    def add(self, episodes: Sequence[Episode]) -> None:
        """Count the words of some more episodes."""
        self._episodes += len(episodes)
        seen = Counter(
            word
            for episode in episodes
            for word in frozenset[str]().union(*(_words(message.content) for message in episode.messages))
        )
        self._words.add({_hash(word): count for word, count in seen.items()})

    def telling(self) -> Callable[[str | None], Words]:
        """A function from a text to its telling words."""
        common = _Common(self._words.above(max(1.0, COMMON * self._episodes)).tolist())

        @lru_cache(maxsize=_TEXTS_KEPT)
        def telling(text: str | None) -> Words:
            return frozenset(word for word in _words(text) if not common[word])

        return telling


class _Common(dict[str, bool]):
    """Whether a word is a common one, as a rule found out once."""

    def __init__(self, hashes: Iterable[int]) -> None:
        super().__init__()
        self._hashes = frozenset(hashes)

    def __missing__(self, word: str) -> bool:
        if len(self) >= _WORDS_KEPT:
            self.clear()
        found = self[word] = _hash(word) in self._hashes
        return found


def _hash(word: str) -> int:
    return xxhash.xxh3_64_intdigest(word.encode("utf-8", "surrogatepass"))


def _words(text: str | None) -> Words:
    if not text:
        return _NONE
    found = tokens(text.replace("_", " "))
    return frozenset(word for word in found if len(word) >= SHORTEST or not word.isascii())


def _read(episode: Episode, telling: Callable[[str | None], Words]) -> Iterator[_Said]:
    """Each step, with what is known of its words from where they first stand and where they are last used."""
    first, last_used = _first_said(episode, telling), _last_used(episode, telling)
    users = [(m.position, m.content or "") for m in episode.messages if m.role == "user"]
    last = len(episode.steps) - 1
    for index, step in enumerate(episode.steps):
        text = step_text(episode, step)
        spoken, asked = telling(text), telling(step.arguments)
        known = {word for word in spoken | asked if first.get(word, step.position) < step.position}
        new = spoken - asked - known
        end = step.position if step.result_position is None else step.result_position
        has_effect = any(last_used.get(word, end) > end for word in new)
        is_stray = sum(map(_has_letter, new)) >= FEWEST and not (has_effect or known or index == last)
        yield _Said(
            step=step.step,
            foreign=len(new) / len(_words(text)) if is_stray else 0.0,
            has_effect=has_effect,
            is_stray=is_stray,
            texts=(text, _name(step.action)) if step.kind == "tool" else (text,),
            goals=(episode.task or "", *(said for place, said in users if place < step.position)),
        )


def _has_letter(word: str) -> bool:
    return not word.isdigit()


def _first_said(episode: Episode, telling: Callable[[str | None], Words]) -> dict[str, int]:
    """Where each telling word first stands."""
    return {word: m.position for m in reversed(episode.messages) for word in telling(m.content)}


def _last_used(episode: Episode, telling: Callable[[str | None], Words]) -> dict[str, int]:
    """Where agent or user last use each telling word, in messages and arguments."""
    used = [(m.position, m.content) for m in episode.messages if m.role in ("assistant", "user")]
    used += [(step.position, step.arguments) for step in episode.steps]
    return {word: place for place, text in sorted(used, key=lambda item: item[0]) for word in telling(text)}


def _similarity(item: _Said, vectors: TextVectors) -> float:
    said, goals = _unit(vectors, item.texts), _unit(vectors, item.goals)
    return float((said @ goals.T).max(initial=0.0))


def _unit(vectors: TextVectors, texts: Iterable[str]) -> NDArray[np.float64]:
    rows = vectors.matrix[[vectors.index(text) for text in texts]].astype(np.float64)
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    found: NDArray[np.float64] = rows / np.where(length > 0, length, 1.0)
    return found


def _name(action: str) -> str:
    return action.replace("_", " ")
