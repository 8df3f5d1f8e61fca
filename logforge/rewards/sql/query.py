"""The one DuckDB query of a reward spec, over the tables `episodes`, `messages` and `steps`.

Stage by stage: the columns expressions may use · which terms fire · how often each has paid · what each pays, clipped,
normalised and weighted · the sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from logforge.core import Expression, text_literal
from logforge.core import sql as expressions
from logforge.rewards.sql.inputs import input_stages, stage
from logforge.schemas import Detectors, RewardSpec, Term

_AT = {"step": "TRUE", "end": "is_last", "terminal": "is_end"}
_EARLIER = "earlier AS (PARTITION BY episode ORDER BY step ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
_EPISODE = "episode AS (PARTITION BY episode ORDER BY step)"


class Scale(NamedTuple):
    """What normalises a term: its amount less `mean`, divided by `spread`."""

    mean: float = 0.0
    spread: float = 1.0


def compile_query(spec: RewardSpec, scales: Mapping[str, Scale] | None = None) -> str:
    """The spec as one query: what `logforge.rewards.pipeline.score` runs, readable by people.

    `scales` normalise the terms of layers (see `logforge.rewards.pipeline.fit_scales`); without them nothing is normalised. Where a
    term has a scorer, the table `scored` (term, episode_id, step, value, reason) holds what it gave.
    """
    terms = {name: spec.term(name) for name in spec.names}
    potentials = {name: term for name, term in terms.items() if term.potential}
    others = {name: term for name, term in terms.items() if not term.potential}
    counted = [name for name, term in others.items() if term.limit is not None or term.diminishing]
    stages, last = input_stages(used_columns(spec), spec.detectors, bool(potentials))
    for name, term in terms.items():
        if term.scorer is not None:
            stages.append(_scored(name, last))
            last = f"with_{name}"
    fires = [_fires(name, term) for name, term in others.items()]
    fires += [f"{_potential(term)} AS phi_{name}" for name, term in potentials.items()]
    stages.append(stage("fires", last, fires))
    last = "fires"
    if counted:
        stages.append(stage("paid", last, [_paid(name) for name in counted], _EARLIER))
        last = "paid"
    amounts = [f"{_amount(name, term)} AS amount_{name}" for name, term in others.items()]
    amounts += [
        f"{_difference(name, term, spec.gamma)} AS amount_{name}" for name, term in potentials.items()
    ]
    stages += [
        stage("amounts", last, amounts, *([_EPISODE] if potentials else [])),
        stage("valued", "amounts", [_value(spec, name, term, scales) for name, term in terms.items()]),
        stage("summed", "valued", [f"{_sum(terms)} AS total"]),
    ]
    head = "\n".join(
        (f"-- reward spec {spec.hash}: the sum of", *(_comment(spec, name, scales) for name in terms))
    )
    return "\n".join((head, "WITH", ",\n".join(stages), _result(terms, bool(potentials)), ""))


def paying_steps(term: Term, detectors: Detectors, columns: Iterable[str]) -> str:
    """A query for the steps at which a term may pay, with some of their columns: where it fires and its limit is not reached."""
    chosen = tuple(columns)
    stages, last = input_stages({*when(term).columns, *chosen}, detectors, False)
    stages.append(stage("fires", last, [_fires("term", term)]))
    stages.append(stage("paid", "fires", [_paid("term")], _EARLIER))
    limit = "" if term.limit is None else f" AND paid_term < {term.limit}"
    listed = ", ".join(("episode_id", "step", *chosen))
    return "WITH\n" + ",\n".join(stages) + f"\nSELECT {listed} FROM paid WHERE fires_term{limit}"


def used_columns(spec: RewardSpec) -> set[str]:
    """The columns that the spec's expressions read."""
    found: set[str] = set()
    for _, term, _ in spec.entries():
        found.update(when(term).columns, value(term).columns)
    return found


def when(term: Term) -> Expression:
    """The term's condition, parsed anew: a spec built by hand is as safe as one read from a file."""
    return expressions.parse(term.when)


