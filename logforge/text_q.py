"""Q of a state and an action's text: one network scores any action by its vector, seen in the log or not.

State and vector stand side by side as inputs of an MLP with one output (as DRRN does with actions in words, He et al. 2016). It is
trained as CQL(H) on double DQN (learners.py): every action on offer is scored by the same network, and an action that was not on
offer takes no part.

    FOLDER/text_q.json              the actions with their texts, what data it was trained on, the hash of the other file
    FOLDER/text_q.safetensors       layers, and the vectors of the actions
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from logforge.layers import ACTS, FloatArray, Layer, Layers, check_layers, outputs, parts_of, tensors_of
from logforge.optional import need
from logforge.schemas.errors import InputError, Mismatch, UsageError
from logforge.schemas.manifest import Vocabulary
from logforge.shards import Shard
from logforge.train_config import TrainConfig

if TYPE_CHECKING:
    import torch

    from logforge.experience import Drawn
    from logforge.learners import Rules
    from logforge.networks import Network

CARD: Final = "text_q.json"
WEIGHTS: Final = "text_q.safetensors"
TEXT_Q_VERSION: Final = 1
_VECTORS = "vectors"
_ROWS = 4096


class TextCard(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the network was trained on: `texts` are those of `actions`, `weights_hash` is that of the other file."""

    actions: tuple[str, ...]
    texts: tuple[str, ...]
    observation_size: int
    gamma: float
    dataset: str
    dataset_hash: str
    weights_hash: str = ""
    schema_version: int = TEXT_Q_VERSION


@dataclass(frozen=True, eq=False)
class TextQ:
    """The network: `layers` lead from an observation and a vector to one number; `vectors` [A, K] are those of the card's actions."""

    card: TextCard
    layers: Layers
    vectors: FloatArray

    def scores(self, observations: NDArray[Any], vectors: NDArray[Any] | None = None) -> FloatArray:
        """Q [B, actions] of observations [B, D] and the card's actions, or any others by their vectors [actions, K]. Q is CQL's: it is
        pessimistic and no value."""
        rows = np.asarray(observations, np.float32)
        acts = self.vectors if vectors is None else np.asarray(vectors, np.float32)
        for what, size, found in (
            ("observations", self.card.observation_size, rows),
            ("vectors of actions", self.vectors.shape[1], acts),
        ):
            if found.ndim != 2 or found.shape[1] != size:
                raise Mismatch(what, f"[rows, {size}]", list(found.shape), "encode them with the same server")
        first, size = self.layers[0], rows.shape[1]
        about = acts @ first.weight[:, size:].T
        found = np.empty((len(rows), len(acts)), np.float32)
        for start in range(0, len(rows), _ROWS):
            seen = rows[start : start + _ROWS] @ first.weight[:, :size].T + first.bias
            both = np.maximum(seen[:, None] + about[None], 0).reshape(-1, len(first.bias))
            found[start : start + _ROWS] = outputs(self.layers[1:], both).reshape(len(seen), len(acts))
        return found

    def choose(
        self, observations: NDArray[Any], masks: NDArray[Any], vectors: NDArray[Any] | None = None
    ) -> NDArray[np.int32]:
        """The allowed action with the highest score for each row [B]; of the card's actions, never `<invalid>` or `<other>`."""
        scores, offered = self.scores(observations, vectors), np.array(masks, np.bool_)
        if offered.shape != scores.shape:
            raise Mismatch("masks", list(scores.shape), list(offered.shape), "give a column per action")
        if vectors is None:
            offered[:, Vocabulary(self.card.actions).unplayable] = False
        if not offered.any(axis=1).all():
            row = int(np.flatnonzero(~offered.any(axis=1))[0])
            raise UsageError(f"row {row}: its mask allows no action", "allow at least one valid action")
        return np.asarray(np.where(offered, scores, -np.inf).argmax(axis=1), np.int32)

    def save(self, folder: str | Path) -> Path:
        """Write card and weights; the same network gives the same bytes."""
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        tensors = {**tensors_of({ACTS: self.layers}), _VECTORS: np.ascontiguousarray(self.vectors)}
        weights = need("safetensors.numpy", "train").save(tensors)
        card = msgspec.structs.replace(self.card, weights_hash=_hash(weights))
        text = msgspec.json.format(msgspec.json.encode(card, order="sorted"), indent=1)
        (target / WEIGHTS).write_bytes(weights)
        (target / CARD).write_bytes(text + b"\n")
        return target


