"""What kept checkpoints are worth, in small: near the truth of the chain, once for those that decide alike, and null with a reason."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from logforge.learning.policies.bundle import Golden, Layer, PolicyBundle, PolicyCard
from logforge.learning.training import checkpoint_values as kept_value
from logforge.learning.training.checkpoint_values import NO_VALIDATION, TRIAL, kept_values
from logforge.learning.training.pipeline import train
from support import made_chain as chain
from support.made_chain import CELLS, FORWARD, GAMMA, GOAL, IDLE, STEP, VOCABULARY

SEEN = (-6.0, 9.7)


def always(actions):
    """A policy that takes this action in each cell."""
    weight = np.zeros((VOCABULARY.size, CELLS), np.float32)
    weight[actions, np.arange(CELLS)] = 1
    card = PolicyCard.of(chain.manifest(), algo="cql", kind="q", golden=Golden([], []))
    return PolicyBundle(card, (Layer(weight, np.zeros(VOCABULARY.size, np.float32)),))


def worth(policies, held, updates=TRIAL):
    return kept_values(policies, chain.walk(100, 0.5, 0), held, gamma=GAMMA, seen=SEEN, updates=updates)


def test_the_value_is_near_the_truth():
    found = worth({"cql": always([FORWARD] * CELLS)}, chain.walk(25, 0.4, 1))
    truth = sum(STEP * GAMMA**step for step in range(CELLS - 1)) + GOAL * GAMMA ** (CELLS - 2)
    assert found["cql"].value == pytest.approx(truth, abs=0.7)
    assert found["cql"].low < found["cql"].value < found["cql"].high


def test_policies_that_decide_alike_share_a_fit(monkeypatch):
    fits, real = [], kept_value.ope.fitted_q
    monkeypatch.setattr(kept_value.ope, "fitted_q", lambda *a, **k: fits.append(1) or real(*a, **k))
    monkeypatch.setattr(kept_value, "UPDATES", 5)
    same = always([FORWARD] * CELLS)
    found = worth({"bc": same, "cql": same, "bc_success": always([IDLE[0]] * CELLS)}, chain.walk(12, 0.4, 1))
    assert len(fits) == 2
    assert found["bc"] == found["cql"]


def test_some_episodes_stand_for_many(monkeypatch):
    seen, real = [], kept_value.ope.fitted_q
    monkeypatch.setattr(
        kept_value.ope, "fitted_q", lambda held, *a, **k: seen.append(held) or real(held, *a, **k)
    )
    monkeypatch.setattr(kept_value, "UPDATES", 2)
    ahead = {"cql": always([FORWARD] * CELLS)}
    for held in (chain.walk(200, 0.5, 1), chain.walk(60, 0.1, 1), chain.walk(20, 0.1, 1)):
        worth(ahead, held)
    many, long, few = seen
    share = max(kept_value.DECISIONS / chain.walk(200, 0.5, 1).size, 40 / 200)
    assert many.episode_count == pytest.approx(200 * share, abs=1)
    assert long.episode_count == 40
    assert few.episode_count == 20


@pytest.mark.parametrize(
    ("held", "updates", "why"),
    [
        (None, TRIAL, NO_VALIDATION),
        (chain.walk(12, 0.4, 1), TRIAL - 1, f"a run of {TRIAL - 1} updates is a trial"),
        (chain.walk(4, 0.4, 1), TRIAL, "only 4 independent validation episodes"),
        (chain.walk(9, 0.4, 1, limit=2), TRIAL, "no validation episode is complete"),
    ],
)
def test_where_there_is_no_value_there_is_a_reason(held, updates, why):
    [found] = worth({"cql": always([FORWARD] * CELLS)}, held, updates).values()
    assert found.value is None
    assert why in found.reason


def test_a_split_of_one_large_group_and_few_others_ends_no_run():
    held = chain.walk(400, 0.5, 1)
    groups = np.zeros(400, np.int32)
    groups[-5:] = 1, 2, 3, 4, 5
    [found] = worth({"cql": always([FORWARD] * CELLS)}, replace(held, groups=groups)).values()
    assert found.value is None
    assert "independent validation episodes" in found.reason


def test_a_run_tells_the_value_of_its_first_members_policies(tmp_path, monkeypatch):
    monkeypatch.setattr(kept_value, "TRIAL", 20)
    monkeypatch.setattr(kept_value, "UPDATES", 60)
    parts = chain.walk(30, 0.5, 0), chain.walk(12, 0.5, 1), chain.walk(3, 0.5, 2)
    dataset = chain.write_chain(tmp_path / "chain", *parts)
    small = {"updates": 20, "batch_size": 16, "hidden": (8,), "members": 2}
    report = train(dataset, out=tmp_path / "run", **small)
    told = json.loads((tmp_path / "run" / "train.json").read_text())["policies"]
    assert {name for name, facts in told.items() if "fqe" in facts} == {"bc", "bc_success", "cql"}
    assert all(
        (facts["fqe"]["value"] is None) == bool(facts["fqe"]["reason"])
        for facts in told.values()
        if "fqe" in facts
    )
    assert "FQE" in report.render()
    again = train(dataset, out=tmp_path / "again", **small)
    assert again.policies == report.policies


def test_what_is_too_little_is_said_at_the_end_of_training(tmp_path):
    parts = chain.walk(12, 0.5, 0), chain.walk(4, 0.5, 1), chain.walk(3, 0.5, 2)
    dataset = chain.write_chain(tmp_path / "chain", *parts)
    small = {"batch_size": 16, "hidden": (8,)}
    for algo in ("cql", "bcq", "iql"):
        notes = train(dataset, out=tmp_path / "run", algo=algo, updates=30, **small).notes
        assert "12 train episodes: below about 500 no gain over cloning was measured" in notes
        assert any(
            note.startswith("30 updates are few") and "86% of their random start" in note for note in notes
        )
        assert algo == "iql" or any(
            note.startswith("soft_opc is unknown: of 4 validation episodes 4 are") for note in notes
        )
    assert not any(
        "few" in note for note in train(dataset, out=tmp_path / "bc", algo="bc", updates=30, **small).notes
    )
    fast = train(dataset, out=tmp_path / "fast", updates=30, target_rate=0.1, **small).notes
    assert not any("updates are few" in note for note in fast)