def value(term: Term) -> Expression:
    """The term's value; a number becomes a DOUBLE constant that reads back as the same number."""
    if isinstance(term.value, str):
        return expressions.parse(term.value)
    return Expression(_double(term.value), _double(term.value), (), term.value)


def _double(number: float) -> str:
    """A DOUBLE constant that reads back as the same number."""
    text = repr(float(number))
    return text if "e" in text else f"{text}e0"


def _comment(spec: RewardSpec, name: str, scales: Mapping[str, Scale] | None) -> str:
    term, layer = spec.term(name), spec.layer_of(name)
    words = ["potential"] if term.potential else [f"at {term.at}"]
    words += [] if term.limit is None else [f"at most {term.limit} times an episode"]
    words += ["optional"] if term.optional else []
    words += [f"scorer {term.scorer['name']}"] if term.scorer else []
    words += [] if layer is None else [f"layer {layer}, worth {spec.layers[layer].share(name):g}"]
    if name in spec.normalised:
        words.append("normalised" if scales else "to be normalised by scales fitted on the train split")
    return f"--   {name} ({', '.join(words)})"


def _scored(name: str, source: str) -> str:
    return (
        f"with_{name} AS (\n  SELECT r.*, g.value AS scored_{name}, g.reason AS unscored_{name}\n"
        f"  FROM {source} AS r LEFT JOIN (SELECT * FROM scored WHERE term = {text_literal(name)}) AS g\n"
        "    ON g.episode_id = r.episode_id AND g.step = r.step\n)"
    )


def _fires(name: str, term: Term) -> str:
    condition = when(term).sql
    if term.at != "step":
        condition = f"CASE WHEN {_AT[term.at]} THEN {condition} ELSE FALSE END"
    return f"{condition} AS fires_{name}"


def _paid(name: str) -> str:
    return f"count(*) FILTER (WHERE fires_{name}) OVER earlier AS paid_{name}"


def _amount(name: str, term: Term) -> str:
    """What the term pays where it fires, before its limits of size; null where that is missing."""
    limit = "" if term.limit is None else f"WHEN paid_{name} >= {term.limit} THEN 0e0 "
    sql = value(term).sql if isinstance(term.value, float) else f"CAST({value(term).sql} AS DOUBLE)"
    sql += f" * scored_{name}" if term.scorer is not None else ""
    sql += f" * {_double(term.scale)}" if term.scale != 1 else ""
    return f"CASE {limit}WHEN fires_{name} THEN {sql} WHEN NOT fires_{name} THEN 0e0 END"


def _potential(term: Term) -> str:
    sql = value(term).sql if isinstance(term.value, float) else f"CAST({value(term).sql} AS DOUBLE)"
    sql += f" * {_double(term.scale)}" if term.scale != 1 else ""
    condition = when(term).sql
    return (
        sql
        if condition == "TRUE"
        else f"CASE WHEN {condition} THEN {sql} WHEN NOT ({condition}) THEN 0e0 END"
    )


def _difference(name: str, term: Term, gamma: float) -> str:
    """Ng, Harada and Russell 1999: γΦ(s′) − Φ(s) leaves the optimal policy as it is. Φ is 0 where the episode truly ended."""
    phi = _clipped(f"phi_{name}", term)
    after = f"CASE WHEN is_end THEN 0e0 ELSE lead({phi}) OVER episode END"
    return f"{_double(gamma)} * {after} - {phi}"


def _clipped(column: str, term: Term) -> str:
    """A column within the term's bounds. What is no finite number is missing, not large."""
    if term.clip is None:
        return column
    low, high = term.clip
    bounded = column if low is None else f"greatest({column}, {_double(low)})"
    bounded = bounded if high is None else f"least({bounded}, {_double(high)})"
    return f"CASE WHEN isfinite({column}) THEN {bounded} END"


