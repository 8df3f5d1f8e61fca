"""Builds a dataset from the store: the one module that knows the order of the steps.

episodes → near-duplicates → splits → proof → augmented copies (train only) → rewards → states → transitions → validation →
vectors → conflicts → weights → gates → shards
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from logforge.actions import ActionSpace, seen_in
from logforge.augment import Augmenter, make_augmenter
from logforge.broken_rows import check_arrays, set_aside
from logforge.build_config import BuildConfig
from logforge.build_report import BuildReport
from logforge.conflict_policy import read_policy
from logforge.conflict_rows import decisions_of
from logforge.conflict_treatment import Settings, treat
from logforge.curriculum import STAGES_FILE, difficulty_frame, stages_file
from logforge.encoders import Encoder, embed, make_encoder
from logforge.gates import Measures, Passed, check_thresholds, pass_gates
from logforge.near_duplicates import near_duplicates
from logforge.progress import Tick, silent
from logforge.publication import manifest_of, record, replace_rows, serving_files
from logforge.quality import Allowance, validate
from logforge.reduce import Pca, fit_pca
from logforge.reward_model import RewardModel
from logforge.rewards import load_spec
from logforge.schemas.episode import Episode
from logforge.schemas.errors import UsageError
from logforge.schemas.manifest import Vocabulary
from logforge.schemas.reward import RewardSpec
from logforge.selection import chosen, refuse_all_left_out, unlearnable
from logforge.shards import SPLITS, SplitArrays, load_shards, write_dataset
from logforge.split_report import earlier_splits, prove, split_report
from logforge.splits import assign_splits, grouping_frame
from logforge.states import State, StateBuilder
from logforge.store import Store
from logforge.transitions import Member, Origin, split_arrays, transition_rows
from logforge.weighting import weigh, weight_parts

__all__ = ["BuildConfig", "build_dataset", "earlier_vocabulary"]

_NAME = re.compile(r"[^\W_][\w.-]{0,99}")


def build_dataset(
    store: Store,
    reward: str | Path | RewardSpec,
    *,
    name: str = "default",
    out: str | Path = "datasets",
    config: BuildConfig | None = None,
    vocabulary: Vocabulary | None = None,
    gates: Mapping[str, float] | None = None,
    max_quarantine: str = "0",
    progress: Tick | None = None,
) -> BuildReport:
    """Build dataset `name` from the store's episodes and write it to `out`/`name` and to the store's tables.

    `vocabulary` is that of an earlier manifest whose action ids must stay, `gates` are thresholds by name (see gates.py),
    and `max_quarantine` is how many episodes with broken rows may be set aside: a number or a share (`3`, `2%`). Raises
    SpecError for a wrong spec, and CheckFailed when the store holds nothing to learn from, the splits leak, more rows than
    that break a rule of schemas/transition.py, or a gate is not met: then the earlier build stays as it was.
    """
    allowance = Allowance.parse(max_quarantine)
    check_thresholds(gates or {})
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no dataset name", "use up to 100 letters, digits, '-', '_' and '.'")
    spec = reward if isinstance(reward, RewardSpec) else load_spec(reward)
    build = _Build(store, name, spec, config or BuildConfig(), progress)
    build.split()
    build.score()
    build.make_rows(vocabulary)
    build.validate(allowance)
    build.encode()
    build.treat_conflicts()
    build.weigh()
    passed = build.judge(gates or {})
    return build.publish(Path(out) / name, reward, passed)


def earlier_vocabulary(folder: str | Path | None) -> Vocabulary | None:
    """The vocabulary of an earlier dataset folder, whose action ids a new build keeps."""
    return None if folder is None else load_shards(folder, "train", verify=False).manifest.vocabulary


class _Build:
    """A build at work: each step takes what the ones before it made, and adds to `left_out` the episodes it sets aside."""

    def __init__(
        self, store: Store, name: str, spec: RewardSpec, config: BuildConfig, progress: Tick | None
    ) -> None:
        self.store, self.name, self.spec, self.config, self.progress = store, name, spec, config, progress
        self.encoder, self.augmenters = make_encoder(config.encoder), _augmenters(config)
        self.conflicts = Settings(config.epsilon, config.near_threshold, read_policy(config.conflicts))
        self.episodes, self.left_out = chosen(store, config)

    def split(self) -> None:
        """Groups, splits, and the proof that nothing crosses them."""
        self.grouping, self.near = grouping_frame(self.episodes), near_duplicates(self.episodes)
        config = self.config
        self.splits = assign_splits(self.grouping, config.seed, config.fractions, self.near, config.split_by)
        prove(self.grouping, self.splits, self.near)
        self.split_of = dict(self.splits.select("episode_id", "split").iter_rows())

    def score(self) -> None:
        """Rewards of the logged episodes, then of augmented copies of what can be learnt from."""
        in_train = self.splits.filter(pl.col("split") == "train")
        groups = dict(in_train.select("episode_id", "group_key").iter_rows())
        self.model = RewardModel.fit(
            self.spec, self.episodes, groups, self.store.con, self.progress or silent
        )
        self.rewards = self.model.score(self.episodes)
        self.left_out |= unlearnable(self.episodes, self.rewards)
        self.kept = self._not_left_out(self.episodes)
        if not self.kept:
            refuse_all_left_out(self.left_out)
        self.origins = _augmented(self.kept, self.split_of, self.augmenters, self.config.seed)
        copies = [episode for episode, _ in self.origins.values()]
        if copies:
            self.rewards = pl.concat([self.rewards, self.model.score(copies)])
            self.left_out |= unlearnable(copies, self.rewards)
        self.kept += self._not_left_out(copies)

    def _not_left_out(self, episodes: Iterable[Episode]) -> list[Episode]:
        return [episode for episode in episodes if episode.episode_id not in self.left_out]

    def make_rows(self, vocabulary: Vocabulary | None) -> None:
        """Actions, states in symbols, and the transitions. Copies, whose ids no split knows, lie in train."""
        in_train = [e for e in self.kept if self.split_of.get(e.episode_id, "train") == "train"]
        self.space = ActionSpace.build(map(seen_in, self.kept), vocabulary, map(seen_in, in_train))
        symbols = StateBuilder(self.config.state, self.space, self.config.text_size)
        self.members = _members(self.kept, self.splits, self.origins, symbols)
        self.rows = transition_rows(self.members, self.rewards, self.space, self.spec.gamma)

    def validate(self, allowance: Allowance) -> None:
        """Every rule on every row; episodes that break one are set aside whole, as far as that is allowed."""
        vocabulary = self.space.vocabulary
        self.failures = validate(self.rows, self.spec.gamma, vocabulary.size, vocabulary.invalid)
        broken = set_aside(self.store, self.name, self.failures, self.members, allowance)
        self.left_out |= broken
        self.members = [m for m in self.members if m.episode.episode_id not in broken]
        self.rows = self.rows.filter(~pl.col("episode_id").is_in(list(broken)))
        self.kept = self._not_left_out(self.kept)

    def encode(self) -> None:
        """States as vectors, and the arrays of each split."""
        self.arrays, self.pca, self.builder = _encode(
            self.store, self.members, self.rows, self.space, self.encoder, self.config, self.progress
        )

    def treat_conflicts(self) -> None:
        """Find the conflicts, and set aside what the policy filters."""
        decisions = decisions_of(self.store.con)
        self.treated = treat(self.rows, self.arrays, self.builder.layout(), decisions, self.conflicts)
        self.left_out |= self.treated.left_out
        self.kept = self._not_left_out(self.kept)

    def weigh(self) -> None:
        """The sample weights, as products of their parts."""
        learnt = [
            e
            for e in self.kept
            if e.episode_id not in self.origins and self.split_of[e.episode_id] == "train"
        ]
        parts = weight_parts(
            self.store.con,
            self.treated.rows,
            learnt,
            self.treated.factors,
            self.spec.detectors,
            self.encoder,
            self.config.weights,
            self.progress,
        )
        self.rows, self.arrays = weigh(self.treated.rows, self.treated.arrays, parts)

    def judge(self, gates: Mapping[str, float]) -> list[Passed]:
        """The arrays against the rows, and the gates."""
        check_arrays(self.store, self.name, self.rows, self.arrays)
        return pass_gates(gates, Measures(self.rows, self.treated.conflicts, self.arrays, self.config.seed))

    def publish(self, folder: Path, reward: str | Path | RewardSpec, passed: Iterable[Passed]) -> BuildReport:
        """Shards and rows in place of those of the earlier build, and the report."""
        store, name, config = self.store, self.name, self.config
        earlier = earlier_splits(store, name, config.as_dict())
        hard = difficulty_frame(self.kept)
        manifest = manifest_of(
            store, name, self.kept, self.rows, self.model, config, self.space, self.encoder, self.pca, self.builder
        )  # fmt: skip
        frames = {
            "transitions": self.rows,
            "splits": self.splits,
            "near_duplicates": self.near,
            "conflicts": self.treated.conflicts,
            "difficulty": hard,
        }
        files = serving_files(self.pca, self.space)
        if config.curriculum:
            files[STAGES_FILE] = stages_file(self.rows, hard, config.replay_fraction, config.seed)
        with store.transaction():
            replace_rows(store, name, frames, self.left_out, self.failures)
            sealed = write_dataset(folder, self.arrays, manifest, files, config.part_bytes)
            record(store, name, sealed, folder, config, reward)
        formats = {episode.episode_id: episode.format for episode in self.kept}
        of_splits = split_report(self.grouping, self.splits, self.near, self.rows, config.split_by, earlier)
        return BuildReport.of(
            sealed, folder, self.rows, self.treated.conflicts, self.left_out, self.origins, formats, config.augment,
            self.encoder.truncated, of_splits, passed, config.weights.unknown(self.rows),
        )  # fmt: skip


def _augmented(
    episodes: list[Episode], split_of: Mapping[str, str], augmenters: list[Augmenter], seed: int
) -> dict[str, tuple[Episode, Origin]]:
    """The augmented copies of the train split's episodes, by their own id."""
    made: dict[str, tuple[Episode, Origin]] = {}
    for augmenter in augmenters:
        for episode in episodes:
            if split_of[episode.episode_id] != "train":
                continue
            result = augmenter.augment(episode, seed)
            if result is not None:
                origin = Origin(episode.episode_id, list(result.parents), augmenter.name, seed)
                made[result.episode.episode_id] = (result.episode, origin)
    return made


