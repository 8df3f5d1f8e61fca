"""A trained policy as a folder that stands alone: a card, plain MLP weights, and rows that prove it loads as it was saved.

    runs/NAME/cql/bundle.json            what the policy is, what data it was made for, golden rows
    runs/NAME/cql/weights.safetensors    w0, b0, w1, b1, …: layers of an MLP with relu between them; behaviour.w0, … likewise

Numpy is enough to run it; torch and d3rlpy are not imported here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from logforge.optional import need
from logforge.schemas.errors import InputError, Mismatch, UsageError
from logforge.schemas.manifest import EncoderRef, FeatureSlice, Manifest, Vocabulary

BUNDLE_VERSION: Final = 2
CARD, WEIGHTS = "bundle.json", "weights.safetensors"
GOLDEN_TOLERANCE: Final = 1e-4
"""How far a golden score may be off (relative, and absolute near 0): float32 sums differ a little by machine."""

_PARTS = ("", "behaviour.")
"""What the names of tensors begin with: the layers that act, and those that tell the behaviour."""

FloatArray = NDArray[np.float32]


class Layer(NamedTuple):
    """One linear layer: `x @ weight.T + bias`."""

    weight: FloatArray
    bias: FloatArray


class Golden(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Observations and the scores that the trainer's own network gave them."""

    observations: list[list[float]]
    scores: list[list[float]]


