"""Which steps an episode owes its outcome to: values of a policy by FQE, and what each method gives every logged step.

`advantage`, Q(s, a) − Σ_b π(b|s) Q(s, b), explains best (docs/returns.md); none of them makes a better policy as a weight.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from logforge import ope
from logforge.arrays import SplitArrays
from logforge.atomic import replaced_file
from logforge.policy import PolicyBundle, load_policy
from logforge.progress import Tick
from logforge.returns import Floats, returns_to_go, time_discounts
from logforge.runs import read_run, run_data
from logforge.schemas.errors import Mismatch, UnknownName, UsageError
from logforge.shards import Shard
from logforge.store import Store
from logforge.tabulate import table
from logforge.targets import targets_of

SHOWN: Final = 5
BY_CLOCK: Final = ("return", "discounted")
"""Methods that can discount by real time: they need no values, and values are fitted with one γ a step."""


@dataclass(frozen=True)
class Values:
    """Values of one policy on a split: V of its N + E observations, Q of its N logged actions, and π/μ of them."""

    policy: str
    states: Floats
    taken: Floats
    ratios: Floats
    """NaN where the log has no propensity."""
    unsettled: str
    """Why the values are weak; empty when the fit has settled."""


def fit_values(
    run: str | Path,
    split: str = "test",
    policy: str = "bc",
    *,
    dataset: str | Path | None = None,
    members: int = ope.MEMBERS,
    updates: int = ope.UPDATES,
    seed: int = 0,
    progress: Tick | None = None,
) -> tuple[Shard, Values]:
    """A split and the values of a run's policy on it, by FQE fitted on the train split.

    `bc`, drawn from its own chances, stands for whoever made the log. Raises UsageError where FQE has too few episodes.
    """
    folder = Path(run)
    record = read_run(folder)
    if policy not in record["policies"]:
        raise UnknownName("policy of the run", policy, list(record["policies"]))
    held, train = run_data(record, dataset, split)
    bundle = load_policy(folder / policy)
    bundle.check(held.manifest)
    gamma, seen = held.manifest.gamma, held.manifest.return_range
    fitted = ope.q_values(
        train,
        bundle.probabilities(train.observations, train.masks),
        held.observations,
        gamma=gamma,
        span=ope.possible_returns(train.rewards, train.terminals, gamma, seen),
        members=members,
        updates=updates,
        seed=seed,
        progress=progress,
    )
    return held, _values(held, bundle, policy, fitted)


def _values(held: SplitArrays, bundle: PolicyBundle, policy: str, fitted: ope.QValues) -> Values:
    chances = bundle.probabilities(held.observations, held.masks).astype(np.float64)
    rows, actions = held.observation_rows, held.actions
    return Values(
        policy,
        states=(chances * fitted.q).sum(axis=1),
        taken=fitted.q[rows, actions],
        ratios=chances[rows, actions] / held.propensities,
        unsettled=fitted.unsettled,
    )


def _advantage(shard: Shard, values: Values, n: int, lam: float) -> Floats:
    return values.taken - values.states[shard.observation_rows]


def _target(kind: str) -> Callable[[Shard, Values, int, float], Floats]:
    """The target less what it is a target of: how much better than expected the step turned out."""

    def found(shard: Shard, values: Values, n: int, lam: float) -> Floats:
        options: dict[str, Any] = {"n": n, "lam": lam}
        if kind == "retrace":
            options |= {"taken": values.taken, "ratios": values.ratios}
        targets = targets_of(shard, kind, values.states, **options)
        return targets if kind in ("td", "gae") else targets - values.states[shard.observation_rows]

    return found


VALUED: Final[Mapping[str, Callable[[Shard, Values, int, float], Floats]]] = {
    "advantage": _advantage,
    **{kind: _target(kind) for kind in ("td", "gae", "n_step", "td_lambda", "retrace")},
}
"""Methods that need values."""
PLAIN: Final = ("return", "uniform", "discounted", "last")
"""Methods that need the rewards alone."""
METHODS: Final = (*VALUED, *PLAIN)


def plain_credit(shard: Shard, method: str, discounts: Floats | None = None) -> Floats:
    """`return`: the return to go. `uniform`, `discounted` and `last` share out each episode's sum of rewards: evenly, by γ to
    the distance from the end, or all to the last step; what they give sums to the rewards. `discounts` are one for each step."""
    offsets, rewards = np.asarray(shard.episode_offsets), shard.rewards.astype(np.float64)
    gamma = np.full(shard.size, shard.manifest.gamma) if discounts is None else discounts
    if method == "return":
        return returns_to_go(rewards, offsets, gamma)
    shares = _shares(method, offsets, gamma)
    owner, count = shard.episode_index, shard.episode_count
    totals, weights = np.bincount(owner, rewards, count), np.bincount(owner, shares, count)
    return np.asarray(totals[owner] * shares / weights[owner])


def _shares(method: str, offsets: np.ndarray[Any, Any], gamma: Floats) -> Floats:
    last = np.zeros(len(gamma))
    last[offsets[1:] - 1] = 1.0
    if method == "last":
        return last
    # what 1 paid at the end is worth at each step
    return returns_to_go(last, offsets, gamma) if method == "discounted" else np.ones(len(gamma))


@dataclass(frozen=True)
class CreditReport:
    """The credit of a split's steps: `frame` has a row for each (episode_id, step, action, reward, credit, success, locator)."""

    frame: pl.DataFrame
    method: str
    policy: str | None
    dataset: str
    split: str
    notes: tuple[str, ...]
    file: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """For `--json`; rows only where they were not written to a file."""
        about = {name: getattr(self, name) for name in ("method", "policy", "dataset", "split", "file")}
        rows = [] if self.file else self.frame.to_dicts()
        return {**about, "notes": list(self.notes), "steps": self.frame.height, "rows": rows}

    def render(self) -> str:
        """For people: the steps that most is owed to, and those that are most to blame."""
        of = f", values of {self.policy}" if self.policy else ""
        lines = [f"{self.dataset}, {self.split}: {self.frame.height:,} steps, credit by {self.method}{of}"]
        ranked = self.frame.sort("credit", "episode_id", "step", descending=[True, False, False])
        for title, rows in (
            ("most owed to", ranked.head(SHOWN)),
            ("most to blame", ranked.tail(SHOWN).reverse()),
        ):
            shown = [
                (
                    f"{r['credit']:+.3g}",
                    r["action"],
                    f"{r['episode_id'][:12]}:{r['step']}",
                    r["success"],
                    r["locator"],
                )
                for r in rows.to_dicts()
            ]
            lines += ["", table((title, "action", "step", "success", "where"), shown, limit=160)]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines + ([f"wrote {self.file}"] if self.file else []))


