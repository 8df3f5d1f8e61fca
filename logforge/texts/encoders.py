"""Turns texts into vectors, each distinct text once: the encoders, and the cache of their vectors in the store.

A neural vector depends a little on its batch mates, so missing texts are encoded in batches made in the order of
their hash, and only whole batches are committed: a run that was killed and resumed forms the same batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from logforge.core import Tick, silent
from logforge.schemas import CheckFailed, Mismatch, Problem, UnknownName, UsageError
from logforge.store import checkpoint_when_due
from logforge.texts.endpoint import ENDPOINT, EndpointEncoder, read_settings
from logforge.texts.hashing import HashingEncoder
from logforge.texts.onnx import minilm_onnx, onnx_folder
from logforge.texts.sentence import SentenceTransformerEncoder, minilm

F32 = npt.NDArray[np.float32]
_BATCHES_PER_COMMIT = 8
CACHED: Final = np.dtype("<f2")
"""How vectors are kept."""


class Encoder(Protocol):
    """Texts to vectors. `revision` changes whenever its vectors would; `truncated` counts the texts it cut so far; `batch` is
    how many texts it is given at once."""

    name: str
    revision: str
    truncated: int
    batch: int

    @property
    def dim(self) -> int:
        """The size of a vector."""
        ...

    def encode(self, texts: Sequence[str]) -> F32:
        """One row per text; no text is blank."""
        ...

    def encode_tokens(self, text: str) -> F32:
        """One row per token of a text that is not blank."""
        ...


NAMED: Final[Mapping[str, Callable[[], Encoder]]] = {
    "hashing": HashingEncoder,
    "minilm": minilm,
    "minilm-onnx": minilm_onnx,
}
ONNX: Final = "onnx:"
ENCODERS: Final = (
    *NAMED,
    f"{ONNX}FOLDER",
    f"{ENDPOINT}MODEL@URL",
    "the folder of a sentence-transformers model",
)
"""How an encoder may be asked for."""


def make_encoder(name: str) -> Encoder:
    """An encoder by its name: one of NAMED, or of the forms that ENCODERS adds. Raises UnknownName, UsageError, InputError and
    MissingExtra."""
    check_encoder(name)
    if name in NAMED:
        return NAMED[name]()
    if name.startswith(ENDPOINT):
        return EndpointEncoder(read_settings(name))
    if name.startswith(ONNX):
        return onnx_folder(Path(name.removeprefix(ONNX)))
    return SentenceTransformerEncoder(Path(name).resolve().name, Path(name))


def check_encoder(name: str) -> None:
    """Raises UnknownName or UsageError for a name that means no encoder; nothing is loaded."""
    if name.startswith(ENDPOINT):
        read_settings(name)
    elif name not in NAMED and not Path(name.removeprefix(ONNX)).is_dir():
        raise UnknownName("encoder", name, ENCODERS)


def is_blank(text: str | None) -> bool:
    """A text that has the zero vector and is never encoded: None, empty or white space."""
    return not text or text.isspace()


def text_hash(text: str) -> str:
    """What a text is cached under: xxh3-128 of its UTF-8."""
    return xxhash.xxh3_128_hexdigest(text.encode("utf-8", "surrogatepass"))


class TextVectors:
    """The vectors of distinct texts: row 0 is that of blank ones (zeros), the others follow by hash."""

    def __init__(self, rows: dict[str, int], matrix: F32) -> None:
        self.rows, self.matrix = rows, matrix
        """`rows` maps a text to its row of `matrix`."""

    @property
    def size(self) -> int:
        """The size of a vector."""
        return int(self.matrix.shape[1])

    def index(self, text: str | None) -> int:
        """The text's row. Raises UsageError for a text that was not embedded."""
        row = self.rows.get(text or "", 0)
        if row == 0 and not is_blank(text):
            raise UsageError(f"no vector for the text {text!r:.60}", "embed the texts of every state first")
        return row

    def map(self, function: Callable[[F32], F32]) -> TextVectors:
        """The same texts with every vector changed (reduced, say); blank ones keep zeros."""
        changed = function(self.matrix[1:])
        return TextVectors(self.rows, np.vstack([np.zeros((1, changed.shape[1]), np.float32), changed]))


