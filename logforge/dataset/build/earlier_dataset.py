"""What a later build keeps of an earlier dataset, so that policies of the one can go on with the other."""

from __future__ import annotations

import json
from pathlib import Path

from logforge.dataset.actions import ArgumentSpace
from logforge.schemas import Mismatch, UsageError, Vocabulary
from logforge.shards import ACTIONS_FILE, PCA_FILE, check_files, load_shards, read_checked, read_manifest
from logforge.texts import Pca, make_encoder


def earlier_vocabulary(folder: str | Path | None) -> Vocabulary | None:
    """The vocabulary of an earlier dataset folder, whose action ids a new build keeps."""
    return None if folder is None else load_shards(folder, "train", verify=False).manifest.vocabulary


def earlier_arguments(folder: str | Path | None) -> ArgumentSpace | None:
    """The second level of actions of an earlier dataset folder, whose places a new build keeps; None where it has none."""
    if folder is None:
        return None
    manifest = read_manifest(folder)
    if not manifest.argument_templates:
        return None
    told = json.loads(read_checked(folder, manifest, ACTIONS_FILE))
    return ArgumentSpace.from_dict(told["arguments"])


def earlier_reduction(folder: str | Path | None, encoder: str) -> Pca | None:
    """The PCA of an earlier dataset folder, for a build with this encoder.

    Raises Mismatch where the encoder is another than the one that the PCA was fitted on.
    """
    if folder is None:
        return None
    manifest = read_manifest(folder)
    if manifest.encoder is None:
        raise UsageError(f"the dataset in {folder} has no text columns", "give --vocabulary instead")
    found = make_encoder(encoder)
    earlier, now = (f"{one.name} {one.revision}" for one in (manifest.encoder, found))
    if earlier != now:
        remedy = f"build with --encoder {manifest.config['encoder']}"
        raise Mismatch(f"encoder of {folder}", earlier, now, remedy)
    check_files(folder, manifest, (PCA_FILE,))
    return Pca.load(Path(folder) / PCA_FILE)
