"""What a spec does on logged episodes: whether its return tells success from failure, which failures it pays best, what each
term and layer contributes, and which tools never helped."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from logforge.core import (
    BaseReport,
    Estimate,
    Lines,
    Tick,
    auc,
    auc_estimates,
    bracketed,
    silent,
    table,
    tables_of,
)
from logforge.rewards import score
from logforge.rewards.lint.diff import episode_returns, groups_of, model_of, stored_decisions
from logforge.rewards.lint.trial import paid_terms
from logforge.rewards.lint.world import AGAIN, ASK, BUSY, FAIL, GHOST, STOP, TALK, WORK
from logforge.rewards.sql import Scale, value, when
from logforge.schemas import Episode, RewardSpec, Term
from logforge.store import Store

SHOWN = 3
"""Degenerate episodes of each kind."""
_MOST = 10
"""Rows of a table."""
_WIDE = 160
"""A locator is shown whole."""
_FEWEST = 5
"""So many successes make their length typical."""


class Suspect(NamedTuple):
    """An episode that is paid more than it should be: the kind, its place in the ranking by return, and where it stands."""

    kind: str
    episode_id: str
    rank: int
    total: float
    steps: int
    success: bool | None
    locator: str


class Forced(NamedTuple):
    """An episode that was closed before its time, with what its outcome terms paid all the same."""

    episode_id: str
    success: bool | None
    paid: float
    locator: str


class TermShare(NamedTuple):
    """A term on the logs: its mean sum in an episode, its share of all that is paid and taken, and at how many steps it pays."""

    term: str
    layer: str | None
    mean: float
    share: float
    fires: float


class UselessTool(NamedTuple):
    """A tool that never worked in a successful episode, with its calls and the episodes it is in."""

    tool: str
    calls: int
    episodes: int


@dataclass(frozen=True)
class RewardLogs(BaseReport):
    """The spec on a store's episodes. `advantage` is the AUC of the return less that of length alone."""

    last = ("verdict", "layers")

    episodes: int
    null: int
    known: int
    successes: int
    success_steps: int | None
    auc: Estimate
    length_auc: Estimate
    advantage: Estimate
    shorter_wins: bool
    terms: tuple[TermShare, ...]
    suspects: tuple[Suspect, ...]
    forced: tuple[Forced, ...]
    useless: tuple[UselessTool, ...]
    shares: dict[str, float]
    scales: dict[str, Scale]
    best_failure_beats: float | None
    """The share of successes that are paid less than the best paid failure; None without both kinds."""
    pays_outcome: bool
    """Whether the spec reads the logged outcome itself: its return then tells success by construction."""

    @property
    def verdict(self) -> str:
        """Whether the return says more than the length."""
        if self.advantage.low is None or self.advantage.high is None:
            return f"cannot be said: {self.advantage.reason}"
        if self.advantage.low > 0:
            return "better than length alone"
        return "worse than length alone" if self.advantage.high < 0 else "no better than length alone"

    @property
    def layers(self) -> dict[str, float]:
        """Each layer's share of what is paid and taken; terms in none are the layer ``."""
        found: dict[str, float] = {}
        for item in self.terms:
            found[item.layer or ""] = found.get(item.layer or "", 0.0) + item.share
        return found

    def lines(self) -> Lines:
        """How the return ranks, what pays, and what was found."""
        yield from self._ranking()
        yield ""
        yield from self._contributions()
        yield from self._findings()

    def _ranking(self) -> list[str]:
        direction = "shorter" if self.shorter_wins else "longer"
        return [
            f"on {self.episodes} logged episodes ({self.null} without a reward, {self.known} of known outcome, "
            f"{self.successes} successes, typically of {self.success_steps or '?'} steps):",
            f"return against success: AUC {shown(self.auc)}"
            + (" (the spec pays the logged outcome itself)" if self.pays_outcome else ""),
            f"length against success: AUC {shown(self.length_auc)} ({direction} ones succeed)",
            f"verdict: the return is {self.verdict}"
            + ("" if self.advantage.value is None else f" (difference {shown(self.advantage)})"),
        ]

    def _contributions(self) -> list[str]:
        rows = [(t.term, t.layer, t.mean, f"{t.share:.0%}", f"{t.fires:.0%}") for t in self.terms]
        lines = [table(("term", "layer", "mean per episode", "share", "steps it pays at"), rows)]
        if len(self.layers) > 1:
            parts = [f"{name or 'none'} {share:.0%}" for name, share in self.layers.items()]
            lines.append(f"layers: {', '.join(parts)}")
        return lines

    def _findings(self) -> list[str]:
        """Tables of what was found, each after a blank line."""
        suspects = [(s.kind, s.rank, f"{s.total:.3g}", s.steps, s.success, s.locator) for s in self.suspects]
        forced = [(f.episode_id[:12], f.success, f"{f.paid:.3g}", f.locator) for f in self.forced[:_MOST]]
        useless = [(u.tool, u.calls, u.episodes) for u in self.useless[:_MOST]]
        found: list[tuple[tuple[str, ...], list[Any]]] = [
            (("degenerate, best paid first", "rank", "return", "steps", "success", "where"), suspects),
            ((f"closed too early ({len(self.forced)})", "logged success", "outcome pay", "where"), forced),
            (("tools never in a success", "calls", "episodes"), useless),
        ]
        return [line for head, rows in found if rows for line in ("", table(head, rows, limit=_WIDE))]


