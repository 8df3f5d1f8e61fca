"""Trajectory quality and state-action coverage, as Schweighofer et al. define them.

K. Schweighofer et al., "A Dataset Perspective on Offline Reinforcement Learning", CoLLAs 2022 (arXiv:2111.04714):

    TQ(D)   = (g(D) − g(D_min)) / (g(D_expert) − g(D_min))     g: mean discounted return of a dataset's trajectories
    SACo(D) = u(D) / u(D_ref)                                  u: number of unique state-action pairs

There D_min comes from a random policy, D_expert from the best policy an online learner found, and D_ref is that learner's
replay buffer, as large as D. Logs have no such learner. The floor is the mean return of `random_exploration` episodes, or the
lowest return where there are none; the ceiling the mean return of `human_demo` episodes, or the highest return. D_ref is the
dataset named with `--reference`, else this one, so that SACo compares its policies with the whole.
"""

from __future__ import annotations

from logforge.report.page import Context, Number, Section, numbers_of, table_of

_REFERENCES = """
whole AS (SELECT * FROM logged WHERE step = 0 AND NOT return_is_partial),
bounds AS (
  SELECT
    coalesce(avg(return_to_go) FILTER (source_kind = 'random_exploration'), min(return_to_go)) AS floor,
    coalesce(avg(return_to_go) FILTER (source_kind = 'human_demo'), max(return_to_go)) AS ceiling,
    CASE WHEN bool_or(source_kind = 'random_exploration') THEN 'mean of random exploration' ELSE 'lowest return' END AS floor_is,
    CASE WHEN bool_or(source_kind = 'human_demo') THEN 'mean of demonstrations' ELSE 'highest return' END AS ceiling_is
  FROM whole
),
reference AS (
  SELECT count(DISTINCT (state_key, action)) AS pairs, count(*) AS size
  FROM transitions WHERE dataset = :reference AND parent_id IS NULL
)"""
_TOTALS = f"""
WITH :logged, {_REFERENCES}
SELECT
  (SELECT (avg(return_to_go) - any_value(floor)) / nullif(any_value(ceiling) - any_value(floor), 0) FROM whole, bounds) AS tq,
  (SELECT avg(return_to_go) FROM whole) AS mean_return, bounds.floor, bounds.floor_is, bounds.ceiling, bounds.ceiling_is,
  (SELECT count(DISTINCT (state_key, action)) FROM logged) AS unique_pairs,
  (SELECT count(DISTINCT state_key) FROM logged) AS unique_states,
  (SELECT count(DISTINCT (state_key, action)) / nullif(any_value(pairs), 0) FROM logged, reference) AS saco,
  (SELECT count(DISTINCT (state_key, action)) / nullif(count(*), 0) FROM logged) AS unique_share
FROM bounds
"""
_POLICIES = f"""
WITH :logged, {_REFERENCES},
returns AS (
  SELECT coalesce(policy_id, '(not logged)') AS policy, avg(return_to_go) AS mean_return FROM whole GROUP BY ALL
),
pairs AS (
  SELECT
    coalesce(policy_id, '(not logged)') AS policy, count(DISTINCT episode_id) AS episodes, count(*) AS decisions,
    count(DISTINCT (state_key, action)) AS unique_pairs
  FROM logged GROUP BY ALL
)
SELECT
  policy, episodes, decisions, mean_return, (mean_return - floor) / nullif(ceiling - floor, 0) AS tq, unique_pairs,
  unique_pairs / nullif(reference.pairs, 0) AS saco, unique_pairs / decisions AS unique_share
FROM pairs LEFT JOIN returns USING (policy), bounds, reference ORDER BY decisions DESC, policy LIMIT 20
"""


def measure(context: Context) -> Section:
    """TQ and SACo of the dataset and of each behaviour policy."""
    totals, policies = context.ask("totals", _TOTALS), context.ask("policies", _POLICIES)
    labels = {
        "tq": "TQ, trajectory quality",
        "mean_return": "mean return",
        "floor": f"floor: {totals.value('floor_is')}",
        "ceiling": f"ceiling: {totals.value('ceiling_is')}",
        "unique_states": "unique states",
        "unique_pairs": "unique state-action pairs",
        "unique_share": "unique pairs per decision",
    }
    numbers: tuple[Number, ...] = numbers_of(totals, labels)
    if context.reference:
        numbers += numbers_of(totals, {"saco": f"SACo against {context.reference}"})
    return Section(
        "characteristics",
        "TQ and SACo",
        "Schweighofer et al. 2022: TQ = (g(D) − g(D_min)) / (g(D_expert) − g(D_min)) with g the mean return of whole episodes; "
        "SACo = u(D) / u(D_ref) with u the number of unique (state_key, action) pairs. D_ref: "
        + (
            f"the dataset {context.reference}."
            if context.reference
            else "this dataset, for each of its policies."
        )
        + " The paper's reference is as large as D; compare policies of different size by unique pairs per decision.",
        (totals, policies),
        numbers,
        (table_of(policies, "By behaviour policy"),),
    )