def credit_of(
    store: Store,
    run: str | Path,
    split: str = "test",
    method: str = "advantage",
    *,
    policy: str = "bc",
    n: int = 3,
    lam: float = 0.95,
    per_seconds: float | None = None,
    out: str | Path | None = None,
    dataset: str | Path | None = None,
    progress: Tick | None = None,
    **fit: int,
) -> CreditReport:
    """The credit of every step of a split, with the episodes' ids and the lines of the log from the store.

    `per_seconds` discounts by the clock, γ^(Δt / per_seconds), in the methods that need no values. `fit` are the options of
    `fit_values`. Raises UsageError for a method that cannot be had, and Mismatch when the store has another build.
    """
    if method not in METHODS:
        raise UnknownName("method", method, list(METHODS))
    if per_seconds is not None and method not in BY_CLOCK:
        remedy = f"leave out --per-seconds, or take one of {', '.join(BY_CLOCK)}"
        raise UsageError(
            f"{method} cannot discount by the clock: values are fitted with one discount a step", remedy
        )
    if method in VALUED:
        shard, values = fit_values(run, split, policy, dataset=dataset, progress=progress, **fit)
        steps, notes = _steps(store, shard), _value_notes(shard, values, method)
        amounts = VALUED[method](shard, values, n, lam)
    else:
        shard, _ = run_data(read_run(Path(run)), dataset, split)
        steps = _steps(store, shard)
        discounts, notes = (None, []) if per_seconds is None else _clock(steps, shard, per_seconds)
        amounts = plain_credit(shard, method, discounts)
    if (cut := int(shard.timeouts.sum())) and method in PLAIN:
        notes.append(
            f"{cut} of {shard.episode_count} episodes are cut off: their rewards are a part of what they would have had"
        )
    frame = steps.drop("seconds").with_columns(credit=pl.Series(amounts))
    if out is not None:
        with replaced_file(Path(out)) as target:
            frame.write_parquet(target)
    used = policy if method in VALUED else None
    return CreditReport(
        frame, method, used, shard.manifest.dataset, split, tuple(notes), None if out is None else str(out)
    )


_STEPS = """
    WITH timed AS (
      SELECT s.episode_id, s.step, m.created_at
      FROM steps AS s LEFT JOIN messages AS m ON m.episode_id = s.episode_id AND m.position = s.position
    )
    SELECT
      t.episode_id, t.step, t.action, t.reward, t.success, t.locator,
      epoch_us(lead(timed.created_at) OVER episode) / 1e6 - epoch_us(timed.created_at) / 1e6 AS seconds
    FROM transitions AS t LEFT JOIN timed ON timed.episode_id = t.episode_id AND timed.step = t.step
    WHERE t.dataset = ? AND t.split = ?
    WINDOW episode AS (PARTITION BY t.episode_id ORDER BY t.step)
    ORDER BY t.episode_id, t.step
"""


def _steps(store: Store, shard: Shard) -> pl.DataFrame:
    """The shard's transitions as the store knows them, in the shard's order, with the seconds to the next decision."""
    name = shard.manifest.dataset
    built = store.con.sql("SELECT hash FROM datasets WHERE dataset = ?", params=[name]).fetchall()
    if not built or built[0][0] != shard.manifest.hash:
        found = built[0][0] if built else "no build of it"
        raise Mismatch(
            f"the store's dataset {name!r}",
            shard.manifest.hash,
            found,
            "name the store it was built from: --store",
        )
    steps: pl.DataFrame = store.con.sql(_STEPS, params=[name, shard.split]).pl()
    return steps


def _clock(steps: pl.DataFrame, shard: Shard, per_seconds: float) -> tuple[Floats, list[str]]:
    seconds = steps["seconds"].fill_null(float("nan")).to_numpy().copy()
    inner = np.ones(shard.size, bool)
    inner[np.asarray(shard.episode_offsets)[1:] - 1] = False  # nothing follows a last step
    unknown, backwards = inner & np.isnan(seconds), inner & (seconds < 0)
    seconds[backwards] = np.nan
    notes = [
        f"{int(rows.sum()):,} of {int(inner.sum()):,} times between decisions {what}: they count as {per_seconds:g} s"
        for rows, what in ((unknown, "are not logged"), (backwards, "run backwards"))
        if rows.any()
    ]
    return time_discounts(shard.manifest.gamma, seconds, per_seconds), notes


def _value_notes(shard: Shard, values: Values, method: str) -> list[str]:
    notes = [values.unsettled] if values.unsettled else []
    if method == "retrace" and (missing := int(np.isnan(values.ratios).sum())):
        notes.append(f"{missing:,} of {shard.size:,} steps have no propensity: the trace is cut there")
    return notes
