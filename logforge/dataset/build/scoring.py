"""Stages `score` and `augment`: the rewards of logged episodes, then copies of what can be learnt from, with theirs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from logforge.core import Episodes, from_all, from_summary, per_bucket, per_episode, plural, stage
from logforge.dataset.build.plan import Plan
from logforge.dataset.build.report import LeftOut
from logforge.dataset.build.splitting import Cohort, Split
from logforge.dataset.build.transitions import Origin
from logforge.rewards import RewardModel
from logforge.schemas import CheckFailed, Problem, remedy_of


@dataclass(frozen=True, slots=True)
class Scored:
    """Logged episodes with the rewards of their steps; those that cannot be learnt from are left out."""

    split: Split
    model: RewardModel
    rewards: pl.DataFrame
    cohort: Cohort


@dataclass(frozen=True, slots=True)
class Augmented:
    """The same with augmented copies, which lie in the scratch file of the episodes, behind these."""

    split: Split
    model: RewardModel
    rewards: pl.DataFrame
    cohort: Cohort


@stage(
    from_summary("scales of normalised terms", "what each term pays: a row a term and train episode"),
    from_all(
        "scorers that learn, where the spec has some", "messages and steps of all train episodes, in memory"
    ),
    from_summary("when a user comes back", "users and times: a row an episode, where the spec asks for it"),
    per_bucket("rewards of steps"),
    per_episode("what cannot be learnt from"),
)
def score(split: Split, plan: Plan) -> Scored:
    """Rewards by what the train split fitted. Raises CheckFailed where no episode is left, or more rewards are missing than may be."""
    episodes, cohort = split.chosen.episodes, split.cohort
    model = RewardModel.fit(plan.spec, episodes, cohort.train_groups(), plan.store.con, plan.progress)
    rewards = model.score(episodes)
    cohort = cohort.without(_unlearnable(episodes, rewards))
    if not cohort.kept:
        _refuse_all_left_out(cohort.left_out)
    _refuse_upside_down(cohort, plan)
    return Scored(split, model, rewards, cohort)


@stage(per_episode("copies of train episodes"), per_bucket("rewards of their steps"))
def augment(scored: Scored, plan: Plan) -> Augmented:
    """Copies, in the train split alone, scored by the same model."""
    cohort = scored.cohort.with_copies(_copies(scored.cohort, plan))
    copies = Episodes(cohort.kept.spool, cohort.origins)
    if not copies:
        return Augmented(scored.split, scored.model, scored.rewards, cohort)
    rewards = pl.concat([scored.rewards, scored.model.score(copies)])
    cohort = cohort.without(_unlearnable(copies, rewards))
    return Augmented(scored.split, scored.model, rewards, cohort)


def _copies(cohort: Cohort, plan: Plan) -> dict[str, Origin]:
    """What each copy was made from; the copies are put where the episodes lie."""
    origins, seed = dict[str, Origin](), plan.config.seed
    for augmenter in plan.augmenters:
        for episode in cohort.logged_train():
            made = augmenter.augment(episode, seed)
            if made is not None:
                origin = Origin(episode.episode_id, list(made.parents), augmenter.name, seed)
                origins[made.episode.episode_id] = origin
                cohort.kept.spool.add(made.episode)
    return origins


def _unlearnable(episodes: Episodes, rewards: pl.DataFrame) -> dict[str, LeftOut]:
    """Episodes that cannot be learnt from, with the reason: no decision, or a reward that is null."""
    nulls = (
        rewards.filter(pl.col("reward").is_null())
        .group_by("episode_id")
        .agg(pl.col("null_reason").first(), pl.col("step").min())
    )
    missing = {row[0]: (row[1], row[2]) for row in nulls.iter_rows()}
    scored = set(rewards["episode_id"].unique()) - missing.keys()
    found = {}
    for episode in episodes.without(scored):
        if not episode.steps:
            found[episode.episode_id] = LeftOut(
                "no_decision", "the agent decides nothing in it", None, episode.locator
            )
        elif episode.episode_id in missing:
            reason, step = missing[episode.episode_id]
            found[episode.episode_id] = LeftOut("null_reward", reason, step, episode.locator)
    return found


def _refuse_upside_down(cohort: Cohort, plan: Plan) -> None:
    """Raise CheckFailed when too many complete episodes have no reward: what is left would be the runs that were cut off."""
    ended = plan.store.con.sql("SELECT episode_id FROM episodes WHERE ending = 'terminal'").fetchall()
    whole = {name for (name,) in ended} & cohort.placed.keys()
    lost = [
        item.reason for name, item in cohort.left_out.items() if name in whole and item.rule == "null_reward"
    ]
    if plan.missing.allows(len(lost), len(whole)):
        return
    cut = len(cohort.kept.ids) - (len(whole) - len(whole & cohort.left_out.keys()))
    why = [Problem(f"{lost.count(reason)} × {reason}") for reason in sorted(set(lost))]
    raise CheckFailed(
        f"the reward is missing in {len(lost):,} of {plural(len(whole), 'complete episode')}, which would be left out; "
        f"{plural(cut, 'episode')} that were cut off would stay",
        why,
        _remedies(plan.reward),
    )


def _remedies(reward: object) -> str:
    """What to do about rewards that are missing: without the outcomes, with them, or on purpose."""
    spec = reward if isinstance(reward, str | Path) else "reward.yaml"
    return (
        f"do one of three: make the term `optional: true` in {spec}, then `logforge build-dataset --reward {spec}`; "
        "bring the outcomes: `logforge outcomes FILE` joins a table of them to the store (`logforge ingest LOGS "
        "--mapping MAPPING.yaml` reads them where they stand in the logs); "
        f"or leave these episodes out on purpose: `logforge build-dataset --reward {spec} --max-missing 100%`"
    )


def _refuse_all_left_out(left_out: Mapping[str, LeftOut]) -> None:
    """Raise CheckFailed, with the reasons, when no episode is left."""
    reasons = [item.reason for item in left_out.values()]
    why = [Problem(f"{reasons.count(reason)} × {reason}") for reason in sorted(set(reasons))]
    remedy = remedy_of("null_reward") if left_out else "ingest logs first: `logforge ingest LOGS`"
    raise CheckFailed("no episode can be used", why, remedy)
