"""Named settings of a run, each with where its figures come from; `logforge train --preset NAME`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from logforge.learning.training.config import TrainConfig
from logforge.schemas import UnknownName


class Preset(NamedTuple):
    """Settings that differ from TrainConfig's own, and their source."""

    settings: Mapping[str, Any]
    source: str


_ARTICLE: Final = {
    "hidden": (256, 256, 256),
    "batch_size": 256,
    "gamma": 0.99,
    "passes": 100.0,
    "epochs": 100,
    "learning_rate": 6.25e-5,
}

PRESETS: Final[dict[str, Preset]] = {
    "default": Preset({}, "measured in the simulators with returns up to 10 (docs/design.md, §9)"),
    "sparse": Preset({"alpha": 0.3}, "the same, with returns of ±1 at the end alone (docs/design.md, §9)"),
    "sparse-text": Preset(
        {"alpha": 0.3, "anneal": True, "hidden": (128, 128)},
        "the same on states built from raw logs (docs/benchmarks/closed-loop.md), which have many more columns: wider layers, and "
        "a learning rate that falls, so that the last updates average over batches",
    ),
    "article-a": Preset(
        {**_ARTICLE, "alpha": 5.0},
        "the article's code for discrete CQL: three layers of 256, batches of 256, γ 0.99, 100 epochs of one pass each, "
        "α 5 (the default of *continuous* CQL; with returns of ±1 it clones); it names no learning rate, so d3rlpy's own",
    ),
    "article-a-text": Preset(
        {**_ARTICLE, "alpha": 1.0}, "the same with the α that the article's text says to start at"
    ),
}


def preset(name: str, **changes: Any) -> TrainConfig:
    """The configuration of this name with some settings changed. Raises UnknownName."""
    if name not in PRESETS:
        raise UnknownName("preset", name, list(PRESETS))
    return TrainConfig(**{**PRESETS[name].settings, **changes, "preset": name})