def shown(estimate: Estimate) -> str:
    """An estimate with its interval, or why there is none."""
    if estimate.value is None:
        return f"— ({estimate.reason})"
    return bracketed(estimate, "{:.2f}")


def read_logs(store: Store, spec: RewardSpec, seed: int = 0, progress: Tick = silent) -> RewardLogs:
    """Score the stored episodes and look at them. Raises UsageError when the store holds no decision."""
    logged = stored_decisions(store)
    model = model_of(store, spec, logged, seed, progress)
    frame = model.score(logged)
    returns = dict(episode_returns(frame, spec.gamma).filter(pl.col("total").is_not_nan()).iter_rows())
    scored = [episode for episode in logged if episode.episode_id in returns]
    rankings = _rankings(scored, returns, seed)
    wins = [len(episode.steps) for episode in logged if episode.success]
    return RewardLogs(
        episodes=len(logged),
        null=len(logged) - len(scored),
        known=sum(episode.success is not None for episode in logged),
        successes=len(wins),
        success_steps=round(median(wins)) if len(wins) >= _FEWEST else None,
        **rankings._asdict(),
        terms=tuple(_term_shares(spec, frame)),
        suspects=tuple(_suspects(scored, returns)),
        forced=tuple(_forced(spec, logged, frame)),
        useless=tuple(_useless(logged)),
        shares=_habit_shares(logged),
        scales=model.scales,
        best_failure_beats=_beaten(scored, returns),
        pays_outcome=bool(_outcome_terms(spec)),
    )


class _Rankings(NamedTuple):
    auc: Estimate
    length_auc: Estimate
    advantage: Estimate
    shorter_wins: bool


def _rankings(scored: list[Episode], returns: Mapping[str, float], seed: int) -> _Rankings:
    """Returns, and lengths in the direction that suits the logs, against logged success."""
    known = [episode for episode in scored if episode.success is not None]
    if not known:
        none = Estimate(None, reason="no outcome is logged")
        return _Rankings(none, none, none, True)
    won = np.array([bool(episode.success) for episode in known])
    totals = np.array([returns[episode.episode_id] for episode in known])
    lengths = np.array([float(len(episode.messages)) for episode in known])
    group_of = dict(groups_of(known, seed).select("episode_id", "group_key").iter_rows())
    shorter = (auc(-lengths, list(won)) or 0.5) >= 0.5
    baseline = -lengths if shorter else lengths
    groups = [group_of[episode.episode_id] for episode in known]
    found, advantage = auc_estimates([totals, baseline], won, groups, seed)
    return _Rankings(found[0], found[1], advantage, shorter)


def _term_shares(spec: RewardSpec, frame: pl.DataFrame) -> Iterator[TermShare]:
    rows = paid_terms(frame).group_by("term").agg(
        pl.col("value").sum().alias("sum"), pl.col("value").abs().sum().alias("size"), (pl.col("value") != 0).mean().alias("fires"),
    )  # fmt: skip
    found = {name: rest for name, *rest in rows.iter_rows()}
    whole = sum(size for _, size, _ in found.values())
    episodes = frame["episode_id"].n_unique()
    for name in spec.names:
        total, size, fires = found.get(name, (0.0, 0.0, 0.0))
        yield TermShare(
            name, spec.layer_of(name), total / episodes, size / whole if whole else 0.0, fires or 0.0
        )


