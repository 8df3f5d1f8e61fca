"""Fingerprints: the same policy is recognised over seeds, another is told apart, and nothing depends on order."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from logforge.cli.commands import main
from logforge.envs.behaviour import behaviour
from logforge.envs.catalogue import make
from logforge.envs.learnt import feature_arrays
from logforge.envs.simulation import logged
from logforge.learning.training.fingerprints import (
    CLONES,
    behaviour_clones,
    behaviour_fingerprint,
    compare,
    fingerprint,
)
from logforge.learning.training.probe_states import choose_probes
from logforge.schemas.errors import Mismatch, UnknownName, UsageError
from logforge.schemas.manifest import FeatureSlice, Manifest, Vocabulary
from logforge.shards.reader import load_shards, write_dataset
from support.made_tasks import manifest, task, vocabulary, write_task

WORLD = make("it-ops")
POLICIES = ("rule-40", "lazy")
FAST = replace(CLONES, updates=600, members=3, batch_size=256, hidden=(32, 32), learning_rate=3e-3)


def by(name, episodes, seed):
    """Logs of one policy of the simulator; POLICIES says which it is."""
    arrays = feature_arrays(logged(WORLD, behaviour(name), episodes, seed)[0], 0.99)
    places = np.full(arrays.size, POLICIES.index(name), np.int32)
    return replace(arrays, behaviour_policies=places)


def joined(first, second):
    """Two splits one after the other."""
    parts = {
        name: np.concatenate([getattr(first, name), getattr(second, name)])
        for name in vars(first)
        if name in first.__dataclass_fields__
    }
    steps, rows = first.size, len(first.observations)
    parts["episode_offsets"] = np.concatenate([first.episode_offsets, second.episode_offsets[1:] + steps])
    parts["observation_offsets"] = np.concatenate(
        [first.observation_offsets, second.observation_offsets[1:] + rows]
    )
    parts["groups"] = np.arange(len(parts["success"]), dtype=np.int32)
    return replace(first, **parts)


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    """A dataset that two policies of the simulator logged, and each of them alone."""
    arrays = joined(by("rule-40", 1500, 1), by("lazy", 1500, 2))
    size = arrays.observation_size
    about = Manifest(
        dataset="it",
        actions=(*WORLD.actions, "<invalid>"),
        layout=(FeatureSlice("features", 0, size),),
        observation_size=size,
        gamma=0.99,
        spec_hash="5bec",
        config={"window": 10},
        behaviour_policies=POLICIES,
    )
    folder = tmp_path_factory.mktemp("made") / "it"
    splits = {"train": arrays, "validation": by("rule-40", 150, 3), "test": by("lazy", 150, 4)}
    write_dataset(folder, splits, about)
    return folder


@pytest.fixture(scope="module")
def clones(simulated):
    shard = load_shards(simulated)
    return {
        (name, seed): clone
        for name in POLICIES
        for seed, clone in enumerate(behaviour_clones(shard, name, FAST))
    }


@pytest.mark.parametrize(("name", "split"), [("rule-40", "validation"), ("lazy", "test")])
def test_seeds_of_one_policy_are_alike_and_another_policy_is_not(simulated, clones, name, split):
    """In states as the policy meets them."""
    probes = choose_probes(load_shards(simulated, split))
    prints = {key: fingerprint(bundle, probes) for key, bundle in clones.items()}
    mine = [found for (policy, _), found in prints.items() if policy == name]
    others = [found for (policy, _), found in prints.items() if policy != name]
    assert min(a.similarity(b) for a, b in itertools.combinations(mine, 2)) >= 0.99
    assert max(a.similarity(b) for a in mine for b in others) < 0.9


def test_a_logged_policys_fingerprint_does_not_depend_on_seeds_where_it_never_came(simulated):
    shard = load_shards(simulated)
    probes = choose_probes(shard)
    sure = replace(FAST, updates=300, members=5, batch_size=128)
    prints = {
        name: [behaviour_fingerprint(shard, name, probes, replace(sure, seed=seed)) for seed in (0, 5)]
        for name in POLICIES
    }
    for one, again in prints.values():
        assert one.similarity(again) >= 0.99
    assert prints["lazy"][0].similarity(prints["rule-40"][0]) < 0.9


def test_a_fingerprint_is_the_chances_in_the_probes(simulated, clones):
    probes = choose_probes(load_shards(simulated), 40)
    bundle = clones["lazy", 0]
    found = fingerprint(bundle, probes)
    assert found.vector.dtype == np.float32
    assert found.vector.shape == (40 * len(bundle.card.actions),)
    assert (found.chances == bundle.probabilities(probes.observations, probes.masks)).all()
    assert (found.chances[~probes.masks] == 0).all()
    assert found.similarity(found) == pytest.approx(1.0)
    greedy = [fingerprint(clones[key], probes, temperature=0.0) for key in (("lazy", 0), ("rule-40", 0))]
    assert greedy[0].similarity(greedy[1]) == pytest.approx(greedy[0].agreement(greedy[1]))


def test_a_clone_follows_the_steps_of_its_own_policy(simulated, clones):
    shard = load_shards(simulated)
    rows = shard.observation_rows
    for place, name in enumerate(POLICIES):
        mine = np.asarray(shard.behaviour_policies) == place
        likely = {
            other: np.log(
                clones[other, 0].probabilities(shard.observations[rows[mine]], shard.masks[rows[mine]])[
                    np.arange(mine.sum()), shard.actions[mine]
                ]
            ).mean()
            for other in POLICIES
        }
        assert max(likely, key=likely.get) == name


def test_probes_are_the_same_in_any_order_of_the_episodes(tmp_path):
    words = vocabulary()
    whole = task(0, 80, 3, words)
    order = np.random.default_rng(0).permutation(80)
    rows = (2 * order[:, None] + [0, 1]).reshape(-1)
    turned = replace(
        whole,
        **{name: getattr(whole, name)[order] for name in ("actions", "rewards", "returns", "success")},
        proposed_actions=whole.proposed_actions[order],
        observations=whole.observations[rows],
        masks=whole.masks[rows],
    )
    found = []
    for name, arrays in (("one", whole), ("two", turned)):
        write_dataset(tmp_path / name, {"train": arrays}, manifest(words))
        found.append(choose_probes(load_shards(tmp_path / name), 20))
    assert found[0].hash == found[1].hash
    assert (found[0].observations == found[1].observations).all()


def test_probes_are_distinct_and_spread_over_actions_and_offers(simulated):
    shard = load_shards(simulated)
    probes = choose_probes(shard, 64)
    assert probes.size == 64
    assert len(np.unique(np.concatenate([probes.observations, probes.masks], axis=1), axis=0)) == 64
    _, counts = np.unique(probes.logged, return_counts=True)
    logged_actions = np.unique(shard.actions)
    assert len(counts) >= len(logged_actions) - 1
    assert (probes.masks.sum(axis=1) > 1).all()
    assert not probes.masks[:, shard.manifest.vocabulary.unplayable].any()


def test_offers_are_spread_within_an_action(tmp_path):
    words = vocabulary()
    arrays = task(0, 60, 3, words)
    masks = arrays.masks.copy()
    rare = np.flatnonzero(arrays.actions == words.id("a"))[:2]
    masks[2 * rare, words.id("d")] = False
    write_dataset(tmp_path / "d", {"train": replace(arrays, masks=masks)}, manifest(words))
    probes = choose_probes(load_shards(tmp_path / "d"), 8)
    offered = probes.masks[probes.logged == words.id("a")]
    assert len(np.unique(offered, axis=0)) == 2


def test_a_state_without_a_choice_is_no_probe(tmp_path):
    words = vocabulary()
    arrays = task(0, 10, 3, words)
    masks = np.zeros_like(arrays.masks)
    masks[np.arange(20), np.repeat(arrays.actions, 2)] = True
    write_dataset(tmp_path / "d", {"train": replace(arrays, masks=masks)}, manifest(words))
    with pytest.raises(UsageError, match="offers two actions"):
        choose_probes(load_shards(tmp_path / "d"))
    with pytest.raises(UsageError, match="0 probes"):
        choose_probes(load_shards(tmp_path / "d"), 0)


def test_the_same_call_gives_the_same_report_and_the_log_is_recognised(simulated, clones, tmp_path):
    for name in POLICIES:
        clones[name, 1].save(tmp_path / name)
    call = {"against": [tmp_path / "lazy"], "behaviours": ["rule-40"], "probes": 100, "clones": FAST}
    first, again = (compare(tmp_path / "rule-40", simulated, **call) for _ in range(2))
    assert first == again
    lazy, own = first.likeness
    assert own.policy == "log: rule-40"
    assert own.cosine > 0.95 > lazy.cosine
    assert sum(first.logged.values()) == first.probes == 100


def test_policies_of_other_actions_or_states_are_refused(simulated, clones, tmp_path):
    clones["lazy", 0].save(tmp_path / "lazy")
    other = write_task(tmp_path / "tasks", 0, vocabulary())
    with pytest.raises(Mismatch, match="observation size"):
        compare(tmp_path / "lazy", other)
    shard = load_shards(simulated)
    few, many = (fingerprint(clones["lazy", 0], choose_probes(shard, count)) for count in (10, 20))
    with pytest.raises(Mismatch, match="probe states"):
        few.similarity(many)
    with pytest.raises(Mismatch, match="action vocabulary"):
        few.similarity(replace(few, actions=Vocabulary.build(["x"]).actions))


def test_a_policy_that_the_log_does_not_know_is_refused(simulated, tmp_path):
    with pytest.raises(UnknownName, match="rule-4"):
        behaviour_clones(load_shards(simulated), "rule-4")
    with pytest.raises(UsageError, match="who decided"):
        behaviour_clones(load_shards(write_task(tmp_path / "tasks", 0, vocabulary())), "lazy")


def test_the_command_compares(simulated, clones, tmp_path):
    for name in POLICIES:
        clones[name, 0].save(tmp_path / name)
    given = ["policy", "fingerprint", str(tmp_path / "lazy"), "--dataset", str(simulated), "--probes", "50"]
    given += ["--against", str(tmp_path / "rule-40"), "--against", str(tmp_path / "lazy")]
    text = CliRunner().invoke(main, given)
    assert text.exit_code == 0, text.output
    assert "50 probe states of train" in text.output
    found = json.loads(CliRunner().invoke(main, [*given, "--json"]).output)
    assert [round(item["cosine"], 6) for item in found["likeness"]][1] == 1.0
    assert found["likeness"][0]["cosine"] < 0.9
    assert found["likeness"][1]["fingerprint"] == found["fingerprint"]
