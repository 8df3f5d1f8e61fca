"""Stage `split`: groups of episodes that belong together, their splits, and the proof that nothing crosses them.

From here on a build knows its episodes as a `Cohort`: who is in it, where each stands, and why others are left out.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import polars as pl

from logforge.core import Episodes, from_all, from_summary, per_episode, stage
from logforge.dataset.build.plan import Plan
from logforge.dataset.build.report import LeftOut
from logforge.dataset.build.selection import Chosen
from logforge.dataset.build.transitions import Member, Origin
from logforge.dataset.states import StateBuilder
from logforge.schemas import Episode
from logforge.splits import assign_splits, grouping_frame, near_duplicates, prove


@dataclass(frozen=True, slots=True)
class Cohort:
    """The episodes of a dataset in the making. `placed` and `known_formats` are of every logged episode that was split,
    `origins` says what each augmented copy was made from, and `left_out` why an episode is not among those kept."""

    kept: Episodes
    placed: Mapping[str, tuple[str, str]]
    known_formats: Mapping[str, str]
    left_out: Mapping[str, LeftOut]
    origins: Mapping[str, Origin] = field(default_factory=dict)

    def without(self, left_out: Mapping[str, LeftOut]) -> Cohort:
        """The cohort once these are left out too."""
        return replace(self, kept=self.kept.without(left_out), left_out={**self.left_out, **left_out})

    def with_copies(self, origins: Mapping[str, Origin]) -> Cohort:
        """The cohort with these augmented copies, which lie where its episodes do."""
        return replace(self, kept=Episodes(self.kept.spool, (*self.kept.ids, *origins)), origins=origins)

    def place(self, episode_id: str) -> tuple[str, str]:
        """The split and the group of an episode; an augmented one stands where its parent stands."""
        return self.placed[self._logged(episode_id)]

    def formats(self) -> dict[str, str]:
        """The format of each episode that is kept; a copy has its parent's."""
        return {name: self.known_formats[self._logged(name)] for name in self.kept.ids}

    def splits(self) -> dict[str, str]:
        """The split of each episode that is kept."""
        return {name: self.place(name)[0] for name in self.kept.ids}

    def train_groups(self) -> dict[str, str]:
        """The group of each logged episode of the train split, whether it is kept or not."""
        return {name: group for name, (split, group) in self.placed.items() if split == "train"}

    def train(self) -> Episodes:
        """The episodes of the train split that are kept, copies included."""
        return self.kept.only({name for name, split in self.splits().items() if split == "train"})

    def logged_train(self) -> Episodes:
        """The same without copies."""
        return self.kept.only(self.train_groups())

    def members(
        self, episodes: Iterable[Episode], symbols: StateBuilder, known: Container[str] = ()
    ) -> Iterator[Member]:
        """Some of the episodes with their states in symbols, but for those whose states are known."""
        for episode in episodes:
            name = episode.episode_id
            states = [] if name in known else symbols.symbols(episode)
            yield Member(episode, *self.place(name), states, self.origins.get(name))

    def _logged(self, episode_id: str) -> str:
        origin = self.origins.get(episode_id)
        return origin.parent_episode_id if origin else episode_id


@dataclass(frozen=True, slots=True)
class Split:
    """Episodes in their splits: `grouping` is what they are grouped by, `near` the pairs that are copies of each other, and
    `splits` where each stands."""

    chosen: Chosen
    grouping: pl.DataFrame
    near: pl.DataFrame
    splits: pl.DataFrame
    cohort: Cohort


@stage(
    per_episode("what an episode is grouped by"),
    from_all(
        "near-duplicates",
        "the distinct word triples of every episode, 8 bytes each, on disk: up to half of what the texts take; 500 bytes an "
        "episode in memory",
    ),
    from_summary(
        "groups and splits", "grouping keys, a row an episode; near pairs, at most as many as episodes"
    ),
    from_summary("proof that no key is in two splits", "the same keys and pairs, with the splits"),
)
def split(chosen: Chosen, plan: Plan) -> Split:
    """Groups, splits, and the proof. Raises CheckFailed where a key lies in two splits."""
    config, episodes = plan.config, chosen.episodes
    grouping, near = grouping_frame(episodes), near_duplicates(episodes, plan.out)
    splits = assign_splits(grouping, config.seed, config.fractions, near, config.split_by, chosen.held_out)
    prove(grouping, splits, near)
    placed = {row[0]: row[1:] for row in splits.select("episode_id", "split", "group_key").rows()}
    formats = dict(grouping.select("episode_id", "format").iter_rows())
    return Split(chosen, grouping, near, splits, Cohort(episodes, placed, formats, chosen.left_out))
