"""Evaluation of a run on held-out episodes: what each policy is worth by FQE, beside the log and beside cloning.

The verdict is "no better than cloning" unless the 95 % interval of the paired difference to the better of the two clones
lies above 0. What cannot be estimated is a dash with its reason. Where the dataset holds a task family out, all of it is said of that
too (generalisation.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logforge import ope
from logforge.curriculum import StageOutcome, stage_outcomes
from logforge.generalisation import Generalisation, Side, bracketed, compare
from logforge.ope import Estimate, Fitted
from logforge.policy import PolicyBundle, load_policy
from logforge.progress import Tick
from logforge.runs import read_run, run_data
from logforge.schemas.errors import UsageError
from logforge.schemas.transition import HELD_OUT
from logforge.shards import Shard
from logforge.support import Similar, Support, similar_actions
from logforge.tabulate import table
from logforge.training import BC, BC_SUCCESS

CLONES = (BC, BC_SUCCESS)
FEW_EPISODES: Final = 30
SMALL_TRAIN: Final = 500
"""Below about this many train episodes no gain over cloning was measured (docs/design.md, §9)."""
MIN_UPDATES: Final = 100
"""Of a round of FQE: with a handful the value stays where it started, and would look as if it had settled."""
UNSUPPORTED: Final = 0.1
COLLAPSED: Final = 0.9


class PolicyRow(NamedTuple):
    """One policy on the held-out decisions. `like_bc` is the share of decisions on which it agrees with cloning."""

    policy: str
    value: Estimate
    match: Estimate
    like_bc: float | None = None
    support: Support | None = None
    favourite: tuple[str, float] | None = None

    def as_dict(self) -> dict[str, Any]:
        """The row as JSON data."""
        return {
            "policy": self.policy,
            "value": self.value._asdict(),
            "action_match": self.match._asdict(),
            "like_bc": self.like_bc,
            "never_logged": self.support.never_logged if self.support else None,
            "no_similar_state": self.support.no_similar_state if self.support else None,
            "favourite": list(self.favourite) if self.favourite else None,
        }

    def cells(self) -> tuple[str, ...]:
        """The row as text."""
        shares = (
            self.like_bc,
            *((self.support.never_logged, self.support.no_similar_state) if self.support else (None, None)),
        )
        return (
            self.policy,
            bracketed(self.value, "{:.2f}"),
            bracketed(self.match, "{:.0%}"),
            *("—" if share is None else f"{share:.0%}" for share in shares),
        )


class Verdict(NamedTuple):
    """Is the learner better than cloning? None where that cannot be said."""

    better: bool | None
    text: str
    against: str | None = None
    difference: Estimate = Estimate(None)


@dataclass(frozen=True)
class EvaluationReport:
    """What is known of a run's policies from held-out episodes."""

    run: str
    dataset: str
    dataset_hash: str
    split: str
    episodes: int
    complete: int
    decisions: int
    rows: tuple[PolicyRow, ...]
    verdict: Verdict
    caveats: tuple[str, ...]
    settings: dict[str, Any]
    stages: tuple[StageOutcome, ...] = ()
    """The logged outcomes by stage, where the dataset has a curriculum."""
    generalisation: Generalisation | None = None
    """The same policies on the held-out task family, where the dataset has one."""

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON data; what has no number is null, with its reason."""
        verdict = {**self.verdict._asdict(), "difference": self.verdict.difference._asdict()}
        plain = {
            name: getattr(self, name)
            for name in ("run", "dataset", "dataset_hash", "split", "episodes", "complete", "decisions")
        }
        return {
            **plain,
            "policies": [row.as_dict() for row in self.rows],
            "verdict": verdict,
            "caveats": list(self.caveats),
            "settings": self.settings,
            "stages": [stage._asdict() for stage in self.stages],
            "generalisation": self.generalisation.as_dict() if self.generalisation else None,
        }

    def render(self) -> str:
        """The report as text, up to 100 columns wide."""
        size = f"{self.episodes} episodes ({self.complete} complete), {self.decisions} decisions"
        header = ("policy", "value (95 %)", "action match (95 %)", "like bc", "never logged", "no similar")
        lines = [f"{self.dataset} ({self.dataset_hash[:12]}), {self.split}: {size}", ""]
        lines += [table(header, [row.cells() for row in self.rows]), ""]
        for row in self.rows:
            if row.value.reason:
                lines += _wrapped(f"— value of {row.policy}: {row.value.reason}")
            if row.match.reason and row.policy != LOGGED:
                lines += _wrapped(f"— action match of {row.policy}: {row.match.reason}")
        lines += _wrapped(f"verdict: {self.verdict.text}")
        if self.generalisation:
            *lines_of, told = self.generalisation.lines()
            lines += ["", *lines_of, *_wrapped(told)]
        for stage in self.stages:
            success = "—" if stage.success is None else f"{stage.success:.0%}"
            lines.append(
                f"stage {stage.stage}: {stage.episodes} episodes, logged success {success} of {stage.known} known"
            )
        lines += [line for caveat in self.caveats for line in _wrapped(f"caveat: {caveat}")]
        return "\n".join(lines)


LOGGED = "logged"


def evaluate(
    run_path: str | Path,
    *,
    dataset_path: str | Path | None = None,
    split: str = "test",
    members: int = ope.MEMBERS,
    updates: int = ope.UPDATES,
    seed: int = 0,
    progress: Tick | None = None,
) -> EvaluationReport:
    """Estimate a run's policies on held-out episodes.

    Columns: `value` is the discounted return by FQE (for `logged`: the mean over complete episodes); `action match` the
    share of decisions on valid actions where the policy would have done what the log did; `like bc` the share where it
    agrees with cloning; `never logged` and `no similar` the shares that logforge/support.py defines.
    """
    if members < 2 or updates < MIN_UPDATES:
        wrong = f"members = {members}, updates = {updates} cannot be"
        raise UsageError(wrong, f"give at least 2 and {MIN_UPDATES}")
    run = read_run(Path(run_path))
    held, train = run_data(run, dataset_path, split)
    first = run["config"]["seed"]
    names = [name for name, facts in run["policies"].items() if facts["seed"] == first]
    policies = {name: load_policy(Path(run_path) / name) for name in names}
    for policy in policies.values():
        policy.check(held.manifest)
    algo = run["config"]["algo"]
    found = _measure(policies, held, train, members, updates, seed, progress)
    family = None
    if HELD_OUT in held.manifest.splits and split != HELD_OUT:
        other, _ = run_data(run, dataset_path, HELD_OUT)
        # other episodes: with the same seed their resamples would go along with those of `held` for no reason
        out_of_it = _measure(policies, other, train, members, updates, seed + 1, progress)
        family = compare(found.side(split), out_of_it.side(HELD_OUT), algo, BC)
    rows = found.rows
    return EvaluationReport(
        run=str(run_path),
        dataset=held.manifest.dataset,
        dataset_hash=held.manifest.hash,
        split=split,
        episodes=held.episode_count,
        complete=int(held.terminals.sum()),
        decisions=held.size,
        rows=rows,
        verdict=_verdict(algo, found.fits, found.reason, held),
        caveats=tuple(_caveats(run, held, train, rows, split)),
        settings={"members": members, "updates": updates, "seed": seed, "gamma": held.manifest.gamma},
        stages=stage_outcomes(held),
        generalisation=family,
    )


class _Measured(NamedTuple):
    """What is found on one split."""

    held: Shard
    rows: tuple[PolicyRow, ...]
    fits: dict[str, Fitted]
    reason: str

    def side(self, split: str) -> Side:
        values = {row.policy: row.value for row in self.rows}
        matches = {row.policy: row.match for row in self.rows}
        return Side(split, self.held.episode_count, values, matches, self.fits, self.reason)


def _measure(
    policies: Mapping[str, PolicyBundle],
    held: Shard,
    train: Shard,
    members: int,
    updates: int,
    seed: int,
    progress: Tick | None,
) -> _Measured:
    """The rows of the policies on one split, the logged one first."""
    choices = {name: policy.choose(held.observations, held.masks) for name, policy in policies.items()}
    reason = ope.refusal(held)
    fits = {} if reason else _fit_all(held, train, choices, members, updates, seed, progress)
    similar = similar_actions(train, held) if held.size else None
    rows = (_row(name, held, choices, fits.get(name), reason, similar, seed) for name in _in_order(policies))
    return _Measured(held, (_logged_row(held, seed), *rows), fits, reason)


def _fit_all(
    held: Shard,
    train: Shard,
    choices: Mapping[str, NDArray[np.int32]],
    members: int,
    updates: int,
    seed: int,
    progress: Tick | None,
) -> dict[str, Fitted]:
    """FQE of each policy; those that decide alike wherever it matters share one fit."""
    rewards = np.concatenate([train.rewards, held.rewards])
    terminals = np.concatenate([train.terminals, held.terminals])
    span = ope.possible_returns(rewards, terminals, held.manifest.gamma, held.manifest.return_range)
    needed = ope.needed_rows(held)
    fits: dict[str, Fitted] = {}
    done: dict[bytes, Fitted] = {}
    for place, (name, chosen) in enumerate(choices.items()):
        tick = _shifted(progress, place, len(choices), name)
        key = chosen[needed].tobytes()
        if key not in done:
            done[key] = ope.fitted_q(
                held,
                chosen,
                gamma=held.manifest.gamma,
                span=span,
                members=members,
                updates=updates,
                seed=seed,
                progress=tick,
            )
        fits[name] = done[key]
    return fits


def _shifted(progress: Tick | None, place: int, count: int, name: str) -> Tick | None:
    if progress is None:
        return None
    return lambda done, total, note: progress(place * total + done, count * total, f"{name}: {note}")


def _logged_row(held: Shard, seed: int) -> PolicyRow:
    returns = held.returns[held.episode_offsets[:-1]]
    complete = held.terminals[held.episode_offsets[1:] - 1]
    value = ope.bootstrap_mean(returns[complete].astype(np.float64), held.groups[complete], seed=seed)
    if value.reason:
        value = Estimate(None, reason=value.reason.replace(" episodes", " complete episodes", 1))
    return PolicyRow(LOGGED, value, Estimate(None, reason="it is the log itself"))


def _row(
    name: str,
    held: Shard,
    choices: Mapping[str, NDArray[np.int32]],
    fitted: Fitted | None,
    reason: str,
    similar: Similar | None,
    seed: int,
) -> PolicyRow:
    value = fitted.estimate() if fitted else Estimate(None, reason=reason)
    chosen = choices[name][held.observation_rows]
    known = ~np.isin(held.actions, held.manifest.vocabulary.unplayable)
    agree = (chosen == held.actions)[known].astype(np.float64)
    match = ope.bootstrap_mean(agree, held.groups[held.episode_index[known]], seed=seed)
    if similar is None:
        return PolicyRow(name, value, match)
    counts = np.bincount(chosen)
    favourite = held.manifest.actions[int(counts.argmax())], float(counts.max() / held.size)
    like_bc = float((chosen == choices[BC][held.observation_rows]).mean())
    return PolicyRow(name, value, match, like_bc, similar.shares(chosen), favourite)


def _in_order(policies: Mapping[str, PolicyBundle]) -> list[str]:
    """Clones first, the learner last."""
    return sorted(policies, key=lambda name: (name not in CLONES, name))


def _verdict(algo: str, fits: Mapping[str, Fitted], reason: str, held: Shard) -> Verdict:
    size = f"n = {held.episode_count} episodes, {held.size} decisions"
    if algo in CLONES:
        return Verdict(None, f"the run holds cloning only, there is nothing to compare ({size})")
    unknown = [f"{name}: {fit.unsettled}" for name, fit in fits.items() if fit.unsettled]
    if why := reason or "; ".join(unknown):
        text = f"{algo} cannot be compared with cloning: {why} ({size})"
        return Verdict(None, text, difference=Estimate(None, reason=why))
    rival = max((name for name in CLONES if name in fits), key=lambda name: fits[name].values.mean())
    difference = ope.interval(fits[algo].values - fits[rival].values)
    better = difference.low is not None and difference.low > 0
    found = f"{bracketed(difference, '{:+.2f}')} against {rival}"
    text = f"{algo} is {'better' if better else 'no better'} than cloning: {found} ({size})"
    return Verdict(better, text, rival, difference)


def _caveats(
    run: Mapping[str, Any], held: Shard, train: Shard, rows: tuple[PolicyRow, ...], split: str
) -> Iterator[str]:
    """What makes the numbers weaker than they look."""
    if split == "train":
        yield "these episodes were trained on: the numbers flatter"
    if held.manifest.hash != run["dataset"]["hash"]:
        yield "this is not the dataset the run was trained on: some of these episodes may have been in its train split"
    if held.episode_count < FEW_EPISODES:
        yield f"few episodes: {held.episode_count}; intervals from fewer than {FEW_EPISODES} are themselves uncertain"
    cut = held.episode_count - int(held.terminals.sum())
    if cut:
        yield f"{cut} of {held.episode_count} episodes are cut off: `{LOGGED}` leaves them out, FQE bootstraps through"
    if train.episode_count < SMALL_TRAIN:
        yield f"{train.episode_count} train episodes: below about {SMALL_TRAIN} no gain over cloning was measured"
    for name, reason in run.get("left_out", {}).items():
        yield f"{name} is missing: {reason}"
    for row in rows:
        yield from _row_caveats(row, held)


def _row_caveats(row: PolicyRow, held: Shard) -> Iterator[str]:
    if row.support and sum(row.support) > UNSUPPORTED:
        yield (
            f"{sum(row.support):.0%} of {row.policy}'s decisions are not supported by the log; "
            "FQE tends to overrate such a policy"
        )
    logged = np.bincount(held.actions).max() / held.size if held.size else 1.0
    if row.favourite and row.favourite[1] > COLLAPSED > logged:
        action, share = row.favourite
        yield f"{row.policy} repeats one action, {action!r}, in {share:.0%} of its decisions"


def _wrapped(text: str) -> list[str]:
    import textwrap

    return textwrap.wrap(text, 100, subsequent_indent="  ", break_long_words=True)
