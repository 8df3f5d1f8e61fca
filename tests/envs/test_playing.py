"""A run's policies played in a simulator, beside the log, the rule and online RL."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from logforge.cli.commands import main
from logforge.dataset.build.pipeline import BuildConfig, build_dataset
from logforge.dataset.states.config import StateConfig
from logforge.envs import online as online_module
from logforge.envs.catalogue import make
from logforge.envs.evaluating import evaluate_policy
from logforge.envs.online import play_online
from logforge.envs.simulation import simulate
from logforge.evaluation import playing
from logforge.evaluation.episode_metrics import SEVEN
from logforge.evaluation.playing import play
from logforge.ingestion.pipeline import ingest
from logforge.learning.training.pipeline import train
from logforge.schemas.errors import Mismatch, UnknownName, UsageError
from logforge.store.store import Store

SPEC = "gamma: 0.99\nterms:\n  success: {when: success, value: 1, at: terminal}\n"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A small run on logs of it-ops."""
    home = tmp_path_factory.mktemp("play")
    simulate(make("it-ops"), "rule-10", 80, 3, home / "logs")
    (home / "reward.yaml").write_text(SPEC)
    with Store(home / "s.duckdb") as store:
        ingest(store, [home / "logs"])
        config = BuildConfig(
            encoder="hashing", text_size=4, state=StateConfig(blocks=("memory", "meta", "mask"))
        )
        build_dataset(store, home / "reward.yaml", out=home, config=config)
    train(home / "default", out=home / "run", algo="bc", updates=150)
    return home / "run"


@pytest.fixture(scope="module")
def report(run):
    """All baselines, online RL with little practice."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            online_module, "play_online", lambda world, **more: play_online(world, 400, 100, **more)
        )
        return play(run, "it-ops", episodes=60, baselines="all")


def test_every_kind_of_policy_has_its_row_with_the_seven_metrics(report):
    assert [row.policy for row in report.rows] == ["log", "bc", "bc_success", "rule", "online"]
    assert {"behaviour, as logged", "imitation", "rule by hand", "online RL"} <= {
        row.kind for row in report.rows
    }
    for row in report.as_dict()["rows"]:
        assert set(SEVEN) <= set(row)
        assert row["success"]["low"] <= row["success"]["value"] <= row["success"]["high"]
    served = {row.policy: row.metrics for row in report.rows}["bc"]
    assert 0 < served.decision_ms.low <= served.decision_ms.value <= served.decision_ms.high
    assert served.resources["cpu_s_per_1000_decisions"] > 0
    assert served.resources["peak_mb"] > 10
    assert "20,000 episodes" in report.notes[0]
    text = report.render()
    for said in ("online RL", "invalid calls", "tool entropy", "hang (", "60 episodes of it-ops"):
        assert said in text


def test_what_is_counted_is_what_is_played(report, run):
    rule = evaluate_policy("it-ops", "rule", 60, playing._STREAM)
    row = next(row for row in report.rows if row.policy == "rule")
    assert row.metrics.success.value == pytest.approx(rule.success.value)
    assert row.metrics.steps_of_successes.value == pytest.approx(rule.mean_steps)
    assert row.metrics.reward.value == pytest.approx(rule.rollout.rewards.mean())
    buckets = row.metrics.buckets
    assert sum(one.episodes for one in buckets.values()) == 60
    solved = sum(one.episodes * one.success.value for one in buckets.values())
    assert solved == pytest.approx(rule.successes.sum())
    assert next(one for one in report.rows if one.policy == "bc").against_bc is None
    alone = play(run, "it-ops", episodes=60)
    assert [row.policy for row in alone.rows] == ["bc", "bc_success"]
    assert alone.rows[0].metrics.success == report.rows[1].metrics.success
    assert play(run, "it-ops", episodes=60, held_out=True).held_out


def test_it_is_refused_where_nothing_can_be_played(run):
    with pytest.raises(UnknownName, match="choice of baselines"):
        play(run, "it-ops", baselines="some")
    with pytest.raises(Mismatch, match="logforge simulate support-escalation"):
        play(run, "support-escalation", episodes=5)
    with pytest.raises(UnknownName):
        play(run, "chess", episodes=5)
    moved = run.parent / "default"
    moved.rename(run.parent / "away")
    try:
        with pytest.raises(UsageError, match="no longer at"):
            play(run, "it-ops", episodes=5, baselines="all")
    finally:
        (run.parent / "away").rename(moved)
    for options, said in (
        (["--baselines", "all"], "--simulator it-ops"),
        (["--episodes", "9"], "--episodes needs a simulator"),
        (["--simulator", "it-ops", "--fqe-members", "5"], "--fqe-members says how to estimate"),
    ):
        done = CliRunner().invoke(main, ["evaluate", str(run), *options])
        assert (done.exit_code, said in done.stderr) == (2, True), done.stderr


def test_the_command_plays(run, monkeypatch):
    monkeypatch.setattr(playing, "_TIMED", 5)
    arguments = ["evaluate", str(run), "--simulator", "it-ops", "--episodes", "20", "--json"]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["simulator"], found["episodes"]) == ("it-ops", 20)
    assert [row["policy"] for row in found["rows"]] == ["bc", "bc_success"]


def test_online_learning_repeats():
    world = make("it-ops")
    policy, shares = play_online(world, 200, 60, seed=1)
    again, same = play_online(world, 200, 60, seed=1)
    assert shares.tolist() == same.tolist()
    one, two = (evaluate_policy(world, found, 50, 9).rollout.actions for found in (policy, again))
    assert np.array_equal(one, two)


def test_online_learning_gets_better():
    _, shares = play_online(make("it-ops", kinds=1), 6_000, 2_400, seed=1)
    assert shares[-4:].mean() > shares[:4].mean() + 0.1
