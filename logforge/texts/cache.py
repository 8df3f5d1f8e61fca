"""The vectors of more texts than fit into memory: texts go into the store's cache piece by piece, and come out of it onto disk.

What is held of a text is a digest of 16 bytes and its reduced vector. Each piece is encoded as `encoders.embed` would: only what
the cache lacks, in batches made in the order of the hashes, committed as whole batches. So a build that was killed encodes
nothing again that it had committed, and comes to the same vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logforge.core import RowSpool, Tally, Tick, places_in, silent
from logforge.texts.encoders import CACHED, Encoder, TextVectors, encode_missing, is_blank, text_hash

F32 = npt.NDArray[np.float32]
Digests = npt.NDArray[np.bytes_]
"""The bytes of `encoders.text_hash`, sorted."""
DIGEST = "S16"
_BLOCK = 1 << 13


def digests_of(texts: Iterable[str]) -> list[bytes]:
    """The digests of the texts that are not blank."""
    return [bytes.fromhex(text_hash(text)) for text in texts if not is_blank(text)]


class TextCache:
    """The cached vectors of one encoder in a store."""

    def __init__(
        self, con: duckdb.DuckDBPyConnection, encoder: Encoder, progress: Tick | None = None
    ) -> None:
        self._con, self._encoder, self._progress = con, encoder, progress or silent
        self._done, self._size, self._known = 0, self._stored_size(), Tally(DIGEST)
        for digests, _ in self._stored("''::BLOB"):
            # not `tolist`: numpy's bytes would lose zeros at their ends
            self._known.add(digests[place : place + 1].tobytes() for place in range(len(digests)))

    @property
    def dim(self) -> int:
        """The size of a vector."""
        return self._size or self._encoder.dim

    def add(self, texts: Iterable[str]) -> list[bytes]:
        """Encode those of some texts that the cache lacks; the digests of all that are not blank, in order."""
        text_of = {text_hash(text): text for text in set(texts) if not is_blank(text)}
        digests = [bytes.fromhex(name) for name in sorted(text_of)]
        missing = self._known.lacks(digests)
        total = self._done + len(missing)
        names = [digest.hex() for digest in missing]
        for batch, vectors in encode_missing(self._con, self._encoder, names, text_of, self._size):
            self._size = vectors.shape[1]
            self._done += len(batch)
            self._progress(self._done, total, self._encoder.name)
        self._known.add(missing)
        return digests

    def spooled(self, digests: Digests, folder: Path | None = None) -> F32:
        """The vectors of these digests [digests, dim] in their order, on disk in `folder`."""
        rows = RowSpool.of(len(digests), CACHED, (self.dim,), folder)
        left = np.ones(len(digests), np.bool_)
        for found, vectors in self._stored("vector"):
            places = places_in(digests, found)
            wanted = np.flatnonzero(places >= 0)
            wanted = wanted[left[places[wanted]]]
            if len(wanted):
                rows.put(places[wanted], vectors()[wanted])
                left[places[wanted]] = False
        return rows.as_array(np.dtype(np.float32))

    def _stored(
        self, column: str
    ) -> Iterator[tuple[npt.NDArray[np.bytes_], Callable[[], npt.NDArray[np.float16]]]]:
        """What the cache holds, some rows at a time in the order in which it was kept: digests, and what gives their vectors."""
        reader = self._con.sql(
            f"SELECT text_hash, {column} AS vector FROM embeddings WHERE encoder = ? AND revision = ?",
            params=[self._encoder.name, self._encoder.revision],
        ).to_arrow_reader(_BLOCK)
        for batch in reader:
            digests = np.frombuffer(bytes.fromhex("".join(batch["text_hash"].to_pylist())), DIGEST)
            yield digests, partial(_numbers, batch["vector"])

    def _stored_size(self) -> int | None:
        found = self._con.execute(
            "SELECT octet_length(vector) FROM embeddings WHERE encoder = ? AND revision = ? LIMIT 1",
            [self._encoder.name, self._encoder.revision],
        ).fetchall()
        return found[0][0] // CACHED.itemsize if found else None


class ReducedTexts:
    """Reduced vectors by digest."""

    def __init__(self, digests: Digests, vectors: F32, size: int, reduce: Callable[[F32], F32]) -> None:
        """`vectors` are those of the digests, `reduce` brings some of them to `size` columns."""
        self._digests = digests
        self._matrix = np.zeros((len(digests) + 1, size), np.float32)  # row 0 is that of blank texts
        for start in range(0, len(digests), _BLOCK):
            self._matrix[1 + start : 1 + start + _BLOCK] = reduce(vectors[start : start + _BLOCK])

    def of(self, texts: Iterable[str]) -> TextVectors:
        """The vectors of some of the texts."""
        named = [text for text in texts if not is_blank(text)]
        places = places_in(self._digests, np.array(digests_of(named), DIGEST))
        rows = {text: int(place) + 1 for text, place in zip(named, places, strict=True) if place >= 0}
        return TextVectors(rows, self._matrix)


def _numbers(blobs: pa.Array) -> npt.NDArray[np.float16]:
    return np.frombuffer(b"".join(blobs.to_pylist()), CACHED).reshape(len(blobs), -1)
