"""Episodes of the agents inside an Inspect sample: each conversation of each, below the agent that ran it.

What an agent was shown of others' work (a handoff gives it the whole conversation) is what it read, no decision of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from logforge.connectors.benchmarks.inspect_agents import Agent, Asked
from logforge.connectors.benchmarks.inspect_talk import Talk, stop_reason
from logforge.connectors.episodes import (
    FINISHING,
    EpisodeBuilder,
    close,
    episode_id,
    first_number,
    first_user_text,
    limit_met,
    micros,
    object_or_empty,
    text_or_none,
)
from logforge.connectors.records import at, canonical
from logforge.schemas import Ending, Episode, Reading


def read_agents(
    agents: list[Agent], sample: dict[str, Any], locator: str, whole: Episode, family: str
) -> Iterator[Reading]:
    """The episodes. `whole` is the sample's own, the one above those that no other agent ran."""
    ids = {agent.span.id: episode_id(family, whole.episode_id, agent.span.id) for agent in agents}
    for agent in agents:
        above = next((ids[span.id] for span in agent.span.around if span.id in ids), whole.episode_id)
        for number, chain in enumerate(agent.talks):
            own = episode_id(family, ids[agent.span.id], number) if number else ids[agent.span.id]
            talk = _talk(agent, chain, sample, locator)
            yield from close(talk.builder, _episode(talk, agent, chain, whole, own, above))


def _talk(agent: Agent, chain: list[Asked], sample: dict[str, Any], locator: str) -> Talk:
    """What the last call of the model was sent, and its answer; the answers before it as their own events hold them."""
    last, told = chain[-1], {len(asked.messages): asked for asked in chain if asked.answer}
    answers = [asked.answer for asked in told.values()]
    events = [asked.event for asked in chain] + [event for event, _ in agent.tools.values()]
    part = {"messages": answers, "events": events, "output": last.event.get("output")}
    talk = Talk(sample | part, locator)
    for index, (message, where) in enumerate(last.messages):
        if (asked := told.get(index)) is not None:
            talk.add(asked.answer, _answer_place(asked))
        else:
            talk.add(message, where, own=message.get("role") != "assistant")
    if last.answer:
        talk.add(last.answer, _answer_place(last))
        for call in last.answer.get("tool_calls") or ():
            _add_result(talk, agent, text_or_none(object_or_empty(call).get("id")) or "")
    return talk


def _add_result(talk: Talk, agent: Agent, call_id: str) -> None:
    """What a call gave after which the agent's model was not asked again."""
    event, where = agent.tools.get(call_id, ({}, ""))
    if event and not event.get("pending") and ("result" in event or event.get("error")):
        answer = {"role": "tool", "tool_call_id": call_id, "content": event.get("result")}
        talk.add(answer | {"error": event.get("error")}, where)


def _answer_place(asked: Asked) -> str:
    return at(asked.where, "/output/choices/0/message")


def _episode(talk: Talk, agent: Agent, chain: list[Asked], whole: Episode, own: str, above: str) -> Episode:
    first, last = chain[0].event, chain[-1].event
    ending, reason = _ending(talk.builder, agent, last)
    model = text_or_none(first.get("model"))
    times = {"started_at": micros(first.get("timestamp")), "ended_at": micros(last.get("completed"))}
    return talk.builder.finish(
        id=own,
        format=whole.format,
        locator=chain[0].where,
        records=0,
        ending=ending,
        ending_reason=reason,
        native_id=f"{whole.native_id}/{agent.span.id}",
        parent_episode_id=above,
        task_id=whole.task_id,
        group_id=whole.group_id,
        task=first_user_text(talk.builder),
        model=model,
        policy_id=model,
        temperature=first_number(object_or_empty(first.get("config")), "temperature"),
        metadata=canonical(
            {
                "agent": agent.span.name,
                "span_type": agent.span.kind,
                "ran_by": text_or_none(agent.ran_by.get("id")),
                "call_parse_errors": talk.parse_errors,
            }
        ),
        **{key: time for key, time in times.items() if time is not None},
    )


def _ending(builder: EpisodeBuilder, agent: Agent, last: dict[str, Any]) -> tuple[Ending, str]:
    """A failed call (of the agent, or of its model) stopped it; else it ended when it had the last word or finished."""
    failed = text_or_none(object_or_empty(agent.ran_by.get("error")).get("type"))
    error, stop = text_or_none(last.get("error")), stop_reason(object_or_empty(last.get("output")))
    if failed is not None:
        return "truncated", f"the call that ran it failed: {failed}"
    if error is not None:
        return "truncated", f"error: {error[:60]}"
    if (why := limit_met(stop)) is not None:
        return "truncated", why
    if builder.last_action in FINISHING:
        return "terminal", f"the last action is {builder.last_action}"
    if builder.ends_unanswered:
        return "truncated", "last call is unanswered"
    if builder.messages and builder.messages[-1].role == "assistant":
        return "terminal", "the agent gave its reply"
    return "truncated", "the log stops before the agent's answer"
