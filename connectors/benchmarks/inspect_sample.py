"""One sample of an Inspect evaluation: a run of the solver on one item of the dataset, in one epoch.

Shared by the log's two containers, JSON documents and `.eval` archives. Message ids lead to the events, which know what
`messages` do not: tokens, times, the tools offered. Long texts may lie in `attachments` and are put back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from logforge.connectors.benchmarks.inspect_agents import agents_of
from logforge.connectors.benchmarks.inspect_children import read_agents
from logforge.connectors.benchmarks.inspect_talk import Attachments, Talk, stop_reason
from logforge.connectors.episodes import (
    EpisodeBuilder,
    Outcome,
    close,
    content_id,
    episode_id,
    failure_in,
    first_number,
    first_user_text,
    limit_met,
    micros,
    object_or_empty,
    read_outcome,
    reject,
    task_group,
    text_of,
    text_or_none,
)
from logforge.connectors.records import at, canonical
from logforge.schemas import Ending, Episode, Reading

_FAMILY = "inspect"
"""Both containers hold the same samples: one that was converted is the same episode."""
_ELSEWHERE = frozenset(
    {"messages", "events", "events_data", "attachments", "transcript", "input", "store", "timelines"}
)
"""Fields of a sample that are no metadata: what was said, the full transcript, and the solver's own state."""
_LETTERS = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}


def read_sample(sample: Any, locator: str, header: dict[str, Any], format_name: str) -> Iterator[Reading]:
    """The episode of a sample, and those of the agents inside it. `header` is the log around it: `eval`, `plan`, `status`."""
    if not isinstance(sample, dict) or not isinstance(sample.get("messages"), list):
        yield reject(locator, "a sample without a list of `messages`", "", sample)
        return
    agents = agents_of(sample, locator)
    talk = Talk(sample, locator, frozenset(made for agent in agents for made in agent.made))
    for index, message in enumerate(sample["messages"]):
        talk.add(message, at(locator, f"/messages/{index}"))
    episode = _episode(talk, sample, locator, header, format_name)
    yield from close(talk.builder, episode)
    yield from read_agents(agents, sample, locator, episode, _FAMILY)


def _episode(
    talk: Talk, sample: dict[str, Any], locator: str, header: dict[str, Any], format_name: str
) -> Episode:
    run = object_or_empty(header.get("eval"))
    uuid, model = text_or_none(sample.get("uuid")), text_or_none(run.get("model"))
    item, task = text_or_none(sample.get("id")), text_or_none(run.get("task"))
    outcome = _outcome(talk, sample, locator)
    ending, reason = _ending(talk.builder, sample, header)
    target = sample.get("target")
    times = {"started_at": micros(sample.get("started_at")), "ended_at": micros(sample.get("completed_at"))}
    return talk.builder.finish(
        id=episode_id(_FAMILY, uuid) if uuid else content_id(_FAMILY, [run.get("run_id"), sample]),
        format=format_name,
        locator=locator,
        ending=ending,
        ending_reason=reason,
        native_id=uuid or f"{item}/{sample.get('epoch')}",
        task_id="/".join(part for part in (task, item) if part) or None,
        task=first_user_text(talk.builder),
        group_id=_group_id(sample, talk.attachments, task, item),
        model=model,
        policy_id=model,
        temperature=_temperature(header, run),
        **outcome.fields(),
        trial=text_or_none(sample.get("epoch")),
        reference=target if isinstance(target, str) and target else canonical(target) if target else None,
        metadata=canonical(_metadata(talk, sample, header, run)),
        **{key: time for key, time in times.items() if time is not None},
    )


def _outcome(talk: Talk, sample: dict[str, Any], locator: str) -> Outcome:
    """The first scorer's value; 1 and 0 are verdicts. An error, or a context that was full, is the end of no run that was judged."""
    key, place, scorer = _first_scorer(sample)
    value, score = scorer.get("value"), first_score(sample)
    told = Outcome(score=score, source=None if score is None else key)
    if score is None:
        where, value = at(locator, place), {"value": value}
        told = read_outcome(value, where, talk.builder.rejects, success=(), score=("value",), under=f"{key}.")
    told = told.judged(failed=0.0)
    if sample.get("invalidation"):
        return Outcome(unknown="the sample was invalidated")
    limit = object_or_empty(sample.get("limit")).get("type")
    full = limit == "context" or stop_reason(object_or_empty(sample.get("output"))) == "model_length"
    return told.void(failure_in(sample) or ("the context was full" if full else None))


