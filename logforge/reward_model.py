"""A reward spec made ready for a store: its scales fitted on the train split, its scorers run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow as pa

from logforge.frames import Tables, tables_of
from logforge.progress import Tick, silent
from logforge.rewards import Scale, fit_scales, score
from logforge.schemas.episode import Episode
from logforge.schemas.reward import RewardSpec

if TYPE_CHECKING:
    from logforge.cross_fit import Models


@dataclass(frozen=True)
class RewardModel:
    """What gives every episode of a build its rewards, logged and augmented ones alike."""

    spec: RewardSpec
    scales: dict[str, Scale]
    logged: pa.Table
    """The store's `episodes`: `came_back` looks there for the user's next one."""
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
        episodes = list(logged)
        first = cls(spec, {}, tables_of(episodes).episodes, con, progress)
        if not spec.normalised and not spec.scored:
            return first
        tables = first._tables([episode for episode in episodes if episode.episode_id in train])
        ready = replace(first, scorers=_ready(spec, con, tables, train))
        return (
            replace(ready, scales=fit_scales(spec, tables, ready._scored(tables)))
            if spec.normalised
            else ready
        )

    def score(self, episodes: Iterable[Episode]) -> pl.DataFrame:
        """Each step's reward and terms (see `rewards.score`)."""
        tables = self._tables(episodes)
        return score(self.spec, tables, self.scales, self._scored(tables))

    def record(self) -> dict[str, Any]:
        """What a manifest says of the rewards: the spec in its canonical form, the scales, and the scorers with their versions."""
        from logforge.scoring import scorer_record

        return {
            "spec": self.spec.model_dump(mode="json", exclude_defaults=True),
            "scales": {name: scale._asdict() for name, scale in sorted(self.scales.items())},
            "scorers": scorer_record(self.spec, self.scorers, self.con),
        }

    def _tables(self, episodes: Iterable[Episode]) -> Tables:
        """The episodes' tables, with all logged ones among `episodes`: a user's next one may be any of them."""
        tables = tables_of(episodes)
        here = set(tables.episodes["episode_id"].to_pylist())
        others = [identifier not in here for identifier in self.logged["episode_id"].to_pylist()]
        return tables._replace(
            episodes=pa.concat_tables([tables.episodes, self.logged.filter(pa.array(others, pa.bool_()))])
        )

    def _scored(self, tables: Tables) -> pl.DataFrame | None:
        from logforge.scoring import run_scorers

        return run_scorers(self.spec, tables, self.con, self.progress, self.scorers)


def _ready(
    spec: RewardSpec, con: duckdb.DuckDBPyConnection, train: Tables, groups: Mapping[str, str]
) -> dict[str, Models]:
    from logforge.scoring import ready_scorers

    return ready_scorers(spec, con, train, groups)
