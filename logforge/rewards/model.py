"""A reward spec made ready for a store: its scales fitted on the train split, its scorers run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from logforge.core import Tables, Tick, concat, silent, some_at_a_time, tables_of
from logforge.rewards.pipeline import scales_of, score, term_sums
from logforge.rewards.sql import Scale
from logforge.schemas import Episode, RewardSpec

if TYPE_CHECKING:
    from logforge.rewards.scorers import Models

_USERS = ["episode_id", "user_id", "started_at", "ended_at"]


@dataclass(frozen=True)
class RewardModel:
    """What gives every episode of a build its rewards, logged and augmented ones alike."""

    spec: RewardSpec
    scales: dict[str, Scale]
    logged: pa.Table
    """Users and times of the store's `episodes`, where `came_back` is asked for: it looks there for a user's next one."""
    con: duckdb.DuckDBPyConnection
    """The store's connection, for the scorers' cache."""
    progress: Tick = silent
    scorers: Mapping[str, Models] = field(default_factory=dict)
    """The spec's scorers made ready, by term; those that learn have done so from the train split, cross-fitted."""

    @classmethod
    def fit(
        cls,
        spec: RewardSpec,
        logged: Iterable[Episode],
        train: Mapping[str, str],
        con: duckdb.DuckDBPyConnection,
        progress: Tick = silent,
    ) -> RewardModel:
        """The model of a spec; `train` are the ids of the train split's episodes, which alone decide the scales and what
        scorers learn, with the key of each one's split group: no episode is scored by what its own group taught."""
        model = cls(spec, {}, _users(logged) if spec.detectors.came_back else _users(()), con, progress)
        if spec.scored:
            model = replace(model, scorers=model._ready(logged, train))
        if spec.normalised:
            chosen = (episode for episode in logged if episode.episode_id in train)
            sums = [term_sums(spec, tables, model._scored(tables)) for tables in model._pieces(chosen)]
            model = replace(model, scales=scales_of(spec, pl.concat(sums)) if sums else {})
        return model

    def score(self, episodes: Iterable[Episode]) -> pl.DataFrame:
        """Each step's reward and terms (see logforge.rewards.pipeline.score); memory holds some episodes at a time."""
        pieces = self._pieces(episodes)
        return pl.concat([score(self.spec, tables, self.scales, self._scored(tables)) for tables in pieces])

    def record(self) -> dict[str, Any]:
        """What a manifest says of the rewards: the spec in its canonical form, the scales, and the scorers with their versions."""
        from logforge.rewards.scorers import scorer_record

        return {
            "spec": self.spec.model_dump(mode="json", exclude_defaults=True),
            "scales": {name: scale._asdict() for name, scale in sorted(self.scales.items())},
            "scorers": scorer_record(self.spec, self.scorers, self.con),
        }

    def _pieces(self, episodes: Iterable[Episode]) -> Iterator[Tables]:
        """The tables of some episodes at a time, one empty piece where there are none; with the users of all logged ones among
        the episodes: a user's next one may be any of them."""
        empty = True
        for batch in some_at_a_time(episodes):
            empty = False
            yield self._with_users(tables_of(batch))
        if empty:
            yield self._with_users(tables_of(()))

    def _with_users(self, tables: Tables) -> Tables:
        others = pc.invert(pc.is_in(self.logged["episode_id"], tables.episodes["episode_id"]))
        everyone = [tables.episodes, self.logged.filter(others)]
        return tables._replace(episodes=pa.concat_tables(everyone, promote_options="default"))

    def _scored(self, tables: Tables) -> pl.DataFrame | None:
        from logforge.rewards.scorers import run_scorers

        return run_scorers(self.spec, tables, self.con, self.progress, self.scorers)

    def _ready(self, logged: Iterable[Episode], train: Mapping[str, str]) -> dict[str, Models]:
        from logforge.rewards.scorers import ready_scorers

        chosen = (episode for episode in logged if episode.episode_id in train)
        return ready_scorers(self.spec, self.con, concat(list(self._pieces(chosen))), train)


def _users(logged: Iterable[Episode]) -> pa.Table:
    """What `came_back` asks of episodes."""
    pieces = [tables_of(batch).episodes.select(_USERS) for batch in some_at_a_time(logged)]
    return pa.concat_tables([tables_of(()).episodes.select(_USERS), *pieces])
