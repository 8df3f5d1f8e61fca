"""The doctor: runs that were spoiled in one way each get that cause first; a good run gets nothing."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from logforge.cli.commands import main
from logforge.evaluation.tuning.diagnosis import diagnose
from logforge.learning.training.findings import SURE
from logforge.learning.training.pipeline import train
from logforge.shards.arrays import ARRAYS, SplitArrays
from support import made_chain as chain
from support.made_chain import GAMMA, IDLE

GOOD = {"updates": 700, "batch_size": 64, "hidden": (16,), "learning_rate": 2e-3}
BRIEF = 30
"""Updates, where the data alone is at fault."""


def paid(arrays, rewards):
    """The same walk with other rewards."""
    rewards = np.asarray(rewards, np.float32)
    return replace(arrays, rewards=rewards, returns=chain.returns_to_go(rewards, arrays.episode_offsets))


def both(one, other):
    """Two splits one after the other."""
    parts = {}
    for name in ARRAYS:
        mine, theirs = getattr(one, name), getattr(other, name)
        if name.endswith("offsets"):
            theirs = theirs[1:] + mine[-1]
        if name == "groups":
            theirs = theirs + mine.max() + 1
        parts[name] = np.concatenate([mine, theirs])
    return SplitArrays(**parts)


def dataset(folder, change=lambda arrays: arrays, forward=0.25, episodes=600):
    parts = [chain.walk(n, forward, seed) for seed, n in enumerate((episodes, 150, 10))]
    return chain.write_chain(folder / "chain", *map(change, parts))


def diagnosed(folder, at, **settings):
    train(at, out=folder / "run", **{**GOOD, **settings})
    return diagnose(folder / "run")


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A good run; tests that change it copy it."""
    folder = tmp_path_factory.mktemp("good")
    train(dataset(folder), out=folder / "run", **GOOD)
    return folder / "run"


def test_a_good_run_gets_no_finding(good):
    report = diagnose(good)
    assert report.findings == ()
    assert (report.exit_code, report.as_dict()["healthy"]) == (0, True)
    assert "healthy" in report.render()
    result = CliRunner().invoke(main, ["doctor", str(good)])
    assert result.exit_code == 0


def test_over_estimation_is_told_from_its_causes(tmp_path):
    """No clipping, a high learning rate, fast targets, no conservatism: all are named."""
    at = dataset(tmp_path, lambda arrays: paid(arrays, np.ones(arrays.size)), forward=0.1)
    settings = {"algo": "dqn", "clip_targets": False, "learning_rate": 0.1, "target_rate": 0.5, "gamma": 1.0}
    report = diagnosed(tmp_path, at, **settings)
    first = report.findings[0]
    assert first.rule == "runs_away"
    for cause in ("range of possible returns", "learning rate 0.1", "targets", "conservatism"):
        assert cause in first.cause
    assert "a lower --alpha makes it worse" in first.remedy
    assert "stopped at update" in first.symptom


def test_a_clone_is_told_from_an_alpha_too_large(tmp_path):
    report = diagnosed(tmp_path, dataset(tmp_path, forward=0.15), alpha=100.0)
    assert [item.rule for item in report.findings] == ["clone", "alpha_scale"]
    first = report.findings[0]
    assert "alpha 100 is too large" in first.cause
    assert first.figures["clone_share"] >= 0.85
    assert first.figures["over_clone"] <= SURE * first.figures["over_clone_se"]
    result = CliRunner().invoke(main, ["doctor", str(tmp_path / "run"), "--json"])
    assert result.exit_code == 1
    told = json.loads(result.stdout)
    assert told["findings"][0]["rule"] == "clone"
    assert told["healthy"] is False


def test_a_reward_that_pays_for_idling_is_a_loop_to_farm(tmp_path):
    def idling_pays(arrays):
        return paid(arrays, arrays.rewards + 1.5 * (arrays.actions == IDLE[0]))

    report = diagnosed(tmp_path, dataset(tmp_path, idling_pays), updates=BRIEF)
    first = report.findings[0]
    assert first.rule == "paid_loop"
    assert first.figures["action"] == "respond"
    assert first.figures["pay"] == pytest.approx(1.4)
    assert first.figures["returns"] > first.figures["success"]


