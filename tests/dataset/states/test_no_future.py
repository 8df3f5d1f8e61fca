"""The law over all connectors: a state is a function of what was known strictly before its decision.

Twice: everything after a decision is changed in the episode, and the raw log itself is cut off and read again.
"""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from logforge.connectors.detection import detect, get, registry
from logforge.connectors.records.base import Source
from logforge.dataset.actions.vocabulary import ActionSpace, seen_in
from logforge.dataset.states.builder import StateBuilder, canonical_key, state_key
from logforge.dataset.states.config import StateConfig
from logforge.schemas.episode import Episode
from logforge.testing.variants import shape_of, stops_before
from logforge.texts.encoders import TextVectors, make_encoder
from support.made_episodes import with_another_future
from support.places import DATA, SAMPLES

FIXTURES = DATA / "connectors"
FILES = sorted(p for root in (SAMPLES, FIXTURES) for p in root.rglob("*") if p.is_file() and detect(p))
CUTS = 6


def read(path, label="log"):
    connector = detect(path)[0].connector
    return [item for item in connector.read(Source(path, label)) if isinstance(item, Episode)]


EPISODES = {path: read(path) for path in FILES}
SPACE = ActionSpace.build(seen_in(e) for episodes in EPISODES.values() for e in episodes)
BUILDER = StateBuilder(StateConfig(), SPACE, 512)


def vectors(states):
    texts = sorted(BUILDER.texts(states))
    known = make_encoder("hashing").encode(texts) if texts else np.zeros((0, 512), np.float32)
    matrix = np.vstack([np.zeros((1, 512), np.float32), known])
    return BUILDER.vectors(states, TextVectors({t: i for i, t in enumerate(texts, 1)}, matrix))


def test_every_connector_is_among_the_samples():
    assert {episode.format for episodes in EPISODES.values() for episode in episodes} == set(registry())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_changing_everything_after_a_decision_leaves_its_state_bit_identical(path):
    chance = random.Random(path.name)
    for episode in chance.sample(EPISODES[path], min(4, len(EPISODES[path]))):
        states = BUILDER.symbols(episode)
        for index in range(len(episode.steps)):
            other = BUILDER.symbols(with_another_future(episode, index, chance))[index]
            assert other == states[index]
            assert (state_key(other), canonical_key(other)) == (
                state_key(states[index]),
                canonical_key(states[index]),
            )
        if episode.steps:
            index = chance.randrange(len(episode.steps))
            other = BUILDER.symbols(with_another_future(episode, index, chance))[index]
            assert vectors([other]).tobytes() == vectors([states[index]]).tobytes()


@pytest.mark.parametrize("name", sorted(registry()))
def test_a_log_that_stops_earlier_gives_the_same_states_up_to_there(name, tmp_path):
    """Before any of the messages that its locators can tell apart, in the files as they are."""
    compared = 0
    for number, path in enumerate(p for p, found in EPISODES.items() if found and found[0].format == name):
        chance, shape = random.Random(path.name), shape_of(path)
        for episode in chance.sample(EPISODES[path], min(4, len(EPISODES[path]))):
            positions = range(2, len(episode.messages))
            for position in chance.sample(positions, min(CUTS, len(positions))):
                earlier = stops_before(shape, episode, position)
                if earlier is not None:
                    file = tmp_path / f"{number}.{position}" / path.parent.name / path.name
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(earlier.data())
                    compared += agreeing(get(name).read(Source(file, "log")), path)
    assert (compared > 0) == (name not in WITHOUT_TIMELINE)


WITHOUT_TIMELINE = {
    "reflexion_prog": "a row holds texts under names, not a list of messages",
    "taskmaster_reward": "a row is one decision and what came before it",
    "tau_bench_fewshot": "a dialogue is one text",
    "tooleval": "a message holds the next one",
    "cursor": "a database",
    "langgraph_checkpoints": "a database",
    "openai_agents": "a database",
    "glaive": "a dialogue is one text",
    "verl": "a conversation is one text",
    "verifiers_traces": "a trace is a tree",
    "xlam": "a row is one question with its calls",
}
"""Formats of which no file here can be cut off between two messages, and why."""


def agreeing(readings, path):
    """How many states of a shorter log agree with those of the whole one, as all must."""
    whole = {episode.episode_id: episode for episode in EPISODES[path]}
    starts = Counter(start_of(episode) for episode in EPISODES[path])
    by_start = {start_of(e): e for e in EPISODES[path] if starts[start_of(e)] == 1}
    compared = 0
    for episode in readings:
        if not isinstance(episode, Episode):
            continue
        full = whole.get(episode.episode_id) or by_start.get(start_of(episode))
        if full is None or len(episode.messages) >= len(full.messages):
            continue
        if episode.format in ANOTHER_WAY and not begins(full, episode):
            continue
        states = zip(episode.steps, BUILDER.symbols(episode), BUILDER.symbols(full), strict=False)
        for step, mine, theirs in states:
            # A turn that the cut went through is not whole.
            if not (mine.group and step.position == len(episode.messages) - 1):
                assert mine == theirs
                compared += 1
    return compared


ANOTHER_WAY = {
    "chatgpt": "a shorter tree may end in another branch",
    "aider": "what became of an answer stands after it",
    "rllib": "an episode without an id ends with its batch",
}
"""Formats of which a shorter log may tell of something else than the beginning of the longer one, and why."""


def begins(full, episode):
    """True when the longer episode begins with all that the shorter one says and decides."""
    said = [(m.role, m.content) for m in episode.messages]
    decided = [step.position for step in episode.steps]
    return said == [(m.role, m.content) for m in full.messages[: len(said)]] and decided == [
        step.position for step in full.steps[: len(decided)]
    ]


def start_of(episode):
    """What tells episodes apart even when the log was cut (an id may be a hash of the whole record)."""
    return episode.native_id, episode.session_id, episode.locator
