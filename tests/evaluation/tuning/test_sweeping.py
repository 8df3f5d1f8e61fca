"""The sweep: members with other settings are what a run of its own gives, and the choice keeps the default unless it is beaten."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from logforge.cli.commands import main
from logforge.evaluation.tuning.choice import SweepReport, Tried, choose
from logforge.evaluation.tuning.sweeping import SWEEP_FILE, Setting, _trained, sweep
from logforge.learning.policies.bundle import load_policy
from logforge.learning.training.findings import MOST_OOD
from logforge.learning.training.pipeline import train
from logforge.learning.training.presets import preset
from logforge.schemas.errors import UsageError
from logforge.shards.reader import load_shards
from support import made_chain as chain
from support.made_chain import CELLS

SMALL = {"updates": 60, "batch_size": 32, "hidden": (16,)}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    parts = chain.walk(60, 0.25, 0), chain.walk(20, 0.25, 1), chain.walk(6, 0.25, 2)
    return chain.write_chain(tmp_path_factory.mktemp("sweep") / "chain", *parts)


@pytest.mark.parametrize("algo", ["cql", "iql"])
def test_members_of_other_settings_are_what_a_run_of_its_own_gives(dataset, tmp_path, algo):
    settings = [Setting(0.1, 0.9, 0.0), Setting(2.0, 0.99, 0.3), Setting(1.0, 0.5, -0.2)]
    config = preset("default", algo=algo, **{**SMALL, "updates": 20})
    together = list(_trained(algo, load_shards(dataset), config, settings, (4, 0, 1), lambda *_: None))
    observations = np.eye(CELLS, dtype=np.float32)
    for setting, seed, bundle in zip(settings, (4, 0, 1), together, strict=True):
        train(dataset, out=tmp_path / "run", config=replace(config, seed=seed, **setting._asdict()))
        alone = load_policy(tmp_path / "run" / algo)
        np.testing.assert_allclose(bundle.scores(observations), alone.scores(observations), atol=1e-4)


def tried(values, ood=0.0, played=None, unsettled=""):
    return Tried({"alpha": 1.0}, np.array(values), unsettled, played, {"ood_share": ood})


NOISE = np.array([[-1.0, 0.5, 0.5, -0.2, 0.2], [0.6, -0.4, -0.7, 0.3, 0.2]])


def test_what_is_not_measurably_better_leaves_the_default():
    found = choose([tried(NOISE), tried(0.05 + NOISE[:, ::-1])], 0, "fqe")
    assert (found.place, found.reason) == (0, "not distinguishable: keep the default")
    assert found.difference.low < 0 < found.difference.high


def test_what_is_measurably_better_is_taken_by_paired_differences():
    """The noise is common to both: their intervals overlap, their difference is sure."""
    one, other = tried(NOISE), tried(0.3 + NOISE)
    assert other.fqe.low < one.fqe.high
    found = choose([one, other], 0, "fqe")
    assert found.place == 1
    assert found.difference.low > 0
    assert choose([one, other], 1, "fqe").reason == "the default has the highest lower bound"


def test_seeds_that_differ_widen_the_interval():
    steady, shaky = tried(NOISE), tried(NOISE + np.array([[3.0], [-3.0]]))
    width = [one.fqe.high - one.fqe.low for one in (steady, shaky)]
    assert width[1] > 3 * width[0]
    assert steady.fqe.value == pytest.approx(shaky.fqe.value)
    assert width[1] > 12 * 3  # two seeds, so Student's t of about one degree of freedom


def test_what_leaves_the_log_is_not_taken_however_it_is_valued():
    wild, tame = tried(9 + NOISE, ood=MOST_OOD + 0.01), tried(NOISE)
    assert choose([tame, wild], 0, "fqe").place == 0
    found = choose([wild, tame], 0, "fqe")
    assert (found.place, found.reason) == (1, "the default takes too many unsupported actions")
    found = choose([wild, wild], 0, "fqe")
    assert "keep the default" in found.reason


def test_what_did_not_settle_is_not_taken():
    found = choose([tried(NOISE), tried(9 + NOISE, unsettled="the fit did not settle")], 0, "fqe")
    assert found.place == 0
    found = choose([tried(NOISE, unsettled="the fit did not settle")], 0, "fqe")
    assert "cannot be" in found.reason or "none can be estimated" in found.reason


def test_with_a_simulator_success_decides():
    wins, losses = np.ones((2, 50)), np.zeros((2, 50))
    wins[:, :5], losses[:, :5] = 0, 1
    found = choose([tried(9 + NOISE, played=losses), tried(NOISE, played=wins)], 0, "success")
    assert found.place == 1
    assert found.difference.value == pytest.approx(0.8)


def test_where_no_case_was_solved_nothing_is_chosen():
    nothing, some = np.zeros((2, 20)), np.zeros((2, 20))
    some[0, 0] = 1
    found = choose([tried(NOISE, played=nothing), tried(NOISE, played=nothing)], 0, "success")
    assert (found.place, found.made) == (0, False)
    assert found.reason == "no setting solved any of 20 cases"
    assert found.difference.value is None
    assert tried(NOISE, played=nothing).success[:3] == pytest.approx((0, 0, 0.168), abs=1e-3)
    assert choose([tried(NOISE, played=nothing), tried(NOISE, played=some)], 0, "success").made
    wild = tried(NOISE, ood=MOST_OOD + 0.01, played=some)
    found = choose([tried(NOISE, played=nothing), wild], 0, "success")
    assert (found.made, found.reason) == (False, "no setting that keeps to the log solved any of 20 cases")


def test_a_sweep_that_chose_nothing_says_so_and_fails():
    setting = {"alpha": 1.0, "gamma": 0.99, "step_cost": 0.0}
    one = tried(NOISE, played=np.zeros((1, 20)))._replace(setting=setting)
    choice = choose([one], 0, "success")
    report = SweepReport("runs/x", {}, "it-ops", {}, (one,), one.setting, choice, stopped=False)
    assert report.failed
    assert report.as_dict()["chosen"] is None
    shown = report.render()
    assert "nothing chosen: no setting solved any of 20 cases; give more --updates" in shown
    assert "→" not in shown
    assert "0.0% [0.0%, 16.8%]" in shown
    taken = replace(report, choice=choose([tried(NOISE)], 0, "fqe"))
    assert not taken.failed
    assert "(difference" not in taken.render()


def test_a_sweep_writes_the_chosen_run_and_what_was_tried(dataset, tmp_path):
    report = sweep(
        dataset,
        out=tmp_path / "run",
        alphas=[0.3],
        seeds=2,
        fqe_members=3,
        fqe_updates=20,
        step_costs=[0, 0.5],
        **SMALL,
    )
    settings = [one.setting for one in report.tried]
    assert settings == [
        {"alpha": alpha, "gamma": 0.99, "step_cost": cost}
        for alpha, cost in ((0.3, 0.0), (0.3, 0.5), (1.0, 0.0))
    ]
    told = json.loads((tmp_path / "run" / SWEEP_FILE).read_text())
    assert told == json.loads(json.dumps(report.as_dict()))
    run = json.loads((tmp_path / "run" / "train.json").read_text())
    assert {name: run["config"][name] for name in told["chosen"]} == told["chosen"]
    assert run["config"]["members"] == 2
    assert load_policy(tmp_path / "run" / "cql-1").card.algo == "cql"
    shown = report.render()
    assert "3 settings, ranked by the lower bound of FQE on validation" in shown
    assert "default" in shown
    assert "doctor" not in shown
    assert replace(report, stopped=True).render().endswith(f"logforge doctor {report.run}")
    assert "td" not in " ".join(told["tried"][0])


def test_the_command_takes_lists_and_refuses_what_is_none(dataset, tmp_path):
    words = ["sweep", str(dataset), "--out", str(tmp_path / "run"), "--seeds", "1"]
    result = CliRunner().invoke(
        main, [*words, "--alpha", "1", "--updates", "20", "--fqe-updates", "10", "--json"]
    )
    assert result.exit_code == 0, result.stderr
    assert len(json.loads(result.stdout)["tried"]) == 1
    result = CliRunner().invoke(main, [*words, "--alpha", "1;2"])
    assert result.exit_code == 2
    assert "list of numbers" in result.stderr


def test_what_cannot_be_swept_is_refused(dataset, tmp_path):
    with pytest.raises(UsageError, match="nothing to sweep for bc"):
        sweep(dataset, out=tmp_path / "run", algo="bc")
    few = chain.write_chain(tmp_path / "few", chain.walk(9, 0.3), chain.walk(2, 0.3), chain.EMPTY)
    with pytest.raises(UsageError, match="validation cannot choose: only 2 independent"):
        sweep(few, out=tmp_path / "run")
    with pytest.raises(UsageError, match="alpha = -1"):
        sweep(dataset, out=tmp_path / "run", alphas=[-1])
