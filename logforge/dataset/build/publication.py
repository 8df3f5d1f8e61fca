"""Stages `judge` and `publish`: a dataset that passes its gates takes the place of the earlier one, in its folder and in the store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import polars as pl

from logforge.core import from_all, from_summary, per_bucket, per_episode, rows_table, stage
from logforge.dataset.actions import action_texts, action_vectors_file
from logforge.dataset.build.broken_rows import check_arrays, quarantine_rows
from logforge.dataset.build.config import BuildConfig
from logforge.dataset.build.manifest import manifest_of, serving_files
from logforge.dataset.build.plan import Plan
from logforge.dataset.build.report import BuildReport, LeftOut
from logforge.dataset.build.weighing import Weighed
from logforge.dataset.quality import Measures, Passed, pass_gates
from logforge.dataset.states import (
    GOLDEN_FILE,
    GoldenState,
    ThoughtLeak,
    WindowCut,
    digests,
    golden_file,
    golden_of,
    thought_leak,
    window_cut,
)
from logforge.dataset.weights import STAGES_FILE, difficulty_frame, stages_file
from logforge.ingestion.sources import label_of
from logforge.schemas import QUARANTINE, Manifest, RewardSpec
from logforge.shards import ACTION_VECTORS, write_dataset
from logforge.splits import earlier_splits, split_report
from logforge.store import Store

_TOGETHER = 1 << 16


@dataclass(frozen=True, slots=True)
class Judged:
    """A dataset that may be published, and the gates that it passed."""

    weighed: Weighed
    passed: tuple[Passed, ...]


@stage(
    per_bucket("arrays against rows"),
    from_summary(
        "gates of outcomes, conflicts and coverage", "counts by state key and action; a row an episode"
    ),
    from_all(
        "gate of what the first state tells", "the first observation of every logged episode, in memory"
    ),
)
def judge(weighed: Weighed, plan: Plan) -> Judged:
    """Arrays and gates. Raises CheckFailed where one does not hold, and nothing is published."""
    check_arrays(plan.store, plan.name, weighed.transitions, weighed.arrays)
    measures = Measures(weighed.transitions, weighed.conflicts, weighed.arrays, plan.config.seed)
    return Judged(weighed, tuple(pass_gates(plan.gates, measures)))


@stage(
    per_episode("how hard an episode is"),
    from_summary("golden states", "the states of the smallest hashes: 20 of each format"),
    from_summary("stages of a curriculum", "how hard each episode is: a row an episode"),
    from_summary("manifest and report", "counts by split, outcome, action and term; a row an episode"),
    from_all("rows in the store, shards in the folder", "every row, some at a time, in their order"),
)
def publish(judged: Judged, plan: Plan) -> BuildReport:
    """Shards and rows in place of those of the earlier build, and the report."""
    weighed, config = judged.weighed, plan.config
    earlier = earlier_splits(plan.store, plan.name, config.as_dict())
    hard = difficulty_frame(weighed.cohort.kept)
    manifest, files = _described(weighed, plan)
    if config.curriculum:
        files[STAGES_FILE] = stages_file(
            weighed.transitions, hard, config.replay_fraction, config.seed, weighed.arrays
        )
    with plan.store.transaction():
        written = _written(weighed, plan, hard, manifest, files)
    split = weighed.encoded.validated.rows.split
    of_splits = split_report(
        split.grouping, split.splits, split.near, weighed.transitions, config.split_by, earlier, split.chosen.held_out
    )  # fmt: skip
    cohort = weighed.cohort
    return BuildReport.of(
        written.manifest, plan.folder, weighed.transitions, weighed.conflicts, cohort.left_out, cohort.origins,
        cohort.formats(), config.augment, plan.encoder.truncated, of_splits, judged.passed,
        config.weights.unknown(weighed.transitions), written.thoughts, written.window, weighed.encoded.read, weighed.encoded.made,
    )  # fmt: skip


def _described(weighed: Weighed, plan: Plan) -> tuple[Manifest, dict[str, bytes]]:
    """The manifest, and the files beside the shards that serving needs."""
    encoded, rows = weighed.encoded, weighed.encoded.validated.rows
    space, pca, builder = rows.actions.space, encoded.pca, encoded.builder
    manifest = manifest_of(
        plan.store, plan.name, frozenset(weighed.cohort.kept.ids), weighed.transitions, rows.model, plan.config, space,
        plan.encoder, pca, builder,
    )  # fmt: skip
    golden: tuple[GoldenState, ...] = golden_of(
        plan.store.con, weighed.cohort.logged_train(), plan.encoder, builder, pca
    )
    texts = action_texts(manifest.actions)
    manifest = msgspec.structs.replace(
        manifest, golden_states=digests(golden), action_texts=texts, propensity_model=weighed.propensity.as_dict()
    )  # fmt: skip
    return manifest, serving_files(pca, space) | {
        GOLDEN_FILE: golden_file(golden),
        ACTION_VECTORS: action_vectors_file(plan.store.con, plan.encoder, pca, texts),
    }


@dataclass(frozen=True, slots=True)
class _Written:
    """The manifest as it was sealed, and what the stored rows told."""

    manifest: Manifest
    thoughts: ThoughtLeak
    window: WindowCut


def _written(
    weighed: Weighed, plan: Plan, hard: pl.DataFrame, manifest: Manifest, files: Mapping[str, bytes]
) -> _Written:
    """Replace rows and folder: within a transaction, so that a folder that cannot be written leaves the earlier rows."""
    store, name, states = plan.store, plan.name, weighed.encoded.validated.states.wanted
    failures = weighed.encoded.validated.failures
    replace_rows(store, name, _frames(weighed, hard), weighed.cohort.left_out, failures)
    thoughts = thought_leak(store.con, name)
    window = window_cut(store.con, name, plan.config.state.window_turns)
    manifest = msgspec.structs.replace(manifest, thoughts=thoughts._asdict())
    sealed = write_dataset(plan.folder, weighed.arrays, manifest, files, plan.config.part_bytes)
    record(store, name, sealed, plan.folder, plan.config, plan.reward, states.as_dict())
    return _Written(sealed, thoughts, window)


def _frames(weighed: Weighed, hard: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """The dataset's rows by table."""
    validated = weighed.encoded.validated
    split, kept = validated.rows.split, list(weighed.cohort.kept.ids)
    return {
        "transitions": weighed.transitions,
        "splits": split.splits,
        "state_digests": validated.states.wanted.digests.filter(pl.col("episode_id").is_in(kept)),
        "near_duplicates": split.near,
        "conflicts": weighed.conflicts,
        "difficulty": hard,
        "argument_candidates": validated.rows.actions.candidates,
    }


