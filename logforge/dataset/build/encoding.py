"""Stage `encode`: texts to vectors (each once), a PCA, the vectors of all states on disk, and the arrays of each split.

A build goes through its episodes twice for it, some at a time: PCA needs all texts of the train split before the first vector.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from logforge.core import RowSpool, Tally, from_all, from_summary, kept_rows, per_bucket, places_in, stage
from logforge.dataset.build.broken_rows import Validated
from logforge.dataset.build.plan import Plan
from logforge.dataset.build.splitting import Cohort
from logforge.dataset.build.state_rows import StateRows
from logforge.dataset.build.transitions import Member, lengths_of, split_arrays
from logforge.dataset.states import State, StateBuilder
from logforge.schemas import DRAWN_SPLITS, SPLIT_NAMES, UsageError
from logforge.shards import SPLITS, SplitArrays
from logforge.texts import DIGEST, Digests, Pca, ReducedTexts, TextCache, digests_of, fit_pca

_PLACED = {"episode_id": pl.String, "split": pl.String, "steps": pl.Int64}


@dataclass(frozen=True, slots=True)
class Encoded:
    """Transitions with the arrays of each split. `pca` reduced the vectors of texts, `builder` made those of states; the
    states of so many episodes were `read` from a dataset of the store, and of so many `made`."""

    validated: Validated
    pca: Pca
    builder: StateBuilder
    read: int
    made: int
    arrays: Mapping[str, SplitArrays]

    @property
    def cohort(self) -> Cohort:
        """The episodes of the transitions."""
        return self.validated.cohort

    @property
    def transitions(self) -> pl.DataFrame:
        """The rows of the arrays."""
        return self.validated.transitions


class _Vectors(NamedTuple):
    """The states' vectors, what reduced their texts, and what made them."""

    states: StateRows
    pca: Pca
    builder: StateBuilder


@stage(
    per_bucket("vectors of texts, each once"),
    from_summary(
        "which texts there are, and how often train says each", "hashes and counts: 24 bytes a distinct text"
    ),
    from_summary(
        "the PCA, where none is given or known",
        "of the train split's texts: the mean, then d × d moments of vectors of size d",
    ),
    per_bucket("vectors of states, on disk"),
    from_all(
        "arrays of each split", "every row of a split, in memory: a row a decision; observations stay on disk"
    ),
)
def encode(validated: Validated, plan: Plan) -> Encoded:
    """Vectors and arrays. Where the states are known, their vectors and the PCA are read."""
    transitions, states, cohort = validated.transitions, validated.states, validated.cohort
    if not (transitions["split"] == "train").any():
        raise UsageError("the train split is empty", "ingest more episodes, or choose another --seed")
    found, pca, builder = _vectors(validated, plan)
    arrays = {}
    for split in SPLIT_NAMES if validated.rows.split.chosen.held_out else DRAWN_SPLITS:
        rows = transitions.filter(pl.col("split") == split)
        names, lengths = rows["episode_id"].unique(maintain_order=True).to_list(), lengths_of(rows)
        groups = [cohort.place(name)[1] for name in names]
        observations = found.observations(names, lengths)
        arrays[split] = split_arrays(rows, lengths, groups, observations, builder.space)
    made = len(states.unknown)
    return Encoded(validated, pca, builder, len(cohort.kept) - made, made, arrays)


def _vectors(validated: Validated, plan: Plan) -> _Vectors:
    """The vectors of all states: read, made, or some of each."""
    known = validated.states.known
    if known is None:
        return _made_vectors(validated, plan, plan.earlier.reduction)
    if validated.states.unknown:
        made = _made_vectors(validated, plan, known.pca)
        return made._replace(states=known.rows.joined(made.states))
    return _Vectors(known.rows, known.pca, _builder(validated, plan, known.pca))


def _made_vectors(validated: Validated, plan: Plan, reduction: Pca | None) -> _Vectors:
    """Texts to vectors, the PCA where none is given, and the vectors of the states that are not known."""
    symbols, cache = validated.rows.symbols, TextCache(plan.store.con, plan.encoder, plan.progress)
    used = encode_texts(_pieces(validated, symbols), symbols, cache)
    texts, pca = reduced_texts(used, cache, plan.config.text_size, plan.out, reduction)
    builder = _builder(validated, plan, pca)
    return _Vectors(observe(_pieces(validated, builder), builder, texts, plan.out), pca, builder)


def _pieces(validated: Validated, symbols: StateBuilder) -> Iterator[Iterator[Member]]:
    cohort = validated.cohort
    return (cohort.members(episodes, symbols) for episodes in validated.states.unknown.pieces())


def _builder(validated: Validated, plan: Plan, pca: Pca) -> StateBuilder:
    return StateBuilder(plan.config.state, validated.rows.actions.space, pca.size)


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
