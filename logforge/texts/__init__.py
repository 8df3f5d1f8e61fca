"""Texts to vectors: encoders, their cache, PCA, and how alike two texts are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.texts import similarity
    from logforge.texts.cache import DIGEST, Digests, ReducedTexts, TextCache, digests_of
    from logforge.texts.encoders import (
        F32,
        Encoder,
        TextVectors,
        check_encoder,
        embed,
        encoded,
        is_blank,
        is_read_only,
        make_encoder,
        text_hash,
    )
    from logforge.texts.endpoint import ENDPOINT
    from logforge.texts.hashing import HashingEncoder
    from logforge.texts.pca import Pca, fit_pca
    from logforge.texts.placeholders import mask_volatile
    from logforge.texts.similarity import numbers, tokens

__all__ = [
    "DIGEST", "ENDPOINT", "F32", "Digests", "Encoder", "HashingEncoder", "Pca", "ReducedTexts",
    "TextCache", "TextVectors", "check_encoder", "digests_of", "embed", "encoded", "fit_pca", "is_blank",
    "is_read_only", "make_encoder", "mask_volatile", "numbers", "similarity", "text_hash", "tokens",
]  # fmt: skip

face(
    __name__,
    cache="DIGEST Digests ReducedTexts TextCache digests_of",
    encoders="Encoder F32 TextVectors check_encoder embed encoded is_blank is_read_only "
    "make_encoder text_hash",
    endpoint="ENDPOINT",
    hashing="HashingEncoder",
    pca="Pca fit_pca",
    placeholders="mask_volatile",
    similarity="numbers tokens",
)