def _augmenters(config: BuildConfig) -> list[Augmenter]:
    if "tool_failure" in config.augment and not config.retryable:
        raise UsageError(
            "tool_failure lets only retryable tools fail, and none is named",
            "name some with --retryable TOOL",
        )
    options: dict[str, dict[str, Any]] = {"tool_failure": {"retryable": config.retryable}}
    return [make_augmenter(name, options.get(name, {})) for name in config.augment]


def _members(
    episodes: Iterable[Episode],
    splits: pl.DataFrame,
    origins: Mapping[str, tuple[Episode, Origin]],
    builder: StateBuilder,
) -> list[Member]:
    """The episodes with their states; an augmented one stands where its parent stands."""
    place = {row[0]: row[1:] for row in splits.select("episode_id", "split", "group_key").iter_rows()}
    members = []
    for episode in sorted(episodes, key=lambda item: item.episode_id):
        origin = origins[episode.episode_id][1] if episode.episode_id in origins else None
        split, group = place[origin.parent_episode_id if origin else episode.episode_id]
        members.append(Member(episode, split, group, builder.symbols(episode), origin))
    return members


def _encode(
    store: Store,
    members: list[Member],
    rows: pl.DataFrame,
    space: ActionSpace,
    encoder: Encoder,
    config: BuildConfig,
    progress: Tick | None,
) -> tuple[dict[str, SplitArrays], Pca, StateBuilder]:
    """Texts to vectors (each once), PCA fitted on what the train split says, and the arrays of each split."""
    symbols = StateBuilder(config.state, space, config.text_size)
    if not any(member.split == "train" for member in members):
        raise UsageError("the train split is empty", "ingest more episodes, or choose another --seed")
    texts = {split: symbols.texts(_states(members, split)) for split in SPLITS}
    vectors = embed(store.con, encoder, set().union(*texts.values()), progress)
    pca = fit_pca(vectors.select(texts["train"]), config.text_size)
    builder = StateBuilder(config.state, space, pca.size)
    reduced = vectors.map(pca.apply)
    arrays = {}
    for split in SPLITS:
        chosen = [member for member in members if member.split == split]
        arrays[split] = split_arrays(
            rows.filter(pl.col("split") == split),
            [len(member.episode.steps) for member in chosen],
            [member.group for member in chosen],
            builder.vectors(list(_states(members, split)), reduced),
            space,
        )
    return arrays, pca, builder


def _states(members: Iterable[Member], split: str) -> list[State]:
    return [state for member in members if member.split == split for state in member.states]
