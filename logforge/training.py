"""Training: a learner and, always beside it, behaviour cloning of all and of the successful episodes, with d3rlpy.

Only the train split is fitted. Validation gives metrics on the way, test is never read. A run is a folder:

    runs/NAME/train.json       configuration, dataset, packages, what was left out and why, wall seconds
    runs/NAME/metrics.jsonl    losses and validation metrics, ten times per policy
    runs/NAME/{cql,bc,bc_success}/   policy bundles

d3rlpy knows neither masks nor sample weights: its targets look at all actions, and masks hold when the policy acts.
"""

from __future__ import annotations

import importlib.metadata
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logforge.arrays import SplitArrays
from logforge.atomic import refuse_foreign, replaced_folder
from logforge.exporters import to_mdp_dataset
from logforge.ope import Span, one_thread, possible_returns
from logforge.optional import import_d3rlpy, need
from logforge.policy import Golden, Layer, PolicyBundle, PolicyCard
from logforge.progress import Tick
from logforge.schemas.errors import UnknownName, UsageError
from logforge.shards import Shard, load_shards
from logforge.tabulate import table

if TYPE_CHECKING:
    import torch

RUN_FILE, METRICS_FILE = "train.json", "metrics.jsonl"
RUN_VERSION: Final = 1
BC, BC_SUCCESS = "bc", "bc_success"
TARGET_UPDATE_INTERVAL: Final = 100
"""d3rlpy's own 8,000 would never renew the target in a run of this length."""
BC_PENALTY: Final = 0.01
"""On large logits. Without it a clone of few episodes grows sure of what it learnt by heart (validation log-likelihood
−5.0 against −2.4 on 27 tau-bench episodes, action match the same); d3rlpy's default of 0.5 evens all chances out."""
_METRIC_POINTS = 10
_GOLDEN_ROWS = 5
_PACKAGES = ("d3rlpy", "logforge", "numpy", "safetensors", "torch")


@dataclass(frozen=True)
class TrainConfig:
    """The settings of a run. CQL's are the preset that was measured (docs/design.md, §9)."""

    algo: str = "cql"
    seed: int = 0
    updates: int = 2000
    batch_size: int = 128
    learning_rate: float = 1e-3
    alpha: float = 1.0
    hidden: tuple[int, ...] = (64, 64)

    def __post_init__(self) -> None:
        if self.algo not in LEARNERS:
            raise UnknownName("algorithm", self.algo, list(LEARNERS))
        wrong = {
            "updates": self.updates < 1,
            "batch_size": self.batch_size < 1,
            "learning_rate": not 0 < self.learning_rate < np.inf,
            "alpha": not 0 <= self.alpha < np.inf,
            "hidden": not self.hidden or min(self.hidden) < 1,
            "seed": not 0 <= self.seed < 2**32,
        }
        for name in (name for name, bad in wrong.items() if bad):
            raise UsageError(f"{name} = {getattr(self, name)} cannot be", "give a positive number")


@dataclass(frozen=True)
class TrainReport:
    """What a run made. `policies` holds each policy's data and last metrics, `left_out` the reason for each absent one."""

    run: str
    dataset: dict[str, str]
    config: dict[str, Any]
    policies: dict[str, dict[str, Any]]
    left_out: dict[str, str]
    notes: tuple[str, ...]
    packages: dict[str, str]
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON data; it is also what `train.json` holds."""
        return {"schema_version": RUN_VERSION, **asdict(self), "notes": list(self.notes)}

    def render(self) -> str:
        """The report as text."""
        header = ("policy", "episodes", "decisions", "loss", "validation match", "validation max Q")
        keys = ("episodes", "transitions", "loss", "validation_match", "validation_max_q")
        rows = [(name, *(facts.get(key) for key in keys)) for name, facts in self.policies.items()]
        lines = [
            f"trained on {self.dataset['name']} ({self.dataset['hash'][:12]}) in {self.seconds:.0f} s: {self.run}",
            "",
        ]
        lines += [table(header, rows), ""]
        lines += [f"left out: {name}: {reason}" for name, reason in self.left_out.items()]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines).rstrip()


def train(
    dataset_path: str | Path,
    *,
    algo: str = "cql",
    out: str | Path,
    seed: int = 0,
    updates: int = 2000,
    batch_size: int = 128,
    learning_rate: float = 1e-3,
    alpha: float = 1.0,
    hidden: tuple[int, ...] = (64, 64),
    progress: Tick | None = None,
) -> TrainReport:
    """Train `algo` and both kinds of cloning on the train split; write the run's folder in place of an earlier run."""
    config = TrainConfig(algo, seed, updates, batch_size, learning_rate, alpha, tuple(hidden))
    import_d3rlpy()
    need("safetensors", "train")
    started, target = time.monotonic(), Path(out)
    refuse_foreign(target, RUN_FILE, "a run")
    shard = load_shards(dataset_path, "train")
    if not shard.size:
        raise UsageError(
            f"the train split of {dataset_path} is empty", "ingest more episodes and build again"
        )
    job = _Job(config, shard, _validation(Path(dataset_path)), progress)
    with replaced_folder(target) as fresh:
        trained = {name: job.fit(name, part, fresh / name) for name, part in job.parts.items()}
        report = TrainReport(
            run=str(target),
            dataset=_origin(shard),
            config=asdict(config),
            policies=trained,
            left_out=job.left_out,
            notes=tuple(_notes(config, shard, job, trained)),
            packages={name: importlib.metadata.version(name) for name in _PACKAGES},
            seconds=round(time.monotonic() - started, 1),
        )
        (fresh / METRICS_FILE).write_text("".join(json.dumps(row) + "\n" for row in job.metrics), "utf-8")
        (fresh / RUN_FILE).write_text(json.dumps(report.as_dict(), indent=1) + "\n", "utf-8")
    return report


