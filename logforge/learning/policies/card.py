"""What a policy says of itself: the card of a bundle, and what it was made for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec

from logforge.schemas import ArgumentTemplate, EncoderRef, FeatureSlice, Manifest, Mismatch

BUNDLE_VERSION: Final = 3
WEIGHTS: Final = "weights.safetensors"
SUPPORT_FLOOR: Final = 0.05
"""Below this chance of the behaviour's taking it, an action is flagged: seen in fewer than one of twenty such states."""

ScoreKind = Literal["q", "logits"]


class Golden(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Observations and the scores that the trainer's own network gave them."""

    observations: list[list[float]]
    scores: list[list[float]]


class PolicyCard(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a policy is and which data it was made for. `kind` says what its scores are; above 0, `threshold` is the share of the
    most likely action's chance that the behaviour must have given an action for it to be taken. `templates` are those that a second
    head chooses among, none without one, and `policies` those of the log that a network over texts tells apart. `habits` say what it
    does in the states of the train split (None: nobody looked). `files` are the hashes of what the bundle holds besides: weights, and
    what serving needs."""

    algo: str
    kind: ScoreKind
    actions: tuple[str, ...]
    layout: tuple[FeatureSlice, ...]
    observation_size: int
    encoder: EncoderRef | None
    encoder_files: dict[str, str]
    state: dict[str, Any]
    gamma: float
    dataset: str
    dataset_hash: str
    dataset_version: int
    spec_hash: str
    golden: Golden
    templates: tuple[ArgumentTemplate, ...] = ()
    threshold: float = 0.0
    policies: tuple[str, ...] = ()
    habits: Habits | None = None
    support_floor: float = SUPPORT_FLOOR
    files: dict[str, str] = {}
    activation: Literal["relu"] = "relu"
    schema_version: int = BUNDLE_VERSION

    @property
    def weights_hash(self) -> str:
        """The hash of the saved weights; none before a policy is saved."""
        return self.files.get(WEIGHTS, "")

    @classmethod
    def of(
        cls,
        manifest: Manifest,
        *,
        algo: str,
        kind: ScoreKind,
        golden: Golden,
        threshold: float = 0.0,
        two_heads: bool = False,
        policies: tuple[str, ...] = (),
    ) -> PolicyCard:
        """The card of a policy trained on this manifest's dataset; with `two_heads` it chooses argument templates too."""
        return cls(
            algo=algo,
            kind=kind,
            actions=manifest.actions,
            layout=manifest.layout,
            observation_size=manifest.observation_size,
            encoder=manifest.encoder,
            encoder_files=_encoder_files(manifest),
            state=_state_of(manifest),
            gamma=manifest.gamma,
            dataset=manifest.dataset,
            dataset_hash=manifest.hash,
            dataset_version=manifest.schema_version,
            spec_hash=manifest.spec_hash,
            golden=golden,
            templates=manifest.argument_templates if two_heads else (),
            threshold=threshold,
            policies=policies,
        )

    def check(self, manifest: Manifest) -> None:
        """Refuse (`Mismatch`) a dataset whose actions, features or encoder are not those the policy was trained on."""
        for what, expected, found in self._pairs(manifest):
            if expected != found:
                remedy = f"train again on {manifest.dataset!r}, or give the dataset the policy was trained on"
                raise Mismatch(f"{self.algo} policy, {what}", expected, found, remedy)

    def _pairs(self, manifest: Manifest) -> Iterator[tuple[str, object, object]]:
        yield "observation size", self.observation_size, manifest.observation_size
        yield "action vocabulary", manifest.vocabulary.renamed(self.actions), list(manifest.actions)
        yield "feature layout", shape_of(self.layout), shape_of(manifest.layout)
        found = features_of(manifest)
        for name, asked, given in zip(found._fields, self.features, found, strict=True):
            yield name.replace("_", " "), asked, given
        if self.templates:
            yield "argument templates", _named(self.templates), _named(manifest.argument_templates)
        yield "dataset schema", self.dataset_version, manifest.schema_version

    @property
    def features(self) -> Features:
        """What decides the numbers in the columns."""
        return Features(_encoder_name(self.encoder), self.encoder_files, self.state)


class Features(NamedTuple):
    """What decides the numbers in the columns of an observation, whatever the columns are."""

    encoder: str
    encoder_files: dict[str, str]
    state_settings: dict[str, Any]


def features_of(manifest: Manifest) -> Features:
    """Those of a dataset."""
    return Features(_encoder_name(manifest.encoder), _encoder_files(manifest), _state_of(manifest))


def shape_of(layout: Sequence[FeatureSlice]) -> str:
    """A layout in one line."""
    return ", ".join(f"{part.name} {part.start}:{part.stop}" for part in layout)


def _encoder_files(manifest: Manifest) -> dict[str, str]:
    """What was fitted on the train split (PCA): other bytes there make other features of the same text."""
    return {name: sum_ for name, sum_ in manifest.checksums.items() if name.startswith("encoder/")}


def _state_of(manifest: Manifest) -> dict[str, Any]:
    return dict(manifest.config.get("state", {}))


def _named(templates: Sequence[ArgumentTemplate]) -> list[str]:
    return [f"{item.action} {item.template}" for item in templates]


def _encoder_name(encoder: EncoderRef | None) -> str:
    return "none" if encoder is None else str(msgspec.to_builtins(encoder))


class Range(msgspec.Struct, frozen=True):
    """The lowest and the highest number that was seen."""

    low: float
    high: float

    def wider(self, share: float) -> Range:
        """The range with this share of it more on either side."""
        room = share * (self.high - self.low)
        return Range(self.low - room, self.high + room)

    def towards(self, low: float, high: float) -> Range:
        """The range stretched half way to these limits, beyond which no number can lie."""
        return Range((self.low + low) / 2, (self.high + high) / 2)


class Habits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of one policy in `states` states of the train split.

    `entropy` is that of the chances over the allowed actions (softmax of the scores), as a share of the most it can be: 0 all on
    one action, 1 all alike; states with one action have none. `score` is that of the chosen action, `unsupported` the share of
    states whose choice the behaviour hardly ever takes (None: the bundle holds no clone). `runs` are the longest runs of one
    action that an episode of the split has logged, by action, where they are longer than 1.
    """

    states: int
    entropy: Range | None
    score: Range
    unsupported: float | None
    runs: dict[str, int]

    def told(self) -> str:
        """In a line."""
        found = [f"scores {self.score.low:.3g} to {self.score.high:.3g}"]
        found += [f"entropy {self.entropy.low:.2f} to {self.entropy.high:.2f}"] if self.entropy else []
        found += [f"{self.unsupported:.0%} unsupported"] if self.unsupported is not None else []
        return ", ".join(found)
