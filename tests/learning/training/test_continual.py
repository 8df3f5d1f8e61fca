"""Going on from an earlier policy: what new data alone forgets, what holds it, and what is refused."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from click.testing import CliRunner

from logforge.cli.commands import main
from logforge.evaluation.tuning.diagnosis import diagnose
from logforge.evaluation.tuning.symptoms import Patient
from logforge.learning.policies.bundle import load_policy
from logforge.learning.policies.description import about
from logforge.learning.training import continual
from logforge.learning.training.config import TrainConfig
from logforge.learning.training.continual import EVERY, Anchor, reach
from logforge.learning.training.experience import Mixed, Replay
from logforge.learning.training.pipeline import train
from logforge.schemas.errors import InputError, Mismatch, UsageError
from logforge.shards.reader import load_shards
from support import made_tasks as tasks

torch = pytest.importorskip("torch")
OLD = tasks.vocabulary()
NEW = tasks.vocabulary(["e", "f"])
SETTINGS = {
    "algo": "bc",
    "updates": 300,
    "batch_size": 64,
    "hidden": (32,),
    "learning_rate": 3e-3,
    "epochs": 1,
}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Context 0, a run on it, and context 1, in the vocabulary of before and in a grown one."""
    home = tmp_path_factory.mktemp("continual")
    tasks.write_task(home / "first", 0, OLD)
    tasks.write_task(home / "second", 1, OLD)
    tasks.write_task(home / "grown", 1, NEW)
    train(home / "first", out=home / "run", **SETTINGS)
    return home


def gone_on(home, name, data="second", **settings):
    train(home / data, out=home / name, warm_start=str(home / "run"), **{**SETTINGS, **settings})
    return load_policy(home / name / settings.get("algo", "bc"))


@pytest.fixture(scope="module")
def plain(home):
    return gone_on(home, "plain")


def weights(home, name):
    return (home / name / "bc" / "weights.safetensors").read_bytes()


def test_new_data_alone_forgets_and_each_remedy_keeps_more(home, plain):
    """The point of it all, measured: agreement with the right tool of the earlier task, before and after."""
    before = load_policy(home / "run" / "bc")
    assert tasks.agreement(before, home / "first") > 0.85
    assert tasks.agreement(plain, home / "second") > 0.85
    forgot = tasks.agreement(plain, home / "first")
    assert forgot < tasks.agreement(before, home / "first") - 0.4
    for name, settings in {
        "ewc": {"ewc": 10.0},
        "kl": {"kl": 0.3},
        "replay": {"replay": str(home / "first"), "replay_share": 0.3},
    }.items():
        held = gone_on(home, name, **settings)
        assert tasks.agreement(held, home / "first") > forgot + 0.05, name
        assert tasks.agreement(held, home / "second") > 0.7, name


def test_a_target_lets_the_coefficient_follow_the_divergence(home):
    """Little held at first, it is held more where it goes too far, and less where it may go."""
    policies = {
        name: gone_on(home, f"target-{name}", kl=0.02, kl_target=target)
        for name, target in (("near", 0.01), ("far", 10.0))
    }
    kept = {name: tasks.agreement(policy, home / "first") for name, policy in policies.items()}
    learnt = {name: tasks.agreement(policy, home / "second") for name, policy in policies.items()}
    assert kept["near"] > kept["far"] + 0.1
    assert learnt["far"] > learnt["near"]


def test_coefficients_are_doubled_and_halved_member_by_member_and_bounded():
    anchor = Anchor.__new__(Anchor)
    anchor.kl, anchor.kl_target, anchor._seen = 0.5, 0.1, []
    anchor.coefficients = torch.full((3,), 0.5)
    for rounds, expected in ((1, [1.0, 0.5, 0.25]), (20, [512.0, 0.5, 0.5 / 1024])):
        for _ in range(rounds * EVERY):
            anchor._adapt(torch.tensor([0.2, 0.1, 0.05]))
        assert anchor.coefficients.tolist() == expected


