"""Builds a dataset from the store: the one module that knows the order of the steps.

episodes → splits → augmented copies (train only) → rewards → states → transitions → validation → conflicts → vectors → shards
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import polars as pl

from logforge.actions import ActionSpace, seen_in
from logforge.augment import Augmenter, make_augmenter
from logforge.build_report import BuildReport, LeftOut
from logforge.conflicts import find_conflicts
from logforge.discover import label_of
from logforge.encoders import Encoder, embed, make_encoder
from logforge.frames import rows_table
from logforge.progress import Tick, silent
from logforge.quality import validate
from logforge.reduce import Pca, fit_pca
from logforge.reward_model import RewardModel
from logforge.rewards import load_spec
from logforge.schemas.episode import Episode
from logforge.schemas.errors import CheckFailed, Problem, UnknownName, UsageError
from logforge.schemas.manifest import EncoderRef, Manifest, SourceRef, Vocabulary
from logforge.schemas.reward import RewardSpec
from logforge.schemas.rules import BROKEN, remedy_of
from logforge.schemas.tables import QUARANTINE
from logforge.schemas.transition import RULES
from logforge.shards import SPLITS, SplitArrays, load_shards, write_dataset
from logforge.splits import assign_splits
from logforge.states import State, StateBuilder, StateConfig
from logforge.store import Store
from logforge.transitions import Member, Origin, split_arrays, transition_rows

_NAME = re.compile(r"[^\W_][\w.-]{0,99}")
PACKAGES = ("logforge", "numpy", "scikit-learn", "sentence-transformers", "torch")
"""Whose versions a manifest names: those that decide the bytes of the vectors."""


@dataclass(frozen=True)
class BuildConfig:
    """What decides a dataset besides the logs and the reward spec. All of it is in the manifest."""

    encoder: str = "minilm"
    text_size: int = 32
    seed: int = 0
    fractions: tuple[float, float, float] = (0.7, 0.15, 0.15)
    augment: tuple[str, ...] = ()
    retryable: tuple[str, ...] = ()
    epsilon: float = 0.5
    exclude_flags: tuple[str, ...] = ()
    state: StateConfig = field(default_factory=StateConfig)

    def as_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {**asdict(self), "state": self.state.to_dict()}


def build_dataset(
    store: Store,
    reward: str | Path | RewardSpec,
    *,
    name: str = "default",
    out: str | Path = "datasets",
    config: BuildConfig | None = None,
    vocabulary: Vocabulary | None = None,
    progress: Tick | None = None,
) -> BuildReport:
    """Build dataset `name` from the store's episodes and write it to `out`/`name` and to the store's tables.

    `vocabulary` is that of an earlier manifest whose action ids must stay. Raises SpecError for a wrong spec and
    CheckFailed when the store holds nothing to learn from or a rule of schemas/transition.py is broken.
    """
    config = config or BuildConfig()
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no dataset name", "use up to 100 letters, digits, '-', '_' and '.'")
    spec = reward if isinstance(reward, RewardSpec) else load_spec(reward)
    encoder, augmenters = make_encoder(config.encoder), _augmenters(config)
    stored = list(store.episodes())
    flagged = _flagged(stored, config.exclude_flags)
    logged = [episode for episode in stored if episode.episode_id not in flagged]
    _check_tools(logged, config.retryable)
    splits = assign_splits(_grouping_frame(logged), config.seed, config.fractions)
    split_of = dict(splits.select("episode_id", "split").iter_rows())
    train = {identifier for identifier, split in split_of.items() if split == "train"}
    model = RewardModel.fit(spec, logged, train, store.con, progress or silent)
    rewards = model.score(logged)
    left_out = flagged | _left_out(logged, rewards)
    usable = [episode for episode in logged if episode.episode_id not in left_out]
    if not usable:
        why = [Problem(f"{n} × {reason}") for reason, n in _reasons(left_out)]
        remedy = "ingest logs first: `logforge ingest LOGS`" if not stored else remedy_of("null_reward")
        raise CheckFailed("no episode can be used", why, remedy)
    origins = _augmented(usable, split_of, augmenters, config.seed)
    augmented = [episode for episode, _ in origins.values()]
    if augmented:
        rewards = pl.concat([rewards, model.score(augmented)])
        left_out |= _left_out(augmented, rewards)
    kept = usable + [episode for episode in augmented if episode.episode_id not in left_out]
    space = ActionSpace.build(map(seen_in, kept), vocabulary)
    members = _members(kept, splits, origins, StateBuilder(config.state, space, config.text_size))
    rows = transition_rows(members, rewards, space, spec.gamma)
    _check(store, name, rows, spec.gamma, space)
    conflicts = find_conflicts(rows, config.epsilon)
    arrays, pca, builder = _encode(store, members, rows, space, encoder, config, progress)
    manifest = _manifest(store, name, kept, rows, model, config, space, encoder, pca, builder)
    folder = Path(out) / name
    with store.transaction():
        _replace(store, name, rows, splits, conflicts, left_out)
        sealed = write_dataset(folder, arrays, manifest, _serving_files(pca, space))
        _record(store, name, sealed, folder, config, reward)
    formats = {episode.episode_id: episode.format for episode in kept}
    return BuildReport.of(
        sealed, folder, rows, conflicts, left_out, origins, formats, config.augment, encoder.truncated
    )


def earlier_vocabulary(folder: str | Path | None) -> Vocabulary | None:
    """The vocabulary of an earlier dataset folder, whose action ids a new build keeps."""
    return None if folder is None else load_shards(folder, "train", verify=False).manifest.vocabulary


def _grouping_frame(episodes: Iterable[Episode]) -> pl.DataFrame:
    names = "episode_id format task_id task group_id session_id user_id parent_episode_id continues_episode_id".split()
    return pl.DataFrame(
        [{name: getattr(episode, name) for name in names} for episode in episodes],
        schema=dict.fromkeys(names, pl.String),
    )


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


def _check_tools(episodes: Iterable[Episode], retryable: Iterable[str]) -> None:
    used = {step.action for episode in episodes for step in episode.steps if step.kind == "tool"}
    for tool in retryable:
        if tool not in used:
            raise UnknownName("tool", tool, sorted(used))


def _flagged(episodes: Iterable[Episode], flags: Iterable[str]) -> dict[str, LeftOut]:
    """Episodes with a message that bears one of the flags; `injection` stands for every `injection:KIND`."""
    wanted = tuple(flags)
    found = {}
    for episode in episodes:
        for message in episode.messages:
            named = next(
                (w for w in wanted for f in message.flags or () if f == w or f.startswith(f"{w}:")), None
            )
            if named is not None:
                reason = f"a message is flagged {named}"
                found[episode.episode_id] = LeftOut("flagged", reason, None, message.locator)
                break
    return found


def _left_out(episodes: Iterable[Episode], rewards: pl.DataFrame) -> dict[str, LeftOut]:
    """Episodes that cannot be learnt from, with the reason: no decision, or a reward that is null."""
    nulls = (
        rewards.filter(pl.col("reward").is_null())
        .group_by("episode_id")
        .agg(pl.col("null_reason").first(), pl.col("step").min())
    )
    missing = {row[0]: (row[1], row[2]) for row in nulls.iter_rows()}
    found = {}
    for episode in episodes:
        if not episode.steps:
            found[episode.episode_id] = LeftOut(
                "no_decision", "the agent decides nothing in it", None, episode.locator
            )
        elif episode.episode_id in missing:
            reason, step = missing[episode.episode_id]
            found[episode.episode_id] = LeftOut("null_reward", reason, step, episode.locator)
    return found


def _reasons(left_out: Mapping[str, LeftOut]) -> list[tuple[str, int]]:
    reasons = [item.reason for item in left_out.values()]
    return sorted((reason, reasons.count(reason)) for reason in set(reasons))


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


def _check(store: Store, name: str, rows: pl.DataFrame, gamma: float, space: ActionSpace) -> None:
    """Every rule on every row; failures go to the quarantine, all at once, and stop the build."""
    failures = validate(rows, gamma, space.vocabulary.size, space.vocabulary.invalid)
    if not len(failures):
        return
    found = failures.to_dicts()
    with store.transaction():
        store.con.execute(
            "DELETE FROM quarantine WHERE dataset = ? AND rule IN (SELECT unnest(?))", [name, list(RULES)]
        )
        store.insert(
            "quarantine",
            rows_table(QUARANTINE, [{**row, "level": "transition", "dataset": name} for row in found]),
        )
    problems = [
        Problem(row["reason"], row["locator"] or row["episode_id"] or "", rule=row["rule"])
        for row in found[:20]
    ]
    raise CheckFailed(f"{len(found)} rows break a rule (all are in `quarantine`)", problems, BROKEN)


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


def _manifest(
    store: Store,
    name: str,
    episodes: Iterable[Episode],
    rows: pl.DataFrame,
    model: RewardModel,
    config: BuildConfig,
    space: ActionSpace,
    encoder: Encoder,
    pca: Pca,
    builder: StateBuilder,
) -> Manifest:
    layout = tuple(builder.layout())
    used = {episode.episode_id for episode in episodes}
    sources = store.con.sql(
        "SELECT e.episode_id, s.sha256, s.format FROM episodes e JOIN sources s USING (source_id)"
    ).fetchall()
    return Manifest(
        dataset=name,
        actions=space.vocabulary.actions,
        layout=layout,
        observation_size=layout[-1].stop,
        gamma=model.spec.gamma,
        spec_hash=model.spec.hash,
        reward=model.record(),
        config=config.as_dict(),
        sources=tuple(
            {SourceRef(sha256, form) for identifier, sha256, form in sources if identifier in used}
        ),
        encoder=EncoderRef(encoder.name, encoder.revision, pca.dim, pca.size),
        mask_kinds=dict(rows.group_by("mask_kind").len().iter_rows()),
        seed=config.seed,
        packages={package: found for package in PACKAGES if (found := _version(package))},
    )


def _serving_files(pca: Pca, space: ActionSpace) -> dict[str, bytes]:
    """What serving needs besides the manifest to build the same states: the reduction, and the tools of each format."""
    return {
        "encoder/pca.npz": pca.to_bytes(),
        "actions.json": (json.dumps(space.to_dict(), indent=2, sort_keys=True) + "\n").encode(),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _replace(
    store: Store,
    name: str,
    rows: pl.DataFrame,
    splits: pl.DataFrame,
    conflicts: pl.DataFrame,
    left_out: Mapping[str, LeftOut],
) -> None:
    """The dataset's rows in the store, in place of those of its earlier build."""
    for table in ("transitions", "splits", "conflicts", "datasets", "quarantine"):
        store.con.execute(f"DELETE FROM {table} WHERE dataset = ?", [name])
    for table, frame in (("transitions", rows), ("splits", splits), ("conflicts", conflicts)):
        store.insert(table, frame.with_columns(dataset=pl.lit(name)))
    store.insert(
        "quarantine",
        rows_table(QUARANTINE, [item.row(name, identifier) for identifier, item in left_out.items()]),
    )


def _record(
    store: Store,
    name: str,
    manifest: Manifest,
    folder: Path,
    config: BuildConfig,
    reward: str | Path | RewardSpec,
) -> None:
    """The dataset in the store's list, with the reward spec's file, on which no hash depends."""
    home = store.path.parent
    file = None if isinstance(reward, RewardSpec) else label_of(Path(reward), home)
    store.con.execute(
        "INSERT INTO datasets BY NAME SELECT ? AS dataset, ? AS hash, ? AS spec_hash, ? AS config, ? AS created_at, ? AS path",
        [
            name,
            manifest.hash,
            manifest.spec_hash,
            json.dumps({**config.as_dict(), "reward": file}, sort_keys=True),
            datetime.now(UTC).replace(tzinfo=None),
            label_of(folder, home),
        ],
    )
