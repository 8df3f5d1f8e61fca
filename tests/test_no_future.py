"""The law over all connectors: a state is a function of what was known strictly before its decision.

Twice: everything after a decision is changed in the episode, and the raw log itself is cut off and read again.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

from conftest import SAMPLES
from logforge.actions import ActionSpace
from logforge.connectors import detect, registry
from logforge.connectors.base import Source
from logforge.encoders import TextVectors, make_encoder
from logforge.schemas.episode import Episode
from logforge.states import StateBuilder, StateConfig, canonical_key, state_key
from made_episodes import with_another_future

DATA = Path(__file__).parent / "data" / "connectors"
FILES = sorted(p for root in (SAMPLES, DATA) for p in root.rglob("*") if p.is_file() and detect(p))
SAMPLE_FILES = [path for path in FILES if path.is_relative_to(SAMPLES)]
CUTS = 6


def read(path, label="log"):
    connector = detect(path)[0].connector
    return [item for item in connector.read(Source(path, label)) if isinstance(item, Episode)]


EPISODES = {path: read(path) for path in FILES}
SPACE = ActionSpace.build(
    (e.format, e.tools, [(s.action, s.kind, s.action_valid) for s in e.steps])
    for episodes in EPISODES.values()
    for e in episodes
)
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


@pytest.mark.parametrize("path", SAMPLE_FILES, ids=lambda path: path.name)
def test_a_log_that_stops_earlier_gives_the_same_states_up_to_there(path, tmp_path):
    whole = {episode.episode_id: BUILDER.symbols(episode) for episode in EPISODES[path]}
    by_start = {start_of(episode): episode.episode_id for episode in EPISODES[path]}
    compared = 0
    for number, data in enumerate(shorter(path, random.Random(path.name))):
        file = tmp_path / str(number) / path.name
        file.parent.mkdir()
        file.write_bytes(data)
        for episode in read(file):
            full = whole.get(episode.episode_id) or whole.get(by_start.get(start_of(episode), ""))
            if full is None or len(episode.steps) >= len(full):
                continue
            for mine, theirs in zip(BUILDER.symbols(episode)[:-1], full, strict=False):
                assert mine == theirs
                compared += 1
    assert compared > 0 or max((len(episode.steps) for episode in EPISODES[path]), default=0) <= 1


def start_of(episode):
    """What tells episodes apart even when the log was cut (an id may be a hash of the whole record)."""
    return episode.native_id, episode.session_id, episode.task, episode.locator


def shorter(path, chance):
    """The raw log cut off at several places: the list that holds its messages or events loses its tail."""
    text = path.read_text("utf-8")
    if path.suffix == ".jsonl":
        lines = text.splitlines(keepends=True)
        if "messages" not in json.loads(lines[0]):
            cuts = (
                range(2, len(lines)) if len(lines) <= 2 * CUTS else chance.sample(range(2, len(lines)), CUTS)
            )
            yield from ("".join(lines[:cut]).encode() for cut in cuts)
            return
        rows = [json.loads(line) for line in lines]
        for share in (0.3, 0.5, 0.7, 0.9):
            yield "".join(json.dumps(tail_off(row, share)) + "\n" for row in rows).encode()
        return
    for share in (0.2, 0.4, 0.6, 0.8, 0.9):
        yield json.dumps(tail_off(json.loads(text), share), indent=1).encode()


def tail_off(document, share):
    """The document with the tail of its lists of messages, events or steps cut off."""
    if isinstance(document, list):
        return [tail_off(row, share) for row in document]
    names = ("messages", "traj", "Events", "trajectory", "history", "loglines")
    cut = {
        n: v[: max(3, int(len(v) * share))] for n, v in document.items() if n in names and isinstance(v, list)
    }
    return {**document, **cut}
