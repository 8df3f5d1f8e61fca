"""Walks back from a transition to what made it: reward terms and what they read, the decision, and the lines of the log."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from logforge.core import BaseReport, Lines, cut, noted
from logforge.lineage.source_bytes import moved
from logforge.rewards import load_spec, read_inputs
from logforge.rewards.sql import value, when
from logforge.schemas import LogforgeError, RewardSpec, UnknownName, UsageError
from logforge.shards import read_manifest
from logforge.store import Store, dataset_named

_TEXT = 160


class TermView(NamedTuple):
    """What a term paid at a step (None: dropped), the columns that its expressions read with their values there, and where it
    is written: file:line while the spec's file is what the dataset was built with, else its field."""

    name: str
    value: float | None
    inputs: dict[str, Any]
    where: str

    def render(self) -> str:
        """One line."""
        read = ", ".join(f"{name} = {_cut(_shown(found), 40)}" for name, found in self.inputs.items())
        pays = "dropped" if self.value is None else f"{self.value:+g}"
        return f"       {self.name} {pays}{f'  from {read}' if read else ''}  at {self.where}"


@dataclass(frozen=True)
class StepView:
    """One decision: what was done, what came of it, what it was paid, and where all that stands."""

    step: int
    action: str
    arguments: str
    result_status: str | None
    result: str | None
    reward: float
    reward_terms: dict[str, float]
    return_to_go: float
    end: str
    locator: str
    result_locator: str | None
    made_from: str | None
    terms: tuple[TermView, ...] = ()


class LabelView(NamedTuple):
    """What a label, or the log, says of the episode or of a step, with its precedence, its words and its place."""

    step: int | None
    said_by: str | None
    kind: str
    precedence: int
    success: bool | None
    score: float | None
    reward: float | None
    comment: str | None
    locator: str

    def render(self) -> str:
        """One line."""
        said = {"success": self.success, "score": self.score, "reward": self.reward}
        told = (
            ", ".join(f"{name} {found}" for name, found in said.items() if found is not None) or "no outcome"
        )
        of = "" if self.step is None else f"step {self.step}: "
        why = f": {_cut(self.comment)}" if self.comment else ""
        return f"  {of}{self.kind} says {told}{why}  (precedence {self.precedence}) at {self.locator}"


@dataclass(frozen=True)
class Explanation(BaseReport):
    """An episode of a dataset, step by step."""

    dataset: str
    episode_id: str
    split: str
    task: str | None
    success: bool | None
    ending_reason: str
    steps: tuple[StepView, ...]
    notes: tuple[str, ...] = ()
    outcome_from: str | None = None
    labels: tuple[LabelView, ...] = ()

    def lines(self) -> Lines:
        """The episode, then its steps."""
        yield f"episode {self.episode_id} in {self.dataset} ({self.split}), success {self.success}, {self.ending_reason}"
        yield f"outcome from {self.outcome_from}" if self.outcome_from else None
        yield from (label.render() for label in self.labels)
        yield f"task: {_cut(self.task)}"
        yield from noted(self.notes)
        for step in self.steps:
            terms = "  ".join(f"{name} {value:+g}" for name, value in step.reward_terms.items() if value)
            paid = f"reward {step.reward:+g} = {terms or 'no term fires'}"
            yield f"\n{step.step:>3}  {step.action} {_cut(step.arguments)}"
            yield f"     {paid}   return {step.return_to_go:+.4g}{step.end}"
            yield from (term.render() for term in step.terms)
            yield f"     at {step.locator}"
            yield f"     made by {step.made_from}" if step.made_from else None
            if step.result_status:
                where = step.result_locator or "no result logged"
                yield f"     → {step.result_status}: {_cut(step.result)}  at {where}"


def explain(store: Store, episode: str, dataset: str | None = None) -> Explanation:
    """An episode's steps, and a note where the file they come from is not what it was. `episode` is an id, the beginning of
    one, or ID:STEP.

    Raises UnknownName for an unknown dataset or episode, UsageError when several episodes begin so.
    """
    name = dataset_named(store, dataset or _newest(store))
    prefix, _, number = episode.partition(":")
    if number and not number.isdecimal():
        raise UsageError(f"{episode!r} names no step", "write ID or ID:STEP, for example 4f2a:3")
    identifier = _identify(store, name, prefix)
    rows = store.con.sql(_STEPS, params=[name, identifier]).fetchall()
    steps = tuple(StepView(*row) for row in rows if not number or row[0] == int(number))
    if not steps:
        raise UnknownName("step", number, [str(row[0]) for row in rows])
    steps = _with_terms(store, name, identifier, steps)
    split, task, success, reason, path, now, origin, unknown = store.con.sql(
        _EPISODE, params=[name, identifier]
    ).fetchall()[0]
    labels = tuple(LabelView(*row) for row in store.con.sql(_LABELS, params=[name, identifier]).fetchall())
    files = {path, *(row[0] for row in store.con.sql(_LABEL_FILES, params=[name, identifier]).fetchall())}
    notes = tuple(one.render() for one in moved(store, files - {None}))
    if now is not success:
        notes += (f"the dataset was built with success {success}; the store says {now} now: build it again",)
    if unknown:
        notes += (f"outcome unknown: {unknown}",)
    return Explanation(name, identifier, split, task, success, reason, steps, notes, origin, labels)


