"""Evaluation of runs on the chain MDP: the verdict, the numbers beside it, and every way to have none."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from logforge.core.intervals import Estimate
from logforge.evaluation import measuring, verdict
from logforge.evaluation.pipeline import evaluate
from logforge.evaluation.report import PolicyRow, agreement
from logforge.learning.ope import fqe as ope
from logforge.learning.ope.fqe import Fitted
from logforge.learning.ope.fqe_fit import OutOfBag
from logforge.learning.ope.importance_sampling import Importance, Weighted
from logforge.learning.policies.bundle import load_policy
from logforge.learning.training.pipeline import train
from logforge.schemas.errors import InputError, Mismatch, UnknownName, UsageError
from logforge.schemas.transition import PROPENSITY_KINDS
from logforge.shards.reader import load_shards
from support import made_chain as chain
from support.made_chain import ALLOWED, CELLS, FORWARD, IDLE, OFFLINE, VOCABULARY
from support.made_runs import AHEAD, FAST, LATE, MIXED, made_run, text_of


@pytest.fixture(scope="module")
def better(tmp_path_factory):
    """Only the learner gets through."""
    folder = tmp_path_factory.mktemp("better")
    made = made_run(folder, cql=AHEAD, bc=MIXED, bc_success=LATE)
    return made, evaluate(made, **FAST)


def row_of(report, name):
    return next(row for row in report.rows if row.policy == name)


def test_a_learner_that_gets_through_is_better_than_clones_that_do_not(better):
    _, report = better
    assert report.verdict.better is True
    assert report.verdict.text.startswith("cql is better than cloning: +")
    assert report.verdict.difference.low > 0
    assert "(n = 12 episodes, " in report.verdict.text
    assert row_of(report, "cql").value.value == pytest.approx(chain.true_value(1), abs=0.3)
    assert row_of(report, "bc").value.value < 0


def test_the_rival_is_the_better_of_the_clones(tmp_path):
    """Cloned successes go forward as the learner does: no better, though far better than plain cloning."""
    report = evaluate(made_run(tmp_path, cql=AHEAD, bc=MIXED, bc_success=AHEAD), **FAST)
    assert report.verdict.against == "bc_success"
    assert report.verdict.difference[:3] == (0, 0, 0)
    assert report.verdict.better is False
    assert report.verdict.text.startswith("cql is no better than cloning: +0.00")


def test_a_learner_that_is_worse_is_no_better(tmp_path):
    report = evaluate(made_run(tmp_path, cql=MIXED, bc=AHEAD), **FAST)
    assert report.verdict.better is False
    assert report.verdict.difference.high < 0


def test_where_all_logs_are_one_policys_the_learner_is_no_better_than_cloning(tmp_path):
    """Trained, not made up: the log always goes forward, so there is nothing to gain."""
    parts = chain.walk(60, 1.0, 0), chain.walk(6, 1.0, 1), chain.walk(10, 1.0, 2)
    train(chain.write_chain(tmp_path / "chain", *parts), out=tmp_path / "run", updates=300)
    report = evaluate(tmp_path / "run", **FAST)
    assert "cql is no better than cloning" in report.verdict.text
    assert row_of(report, "bc").match.value == 1
    assert row_of(report, "bc").value.value == pytest.approx(chain.true_value(1), abs=0.1)


def test_the_logged_row_is_the_mean_return_of_complete_episodes(tmp_path):
    held = chain.walk(14, 0.4, 5, limit=14)
    report = evaluate(made_run(tmp_path, test_part=held, cql=AHEAD, bc=AHEAD), **FAST)
    returns = [
        sum(reward * 0.99**step for step, reward in enumerate(episode.rewards))
        for episode in held.episodes()
        if episode.terminal
    ]
    logged = row_of(report, "logged").value
    assert 5 <= len(returns) < 14
    assert report.complete == len(returns)
    assert logged.value == pytest.approx(np.mean(returns), abs=1e-4)
    assert logged.low < logged.value < logged.high
    assert any("are cut off" in caveat for caveat in report.caveats)


def test_action_match_counts_valid_decisions_and_like_bc_all(tmp_path):
    held = chain.walk(12, 0.4, 2)
    actions = held.actions.copy()
    actions[::7] = VOCABULARY.invalid
    held = replace(held, actions=actions)
    report = evaluate(made_run(tmp_path, test_part=held, cql=AHEAD, bc=MIXED), **FAST)
    known = actions[actions != VOCABULARY.invalid]
    assert row_of(report, "cql").match.value == pytest.approx((known == FORWARD).mean())
    in_second_cell = held.observations[held.observation_rows, 1] == 1
    assert row_of(report, "cql").like_bc == pytest.approx(1 - in_second_cell.mean())
    assert row_of(report, "bc").like_bc == 1


def test_decisions_the_log_never_made_are_counted(tmp_path):
    """In the second cell the train log never took the one idle action that cql would take there."""
    part = chain.walk(30, 0.4, 0)
    second = part.observations[part.observation_rows, 1] == 1
    actions = np.where(second & (part.actions == IDLE[0]), IDLE[1], part.actions).astype(np.int32)
    folder = made_run(tmp_path, train_part=replace(part, actions=actions), cql=MIXED, bc=AHEAD)
    report = evaluate(folder, **FAST)
    held = load_shards(tmp_path / "chain", "test")
    share = (held.observations[held.observation_rows, 1] == 1).mean()
    assert row_of(report, "cql").support == pytest.approx((share, 0))
    assert row_of(report, "bc").support.no_similar_state == 0
    assert share > 0.1
    assert any("of cql's decisions are not supported" in caveat for caveat in report.caveats)
    assert not any("of bc's decisions" in caveat for caveat in report.caveats)


def test_a_state_unlike_any_of_the_train_split_is_counted_apart(tmp_path):
    held = chain.walk(12, 0.4, 2)
    observations = held.observations.copy()
    observations[observations[:, 1] == 1, 2] = 40
    report = evaluate(
        made_run(tmp_path, test_part=replace(held, observations=observations), cql=AHEAD, bc=AHEAD), **FAST
    )
    share = (observations[held.observation_rows, 2] == 40).mean()
    assert row_of(report, "cql").support.no_similar_state == pytest.approx(share)


def test_masks_bind_what_is_evaluated(tmp_path):
    """A policy whose favourite is never offered is evaluated on what it does instead."""
    report = evaluate(made_run(tmp_path, cql=[OFFLINE] * CELLS, bc=AHEAD), **FAST)
    assert row_of(report, "cql").favourite[0] in {VOCABULARY.actions[a] for a in ALLOWED}


def test_a_collapsed_policy_is_called_so(better):
    _, report = better
    assert row_of(report, "cql").favourite == ("forward", 1.0)
    assert any("cql repeats one action, 'forward', in 100%" in caveat for caveat in report.caveats)


def test_too_few_episodes_cannot_be_estimated(tmp_path):
    report = evaluate(made_run(tmp_path, test_part=chain.walk(3, 0.4, 2), cql=AHEAD, bc=AHEAD), **FAST)
    assert report.verdict.better is None
    assert "cql cannot be compared with cloning: only 3 independent held-out episodes" in text_of(report)
    assert "value of logged: only 3 independent complete episodes, 5 are needed" in text_of(report)
    assert all(row.value.value is None and row.value.reason for row in report.rows)
    assert row_of(report, "cql").like_bc == 1


def test_episodes_that_are_all_cut_off_cannot_be_estimated(tmp_path):
    held = chain.walk(12, 0.4, 2, limit=4)
    report = evaluate(made_run(tmp_path, test_part=held, cql=AHEAD, bc=AHEAD), **FAST)
    assert "no held-out episode is complete" in report.verdict.text
    assert report.complete == 0


def test_an_empty_split_is_reported_and_not_divided_by(tmp_path):
    report = evaluate(made_run(tmp_path, test_part=chain.EMPTY, cql=AHEAD, bc=AHEAD), **FAST)
    assert report.decisions == 0
    assert "n = 0 episodes, 0 decisions" in text_of(report)
    assert "nan" not in report.render().lower()
    json.dumps(report.as_dict(), allow_nan=False)


def test_a_fit_that_does_not_settle_makes_no_verdict(tmp_path, monkeypatch):
    monkeypatch.setattr(ope, "ROUNDS", 2)
    report = evaluate(made_run(tmp_path, cql=AHEAD, bc=MIXED), members=4, updates=180)
    assert report.verdict.better is None
    assert "cql cannot be compared with cloning: bc: the fit did not settle" in report.verdict.text
    assert row_of(report, "bc").value.value is None
    assert row_of(report, "cql").value.value is not None
    assert "— value of bc: the fit did not settle" in text_of(report)


def test_members_of_a_learner_that_did_not_settle_have_no_values(tmp_path, monkeypatch):
    monkeypatch.setattr(ope, "ROUNDS", 2)
    made = made_run(tmp_path, bc=MIXED, cql=AHEAD, **{"bc-1": MIXED, "cql-1": AHEAD})
    report = evaluate(made, members=6, updates=180)
    row = row_of(report, "bc")
    assert "did not settle" in row.value.reason
    assert row.members == {}
    assert row.iqm is None
    assert "members of bc" not in text_of(report)


def test_little_overlap_is_said_where_some_estimators_are_refused():
    held = chain.walk(600, 0.9, 6)
    refused = Weighted(Estimate(None, reason="an effective sample size of 4.0"), 4.0)
    estimates = {"is": refused, "pdis": Weighted(Estimate(1.0, 0.5, 1.5), 20.0)}
    row = PolicyRow("cql", Estimate(None), Estimate(None), importance=Importance(estimates))
    assert "effective sample of 20 of 600 episodes" in " ".join(verdict._row_caveats(row, held))
    nothing = row._replace(importance=Importance({"is": refused}))
    assert not [*verdict._row_caveats(nothing, held)]


def test_what_follows_a_cut_off_episode_needs_a_member_that_never_drew_it():
    held = chain.walk(12, 0.4, 2, limit=6)
    cut = ~held.terminals[held.episode_offsets[1:] - 1]
    assert 0 < cut.sum() < 12
    q = np.ones(held.masks.shape)

    def told(counts):
        fit = Fitted(np.zeros(2), 0.0, 1.0, OutOfBag(q, counts))
        return measuring._q(measuring.Measured(held, (), {"cql": fit}, "", {}), "cql")

    assert told(np.ones(12, int)) == (pytest.approx(q), "")
    found, _ = told(np.where(cut, 1, 0))  # true ends: 0 instead of Q is noise alone
    assert found is not None
    found, why = told(np.where(cut, 0, 1))
    assert found is None
    assert why.startswith(f"no bootstrap member is without {cut.sum()} of {cut.sum()} cut-off episodes")


def test_a_run_of_clones_only_has_nothing_to_compare(tmp_path):
    left_out = {"bc_success": "no complete episode of the train split is marked a success"}
    report = evaluate(made_run(tmp_path, "bc", bc=AHEAD, left_out=left_out.items()), **FAST)
    assert report.verdict.better is None
    assert "there is nothing to compare" in report.verdict.text
    assert "bc_success is missing: no complete episode" in text_of(report)


def test_the_text_fits_a_terminal_and_the_json_has_no_nan(better):
    _, report = better
    assert max(map(len, report.render().splitlines())) <= 100
    assert "few episodes: 12" in text_of(report)
    assert "30 train episodes: below about 500" in text_of(report)
    told = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    assert [row["policy"] for row in told["policies"]] == ["logged", "bc", "bc_success", "cql"]
    assert told["policies"][0]["action_match"] == {
        "value": None,
        "low": None,
        "high": None,
        "reason": "it is the log itself",
    }
    assert told["verdict"]["difference"]["low"] > 0
    assert told["settings"] == {**FAST, "seed": 0, "gamma": 0.99}


def test_the_same_evaluation_twice_gives_the_same_numbers(better):
    made, report = better
    ticks = []
    assert evaluate(made, **FAST, progress=lambda *tick: ticks.append(tick)).as_dict() == report.as_dict()
    dones = [done for done, *_ in ticks]
    assert dones == sorted(dones)
    assert all(done <= total for done, total, _ in ticks)


def test_a_dataset_that_was_built_again_is_refused_unless_it_is_named(tmp_path):
    made = made_run(tmp_path, cql=AHEAD, bc=AHEAD)
    chain.write_chain(
        tmp_path / "chain", chain.walk(30, 0.4, 7), chain.walk(3, 0.4, 1), chain.walk(12, 0.4, 2)
    )
    with pytest.raises(Mismatch, match="built again"):
        evaluate(made, **FAST)
    named = evaluate(made, dataset_path=tmp_path / "chain", **FAST)
    assert any("not the dataset the run was trained on" in caveat for caveat in named.caveats)


def test_a_dataset_with_other_actions_is_refused(tmp_path):
    made = made_run(tmp_path, cql=AHEAD, bc=AHEAD)
    actions = tuple("onward" if name == "forward" else name for name in VOCABULARY.actions)
    other = chain.write_chain(
        tmp_path / "other",
        chain.walk(9, 0.4, 0),
        chain.walk(3, 0.4, 1),
        chain.walk(9, 0.4, 2),
        actions=actions,
    )
    with pytest.raises(Mismatch, match="action vocabulary"):
        evaluate(made, dataset_path=other, **FAST)


def test_the_train_split_is_marked_as_what_it_is(tmp_path):
    report = evaluate(made_run(tmp_path, cql=AHEAD, bc=AHEAD), split="train", members=2, updates=100)
    assert any("trained on: the numbers flatter" in caveat for caveat in report.caveats)
    assert not any("updates are few" in caveat for caveat in report.caveats)


def test_a_run_and_a_log_that_are_too_small_are_said(tmp_path):
    made = made_run(tmp_path, cql=AHEAD, bc=AHEAD)
    told = json.loads((made / "train.json").read_text())
    told["config"]["updates"] = 30
    (made / "train.json").write_text(json.dumps(told))
    caveats = evaluate(made, members=2, updates=100).caveats
    assert any(caveat.startswith("30 updates are few: the target networks") for caveat in caveats)
    assert "30 train episodes: below about 500 no gain over cloning was measured" in caveats


def test_what_is_not_there_is_said(tmp_path):
    with pytest.raises(UsageError, match="no run"):
        evaluate(tmp_path)
    made = made_run(tmp_path, cql=AHEAD, bc=AHEAD)
    with pytest.raises(UnknownName, match="split"):
        evaluate(made, split="tset")
    with pytest.raises(UsageError, match="members"):
        evaluate(made, members=1)
    with pytest.raises(UsageError, match="at least 2 and 100"):
        evaluate(made, updates=99)
    shutil.move(tmp_path / "chain", tmp_path / "moved")
    with pytest.raises(UsageError, match="no longer at"):
        evaluate(made)
    assert evaluate(made, dataset_path=tmp_path / "moved", members=2, updates=100).episodes == 12
    (made / "train.json").write_text("[]")
    with pytest.raises(InputError, match="not the record of a run"):
        evaluate(made)


def test_a_bundle_of_another_dataset_inside_the_run_is_refused(tmp_path):
    made = made_run(tmp_path, cql=AHEAD, bc=AHEAD)
    policy = load_policy(made / "cql")
    card = msgspec.structs.replace(policy.card, layout=(policy.card.layout[0].__class__("other", 0, CELLS),))
    replace(policy, card=card).save(made / "cql")
    with pytest.raises(Mismatch, match="feature layout"):
        evaluate(made, **FAST)


def test_all_members_of_a_learner_are_judged_and_their_spread_counts(tmp_path):
    """One of two goes through: better by chance of the seed, and no better for all that is known."""
    made = made_run(tmp_path, bc=MIXED, cql=AHEAD, **{"bc-1": MIXED, "cql-1": MIXED})
    report = evaluate(made, **FAST)
    row = row_of(report, "cql")
    assert [*row.members] == ["cql", "cql-1"]
    assert row.members["cql"] == pytest.approx(chain.true_value(1), abs=0.3)
    assert row.members["cql-1"] < 0 < row.members["cql"]
    assert row.value.value is None
    assert "holds all that a return can be" in row.value.reason
    assert row.iqm is None
    assert report.verdict.better is False
    assert report.verdict.difference.value > 5
    assert "higher in 1 of 2 members" in report.verdict.text
    assert "members of cql: cql 9." in text_of(report)
    second = chain.walk(12, 0.4, 2)
    in_second_cell = second.observations[second.observation_rows, 1] == 1
    assert row.like_bc == pytest.approx(1 - in_second_cell.mean() / 2)
    assert row_of(report, "bc").like_bc == 1
    told = json.loads(json.dumps(report.as_dict(), allow_nan=False))["policies"][-1]
    assert told["members"] == row.members


def test_members_share_the_effort():
    assert [measuring._share(20, trained) for trained in (1, 2, 5, 10, 40)] == [20, 10, 4, 3, 3]


def test_a_log_without_propensities_says_how_to_get_some(better):
    _, report = better
    found = row_of(report, "cql").importance.estimates["wis"]
    assert found.estimate.reason.startswith("propensities of ")
    assert "importance sampling cannot judge these policies: propensities of" in text_of(report)
    assert "--estimate-propensity" in text_of(report)
    assert text_of(report).count("are missing") == 1


def test_known_propensities_give_estimates_beside_fqe(tmp_path):
    held = chain.walk(60, 0.9, 6)
    ahead = held.actions == FORWARD
    held = replace(
        held,
        propensities=np.where(ahead, 0.9, 0.1 / len(IDLE)).astype(np.float32),
        propensity_kinds=np.full(held.size, PROPENSITY_KINDS.index("logged"), np.int8),
    )
    report = evaluate(made_run(tmp_path, test_part=held, cql=AHEAD, bc=MIXED), **FAST)
    found = row_of(report, "cql").importance.estimates
    assert found["wis"].estimate.value == pytest.approx(chain.true_value(1), abs=1e-3)
    assert found["wis"].ess == pytest.approx(_all_ahead(held))
    assert found["dr"].estimate.value == pytest.approx(chain.true_value(1), abs=0.5)
    text = text_of(report)
    assert "effective episodes" in text
    assert "cql: " in text
    told = report.as_dict()["policies"][-1]["importance"]
    assert set(told["estimates"]) == {"is", "wis", "pdis", "wpdis", "dr", "wdr"}
    assert told["weight_cap"] is None
    alone = row_of(report, "bc").importance.estimates["is"].estimate
    assert alone.reason.startswith("no overlap")


def _all_ahead(held):
    return sum((episode.actions == FORWARD).all() for episode in held.episodes())


def told(fqe, whole=True, **values):
    low = Weighted(
        Estimate(None, reason="an effective sample size of 3.0 of 50 episodes, 10 are needed"), 3.0
    )
    estimates = dict.fromkeys(("is", "wis", "pdis", "wpdis", "dr", "wdr"), low)
    estimates |= {
        name: Weighted(Estimate(value, value - 0.1, value + 0.1), 30.0) for name, value in values.items()
    }
    return agreement("cql", fqe, Importance(estimates), whole)


def test_agreement_and_disagreement_of_estimators_are_said_in_a_line():
    fqe = Estimate(0.5, 0.4, 0.6)
    assert told(fqe, wis=0.55, dr=0.4).startswith(
        "cql: wis, dr agree with FQE; the others: an effective sample"
    )
    assert "disagree: FQE 0.50 [0.40, 0.60], wis 0.10 [0.00, 0.20]; trust none" in told(fqe, wis=0.1, dr=0.5)
    assert "which correct FQE's own Q" in told(fqe, dr=0.5, wdr=0.5)
    assert "judge the logged horizon" in told(fqe, whole=False, wis=0.1)
    assert told(fqe, whole=False, wis=0.1, dr=0.5).startswith("cql: dr agree")
    assert told(Estimate(None, reason="did not settle"), wis=0.5).startswith(
        "cql: FQE has no value to hold wis"
    )
    assert told(fqe).startswith("importance sampling cannot judge cql: an effective sample")
