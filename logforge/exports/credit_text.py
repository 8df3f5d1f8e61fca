"""Whole episodes as text with the credit of every step and tags at key steps, for pre-training and for reading.

A row is an episode: its parts, and the same parts as one text (logforge/exports/tagged_text.py). Credit is what one method gave
(table `credit`), to six significant digits, with its spread over the members of the fit of values. It is unknown where the store has
none, where it is no finite number, and where its support is below `least_support`. Unknown is never 0.

Key steps by credit are the `key_share` of the split's steps with known credit whose |credit| is largest, ties included, and never
one of credit 0. Key steps by people are those whose annotators' mean score is at least one half. A step may be both.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import polars as pl

from logforge.evaluation.credit import read_key_steps, scored
from logforge.exports.episodes import logged_episodes, without_texts
from logforge.exports.job import Job, Written, json_lines
from logforge.exports.kept_credit import KeptCredit, kept_credit
from logforge.exports.tagged_text import Key, Part, Role, render
from logforge.rewards import Floats
from logforge.schemas import Episode, Message, SourceKind, Step, UsageError

IMAGINED: Final = "counterfactual: it did not happen"
AGREED: Final = 0.5
"""The mean score from which on people call a step key."""
_DIGITS: Final = 6
_ROLES: Final[Mapping[str, Role]] = {"developer": "system", "system": "system", "user": "user"}

_STEPS = """
SELECT t.episode_id, t.step, c.support, isfinite(c.credit) AND coalesce(c.support, 0) >= $least AS known,
       CASE WHEN known THEN c.credit END AS credit, CASE WHEN known AND isfinite(c.spread) THEN c.spread END AS spread
FROM transitions t
JOIN episodes e ON e.episode_id = t.episode_id AND e.source_kind <> 'counterfactual'
LEFT JOIN credit c ON c.dataset = t.dataset AND c.split = t.split AND c.episode_id = t.episode_id AND c.step = t.step
  AND c.hash = $hash AND c.method = $method
WHERE t.dataset = $dataset AND t.split = $split ORDER BY t.episode_id, t.step
"""


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where credit comes from: the table `credit` has it under these names."""

    dataset: str
    hash: str
    method: str
    policy: str | None
    """Whose values it was reckoned with; null for methods without values."""
    settings: str
    """The method's options, as JSON text."""


class KeyRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What made steps key steps by credit: |credit| of at least `threshold` and not 0. It is null where no credit is known."""

    share: float
    least_support: int
    threshold: float | None


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One logged episode. `annotators` is how many people judged its steps (0: nobody, and no key step is a person's)."""

    id: str
    split: str
    source_kind: SourceKind
    task: str | None
    success: bool | None
    credit: Source
    rule: KeyRule
    annotators: int
    parts: tuple[Part, ...]
    text: str


def row_schema() -> dict[str, Any]:
    """The JSON schema of a row, for readers in any language."""
    found = msgspec.json.schema(Row)
    for name in ("Row", "Part"):
        body = found["$defs"][name]
        body["required"] = list(body["properties"])
    found["$defs"]["Row"]["properties"]["source_kind"]["enum"].remove("counterfactual")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **found}


class Told(NamedTuple):
    """What is known of an episode's decisions, by step."""

    credit: Mapping[int, float | None]
    spread: Mapping[int, float | None]
    support: Mapping[int, int | None]
    judged: Floats
    """Scores [annotators, steps]."""


