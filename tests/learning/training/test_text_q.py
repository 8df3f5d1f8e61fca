"""Q over texts: an action that no log ever showed is taken where its text says it is right, and policies are told apart."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from logforge.cli.commands import main
from logforge.dataset.actions.texts import action_texts, action_vectors, name_words
from logforge.dataset.build.pipeline import BuildConfig, build_dataset
from logforge.evaluation.pipeline import evaluate
from logforge.ingestion.pipeline import ingest
from logforge.learning.policies.bundle import load_policy
from logforge.learning.policies.layers import Layer
from logforge.learning.policies.new_actions import with_actions
from logforge.learning.policies.side_inputs import SideInputs
from logforge.learning.training.config import TrainConfig, algorithms
from logforge.learning.training.pipeline import train
from logforge.learning.training.policy_vectors import policy_fit, policy_vectors
from logforge.schemas.errors import Mismatch, UnknownName, UsageError
from logforge.schemas.manifest import FeatureSlice, Vocabulary
from logforge.serving.server import StateServer
from logforge.shards.reader import load_shards, write_dataset
from logforge.shards.sides import plain_sides
from logforge.store.store import Store
from support import made_chain as chain
from support.made_tasks import manifest, task, vocabulary
from support.places import SAMPLES

EVERY = tuple(f"tool_{letter}" for letter in "abcdefghij")
UNSEEN = "tool_d"
WORDS = Vocabulary.build([name for name in EVERY if name != UNSEEN])
TOOLS = [WORDS.id(name) for name in EVERY if name != UNSEEN]
SETTINGS = {
    "algo": "text_q",
    "updates": 600,
    "hidden": (32, 32),
    "learning_rate": 3e-3,
    "alpha": 0.1,
    "anneal": True,
}


def circle(angles):
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


VECTOR_OF = dict(zip(EVERY, circle(np.arange(len(EVERY)) * 2 * np.pi / len(EVERY)), strict=True))
VECTORS = np.array([VECTOR_OF.get(name, np.zeros(2)) for name in WORDS.actions], np.float32)


def vectors_file(vectors):
    data = io.BytesIO()
    np.save(data, np.asarray(vectors, np.float32))
    return {"action_texts.npy": data.getvalue()}


def needs(rows, seed):
    return circle(np.random.default_rng(seed).uniform(0, 2 * np.pi, rows))


def right_tool(states):
    """The name of the tool whose vector is nearest to what the state needs."""
    return np.array(EVERY)[(states @ np.array([*VECTOR_OF.values()]).T).argmax(axis=1)]


def decisions(count, seed):
    """Decisions of an agent that is right in half of the cases where it can be; nobody has UNSEEN, and where it would be right all
    else fails."""
    states, rng = needs(count, seed), np.random.default_rng(seed + 1)
    right = np.array([WORDS.id(name) if name != UNSEEN else -1 for name in right_tool(states)])
    able = (right >= 0) & (rng.random(count) < 0.5)
    actions = np.where(able, right, rng.choice(TOOLS, count)).astype(np.int32)
    rewards = (actions == right).astype(np.float32)
    offered = np.isin(np.arange(WORDS.size), TOOLS)
    return replace(
        task(0, count, 0, vocabulary()),
        **plain_sides(actions, np.full(count, np.nan, np.float32)),
        actions=actions,
        rewards=rewards,
        returns=rewards,
        success=rewards.astype(np.int8),
        observations=np.repeat(states, 2, axis=0),
        masks=np.tile(offered, (2 * count, 1)),
    )


def write(folder, extra=None):
    about = manifest(WORDS, layout=(FeatureSlice("need", 0, 2),), observation_size=2)
    splits = {
        name: decisions(count, seed)
        for name, count, seed in (("train", 1500, 0), ("validation", 60, 5), ("test", 60, 9))
    }
    write_dataset(folder, splits, about, vectors_file(VECTORS) if extra is None else extra)
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    train(write(folder / "needs"), out=folder / "run", **SETTINGS)
    return folder


@pytest.fixture(scope="module")
def learnt(made):
    return load_policy(made / "run" / "text_q")


def test_an_action_that_has_no_id_is_taken_where_it_is_right(learnt):
    assert UNSEEN not in learnt.card.actions
    grown = with_actions(learnt, {UNSEEN: VECTOR_OF[UNSEEN]})
    states = needs(2000, 7)
    offered = np.tile(np.isin(np.arange(WORDS.size + 1), [*TOOLS, WORDS.size]), (2000, 1))
    right, chosen = right_tool(states), np.array(grown.card.actions)[grown.choose(states, offered)]
    assert (chosen[right == UNSEEN] == UNSEEN).mean() > 0.7
    assert (chosen == right).mean() > 0.8
    assert (chosen[right != UNSEEN] == UNSEEN).mean() < 0.1
    decision = grown.act(VECTOR_OF[UNSEEN], offered[0])
    assert decision.name == UNSEEN
    assert decision.support == 0
    assert decision.supported is False


def test_a_new_vector_is_scored_as_the_same_action_was_and_the_others_stay(learnt, tmp_path):
    states, place = needs(5, 2), WORDS.id("tool_a")
    grown = with_actions(learnt, {"again": VECTORS[place]})
    assert np.allclose(grown.scores(states)[:, -1], learnt.scores(states)[:, place], atol=1e-5)
    assert np.allclose(grown.scores(states)[:, :-1], learnt.scores(states), atol=1e-5)
    saved = load_policy(grown.save(tmp_path / "grown"))
    assert saved.card.actions == (*WORDS.actions, "again")
    assert (saved.scores(states) == grown.scores(states)).all()
    assert with_actions(learnt, {}) is learnt


def test_scores_are_those_of_a_plain_network_over_state_action_and_policy_side_by_side():
    rng = np.random.default_rng(3)

    def drawn(*shape):
        return rng.normal(size=shape).astype(np.float32)

    layers = (
        Layer(drawn(7, 4 + 3 + 2), drawn(7)),
        Layer(drawn(5, 7), drawn(5)),
        Layer(drawn(1, 5), drawn(1)),
    )
    states, side = drawn(6, 4), SideInputs(drawn(8, 3), drawn(2, 2))

    def plain(state, action, policy):
        found = np.concatenate([state, action, policy])
        for layer in layers[:-1]:
            found = np.maximum(layer.weight @ found + layer.bias, 0)
        return (layers[-1].weight @ found + layers[-1].bias)[0]

    table = np.array([[[plain(s, a, p) for a in side.vectors] for s in states] for p in side.policies])
    assert np.allclose(side.scores_under(layers, states, 1), table[1], atol=1e-4)
    assert np.allclose(side.scores(layers, states), table.max(axis=0), atol=1e-4)


def test_a_run_is_like_every_other_and_the_same_twice(made, tmp_path):
    short = {**SETTINGS, "updates": 20, "members": 2, "epochs": 2}
    for name in ("one", "two"):
        report = train(made / "needs", out=tmp_path / name, **short)
    assert set(report.policies) == {
        f"{name}{seed}" for name in ("bc", "bc_success", "text_q") for seed in ("", "-1")
    }
    assert report.policies["text_q"]["validation_td_error"] > 0
    for file in ("text_q/bundle.json", "text_q/weights.safetensors", "text_q-1/weights.safetensors"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()
    alone = train(made / "needs", out=tmp_path / "alone", **{**short, "members": 1, "seed": 1})
    assert alone.policies["text_q"]["loss"] == pytest.approx(report.policies["text_q-1"]["loss"], rel=1e-4)
    assert "text_q" in evaluate(tmp_path / "one").render()
    shown = CliRunner().invoke(main, ["policy", "show", str(tmp_path / "one" / "text_q"), "--json"])
    assert json.loads(shown.stdout)["side_columns"] == 2


def test_what_does_not_fit_is_refused(made, learnt, tmp_path):
    with pytest.raises(Mismatch, match="observations"):
        learnt.scores(np.zeros((1, 3)))
    with pytest.raises(Mismatch, match="vectors of actions"):
        with_actions(learnt, {"new": np.zeros(5)})
    with pytest.raises(Mismatch, match="NaN"):
        with_actions(learnt, {"new": np.array([np.nan, 0])})
    with pytest.raises(UsageError, match="knows 'tool_a' already"):
        with_actions(learnt, {"tool_a": np.zeros(2)})
    with pytest.raises(UsageError, match="by their ids alone"):
        with_actions(load_policy(made / "run" / "bc"), {"new": np.zeros(2)})
    with pytest.raises(UsageError, match="no vectors of its actions"):
        train(write(tmp_path / "without", {}), out=tmp_path / "run", **SETTINGS)
    with pytest.raises(Mismatch, match=r"action_texts\.npy"):
        train(write(tmp_path / "few", vectors_file(VECTORS[:3])), out=tmp_path / "run", **SETTINGS)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"algo": "cql", "policy_conditioned": True}, "text_q"),
        ({"algo": "text_q", "heads": "tool+template"}, "--heads"),
        ({"algo": "text_q", "warm_start": "run"}, "--warm-start"),
        ({"algo": "text_q", "policy_conditioned": True, "replay": "d"}, "--replay"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, named):
    with pytest.raises(UsageError) as caught:
        TrainConfig(**settings)
    assert named in str(caught.value)


# Policies


GOING = {"slow": 0.15, "fast": 0.7}


def walked(episodes, seed, names=tuple(GOING)):
    """Walks of the chain by policies that differ in how often they go on; the state does not tell which it is."""
    parts = [chain.walk(episodes, GOING[name], seed + place) for place, name in enumerate(names)]
    numbers = [
        np.full(part.size, list(GOING).index(name), np.int32) for part, name in zip(parts, names, strict=True)
    ]
    counts = [0, *np.cumsum([part.size for part in parts])]
    rows = [0, *np.cumsum([len(part.observations) for part in parts])]
    whole = {
        field: np.concatenate([getattr(part, field) for part in parts])
        for field in parts[0].__dataclass_fields__
        if not field.endswith("offsets")
    }
    for field, starts in (("episode_offsets", counts), ("observation_offsets", rows)):
        pieces = [getattr(part, field)[:-1] + start for part, start in zip(parts, starts[:-1], strict=True)]
        whole[field] = np.concatenate([*pieces, [starts[-1]]])
    whole["groups"] = np.arange(len(whole["success"]), dtype=np.int32)
    return replace(parts[0], **{**whole, "behaviour_policies": np.concatenate(numbers)})


def chains(folder, names=tuple(GOING)):
    splits = {
        name: walked(count, seed, names)
        for name, count, seed in (("train", 60, 0), ("validation", 30, 10), ("test", 5, 20))
    }
    vectors = vectors_file(np.random.default_rng(0).normal(size=(chain.VOCABULARY.size, 3)))
    write_dataset(folder, splits, chain.manifest(behaviour_policies=tuple(GOING)), vectors)
    return folder


@pytest.fixture(scope="module")
def conditioned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chains")
    settings = {**SETTINGS, "updates": 700, "target_rate": 0.02, "policy_conditioned": True}
    return train(chains(folder / "chain"), out=folder / "run", **settings), folder


def test_the_wrong_policys_fingerprint_lowers_the_fit_on_held_out_episodes(conditioned):
    report, folder = conditioned
    bundle, held = load_policy(folder / "run" / "text_q"), load_shards(folder / "chain", "validation")
    assert bundle.card.policies == tuple(GOING)
    fit = policy_fit(bundle, held)
    assert fit._asdict() == pytest.approx(report.policies["text_q"]["policy_fit"], abs=1e-4)
    assert fit.own > fit.others + 0.3
    assert any("under the vector of the policy that decided" in note for note in report.notes)
    start = np.eye(chain.CELLS, dtype=np.float32)[[0]]
    worth = [bundle.side.scores_under(bundle.layers, start, place)[0] for place in (0, 1)]
    assert worth[1][chain.FORWARD] > worth[0][chain.FORWARD]
    assert bundle.scores(start)[0, chain.FORWARD] == worth[1][chain.FORWARD]


def test_without_vectors_of_policies_nothing_is_to_be_compared(learnt, conditioned):
    _, folder = conditioned
    assert policy_fit(load_policy(folder / "run" / "bc"), load_shards(folder / "chain", "validation")) is None


def test_one_policy_is_too_few(tmp_path):
    folder = chains(tmp_path / "alone", ("fast",))
    with pytest.raises(UsageError, match="needs two or more") as caught:
        train(folder, out=tmp_path / "run", **SETTINGS, policy_conditioned=True)
    assert "--policy-conditioned" in str(caught.value.remedy)
    assert "fast" in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_vectors_of_policies_keep_what_tells_them_apart(conditioned):
    _, folder = conditioned
    places, vectors = policy_vectors(load_shards(folder / "chain"))
    assert places == (0, 1)
    assert vectors.shape == (2, 1)
    assert np.allclose(vectors[0], -vectors[1])
    assert np.isclose((vectors**2).mean(), 1.0)
    assert (vectors == policy_vectors(load_shards(folder / "chain")).vectors).all()


# Texts


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


def test_from_logs_to_a_tool_that_they_never_had(tmp_path):
    config = BuildConfig(encoder="hashing", text_size=8)
    with Store(tmp_path / "s.duckdb") as store:
        ingest(store, [SAMPLES / "tau_bench"], workers=1)
        for name in ("d", "again"):
            build_dataset(store, SAMPLES / "reward.yaml", name=name, out=tmp_path, config=config)
        episodes = list(store.episodes())[:2]
    shard, folder = load_shards(tmp_path / "d"), tmp_path / "run" / "text_q"
    vectors, words = shard.action_vectors, shard.manifest.vocabulary
    assert shard.manifest.action_texts == action_texts(words.actions)
    assert (vectors == action_vectors(StateServer(tmp_path / "d"), shard.manifest.action_texts)).all()
    assert (vectors[words.unplayable] == 0).all()
    assert len(np.unique(vectors, axis=0)) > words.size // 2
    file = tmp_path / "d" / "action_texts.npy"
    assert file.read_bytes() == (tmp_path / "again" / "action_texts.npy").read_bytes()

    options = ["--algo", "text_q", "--updates", "30", "--out", str(tmp_path / "run")]
    done = CliRunner().invoke(main, ["train", str(tmp_path / "d"), *options])
    assert done.exception is None or done.exit_code == 1, done.output
    server, policy = StateServer(folder), load_policy(folder)
    observations, masks = server.observe(episodes)
    known, *_ = policy.decisions(observations, masks)
    assert masks[0, known.action]
    new = action_vectors(server, action_texts(["cancel_hotel"], {"cancel_hotel": "booking_id"}))
    grown = with_actions(policy, {"cancel_hotel": new[0]})
    only = np.eye(words.size + 1, dtype=bool)[[-1, -1]]
    assert [one.name for one in grown.decisions(observations, only)] == ["cancel_hotel"] * 2
    assert not np.allclose(grown.scores(observations)[:, -1], policy.scores(observations).max(axis=1))

    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(Mismatch, match="checksum"):
        _ = shard.action_vectors


def test_the_command_names_every_learner():
    help_text = CliRunner().invoke(main, ["train", "--help"]).stdout
    for backend in ("torch", "d3rlpy"):
        assert all(name in help_text for name in algorithms(backend))