class PolicyCard(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a policy is and which data it was made for. `kind` says what its scores are; above 0, `threshold` is the share of the
    most likely action's chance that the behaviour must have given an action for it to be taken."""

    algo: str
    kind: Literal["q", "logits"]
    actions: tuple[str, ...]
    layout: tuple[FeatureSlice, ...]
    observation_size: int
    encoder: EncoderRef | None
    encoder_files: dict[str, str]
    gamma: float
    dataset: str
    dataset_hash: str
    spec_hash: str
    golden: Golden
    threshold: float = 0.0
    weights_hash: str = ""
    activation: Literal["relu"] = "relu"
    schema_version: int = BUNDLE_VERSION

    @classmethod
    def of(
        cls,
        manifest: Manifest,
        *,
        algo: str,
        kind: Literal["q", "logits"],
        golden: Golden,
        threshold: float = 0.0,
    ) -> PolicyCard:
        """The card of a policy trained on this manifest's dataset."""
        return cls(
            algo=algo,
            kind=kind,
            actions=manifest.actions,
            layout=manifest.layout,
            observation_size=manifest.observation_size,
            encoder=manifest.encoder,
            encoder_files=_encoder_files(manifest),
            gamma=manifest.gamma,
            dataset=manifest.dataset,
            dataset_hash=manifest.hash,
            spec_hash=manifest.spec_hash,
            golden=golden,
            threshold=threshold,
        )


@dataclass(frozen=True)
class PolicyBundle:
    """A policy that runs: its card, its layers, and those that tell the behaviour, where it keeps to what was done."""

    card: PolicyCard
    layers: tuple[Layer, ...]
    behaviour: tuple[Layer, ...] = ()

    def scores(self, observations: NDArray[Any]) -> FloatArray:
        """One score per action [B, A]: Q (CQL's, which is pessimistic and no value) or logits (cloning)."""
        return self._run(self.layers, observations)

    def _run(self, layers: tuple[Layer, ...], observations: NDArray[Any]) -> FloatArray:
        hidden = np.asarray(observations, dtype=np.float32)
        if hidden.ndim != 2 or hidden.shape[1] != self.card.observation_size:
            expected, remedy = (
                f"[B, {self.card.observation_size}]",
                "encode them with the policy's own StateBuilder",
            )
            raise Mismatch("observations", expected, list(hidden.shape), remedy)
        for layer in layers[:-1]:
            hidden = np.maximum(hidden @ layer.weight.T + layer.bias, 0)
        last = layers[-1]
        return np.asarray(hidden @ last.weight.T + last.bias, dtype=np.float32)

    def act(self, observations: NDArray[Any], masks: NDArray[Any]) -> NDArray[np.int32]:
        """The allowed action with the highest score for each row; never `<invalid>`."""
        return np.asarray(self._masked(observations, masks).argmax(axis=1), dtype=np.int32)

    def probabilities(
        self, observations: NDArray[Any], masks: NDArray[Any], temperature: float | None = None
    ) -> FloatArray:
        """Chances over the allowed actions: softmax of score / temperature.

        Without a temperature, cloning uses 1 (the likeness of the log) and a Q policy 0, which is greedy: all on `act`.
        """
        heat = (1.0 if self.card.kind == "logits" else 0.0) if temperature is None else temperature
        if not 0 <= heat < np.inf:
            raise UsageError(
                f"temperature {temperature} is not a number from 0 up", "0 takes the best action"
            )
        masked = self._masked(observations, masks).astype(np.float64)
        if heat == 0:
            return np.asarray(np.eye(masked.shape[1])[masked.argmax(axis=1)], dtype=np.float32)
        powers = np.exp((masked - masked.max(axis=1, keepdims=True)) / heat)
        return np.asarray(powers / powers.sum(axis=1, keepdims=True), dtype=np.float32)

    def check(self, manifest: Manifest) -> None:
        """Refuse (`Mismatch`) a dataset whose actions, features or encoder are not those the policy was trained on."""
        card = self.card
        pairs: list[tuple[str, object, object]] = [
            ("observation size", card.observation_size, manifest.observation_size),
            ("action vocabulary", list(card.actions), list(manifest.actions)),
            ("feature layout", _shape_of(card.layout), _shape_of(manifest.layout)),
            ("encoder", _encoder_name(card.encoder), _encoder_name(manifest.encoder)),
            ("encoder files", card.encoder_files, _encoder_files(manifest)),
        ]
        for what, expected, found in pairs:
            if expected != found:
                remedy = f"train again on {manifest.dataset!r}, or give the dataset the policy was trained on"
                raise Mismatch(f"{card.algo} policy, {what}", expected, found, remedy)

    def save(self, folder: str | Path) -> Path:
        """Write card and weights; the same policy gives the same bytes."""
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        weights = need("safetensors.numpy", "train").save(dict(self._tensors()))
        (target / WEIGHTS).write_bytes(weights)
        card = msgspec.structs.replace(self.card, weights_hash=_hash(weights))
        text = msgspec.json.format(msgspec.json.encode(card, order="sorted"), indent=1)
        (target / CARD).write_bytes(text + b"\n")
        return target

    def verify(self) -> None:
        """Refuse (`Mismatch`) to run when the golden rows do not come out as the trainer's network had them."""
        golden = self.card.golden
        if not golden.observations:
            return
        expected = np.asarray(golden.scores, dtype=np.float32)
        found = self.scores(np.asarray(golden.observations, dtype=np.float32))
        if expected.shape != found.shape:
            raise Mismatch("golden rows", list(expected.shape), list(found.shape), "train again")
        if not np.allclose(found, expected, rtol=GOLDEN_TOLERANCE, atol=GOLDEN_TOLERANCE):
            worst = float(np.nanmax(np.abs(found - expected)))
            tolerance = f"within {GOLDEN_TOLERANCE:g}"
            raise Mismatch("golden scores", tolerance, f"off by {worst:.3g}", "train again on this machine")

    def _tensors(self) -> Iterator[tuple[str, FloatArray]]:
        for part, layers in zip(_PARTS, (self.layers, self.behaviour), strict=True):
            for place, layer in enumerate(layers):
                yield f"{part}w{place}", np.ascontiguousarray(layer.weight, dtype=np.float32)
                yield f"{part}b{place}", np.ascontiguousarray(layer.bias, dtype=np.float32)

    def _masked(self, observations: NDArray[Any], masks: NDArray[Any]) -> FloatArray:
        scores = self.scores(observations)
        allowed = np.array(masks, dtype=bool)
        if allowed.shape != scores.shape:
            remedy = "give one mask per observation, with a column per action"
            raise Mismatch("masks", list(scores.shape), list(allowed.shape), remedy)
        allowed[:, Vocabulary(self.card.actions).invalid] = False
        if not allowed.any(axis=1).all():
            row = int(np.flatnonzero(~allowed.any(axis=1))[0])
            raise UsageError(f"row {row}: its mask allows no action", "allow at least one valid action")
        if not np.isfinite(scores).all():
            row = int(np.flatnonzero(~np.isfinite(scores).all(axis=1))[0])
            remedy = "look for NaN or infinity in the observation"
            raise UsageError(f"row {row}: the observation gives no finite scores", remedy)
        if self.behaviour:
            allowed &= self._supported(observations, allowed)
        return np.where(allowed, scores, np.float32(-np.inf))

    def _supported(self, observations: NDArray[Any], allowed: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """What the behaviour does often enough beside what it does most."""
        logits = np.where(allowed, self._run(self.behaviour, observations), np.float32(-np.inf))
        found: NDArray[np.bool_] = logits - logits.max(axis=1, keepdims=True) > np.log(self.card.threshold)
        return found


def load_policy(path: str | Path) -> PolicyBundle:
    """The policy in this folder, checked: version, weights, shapes and golden rows."""
    folder = Path(path)
    card = _read_card(folder / CARD)
    try:
        data = (folder / WEIGHTS).read_bytes()
    except OSError as error:
        raise InputError(str(folder / WEIGHTS), "cannot be read", remedy="train again") from error
    if _hash(data) != card.weights_hash:
        raise Mismatch(
            f"{folder / WEIGHTS}: hash",
            card.weights_hash,
            _hash(data),
            "train again: the weights were altered",
        )
    layers, behaviour = _layers(need("safetensors.numpy", "train").load(data), card.threshold > 0)
    for part in filter(None, (layers, behaviour)):
        _check_shapes(part, card, str(folder / WEIGHTS))
    bundle = PolicyBundle(card, layers, behaviour)
    bundle.verify()
    return bundle


def _read_card(path: Path) -> PolicyCard:
    try:
        text = path.read_bytes()
        version = msgspec.json.decode(text, type=_Versioned).schema_version
        if version != BUNDLE_VERSION:
            raise Mismatch(f"{path}: schema version", BUNDLE_VERSION, version, "train again")
        return msgspec.json.decode(text, type=PolicyCard)
    except OSError as error:
        raise InputError(
            str(path), "there is no policy bundle here", remedy="make one: logforge train"
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(str(path), f"not a policy card: {error}", remedy="train again") from error


class _Versioned(msgspec.Struct):
    schema_version: int


def _layers(
    tensors: dict[str, FloatArray], with_behaviour: bool
) -> tuple[tuple[Layer, ...], tuple[Layer, ...]]:
    counts = [sum(name.startswith(f"{part}w") for name in tensors) for part in _PARTS]
    parts = list(zip(_PARTS, counts, strict=True))
    names = {f"{part}{kind}{place}" for part, count in parts for kind in "wb" for place in range(count)}
    if names != set(tensors) or [bool(count) for count in counts] != [True, with_behaviour]:
        raise Mismatch("weights", sorted(names), sorted(tensors), "train again")
    layers, behaviour = (
        tuple(Layer(tensors[f"{part}w{place}"], tensors[f"{part}b{place}"]) for place in range(count))
        for part, count in parts
    )
    return layers, behaviour


def _check_shapes(layers: Sequence[Layer], card: PolicyCard, path: str) -> None:
    width = card.observation_size
    for place, layer in enumerate(layers):
        outputs = len(card.actions) if place == len(layers) - 1 else len(layer.bias)
        if layer.weight.shape != (outputs, width) or layer.bias.shape != (outputs,):
            raise Mismatch(f"{path}: w{place}", [outputs, width], list(layer.weight.shape), "train again")
        if not (np.isfinite(layer.weight).all() and np.isfinite(layer.bias).all()):
            remedy = "train again with another seed or a smaller learning rate"
            raise Mismatch(f"{path}: w{place}, b{place}", "finite numbers", "NaN or infinity", remedy)
        width = outputs


def _encoder_files(manifest: Manifest) -> dict[str, str]:
    """What was fitted on the train split (PCA): other bytes there make other features of the same text."""
    return {name: sum_ for name, sum_ in manifest.checksums.items() if name.startswith("encoder/")}


def _encoder_name(encoder: EncoderRef | None) -> str:
    return "none" if encoder is None else str(msgspec.to_builtins(encoder))


def _shape_of(layout: Sequence[FeatureSlice]) -> str:
    return ", ".join(f"{part.name} {part.start}:{part.stop}" for part in layout)


def _hash(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
