"""Builds a dataset from the store: the one module that knows the order of the steps.

episodes → near-duplicates → splits → proof → augmented copies (train only) → rewards → states → transitions → validation →
vectors → conflicts → weights → gates → shards
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from logforge.core.progress import Tick, silent
from logforge.core.spool import Episodes
from logforge.dataset.actions.arguments import ArgumentSpace
from logforge.dataset.actions.names import renamed, resolve_aliases
from logforge.dataset.actions.texts import action_texts, action_vectors_file
from logforge.dataset.augmentation.augment import Augmenter, make_augmenter
from logforge.dataset.build.broken_rows import check_arrays, set_aside
from logforge.dataset.build.config import BuildConfig
from logforge.dataset.build.conflict_treatment import Settings, treat
from logforge.dataset.build.encoding import encode_texts, observe, reduced_texts
from logforge.dataset.build.exclusion import held_out
from logforge.dataset.build.known_states import KnownStates
from logforge.dataset.build.propensity import PropensityModel, estimate_propensities
from logforge.dataset.build.publication import manifest_of, record, replace_rows, serving_files
from logforge.dataset.build.report import BuildReport
from logforge.dataset.build.rows import fit_actions
from logforge.dataset.build.selection import chosen, refuse_all_left_out, unlearnable
from logforge.dataset.build.state_digests import StatesId
from logforge.dataset.build.state_rows import StateRows
from logforge.dataset.build.transitions import Member, Origin, lengths_of, split_arrays, transition_rows
from logforge.dataset.conflicts.policy import read_policy
from logforge.dataset.conflicts.rows import decisions_in
from logforge.dataset.quality.gates import Measures, Passed, check_thresholds, pass_gates
from logforge.dataset.quality.transitions import Allowance, validate
from logforge.dataset.states.builder import StateBuilder
from logforge.dataset.states.coverage import thought_leak, window_cut
from logforge.dataset.states.golden import GOLDEN_FILE, GoldenState, digests, golden_file, golden_of
from logforge.dataset.weights.curriculum import STAGES_FILE, difficulty_frame, stages_file
from logforge.dataset.weights.parts import weigh, weight_parts
from logforge.rewards.model import RewardModel
from logforge.rewards.pipeline import load_spec
from logforge.schemas.episode import Episode
from logforge.schemas.errors import UsageError
from logforge.schemas.manifest import Vocabulary
from logforge.schemas.reward import RewardSpec
from logforge.schemas.transition import DRAWN_SPLITS, SPLIT_NAMES
from logforge.shards.reader import ACTION_VECTORS, load_shards, write_dataset
from logforge.splits.assign import assign_splits, grouping_frame
from logforge.splits.duplicates import near_duplicates
from logforge.splits.report import earlier_splits, prove, split_report
from logforge.store.store import Store
from logforge.texts.cache import TextCache
from logforge.texts.encoders import make_encoder
from logforge.texts.pca import Pca

__all__ = ["BuildConfig", "build_dataset", "earlier_vocabulary"]

_STORE_MEMORY = "1GB"
"""What the database may hold of its file and of what is on its way there; it spills what is more."""
_NAME = re.compile(r"[^\W_][\w.-]{0,99}")


def build_dataset(
    store: Store,
    reward: str | Path | RewardSpec,
    *,
    name: str = "default",
    out: str | Path = "datasets",
    config: BuildConfig | None = None,
    vocabulary: Vocabulary | None = None,
    arguments: ArgumentSpace | None = None,
    reduction: Pca | None = None,
    gates: Mapping[str, float] | None = None,
    max_quarantine: str = "0",
    progress: Tick | None = None,
) -> BuildReport:
    """Build dataset `name` from the store's episodes and write it to `out`/`name` and to the store's tables.

    `vocabulary` is that of an earlier manifest whose action ids must stay, `arguments` (earlier_dataset.py) the second level
    whose places must, and `reduction` that of an earlier dataset whose columns must keep their meaning, so that its policies can
    go on; `gates` are thresholds by name (logforge/dataset/quality/gates.py),
    and `max_quarantine` is how many episodes with broken rows may be set aside: a number or a share (`3`, `2%`). Raises
    SpecError for a wrong spec, and CheckFailed when the store holds nothing to learn from, the splits leak, more rows than
    that break a rule of schemas/transition.py, or a gate is not met: then the earlier build stays as it was.
    """
    allowance = Allowance.parse(max_quarantine)
    check_thresholds(gates or {})
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no dataset name", "use up to 100 letters, digits, '-', '_' and '.'")
    spec = reward if isinstance(reward, RewardSpec) else load_spec(reward)
    with store.settings(memory_limit=_STORE_MEMORY):
        kept = vocabulary, arguments, reduction
        build = _Build(store, name, spec, config or BuildConfig(), Path(out), progress, *kept)
        build.split()
        build.score()
        build.make_rows()
        build.validate(allowance)
        build.encode()
        build.estimate()
        build.treat_conflicts()
        build.weigh()
        passed = build.judge(gates or {})
        return build.publish(Path(out) / name, reward, passed)


def earlier_vocabulary(folder: str | Path | None) -> Vocabulary | None:
    """The vocabulary of an earlier dataset folder, whose action ids a new build keeps."""
    return None if folder is None else load_shards(folder, "train", verify=False).manifest.vocabulary


class _Build:
    """A build at work: each step takes what the ones before it made, and adds to `left_out` the episodes it sets aside.

    Episodes and observations lie in files beside the dataset (logforge/core/spool.py); in memory are rows without texts, and some episodes
    at a time.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        spec: RewardSpec,
        config: BuildConfig,
        out: Path,
        progress: Tick | None,
        vocabulary: Vocabulary | None,
        arguments: ArgumentSpace | None,
        reduction: Pca | None,
    ) -> None:
        self.store, self.name, self.spec, self.config = store, name, spec, config
        self.out, self.progress = out, progress or silent
        self.encoder, self.augmenters = make_encoder(config.encoder), _augmenters(config)
        self.conflicts = Settings(config.epsilon, config.near_threshold, read_policy(config.conflicts))
        self.vocabulary, self.arguments, self.reduction = vocabulary, arguments, reduction
        self.origins = dict[str, Origin]()
        self.held_out = held_out(store, config.hold_out)
        self.episodes, self.left_out = chosen(store, config, out)
        self.aliases = resolve_aliases(config.action_aliases, self.episodes, vocabulary)
        self.episodes.spool.tell(lambda episode: renamed(episode, self.aliases))

    def split(self) -> None:
        """Groups, splits, and the proof that nothing crosses them."""
        self.grouping, self.near = grouping_frame(self.episodes), near_duplicates(self.episodes, self.out)
        config = self.config
        self.splits = assign_splits(
            self.grouping, config.seed, config.fractions, self.near, config.split_by, self.held_out
        )
        prove(self.grouping, self.splits, self.near)
        self.place = {
            row[0]: row[1:] for row in self.splits.select("episode_id", "split", "group_key").rows()
        }

    def score(self) -> None:
        """Rewards of the logged episodes, then of augmented copies of what can be learnt from."""
        groups = {name: group for name, (split, group) in self.place.items() if split == "train"}
        self.model = RewardModel.fit(self.spec, self.episodes, groups, self.store.con, self.progress)
        self.rewards = self.model.score(self.episodes)
        self.left_out |= unlearnable(self.episodes, self.rewards)
        self.kept = self.episodes.without(self.left_out)
        if not self.kept:
            refuse_all_left_out(self.left_out)
        copies = self._augmented(groups)
        if copies:
            self.rewards = pl.concat([self.rewards, self.model.score(copies)])
            self.left_out |= unlearnable(copies, self.rewards)
        self.kept = Episodes(copies.spool, (*self.kept.ids, *copies.without(self.left_out).ids))

    def _augmented(self, in_train: Container[str]) -> Episodes:
        """The augmented copies of the train split's episodes; `origins` says what each was made from."""
        for augmenter in self.augmenters:
            for episode in self.kept.only(in_train):
                made = augmenter.augment(episode, self.config.seed)
                if made is not None:
                    origin = Origin(episode.episode_id, list(made.parents), augmenter.name, self.config.seed)
                    self.origins[made.episode.episode_id] = origin
                    self.kept.spool.add(made.episode)
        return Episodes(self.kept.spool, self.origins)

    def _stands(self, episode_id: str) -> tuple[str, str]:
        """The split and the group of an episode; an augmented one stands where its parent stands."""
        origin = self.origins.get(episode_id)
        return self.place[origin.parent_episode_id if origin else episode_id]

    def _members(
        self, episodes: Iterable[Episode], symbols: StateBuilder, known: Container[str] = ()
    ) -> Iterator[Member]:
        """The episodes with their states in symbols, but for those whose states are known."""
        for episode in episodes:
            name = episode.episode_id
            states = [] if name in known else symbols.symbols(episode)
            yield Member(episode, *self._stands(name), states, self.origins.get(name))

    def _look_for_states(self) -> None:
        """The states of what is kept, as far as a dataset of the store has them."""
        splits = {name: self._stands(name)[0] for name in self.kept.ids}
        told = self.config, self.space, self.encoder, self.reduction
        self.states = StatesId.of(self.kept, splits, self._formats(), *told)
        self.known = KnownStates.find(self.store, self.states)
        self.unknown = self.kept.without(self.known.episodes if self.known else ())

    def make_rows(self) -> None:
        """Actions, states in symbols (or their keys, where they are known), and the transitions."""
        in_train = {name for name in self.kept.ids if self._stands(name)[0] == "train"}
        self.space, self.candidates = fit_actions(
            self.store.con, self.config, self.kept, self.kept.only(in_train), self.splits, self.aliases, self.vocabulary,
            self.arguments,
        )  # fmt: skip
        self.symbols = StateBuilder(self.config.state, self.space, self.config.text_size)
        self._look_for_states()
        keys, known = (self.known.keys, self.known.episodes) if self.known else (None, frozenset[str]())
        members = self._members(self.kept, self.symbols, known)
        self.rows = transition_rows(members, self.rewards, self.space, self.spec.gamma, keys)

    def validate(self, allowance: Allowance) -> None:
        """Every rule on every row; episodes that break one are set aside whole, as far as that is allowed."""
        vocabulary = self.space.vocabulary
        known = vocabulary.size, vocabulary.invalid, vocabulary.other
        self.failures = validate(self.rows, self.spec.gamma, *known)
        broken = set_aside(self.store, self.name, self.failures, self.kept, self.origins, allowance)
        self.left_out |= broken
        self.rows = self.rows.filter(~pl.col("episode_id").is_in(list(broken)))
        self.kept = self.kept.without(broken)
        if broken:
            self._look_for_states()

    def encode(self) -> None:
        """Texts to vectors (each once), PCA fitted on what the train split says, and the arrays of each split.

        Where the states are known, their vectors and the PCA are read.
        """
        if not (self.rows["split"] == "train").any():
            raise UsageError("the train split is empty", "ingest more episodes, or choose another --seed")
        self.read_and_made = len(self.kept) - len(self.unknown), len(self.unknown)
        vectors = self._vectors()
        self.arrays = {}
        for split in SPLIT_NAMES if self.held_out else DRAWN_SPLITS:
            rows = self.rows.filter(pl.col("split") == split)
            names, lengths = rows["episode_id"].unique(maintain_order=True).to_list(), lengths_of(rows)
            groups = [self._stands(name)[1] for name in names]
            observations = vectors.observations(names, lengths)
            self.arrays[split] = split_arrays(rows, lengths, groups, observations, self.space)

    def _vectors(self) -> StateRows:
        """The states' vectors, and the PCA."""
        if self.known is None:
            return self._made_vectors(self.reduction)
        if self.unknown:
            return self.known.rows.joined(self._made_vectors(self.known.pca))
        self._reduce_by(self.known.pca)
        return self.known.rows

    def _made_vectors(self, reduction: Pca | None) -> StateRows:
        """Texts to vectors, the PCA where none is given, and the vectors of the states that are not known."""
        cache = TextCache(self.store.con, self.encoder, self.progress)
        used = encode_texts(self._pieces(self.symbols), self.symbols, cache)
        texts, pca = reduced_texts(used, cache, self.config.text_size, self.out, reduction)
        self._reduce_by(pca)
        return observe(self._pieces(self.builder), self.builder, texts, self.out)

    def _pieces(self, symbols: StateBuilder) -> Iterator[Iterator[Member]]:
        return (self._members(episodes, symbols) for episodes in self.unknown.pieces())

    def _reduce_by(self, pca: Pca) -> None:
        self.pca, self.builder = pca, StateBuilder(self.config.state, self.space, pca.size)

    def estimate(self) -> None:
        """The propensities that the log lacks, where they are asked for."""
        self.propensity = PropensityModel.none()
        if self.config.estimate_propensity:
            known = self.space.vocabulary, self.space.policies, self.config.seed
            self.rows, self.arrays, self.propensity = estimate_propensities(self.rows, self.arrays, *known)

    def treat_conflicts(self) -> None:
        """Find the conflicts, and set aside what the policy filters."""
        decisions = decisions_in(self.store.con, self.kept.spool)
        self.treated = treat(self.rows, self.arrays, self.builder.layout(), decisions, self.conflicts)
        self.left_out |= self.treated.left_out
        self.kept = self.kept.without(self.treated.left_out)

    def weigh(self) -> None:
        """The sample weights, as products of their parts."""
        in_train = {name for name, (split, _) in self.place.items() if split == "train"}
        parts = weight_parts(
            self.store.con,
            self.treated.rows,
            self.kept.only(in_train),
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

    def _golden(self) -> tuple[GoldenState, ...]:
        logged = {
            name for name in self.kept.ids if name not in self.origins and self._stands(name)[0] == "train"
        }
        return golden_of(self.store.con, self.kept.only(logged), self.encoder, self.builder, self.pca)

    def publish(self, folder: Path, reward: str | Path | RewardSpec, passed: Iterable[Passed]) -> BuildReport:
        """Shards and rows in place of those of the earlier build, and the report."""
        store, name, config = self.store, self.name, self.config
        earlier = earlier_splits(store, name, config.as_dict())
        hard = difficulty_frame(self.kept)
        manifest = manifest_of(
            store, name, frozenset(self.kept.ids), self.rows, self.model, config, self.space, self.encoder, self.pca,
            self.builder,
        )  # fmt: skip
        frames = {
            "transitions": self.rows,
            "splits": self.splits,
            "state_digests": self.states.digests.filter(pl.col("episode_id").is_in(list(self.kept.ids))),
            "near_duplicates": self.near,
            "conflicts": self.treated.conflicts,
            "difficulty": hard,
            "argument_candidates": self.candidates,
        }
        golden = self._golden()
        texts = action_texts(manifest.actions)
        manifest = msgspec.structs.replace(
            manifest, golden_states=digests(golden), action_texts=texts, propensity_model=self.propensity.as_dict()
        )  # fmt: skip
        files = serving_files(self.pca, self.space) | {
            GOLDEN_FILE: golden_file(golden),
            ACTION_VECTORS: action_vectors_file(store.con, self.encoder, self.pca, texts),
        }
        if config.curriculum:
            files[STAGES_FILE] = stages_file(
                self.rows, hard, config.replay_fraction, config.seed, self.arrays
            )
        with store.transaction():
            replace_rows(store, name, frames, self.left_out, self.failures)
            thoughts = thought_leak(store.con, name)
            window = window_cut(store.con, name, config.state.window_turns)
            manifest = msgspec.structs.replace(manifest, thoughts=thoughts._asdict())
            sealed = write_dataset(folder, self.arrays, manifest, files, config.part_bytes)
            record(store, name, sealed, folder, config, reward, self.states.as_dict())
        of_splits = split_report(
            self.grouping, self.splits, self.near, self.rows, config.split_by, earlier, self.held_out
        )
        return BuildReport.of(
            sealed, folder, self.rows, self.treated.conflicts, self.left_out, self.origins, self._formats(),
            config.augment, self.encoder.truncated, of_splits, passed, config.weights.unknown(self.rows),
            thoughts, window, *self.read_and_made,
        )  # fmt: skip

    def _formats(self) -> dict[str, str]:
        """The format of each episode of the dataset; a copy has its parent's."""
        known = dict(self.grouping.select("episode_id", "format").iter_rows())
        parents = {name: origin.parent_episode_id for name, origin in self.origins.items()}
        return {name: known[parents.get(name, name)] for name in self.kept.ids}


def _augmenters(config: BuildConfig) -> list[Augmenter]:
    if "tool_failure" in config.augment and not config.retryable:
        raise UsageError(
            "tool_failure lets only retryable tools fail, and none is named",
            "name some with --retryable TOOL",
        )
    options: dict[str, dict[str, Any]] = {"tool_failure": {"retryable": config.retryable}}
    return [make_augmenter(name, options.get(name, {})) for name in config.augment]
