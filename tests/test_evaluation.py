"""Evaluation of runs on the chain MDP: the verdict, the numbers beside it, and every way to have none."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import msgspec
import numpy as np
import pytest

import made_chain as chain
from logforge import ope
from logforge.evaluation import evaluate
from logforge.policy import Golden, Layer, PolicyBundle, PolicyCard, load_policy
from logforge.schemas.errors import InputError, Mismatch, UnknownName, UsageError
from logforge.shards import load_shards
from logforge.training import train
from made_chain import ALLOWED, CELLS, FORWARD, IDLE, OFFLINE, VOCABULARY

FAST = {"members": 5, "updates": 180}


def table_policy(manifest, name, favourites):
    """A policy that takes this action in each cell, whatever is learnt."""
    weight = np.zeros((VOCABULARY.size, CELLS), np.float32)
    weight[favourites, np.arange(len(favourites))] = 1
    card = PolicyCard.of(manifest, algo=name, kind="q" if name == "cql" else "logits", golden=Golden([], []))
    return PolicyBundle(card, (Layer(weight, np.zeros(VOCABULARY.size, np.float32)),))


def made_run(folder, algo="cql", *, train_part=None, test_part=None, left_out=(), **policies):
    """A run whose policies are given as the action of each cell."""
    parts = train_part or chain.walk(30, 0.4, 0), chain.walk(3, 0.4, 1), test_part or chain.walk(12, 0.4, 2)
    dataset = chain.write_chain(folder / "chain", *parts)
    manifest = load_shards(dataset).manifest
    for name, favourites in policies.items():
        table_policy(manifest, name, favourites).save(folder / "run" / name)
    told = {
        "schema_version": 3,
        "dataset": {"path": str(dataset), "hash": manifest.hash},
        "config": {"algo": algo, "seed": 0},
        "policies": {key: {"seed": 0} for key in policies},
        "left_out": dict(left_out),
    }
    (folder / "run" / "train.json").write_text(json.dumps(told))
    return folder / "run"


AHEAD, MIXED, LATE = [FORWARD] * CELLS, [FORWARD, IDLE[0], *[FORWARD] * 4], [*[FORWARD] * 4, IDLE[2], FORWARD]


@pytest.fixture(scope="module")
def better(tmp_path_factory):
    """Only the learner gets through."""
    folder = tmp_path_factory.mktemp("better")
    made = made_run(folder, cql=AHEAD, bc=MIXED, bc_success=LATE)
    return made, evaluate(made, **FAST)


def row_of(report, name):
    return next(row for row in report.rows if row.policy == name)


def text_of(report):
    return " ".join(report.render().split())


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


@pytest.mark.slow
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


def test_of_several_members_the_first_is_evaluated(better, tmp_path):
    folder = made_run(tmp_path, cql=AHEAD, bc=MIXED, bc_success=LATE)
    told = json.loads((folder / "train.json").read_text())
    told["policies"]["cql-1"] = {"seed": 1}
    (folder / "train.json").write_text(json.dumps(told))
    assert evaluate(folder, **FAST).as_dict()["policies"] == better[1].as_dict()["policies"]
