"""Serving: the states of a dataset for conversations that go on, built by the very code and files that built the dataset."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from logforge.actions import ActionSpace
from logforge.encoders import F32, TextVectors, encoded, make_encoder
from logforge.reduce import Pca
from logforge.schemas.episode import Episode
from logforge.schemas.errors import Mismatch, UsageError
from logforge.shards import check_files, read_manifest
from logforge.states import StateBuilder, StateConfig

_PCA, _ACTIONS = "encoder/pca.npz", "actions.json"


class StateServer:
    """Builds observations as the dataset in `folder` has them. Each distinct text is encoded once and kept.

    Raises Mismatch when files of the dataset were changed, or when the encoder that is installed is another revision.
    """

    def __init__(self, folder: str | Path) -> None:
        folder = Path(folder)
        self.manifest = read_manifest(folder)
        if self.manifest.encoder is None:
            raise UsageError(f"the dataset in {folder} was made without an encoder", "build it from a store")
        check_files(folder, self.manifest, (_PCA, _ACTIONS))
        self.encoder = make_encoder(self.manifest.config["encoder"])
        made_with = self.manifest.encoder.revision
        if self.encoder.revision != made_with:
            remedy = "install the encoder that the dataset was built with, or build it again"
            raise Mismatch(f"encoder {self.encoder.name}, revision", made_with, self.encoder.revision, remedy)
        self._pca = Pca.load(folder / _PCA)
        space = ActionSpace.from_dict(json.loads((folder / _ACTIONS).read_bytes()))
        config = StateConfig.from_dict(self.manifest.config["state"])
        self._builder = StateBuilder(config, space, self._pca.size)
        self._vectors: dict[str, F32] = {}

    def observe(
        self, episodes: Sequence[Episode], offered: list[str] | None = None
    ) -> tuple[F32, npt.NDArray[np.bool_]]:
        """The state at the end of each of some unfinished episodes, and its mask: what a policy acts on.

        Observations are float32 [episodes, features], masks [episodes, actions]. `offered` are the tools on offer now;
        without it, those of each episode's last decision.
        """
        states = [self._builder.symbols(episode, offered)[-1] for episode in episodes]
        lookup = self._lookup(self._builder.texts(states))
        masks = np.array([self._builder.space.row(state.mask) for state in states], np.bool_)
        return self._builder.vectors(states, lookup), masks

    def _lookup(self, texts: Iterable[str]) -> TextVectors:
        wanted = sorted(texts)
        new = [text for text in wanted if text not in self._vectors]
        if new:
            self._vectors.update(zip(new, self._pca.apply(encoded(self.encoder, new)), strict=True))
        blank = np.zeros(self._pca.size, np.float32)
        rows = {text: row for row, text in enumerate(wanted, 1)}
        return TextVectors(rows, np.stack([blank, *(self._vectors[text] for text in wanted)]))
