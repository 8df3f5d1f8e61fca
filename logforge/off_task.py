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

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from logforge.encoders import TextVectors, is_blank
from logforge.schemas.episode import Episode, Step
from logforge.text_metrics import tokens

THRESHOLD: Final = 0.15
"""From this pollution on a step counts as off-task."""
COMMON: Final = 0.1
"""A word of more than this share of the train episodes tells nothing."""
SHORTEST: Final = 3
FEWEST: Final = 5
"""So many telling new words, numbers aside, a stray step must say: of fewer nothing can be told."""
_SCHEMA = {"episode_id": pl.String, "step": pl.Int32, "pollution": pl.Float64}
_TEXTS_KEPT = 1 << 14

Words = frozenset[str]
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


def texts_of(episodes: Iterable[Episode]) -> set[str]:
    """The texts whose vectors `pollution` needs."""
    found: set[str] = set()
    for episode in episodes:
        found.update(step_text(episode, step) for step in episode.steps)
        found.update(_name(step.action) for step in episode.steps)
        found.update(message.content or "" for message in episode.messages if message.role == "user")
        found.add(episode.task or "")
    return {text for text in found if not is_blank(text)}


def step_text(episode: Episode, step: Step) -> str:
    """What a step says: the result of a call that worked, or the agent's own text."""
    if step.kind == "tool":
        return (step.result or "") if step.result_status == "ok" else ""
    place = bisect_left(episode.messages, step.position, key=lambda message: message.position)
    return (episode.messages[place].content or "") if place < len(episode.messages) else ""


def pollution(episodes: Iterable[Episode], vectors: TextVectors) -> pl.DataFrame:
    """The pollution of every step of the train split's logged episodes: episode_id, step, pollution."""
    by_format: dict[str, list[Episode]] = {}
    for episode in episodes:
        by_format.setdefault(episode.format, []).append(episode)
    said = [
        (episode.episode_id, item)
        for group in by_format.values()
        for telling in [_telling(group)]
        for episode in group
        for item in _read(episode, telling)
    ]
    weighed = [item for _, item in said if item.has_effect or item.is_stray]
    similar = {id(item): _similarity(item, vectors) for item in weighed}
    worked = np.sort(np.array([similar[id(item)] for item in weighed if item.has_effect], np.float64))
    rows = [
        (name, item.step, item.foreign * _unlike(similar[id(item)], worked) if item.is_stray else 0.0)
        for name, item in said
    ]
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row").sort("episode_id", "step")


def _unlike(similarity: float, worked: NDArray[np.float64]) -> float:
    """The share of the sorted similarities `worked` that are larger."""
    return (
        1.0 - float(np.searchsorted(worked, similarity, side="right")) / len(worked) if len(worked) else 0.0
    )


def _telling(episodes: list[Episode]) -> Callable[[str | None], Words]:
    """A function from a text to its telling words, for episodes of one format."""
    seen = Counter(
        word
        for episode in episodes
        for word in frozenset[str]().union(*(_words(message.content) for message in episode.messages))
    )
    most = max(1.0, COMMON * len(episodes))

    @lru_cache(maxsize=_TEXTS_KEPT)
    def telling(text: str | None) -> Words:
        return frozenset(word for word in _words(text) if seen[word] <= most)

    return telling


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
