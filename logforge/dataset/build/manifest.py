"""The manifest of a build, and the files that serving needs beside it."""

from __future__ import annotations

import json
from collections.abc import Container
from functools import cache
from importlib.metadata import PackageNotFoundError, version

import polars as pl

from logforge.dataset.actions import ActionSpace
from logforge.dataset.build.config import BuildConfig
from logforge.dataset.states import StateBuilder
from logforge.rewards import RewardModel
from logforge.schemas import EncoderRef, Manifest, SourceRef
from logforge.shards import ACTIONS_FILE, PCA_FILE, read_licences
from logforge.store import Store
from logforge.texts import Encoder, Pca

PACKAGES = (
    "logforge-rl",
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


@cache
def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
