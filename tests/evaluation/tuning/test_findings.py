"""The catalogue of findings: every entry, in every case, is fired by a run and told in full."""

from __future__ import annotations

import re
from dataclasses import asdict, replace

import numpy as np
import pytest

from logforge.core.intervals import Span
from logforge.evaluation.tuning.data_symptoms import data_symptoms
from logforge.evaluation.tuning.diagnosis import diagnose
from logforge.evaluation.tuning.run_symptoms import run_symptoms
from logforge.evaluation.tuning.symptoms import Patient
from logforge.learning.training.alarms import Kept, Limits, Watch
from logforge.learning.training.config import TrainConfig
from logforge.learning.training.findings import CATALOGUE, Moment, Rule
from logforge.learning.training.notes import notes
from logforge.learning.training.pipeline import train
from logforge.rewards.spec import load_spec
from logforge.shards.reader import load_shards
from support import made_chain as chain
from support.places import ROOT

ROW = {"epoch": 1, "update": 10, "finite": True, "possible_high": 1.0, "validation_td_error": 0.1}
FALLEN = {"favourite": "wait", "favourite_share": 0.9, "clone_share": 0.2, "improvement_se": 0.05}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Chains of all kinds, by name: as they come, and with other rewards, outcomes, sizes and specs."""
    folder = tmp_path_factory.mktemp("findings")

    def shard(name, arrays, **changes):
        return load_shards(chain.write_chain(folder / name, arrays, chain.EMPTY, chain.EMPTY, **changes))

    def paid(arrays, rewards):
        rewards = np.asarray(rewards, np.float32)
        return replace(arrays, rewards=rewards, returns=chain.returns_to_go(rewards, arrays.episode_offsets))

    whole = chain.walk(600, 0.25)
    plain, small = (-1.0, 1.0), chain.walk(40, 0.25)
    lengths = np.diff(whole.episode_offsets)
    lost = np.where((np.arange(600) % 4 == 0) & (lengths <= 12), 0, whole.success).astype(np.int8)
    noise = np.random.default_rng(0).normal(size=whole.observations.shape).astype(np.float32) / 100
    sparse = {"gamma": 0.99, "terms": {"success": {"when": "success", "value": 1.0, "at": "terminal"}}}
    specs = {
        name: load_spec(ROOT / "logforge" / "templates" / "rewards" / f"{name}.yaml")
        for name in ("clarify_naive", "detectors")
    }
    return {
        "whole": shard("whole", whole, return_range=(-1.0, 10.0)),
        "small": shard("small", replace(small, success=np.zeros(40, np.int8)), return_range=plain),
        "unknown": shard("unknown", replace(small, success=np.full(40, -1, np.int8)), return_range=plain),
        "farmed": shard("farmed", paid(whole, whole.rewards + 1.5 * (whole.actions == chain.IDLE[0]))),
        "given_up": shard("given_up", replace(paid(whole, -2 * np.ones(whole.size)), success=lost)),
        "rare": shard("rare", paid(whole, whole.terminals), return_range=(0.0, 1.0)),
        "noisy": shard(
            "noisy",
            replace(whole, observations=whole.observations + noise),
            reward={"spec": sparse, "scales": {}},
        ),
        **{
            name: shard(name, small, reward={"spec": spec.model_dump(mode="json"), "scales": {}})
            for name, spec in specs.items()
        },
    }


def patient(shard, facts=(), stopped=(), **settings):
    config = TrainConfig(**{"updates": 1000, "alpha": 1.0, **settings})
    whole = {
        "update": 1000, "best_update": 1000, "validation_max_q": 0.0, "possible_high": 1.0, "favourite": "wait", **dict(facts)
    }  # fmt: skip
    run = {"policies": {config.algo: whole}, "stopped": dict(stopped), "possible_returns": (-1.0, 1.0)}
    return Patient(run | {"config": asdict(config)}, config, shard)


def watched(*rows):
    watch = Watch("cql", Limits(low=-2.0, high=2.0, know_nothing=1.0, log_favourite=0.3))
    for row in rows:
        watch.see(Kept(None, {**ROW, **row}, None))
    return [*filter(None, [watch.stopped]), *watch.warnings()]


def fire_alarms():
    yield from watched({"finite": False})
    yield from watched(*({"validation_max_q": q} for q in (2.5, 3.0, 4.0)))
    yield from watched(*({"validation_td_error": error} for error in (0.09, 0.1, 0.2, 1.5, 1.6)))
    yield from watched(FALLEN)


def fire_notes(made):
    def told(name, **settings):
        config = TrainConfig(**{"updates": 30, "alpha": 1.0, **settings})
        return notes(config, made[name], None, Span(-1.0, 1.0), {"cql": {"validation_max_q": 5.0}})

    yield from told("small", alpha=30.0)
    yield from told("rare")
    yield from told("noisy")


def fire_findings(made, folder):
    high, same = {"validation_max_q": 99.0}, {"clone_share": 0.99}
    collapsed = {"clone_share": 0.2, "favourite_share": 0.95}
    stop = {"cql": {"update": 500, "what": "max Q went up"}}
    runs = [
        patient(made["whole"], high),
        patient(made["whole"], {}, stop),
        patient(made["whole"], high, algo="dqn", clip_targets=False, learning_rate=0.1, target_rate=0.5),
        patient(made["whole"], same, alpha=100.0),
        patient(made["rare"], same),
        patient(made["whole"], {**same, "over_clone": 0.0, "over_clone_se": 1.0}, alpha=0.01),
        patient(made["whole"], {**collapsed, "q_above": 0.4}),
        patient(made["whole"], {**collapsed, "q_above": 0.0, "ood_share": 0.3}),
        patient(made["whole"], {"ood_share": 0.3}, algo="dqn"),
        patient(made["whole"], {"lost": 9.0, "lost_se": 0.1, "best_update": 200}, updates=30),
    ]
    for run in runs:
        yield from run_symptoms(run)
    for shard in made.values():
        yield from data_symptoms(patient(shard))
    at = chain.write_chain(folder / "chain", *(chain.walk(12, 0.25, seed) for seed in range(3)))
    train(at, out=folder / "run", updates=3, hidden=(4,), batch_size=8)
    (folder / "run" / "cql" / "weights.safetensors").write_bytes(b"nothing")
    yield from diagnose(folder / "run").findings


def test_every_entry_is_fired_in_every_case_and_told_in_full(made, tmp_path, monkeypatch):
    fired = set()
    why = Rule.why

    def recorded(rule, case, **figures):
        fired.add((rule.moment, rule.name, case))
        return why(rule, case, **figures)

    monkeypatch.setattr(Rule, "why", recorded)
    alarms, told, found = [*fire_alarms()], [*fire_notes(made)], [*fire_findings(made, tmp_path)]
    assert fired == {(rule.moment, rule.name, case) for rule in CATALOGUE for case in rule.cases}
    assert all(alarm.what and alarm.remedy for alarm in alarms)
    assert all(told)
    assert all(item.symptom and item.cause and item.remedy for item in found)


def test_every_rule_has_words_a_remedy_and_a_row_in_the_docs():
    page = (ROOT / "docs" / "doctor.md").read_text("utf-8")
    rows = set(re.findall(r"`(\w+)`", " ".join(re.findall(r"(?m)^\| (`.*?) \|", page))))
    for rule in CATALOGUE:
        assert rule.name in rows
        assert rule.words
        if rule.moment is not Moment.END:
            assert rule.tests
            assert rule.follows
            assert all(case.remedy for case in rule.cases.values())


def test_no_moment_asks_a_rule_twice_and_each_note_is_of_something_the_doctor_finds():
    asked = [(rule.moment, rule.name) for rule in CATALOGUE]
    assert len(asked) == len(set(asked))
    named = {moment: {name for at, name in asked if at is moment} for moment in Moment}
    assert named[Moment.END] <= named[Moment.DOCTOR]
