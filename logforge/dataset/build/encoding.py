"""Observations of a build's states: their texts encoded, told by how often they were said, and the vectors of all states on disk.

A build goes through its episodes twice for it, some at a time: PCA needs all texts of the train split before the first vector.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from logforge.core.hash_counts import Tally, places_in
from logforge.core.spool import RowSpool
from logforge.core.stored_rows import kept_rows
from logforge.dataset.build.state_rows import StateRows
from logforge.dataset.build.transitions import Member
from logforge.dataset.states.builder import State, StateBuilder
from logforge.shards.reader import SPLITS
from logforge.texts.cache import DIGEST, Digests, ReducedTexts, TextCache, digests_of
from logforge.texts.pca import Pca, fit_pca

_PLACED = {"episode_id": pl.String, "split": pl.String, "steps": pl.Int64}


class TextsUsed(NamedTuple):
    """The texts of all states, and those of the train split with how often they were said there, at least once."""

    every: Digests
    in_train: Digests
    said: npt.NDArray[np.float64]


def encode_texts(members: Iterable[Iterable[Member]], symbols: StateBuilder, cache: TextCache) -> TextsUsed:
    """Encode the texts of these members' states, as far as the cache lacks them."""
    every, in_train, said = Tally(DIGEST), Tally(DIGEST), Tally(DIGEST)
    for piece in members:
        train, held_out = set[str](), set[str]()
        counts: Counter[str] = Counter()
        for member in piece:
            texts = symbols.texts(member.states)
            if member.split == "train":
                train |= texts
                counts.update(t for m in member.episode.messages for t in (m.content, m.thought) if t)
            else:
                held_out |= texts
        every.add(cache.add(train | held_out))
        in_train.add(digests_of(train))
        said.add({digest: counts[text] for text in counts for digest in digests_of([text])})
    learnt = in_train.keys()
    return TextsUsed(every.keys(), learnt, np.maximum(said.of(learnt), 1).astype(np.float64))


def reduced_texts(
    used: TextsUsed, cache: TextCache, size: int, folder: Path, given: Pca | None = None
) -> tuple[ReducedTexts, Pca]:
    """The texts' vectors brought to `size` columns at most by a PCA that is fitted on the train split's, or by the one given."""
    vectors = cache.spooled(used.every, folder)
    learnt = kept_rows(vectors, places_in(used.in_train, used.every) >= 0)
    pca = given or fit_pca(learnt, used.said, size)
    return ReducedTexts(used.every, vectors, pca.size, pca.apply), pca


def observe(
    members: Iterable[Iterable[Member]], builder: StateBuilder, texts: ReducedTexts, folder: Path
) -> StateRows:
    """The vectors of all states of these members, on disk in `folder`."""
    spools = {split: RowSpool(np.float32, (builder.size,), folder) for split in SPLITS}
    episodes = []
    for piece in members:
        states: dict[str, list[State]] = {split: [] for split in SPLITS}
        for member in piece:
            states[member.split] += member.states
            episodes.append((member.episode.episode_id, member.split, len(member.states) - 1))
        for split, found in states.items():
            spools[split].append(builder.vectors(found, texts.of(builder.texts(found))))
    placed = pl.DataFrame(episodes, _PLACED, orient="row")
    return StateRows.of_splits({split: [spool] for split, spool in spools.items()}, placed)
