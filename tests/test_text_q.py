"""Q over texts: an action that no log ever showed is taken where its text says it is right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from conftest import SAMPLES
from logforge.action_text import action_texts, action_vectors, name_words
from logforge.build import BuildConfig, build_dataset
from logforge.ingestion import ingest
from logforge.schemas.errors import InputError, Mismatch, UnknownName, UsageError
from logforge.schemas.manifest import FeatureSlice, Vocabulary
from logforge.serving import StateServer
from logforge.shards import load_shards, write_dataset
from logforge.side_arrays import plain_sides
from logforge.store import Store
from logforge.text_q import load_text_q, train_text_q
from logforge.train_config import TrainConfig
from made_tasks import manifest, task, vocabulary

TOOLS = tuple(f"tool_{letter}" for letter in "abcdefghij")
UNSEEN = "tool_d"
WORDS = Vocabulary.build(TOOLS)
CONFIG = TrainConfig(updates=800, hidden=(32, 32), learning_rate=3e-3, alpha=0.1, anneal=True)


def circle(angles):
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


VECTORS = np.zeros((WORDS.size, 2), np.float32)
VECTORS[[WORDS.id(name) for name in TOOLS]] = circle(np.arange(len(TOOLS)) * 2 * np.pi / len(TOOLS))


def needs(rows, seed):
    return circle(np.random.default_rng(seed).uniform(0, 2 * np.pi, rows))


def right_tool(states):
    """The tool whose vector is nearest to what the state needs."""
    return (states @ VECTORS.T).argmax(axis=1)


@pytest.fixture(scope="module")
def shard(tmp_path_factory):
    """Decisions of an agent that is right in half of the cases where it can be; UNSEEN is never on offer, and where it would be
    right all else fails."""
    count = 1500
    states, rng = needs(count, 0), np.random.default_rng(1)
    offered = np.zeros(WORDS.size, bool)
    offered[[WORDS.id(name) for name in TOOLS if name != UNSEEN]] = True
    right = right_tool(states)
    able = offered[right] & (rng.random(count) < 0.5)
    actions = np.where(able, right, rng.choice(np.flatnonzero(offered), count))
    rewards = (actions == right).astype(np.float32)
    whole = task(0, count, 0, vocabulary())
    propensities = np.full(count, np.nan, np.float32)
    arrays = replace(
        whole,
        **plain_sides(actions.astype(np.int32), propensities),
        actions=actions.astype(np.int32),
        rewards=rewards,
        returns=rewards,
        success=rewards.astype(np.int8),
        observations=np.repeat(states, 2, axis=0),
        masks=np.tile(offered, (2 * count, 1)),
    )
    folder = tmp_path_factory.mktemp("made") / "needs"
    layout = (FeatureSlice("need", 0, 2),)
    write_dataset(folder, {"train": arrays}, manifest(WORDS, layout=layout, observation_size=2))
    return load_shards(folder)


@pytest.fixture(scope="module")
def learnt(shard):
    return train_text_q(shard, action_texts(WORDS.actions), VECTORS, CONFIG)


def test_an_action_that_was_never_seen_is_taken_where_it_is_right(shard, learnt):
    place = WORDS.id(UNSEEN)
    assert place not in set(shard.actions)
    assert not shard.masks[:, place].any()
    states = needs(2000, 7)
    offered = np.zeros((2000, WORDS.size), bool)
    offered[:, [WORDS.id(name) for name in TOOLS]] = True
    right, chosen = right_tool(states), learnt.choose(states, offered)
    assert (chosen[right == place] == place).mean() > 0.7
    assert (chosen == right).mean() > 0.8
    assert (chosen[right != place] == place).mean() < 0.1


def test_a_new_vector_is_scored_as_the_same_action_was(learnt):
    states = needs(5, 2)
    assert np.allclose(learnt.scores(states, VECTORS[[3, 1]]), learnt.scores(states)[:, [3, 1]], atol=1e-5)


def test_saved_it_is_the_same_and_the_same_seed_gives_the_same_bytes(shard, learnt, tmp_path):
    short = replace(CONFIG, updates=20)
    for name in ("one", "two"):
        train_text_q(shard, action_texts(WORDS.actions), VECTORS, short).save(tmp_path / name)
    for file in ("text_q.json", "text_q.safetensors"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()
    again = load_text_q(learnt.save(tmp_path / "saved"))
    assert again.card.texts == learnt.card.texts
    assert (again.scores(needs(9, 1)) == learnt.scores(needs(9, 1))).all()
    (tmp_path / "one" / "text_q.safetensors").write_bytes(b"other")
    with pytest.raises(Mismatch, match="hash"):
        load_text_q(tmp_path / "one")
    with pytest.raises(InputError):
        load_text_q(tmp_path / "nowhere")


def test_what_does_not_fit_is_refused(shard, learnt):
    with pytest.raises(Mismatch, match="observations"):
        learnt.scores(np.zeros((1, 3)))
    with pytest.raises(Mismatch, match="vectors of actions"):
        learnt.scores(np.zeros((1, 2)), np.zeros((1, 5)))
    with pytest.raises(Mismatch, match="masks"):
        learnt.choose(np.zeros((1, 2)), np.ones((1, 2)))
    only = np.eye(WORDS.size, dtype=bool)[[WORDS.invalid]]
    with pytest.raises(UsageError, match="allows no action"):
        learnt.choose(np.zeros((1, 2)), only)
    with pytest.raises(Mismatch, match="texts and vectors"):
        train_text_q(shard, ["one"], VECTORS[:1])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("getUserDetails", "get user details"),
        ("mail.send-now", "mail send now"),
        ("HTTPGet_v2", "http get v 2"),
        ("suche_ärzte", "suche ärzte"),
    ],
)
def test_the_words_of_a_name(name, words):
    assert name_words(name) == words


def test_the_text_of_an_action_tells_what_is_known_of_it():
    found = action_texts(("send_mail", "wait", "<invalid>"), {"send_mail": "to, body "})
    assert found == ("send mail: to, body", "wait", "")
    with pytest.raises(UnknownName):
        action_texts(("wait",), {"wiat": "x"})


def test_it_learns_from_the_sample_logs(tmp_path):
    config = BuildConfig(encoder="hashing", text_size=8)
    with Store(tmp_path / "s.duckdb") as store:
        ingest(store, [SAMPLES], workers=1)
        build_dataset(store, SAMPLES / "reward.yaml", name="d", out=tmp_path, config=config)
    shard, server = load_shards(tmp_path / "d"), StateServer(tmp_path / "d")
    texts = action_texts(shard.manifest.actions)
    vectors = action_vectors(server, texts)
    assert (vectors[shard.manifest.vocabulary.invalid] == 0).all()
    assert len(np.unique(vectors, axis=0)) > len(texts) // 2
    rows, masks = shard.observations[shard.observation_rows], shard.masks[shard.observation_rows]

    def taken(updates):
        policy = train_text_q(shard, texts, vectors, TrainConfig(updates=updates, hidden=(32, 32)))
        chosen = policy.choose(rows, masks)
        assert masks[np.arange(len(rows)), chosen].all()
        return (chosen == shard.actions).mean()

    assert taken(200) > taken(1) + 0.2
