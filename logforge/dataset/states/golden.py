"""Golden states: some states of the train split in symbols, each with its vector. Whoever serves proves by them that the same
symbols still give the same numbers.

    golden_states.json   beside the shards, under the manifest's checksums; `golden_states` of the manifest are the vectors' digests
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import zip_longest
from typing import Final, NamedTuple

import duckdb
import msgspec
import numpy as np
import numpy.typing as npt
import xxhash

from logforge.dataset.states.builder import StateBuilder
from logforge.dataset.states.symbolic_state import State
from logforge.schemas import Episode, InputError, Manifest, Mismatch
from logforge.texts import Encoder, Pca, TextVectors, embed

GOLDEN_FILE: Final = "golden_states.json"
GOLDEN_COUNT: Final = 20
"""So many are chosen, fewer where the train split has no more."""
_LARGEST = 50_000
"""A state of more bytes than this is not chosen: the file is read at each start of a server."""
_AGAIN = "build the dataset again, on this machine or with its versions of the packages (`packages` in manifest.json)"

F32 = npt.NDArray[np.float32]


class GoldenState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state before a step (after the last one: the final state) and its vector, little-endian float32."""

    episode_id: str
    step: int
    format: str
    state: State
    vector: bytes

    @property
    def digest(self) -> str:
        """32 hex digits over the vector's bytes."""
        return xxhash.xxh3_128_hexdigest(self.vector)


class _Candidate(NamedTuple):
    rank: int
    """The hash of episode and step, negated: the heap's first is the one to give up."""
    episode_id: str
    step: int
    state: State


class GoldenStates:
    """Chooses among the states of the train split: those of the smallest hash, from each format in turn. In whatever order
    episodes come, the choice is the same."""

    def __init__(self, count: int = GOLDEN_COUNT) -> None:
        self._count = count
        self._best: dict[str, list[_Candidate]] = defaultdict(list)

    def add(self, episode: Episode, symbols: Callable[[Episode], Sequence[State]]) -> None:
        """An episode of the log (no augmented copy); its `symbols` are looked at where one of them may be chosen."""
        name, best = episode.episode_id, self._best[episode.format]
        ranks = [
            -xxhash.xxh3_64_intdigest(f"{name}/{step}".encode()) for step in range(len(episode.steps) + 1)
        ]
        if len(best) == self._count and max(ranks) <= best[0].rank:
            return
        for step, (rank, state) in enumerate(zip(ranks, symbols(episode), strict=True)):
            if (len(best) < self._count or rank > best[0].rank) and _bytes(state) <= _LARGEST:
                heapq.heappush(best, _Candidate(rank, name, step, state))
                if len(best) > self._count:
                    heapq.heappop(best)

    @property
    def states(self) -> list[State]:
        """The chosen ones; their texts are those whose vectors `made` needs."""
        return [candidate.state for _, candidate in self._chosen()]

    def made(self, builder: StateBuilder, lookup: TextVectors) -> tuple[GoldenState, ...]:
        """The chosen ones with their vectors."""
        chosen = self._chosen()
        vectors = builder.vectors([candidate.state for _, candidate in chosen], lookup).astype("<f4")
        return tuple(
            GoldenState(one.episode_id, one.step, format_name, one.state, vector.tobytes())
            for (format_name, one), vector in zip(chosen, vectors, strict=True)
        )

    def _chosen(self) -> list[tuple[str, _Candidate]]:
        columns = [
            [(name, one) for one in sorted(self._best[name], reverse=True)] for name in sorted(self._best)
        ]
        in_turn = [one for row in zip_longest(*columns) for one in row if one is not None]
        return in_turn[: self._count]


def golden_of(
    con: duckdb.DuckDBPyConnection,
    episodes: Iterable[Episode],
    encoder: Encoder,
    builder: StateBuilder,
    pca: Pca,
) -> tuple[GoldenState, ...]:
    """The golden states of a build, from the train split's logged episodes, whose texts the cache in the store has."""
    chosen = GoldenStates()
    for episode in episodes:
        chosen.add(episode, builder.symbols)
    lookup = embed(con, encoder, builder.texts(chosen.states)).map(pca.apply)
    return chosen.made(builder, lookup)


def _bytes(state: State) -> int:
    return len(msgspec.json.encode(state))


def digests(golden: Sequence[GoldenState]) -> tuple[str, ...]:
    """What the manifest holds of them."""
    return tuple(one.digest for one in golden)


def golden_file(golden: Sequence[GoldenState]) -> bytes:
    """The text of GOLDEN_FILE."""
    return msgspec.json.format(msgspec.json.encode(golden), indent=1) + b"\n"


def read_golden(data: bytes, path: str = GOLDEN_FILE) -> tuple[GoldenState, ...]:
    """The inverse of `golden_file`. Raises InputError for anything else."""
    try:
        return msgspec.json.decode(data, type=tuple[GoldenState, ...])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(path, f"not golden states: {error}", remedy=_AGAIN) from error


def of_episodes(golden: Sequence[GoldenState], kept: Collection[str]) -> tuple[GoldenState, ...]:
    """Those of the episodes that are kept."""
    return tuple(one for one in golden if one.episode_id in kept)


def prove(
    golden: Sequence[GoldenState],
    manifest: Manifest,
    encode: Callable[[Sequence[State]], F32],
    tolerance: float,
    path: str = GOLDEN_FILE,
) -> None:
    """Raise Mismatch unless each state's vector comes out as it was: to the bit where the tolerance is 0."""
    if digests(golden) != manifest.golden_states:
        raise Mismatch(f"{path}: vectors", manifest.golden_states, digests(golden), _AGAIN)
    found = encode([one.state for one in golden]) if golden else ()
    for one, row in zip(golden, found, strict=True):
        wanted = np.frombuffer(one.vector, "<f4")
        where = f"{path}: state before step {one.step} of episode {one.episode_id}"
        if wanted.shape != row.shape:
            raise Mismatch(f"{where}, numbers", wanted.size, row.size, _AGAIN)
        off = np.abs(row - wanted) > tolerance if tolerance else row.view("<u4") != wanted.view("<u4")
        if off.any():
            blocks = [part for part in manifest.layout if off[part.start : part.stop].any()]
            names = ", ".join(part.name for part in blocks)
            first = int(np.flatnonzero(off)[0])
            raise Mismatch(
                f"{where}, {names} (column {first})", float(wanted[first]), float(row[first]), _AGAIN
            )
