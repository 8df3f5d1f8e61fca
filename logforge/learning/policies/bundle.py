"""A trained policy as a folder that stands alone: a card, plain MLP weights, what serving needs, and rows that prove it loads as
it was saved.

    runs/NAME/cql/bundle.json            what the policy is, what data it was made for, golden rows, hashes of the other files
    runs/NAME/cql/weights.safetensors    layers of an MLP with relu between them, part by part (layers.py), and of a network over
                                         texts the vectors of actions and policies (logforge/learning/training/text_q.py)
    runs/NAME/cql/manifest.json          the dataset's, as it was
    runs/NAME/cql/actions.json, encoder/ of a dataset made from a store: its action space and what reduces its vectors
    runs/NAME/cql/golden_states.json     likewise: states that `StateServer` must encode as the build did

`StateServer` (logforge/serving/server.py) takes the folder as it takes that of a dataset. Numpy is enough to run a policy; torch and d3rlpy
are not imported here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from logforge.core import Float32Array, each, need, plain_file
from logforge.learning.policies.card import BUNDLE_VERSION, WEIGHTS, Golden, PolicyCard
from logforge.learning.policies.layers import (
    ACTS,
    BEHAVIOUR,
    TEMPLATE,
    Layer,
    Layers,
    check_parts,
    hidden,
    outputs,
    parts_of,
    tensors_of,
)
from logforge.learning.policies.side_inputs import SideInputs
from logforge.schemas import InputError, Manifest, Mismatch, UsageError, Vocabulary
from logforge.shards import ACTIONS_FILE, MANIFEST, PCA_FILE, Shard, read_checked

__all__ = ["BUNDLE_VERSION", "Decision", "Golden", "Layer", "PolicyBundle", "PolicyCard", "load_policy"]

CARD: Final = "bundle.json"
SERVED: Final[tuple[str, ...]] = (ACTIONS_FILE, PCA_FILE, "golden_states.json")
"""What serving needs of a dataset's folder beside its manifest."""
GOLDEN_TOLERANCE: Final = 1e-4
"""How far a golden score may be off (relative, and absolute near 0): float32 sums differ a little by machine."""


@dataclass(frozen=True, eq=False)
class Decision:
    """What a policy does in one state, and why.

    `probabilities` are its chances over all actions, 0 for what was not allowed; `scores` what its network made of each (Q, CQL's
    pessimistic one, or logits). `support` is the chance that the behaviour, as cloned from the log, gives the action among those
    allowed, and `supported` whether it reaches the card's floor; both None where the bundle holds no clone.
    """

    action: int
    name: str
    probabilities: Float32Array
    scores: Float32Array
    support: float | None
    supported: bool | None
    template: str | None = None
    """That of the arguments, where the action has templates and the policy a head for them."""
    propensity: float = 1.0
    """The chance by which it came to be chosen: 1 of `act`, which takes the best; a log that holds it can be judged by afterwards."""

    def as_dict(self) -> dict[str, Any]:
        """As JSON data."""
        return each(self)


class _Judged(NamedTuple):
    """Scores of observations, and what may be chosen: [rows, actions] each. `offered` leaves `<invalid>` out; `open` also what
    the behaviour hardly does, where the policy keeps to that."""

    scores: Float32Array
    offered: NDArray[np.bool_]
    open: NDArray[np.bool_]

    @property
    def masked(self) -> Float32Array:
        return np.where(self.open, self.scores, np.float32(-np.inf))


