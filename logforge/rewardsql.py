"""The one DuckDB query of a reward spec, over the tables `episodes` and `steps`.

Stage by stage: the columns expressions may use · which terms fire · how often each has paid · what each pays · the sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from logforge import expressions
from logforge.expressions import Expression
from logforge.schemas.reward import RewardSpec, Term

INPUTS = """\
known AS (  -- what the log says; what cannot be there is the text 'none', what is missing is null
  SELECT
    s.episode_id, s.step, s.kind, s.action, s.arguments, s.arguments_status, s.action_valid,
    CASE WHEN s.kind = 'tool' THEN s.result ELSE '' END AS result,
    CASE WHEN s.kind = 'tool' THEN s.result_status ELSE 'none' END AS result_status,
    CASE
      WHEN s.error_class IS NOT NULL THEN s.error_class
      WHEN s.kind <> 'tool' OR s.result_status IN ('ok', 'empty') THEN 'none'
    END AS error_class,
    CASE WHEN isfinite(s.latency_s) THEN s.latency_s END AS latency_s,
    CASE WHEN isfinite(s.logged_reward) THEN s.logged_reward END AS logged_reward,
    e.success,
    CASE WHEN isfinite(e.score) THEN e.score END AS score,
    e.format, e.source_kind, e.ending, e.ending_reason, e.task_id, e.model,
    coalesce(s.policy_id, e.policy_id) AS policy_id
  FROM steps AS s JOIN episodes AS e USING (episode_id)
),
inputs AS (
  SELECT
    *,
    lag(action, 1, 'none') OVER episode AS prev_action,
    lag(arguments, 1, 'none') OVER episode AS prev_arguments,
    lag(result_status, 1, 'none') OVER episode AS prev_result_status,
    lag(error_class, 1, 'none') OVER episode AS prev_error_class,
    row_number() OVER (PARTITION BY episode_id, action, arguments ORDER BY step) - 1 AS repeats,
    count(*) FILTER (WHERE result_status IN ('error', 'timeout')) OVER earlier AS errors_so_far,
    lead(step) OVER episode IS NULL AS is_last,
    count(*) OVER (PARTITION BY episode_id) AS n_steps
  FROM known
  WINDOW
    episode AS (PARTITION BY episode_id ORDER BY step),
    earlier AS (PARTITION BY episode_id ORDER BY step ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
)"""
"""The two common table expressions that make every column of schemas.reward.COLUMNS."""

_AT = {"step": "TRUE", "end": "is_last", "terminal": "is_last AND ending = 'terminal'"}
_EARLIER = "\n  WINDOW earlier AS (PARTITION BY episode_id ORDER BY step ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"


def compile_query(spec: RewardSpec) -> str:
    """The spec as one query: what `logforge.rewards.score` runs, readable by people."""
    terms = {name: spec.terms[name] for name in spec.names}
    limited = {name: term for name, term in terms.items() if term.limit is not None}
    stages = [INPUTS, _stage("fires", "inputs", [_fires(name, term) for name, term in terms.items()])]
    if limited:
        stages.append(_stage("paid", "fires", [_paid(name) for name in limited], _EARLIER))
    stages += [
        _stage("raw", "paid" if limited else "fires", [_raw(name, term) for name, term in terms.items()]),
        _stage(
            "valued", "raw", [f"CASE WHEN isfinite(raw_{n}) THEN raw_{n} END AS value_{n}" for n in terms]
        ),
        _stage("summed", "valued", [f"{_sum(terms)} AS total"]),
    ]
    head = "\n".join(
        (f"-- reward spec {spec.hash}: the sum of", *(_comment(*item) for item in terms.items()))
    )
    return "\n".join((head, "WITH", ",\n".join(stages), _result(terms), ""))


def when(term: Term) -> Expression:
    """The term's condition, parsed anew: a spec built by hand is as safe as one read from a file."""
    return expressions.parse(term.when)


def value(term: Term) -> Expression:
    """The term's value; a number becomes a DOUBLE constant that reads back as the same number."""
    if isinstance(term.value, str):
        return expressions.parse(term.value)
    text = repr(float(term.value))
    text = text if "e" in text else f"{text}e0"
    return Expression(text, text, (), term.value)


def _comment(name: str, term: Term) -> str:
    words = [f"at {term.at}"]
    words += [] if term.limit is None else [f"at most {term.limit} times an episode"]
    words += ["optional"] if term.optional else []
    return f"--   {name} ({', '.join(words)})"


def _stage(name: str, source: str, columns: Iterable[str], window: str = "") -> str:
    listed = ",\n".join(f"    {column}" for column in columns)
    return f"{name} AS (\n  SELECT\n    *,\n{listed}\n  FROM {source}{window}\n)"


def _fires(name: str, term: Term) -> str:
    condition = when(term).sql
    if term.at != "step":
        condition = f"CASE WHEN {_AT[term.at]} THEN {condition} ELSE FALSE END"
    return f"{condition} AS fires_{name}"


def _paid(name: str) -> str:
    return f"count(*) FILTER (WHERE fires_{name}) OVER earlier AS paid_{name}"


def _raw(name: str, term: Term) -> str:
    limit = "" if term.limit is None else f"WHEN paid_{name} >= {term.limit} THEN 0e0 "
    sql = value(term).sql if _is_number(term) else f"CAST({value(term).sql} AS DOUBLE)"
    return f"CASE {limit}WHEN fires_{name} THEN {sql} WHEN NOT fires_{name} THEN 0e0 END AS raw_{name}"


def _is_number(term: Term) -> bool:
    return not isinstance(term.value, str)


def _sum(terms: dict[str, Term]) -> str:
    """An explicit chain from the left: the order of float additions is part of the reward's definition."""
    parts = [f"coalesce(value_{n}, 0e0)" if term.optional else f"value_{n}" for n, term in terms.items()]
    chain = parts[0]
    for part in parts[1:]:
        chain = f"({chain} + {part})"
    return chain


def _result(terms: dict[str, Term]) -> str:
    pairs = ", ".join(f"{{'key': '{name}', 'value': value_{name}}}" for name in terms)
    listed = f"[{pairs}]"
    optional = [f"'{name}'" for name, term in terms.items() if term.optional]
    if optional:
        kept = f"t.value IS NOT NULL OR t.key NOT IN ({', '.join(optional)})"
        listed = f"list_filter({listed}, LAMBDA t : {kept})"
    reasons = [_reason(name, term) for name, term in terms.items() if not term.optional]
    reasons.append("CASE WHEN NOT isfinite(total) THEN 'the sum of the terms is not finite' END")
    return "\n".join(
        (
            "SELECT",
            "  episode_id,",
            "  step,",
            "  CASE WHEN isfinite(total) THEN total END AS reward,",
            f"  {listed} AS reward_terms,",
            "  nullif(concat_ws('; ',",
            ",\n".join(f"    {reason}" for reason in reasons),
            "  ), '') AS null_reason",
            "FROM summed",
            "ORDER BY episode_id, step",
        )
    )


def _reason(name: str, term: Term) -> str:
    """Why a required term is null: the missing inputs of its condition, or else of its value."""
    branches = [f"WHEN fires_{name} IS NULL THEN {_missing('when', when(term).columns)}"]
    if not _is_number(term):
        branches += [
            f"WHEN raw_{name} IS NULL THEN {_missing('value', value(term).columns)}",
            "ELSE 'value is not finite'",
        ]
    lines = "".join(f"\n      {branch}" for branch in branches)
    return f"CASE WHEN value_{name} IS NULL THEN '{name}: ' || CASE{lines} END END"


def _missing(word: str, columns: Sequence[str]) -> str:
    unexplained = f"'{word} is null though no input is missing (guard it with coalesce)'"
    if not columns:
        return unexplained
    names = ", ".join(f"CASE WHEN {column} IS NULL THEN '{column}' END" for column in columns)
    return f"coalesce('missing ' || nullif(concat_ws(', ', {names}), ''), {unexplained})"
