"""Copies of episodes with other words or with a failing tool."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.dataset.augmentation.augment import Augmenter, make_augmenter

__all__ = ["Augmenter", "make_augmenter"]

face(
    __name__,
    augment="Augmenter make_augmenter",
)
