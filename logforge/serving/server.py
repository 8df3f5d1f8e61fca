"""Serving: the states of a dataset for conversations that go on, built by the very code and files that built the dataset.

From a log as far as it goes (`observe`), or event by event (`session`); both are what a build of the log has.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import islice, zip_longest
from pathlib import Path

import numpy as np
import numpy.typing as npt

from logforge.dataset.actions import ActionSpace
from logforge.dataset.states import GOLDEN_FILE, State, StateBuilder, StateConfig, prove, read_golden
from logforge.ingestion.hygiene import Dangers, Hygiene, Redaction, personal_kinds
from logforge.schemas import Episode, Mismatch, UsageError
from logforge.serving.session import Session
from logforge.shards import ACTIONS_FILE, PCA_FILE, check_files, read_manifest
from logforge.texts import ENDPOINT, F32, HashingEncoder, Pca, TextVectors, encoded, is_blank, make_encoder

_NEAR, _FAR = 1e-5, 1e-3
_REMEMBERED = 65_536
"""So many texts' vectors are kept."""


class StateServer:
    """Builds observations as the dataset in `folder` has them. Each distinct text is encoded once and kept (see `_lookup`).

    Raises Mismatch when files of the dataset were changed, when the encoder that is installed is another revision, or when
    the dataset's golden states come out otherwise than in its build. `verify=False` skips the last: it encodes their texts.
    """

    def __init__(self, folder: str | Path, *, verify: bool = True) -> None:
        folder = Path(folder)
        self.manifest = read_manifest(folder)
        if self.manifest.encoder is None:
            raise UsageError(f"the dataset in {folder} was made without an encoder", "build it from a store")
        check_files(folder, self.manifest, (PCA_FILE, ACTIONS_FILE, GOLDEN_FILE))
        self.encoder = make_encoder(self.manifest.config["encoder"])
        made_with = self.manifest.encoder.revision
        if self.encoder.revision != made_with:
            remedy = "install the encoder that the dataset was built with, or build it again"
            raise Mismatch(f"encoder {self.encoder.name}, revision", made_with, self.encoder.revision, remedy)
        self._pca = Pca.load(folder / PCA_FILE)
        space = ActionSpace.from_dict(json.loads((folder / ACTIONS_FILE).read_bytes()))
        config = StateConfig.from_dict(self.manifest.config["state"])
        self.builder = StateBuilder(config, space, self._pca.size)
        self._refuse_unlike()
        self._vectors: dict[str, F32] = {}
        if verify:
            self._prove(folder / GOLDEN_FILE)

    def observe(
        self, episodes: Sequence[Episode], offered: list[str] | None = None
    ) -> tuple[F32, npt.NDArray[np.bool_]]:
        """The state at the end of each of some unfinished episodes, and its mask: what a policy acts on.

        Observations are float32 [episodes, features], masks [episodes, actions]. `offered` are the tools on offer now;
        without it, those of each episode's last decision.
        """
        return self.encode([self.builder.symbols(episode, offered)[-1] for episode in episodes])

    def session(
        self,
        *,
        task: str | None = None,
        format: str | None = None,
        tools: list[str] | None = None,
        redacts: bool = True,
        danger: Iterable[str] = (),
        pii: Iterable[str] = (),
        allow_secret: Iterable[str] = (),
        flag_with: Iterable[str] = (),
    ) -> Session:
        """A new conversation, to be told event by event: the same states without a log, each event at the same cost.

        `task` is what the dataset's episodes have as their task, `tools` those on offer; without a list of them, `format`
        says whose tools are. `redacts=False` leaves secrets in its texts, as `ingest --no-redact` does; `danger`, `pii`,
        `allow_secret` and `flag_with` are those that the logs were ingested with.
        """
        redaction = Redaction(redacts, personal_kinds(pii), tuple(sorted(set(allow_secret))))
        hygiene = Hygiene(redaction, Dangers.of(danger), tuple(flag_with))
        return Session(self.builder, self.encode, task=task, format=format, tools=tools, hygiene=hygiene)

    def encode(self, states: Sequence[State]) -> tuple[F32, npt.NDArray[np.bool_]]:
        """States, of one session or of many, as observations [states, features] and masks [states, actions]."""
        lookup = self._lookup(self.builder.texts(states))
        masks = np.array([self.builder.space.row(state.mask) for state in states], np.bool_)
        return self.builder.vectors(states, lookup), masks.reshape(
            len(states), self.builder.space.vocabulary.size
        )

    def text_vectors(self, texts: Sequence[str]) -> F32:
        """Reduced vectors [texts, columns] of texts, as states have them; zeros for a blank one."""
        found = self._lookup({text for text in texts if not is_blank(text)})
        vectors: F32 = found.matrix[[found.index(text) for text in texts]]
        return vectors

    def _refuse_unlike(self) -> None:
        """Another vocabulary or other columns than the manifest names cannot be told by checksums: the code may be another."""
        told, space = self.manifest, self.builder.space
        for what, expected, found in (
            ("action vocabulary", told.actions, space.vocabulary.actions),
            ("feature layout", told.layout, tuple(self.builder.layout())),
        ):
            if expected != found:
                first, second = next((a, b) for a, b in zip_longest(expected, found) if a != b)
                raise Mismatch(f"{told.dataset}: {what}", first, second, "build the dataset again")

    def _prove(self, file: Path) -> None:
        name = str(file)
        prove(
            read_golden(file.read_bytes(), name),
            self.manifest,
            lambda states: self.encode(states)[0],
            self._tolerance,
            name,
        )

    @property
    def _tolerance(self) -> float:
        """How far a number may be off: 0 is to the bit. An endpoint answers as its service rounds."""
        encoder = self.manifest.config["encoder"]
        return 0.0 if encoder == HashingEncoder.name else _FAR if encoder.startswith(ENDPOINT) else _NEAR

    def _lookup(self, texts: Iterable[str]) -> TextVectors:
        """Each distinct text is encoded once, as long as it is among the `_REMEMBERED` that were used last."""
        wanted = sorted(texts)
        found = {text: self._vectors.pop(text) for text in wanted if text in self._vectors}
        new = [text for text in wanted if text not in found]
        if new:
            found.update(zip(new, self._pca.apply(encoded(self.encoder, new)), strict=True))
        self._vectors.update(found)
        for text in list(islice(self._vectors, max(0, len(self._vectors) - _REMEMBERED))):
            del self._vectors[text]
        blank = np.zeros(self._pca.size, np.float32)
        rows = {text: row for row, text in enumerate(wanted, 1)}
        return TextVectors(rows, np.stack([blank, *(found[text] for text in wanted)]))
