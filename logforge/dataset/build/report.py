"""What a build did, as data, as JSON and as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from logforge.core import BaseReport, Lines, table
from logforge.dataset.actions import ActionReport
from logforge.dataset.build.transitions import Origin
from logforge.dataset.quality import Passed
from logforge.dataset.states import ThoughtLeak, WindowCut
from logforge.dataset.weights import parts_told
from logforge.schemas import Manifest
from logforge.splits import SplitReport


class LeftOut(NamedTuple):
    """Why an episode of the store is not in the dataset."""

    rule: str
    reason: str
    step: int | None
    locator: str

    def row(self, dataset: str, episode_id: str) -> dict[str, Any]:
        """Its row in `quarantine`."""
        return {
            "level": "transition",
            "dataset": dataset,
            "episode_id": episode_id,
            "records": 0,
            **self._asdict(),
        }


def excluded_where(condition: str) -> str:
    """Why an episode that meets a condition of `--exclude-where` is left out."""
    return f"excluded where {condition}"


@dataclass(frozen=True)
class BuildReport(BaseReport):
    """A dataset's counts. `outcomes` has one row per source kind, format, split and success."""

    dataset: str
    path: str
    hash: str
    gamma: float
    actions: int
    observation_size: int
    splits: dict[str, dict[str, int]]
    outcomes: list[dict[str, Any]]
    conflicts: dict[str, int]
    augmented: dict[str, int]
    augmenters: tuple[str, ...]
    left_out: dict[str, int]
    reward_terms: list[dict[str, Any]]
    truncated: int
    split_report: SplitReport
    gates: tuple[Passed, ...]
    weight_parts: list[dict[str, Any]]
    unknown_episodes: int
    """How many episodes that the weights name are not in train."""
    action_report: ActionReport
    thoughts: ThoughtLeak
    window: WindowCut
    states: str
    """Whether states were `made`, `reused` from a dataset that has the same ones, or `extended`: some were there, some not."""
    state_episodes: dict[str, int]
    """Of how many episodes, copies included, states were `read`, and of how many `made`."""

    @classmethod
    def of(
        cls,
        manifest: Manifest,
        folder: Path,
        rows: pl.DataFrame,
        conflicts: pl.DataFrame,
        left_out: Mapping[str, LeftOut],
        origins: Mapping[str, Origin],
        formats: Mapping[str, str],
        augmenters: tuple[str, ...],
        truncated: int,
        split_report: SplitReport,
        gates: Iterable[Passed],
        unknown_episodes: int,
        thoughts: ThoughtLeak,
        window: WindowCut,
        read: int,
        made: int,
    ) -> BuildReport:
        """The report of a finished build. `formats` maps episode ids to formats; the states of so many were read and made."""
        return cls(
            dataset=manifest.dataset,
            path=str(folder),
            hash=manifest.hash,
            gamma=manifest.gamma,
            actions=manifest.vocabulary.size,
            observation_size=manifest.observation_size,
            splits={
                name: {
                    "episodes": part.episodes,
                    "transitions": part.transitions,
                    "terminals": part.terminals,
                    "timeouts": part.timeouts,
                    "successes": part.successes,
                }
                for name, part in manifest.splits.items()
            },
            outcomes=_outcomes(rows, formats),
            conflicts=dict(
                Counter(f"{kind} ({level})" for kind, level in conflicts.select("kind", "level").iter_rows())
            ),
            augmented=dict(Counter(o.augmenter for i, o in origins.items() if i not in left_out)),
            augmenters=augmenters,
            left_out={
                **{excluded_where(text): 0 for text in manifest.config.get("exclude_where", ())},
                **Counter(item.reason for item in left_out.values()),
            },
            reward_terms=_terms(rows),
            truncated=truncated,
            split_report=split_report,
            gates=tuple(gates),
            weight_parts=parts_told(rows),
            unknown_episodes=unknown_episodes,
            action_report=ActionReport.of(manifest, rows),
            thoughts=thoughts,
            window=window,
            states="made" if not read else "extended" if made else "reused",
            state_episodes={"read": read, "made": made},
        )

    def lines(self) -> Lines:
        """Tables of what is in the dataset, and a line on each thing that was done to it."""
        yield (
            f"dataset {self.dataset} → {self.path}  (hash {self.hash[:12]}, γ {self.gamma}, "
            f"{self.actions} actions, {self.observation_size} features)"
        )
        outcomes, terms = (
            [list(row.values()) for row in rows] for rows in (self.outcomes, self.reward_terms)
        )
        splits = [[name, *part.values()] for name, part in self.splits.items()]
        yield "\ntransitions by source and outcome"
        yield table(("source_kind", "format", "success", "episodes", "transitions"), outcomes) + "\n"
        yield table(("split", "episodes", "transitions", "terminals", "timeouts", "successes"), splits) + "\n"
        yield self.split_report.render() + "\n"
        yield table(("reward term", "fires", "sum"), terms) + "\n"
        yield from self._told()

    def _told(self) -> Lines:
        if self.truncated:
            yield f"{self.truncated} texts encoded in this run were longer than the encoder reads, and were cut"
        if self.states != "made":
            of = self.state_episodes
            yield f"states: {self.states}: of {of['read']:,} episodes read from a dataset of the store, of {of['made']:,} made"
        for name in self.augmenters:
            yield f"augmented by {name}: {self.augmented.get(name, 0)} episodes (train only)"
        yield from (f"conflicts: {count} × {kind}" for kind, count in sorted(self.conflicts.items()))
        yield from (
            f"left out: {count} episodes — {reason}" for reason, count in sorted(self.left_out.items())
        )
        yield from self.action_report.lines()
        yield from (line or None for line in (self.window.told(), self.thoughts.told()))
        yield from (f"weight {p['part']}: {p['rows']} rows × {p['mean']:.3g}" for p in self.weight_parts)
        if self.unknown_episodes:
            yield f"{self.unknown_episodes} episodes that --weights names are not in train"
        yield from (f"gate {g.gate} {g.threshold:g}: passed with {g.value:.3g}" for g in self.gates)


def _outcomes(rows: pl.DataFrame, formats: Mapping[str, str]) -> list[dict[str, Any]]:
    names = pl.DataFrame(
        {"episode_id": list(formats), "format": list(formats.values())},
        schema={"episode_id": pl.String, "format": pl.String},
    )
    return (
        rows.join(names, on="episode_id", how="left")
        .group_by("source_kind", "format", "success")
        .agg(episodes=pl.col("episode_id").n_unique(), transitions=pl.len())
        .sort("source_kind", "format", "success")
        .to_dicts()
    )


def _terms(rows: pl.DataFrame) -> list[dict[str, Any]]:
    terms = rows.select("reward_terms").explode("reward_terms").unnest("reward_terms")
    return (
        terms.group_by("key")
        .agg(fires=(pl.col("value") != 0).sum(), sum=pl.col("value").sum())
        .sort("key")
        .to_dicts()
    )
