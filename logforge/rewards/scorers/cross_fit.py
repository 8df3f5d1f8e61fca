"""Scorers that learn, cross-fitted: an episode is scored by a model that saw nothing of its split group.

The groups of the train split fall into folds; one model learns from all of it, for episodes of the other splits, and one
from all but each fold, for the episodes of that fold. So scores of the train split mean what those of the others do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from logforge.rewards.scorers.base import Example, Ready, Resources, Scorer
from logforge.texts import text_hash

FOLDS: Final = 5


@dataclass(frozen=True)
class Models:
    """A scorer made ready: `whole` for episodes it has learnt nothing from, `folds` for those of the train split."""

    whole: Ready
    folds: tuple[Ready, ...] = ()
    fold_of: Mapping[str, int] = field(default_factory=dict)

    def of(self, episode_id: str, parent_id: str | None) -> Ready:
        """The model for an episode; one that is not known (an augmented copy) goes by its parent."""
        fold = self.fold_of.get(episode_id, self.fold_of.get(parent_id or ""))
        return self.whole if fold is None else self.folds[fold]

    @property
    def every(self) -> tuple[Ready, ...]:
        """All models, the whole one first."""
        return (self.whole, *self.folds)

    @property
    def unready(self) -> str | None:
        """Why nothing can be scored, if so: all models are ready, or none is used."""
        if self.whole.unready:
            return self.whole.unready
        lacking = [model.unready for model in self.folds if model.unready]
        return f"{lacking[0]} (with a fifth of its split groups held out)" if lacking else None


def fitted(
    scorer: Scorer, resources: Resources, examples: Sequence[Example], groups: Mapping[str, str] | None = None
) -> Models:
    """The models of a scorer that learns from `examples`. `groups` are the split groups of their episodes; an episode
    without one is a group of its own."""
    known = groups or {}
    fold_of = folds_of(
        {example.episode_id: known.get(example.episode_id, example.episode_id) for example in examples}
    )
    left = [
        tuple(example for example in examples if fold_of[example.episode_id] != fold) for fold in range(FOLDS)
    ]
    every = [scorer.ready(Resources(resources.con, chosen)) for chosen in (tuple(examples), *left)]
    return Models(every[0], tuple(every[1:]), fold_of)


def folds_of(groups: Mapping[str, str]) -> dict[str, int]:
    """The fold of each episode: the groups, in an order that says nothing of them, dealt out in turn."""
    order = {group: place for place, group in enumerate(_ordered(groups.values()))}
    return {episode: order[group] % FOLDS for episode, group in groups.items()}


def _ordered(groups: Iterable[str]) -> list[str]:
    return sorted(set(groups), key=lambda group: (text_hash(group), group))
