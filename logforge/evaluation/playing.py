"""A run's policies played in a simulator, beside the log, the rule, cloning and online RL: there the truth is counted, not estimated.

All policies meet the same problems and the same luck, so differences are paired. Online RL has what no log can give: it acts and sees
what comes of it. It tells what the simulator would yield to whoever may try things out in it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logforge.core import (
    BaseReport,
    Estimate,
    Lines,
    Tick,
    bracketed,
    noted,
    peak_megabytes,
    picked,
    plain,
    plural,
    silent,
    table,
)
from logforge.evaluation.config import PlayConfig
from logforge.evaluation.episode_metrics import EpisodeMetrics, metrics_of
from logforge.learning.policies import PolicyBundle, load_policy, read_run, run_data
from logforge.schemas import DRAWN_SPLITS, INVALID, Mismatch, UnknownName

if TYPE_CHECKING:
    from logforge.envs import Evaluation, Policy, World
    from logforge.serving import StateServer

BASELINES: Final = ("all", "none")
KINDS: Final = {
    "log": "behaviour, as logged", "rule": "rule by hand", "bc": "imitation", "bc_success": "imitation of successes",
    "online": "online RL",
}  # fmt: skip
OFFLINE: Final = "offline RL"
_HIDDEN: Final = {"it-ops": "cause", "support-escalation": "kind"}
"""The hidden column that says what kind of problem an episode has."""
_STREAM: Final = 1 << 20
"""Added to a seed: problems and luck of what is played are those of no log and no training with that seed."""
_TIMED = 200
"""Decisions whose time is taken, one by one as a live session takes them."""


class Row(NamedTuple):
    """One policy: what kind of policy it is, its metrics, and its difference in success to the clone of the log (None: not paired)."""

    policy: str
    kind: str
    metrics: EpisodeMetrics
    against_bc: Estimate | None

    def as_dict(self) -> dict[str, Any]:
        """As JSON data: the metrics beside the names."""
        return {**picked(self, "policy", "kind", "against_bc"), **plain(self.metrics)}


@dataclass(frozen=True)
class PlayReport(BaseReport):
    """What was played. `notes` say what must be known to read it."""

    run: str
    simulator: str
    episodes: int
    held_out: bool
    seed: int
    rows: tuple[Row, ...]
    notes: tuple[str, ...]

    def lines(self) -> Lines:
        """How the episodes went, what each policy did in them, and on which problems."""
        words = "in wordings that no log has" if self.held_out else "in the wordings of logs"
        yield f"{self.run}: {plural(self.episodes, 'episode')} of {self.simulator} played of each policy, {words}\n"
        yield self._outcomes() + "\n"
        yield self._conduct() + "\n"
        yield self._buckets()
        yield from noted(self.notes)

    def _outcomes(self) -> str:
        header = ("policy", "kind", "success", "against bc", "steps of successes", "mean reward")
        return table(
            header,
            [
                (
                    row.policy, row.kind, bracketed(row.metrics.success, "{:.1%}"),
                    "" if row.against_bc is None else bracketed(row.against_bc, "{:+.1%}"),
                    bracketed(row.metrics.steps_of_successes, "{:.1f}"), bracketed(row.metrics.reward, "{:+.2f}"),
                )
                for row in self.rows
            ],
        )  # fmt: skip

    def _conduct(self) -> str:
        header = (
            "policy",
            "invalid calls",
            "tool entropy, bits",
            "ms a decision",
            "CPU s / 1,000 decisions",
            "peak MB",
        )
        return table(
            header,
            [
                (
                    row.policy, bracketed(row.metrics.invalid_calls, "{:.1%}"), bracketed(row.metrics.tool_entropy, "{:.2f}"),
                    bracketed(row.metrics.decision_ms, "{:.2f}"), *_resources(row.metrics.resources),
                )
                for row in self.rows
            ],
        )  # fmt: skip

    def _buckets(self) -> str:
        played = [row for row in self.rows if row.metrics.buckets]
        names = list(played[0].metrics.buckets) if played else []
        counts = [f"{name} ({played[0].metrics.buckets[name].episodes})" for name in names]
        return table(
            ("success by kind of problem", *counts),
            [
                (row.policy, *(bracketed(row.metrics.buckets[name].success, "{:.0%}") for name in names))
                for row in played
            ],
        )


def play(
    run: str | Path,
    simulator: str,
    *,
    episodes: int = PlayConfig.episodes,
    baselines: str = PlayConfig.baselines,
    held_out: bool = PlayConfig.held_out,
    seed: int = 0,
    progress: Tick = silent,
) -> PlayReport:
    """Play every policy of a run in a simulator; with the baselines also the rule and online RL, and beside them what was logged.

    `held_out` words the episodes as no log does. Raises UnknownName for another simulator, and Mismatch when the run's dataset was
    not made of logs of it.
    """
    from logforge.envs import make
    from logforge.serving import StateServer

    if baselines not in BASELINES:
        raise UnknownName("choice of baselines", baselines, BASELINES)
    folder, world = Path(run), make(simulator)
    record = read_run(folder)
    bundles = {name: load_policy(folder / name) for name in record["policies"]}
    server = StateServer(folder / next(iter(bundles)))
    if server.manifest.actions != (*world.actions, INVALID):
        remedy = f"train on logs of it: logforge simulate {simulator}"
        raise Mismatch(f"{run}: actions", (*world.actions, INVALID), server.manifest.actions, remedy)
    logged = [_logged(record)] if baselines == "all" else []
    table_of = _Table(world, episodes, held_out, _STREAM + seed)
    for number, (name, bundle) in enumerate(bundles.items()):
        progress(number, len(bundles), f"playing {name}")
        table_of.add_served(name, server, bundle)
    notes = []
    if baselines == "all":
        table_of.add("rule", "rule")
        notes.append(table_of.add_online(seed, progress))
    rows = (*logged, *table_of.rows())
    return PlayReport(str(run), simulator, episodes, held_out, seed, rows, tuple(notes))


class _Table:
    """Policies played on the same episodes of one world."""

    def __init__(self, world: World, episodes: int, held_out: bool, seed: int) -> None:
        self.world, self.episodes, self.held_out, self.seed = world, episodes, held_out, seed
        self.found: dict[str, tuple[Evaluation, EpisodeMetrics]] = {}

    def add(self, name: str, policy: Policy | str) -> None:
        """Play a policy."""
        from logforge.envs import evaluate_policy, feature_arrays

        start = time.process_time()
        played = evaluate_policy(self.world, policy, self.episodes, self.seed, held_out=self.held_out)
        spent = time.process_time() - start
        arrays = feature_arrays(played.rollout, 1.0)
        metrics = metrics_of([arrays], (*self.world.actions, INVALID), self._buckets(played))
        used = {"cpu_s_per_1000_decisions": 1000 * spent / arrays.size}
        if (peak := peak_megabytes()) is not None:
            used["peak_mb"] = peak
        untimed = Estimate(None, reason="it reads the structured observation, and no text")
        self.found[name] = played, replace(metrics, resources=used, decision_ms=untimed)

    def add_served(self, name: str, server: StateServer, bundle: PolicyBundle) -> None:
        """Play a policy that reads the dialogue, and take the time of its decisions."""
        from logforge.envs import served

        self.add(name, served(server, bundle))
        played, metrics = self.found[name]
        self.found[name] = (
            played,
            replace(metrics, decision_ms=_middle(_times(server, bundle, played, self.held_out))),
        )

    def add_online(self, seed: int, progress: Tick) -> str:
        """Learn in the world itself, and play that. Says what it took."""
        from logforge.envs import EPISODES, play_online

        policy, _ = play_online(self.world, seed=seed, progress=progress)
        self.add("online", policy)
        return f"online (double DQN) played {EPISODES:,} episodes of its own to learn, and sees the structured observation"

    def rows(self) -> list[Row]:
        """A row for each, in order, with the difference to the clone."""
        clone = self.found.get("bc")
        rows = []
        for name, (played, metrics) in self.found.items():
            paired = None
            if clone is not None and name != "bc":
                paired = played.minus(clone[0])
            rows.append(Row(name, KINDS.get(name, OFFLINE), metrics, paired))
        return rows

    def _buckets(self, played: Evaluation) -> dict[str, list[NDArray[np.bool_]]]:
        hidden = played.rollout.states[:, 0, self.world.at[_HIDDEN[self.world.name]]]
        count = int(hidden.max()) + 1
        names = (
            self.world.kinds
            if len(self.world.kinds) >= count
            else [f"kind {number}" for number in range(count)]
        )
        return {names[number]: [hidden == number] for number in range(count) if (hidden == number).any()}


def _logged(record: dict[str, Any]) -> Row:
    """What the log of a run's dataset did, over train, validation and test; copies are left out."""
    shards = [run_data(record, None, split)[0] for split in DRAWN_SPLITS]
    kept = [shard.only(~np.asarray(shard.augmented)) for shard in shards if shard.episode_count]
    return Row("log", KINDS["log"], metrics_of(kept, shards[0].manifest.actions), None)


