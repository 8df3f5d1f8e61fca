"""The closed loop in small, by the commands alone: simulate, ingest, build, train, evaluate, and play what was learnt."""

from __future__ import annotations

import json
from functools import partial

import pytest
from click.testing import CliRunner

from logforge.cli.commands import main
from logforge.envs.catalogue import make
from logforge.envs.evaluating import evaluate_policy
from logforge.envs.learnt import served
from logforge.evaluation import pipeline as evaluation
from logforge.learning.policies.bundle import load_policy
from logforge.serving.server import StateServer

REWARD = """
gamma: 0.99
terms:
  success: {when: success, value: 1, at: end}
  failure: {when: NOT success, value: -1, at: end}
"""
EPISODES, PLAYED = 120, 120
LEARN = ("--preset", "sparse-text", "--learning-rate", "3e-4", "--updates", "400")
"""Of so few episodes faster learning runs away, and is stopped."""


def call(*arguments):
    done = CliRunner().invoke(main, [*arguments, "--json"])
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def loop(tmp_path_factory):
    """A run on logs of it-ops that one of ten decisions of was random, and what each command told."""
    home, told = tmp_path_factory.mktemp("loop"), {}
    (home / "reward.yaml").write_text(REWARD)
    store = ("--store", str(home / "s.duckdb"))
    commands = {
        "simulate": ("it-ops", "--episodes", str(EPISODES), "--policy", "rule-10", "--out", str(home / "logs")),
        "ingest": (str(home / "logs"), *store),
        "build-dataset": (
            "--reward", str(home / "reward.yaml"), *store, "--out", str(home), "--encoder", "hashing",
            "--text-size", "8",
        ),
        "check": ("default", *store),
        "train": (str(home / "default"), "--out", str(home / "run"), *LEARN),
        "evaluate": (str(home / "run"),),
    }  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            evaluation, "evaluate", partial(evaluation.evaluate, members=4, updates=100)
        )  # seconds, not a minute
        for name, arguments in commands.items():
            told[name] = call(name, *arguments)
    return home, told


def test_every_episode_arrives_and_is_judged(loop):
    _, told = loop
    assert told["simulate"]["episodes"] == EPISODES
    assert sum(part["episodes"] for part in told["build-dataset"]["splits"].values()) == EPISODES
    assert {row["policy"] for row in told["evaluate"]["policies"]} == {"logged", "bc", "bc_success", "cql"}
    values = [row["value"]["value"] for row in told["evaluate"]["policies"]]
    assert all(value is None or -1.1 <= value <= 1.1 for value in values)


def test_what_was_learnt_reads_the_dialogue_and_acts_better_than_chance(loop):
    home, _ = loop
    world, server = make("it-ops"), StateServer(home / "default")
    by_chance = evaluate_policy(world, "random", PLAYED, 1)
    for name in ("bc", "bc_success"):
        policy = served(server, load_policy(home / "run" / name))
        played = evaluate_policy(world, policy, PLAYED, 1)
        assert played.minus(by_chance).low > 0, name
