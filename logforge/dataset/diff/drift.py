"""How far the distributions of two datasets lie apart: those of steps and episodes, and every feature of the observations."""

from __future__ import annotations

from collections.abc import Iterator

from logforge.dataset.diff.side import Side
from logforge.dataset.diff.stability import Drift, drift
from logforge.schemas.manifest import FeatureSlice, Manifest
from logforge.shards.files import PCA_FILE
from logforge.shards.sample import draw


def drifts_between(a: Side, b: Side, sample: int, seed: int) -> tuple[list[Drift], tuple[str, ...]]:
    """The drift of every distribution that both sides have, the largest first, and what was not compared.

    Features are those of logged decisions, at most `sample` of each split, drawn by `seed`.
    """
    first, second = a.samples(), b.samples()
    found = [drift(name, first[name], second[name]) for name in first if name in second]
    notes: tuple[str, ...] = ()
    if a.manifest is not None and b.manifest is not None:
        features, notes = _features(a, b, a.manifest, b.manifest, sample, seed)
        found += features
    known = [item for item in found if item is not None]
    return sorted(known, key=lambda item: (-item.psi, item.of)), notes


def _features(
    a: Side, b: Side, told_a: Manifest, told_b: Manifest, sample: int, seed: int
) -> tuple[list[Drift | None], tuple[str, ...]]:
    """Feature by feature. A column of a text's vector means the same only under the same encoder and PCA."""
    same_texts = told_a.encoder == told_b.encoder and (
        told_a.checksums.get(PCA_FILE) == told_b.checksums.get(PCA_FILE)
    )
    first, second = (
        {name: place for part in told.layout if same_texts or not _is_text(part) for name, place in _columns(part, told)}
        for told in (told_a, told_b)
    )  # fmt: skip
    seen_a, seen_b = (draw(side.folder, tuple(side.shards), sample, seed).observations for side in (a, b))
    found = [
        drift(name, seen_a[:, place], seen_b[:, second[name]])
        for name, place in first.items()
        if name in second
    ]
    note = (
        "features of texts are not compared: encoder or PCA differ, and with them the meaning of each column"
    )
    return found, () if same_texts else (note,)


def _is_text(part: FeatureSlice) -> bool:
    return "text vector" in part.meaning


def _columns(part: FeatureSlice, manifest: Manifest) -> Iterator[tuple[str, int]]:
    """Each column of a block with a name that means the same in another dataset: actions go by theirs, not by their ids."""
    width = part.stop - part.start
    of_actions = width == manifest.vocabulary.size and "action" in part.meaning
    labels = manifest.actions if of_actions else [str(place) for place in range(width)]
    for label, place in zip(labels, range(part.start, part.stop), strict=True):
        yield part.name if width == 1 else f"{part.name}[{label}]", place
