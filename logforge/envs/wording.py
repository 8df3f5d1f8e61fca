"""Codes as text: what is asked, answered and said, in several wordings, one of them held out.

A text depends on its code, on a number drawn for its place in the episode, and on the scenario (who and which ticket), which
only openings and arguments name: so a run of any length has a few thousand distinct texts.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from logforge.connectors.chat import add_messages
from logforge.connectors.episodes import SOFT_REFUSAL, EpisodeBuilder, content_id
from logforge.envs.episodes import NO_ACTION, Rollout
from logforge.envs.world import HORIZON, NOTHING, Floats, World
from logforge.schemas import CLARIFY, RESPOND, Episode, parse

SCENARIOS = 1000
"""So many openings, tickets and hidden problems a run has at most; episodes of one are trials of one task."""
HELD_OUT = 1
"""So many of the wordings of each text, the last ones, are held out."""
UNKNOWN_TOOL = "no_tool_of_this_name"
"""What an action with a number outside the world's is called in a transcript."""
Message = dict[str, Any]
_BEGIN = datetime(2026, 1, 5, 8, tzinfo=UTC)
_BETWEEN_EPISODES, _BETWEEN_MESSAGES = timedelta(minutes=20), timedelta(seconds=15)


@dataclass(frozen=True)
class Wording:
    """The texts of one world. `held_out` takes those that no log has, and none of the others."""

    texts: dict[str, Any]
    held_out: bool = False

    def opening(self, scenario: int) -> str:
        """How the user begins: always alike in one scenario."""
        choices = self._choices(self.texts["opening"])
        return choices[scenario // len(self._names) % len(choices)].format(**self.surface(scenario))

    def said(self, action: str, pick: float) -> str:
        """What the agent says when it responds or clarifies."""
        return self._pick(self.texts["agent"][action], pick)

    def reply(self, name: str, pick: float) -> str:
        """The text of a reply."""
        return self._pick(self.texts["replies"][name], pick)

    def arguments(self, tool: str, scenario: int) -> str:
        """A call's arguments as JSON text."""
        surface = self.surface(scenario)
        given = self.texts["arguments"].get(tool, {})
        filled = {k: v.format(**surface) if isinstance(v, str) else v for k, v in given.items()}
        return json.dumps(filled, sort_keys=True)

    def surface(self, scenario: int) -> dict[str, str]:
        """Who and what a scenario is about."""
        (kind,) = self.texts["entities"]
        return {kind: self._names[scenario % len(self._names)], "number": str(2000 + scenario)}

    @property
    def _names(self) -> list[str]:
        (names,) = self.texts["entities"].values()
        return list(names)

    def all(self) -> list[str]:
        """Every text that can come up but for openings, whatever the scenario."""
        lists = (*self.texts["agent"].values(), *self.texts["replies"].values())
        return [text for choices in lists for text in self._choices(choices)]

    def _choices(self, wordings: list[str]) -> list[str]:
        return wordings[-HELD_OUT:] if self.held_out else wordings[:-HELD_OUT]

    def _pick(self, wordings: list[str], pick: float) -> str:
        choices = self._choices(wordings)
        return choices[min(int(pick * len(choices)), len(choices) - 1)]


@cache
def wording(world: str, held_out: bool = False) -> Wording:
    """The texts of a world by its name."""
    file = files("logforge.envs").joinpath(f"{world}.yaml")
    return Wording(parse(file.read_text("utf-8"), str(file)).value, held_out)


@dataclass(frozen=True)
class Script:
    """What turns n episodes into text: the wording, the scenario of each, and numbers in [0, 1), shape (n, HORIZON, 3)."""

    wording: Wording
    scenarios: np.ndarray[Any, Any]
    picks: Floats


def script(world: str, episodes: int, seed: int, held_out: bool = False) -> Script:
    """Scenarios and numbers for so many episodes; those of the first ones do not depend on how many there are."""
    rng = np.random.default_rng([seed, 1])
    numbers = rng.random((episodes, 1 + 3 * HORIZON))
    scenarios = (numbers[:, 0] * SCENARIOS).astype(np.int64)
    return Script(wording(world, held_out), scenarios, numbers[:, 1:].reshape(episodes, HORIZON, 3))


def transcript(run: Rollout, script: Script, episode: int, until: int = HORIZON) -> list[Message]:
    """The OpenAI-style messages of an episode, up to the step `until`, that one left out."""
    words, picks = script.wording, script.picks[episode]
    scenario = int(script.scenarios[episode])
    messages: list[Message] = [{"role": "user", "content": words.opening(scenario)}]
    for step in range(until):
        action = int(run.actions[episode, step])
        if action == NO_ACTION:
            break
        messages += turn(run, words, scenario, action, run.codes[episode, step], picks[step], step)
    clock = _BEGIN + episode * _BETWEEN_EPISODES
    for place, message in enumerate(messages):
        message["timestamp"] = (clock + place * _BETWEEN_MESSAGES).isoformat()
    return messages


def as_episode(world: World, messages: list[Message]) -> Episode:
    """Messages as ingest reads them from a log whose last word they are."""
    builder = EpisodeBuilder()
    add_messages(builder, messages, "#/messages")
    return builder.finish(
        id=content_id(world.name, messages),
        format="openai_messages",
        locator="",
        ending="truncated",
        ending_reason="still running",
        task=messages[0]["content"],
        tools=list(world.tools),
    )


def turn(
    run: Rollout, words: Wording, scenario: int, action: int, codes: Any, picks: Any, step: int
) -> list[Message]:
    """One step: what the agent does, what answers, and what the user adds."""
    world = run.world
    known = 0 <= action < len(world.actions)
    name = world.actions[action] if known else UNKNOWN_TOOL
    answer, event = int(codes[0]), int(codes[1])
    text = words.reply(world.replies[answer], picks[1])
    if name in (RESPOND, CLARIFY):
        messages = [
            {"role": "assistant", "content": words.said(name, picks[0])},
            {"role": "user", "content": text},
        ]
    else:
        messages = _called(f"call_{step}", name, words.arguments(name, scenario), text, world.status(answer))
    if event != NOTHING:
        messages.append({"role": "user", "content": words.reply(world.replies[event], picks[2])})
    return messages


def _called(call: str, name: str, arguments: str, text: str, status: str) -> list[Message]:
    function = {"name": name, "arguments": arguments}
    result: Message = {"role": "tool", "tool_call_id": call, "content": text}
    if status == "error":
        result["is_error"] = True
    elif status == "refused":
        result["status"] = SOFT_REFUSAL
    return [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": call, "type": "function", "function": function}],
        },
        result,
    ]
