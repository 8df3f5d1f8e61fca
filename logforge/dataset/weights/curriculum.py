"""How hard an episode is, and the stages of a curriculum: easy episodes first, each stage with a share of the earlier ones.

    difficulty   (turns − 1) + (tools − 1) + 2 · errors + ambiguity; no summand below 0
    stage 1      difficulty 0: one message of the user, at most one tool, no error, nothing to ask back
    stage 2      all between: several turns or tools
    stage 3      an error was met, or the difficulty is HARD or more

More turns, tools, errors or questions never make an episode easier. Stage k learns from its own episodes and, against
forgetting, from so many earlier ones that they are `replay_fraction` of its set (Rolnick et al. 2019, experience replay). Which
ones goes by a hash of the seed, the stage and the episode: new logs change few of the choices.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl
import xxhash
from numpy.typing import NDArray

from logforge.schemas import DRAWN_SPLITS, Episode, UnknownName, UsageError
from logforge.shards import Shard, SplitArrays, load_shards, read_checked, read_manifest

STAGES: Final = (1, 2, 3)
STAGES_FILE: Final = "stages.json"
HARD: Final = 10
"""From this difficulty on an episode is of stage 3 without any error."""
_FAILED = frozenset({"error", "timeout", "refused"})
_SCHEMA = {"episode_id": pl.String} | dict.fromkeys(
    ("stage", "difficulty", "turns", "tools", "errors", "ambiguity"), pl.Int32
)


class Difficulty(NamedTuple):
    """What makes an episode hard: messages of the user, distinct tools called, calls that failed, questions asked back."""

    turns: int
    tools: int
    errors: int
    ambiguity: int

    @property
    def value(self) -> int:
        """The difficulty, from 0."""
        return max(0, self.turns - 1) + max(0, self.tools - 1) + 2 * self.errors + self.ambiguity

    @property
    def stage(self) -> int:
        """1, 2 or 3."""
        if self.errors or self.value >= HARD:
            return 3
        return 2 if self.value else 1


def difficulty(episode: Episode) -> Difficulty:
    """How hard an episode is, by what happened in it."""
    calls = [step for step in episode.steps if step.kind == "tool"]
    return Difficulty(
        turns=sum(message.role == "user" for message in episode.messages),
        tools=len({step.action for step in calls}),
        errors=sum(step.result_status in _FAILED or not step.action_valid for step in calls),
        ambiguity=sum(step.kind == "clarify" for step in episode.steps),
    )


def difficulty_frame(episodes: Iterable[Episode]) -> pl.DataFrame:
    """Stage and difficulty of each episode, as the store's table has them, by episode_id."""
    found = ((episode.episode_id, difficulty(episode)) for episode in episodes)
    rows = [(name, label.stage, label.value, *label) for name, label in found]
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row").sort("episode_id")


def replayed(earlier: Sequence[str], own: int, stage: int, fraction: float, seed: int) -> list[str]:
    """The earlier episodes that a stage with `own` episodes of its own repeats, so that they are `fraction` of its set.

    All of `earlier` where there are too few. Raises UsageError for a fraction outside [0, 1).
    """
    if not 0 <= fraction < 1:
        raise UsageError(
            f"{fraction!r} is no share to replay", "give a number from 0 up to, not including, 1"
        )
    count = round(own * fraction / (1 - fraction))
    order = sorted(earlier, key=lambda name: (_hash(f"{seed}\x1f{stage}\x1f{name}"), name))
    return sorted(order[:count])


def stages_file(
    rows: pl.DataFrame,
    hard: pl.DataFrame,
    fraction: float,
    seed: int,
    splits: Iterable[str] = DRAWN_SPLITS,
) -> bytes:
    """The text of STAGES_FILE: `labels` are the stages of each of these splits' episodes in the order of its arrays, and each stage's
    `episodes` are numbers of train episodes, in order, those `replayed` among them."""
    names = {split: _episodes(rows, split) for split in splits}
    stage_of = dict(hard.select("episode_id", "stage").iter_rows())
    train = names["train"]
    number = {name: place for place, name in enumerate(train)}
    stages = []
    for stage in STAGES:
        own = [name for name in train if stage_of[name] == stage]
        again = replayed([name for name in train if stage_of[name] < stage], len(own), stage, fraction, seed)
        stages.append(
            {
                "stage": stage,
                "episodes": sorted(number[name] for name in (*own, *again)),
                "replayed": [number[name] for name in again],
            }
        )
    labels = {split: [stage_of[name] for name in found] for split, found in names.items()}
    return _text({"replay_fraction": fraction, "seed": seed, "labels": labels, "stages": stages})


def _episodes(rows: pl.DataFrame, split: str) -> list[str]:
    return rows.filter(pl.col("split") == split)["episode_id"].unique(maintain_order=True).to_list()


def without(data: bytes, kept: Mapping[str, NDArray[np.bool_]]) -> bytes:
    """The text of STAGES_FILE after episodes were taken out of the splits: those that are left, numbered anew."""
    found = json.loads(data)
    for split, mask in kept.items():
        labels = found["labels"][split]
        found["labels"][split] = [label for label, stays in zip(labels, mask, strict=True) if stays]
    number = np.cumsum(kept["train"]) - 1
    for stage in found["stages"]:
        for key in ("episodes", "replayed"):
            stage[key] = [int(number[place]) for place in stage[key] if kept["train"][place]]
    return _text(found)


def read_stages(folder: str | Path) -> dict[str, Any]:
    """What STAGES_FILE of a dataset's folder says. Raises UsageError for a dataset that was built without a curriculum."""
    manifest = read_manifest(folder)
    if STAGES_FILE not in manifest.checksums:
        raise UsageError(f"{folder} has no stages", "build it again with --curriculum")
    found: dict[str, Any] = json.loads(read_checked(folder, manifest, STAGES_FILE))
    return found


class StageOutcome(NamedTuple):
    """The logged outcomes of a split's episodes of one stage; `success` is the share of the known ones, None without any."""

    stage: int
    episodes: int
    known: int
    success: float | None


def stage_outcomes(shard: Shard) -> tuple[StageOutcome, ...]:
    """How the episodes of each stage ended, in a split of a dataset; nothing where it was built without a curriculum."""
    if STAGES_FILE not in shard.manifest.checksums:
        return ()
    labels = np.array(read_stages(shard.path)["labels"][shard.split], np.int64)
    found = []
    for stage in STAGES:
        outcomes = shard.success[labels == stage]
        known = outcomes[outcomes >= 0]
        found.append(
            StageOutcome(stage, len(outcomes), len(known), float(known.mean()) if len(known) else None)
        )
    return tuple(found)


def load_stage(folder: str | Path, stage: int) -> SplitArrays:
    """The train arrays that a stage learns from, the replayed episodes among them."""
    stages = {item["stage"]: item["episodes"] for item in read_stages(folder)["stages"]}
    if stage not in stages:
        raise UnknownName("stage", str(stage), [str(known) for known in stages])
    shard = load_shards(folder, "train")
    chosen = np.zeros(shard.episode_count, np.bool_)
    chosen[stages[stage]] = True
    return shard.only(chosen)


def _hash(text: str) -> int:
    return xxhash.xxh3_64_intdigest(text.encode())


def _text(found: Mapping[str, Any]) -> bytes:
    return (json.dumps(found, sort_keys=True, separators=(",", ":")) + "\n").encode()