def test_a_target_without_a_coefficient_is_refused(home):
    with pytest.raises(UsageError, match="give --kl"):
        gone_on(home, "none", kl_target=0.1)
    with pytest.raises(UsageError, match="kl_target"):
        gone_on(home, "none", kl=1.0, kl_target=0.0)


def test_coefficients_of_0_and_no_share_are_plain_going_on(home, plain):
    gone_on(home, "zero", ewc=0.0, kl=0.0, replay=str(home / "first"), replay_share=0.0)
    assert weights(home, "zero") == weights(home, "plain")


def test_it_begins_where_the_earlier_ended_and_fresh_training_does_not(home):
    settings = {"updates": 1, "learning_rate": 1e-9}
    started = gone_on(home, "still", **settings)
    earlier = load_policy(home / "run" / "bc")
    for mine, theirs in zip(started.layers, earlier.layers, strict=True):
        assert np.allclose(mine.weight, theirs.weight, atol=1e-7)
    train(home / "second", out=home / "fresh", **{**SETTINGS, **settings})
    assert not np.allclose(
        load_policy(home / "fresh" / "bc").layers[0].weight, earlier.layers[0].weight, atol=1e-2
    )


def test_strong_penalties_leave_the_policy_where_it_was(home):
    """EWC moves what the earlier data was sure of less and less; KL keeps the choices."""
    rows = np.asarray(load_shards(home / "first", "test").observations)
    masks = np.asarray(load_shards(home / "first", "test").masks)
    before = load_policy(home / "run" / "bc").probabilities(rows, masks)
    gaps = []
    for ewc in (0.0, 10.0, 1e3):
        after = gone_on(home, "strong", ewc=ewc).probabilities(rows, masks)
        gaps.append(float(np.abs(after - before).mean()))
    assert gaps[0] > gaps[1] > gaps[2]


def test_a_grown_vocabulary_keeps_what_it_knew(home):
    started = gone_on(home, "more", data="grown", updates=1, learning_rate=1e-9)
    assert started.card.actions[: OLD.size] == OLD.actions
    before = load_policy(home / "run" / "bc")
    held = load_shards(home / "first", "test")
    rows, masks = np.asarray(held.observations), np.asarray(held.masks)
    grown = np.zeros((len(rows), started.card.observation_size), np.float32)
    grown[:, : rows.shape[1]] = rows  # the mask block is the last, and new columns follow it
    more = np.zeros((len(rows), NEW.size), bool)
    more[:, : OLD.size] = masks
    assert (started.choose(grown, more) == before.choose(rows, masks)).all()
    learnt = gone_on(home, "learnt", data="grown", ewc=1.0, kl=0.01, replay=str(home / "first"))
    assert tasks.agreement(learnt, home / "grown") > 0.6


def test_the_share_of_a_batch_is_the_earlier_datasets(home):
    later, earlier = (Replay(load_shards(home / name), OLD.invalid) for name in ("second", "first"))
    batch = next(Mixed(later, earlier, 0.25).batches((0, 1), 64))
    context = batch.observations[:, :, 1]  # 1 in the second task
    assert ((context == 0).sum(dim=1) == 16).all()
    assert not torch.equal(batch.observations[0, -16:], batch.observations[1, -16:])
    alone = next(later.batches((0, 1), 48))
    assert torch.equal(batch.observations[:, :48], alone.observations)


@pytest.mark.parametrize("algo", ["cql", "dqn", "bcq", "iql"])
def test_every_learner_goes_on_from_its_own(home, algo):
    settings = {**SETTINGS, "algo": algo, "updates": 20}
    train(home / "first", out=home / algo, **settings)
    hold = {"ewc": 1.0, "kl": 1.0, "replay": str(home / "first")}
    train(home / "second", out=home / f"{algo}2", warm_start=str(home / algo / algo), **settings, **hold)
    rows = [json.loads(line) for line in (home / f"{algo}2" / "metrics.jsonl").read_text().splitlines()]
    assert all({"ewc_loss", "kl_loss"} <= row.keys() for row in rows)
    with pytest.raises(Mismatch, match="algorithm"):
        train(home / "second", out=home / "other", warm_start=str(home / algo / algo), **SETTINGS)


