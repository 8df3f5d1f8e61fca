"""Scorers that compare a text with a reference by the vectors of an encoder: of whole texts, or token by token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from logforge.rewards.scorers.base import EncoderName, Ready, ReferenceScorer, Resources, Score, Texts, each
from logforge.texts import F32, TextVectors, embed, make_encoder

_DIGITS = 6
"""Scores are rounded: the last bits of a neural vector depend on its batch."""
_TOKEN_TEXTS = 256
"""Texts whose token vectors are held at a time (0.4 MB each, for MiniLM)."""
_EMPTY = "nothing to compare: a text without a letter or digit"


class Similarity(ReferenceScorer):
    """Cosine of the two texts' vectors; below 0 counts as 0. Vectors are cached in `embeddings`, as those of states are."""

    name = "similarity"

    encoder: EncoderName = "minilm-onnx"

    def ready(self, resources: Resources) -> Ready:
        """Finds the encoder; a model is loaded when a vector is missing."""
        encoder = make_encoder(self.encoder)

        def score(items: Sequence[Texts]) -> Iterator[tuple[int, Score]]:
            vectors = embed(resources.con, encoder, {text for item in items for text in item})
            return ((index, _cosine(vectors, *item)) for index, item in enumerate(items))

        return Ready(self.version(encoder.revision), score)


def _cosine(vectors: TextVectors, text: str, reference: str) -> Score:
    a, b = (vectors.matrix[vectors.index(item)].astype(np.float64) for item in (text, reference))
    length = np.linalg.norm(a) * np.linalg.norm(b)
    return Score(round(max(float(a @ b / length), 0.0), _DIGITS)) if length else Score(None, reason=_EMPTY)


class BertScore(ReferenceScorer):
    """F1 of the cosines of each token with the most alike token of the other text (Zhang et al. 2020), without weights."""

    name = "bert_score"

    encoder: EncoderName = "minilm-onnx"

    def ready(self, resources: Resources) -> Ready:
        """Finds the encoder; a model is loaded when a score is missing."""
        encoder = make_encoder(self.encoder)
        rows = lru_cache(_TOKEN_TEXTS)(lambda text: _normed(encoder.encode_tokens(text)))
        return Ready(
            self.version(encoder.revision), each(lambda texts: greedy_match(rows(texts[0]), rows(texts[1])))
        )


def _normed(rows: F32) -> F32:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    kept: F32 = (rows / np.where(lengths == 0, 1, lengths))[lengths[:, 0] > 0]
    return kept


def greedy_match(said: F32, meant: F32) -> Score:
    """F1 of greedy matching between rows of length 1."""
    if not len(said) or not len(meant):
        return Score(None, reason=_EMPTY)
    cosines = np.clip(said.astype(np.float64) @ meant.astype(np.float64).T, 0, 1)
    precision, recall = float(cosines.max(axis=1).mean()), float(cosines.max(axis=0).mean())
    both = precision + recall
    return Score(round(2 * precision * recall / both, _DIGITS) if both else 0.0)
