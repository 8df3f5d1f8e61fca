"""What a later build keeps of an earlier dataset, so that policies of the one can go on with the other."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from logforge.encoders import make_encoder
from logforge.reduce import Pca
from logforge.schemas.errors import Mismatch, UsageError
from logforge.shards import check_files, read_manifest

PCA_FILE: Final = "encoder/pca.npz"


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
