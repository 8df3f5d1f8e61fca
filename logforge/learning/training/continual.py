"""Training on from an earlier policy: its weights to begin with, what holds the new one to it, and earlier data in every batch.

    ewc      elastic weight consolidation (Kirkpatrick et al. 2017): λ/2 Σ F (θ − θ₀)², F of the earlier data (fisher.py), which
             the earlier bundle holds, so that the earlier data need not be there
    kl       λ KL(earlier ‖ new) of the softmax of scores over the actions on offer that the earlier policy knew, on the states of
             the batch (as distillation does: Rusu et al. 2016, Li and Hoiem 2017)
    replay   a share of each batch drawn from the earlier dataset

A coefficient of 0 leaves training as it is without. What has grown since (vocabulary_growth.py) begins fresh: new actions have rows of
their own, new columns weigh nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import numpy as np

from logforge.core import Span
from logforge.learning.policies import (
    CARD,
    FISHER,
    TEMPLATE,
    Layer,
    Layers,
    PolicyBundle,
    forward,
    load_policy,
    stacked,
)
from logforge.learning.training.config import TrainConfig
from logforge.learning.training.experience import Drawn, Mixed, Replay, succeeded
from logforge.learning.training.vocabulary_growth import Growth
from logforge.rewards import possible_returns, returns_to_go
from logforge.schemas import ArgumentTemplate, Manifest, Mismatch, UsageError
from logforge.shards import Shard, load_shards, read_manifest

if TYPE_CHECKING:
    import torch

    from logforge.learning.policies import Network
    from logforge.learning.training.learners import Fit

EVERY: Final = 20
"""Updates between two looks at how far a policy has diverged."""
KL_RANGE: Final = (2.0**-10, 2.0**10)
"""What an adapted coefficient keeps to, in units of what it began with."""
_NEVER: Final = -1e9
"""For −∞ where a difference of two such numbers has to be 0."""


class Earlier(NamedTuple):
    """An earlier policy, and how what it knew has grown."""

    bundle: PolicyBundle
    growth: Growth


def earlier_policies(config: TrainConfig, name: str, manifest: Manifest) -> list[Earlier]:
    """The policy of this name that each member begins with, from the run that `warm_start` names: that of its own seed where
    there is one, else the first. None where the run has no such policy.

    Raises Mismatch where it was made for other features, ids or layers, or learnt otherwise.
    """
    folders = started_from(config, name)
    found = {one: _earlier(one, config, manifest) for one in sorted(set(folders))}
    return [found[one] for one in folders]


def started_from(config: TrainConfig, name: str) -> list[Path]:
    """The folder of the earlier policy that each member begins with; none where all of them begin fresh."""
    if config.warm_start is None:
        return []
    folder = Path(config.warm_start)
    folder = folder.parent if (folder / CARD).is_file() else folder
    if not (folder / name / CARD).is_file():
        return []
    own = [folder / f"{name}-{seed}" for seed in config.seeds]
    return [one if (one / CARD).is_file() else folder / name for one in own]


def check_start(config: TrainConfig, manifest: Manifest) -> None:
    """Refuse, before anything is trained, an earlier policy or dataset that this run cannot go on from."""
    if config.warm_start is not None:
        given = Path(config.warm_start)
        own = given if (given / CARD).is_file() else given / config.algo
        algo = load_policy(own).card.algo
        if algo != config.algo:
            remedy = f"give --algo {algo}, or a policy that {config.algo} trained"
            raise Mismatch(f"{own}: the earlier policy's algorithm", config.algo, algo, remedy)
        earlier_policies(config, config.algo, manifest)
    if config.replay is not None:
        _replayed(config, manifest)


def warm(fit: Fit, earlier: Sequence[Earlier], config: TrainConfig, manifest: Manifest) -> None:
    """Begin with the earlier weights, and hold the new ones to them as the configuration says.

    Networks that act or tell the behaviour are in a bundle; the others (IQL's Q and V) begin fresh.
    """
    if not earlier:
        return
    learner = fit.learner
    parts = {learner.acts: [one.bundle.layers for one in earlier]}
    if learner.behaviour is not None:
        parts[learner.behaviour] = [one.bundle.behaviour for one in earlier]
    for network, members in parts.items():
        fresh = [fit.layers(network, member) for member in range(len(members))]
        triples = zip(earlier, members, fresh, strict=True)
        fit.start(network, [one.growth.layers(layers, new) for one, layers, new in triples])
    if fit.head is not None:
        templates = manifest.argument_templates
        heads = [_head(one.bundle, templates, fit.head.layers(k)) for k, one in enumerate(earlier)]
        fit.head.start(heads)
    if config.ewc or config.kl:
        fit.anchor = Anchor(earlier, fit, config.ewc, config.kl, config.kl_target)


def replay_of(config: TrainConfig, name: str, shard: Shard, later: Replay) -> Replay | Mixed:
    """What batches are drawn from: the split alone, or with a share of the earlier dataset."""
    if config.replay is None or not config.replay_share:
        return later
    old, growth = _replayed(config, shard.manifest)
    arrays = old.only(succeeded(old)) if name == "bc_success" else old
    if not arrays.size:
        return later
    now = list(shard.manifest.argument_templates)
    places = [now.index(item) if item in now else -1 for item in old.manifest.argument_templates]
    invalid = shard.manifest.vocabulary.invalid
    return Mixed(later, Replay(arrays, invalid, later.device, growth, places), config.replay_share)


def reach(config: TrainConfig, shard: Shard) -> Span:
    """The range that returns can lie in, those of replayed episodes included."""
    shards = [shard]
    if config.replay is not None and config.replay_share:
        shards.append(_replayed(config, shard.manifest)[0])
    spans = [
        possible_returns(
            one.rewards, one.terminals, one.timeouts, shard.manifest.gamma, one.manifest.return_range
        )
        for one in shards
    ]
    return Span(min(span.low for span in spans), max(span.high for span in spans))


class Anchor:
    """What holds each member's acting network to the one it began with.

    With a `kl_target` each member's coefficient follows its own divergence, as PPO's penalty does (Schulman et al. 2017,
    arXiv 1707.06347): looked at every EVERY updates, it is doubled where the mean was above 1.5 times the target and halved where it
    was below the target / 1.5, between KL_RANGE times what it began with.
    """

    def __init__(
        self, earlier: Sequence[Earlier], fit: Fit, ewc: float, kl: float, kl_target: float | None = None
    ) -> None:
        import torch

        acts = fit.online[fit.learner.acts]
        self.ewc, self.kl, self.kl_target = ewc, kl, kl_target
        self.coefficients = torch.full((len(earlier),), kl, device=fit.device)
        self._seen: list[torch.Tensor] = []
        self.network: Network = [part.detach().clone() for part in acts]
        self.known = earlier[0].growth.actions
        self.fisher: Network = stacked([_fisher(one, fit) for one in earlier], fit.device) if ewc else []

    def losses(self, acting: Network, batch: Drawn) -> dict[str, torch.Tensor]:
        """The penalties of each member [members], of those whose coefficient is not 0."""
        found = {}
        if self.ewc:
            found["ewc"] = self.ewc / 2 * self._moved(acting)
        if self.kl:
            diverged = self._diverged(acting, batch)
            found["kl"] = self.coefficients * diverged
            self._adapt(diverged.detach())
        return found

    def _adapt(self, diverged: torch.Tensor) -> None:
        """Let the coefficients follow; those of this update are as they were."""
        import torch

        if self.kl_target is None:
            return
        self._seen.append(diverged)
        if len(self._seen) == EVERY:
            mean = torch.stack(self._seen).mean(dim=0)
            factor = torch.ones_like(mean)
            factor[mean > 1.5 * self.kl_target] = 2.0
            factor[mean < self.kl_target / 1.5] = 0.5
            low, high = (self.kl * edge for edge in KL_RANGE)
            self.coefficients = (self.coefficients * factor).clamp(low, high)
            self._seen.clear()

    def _moved(self, acting: Network) -> torch.Tensor:
        parts = zip(self.fisher, acting, self.network, strict=True)
        total: torch.Tensor = sum((sure * (new - old) ** 2).sum(dim=(1, 2)) for sure, new, old in parts)
        return total

    def _diverged(self, acting: Network, batch: Drawn) -> torch.Tensor:
        import torch

        known = batch.known.clone()
        known[:, :, self.known :] = False
        with torch.no_grad():
            before = forward(self.network, batch.observations).masked_fill(~known, _NEVER).log_softmax(dim=2)
        after = forward(acting, batch.observations).masked_fill(~known, _NEVER).log_softmax(dim=2)
        terms = torch.where(known, before.exp() * (before - after), torch.zeros_like(after))
        return (terms.sum(dim=2) * batch.weights).mean(dim=1)


def _earlier(folder: Path, config: TrainConfig, manifest: Manifest) -> Earlier:
    bundle = load_policy(folder)
    growth = Growth.between(bundle.card, manifest, f"warm start from {folder}")
    sizes = tuple(len(layer.bias) for layer in bundle.layers[:-1])
    if sizes != config.hidden:
        remedy = "train with the earlier policy's hidden layers"
        raise Mismatch(f"warm start from {folder}: hidden layers", list(sizes), list(config.hidden), remedy)
    if config.ewc and FISHER not in bundle.extras:
        remedy = "train it again with --backend torch, or use --kl or --replay"
        raise UsageError(f"{folder} does not say how sure its data made its weights (EWC needs that)", remedy)
    return Earlier(bundle, growth)


def _replayed(config: TrainConfig, manifest: Manifest) -> tuple[Shard, Growth]:
    path = str(config.replay)
    old = _earlier_data(path, read_manifest(Path(path)).hash, config.gamma, config.step_cost)
    if old.manifest.spec_hash != manifest.spec_hash:
        remedy = "build the earlier dataset again with the later one's reward spec"
        raise Mismatch(f"{config.replay}: reward spec", manifest.spec_hash, old.manifest.spec_hash, remedy)
    growth = Growth.between(old.manifest, manifest, f"replay of {config.replay}")
    return old, growth


@lru_cache(maxsize=1)
def _earlier_data(path: str, digest: str, gamma: float | None, step_cost: float) -> Shard:
    """The earlier dataset's train split, read once in a run; `digest` tells it from what may lie there later."""
    return rescored(load_shards(path, "train"), gamma, step_cost)


def _fisher(one: Earlier, fit: Fit) -> Layers:
    acts = fit.layers(fit.learner.acts, 0)
    nothing = tuple(Layer(np.zeros_like(layer.weight), np.zeros_like(layer.bias)) for layer in acts)
    return one.growth.layers(one.bundle.extras[FISHER], nothing)


def _head(bundle: PolicyBundle, templates: Sequence[ArgumentTemplate], fresh: Layers) -> Layers:
    """The earlier rows of templates that are still there, else fresh ones."""
    if TEMPLATE not in bundle.extras:
        return fresh
    [old], [new] = bundle.extras[TEMPLATE], fresh
    weight, bias = new.weight.copy(), new.bias.copy()
    for place, item in enumerate(templates):
        if item in bundle.card.templates:
            row = bundle.card.templates.index(item)
            weight[place], bias[place] = old.weight[row], old.bias[row]
    return (Layer(weight, bias),)


def rescored(shard: Shard, gamma: float | None = None, step_cost: float = 0.0) -> Shard:
    """The shard as if its spec had this discount (None: its own) and took `step_cost` off the reward of every step.

    The manifest's γ follows; its range of returns is that of the shard at hand, so pass the train split's on with `like`.
    """
    discount = shard.manifest.gamma if gamma is None else gamma
    if discount == shard.manifest.gamma and not step_cost:
        return shard
    rewards = np.asarray(shard.rewards, np.float64) - step_cost
    returns = returns_to_go(rewards, np.asarray(shard.episode_offsets, np.int64), discount)
    seen = (float(returns.min()), float(returns.max())) if len(returns) else shard.manifest.return_range
    manifest = msgspec.structs.replace(shard.manifest, gamma=discount, return_range=seen)
    return replace(
        shard, rewards=rewards.astype(np.float32), returns=returns.astype(np.float32), manifest=manifest
    )


def like(shard: Shard, train: Shard) -> Shard:
    """The shard with the train split's range of returns in its manifest."""
    manifest = msgspec.structs.replace(shard.manifest, return_range=train.manifest.return_range)
    return replace(shard, manifest=manifest)