def replace_rows(
    store: Store,
    name: str,
    frames: Mapping[str, pl.DataFrame],
    left_out: Mapping[str, LeftOut],
    failures: pl.DataFrame,
) -> None:
    """The dataset's rows in the store's tables, in place of those of its earlier build. `failures` are those of rows set aside."""
    for table in (*frames, "datasets", "quarantine"):
        store.con.execute(f"DELETE FROM {table} WHERE dataset = ?", [name])
    for table, frame in frames.items():
        for piece in frame.iter_slices(_TOGETHER):
            store.insert(table, piece.with_columns(dataset=pl.lit(name)))
    named = set(failures["episode_id"])
    other = [item.row(name, identifier) for identifier, item in left_out.items() if identifier not in named]
    store.insert("quarantine", rows_table(QUARANTINE, other))
    store.insert("quarantine", quarantine_rows(name, failures))


def record(
    store: Store,
    name: str,
    manifest: Manifest,
    folder: Path,
    config: BuildConfig,
    reward: str | Path | RewardSpec,
    states: Mapping[str, str],
) -> None:
    """The dataset in the store's list, with what its states are known by and the reward spec's file, on which no hash depends."""
    home = store.path.parent
    file = None if isinstance(reward, RewardSpec) else label_of(Path(reward), home)
    store.con.execute(
        "INSERT INTO datasets BY NAME SELECT ? AS dataset, ? AS hash, ? AS spec_hash, ? AS config, ? AS created_at, ? AS path",
        [
            name,
            manifest.hash,
            manifest.spec_hash,
            json.dumps({**config.as_dict(), "reward": file, "states": dict(states)}, sort_keys=True),
            datetime.now(UTC).replace(tzinfo=None),
            label_of(folder, home),
        ],
    )
