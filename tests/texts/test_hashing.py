"""Hashed features: equal to counting them one by one, whatever texts stand beside each other."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logforge.texts import hashing as hashing_encoder
from logforge.texts.encoders import make_encoder
from logforge.texts.hashing import COLUMNS, HashingEncoder

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
WORDS = st.text("ab é漢字_!? \n", max_size=30)
PRIME, WORD = 0x100000001B3, 1 << 64


def mixed(value: int) -> int:
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB % WORD
    return value ^ (value >> 31)


def ngrams(text: str) -> Iterator[int]:
    plain = f" {' '.join(text.lower().split())} "
    for size in (2, 3, 4, 5):
        for start in range(len(plain) - size + 1):
            gram = plain[start : start + size]
            if " " not in gram[1:-1] and (size > 2 or min(gram) >= "\u2e80"):
                value = 0
                for letter in gram:
                    value = (value * PRIME + ord(letter)) % WORD
                yield value + size


def words(text: str) -> Iterator[int]:
    for word in re.findall(r"\w\w+", text.lower()):
        yield sum((ord(letter) + 1) * pow(PRIME, place, WORD) for place, letter in enumerate(word, 1)) % WORD


def half(features: Iterator[int]) -> list[float]:
    row = [0.0] * COLUMNS
    for value in features:
        row[mixed(value) % COLUMNS] += -1 if mixed(value) >> 32 & 1 else 1
    length = math.sqrt(sum(number * number for number in row)) or 1
    return [number / length for number in row]


@given(st.lists(WORDS, min_size=1, max_size=4))
@settings(max_examples=100, deadline=None)
def test_each_half_counts_its_features(texts: list[str]) -> None:
    for text, row in zip(texts, HashingEncoder().encode(texts), strict=True):
        halves = [half(ngrams(text)), half(words(text))]
        filled = math.sqrt(max(1, sum(map(any, halves))))
        np.testing.assert_allclose(row, np.concatenate(halves) / filled, atol=1e-6)


@given(st.lists(TEXTS, min_size=1, max_size=5))
@settings(max_examples=50, deadline=None)
def test_it_is_bit_equal_alone_and_in_company_and_of_length_one_or_nothing(texts: list[str]) -> None:
    encoder = HashingEncoder()
    vectors = encoder.encode(texts)
    assert vectors.dtype == np.float32
    assert vectors.shape == (len(texts), encoder.dim)
    for text, row in zip(texts, vectors, strict=True):
        assert HashingEncoder().encode([text])[0].tobytes() == row.tobytes()
        length = float(np.linalg.norm(row))
        assert length == pytest.approx(1, abs=1e-5) or length == 0


def test_pieces_of_many_texts_give_what_one_piece_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"text number {number} of many" * (number % 5) for number in range(200)]
    whole = HashingEncoder().encode(texts)
    monkeypatch.setattr(hashing_encoder, "_PIECE", 50)
    assert HashingEncoder().encode(texts).tobytes() == whole.tobytes()


def test_like_texts_are_closer_and_the_revision_is_kept() -> None:
    texts = ["cancel my flight", "cancel the flights", "pay by card"]
    one, like, other = make_encoder("hashing").encode(texts)
    assert one @ like > 0.3 > one @ other
    assert make_encoder("hashing").revision == "d2de9a90bbfe0b26"


def test_words_have_their_own_rows() -> None:
    rows = HashingEncoder().encode_tokens("refund the refund")
    assert rows.shape == (3, COLUMNS)
    assert rows[0].tobytes() == rows[2].tobytes() != rows[1].tobytes()
    assert HashingEncoder().encode_tokens("…").shape == (0, COLUMNS)
