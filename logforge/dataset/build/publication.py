"""What a build leaves behind: the manifest, the files that serving needs, and its rows in the store."""

from __future__ import annotations

import json
from collections.abc import Container, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import polars as pl

from logforge.core.frames import rows_table
from logforge.dataset.actions.vocabulary import ActionSpace
from logforge.dataset.build.broken_rows import quarantine_rows
from logforge.dataset.build.config import BuildConfig
from logforge.dataset.build.report import LeftOut
from logforge.dataset.states.builder import StateBuilder
from logforge.ingestion.sources.discover import label_of
from logforge.rewards.model import RewardModel
from logforge.schemas.manifest import EncoderRef, Manifest, SourceRef
from logforge.schemas.reward import RewardSpec
from logforge.schemas.tables import QUARANTINE
from logforge.shards.card import read_licences
from logforge.shards.files import ACTIONS_FILE, PCA_FILE
from logforge.store.store import Store
from logforge.texts.encoders import Encoder
from logforge.texts.pca import Pca

_TOGETHER = 1 << 16
PACKAGES = (
    "logforge",
    "numpy",
    "onnxruntime",
    "scikit-learn",
    "sentence-transformers",
    "tokenizers",
    "torch",
)
"""Whose versions a manifest names: those that decide the bytes of the vectors."""


def manifest_of(
    store: Store,
    name: str,
    episodes: Container[str],
    rows: pl.DataFrame,
    model: RewardModel,
    config: BuildConfig,
    space: ActionSpace,
    encoder: Encoder,
    pca: Pca,
    builder: StateBuilder,
) -> Manifest:
    """The manifest of a build, without what only the writer of its shards knows. `episodes` are the ids of its episodes."""
    layout = tuple(builder.layout())
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
            {SourceRef(sha256, form) for identifier, sha256, form in sources if identifier in episodes}
        ),
        encoder=EncoderRef(encoder.name, encoder.revision, pca.dim, pca.size),
        mask_kinds=dict(rows.group_by("mask_kind").len().iter_rows()),
        action_aliases=dict(space.vocabulary.aliases),
        other_actions=dict(space.vocabulary.others),
        argument_templates=space.arguments.templates,
        argument_numbers=space.arguments.numbers,
        behaviour_policies=space.policies,
        propensity_kinds=dict(rows.group_by("propensity_kind").len().iter_rows()),
        seed=config.seed,
        packages=package_versions(),
        observation_dtype=config.observation_dtype,
        licences=read_licences(config.licences),
        text_variance=round(float(pca.explained.sum()), 6),
    )


def serving_files(pca: Pca, space: ActionSpace) -> dict[str, bytes]:
    """What serving needs besides the manifest to build the same states: the reduction, and the tools of each format."""
    return {
        PCA_FILE: pca.to_bytes(),
        ACTIONS_FILE: (json.dumps(space.to_dict(), indent=2, sort_keys=True) + "\n").encode(),
    }


def package_versions() -> dict[str, str]:
    """The version of each of PACKAGES that is installed."""
    return {package: found for package in PACKAGES if (found := _version(package))}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


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