def _with_terms(
    store: Store, dataset: str, episode: str, steps: tuple[StepView, ...]
) -> tuple[StepView, ...]:
    """The steps with their terms, as far as the dataset's folder still says what the spec was."""
    spec = _spec(store, dataset)
    if spec is None:
        return steps
    tables = store.tables("episode_id = ?", [episode])
    if spec.detectors.came_back is not None:  # a user's next episode may be any
        tables = tables._replace(episodes=store.arrow("SELECT * FROM episodes"))
    read = {row.pop("step"): row for row in read_inputs(spec, tables).to_dicts()}
    return tuple(replace(step, terms=tuple(_terms(spec, step, read.get(step.step, {})))) for step in steps)


def _terms(spec: RewardSpec, step: StepView, read: Mapping[str, Any]) -> list[TermView]:
    """An augmented episode has results of its own that are not stored: its terms have no inputs."""
    found = []
    for name in spec.names:
        term = spec.term(name)
        columns = sorted({*when(term).columns, *value(term).columns})
        inputs = {column: step.step if column == "step" else read[column] for column in columns if read}
        found.append(TermView(name, step.reward_terms.get(name), inputs, spec.place_of(name)))
    return found


def _spec(store: Store, dataset: str) -> RewardSpec | None:
    """The spec the dataset was built with, from its manifest, and from its file where that still says the same; None where the
    dataset's folder is gone or holds another dataset by now."""
    folder, built, config = store.con.sql(
        "SELECT path, hash, config FROM datasets WHERE dataset = ?", params=[dataset]
    ).fetchall()[0]
    home = store.path.parent
    try:
        manifest = read_manifest(home / folder)
    except LogforgeError:
        return None
    if manifest.hash != built or "spec" not in manifest.reward:
        return None
    spec = RewardSpec.model_validate(manifest.reward["spec"])
    file = json.loads(config).get("reward")
    try:
        written = load_spec(home / file) if file else spec
    except LogforgeError:
        return spec
    return written if written.hash == spec.hash else spec


def _shown(found: object) -> str:
    return "null" if found is None else repr(found) if isinstance(found, str) else str(found)


def _newest(store: Store) -> str:
    rows = store.con.sql("SELECT dataset FROM datasets ORDER BY created_at DESC, dataset LIMIT 1").fetchall()
    if not rows:
        raise UsageError("the store holds no dataset", "run `logforge build-dataset` first")
    return str(rows[0][0])


def _identify(store: Store, dataset: str, prefix: str) -> str:
    rows = store.con.sql(
        "SELECT DISTINCT episode_id FROM transitions WHERE dataset = ? AND starts_with(episode_id, ?) ORDER BY 1 LIMIT 6",
        params=[dataset, prefix],
    ).fetchall()
    if not rows:
        valid = store.con.sql(
            "SELECT DISTINCT episode_id FROM transitions WHERE dataset = ? ORDER BY 1 LIMIT 5",
            params=[dataset],
        )
        raise UnknownName("episode", prefix, [f"{row[0]}" for row in valid.fetchall()] + ["…"])
    if len(rows) > 1:
        raise UsageError(f"several episodes begin with {prefix!r}", ", ".join(row[0] for row in rows))
    return str(rows[0][0])


def _cut(text: str | None, size: int = _TEXT) -> str:
    return cut(" ".join((text or "—").split()), size)


# An augmented row has its parent's arguments and place in the log, but a result of its own, which is not stored.
_STEPS = """
    SELECT t.step, t.action, s.arguments, CASE WHEN t.parent_id IS NULL THEN s.result_status END,
           CASE WHEN t.parent_id IS NULL THEN s.result END, t.reward, t.reward_terms, t.return_to_go,
           CASE WHEN t.terminal THEN '   (terminal)' WHEN t.timeout THEN '   (timeout)' ELSE '' END,
           t.locator, CASE WHEN t.parent_id IS NULL THEN s.result_locator END, t.augmenter || ' from ' || t.parent_id
    FROM transitions t
    LEFT JOIN steps s
      ON s.episode_id = coalesce(split_part(t.parent_id, '/', 1), t.episode_id)
     AND s.step = coalesce(try_cast(split_part(t.parent_id, '/', 2) AS INTEGER), t.step)
    WHERE t.dataset = ? AND t.episode_id = ? ORDER BY t.step
"""
_EPISODE = """
    SELECT any_value(t.split), any_value(e.task), any_value(t.success), coalesce(any_value(e.ending_reason), ''),
        any_value(s.path), any_value(e.success), any_value(e.outcome_from), any_value(e.outcome_unknown)
    FROM transitions t LEFT JOIN episodes e ON e.episode_id = coalesce(split_part(t.parent_id, '/', 1), t.episode_id)
    LEFT JOIN sources s ON s.source_id = e.source_id
    WHERE t.dataset = ? AND t.episode_id = ?
"""
_OF_EPISODE = """episode_id = (SELECT any_value(coalesce(split_part(parent_id, '/', 1), episode_id)) FROM transitions
    WHERE dataset = ? AND episode_id = ?)"""
_LABELS = f"""
    SELECT step, outcome_from, kind, precedence, success, score, reward, comment, locator FROM labels
    WHERE {_OF_EPISODE} ORDER BY step NULLS FIRST, precedence DESC, locator
"""
_LABEL_FILES = f"""
    SELECT DISTINCT path FROM labels JOIN sources USING (source_id) WHERE kind = 'file' AND {_OF_EPISODE}
"""