def test_members_go_on_from_their_own_seed(home):
    train(home / "first", out=home / "three", **{**SETTINGS, "updates": 20, "members": 3})
    train(
        home / "second",
        out=home / "on",
        warm_start=str(home / "three"),
        **{**SETTINGS, "updates": 1, "members": 3, "learning_rate": 1e-9},
    )
    for name in ("bc", "bc-1", "bc-2"):
        pair = (load_policy(home / run / name).layers[0].weight for run in ("three", "on"))
        assert np.allclose(*pair, atol=1e-7)


def test_what_began_afresh_beside_a_warm_start_is_said(home):
    """A learner's clones and a member's seed that the earlier run lacks: in the record, on stderr, and by `doctor` and `policy show`."""
    train(home / "first", out=home / "partly", algo="bc", updates=2, epochs=1)
    shutil.rmtree(home / "partly" / "bc_success")
    words = [
        "train",
        str(home / "second"),
        "--out",
        str(home / "onward"),
        "--warm-start",
        str(home / "partly"),
    ]
    words += ["--algo", "bc", "--members", "2", "--updates", "2", "--epochs", "1"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    told = (
        f"bc_success began afresh: there is no such policy in {home / 'partly'}",
        f"bc-1 began with {home / 'partly' / 'bc'}: the earlier run has no policy of its seed",
    )
    assert all(line in result.stderr for line in told)
    assert "bc began" not in result.stderr
    record = json.loads((home / "onward" / "train.json").read_text())["started_from"]
    earlier = str(home / "partly" / "bc")
    assert record == {"bc": earlier, "bc-1": earlier, "bc_success": None, "bc_success-1": None}
    assert set(told) <= set(diagnose(home / "onward").notes)
    assert about(home / "onward" / "bc_success").began_with.startswith("fresh weights")
    assert about(home / "onward" / "bc-1").began_with == earlier
    assert about(home / "run" / "bc").began_with is None


def test_the_doctor_holds_q_against_the_range_that_training_did(home):
    gone_on(home, "held", replay=str(home / "first"), updates=2)
    run = json.loads((home / "held" / "train.json").read_text())
    config = TrainConfig(**run["config"])
    assert run["possible_returns"] == list(reach(config, load_shards(home / "second")))
    patient = Patient(run, config, load_shards(home / "second"))
    wide = Patient({**run, "possible_returns": [-50.0, 1.0]}, config, patient.train)
    assert wide.limits.low == -101.0
    assert patient.limits.low > -10
    unbounded = Patient({**run, "possible_returns": [-50.0, None]}, config, patient.train)
    assert unbounded.limits.high == np.inf


def test_the_earlier_dataset_is_read_once_in_a_run(home, monkeypatch):
    asked = []
    monkeypatch.setattr(continual, "load_shards", lambda *a: asked.append(a) or load_shards(*a))
    continual._earlier_data.cache_clear()
    gone_on(home, "once", replay=str(home / "first"), updates=2)
    assert asked == [(str(home / "first"), "train")]


def test_what_cannot_be_gone_on_from_is_refused(home, tmp_path):
    with pytest.raises(InputError, match="no policy bundle"):
        gone_on(home, "x", algo="cql")
    with pytest.raises(Mismatch, match="hidden layers"):
        gone_on(home, "x", hidden=(16,))
    tasks.write_task(tmp_path / "other", 1, tasks.vocabulary(), spec_hash="0ther")
    with pytest.raises(Mismatch, match="reward spec"):
        train(tmp_path / "other", out=home / "x", replay=str(home / "first"), **SETTINGS)
    with pytest.raises(UsageError, match="ewc holds a policy to an earlier one"):
        train(home / "second", out=home / "x", ewc=1.0, **SETTINGS)
    with pytest.raises(UsageError, match="--warm-start"):
        gone_on(home, "x", backend="d3rlpy")
    with pytest.raises(Mismatch, match="action vocabulary"):
        train(home / "first", out=home / "x", replay=str(home / "grown"), **SETTINGS)
    assert not (home / "x").exists()
