"""Conversations for supervised fine-tuning with TRL: whole episodes, `messages` and `tools`.

What the agent should learn is what the agent said: `SFTConfig(assistant_only_loss=True)` masks the rest by the chat template,
so the rows need no mask of their own.
"""

from __future__ import annotations

from collections import Counter

from logforge.exports.chat import chat_of
from logforge.exports.episodes import logged_episodes, without_texts
from logforge.exports.job import Job, Written, json_lines
from logforge.exports.tools import as_text, toolbox


def write(job: Job) -> list[Written]:
    """A line for each episode; with `successes`, for each that succeeded."""
    shard, left_out = job.shard, Counter(without_texts(job))
    tools = toolbox(job.store, job.manifest.dataset, shard.split)
    rows = covered = 0
    with json_lines(job, left_out) as put:
        for episode, decisions in logged_episodes(job):
            success = next(iter(decisions.values())).success
            if job.options.successes and not success:
                left_out["no success" if success is not None else "no outcome"] += len(decisions)
                continue
            put(
                {
                    "messages": chat_of(episode),
                    "tools": as_text(tools.offered(episode)),
                    "episode_id": episode.episode_id,
                    "success": success,
                    "return": decisions[min(decisions)].return_to_go,
                }
            )
            rows, covered = rows + 1, covered + len(decisions)
    return [Written(shard.split, rows, covered, left_out)]
