"""Turns that have nothing to do with their episode, put into real ones."""

from __future__ import annotations

import json
import random

import msgspec

from logforge.schemas.episode import Episode, Message, Step

PLANTED = "planted"
"""The locator of what was planted."""
REPLY = "Let's stay with my request please."
CALLS = (
    ("get_weather", {"city": "Seattle"}, '{"forecast": "light drizzle", "humidity": 81, "pressure": "falling", "wind": "gusty"}'),
    ("get_weather", {"city": "Chicago"}, '{"forecast": "sunny spells", "humidity": 40, "pressure": "rising", "wind": "calm"}'),
    ("find_recipe", {"query": "lasagna"}, "1. Boil the pasta sheets. 2. Prepare bechamel with butter and flour. 3. Layer and bake."),
    ("tell_joke", {}, "Why did the scarecrow win an award? Because he was outstanding in his field."),
    ("wiki_lookup", {"topic": "aqueducts"}, "Romans carried water over long distances by gravity alone, along a slight downward gradient."),
)  # fmt: skip
TALK = (
    "By the way, did you know that penguins mate for life and some of them present pebbles as gifts?",
    "Which football team do you support? The championship final last weekend was spectacular.",
    "Have you tried the new ramen place downtown? Their broth simmers for eighteen hours.",
)


def polluted(episodes: list[Episode], seed: int, share: float) -> list[Episode]:
    """Every so many episodes with one stray turn before a step drawn at random (not the first)."""
    rng = random.Random(seed)
    every, kinds = round(1 / share), [*CALLS, *((None, {}, text) for text in TALK)]
    found, planted = [], 0
    for number, episode in enumerate(episodes):
        if number % every == 0 and len(episode.steps) > 2:
            found.append(
                with_stray(episode, rng.randrange(1, len(episode.steps)), kinds[planted % len(kinds)])
            )
            planted += 1
        else:
            found.append(episode)
    return found


def with_stray(episode: Episode, index: int, what: tuple[str | None, dict[str, str], str]) -> Episode:
    """The episode with a call and its result, or a remark and the user's reply, before step `index`."""
    tool, arguments, text = what
    cut = episode.steps[index].position

    def moved(place: int | None) -> int | None:
        return place + 2 if place is not None and place >= cut else place

    said = ("", text) if tool else (text, REPLY)
    roles = ("assistant", "tool" if tool else "user")
    extra = [Message(position=cut + n, role=roles[n], content=said[n], locator=PLANTED) for n in (0, 1)]
    messages = [msgspec.structs.replace(m, position=moved(m.position)) for m in episode.messages]
    stray = Step(
        step=index,
        position=cut,
        kind="tool" if tool else "respond",
        action=tool or "respond",
        locator=PLANTED,
        arguments=json.dumps(arguments),
        result=text if tool else None,
        result_status="ok" if tool else None,
        result_position=cut + 1 if tool else None,
    )
    steps = [
        msgspec.structs.replace(
            s,
            step=s.step + (n >= index),
            position=moved(s.position),
            result_position=moved(s.result_position),
        )
        for n, s in enumerate(episode.steps)
    ]
    return msgspec.structs.replace(
        episode,
        messages=sorted([*messages, *extra], key=lambda message: message.position),
        steps=[*steps[:index], stray, *steps[index:]],
    )


def planted_steps(episodes: list[Episode]) -> set[tuple[str, int]]:
    """Where something was planted."""
    return {(e.episode_id, s.step) for e in episodes for s in e.steps if s.locator == PLANTED}
