"""ATIF trajectories out (Agent Trajectory Interchange Format 1.8, Harbor's), one a line.

ATIF has no place for rewards and outcomes: a step's reward stands in `metrics.extra.reward`, the outcome in the trajectory's
`extra` (`success`, `reward`), where logforge's own reader looks for them. A call's `extra.proposed_action` is what a veto had
another tool run for; a name that ingest mended was no proposal and stands in `extra.called`. A result belongs to the step that
called, so one that came after something else was said moves before it. What the agent said without deciding is marked as copied
context, which trainers leave out. Developers speak as the system.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime
from math import fsum
from typing import Any

from logforge.connectors.episodes import bare_name
from logforge.exports.chat import arguments_of
from logforge.exports.episodes import logged_episodes, without_texts
from logforge.exports.job import Job, Written, json_lines
from logforge.exports.tools import Definition, toolbox
from logforge.schemas import Episode, Message, Step
from logforge.shards import proposed

VERSION = "ATIF-v1.8"
Json = dict[str, Any]


def write(job: Job) -> list[Written]:
    """A line for each logged episode."""
    tools = toolbox(job.store, job.manifest.dataset, job.shard.split)
    left_out, rows, covered = without_texts(job), 0, 0
    with json_lines(job, left_out) as put:
        for episode, decisions in logged_episodes(job):
            put(trajectory(episode, tools.named(episode)))
            rows, covered = rows + 1, covered + len(decisions)
    return [Written(job.shard.split, rows, covered, left_out)]


def trajectory(episode: Episode, tools: list[Definition]) -> Json:
    """An episode as an ATIF document."""
    steps = _steps(episode)
    return _known(
        schema_version=VERSION,
        session_id=episode.session_id or episode.episode_id,
        trajectory_id=episode.episode_id,
        agent=_known(
            name=episode.policy_id or episode.format,
            version=episode.prompt_version or "unknown",
            model_name=episode.model,
            tool_definitions=tools or None,
            extra=_known(temperature=episode.temperature) or None,
        ),
        steps=[{"step_id": number, **step} for number, step in enumerate(steps, 1)],
        final_metrics=_totals(episode, len(steps)),
        extra=_known(
            success=episode.success,
            reward=episode.score,
            task_id=episode.task_id,
            ending=episode.ending,
            ending_reason=episode.ending_reason,
            parent_episode_id=episode.parent_episode_id,
            continues_episode_id=episode.continues_episode_id,
            source_kind=episode.source_kind,
            locator=episode.locator,
        ),
    )


def _steps(episode: Episode) -> list[Json]:
    taken: dict[int, list[Step]] = defaultdict(list)
    for step in episode.steps:
        taken[step.position].append(step)
    found = []
    for message in episode.messages:
        if message.role == "assistant":
            found.append(_agent(message, taken[message.position]))
        elif message.role != "tool":
            source = "user" if message.role == "user" else "system"
            found.append(_known(timestamp=_time(message), source=source, message=message.content or ""))
    return found


def _agent(message: Message, steps: list[Step]) -> Json:
    calls = [step for step in steps if step.kind == "tool"]
    return _known(
        timestamp=_time(message),
        source="agent",
        model_name=message.model,
        message=message.content or "",
        reasoning_content=message.thought,
        tool_calls=[_call(step) for step in calls] or None,
        observation=_observation(calls),
        metrics=_metrics(message, steps),
        is_copied_context=True if not steps and message.content else None,
    )


def _call(step: Step) -> Json:
    return _known(
        tool_call_id=_id(step),
        function_name=bare_name(step.action),
        arguments=arguments_of(step),
        extra=_known(
            proposed_action=proposed(step),
            called=step.proposed_action if proposed(step) is None else None,
            result_status=step.result_status,
            reward=step.logged_reward,
        )
        or None,
    )


def _observation(calls: list[Step]) -> Json | None:
    """What the calls gave. One message that answers every call of the turn stands once, without an id."""
    answered = [step for step in calls if step.result_position is not None]
    if not answered:
        return None
    places = {step.result_position for step in answered}
    if len(places) == 1 and len(calls) > 1 and len(answered) == len(calls):
        return {"results": [{"content": answered[0].result or ""}]}
    answered.sort(key=lambda step: (step.result_position or 0, step.step))
    return {"results": [_result(step) for step in answered]}


def _result(step: Step) -> Json:
    failed = step.result_status in ("error", "timeout", "refused")
    return _known(
        source_call_id=_id(step), content=step.result or "", extra={"is_error": True} if failed else None
    )


def _metrics(message: Message, steps: list[Step]) -> Json | None:
    rewards = [step.logged_reward for step in steps if step.logged_reward is not None]
    found = _known(
        prompt_tokens=message.tokens_in,
        completion_tokens=message.tokens_out,
        cost_usd=message.cost_usd,
        extra={"reward": fsum(rewards)} if rewards else None,
    )
    return found or None


def _totals(episode: Episode, steps: int) -> Json:
    read = [message.tokens_in for message in episode.messages if message.tokens_in is not None]
    wrote = [message.tokens_out for message in episode.messages if message.tokens_out is not None]
    return _known(
        total_prompt_tokens=sum(read) if read else None,
        total_completion_tokens=sum(wrote) if wrote else None,
        total_cost_usd=episode.cost_usd,
        total_steps=steps,
    )


def _id(step: Step) -> str:
    return f"call_{step.step}"


def _time(message: Message) -> str | None:
    if message.created_at is None:
        return None
    seconds, micros = divmod(message.created_at, 1_000_000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=micros).isoformat()


def _known(**fields: Any) -> Json:
    """The fields that have a value."""
    return {name: value for name, value in fields.items() if value is not None}
