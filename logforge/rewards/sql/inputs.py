"""The part of a reward's query that makes the columns its expressions use, from the tables of the store.

Stage by stage: what the log says of each step · running counts over the episode · detectors, each only where it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from logforge.core import text_literal
from logforge.schemas import Detectors

_TURN = {
    "said": "coalesce(m.content, '')",
    "thought": "coalesce(m.thought, '')",
    "tokens": "CASE WHEN NOT first_of_turn THEN 0::BIGINT WHEN m.tokens_in IS NOT NULL OR m.tokens_out IS NOT NULL "
    "THEN CAST(coalesce(m.tokens_in, 0) AS BIGINT) + coalesce(m.tokens_out, 0) END",
    "cost": "CASE WHEN NOT first_of_turn THEN 0e0 WHEN isfinite(m.cost_usd) THEN m.cost_usd END",
}
_WHOLE = """\
whole AS (  -- the episodes that have steps; a number for each, since windows over numbers are twice as fast as over ids
  SELECT *, row_number() OVER (ORDER BY episode_id) AS episode
  FROM episodes JOIN (
    SELECT
      episode_id, max(step) AS last, count(*) AS n_steps,
      count(*) FILTER (WHERE kind = 'tool') AS calls,
      count(*) FILTER (WHERE kind = 'tool' AND result_status IN ('ok', 'empty')) AS calls_that_worked,
      arg_max(result_status, step) FILTER (WHERE kind = 'tool') AS last_call_status
    FROM steps GROUP BY episode_id
  ) USING (episode_id)
)"""
_KNOWN = """\
known AS (  -- what the log says; what cannot be there is the text 'none', what is missing is null
  SELECT
    s.episode_id, e.episode, s.step, s.step = e.last AS is_last,
    s.step = e.last AND e.ending = 'terminal' AS is_end, s.kind, s.kind = 'tool' AS is_tool, s.action, s.arguments, s.arguments_status, s.action_valid,
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
    coalesce(s.policy_id, e.policy_id) AS policy_id, e.n_steps, e.calls, e.calls_that_worked, e.last_call_status,
    hash(s.action, s.arguments) AS call,
    CASE WHEN s.kind = 'tool' AND s.result_status = 'ok' THEN hash(s.result) END AS answer{more}
  FROM {steps} AS s JOIN whole AS e USING (episode_id){joins}{final}
)"""
_FIRST_OF_TURN = "(SELECT *, row_number() OVER (PARTITION BY episode_id, position ORDER BY step) = 1 AS first_of_turn FROM steps)"
_FINAL = """
  UNION ALL BY NAME  -- the state after the last step, for potentials
  SELECT
    episode_id, episode, last + 1 AS step, FALSE AS is_last, FALSE AS is_end, TRUE AS final, success, format, source_kind, ending,
    ending_reason, task_id, model, policy_id, n_steps
  FROM whole"""
_REPLIES = """\
replies AS (  -- what the user said after a turn and before the next one
  SELECT episode_id, turn AS position, string_agg(content, chr(10) ORDER BY position) AS user_reply
  FROM (
    SELECT m.episode_id, m.position, m.content, s.position AS turn
    FROM (SELECT * FROM messages WHERE role = 'user') AS m
    ASOF JOIN (SELECT DISTINCT episode_id, position FROM steps) AS s
      ON m.episode_id = s.episode_id AND m.position > s.position
  )
  GROUP BY ALL
)"""
_RUNNING = """\
running AS (
  SELECT
    *,
    lag(action, 1, 'none') OVER episode AS prev_action,
    lag(arguments, 1, 'none') OVER episode AS prev_arguments,
    lag(result_status, 1, 'none') OVER episode AS prev_result_status,
    lag(error_class, 1, 'none') OVER episode AS prev_error_class,
    row_number() OVER (PARTITION BY episode, call ORDER BY step) - 1 AS repeats,
    count(*) FILTER (WHERE result_status IN ('error', 'timeout')) OVER earlier AS errors_so_far,
    count(*) FILTER (WHERE is_tool) OVER earlier AS calls_so_far,
    count(*) FILTER (WHERE kind = 'clarify') OVER earlier AS clarifies_so_far,{more}
    is_tool AND NOT action_valid AS invalid_tool,
    result_status IN ('error', 'timeout') AS runtime_error,
    kind = 'clarify' AS clarify
  FROM known
  WINDOW
    episode AS (PARTITION BY episode ORDER BY step),
    earlier AS (PARTITION BY episode ORDER BY step ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
)"""
_SUMS = {
    "tokens_so_far": ("tokens", "CAST(coalesce(sum(tokens) OVER earlier, 0) AS BIGINT)"),
    "cost_so_far": ("cost", "coalesce(sum(cost) OVER earlier, 0e0)"),
}
_UP_TO = "up_to AS (PARTITION BY episode ORDER BY step ROWS UNBOUNDED PRECEDING)"
_EARLIER = "earlier AS (PARTITION BY episode ORDER BY step ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"


def stage(name: str, source: str, columns: Iterable[str], *windows: str) -> str:
    """A common table expression that adds columns to those of another."""
    listed = ",\n".join(f"    {column}" for column in columns)
    named = f"\n  WINDOW {', '.join(windows)}" if windows else ""
    return f"{name} AS (\n  SELECT\n    *,\n{listed}\n  FROM {source}{named}\n)"


def input_stages(used: Collection[str], detectors: Detectors, final: bool) -> tuple[list[str], str]:
    """The common table expressions that make the columns used, and the name of the last of them.

    With `final` every episode has one more row, for the state after its last step.
    """
    needed = _needed(used, detectors)
    stages = [_REPLIES] if "user_reply" in needed else []
    stages += [_WHOLE, _known(needed, final), _running(needed)]
    last = "running"
    for name, column, make in _DETECTORS:
        if column in needed:
            stages.append(make(name, last, detectors))
            last = name
    return stages, last


def _needed(used: Collection[str], detectors: Detectors) -> set[str]:
    """The columns used and those they are made of."""
    needed = set(used)
    if "premature_close" in needed:
        needed |= {name for name in ("completeness", "came_back") if getattr(detectors, name) is not None}
    if "done_so_far" in needed:
        needed.add("completeness")
    return needed | {source for name, (source, _) in _SUMS.items() if name in needed}


def _known(needed: set[str], final: bool) -> str:
    turn = {name: sql for name, sql in _TURN.items() if name in needed}
    columns = "".join(f",\n    {sql} AS {name}" for name, sql in turn.items())
    joins = (
        "\n  LEFT JOIN messages AS m ON m.episode_id = s.episode_id AND m.position = s.position"
        if turn
        else ""
    )
    if "user_reply" in needed:
        columns += ",\n    coalesce(r.user_reply, '') AS user_reply"
        joins += "\n  LEFT JOIN replies AS r ON r.episode_id = s.episode_id AND r.position = s.position"
    return _KNOWN.format(
        more=columns + (",\n    FALSE AS final" if final else ""),
        joins=joins,
        steps=_FIRST_OF_TURN if {"tokens", "cost"} & set(turn) else "steps",
        final=_FINAL if final else "",
    )


def _running(needed: set[str]) -> str:
    sums = [f"\n    {sql} AS {name}," for name, (_, sql) in _SUMS.items() if name in needed]
    return _RUNNING.format(more="".join(sums))


def _loop(name: str, source: str, detectors: Detectors) -> str:
    distance = "step - lag(step) OVER (PARTITION BY episode, call ORDER BY step)"
    within = f"coalesce({distance} <= {detectors.loop.within}, FALSE)"
    return stage(name, source, [f"is_tool AND {within} AS loop"])


def _news(name: str, source: str, detectors: Detectors) -> str:
    """A join, since it is cheaper than a window over the hashes of the answers."""
    return f"""\
{name} AS (
  SELECT r.*, f.step IS NOT NULL AS is_news
  FROM {source} AS r LEFT JOIN (
    SELECT episode, min(step) AS step FROM known WHERE answer IS NOT NULL GROUP BY episode, answer
  ) AS f USING (episode, step)
)"""


def _progress(name: str, source: str, detectors: Detectors) -> str:
    """No news in this call and the ones before it; windows go over the calls alone."""
    calls = detectors.no_progress.calls
    news = f"count(*) FILTER (WHERE is_news) OVER (among ROWS {calls - 1} PRECEDING)"
    column = f"is_tool AND row_number() OVER among >= {calls} AND {news} = 0 AS no_progress"
    return stage(name, source, [column], "among AS (PARTITION BY episode, is_tool ORDER BY step)")


def _met(name: str, source: str, detectors: Detectors) -> str:
    assert detectors.completeness is not None, "the spec was checked"
    wanted = [
        *(f"action = {text_literal(tool)} AND result_status = 'ok'" for tool in detectors.completeness.tools),
        *(_filled(slot) for slot in detectors.completeness.slots),
    ]
    columns = []
    for column, window in (("completeness", "up_to"), ("done_so_far", "earlier")):
        met = [f"coalesce(bool_or({item}) OVER {window}, FALSE)::INTEGER" for item in wanted]
        columns.append(f"({' + '.join(met)}) / {len(wanted)}e0 AS {column}")
    return stage(name, source, columns, _UP_TO, _EARLIER)


def _filled(slot: str) -> str:
    path = text_literal('$."' + slot.replace("\\", "\\\\").replace('"', '\\"') + '"')
    value = f"coalesce(json_extract_string(arguments, {path}), '') <> ''"
    return f"CASE WHEN kind = 'tool' AND json_valid(arguments) THEN {value} ELSE FALSE END"


def _returning(name: str, source: str, detectors: Detectors) -> str:
    assert detectors.came_back is not None, "the spec was checked"
    soon = round(detectors.came_back.within_s * 1e6)
    return f"""\
{name} AS (
  SELECT *, CASE WHEN is_known THEN has_later END AS came_back
  FROM {source} LEFT JOIN (
    SELECT
      e.episode_id, e.user_id IS NOT NULL AND e.ended_at IS NOT NULL AS is_known,
      bool_or(o.episode_id IS NOT NULL) AS has_later
    FROM episodes AS e LEFT JOIN episodes AS o
      ON o.user_id = e.user_id AND o.started_at > e.ended_at AND o.started_at <= e.ended_at + to_microseconds({soon})
    GROUP BY ALL
  ) USING (episode_id)
)"""


def _closed(name: str, source: str, detectors: Detectors) -> str:
    reasons = [
        "coalesce(last_call_status IN ('error', 'timeout', 'refused'), FALSE)",
        "(calls > 0 AND calls_that_worked = 0)",
        *(["completeness < 1"] if detectors.completeness else []),
        *(["came_back"] if detectors.came_back else []),
    ]
    closed = "\n      OR ".join(reasons)
    when = f"CASE WHEN is_end THEN\n      {closed}\n    ELSE FALSE END AS premature_close"
    return stage(name, source, [when])


_DETECTORS: tuple[tuple[str, str, Callable[[str, str, Detectors], str]], ...] = (
    ("met", "completeness", _met),
    ("returners", "came_back", _returning),
    ("closed", "premature_close", _closed),
    ("looping", "loop", _loop),
    ("news", "no_progress", _news),
    ("progress", "no_progress", _progress),
)
"""The stage of each detector that needs one, in the order they build on each other."""