def embed(
    con: duckdb.DuckDBPyConnection, encoder: Encoder, texts: Iterable[str], progress: Tick | None = None
) -> TextVectors:
    """The texts' vectors, from the table `embeddings` and, for those it lacks, from the encoder.

    Same texts and an empty cache give the same bytes in whatever order the texts come. Each insert is one statement
    that holds whole batches, so a killed run loses at most the last few.
    """
    text_of = {text_hash(text): text for text in set(texts) if not is_blank(text)}
    order = sorted(text_of)
    found = _cached(con, encoder, order)
    missing = [name for name in order if name not in found]
    told = progress or silent
    told(len(found), len(order), encoder.name)
    size = len(next(iter(found.values()))) if found else None
    for names, vectors in encode_missing(con, encoder, missing, text_of, size):
        found.update(zip(names, vectors, strict=True))
        told(len(found), len(order), encoder.name)
    blank = np.zeros_like(found[order[0]]) if order else np.zeros(encoder.dim, np.float32)
    rows = {text_of[name]: row for row, name in enumerate(order, 1)}
    return TextVectors(rows, np.stack([blank, *(found[name] for name in order)]))


def encode_missing(
    con: duckdb.DuckDBPyConnection,
    encoder: Encoder,
    hashes: Sequence[str],
    text_of: Mapping[str, str],
    size: int | None,
) -> Iterator[tuple[Sequence[str], F32]]:
    """Encode and keep the texts of these hashes, which the table lacks: hashes and vectors, some batches at a time.

    `size` is that of the encoder's vectors in the table; another one is refused. None: there are none.
    """
    for names in _groups(hashes, encoder.batch * _BATCHES_PER_COMMIT):
        vectors = encoded(encoder, [text_of[name] for name in names])
        size = size or vectors.shape[1]
        if vectors.shape[1] != size:
            remedy = "ask for the model that made the others, or name this one otherwise"
            raise Mismatch(f"size of the vectors of {encoder.name!r}", size, vectors.shape[1], remedy)
        _keep(con, encoder, names, vectors)
        yield names, vectors


def _groups(items: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def encoded(encoder: Encoder, texts: Sequence[str]) -> F32:
    """Vectors [texts, dim] as the cache keeps them: a vector is the same whether it was just made or found. No text is blank."""
    vectors = np.concatenate([encoder.encode(batch) for batch in _groups(texts, encoder.batch)])
    if not np.isfinite(vectors).all():
        bad = [
            Problem(f"{text!r:.60}")
            for text, row in zip(texts, vectors, strict=True)
            if not np.isfinite(row).all()
        ]
        what = f"the encoder {encoder.name!r} gave vectors that are not finite"
        raise CheckFailed(what, bad, "use another --encoder, or correct this one's weights")
    return vectors.astype(CACHED).astype(np.float32)


def _cached(con: duckdb.DuckDBPyConnection, encoder: Encoder, hashes: list[str]) -> dict[str, F32]:
    with _registered(con, "_wanted_texts", pa.table({"text_hash": pa.array(hashes, pa.string())})):
        found = con.sql(
            "SELECT text_hash, min(vector) AS vector FROM embeddings SEMI JOIN _wanted_texts USING (text_hash) "
            "WHERE encoder = ? AND revision = ? GROUP BY text_hash",
            params=[encoder.name, encoder.revision],
        ).to_arrow_table()
    pairs = zip(found["text_hash"], found["vector"], strict=True)
    return {
        name.as_py(): np.frombuffer(vector.as_buffer(), CACHED).astype(np.float32) for name, vector in pairs
    }


def is_read_only(con: duckdb.DuckDBPyConnection) -> bool:
    """Whether the store was opened for reading only: then nothing can be kept in it."""
    query = "SELECT readonly FROM duckdb_databases() WHERE database_name = current_database()"
    return con.sql(query).fetchall() == [(True,)]


def _keep(con: duckdb.DuckDBPyConnection, encoder: Encoder, hashes: Sequence[str], vectors: F32) -> None:
    if is_read_only(con):
        return
    blobs = [row.tobytes() for row in vectors.astype(CACHED)]
    rows = pa.table(
        {
            "encoder": pa.array([encoder.name] * len(hashes), pa.string()),
            "revision": pa.array([encoder.revision] * len(hashes), pa.string()),
            "text_hash": pa.array(hashes, pa.string()),
            "vector": pa.array(blobs, pa.binary()),
        }
    )
    with _registered(con, "_new_vectors", rows):
        con.execute("INSERT INTO embeddings BY NAME SELECT * FROM _new_vectors")
    checkpoint_when_due(con)


@contextmanager
def _registered(con: duckdb.DuckDBPyConnection, name: str, table: pa.Table) -> Iterator[None]:
    con.register(name, table)
    try:
        yield
    finally:
        con.unregister(name)