@dataclass(frozen=True)
class Annotations:
    """What is known of every decision of a split's logged episodes."""

    source: Source
    rule: KeyRule
    told: Mapping[str, Told]

    def row(self, episode: Episode, split: str, success: bool | None) -> Row:
        """The episode's row."""
        told = self.told[episode.episode_id]
        parts = tuple(self._parts(episode, told))
        return Row(
            id=episode.episode_id,
            split=split,
            source_kind=episode.source_kind,
            task=episode.task,
            success=success,
            credit=self.source,
            rule=self.rule,
            annotators=len(told.judged),
            parts=parts,
            text=render(parts),
        )

    def _parts(self, episode: Episode, told: Told) -> Iterator[Part]:
        taken, answered = defaultdict(list), defaultdict(list)
        for step in episode.steps:
            taken[step.position].append(step)
            if step.result_position is not None:
                answered[step.result_position].append(step)
        for message in episode.messages:
            if message.role == "assistant":
                yield from self._turn(message, taken[message.position], told)
            elif message.role == "tool":
                yield from (_result(message, step) for step in answered[message.position])
            else:
                yield Part(role=_ROLES[message.role], kind="said", text=message.content or "")

    def _turn(self, message: Message, steps: list[Step], told: Told) -> Iterator[Part]:
        if message.thought:
            yield Part(role="assistant", kind="thought", text=message.thought)
        if message.content and all(step.kind == "tool" for step in steps):
            yield Part(role="assistant", kind="said", text=message.content)
        for step in steps:
            credit = told.credit.get(step.step)
            yield Part(
                role="assistant",
                kind="step",
                text=step.arguments if step.kind == "tool" else message.content or "",
                step=step.step,
                action=step.action,
                credit=credit,
                spread=told.spread.get(step.step),
                support=told.support.get(step.step),
                key=self._key(credit, told.judged, step.step),
            )

    def _key(self, credit: float | None, judged: Floats, step: int) -> Key:
        least = self.rule.threshold
        by_credit = credit is not None and least is not None and credit != 0 and abs(credit) >= least
        by_people = step < judged.shape[1] and bool(judged[:, step].mean() >= AGREED)
        if by_credit and by_people:
            return "credit human"
        return "credit" if by_credit else "human" if by_people else ""


def _result(message: Message, step: Step) -> Part:
    return Part(
        role="tool",
        kind="result",
        text=message.content or "",
        step=step.step,
        action=step.action,
        status=step.result_status,
    )


def write(job: Job) -> list[Written]:
    """A line for each logged episode that happened."""
    share = job.options.key_share
    if not 0 < share <= 1:
        raise UsageError(
            f"--key-share {share:g} is no share", "give a number above 0 and up to 1: --key-share 0.1"
        )
    annotations = annotations_of(job, kept_credit(job, job.options.credit, "--credit"))
    left_out, rows, covered = Counter(without_texts(job)), 0, 0
    with json_lines(job, left_out) as put:
        for logged in logged_episodes(job):
            episode, decisions = logged
            if episode.source_kind == "counterfactual":
                left_out[IMAGINED] += len(decisions)
                continue
            put(msgspec.to_builtins(annotations.row(episode, job.shard.split, logged.success)))
            rows, covered = rows + 1, covered + len(decisions)
    return [Written(job.shard.split, rows, covered, left_out)]


def annotations_of(job: Job, kept: KeptCredit) -> Annotations:
    """Credit, support and judgements of the split's decisions, and the threshold that follows from them."""
    manifest, options = job.manifest, job.options
    steps = _steps(job, kept)
    known = steps["credit"].drop_nulls().to_numpy()
    judged = _judged(job, steps)
    episodes = steps.group_by("episode_id", maintain_order=True).agg("step", "credit", "spread", "support")
    told = {
        name: Told(
            dict(zip(numbers, credit, strict=True)),
            dict(zip(numbers, spread, strict=True)),
            dict(zip(numbers, support, strict=True)),
            judged.get(name, np.zeros((0, 0))),
        )
        for name, numbers, credit, spread, support in episodes.iter_rows()
    }
    return Annotations(
        Source(manifest.dataset, manifest.hash, *kept),
        KeyRule(options.key_share, options.least_support, threshold_of(known, options.key_share)),
        told,
    )


def threshold_of(credit: Floats, share: float) -> float | None:
    """The |credit| that `share` of these steps reach, at least; None without steps."""
    if not len(credit):
        return None
    number = max(1, math.ceil(round(share * len(credit), 9)))
    return float(np.sort(np.abs(credit))[-number])


def _steps(job: Job, kept: KeptCredit) -> pl.DataFrame:
    """episode_id, step, support, credit and spread (rounded; null: unknown) of the split's logged decisions."""
    parameters = {
        "dataset": job.manifest.dataset,
        "hash": job.manifest.hash,
        "split": job.shard.split,
        "method": kept.method,
        "least": job.options.least_support,
    }
    found: pl.DataFrame = job.store.con.sql(_STEPS, params=parameters).pl()
    return found.with_columns(_rounded(found[name]) for name in ("credit", "spread"))


def _rounded(amounts: pl.Series) -> pl.Series:
    rounded = [None if amount is None else float(f"{amount:.{_DIGITS}g}") for amount in amounts]
    return pl.Series(amounts.name, rounded, dtype=pl.Float64)


def _judged(job: Job, steps: pl.DataFrame) -> dict[str, Floats]:
    path = job.options.key_steps
    if path is None:
        return {}
    lengths = dict(steps.group_by("episode_id").len().iter_rows())
    return scored(path, read_key_steps(path), lengths)