class Learner(NamedTuple):
    """A learner of d3rlpy: how to make it, what its scores are, and the network that gives them."""

    make: Callable[[Any, TrainConfig, float], Any]
    kind: Literal["q", "logits"]
    network: Callable[[Any], Any]


def _cql(d3rlpy: Any, config: TrainConfig, gamma: float) -> Any:
    return d3rlpy.algos.DiscreteCQLConfig(
        **_common(d3rlpy, config),
        gamma=gamma,
        alpha=config.alpha,
        target_update_interval=TARGET_UPDATE_INTERVAL,
    ).create(device="cpu:0")


def _bc(d3rlpy: Any, config: TrainConfig, gamma: float) -> Any:
    return d3rlpy.algos.DiscreteBCConfig(**_common(d3rlpy, config), gamma=gamma, beta=BC_PENALTY).create(
        device="cpu:0"
    )


def _common(d3rlpy: Any, config: TrainConfig) -> dict[str, Any]:
    encoder = d3rlpy.models.VectorEncoderFactory(list(config.hidden))
    return {
        "batch_size": config.batch_size,
        "learning_rate": config.learning_rate,
        "encoder_factory": encoder,
    }


LEARNERS: Final = {
    "cql": Learner(_cql, "q", lambda algo: algo.impl.q_function[0]),
    BC: Learner(_bc, "logits", lambda algo: algo.impl.modules.imitator),
}
"""What `algo` can be. Cloning is trained with each of them."""


class _Job:
    """One run at work: the data of each policy, and the metrics gathered so far."""

    def __init__(
        self, config: TrainConfig, shard: Shard, validation: Shard | None, progress: Tick | None
    ) -> None:
        self.config, self.validation, self.progress = config, validation, progress
        self.span = possible_returns(
            shard.rewards, shard.terminals, shard.manifest.gamma, shard.manifest.return_range
        )
        self.parts: dict[str, Shard] = {config.algo: shard, BC: shard}
        self.left_out: dict[str, str] = {}
        self.metrics: list[dict[str, Any]] = []
        good = (shard.success == 1) & shard.terminals[shard.episode_offsets[1:] - 1]
        if good.any():
            self.parts[BC_SUCCESS] = _episodes(shard, good)
        else:
            self.left_out[BC_SUCCESS] = "no complete episode of the train split is marked a success"

    def fit(self, name: str, shard: Shard, folder: Path) -> dict[str, Any]:
        """Train one policy, save its bundle and return its facts."""
        learner = LEARNERS.get(name, LEARNERS[BC])
        with one_thread(), _seeded(self.config.seed):
            for update, losses, algo in self._updates(name, learner, shard):
                bundle = _bundle(name, learner, algo, shard)
                row = {"policy": name, "update": update, **losses, **self._validate(bundle)}
                self.metrics.append(row)
        bundle.verify()
        bundle.save(folder)
        return {"episodes": shard.episode_count, "transitions": shard.size, **row}

    def _updates(
        self, name: str, learner: Learner, shard: Shard
    ) -> Iterator[tuple[int, dict[str, float], Any]]:
        """Train; at ten points on the way, the update, the mean losses since the last point, and the algorithm."""
        buffer = to_mdp_dataset(shard)
        algo = learner.make(import_d3rlpy(), self.config, shard.manifest.gamma)
        algo.build_with_dataset(buffer)
        total, seen = self.config.updates, defaultdict(list)
        place = list(self.parts).index(name)
        for update in range(1, total + 1):
            for loss, value in algo.update(buffer.sample_transition_batch(self.config.batch_size)).items():
                seen[loss].append(value)
            if self.progress is not None:
                self.progress(place * total + update, len(self.parts) * total, name)
            if update == total or update % max(1, total // _METRIC_POINTS) == 0:
                yield update, {loss: float(np.mean(values)) for loss, values in seen.items()}, algo
                seen.clear()

    def _validate(self, bundle: PolicyBundle) -> dict[str, float]:
        held = self.validation
        if held is None:
            return {}
        choices = bundle.act(held.observations, held.masks)
        known = held.actions != held.manifest.vocabulary.invalid
        agree = choices[held.observation_rows] == held.actions
        found = {"validation_match": float(agree[known].mean())} if known.any() else {}
        if bundle.card.kind == "q":
            found |= _q_metrics(bundle.scores(held.observations), choices, held, bundle.card.gamma)
            found |= {"possible_low": self.span.low, "possible_high": self.span.high}
        return found


def _q_metrics(
    scores: NDArray[np.float32], choices: NDArray[np.int32], held: SplitArrays, gamma: float
) -> dict[str, float]:
    rows = held.observation_rows
    best = scores[np.arange(len(scores)), choices]
    goal = held.rewards + gamma * ~held.terminals * best[rows + 1]
    error = (scores[rows, held.actions] - goal) ** 2
    return {
        "validation_td_error": float(error.mean()),
        "validation_mean_q": float(best[rows].mean()),
        "validation_max_q": float(best[rows].max()),
    }


def _bundle(name: str, learner: Learner, algo: Any, shard: Shard) -> PolicyBundle:
    """The trained network as plain layers, with golden rows scored by the network itself."""
    import torch

    network = learner.network(algo)
    rows = np.unique(np.linspace(0, len(shard.observations) - 1, _GOLDEN_ROWS).astype(int))
    observations = np.array(shard.observations[rows], dtype=np.float32)
    with torch.no_grad():
        # Cloning's own logits are shifted to sum to one; the layer's output is the same up to that.
        scores = network._fc(network._encoder(torch.from_numpy(observations))).numpy()
    golden = Golden(observations.tolist(), scores.tolist())
    card = PolicyCard.of(shard.manifest, algo=name, kind=learner.kind, golden=golden)
    return PolicyBundle(card, tuple(_layers(network)))


def _layers(network: torch.nn.Module) -> Iterator[Layer]:
    import torch

    for part in network.modules():
        if isinstance(part, torch.nn.Linear):
            yield Layer(part.weight.detach().numpy().copy(), part.bias.detach().numpy().copy())


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Everything d3rlpy draws from, seeded; the caller's generators go on as if nothing had been drawn."""
    import random

    import torch

    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    import_d3rlpy().seed(seed)
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])


