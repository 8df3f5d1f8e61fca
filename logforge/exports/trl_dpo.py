"""Preference rows for DPO with TRL (Rafailov et al., arXiv 2305.18290), from contrasts: one state, a better and a worse action.

The prompt is the conversation that the better action answered; both answers are the agent's messages as they were logged, with
the calls of their turn up to the one that is compared. Both sides are of one split.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from logforge.dataset.actions import renamed
from logforge.exports.chat import Chat, Turn, answer_of, chat_of, prompt_flaw, turns_of
from logforge.exports.contrasts import NO_CONTRAST, pairs_of
from logforge.exports.job import Job, Written, json_lines
from logforge.exports.tools import as_text, toolbox
from logforge.schemas import Episode, UsageError

_BATCH = 128
UNCERTAIN = "uncertain"


def write(job: Job) -> list[Written]:
    """A line for each contrast whose interval excludes 0 (with `uncertain`, for every one), the widest gap first."""
    split, name = job.shard.split, job.manifest.dataset
    found = pairs_of(job.store, name, split)
    if not found.height:
        raise UsageError(f"{split} of {name} has no contrast", NO_CONTRAST)
    chosen = found if job.options.uncertain else found.filter("certain")
    left_out = Counter({UNCERTAIN: found.height - chosen.height})
    tools, rows = toolbox(job.store, name, split), 0
    with json_lines(job, left_out) as put:
        for pair, better, worse in _with_episodes(job, chosen.to_dicts()):
            row = _row(pair, better, worse)
            if isinstance(row, str):
                left_out[row] += 1
            else:
                put({**row, "tools": as_text(tools.offered(better, pair["step_a"]))})
                rows += 1
    return [Written(split, rows, rows, {reason: count for reason, count in left_out.items() if count})]


def _with_episodes(
    job: Job, pairs: list[dict[str, Any]]
) -> Iterator[tuple[dict[str, Any], Episode, Episode]]:
    for start in range(0, len(pairs), _BATCH):
        batch = pairs[start : start + _BATCH]
        ids = {pair[f"episode_{side}"] for pair in batch for side in "ab"}
        aliases = job.manifest.action_aliases
        episodes = {episode.episode_id: renamed(episode, aliases) for episode in job.store.episodes(ids)}
        for pair in batch:
            yield pair, episodes[pair["episode_a"]], episodes[pair["episode_b"]]
        job.tick(start + len(batch), len(pairs), "contrasts")


def _row(pair: dict[str, Any], better: Episode, worse: Episode) -> dict[str, Any] | str:
    turn, other = _turn(better, pair["step_a"]), _turn(worse, pair["step_b"])
    prompt = chat_of(better, turn.position)
    if flaw := prompt_flaw(prompt) or turn.flaw:
        return flaw
    chosen, rejected = answer_of(better, turn, pair["step_a"]), answer_of(worse, other, pair["step_b"])
    if _without_ids(chosen) == _without_ids(rejected):
        return "both answers are the same text"
    return {
        "prompt": prompt,
        "chosen": [chosen],
        "rejected": [rejected],
        "gap": pair["gap"],
        "interval": None if pair["low"] is None else [pair["low"], pair["high"]],
        "certain": pair["certain"],
        "level": pair["level"],
        "chosen_action": pair["action_a"],
        "rejected_action": pair["action_b"],
        "chosen_id": f"{pair['episode_a']}:{pair['step_a']}",
        "rejected_id": f"{pair['episode_b']}:{pair['step_b']}",
    }


def _turn(episode: Episode, step: int) -> Turn:
    return next(turn for turn in turns_of(episode) if any(one.step == step for one in turn.steps))


def _without_ids(answer: Chat) -> Chat:
    return {**answer, "tool_calls": [call["function"] for call in answer.get("tool_calls", ())]}