def _first_scorer(sample: dict[str, Any]) -> tuple[str, str, dict[str, Any]]:
    """The field, the place and the content of the first score."""
    scores = object_or_empty(sample.get("scores"))
    for name, score in scores.items():
        return (
            f"scores.{name}",
            f"/scores/{name.replace('~', '~0').replace('/', '~1')}",
            object_or_empty(score),
        )
    return "score", "/score", object_or_empty(sample.get("score"))


def first_score(sample: dict[str, Any]) -> float | None:
    """The value of the first scorer, as Inspect turns it into a number; None when it has no such value.

    C, yes and true are 1, I, N (no answer), no and false are 0, P (partly right) is 0.5.
    """
    value = _first_scorer(sample)[2].get("value")
    if isinstance(value, bool):
        return float(value)
    if not isinstance(value, str):
        return first_number({"value": value}, "value")
    return _LETTERS.get(value, _LETTERS.get(value.lower()) if len(value) > 1 else None)


def _ending(builder: EpisodeBuilder, sample: dict[str, Any], header: dict[str, Any]) -> tuple[Ending, str]:
    """A limit, an error or a cut answer stopped it; else it ended when it was scored or the agent had the last word."""
    limit, error = object_or_empty(sample.get("limit")), object_or_empty(sample.get("error"))
    stop = stop_reason(object_or_empty(sample.get("output")))
    scored = bool(sample.get("scores") or sample.get("score"))
    if limit:
        return "truncated", f"limit: {text_or_none(limit.get('type'))} ({text_or_none(limit.get('limit'))})"
    if error:
        return "truncated", f"error: {(text_or_none(error.get('message')) or 'unknown')[:60]}"
    if (why := limit_met(stop)) is not None:
        return "truncated", why
    if scored:
        return "terminal", "scored"
    if header.get("status") in ("started", "cancelled"):
        return "truncated", f"not scored, and the evaluation's status is: {header['status']}"
    if builder.ends_unanswered:
        return "truncated", "last call is unanswered"
    if builder.messages and builder.messages[-1].role == "assistant":
        return "terminal", "end of conversation"
    return "truncated", "the log stops before the agent's answer"


def _group_id(
    sample: dict[str, Any], attachments: Attachments, task: str | None, item: str | None
) -> str | None:
    """The item's own words: epochs share them, and so do other runs, in which the item may have another number."""
    given = attachments.put_back(sample.get("input"))
    # Messages of the input get new ids in every run; a text stands for one user message.
    texts = (
        [text_of(object_or_empty(m).get("content")) for m in given] if isinstance(given, list) else [given]
    )
    if len(texts) == 1 and isinstance(texts[0], str) and texts[0].strip():
        return task_group(texts[0])
    words = canonical(texts) if any(texts) else item and f"{task}/{item}"
    return episode_id(_FAMILY, words) if words else None


def _temperature(header: dict[str, Any], run: dict[str, Any]) -> float | None:
    plan = object_or_empty(object_or_empty(header.get("plan")).get("config"))
    return first_number(object_or_empty(run.get("model_generate_config")) | plan, "temperature")


def _metadata(
    talk: Talk, sample: dict[str, Any], header: dict[str, Any], run: dict[str, Any]
) -> dict[str, Any]:
    own = {key: value for key, value in sample.items() if key not in _ELSEWHERE | {"output"}}
    if isinstance(own.get("error"), dict):
        own["error"] = {key: value for key, value in own["error"].items() if key != "traceback_ansi"}
    return own | {
        "eval": {key: value for key, value in run.items() if key != "dataset"},
        "dataset": object_or_empty(run.get("dataset")).get("name"),
        "status": header.get("status"),
        "stop_reason": stop_reason(object_or_empty(sample.get("output"))) or None,
        "call_parse_errors": talk.parse_errors,
    }