def _episodes(shard: Shard, keep: NDArray[np.bool_]) -> Shard:
    """The same shard with some of its episodes only."""
    steps, rows = (
        np.repeat(keep, np.diff(offsets)) for offsets in (shard.episode_offsets, shard.observation_offsets)
    )
    lengths = np.diff(shard.episode_offsets)[keep]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    by_step = ("actions", "rewards", "terminals", "timeouts", "returns", "propensities", "weights")
    return replace(
        shard,
        **{name: getattr(shard, name)[steps] for name in by_step},
        observations=shard.observations[rows],
        masks=shard.masks[rows],
        success=shard.success[keep],
        groups=shard.groups[keep],
        augmented=shard.augmented[keep],
        episode_offsets=offsets,
        observation_offsets=offsets + np.arange(len(offsets)),
    )


def _validation(folder: Path) -> Shard | None:
    try:
        shard = load_shards(folder, "validation")
    except UnknownName:
        return None
    return shard if shard.size else None


def _origin(shard: Shard) -> dict[str, str]:
    manifest = shard.manifest
    path = str(shard.path.resolve())
    return {
        "name": manifest.dataset,
        "path": path,
        "hash": manifest.hash,
        "spec_hash": manifest.spec_hash,
    }


def _notes(
    config: TrainConfig, shard: Shard, job: _Job, trained: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
    """What a reader of the run has to know beside its numbers."""
    if config.algo == "cql":
        yield from _alpha_note(config.alpha, shard.manifest.return_range)
        yield from _q_note(trained["cql"], job.span)
    if (shard.weights != 1).any():
        yield "sample weights were not used: d3rlpy has no place for them"
    if not np.delete(shard.masks, shard.manifest.vocabulary.invalid, axis=1).all():
        yield "masks hold when a policy acts; d3rlpy's training does not know them"
    if job.validation is None:
        yield "there is no validation split, so no validation metrics"


def _alpha_note(alpha: float, seen: tuple[float, float] | None) -> Iterator[str]:
    """α was measured to suit returns: 0.3 at ±1, 1 at up to 10; between and beyond, the line through both."""
    scale = max(abs(bound) for bound in seen) if seen else 0.0
    if not scale:
        return
    fitting = 0.3 * scale ** np.log10(1 / 0.3)
    if not fitting / 2 <= alpha <= fitting * 2:
        yield (
            f"returns reach {scale:.3g}: alpha {alpha:g} suits returns of another size, about {fitting:.2g} would fit "
            "(choose it on validation)"
        )


def _q_note(facts: Mapping[str, Any], span: Span) -> Iterator[str]:
    highest = facts.get("validation_max_q")
    if highest is not None and highest > span.high:
        yield f"max Q {highest:.3g} is above {span.high:.3g}, the most that a return can be (good runs show this too)"
