"""Turns of the agent as training rows: the conversation so far as `prompt`, the agent's message as `completion`.

A turn that calls several tools is one row: they were said in one message.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from logforge.exports.chat import answer_of, chat_of, prompt_flaw, turns_of
from logforge.exports.episodes import Decision, Logged, logged_episodes, without_texts
from logforge.exports.job import Job, Written, json_lines
from logforge.exports.tools import Toolbox, as_text, toolbox
from logforge.exports.weights import BELOW, TurnKey, weights_of

Extra = dict[str, Any]
Judge = Callable[[str, list[int], list[Decision]], Extra | str]
"""Given an episode's id, a turn's steps and what the build says of them: the row's own columns, or why it is left out."""


def write_turns(job: Job, judge: Judge) -> list[Written]:
    """A line for each turn that `judge` lets through, a prompt leads to and whose calls can be learned from."""
    left_out = Counter(without_texts(job))
    tools = toolbox(job.store, job.manifest.dataset, job.shard.split)
    rows = covered = 0
    with json_lines(job, left_out) as put:
        for logged in logged_episodes(job):
            for found, count in _rows(logged, judge, tools):
                if isinstance(found, str):
                    left_out[found] += count
                else:
                    put(found)
                    rows, covered = rows + 1, covered + count
    return [Written(job.shard.split, rows, covered, left_out)]


def _rows(logged: Logged, judge: Judge, tools: Toolbox) -> Iterator[tuple[Extra | str, int]]:
    """A row, or why there is none, for each turn; with how many of the split's transitions it stands for."""
    episode, decisions = logged
    for turn in turns_of(episode):
        steps = [step.step for step in turn.steps if step.step in decisions]
        if not steps:
            continue
        judged = judge(episode.episode_id, steps, [decisions[step] for step in steps])
        if isinstance(judged, str):
            yield judged, len(steps)
            continue
        prompt = chat_of(episode, turn.position)
        if flaw := turn.flaw or prompt_flaw(prompt):
            yield flaw, len(steps)
            continue
        row = {
            "prompt": prompt,
            "completion": [answer_of(episode, turn)],
            **judged,
            "tools": as_text(tools.offered(episode, steps[0])),
            "episode_id": episode.episode_id,
            "steps": steps,
        }
        yield row, len(steps)


def write_labelled(job: Job) -> list[Written]:
    """A line for each turn of an episode whose outcome is known."""
    return write_turns(job, _label)


def _label(_episode: str, _steps: list[int], decisions: list[Decision]) -> Extra | str:
    success = decisions[0].success
    return "no outcome" if success is None else {"label": success}


def write_weighted(job: Job) -> list[Written]:
    """A line for each turn that is kept."""
    return write_turns(job, _by_weight(weights_of(job)))


def _by_weight(weights: Mapping[TurnKey, float]) -> Judge:
    def judge(episode: str, steps: list[int], _decisions: list[Decision]) -> Extra | str:
        weight = weights.get((episode, steps[0]))
        return BELOW if weight is None else {"weight": weight}

    return judge