def _suspects(scored: list[Episode], returns: Mapping[str, float]) -> Iterator[Suspect]:
    """The best paid of the failures, of the shortest tenth and of the most repetitive tenth; successes of those are fair."""
    ranked = sorted(scored, key=lambda episode: (-returns[episode.episode_id], episode.episode_id))
    totals = sorted(returns[episode.episode_id] for episode in scored)
    doubtful = [episode for episode in ranked if not episode.success]
    tenth = max(len(ranked) // 10, 1)
    shortest = sorted(len(episode.steps) for episode in ranked)[:tenth]
    repeats = sorted((_repetition(episode) for episode in ranked), reverse=True)[:tenth]
    kinds = {
        "failed": [episode for episode in doubtful if episode.success is False],
        "shortest": [episode for episode in doubtful if len(episode.steps) <= shortest[-1]]
        if shortest
        else [],
        "repetitive": [episode for episode in doubtful if _repetition(episode) >= max(repeats[-1], 0.1)]
        if repeats
        else [],
    }
    for kind, found in kinds.items():
        for episode in found[:SHOWN]:
            yield Suspect(
                kind, episode.episode_id, 1 + len(totals) - bisect_right(totals, returns[episode.episode_id]), returns[episode.episode_id], len(episode.steps),
                episode.success, episode.locator,
            )  # fmt: skip


def _beaten(scored: list[Episode], returns: Mapping[str, float]) -> float | None:
    wins, losses = (
        [returns[episode.episode_id] for episode in scored if episode.success is kind]
        for kind in (True, False)
    )
    return sum(win < max(losses) for win in wins) / len(wins) if wins and losses else None


def _repetition(episode: Episode) -> float:
    """The share of calls that were made before with the same arguments."""
    calls = [(step.action, step.arguments) for step in episode.steps if step.kind == "tool"]
    return 1 - len(set(calls)) / len(calls) if calls else 0.0


def _forced(spec: RewardSpec, logged: list[Episode], frame: pl.DataFrame) -> Iterator[Forced]:
    """Episodes closed before their time, by the detector `premature_close` with the spec's settings."""
    probe = RewardSpec(
        gamma=1.0,
        terms={"closed": Term(when="premature_close", at="terminal", optional=True)},
        detectors=spec.detectors,
    )
    closed = set(score(probe, tables_of(logged)).filter(pl.col("reward") > 0)["episode_id"])
    outcomes = _outcome_terms(spec)
    paid = (
        paid_terms(frame)
        .filter(pl.col("term").is_in(outcomes))
        .group_by("episode_id")
        .agg(pl.col("value").sum())
    )
    paid_of = dict(paid.iter_rows())
    for episode in logged:
        if episode.episode_id in closed:
            yield Forced(
                episode.episode_id, episode.success, paid_of.get(episode.episode_id) or 0.0, episode.locator
            )


def _outcome_terms(spec: RewardSpec) -> list[str]:
    """The terms that read the logged outcome."""
    read = {name: {*when(term).columns, *value(term).columns} for name, term, _ in spec.entries()}
    return [name for name, columns in read.items() if columns & {"success", "score"}]


def _useless(logged: list[Episode]) -> Iterator[UselessTool]:
    """Tools without a call that worked in any successful episode, most called first; none where no success is logged."""
    helped = {
        s.action
        for episode in logged
        if episode.success
        for s in episode.steps
        if s.result_status in ("ok", "empty")
    }
    calls = Counter(s.action for episode in logged for s in episode.steps if s.kind == "tool")
    within = Counter(
        tool for episode in logged for tool in {s.action for s in episode.steps if s.kind == "tool"}
    )
    if helped:
        yield from (
            UselessTool(tool, n, within[tool]) for tool, n in calls.most_common() if tool not in helped
        )


def _habit_shares(logged: list[Episode]) -> dict[str, float]:
    """How often the logs do what the small world's agent may do."""
    helpful = {
        s.action for episode in logged if episode.success for s in episode.steps if s.result_status == "ok"
    }
    counts = Counter(habit for episode in logged for habit in _habits(episode, helpful))
    whole = sum(counts.values())
    return {habit: counts[habit] / whole for habit in sorted(counts)}


def _habits(episode: Episode, helpful: Collection[str]) -> Iterator[str]:
    seen: set[tuple[str, str]] = set()
    for number, step in enumerate(episode.steps):
        ends = number == len(episode.steps) - 1 and episode.ending == "terminal"
        again = (step.action, step.arguments) in seen
        seen.add((step.action, step.arguments))
        if step.kind != "tool":
            yield STOP if ends else ASK if step.kind == "clarify" else TALK
        elif not step.action_valid:
            yield GHOST
        elif step.result_status in ("error", "timeout", "refused"):
            yield FAIL
        elif again:
            yield AGAIN
        else:
            yield WORK if step.action in helpful or not helpful else BUSY
