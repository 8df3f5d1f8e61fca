"""Alarms: what stops a run, what does not, and which checkpoint is kept."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from logforge.cli.commands import main
from logforge.learning.training import torch_backend as torch_training
from logforge.learning.training.alarms import Kept, Limits, Watch
from logforge.learning.training.config import TrainConfig
from logforge.learning.training.findings import PATIENCE
from logforge.learning.training.pipeline import train
from logforge.schemas.errors import CheckFailed
from logforge.shards.reader import load_shards
from support import made_chain as chain

LIMITS = Limits(low=-2.0, high=2.0, know_nothing=1.0, log_favourite=0.3)
SETTINGS = {"updates": 600, "batch_size": 32, "hidden": (16,), "epochs": 12}


def row(epoch, q=0.5, **more):
    whole = {"validation_max_q": q, "possible_high": 1.0, "validation_td_error": 0.1, "finite": True}
    return {"epoch": epoch, "update": 10 * epoch, **whole, **more}


def watched(*rows):
    """Rows as a run sees them: none after the alarm."""
    watch = Watch("cql", LIMITS)
    for one in rows:
        if watch.stopped is None:
            watch.see(Kept(None, one, None))
    return watch


def test_q_that_grows_beyond_the_range_stops_and_the_best_checkpoint_within_it_is_kept():
    rows = [row(1, improvement=0.1), row(2, 1.9, improvement=0.3), row(3, 2.5, improvement=0.9)]
    watch = watched(*rows, row(4, 3.0, improvement=0.9), row(5, 4.0, improvement=0.9), row(6))
    assert (watch.stopped.rule, watch.stopped.epoch) == ("q_runs_away", 5)
    assert "2.5 to 4" in watch.stopped.what
    assert watch.kept.row["epoch"] == 2


@given(st.lists(st.floats(-5, 2.0), min_size=1, max_size=12))
def test_q_within_the_range_never_stops(values):
    assert watched(*(row(k, q) for k, q in enumerate(values, 1))).stopped is None


@given(st.lists(st.floats(2.1, 50), min_size=1, max_size=12))
def test_q_beyond_the_range_stops_exactly_where_it_has_grown_for_some_epochs(values):
    grew = [k for k in range(PATIENCE, len(values) + 1) if all(np.diff(values[k - PATIENCE : k]) > 0)]
    stopped = watched(*(row(k, q) for k, q in enumerate(values, 1))).stopped
    assert (stopped.epoch if stopped else None) == (grew[0] if grew else None)


def test_a_td_error_beyond_ten_times_its_least_and_beyond_knowing_nothing_stops():
    errors = [0.09, 0.1, 0.2, 1.5, 1.6]
    watch = watched(*(row(k, validation_td_error=e) for k, e in enumerate(errors, 1)))
    assert (watch.stopped.rule, watch.stopped.epoch) == ("td_error_grows", 5)
    tiny = [0.001, 0.001, 0.02, 0.5, 0.6]
    assert watched(*(row(k, validation_td_error=e) for k, e in enumerate(tiny, 1))).stopped is None
    slow = [0.5, 0.6, 2.0, 3.0, 4.0]
    assert watched(*(row(k, validation_td_error=e) for k, e in enumerate(slow, 1))).stopped is None


def test_an_error_that_grows_on_other_episodes_alone_is_overfitting_and_does_not_stop():
    """As CQL on 90 episodes with targets in the range: what it fits it fits as before."""
    errors = [1.0, 2.0, 4.0, 7.0, 10.5, 12.0, 14.0]
    fitted = [0.175, 0.216, 0.205, 0.19, 0.18, 0.19, 0.21]
    rows = [
        row(k, validation_td_error=e, td_loss=f)
        for k, (e, f) in enumerate(zip(errors, fitted, strict=True), 1)
    ]
    assert watched(*rows).stopped is None
    feeding = [row(k, validation_td_error=e, td_loss=e / 5) for k, e in enumerate(errors, 1)]
    assert watched(*feeding).stopped.rule == "td_error_grows"


def test_what_is_not_finite_stops_at_once_and_is_never_kept():
    watch = watched(row(1, improvement=0.1), row(2, finite=False))
    assert watch.stopped.rule == "not_finite"
    assert watch.kept.row["epoch"] == 1
    assert watched(row(1, finite=False)).kept is None


def test_without_validation_the_losses_alone_are_looked_at_and_the_later_checkpoint_is_kept():
    rows = [
        {"epoch": k, "update": k, "finite": True, "td_loss": e, "possible_high": 1}
        for k, e in enumerate([0.1, 0.1, 0.2, 0.3], 1)
    ]
    assert watched(*rows).best.row["epoch"] == 4
    rows += [{**rows[-1], "epoch": k, "update": k, "td_loss": 40.0} for k in (5, 6)]
    assert watched(*rows).stopped.rule == "td_error_grows"


def test_a_collapse_is_a_warning_and_none_where_it_helps():
    fallen = {"favourite": "wait", "favourite_share": 0.9, "clone_share": 0.2, "improvement_se": 0.05}
    assert [w.rule for w in watched(row(1, **fallen, improvement=0.0)).warnings()] == ["collapsed"]
    assert not list(watched(row(1, **fallen, improvement=0.4)).warnings())
    assert not list(watched(row(1, **{**fallen, "clone_share": 1.0})).warnings())


def test_the_penalty_of_cql_widens_the_range():
    """Its fixed point lies up to alpha above its target."""
    returns, actions = np.array([-1.0, 1.0]), np.array([0, 0, 1])
    free = Limits.of((-1.0, 1.0), 0.0, returns, actions, clipped=False)
    assert free == (-2.0, 2.0, 1.0, pytest.approx(2 / 3))
    assert Limits.of((-1.0, 1.0), 4.0, returns, actions, clipped=True)[:2] == (-7.0, 7.0)
    assert math.isfinite(Limits.of((-math.inf, 1.0), 0.0, returns, actions, clipped=True).high)


def looped(folder):
    """A chain whose log never arrives: every bootstrap feeds the next, and no end holds them down."""
    parts = [chain.walk(60, 0.1, seed, limit=12) for seed in range(3)]
    return chain.write_chain(folder / "chain", *parts)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return looped(tmp_path_factory.mktemp("alarms"))


def test_without_clipping_a_run_that_runs_away_is_stopped_and_says_so(dataset, tmp_path):
    settings = {**SETTINGS, "algo": "dqn", "learning_rate": 0.1, "target_rate": 0.5}
    report = train(dataset, out=tmp_path / "run", clip_targets=False, gamma=1.0, step_cost=-1.1, **settings)
    found = report.stopped["dqn"]
    assert found["rule"] in ("q_runs_away", "td_error_grows")
    assert found["kept_update"] < found["update"] < SETTINGS["updates"]
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert max(r["update"] for r in rows if r["policy"] == "dqn") == found["update"]
    assert report.policies["dqn"]["update"] == found["kept_update"]
    told = json.loads((tmp_path / "run" / "train.json").read_text())
    assert told["stopped"]["dqn"] == found
    assert "stopped dqn at update" in report.render()


def ended(seed, cut=0):
    """A chain that pays ±1 with the last step alone, whatever ended the episode; so many are merely cut off, the rest have failed."""
    part = chain.walk(40, 0.25, seed, limit=20)
    timeouts = part.timeouts & (np.cumsum(part.timeouts) <= cut)
    rewards = np.where(part.terminals, 1, np.where(part.timeouts, -1, 0)).astype(np.float32)
    returns = chain.returns_to_go(rewards, part.episode_offsets)
    terminals = part.terminals | (part.timeouts & ~timeouts)
    return replace(part, rewards=rewards, terminals=terminals, timeouts=timeouts, returns=returns)


def test_one_cut_off_episode_that_was_paid_at_its_end_does_not_hide_a_run_that_runs_away(tmp_path):
    """Its −1 is paid once. Taken for the price of every step, it would leave Q room for fifty times what is possible."""
    data = chain.write_chain(tmp_path / "chain", ended(0, 1), ended(1), ended(2), return_range=(-1.0, 1.0))
    settings = {**SETTINGS, "algo": "dqn", "learning_rate": 0.1, "target_rate": 0.5}
    report = train(data, out=tmp_path / "run", clip_targets=False, **settings)
    assert report.possible_returns == pytest.approx((-1.99, 1.0))
    assert report.stopped["dqn"]["rule"] == "q_runs_away"


def test_with_clipped_targets_the_same_run_goes_to_its_end(dataset, tmp_path):
    settings = {**SETTINGS, "algo": "dqn", "learning_rate": 0.1, "target_rate": 0.5}
    report = train(dataset, out=tmp_path / "run", gamma=1.0, step_cost=-1.1, **settings)
    assert report.stopped == {}
    assert report.alarm == ""
    assert report.policies["dqn"]["update"] == SETTINGS["updates"]


def test_training_ends_when_all_members_are_halted_and_not_before(dataset):
    config = TrainConfig(**{**SETTINGS, "updates": 40, "epochs": 4}, members=2)
    for halted, rounds in (((), 40), ((1,), 40), ((0, 1), 1)):
        found = list(torch_training.points("dqn", "dqn", load_shards(dataset), config, halted))
        assert len(found) == rounds


def test_the_command_ends_with_1_and_the_reason_on_stderr(dataset, tmp_path):
    words = ["train", str(dataset), "--out", str(tmp_path / "run"), "--algo", "dqn", "--no-clip-targets"]
    words += ["--gamma", "1", "--step-cost", "-1.1", "--learning-rate", "0.1", "--target-rate", "0.5"]
    result = CliRunner().invoke(main, [*words, "--updates", "600", "--epochs", "12", "--json"])
    assert result.exit_code == 1
    assert "Remedy:" in result.stderr
    assert json.loads(result.stdout)["stopped"]["dqn"]["rule"]


def test_a_run_that_is_lost_before_its_first_epoch_leaves_nothing(dataset, tmp_path):
    settings = {**SETTINGS, "algo": "dqn", "learning_rate": 1e30, "epochs": 1}
    with pytest.raises(CheckFailed, match="before its first epoch"):
        train(dataset, out=tmp_path / "run", clip_targets=False, **settings)
    assert not (tmp_path / "run").exists()