def load_text_q(folder: str | Path) -> TextQ:
    """The network in this folder, its hash and shapes checked."""
    card_file, weights_file = Path(folder) / CARD, Path(folder) / WEIGHTS
    try:
        card = msgspec.json.decode(card_file.read_bytes(), type=TextCard)
        weights = weights_file.read_bytes()
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(str(card_file), f"no network over texts: {error}", remedy="train again") from error
    if card.schema_version != TEXT_Q_VERSION:
        raise Mismatch(f"{card_file}: schema version", TEXT_Q_VERSION, card.schema_version, "train again")
    if _hash(weights) != card.weights_hash:
        raise Mismatch(f"{weights_file}: hash", card.weights_hash, _hash(weights), "train again")
    tensors = need("safetensors.numpy", "train").load(weights)
    vectors = tensors.pop(_VECTORS)
    layers = parts_of(tensors)[ACTS]
    check_layers(layers, card.observation_size + vectors.shape[1], 1, f"{weights_file}: ")
    if not len(vectors) == len(card.actions) == len(card.texts):
        raise Mismatch(f"{weights_file}: vectors", len(card.actions), len(vectors), "train again")
    return TextQ(card, layers, vectors)


def train_text_q(
    shard: Shard, texts: Sequence[str], vectors: NDArray[Any], config: TrainConfig | None = None
) -> TextQ:
    """CQL over the texts of the actions, by the first seed of `config`, on one thread of the CPU.

    `texts` and `vectors` [A, K] are those of the manifest's actions (action_text.py). Of `config` the seed, updates or passes, batch
    size, learning rate, annealing, α, target rate, hidden layers and clipping count.
    """
    import torch

    from logforge.experience import Replay
    from logforge.networks import make_network, member_layers
    from logforge.ope import one_thread
    from logforge.torch_training import rules_of

    manifest, acts = shard.manifest, np.ascontiguousarray(vectors, np.float32)
    if acts.ndim != 2 or not len(acts) == len(texts) == shard.action_size:
        found = [len(texts), *acts.shape]
        raise Mismatch("texts and vectors of actions", shard.action_size, found, "give one per action")
    chosen = (config or TrainConfig()).sized(shard.size)
    rules, size = rules_of(chosen, shard), shard.observation_size
    with one_thread():
        generator = torch.Generator().manual_seed(chosen.seed)
        made = make_network((size + acts.shape[1], *chosen.hidden, 1), [generator])
        online = [part.requires_grad_() for part in made]
        followed = [part.detach().clone() for part in online]
        optimiser = torch.optim.Adam(online, lr=chosen.learning_rate)
        batches = Replay(shard, manifest.vocabulary.invalid).batches((chosen.seed,), chosen.batch_size)
        about = torch.from_numpy(acts)
        for update in range(chosen.updates):
            if chosen.anneal:
                for group in optimiser.param_groups:
                    group["lr"] = chosen.learning_rate * (1 - update / chosen.updates)
            loss = _loss(online, followed, next(batches), about, rules)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            with torch.no_grad():
                torch._foreach_lerp_(followed, [part.detach() for part in online], chosen.target_rate)
        layers = tuple(Layer(*layer) for layer in member_layers(online, 0))
    card = TextCard(
        actions=manifest.actions,
        texts=tuple(texts),
        observation_size=size,
        gamma=manifest.gamma,
        dataset=manifest.dataset,
        dataset_hash=manifest.hash,
    )
    return TextQ(card, layers, acts)


def _loss(
    online: Network, followed: Network, batch: Drawn, about: torch.Tensor, rules: Rules
) -> torch.Tensor:
    """Huber error against double DQN's target, and α times how far the log-sum-exp of what was on offer lies above what was done."""
    import torch
    from torch.nn.functional import huber_loss

    from logforge.learners import masked

    scores = _scores(online, batch.observations[0], about)
    taken = scores.gather(1, batch.actions[0][:, None])[:, 0]
    with torch.no_grad():
        later = batch.next_observations[0]
        choice = masked(_scores(online, later, about), batch.next_allowed[0]).argmax(dim=1)
        value = _scores(followed, later, about).gather(1, choice[:, None])[:, 0]
        goal = (batch.rewards[0] + rules.gamma * batch.goes_on[0] * value).clamp(*rules.span)
    gap = masked(scores, batch.known[0]).logsumexp(dim=1) - taken
    error = huber_loss(taken, goal, reduction="none")
    return (batch.weights[0] * (error + rules.alpha * gap)).mean()


def _scores(network: Network, observations: torch.Tensor, about: torch.Tensor) -> torch.Tensor:
    """[rows, actions]: the first layer is applied to states and vectors apart, and their sum is that of both side by side."""
    import torch

    from logforge.networks import forward

    weight, bias, size = network[0][0], network[1][0], observations.shape[1]
    seen, acts = observations @ weight[:size] + bias, about @ weight[size:]
    both = torch.relu(seen[:, None] + acts[None]).reshape(1, -1, weight.shape[1])
    return forward(network[2:], both).reshape(len(observations), len(about))


def _hash(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