def test_a_step_cost_that_eats_the_pay_of_success_makes_giving_up_best(tmp_path):
    def giving_up(arrays):
        """Every fourth time the agent gives up after two steps; each step costs 2."""
        quick = chain.walk(arrays.episode_count // 3, 0.25, 9, limit=2)
        quick = replace(
            quick, terminals=quick.terminals | quick.timeouts, timeouts=np.zeros(quick.size, bool)
        )
        whole = both(arrays, quick)
        return paid(whole, whole.rewards - 2)

    report = diagnosed(tmp_path, dataset(tmp_path, giving_up), updates=BRIEF)
    first = report.findings[0]
    assert first.rule == "early_exit"
    assert first.figures["their_return"] == pytest.approx(-2.1 * (1 + GAMMA), abs=0.1)
    assert first.figures["success_return"] < -10


def test_too_little_data_and_no_success_are_told(tmp_path):
    def lost(arrays):
        return replace(arrays, success=np.zeros(arrays.episode_count, np.int8))

    report = diagnosed(tmp_path, dataset(tmp_path, lost, episodes=40), updates=BRIEF)
    rules = [item.rule for item in report.findings]
    assert rules[:2] == ["few_successes", "few_episodes"]
    assert report.findings[0].figures["share"] == 0
    assert report.findings[1].figures["episodes"] == 40


def test_logs_that_tell_no_outcome(tmp_path):
    def unmarked(arrays):
        return replace(arrays, success=np.full(arrays.episode_count, -1, np.int8))

    report = diagnosed(tmp_path, dataset(tmp_path, unmarked), updates=BRIEF)
    assert report.findings[0].rule == "no_outcomes"


@pytest.mark.parametrize(("scale", "size"), [(0.01, "large"), (30.0, "small")])
def test_an_alpha_for_returns_of_another_size(tmp_path, scale, size):
    at = dataset(tmp_path, lambda arrays: paid(arrays, arrays.rewards * scale))
    found = {item.rule: item for item in diagnosed(tmp_path, at, updates=BRIEF).findings}
    assert size in found["alpha_scale"].cause
    assert found["alpha_scale"].figures["largest_return"] == pytest.approx(9.9 * scale, rel=1e-3)


def test_a_bundle_that_was_altered_comes_first(good, tmp_path):
    shutil.copytree(good, tmp_path / "run")
    (tmp_path / "run" / "cql" / "weights.safetensors").write_bytes(b"nothing")
    assert diagnose(tmp_path / "run").findings[0].rule == "broken_bundle"


def altered(folder, **facts):
    """The record of a run with other numbers for its learner."""
    file = folder / "run" / "train.json"
    told = json.loads(file.read_text())
    told["policies"]["cql"] |= facts
    file.write_text(json.dumps(told))
    return {item.rule: item for item in diagnose(folder / "run").findings}


def test_symptoms_follow_from_the_numbers_of_the_record(good, tmp_path):
    """The rules alone, on a good run whose record is changed."""
    shutil.copytree(good, tmp_path / "run")
    found = altered(tmp_path, ood_share=0.3)
    assert set(found) == {"unsupported"}
    found = altered(tmp_path, ood_share=0.0, lost=1.0, lost_se=0.1, best_update=200)
    assert set(found) == {"too_many_updates"}
    assert "--updates 200" in found["too_many_updates"].remedy
    assert not altered(tmp_path, lost=1.0, lost_se=0.5)
    found = altered(
        tmp_path, lost=0.0, improvement=0.0, improvement_se=0.1, favourite_share=0.95, q_above=0.4
    )
    assert set(found) == {"collapsed"}
    assert "lowering alpha makes it worse" in found["collapsed"].remedy
    found = altered(tmp_path, q_above=0.0)
    assert "costs nothing" in found["collapsed"].cause
    found = altered(tmp_path, improvement=1.0, validation_max_q=99.0)
    assert set(found) == {"runs_away"}


def test_a_run_that_was_cut_short_is_told_by_its_settings(good, tmp_path):
    shutil.copytree(good, tmp_path / "run")
    file = tmp_path / "run" / "train.json"
    told = json.loads(file.read_text())
    told["config"]["updates"] = 459
    file.write_text(json.dumps(told))
    [found] = diagnose(tmp_path / "run").findings
    assert found.rule == "too_few_updates"
    assert found.symptom.startswith(
        "459 updates are few: the target networks (--target-rate 0.005) still hold 10%"
    )
    told["config"]["updates"] = 460
    file.write_text(json.dumps(told))
    assert not diagnose(tmp_path / "run").findings