def _times(server: StateServer, bundle: PolicyBundle, played: Evaluation, held_out: bool) -> Iterator[float]:
    """Milliseconds from what was heard to the decision, in live sessions that replay what was played."""
    from logforge.dataset.states import Decided, events_of
    from logforge.envs import as_episode, script, transcript

    taken = 0
    words = script(played.rollout.world.name, len(played.successes), played.seed, held_out)
    for number in range(len(played.successes)):
        episode = as_episode(played.rollout.world, transcript(played.rollout, words, number))
        session = server.session(task=episode.task, tools=list(played.rollout.world.tools))
        for event in events_of(episode):
            if isinstance(event, Decided):
                start = time.perf_counter()
                bundle.act(*session.observe())
                yield 1000 * (time.perf_counter() - start)
                taken += 1
            session.add(event)
        if taken >= _TIMED:
            return


def _middle(values: Iterator[float]) -> Estimate:
    """The median, and between what 95 % of them lie."""
    found = np.array(list(values))
    low, high = np.percentile(found, (2.5, 97.5))
    return Estimate(float(np.median(found)), float(low), float(high))


def _resources(used: dict[str, float] | None) -> tuple[str, str]:
    if used is None:
        return "—", "—"
    peak = f"{used['peak_mb']:.0f}" if "peak_mb" in used else "—"
    return f"{used['cpu_s_per_1000_decisions']:.2f}", peak