def _value(spec: RewardSpec, name: str, term: Term, scales: Mapping[str, Scale] | None) -> str:
    """The amount, clipped, diminished, normalised and weighted."""
    layer = spec.layer_of(name)
    share = term.weight if layer is None else spec.layers[layer].share(name)
    scale = (scales or {}).get(name, Scale()) if name in spec.normalised else Scale()
    sql = f"amount_{name}" if term.potential else _paid_amount(name, term)
    sql = f"({sql} - {_double(scale.mean)})" if scale.mean else sql
    sql += f" / {_double(scale.spread)}" if scale.spread != 1 else ""
    sql += f" * {_double(share)}" if share != 1 else ""
    other_steps = f"WHEN NOT ({_AT[term.at]}) THEN 0e0 " if scale.mean else ""
    return f"CASE {other_steps}WHEN isfinite({sql}) THEN {sql} END AS value_{name}"


def _paid_amount(name: str, term: Term) -> str:
    """The amount within its bounds and diminished; what does not pay is 0 whatever the bounds."""
    if term.clip is None and term.diminishing is None:
        return f"amount_{name}"
    limit = "" if term.limit is None else f" AND paid_{name} < {term.limit}"
    sql = _clipped(f"amount_{name}", term)
    sql += f" * power({_double(term.diminishing)}, paid_{name})" if term.diminishing else ""
    return f"CASE WHEN fires_{name}{limit} THEN {sql} ELSE amount_{name} END"


def _sum(terms: Mapping[str, Term]) -> str:
    """An explicit chain from the left: the order of float additions is part of the reward's definition."""
    parts = [f"coalesce(value_{n}, 0e0)" if term.optional else f"value_{n}" for n, term in terms.items()]
    chain = parts[0]
    for part in parts[1:]:
        chain = f"({chain} + {part})"
    return chain


def _result(terms: Mapping[str, Term], final: bool) -> str:
    reasons = [_reason(name, term) for name, term in terms.items() if not term.optional]
    reasons.append("CASE WHEN NOT isfinite(total) THEN 'the sum of the terms is not finite' END")
    return "\n".join(
        (
            "SELECT",
            "  named.episode_id,",
            "  step,",
            "  CASE WHEN isfinite(total) THEN total END AS reward,",
            *(f"  value_{name}," for name in terms),
            "  CASE WHEN coalesce(NOT isfinite(total), TRUE) THEN concat_ws('; ',",
            ",\n".join(f"    {reason}" for reason in reasons),
            "  ) END AS null_reason",
            "FROM summed JOIN (SELECT episode, episode_id FROM whole) AS named USING (episode)",
            *(["WHERE NOT final"] if final else []),
            "ORDER BY episode, step",
        )
    )


def _reason(name: str, term: Term) -> str:
    """Why a required term is null: the missing inputs of its condition, or else of its score or value."""
    if term.potential:
        missing = _missing("value", sorted({*when(term).columns, *value(term).columns}))
        return f"CASE WHEN value_{name} IS NULL THEN '{name}: ' || {missing} END"
    branches = [f"WHEN fires_{name} IS NULL THEN {_missing('when', when(term).columns)}"]
    if term.scorer is not None:
        branches.append(f"WHEN scored_{name} IS NULL THEN coalesce(unscored_{name}, 'was not scored')")
    if isinstance(term.value, str):
        branches.append(f"WHEN amount_{name} IS NULL THEN {_missing('value', value(term).columns)}")
    if len(branches) > 1:
        branches.append("ELSE 'value is not finite'")
    lines = "".join(f"\n      {branch}" for branch in branches)
    return f"CASE WHEN value_{name} IS NULL THEN '{name}: ' || CASE{lines} END END"


def _missing(word: str, columns: Sequence[str]) -> str:
    unexplained = f"'{word} is null though no input is missing (guard it with coalesce)'"
    if not columns:
        return unexplained
    names = ", ".join(f"CASE WHEN {column} IS NULL THEN '{column}' END" for column in columns)
    return f"coalesce('missing ' || nullif(concat_ws(', ', {names}), ''), {unexplained})"