@dataclass(frozen=True)
class PolicyBundle:
    """A policy that runs: its card, its layers, and those that clone the behaviour, where it has them.

    `extras` are further parts (layers.py), `files` the bytes of what serving needs, by name, and `side` what a network over texts sees
    beside a state.
    """

    card: PolicyCard
    layers: Layers
    behaviour: Layers = ()
    extras: Mapping[str, Layers] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    side: SideInputs | None = None

    @property
    def parts(self) -> dict[str, Layers]:
        """All stacks of layers, by the names of layers.py."""
        behaviour = {BEHAVIOUR: self.behaviour} if self.behaviour else {}
        return {ACTS: self.layers, **behaviour, **self.extras}

    @property
    def policy_id(self) -> str:
        """What a log is to call it: its algorithm and the first digits of its weights' hash."""
        return f"{self.card.algo}#{(self.card.weights_hash or _hash(self.weights()))[:12]}"

    def scores(self, observations: NDArray[Any]) -> Float32Array:
        """One score per action [B, A]: Q (CQL's, which is pessimistic and no value) or logits (cloning)."""
        rows = self._checked(observations)
        return outputs(self.layers, rows) if self.side is None else self.side.scores(self.layers, rows)

    def choose(self, observations: NDArray[Any], masks: NDArray[Any]) -> NDArray[np.int32]:
        """The allowed action with the highest score for each row [B]; never `<invalid>`."""
        return np.asarray(self._judged(observations, masks).masked.argmax(axis=1), dtype=np.int32)

    def choosable(self, observations: NDArray[Any], masks: NDArray[Any]) -> NDArray[np.bool_]:
        """What `choose` takes the best of [B, A]: what is allowed, and where the card has a threshold only what the behaviour does
        often enough."""
        return self._judged(observations, masks).open

    def act(
        self, observation: NDArray[Any] | Sequence[float], mask: NDArray[Any] | Sequence[bool]
    ) -> Decision:
        """The decision in one state [D] with its mask [A]."""
        return self.decisions(np.asarray(observation)[None], np.asarray(mask)[None])[0]

    def draw(
        self,
        observation: NDArray[Any] | Sequence[float],
        mask: NDArray[Any] | Sequence[bool],
        rng: np.random.Generator,
        *,
        temperature: float | None = None,
        explore: float = 0.0,
    ) -> Decision:
        """A decision drawn by chance: from `probabilities` at a temperature, or, with a chance of `explore`, from all that is allowed.

        Its `propensity` is the chance that it had, its `probabilities` are those it was drawn from.
        """
        if not 0 <= explore <= 1:
            raise UsageError(f"a chance of exploring of {explore}", "give a number from 0 to 1")
        judged = self._judged(np.asarray(observation)[None], np.asarray(mask)[None])
        even = judged.offered[0] / judged.offered[0].sum()
        chances = (1 - explore) * self._chances(judged, temperature)[0].astype(np.float64) + explore * even
        chances /= chances.sum()
        action = int(rng.choice(len(chances), p=chances))
        return self._decided(judged, np.asarray(observation)[None], np.array([action]), chances[None])[0]

    def decisions(self, observations: NDArray[Any], masks: NDArray[Any]) -> list[Decision]:
        """The decision in each of several states [B, D] with masks [B, A]; `choose` gives the actions alone, and faster."""
        judged = self._judged(observations, masks)
        return self._decided(
            judged, observations, judged.masked.argmax(axis=1), self._chances(judged, None), 1.0
        )

    def _decided(
        self,
        judged: _Judged,
        observations: NDArray[Any],
        choices: NDArray[Any],
        chances: Float32Array,
        propensity: float | None = None,
    ) -> list[Decision]:
        """What is told of each choice; without a propensity its chance is one."""
        support, templates = self._support(judged, observations), self.templates(observations, choices)
        found = []
        for row, action in enumerate(map(int, choices)):
            share = None if support is None else float(support[row, action])
            found.append(
                Decision(
                    action=action,
                    name=self.card.actions[action],
                    probabilities=chances[row],
                    scores=judged.scores[row],
                    support=share,
                    supported=None if share is None else share >= self.card.support_floor,
                    template=None if templates[row] < 0 else self.card.templates[templates[row]].template,
                    propensity=float(chances[row, action]) if propensity is None else propensity,
                )
            )
        return found

    def probabilities(
        self, observations: NDArray[Any], masks: NDArray[Any], temperature: float | None = None
    ) -> Float32Array:
        """Chances over the allowed actions [B, A]: softmax of score / temperature.

        Without a temperature, cloning uses 1 (the likeness of the log) and a Q policy 0, which is greedy: all on `choose`.
        """
        return self._chances(self._judged(observations, masks), temperature)

    def support(self, observations: NDArray[Any], masks: NDArray[Any]) -> Float32Array | None:
        """The cloned behaviour's chances over the allowed actions [B, A]; None where the bundle holds no clone."""
        return self._support(self._judged(observations, masks), observations) if self.behaviour else None

    def _support(self, judged: _Judged, observations: NDArray[Any]) -> Float32Array | None:
        if not self.behaviour:
            return None
        logits = outputs(self.behaviour, self._checked(observations))
        return _softmax(np.where(judged.offered, logits, -np.inf))

    def templates(self, observations: NDArray[Any], actions: NDArray[Any]) -> NDArray[np.int32]:
        """The likeliest argument template of each of these actions [B], among its own; −1 where it has none."""
        if not self.card.templates:
            return np.full(len(actions), -1, np.int32)
        vocabulary = Vocabulary(self.card.actions)
        owners = np.array([vocabulary.id(item.action) for item in self.card.templates])
        fitting = owners == np.asarray(actions)[:, None]
        logits = outputs(self.extras[TEMPLATE], hidden(self.layers, self._checked(observations)))
        best = np.where(fitting, logits, -np.inf).argmax(axis=1)
        return np.where(fitting.any(axis=1), best, -1).astype(np.int32)

    def check(self, manifest: Manifest) -> None:
        """Refuse (`Mismatch`) a dataset whose actions, features or encoder are not those the policy was trained on."""
        self.card.check(manifest)

    def weights(self) -> bytes:
        """The file of weights, of the numbers in memory."""
        side = {} if self.side is None else self.side.tensors
        data: bytes = need("safetensors.numpy", "train").save({**tensors_of(self.parts), **side})
        return data

    @property
    def is_intact(self) -> bool:
        """Whether the weights in memory are still, to the bit, those of the file that the card names; a policy that was never saved
        has none to be held against. Takes as long as hashing them."""
        return not self.card.weights_hash or _hash(self.weights()) == self.card.weights_hash

    def save(self, folder: str | Path) -> Path:
        """Write card, weights and what serving needs; the same policy gives the same bytes."""
        target = Path(folder)
        files = {**self.files, WEIGHTS: self.weights()}
        card = msgspec.structs.replace(self.card, files={name: _hash(files[name]) for name in sorted(files)})
        text = msgspec.json.format(msgspec.json.encode(card, order="sorted"), indent=1)
        for name, data in {**files, CARD: text + b"\n"}.items():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).write_bytes(data)
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

    def _checked(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        rows = np.asarray(observations, dtype=np.float32)
        if rows.ndim != 2 or rows.shape[1] != self.card.observation_size:
            expected = f"[B, {self.card.observation_size}]"
            remedy = "encode them with the policy's own StateBuilder"
            raise Mismatch("observations", expected, list(rows.shape), remedy)
        return rows

    def _judged(self, observations: NDArray[Any], masks: NDArray[Any]) -> _Judged:
        scores = self.scores(observations)
        offered = np.array(masks, dtype=bool)
        if offered.shape != scores.shape:
            remedy = "give one mask per observation, with a column per action"
            raise Mismatch("masks", list(scores.shape), list(offered.shape), remedy)
        offered[:, Vocabulary(self.card.actions).unplayable] = False
        if not offered.any(axis=1).all():
            row = int(np.flatnonzero(~offered.any(axis=1))[0])
            raise UsageError(f"row {row}: its mask allows no action", "allow at least one valid action")
        if not np.isfinite(scores).all():
            row = int(np.flatnonzero(~np.isfinite(scores).all(axis=1))[0])
            remedy = "look for NaN or infinity in the observation"
            raise UsageError(f"row {row}: the observation gives no finite scores", remedy)
        likely = self._likely(observations, offered) if self.card.threshold > 0 else offered
        return _Judged(scores, offered, likely)

    def _likely(self, observations: NDArray[Any], offered: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """What the behaviour does often enough beside what it does most."""
        logits = np.where(offered, outputs(self.behaviour, self._checked(observations)), np.float32(-np.inf))
        found: NDArray[np.bool_] = logits - logits.max(axis=1, keepdims=True) > np.log(self.card.threshold)
        return found

    def _chances(self, judged: _Judged, temperature: float | None) -> Float32Array:
        heat = (1.0 if self.card.kind == "logits" else 0.0) if temperature is None else temperature
        if not 0 <= heat < np.inf:
            raise UsageError(
                f"temperature {temperature} is not a number from 0 up", "0 takes the best action"
            )
        masked = judged.masked
        if heat == 0:
            return np.asarray(np.eye(masked.shape[1])[masked.argmax(axis=1)], dtype=np.float32)
        return _softmax(masked.astype(np.float64), heat)


def served_files(shard: Shard) -> dict[str, bytes]:
    """What a bundle holds of the dataset it was trained on, so that it serves without it. Raises Mismatch or InputError where a
    file is not what the manifest says."""
    carried = (name for name in SERVED if name in shard.manifest.checksums)
    files = {name: read_checked(shard.path, shard.manifest, name) for name in carried}
    return {MANIFEST: (shard.path / MANIFEST).read_bytes(), **files}


def load_policy(path: str | Path) -> PolicyBundle:
    """The policy in this folder, checked: version, hashes of its files, shapes, the dataset's manifest and golden rows."""
    folder = Path(path)
    card = _read_card(plain_file(folder, CARD))
    files = {name: _read(plain_file(folder, name), expected) for name, expected in card.files.items()}
    tensors, where = need("safetensors.numpy", "train").load(files.pop(WEIGHTS)), str(folder / WEIGHTS)
    side = SideInputs.taken(tensors, len(card.actions), where)
    parts = parts_of(tensors)
    needed = (ACTS, BEHAVIOUR) if card.threshold > 0 else (ACTS,)
    if missing := [part or "acting" for part in needed if part not in parts]:
        raise Mismatch(where, f"{', '.join(missing)} layers", "none", "train again")
    size, actions = card.observation_size, len(card.actions)
    acting = None if side is None else (size + side.columns, 1)
    check_parts(parts, (size, actions), len(card.templates), where, acting)
    layers, behaviour = parts.pop(ACTS), parts.pop(BEHAVIOUR, ())
    bundle = PolicyBundle(card, layers, behaviour, parts, files, side)
    bundle.verify()
    if MANIFEST in files:
        bundle.check(Manifest.from_json(files[MANIFEST], str(folder / MANIFEST)))
    return bundle


def _read(path: Path, expected: str) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(str(path), "cannot be read", remedy="train again") from error
    if _hash(data) != expected:
        raise Mismatch(f"{path}: hash", expected, _hash(data), "train again: the file was altered")
    return data


def _read_card(path: Path) -> PolicyCard:
    try:
        text = path.read_bytes()
        version = msgspec.json.decode(text, type=_Versioned).schema_version
        if version != BUNDLE_VERSION:
            raise Mismatch(f"{path}: schema version", BUNDLE_VERSION, version, "train again")
        card = msgspec.json.decode(text, type=PolicyCard)
    except OSError as error:
        raise InputError(
            str(path), "there is no policy bundle here", remedy="make one: logforge train"
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(str(path), f"not a policy card: {error}", remedy="train again") from error
    if strange := [name for name in card.files if name not in (WEIGHTS, MANIFEST, *SERVED)]:
        reason = f"it names {', '.join(map(repr, strange))}, which is no file of a policy"
        raise InputError(str(path), reason, remedy="train again", rule="unsafe_file_name")
    if WEIGHTS not in card.files:
        raise InputError(str(path), "it names no weights", remedy="train again")
    return card


class _Versioned(msgspec.Struct):
    schema_version: int


def _softmax(masked: NDArray[Any], heat: float = 1.0) -> Float32Array:
    powers = np.exp((masked - masked.max(axis=1, keepdims=True)) / heat)
    return np.asarray(powers / powers.sum(axis=1, keepdims=True), dtype=np.float32)


def _hash(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
