"""The order of a build is the order of its stages' types, their results are frozen, and each step says how far it sees."""

from __future__ import annotations

import inspect
from dataclasses import FrozenInstanceError, fields, is_dataclass
from itertools import pairwise
from typing import get_type_hints

import pytest

from logforge.core.stages import (
    Scope,
    Step,
    from_all,
    from_summary,
    per_bucket,
    per_episode,
    stage,
    steps_of,
)
from logforge.dataset.build import pipeline
from logforge.dataset.build.config import BuildConfig
from logforge.dataset.build.pipeline import STAGES, build_dataset
from logforge.dataset.build.plan import Earlier, Plan
from logforge.dataset.build.report import BuildReport
from logforge.dataset.build.selection import choose
from logforge.dataset.build.splitting import split
from logforge.ingestion.pipeline import ingest
from logforge.store.store import Store

STEPS = [(one.__name__, step) for one in STAGES for step in steps_of(one)]
SPEC = "gamma: 0.9\nterms: {success: {when: success, value: 10, at: terminal}}\n"


def given(function):
    """The type of a stage's first parameter, and of its result."""
    hints = get_type_hints(function)
    return hints[next(iter(inspect.signature(function).parameters))], hints["return"]


def test_each_stage_takes_what_the_one_before_it_made():
    ends = [given(one) for one in STAGES]
    assert ends[0][0] is Plan
    assert ends[-1][1] is BuildReport
    for (_, made), (taken, _) in pairwise(ends):
        assert made is taken


def test_no_two_stages_make_the_same_type():
    made = [given(one)[1] for one in STAGES]
    assert len(set(made)) == len(made)


@pytest.mark.parametrize("one", STAGES, ids=lambda one: one.__name__)
def test_results_are_frozen(one):
    taken, made = given(one)
    for kind in (taken, made):
        assert is_dataclass(kind)
        assert kind.__dataclass_params__.frozen
        bare = object.__new__(kind)
        with pytest.raises(FrozenInstanceError):
            setattr(bare, fields(kind)[0].name, None)


def test_a_build_runs_the_stages_in_their_order(tmp_path, conversation, write_jsonl, monkeypatch):
    write_jsonl(
        tmp_path / "logs" / "a.jsonl", [conversation(f"item {n}", success=n % 2 == 0) for n in range(20)]
    )
    (tmp_path / "reward.yaml").write_text(SPEC)
    ran = []

    def told(one):
        def run(*parts):
            ran.append((one.__name__, type(parts[0]), type(made := one(*parts))))
            return made

        return run

    for one in STAGES:
        monkeypatch.setattr(pipeline, one.__name__, told(one))
    with Store(tmp_path / "s.duckdb") as store:
        ingest(store, [tmp_path / "logs"])
        build_dataset(
            store, tmp_path / "reward.yaml", out=tmp_path, config=BuildConfig(encoder="hashing", text_size=4)
        )
    assert ran == [(one.__name__, *given(one)) for one in STAGES]


def test_a_stage_gives_the_same_again_and_leaves_what_it_was_given(tmp_path, conversation, write_jsonl):
    write_jsonl(
        tmp_path / "logs" / "a.jsonl", [conversation(f"item {n}", success=n % 2 == 0) for n in range(9)]
    )
    (tmp_path / "reward.yaml").write_text(SPEC)
    config = BuildConfig(encoder="hashing", text_size=4)
    with Store(tmp_path / "s.duckdb") as store:
        ingest(store, [tmp_path / "logs"])
        plan = Plan.of(
            store, tmp_path / "reward.yaml", "a", tmp_path, config, Earlier(), {}, "0", "50%", None
        )
        chosen = choose(plan)
        first, again = split(chosen, plan), split(chosen, plan)
        assert first.splits.equals(again.splits)
        assert first.cohort.placed == again.cohort.placed
        gone = chosen.episodes.ids[0]
        fewer = first.cohort.without({gone: None})
        assert gone in first.cohort.kept.ids
        assert gone not in fewer.kept.ids
        assert not first.cohort.left_out


@pytest.mark.parametrize("one", STAGES, ids=lambda one: one.__name__)
def test_each_stage_is_marked(one):
    assert steps_of(one)


@pytest.mark.parametrize(("name", "step"), STEPS, ids=[f"{name}: {step.what}" for name, step in STEPS])
def test_a_step_over_all_episodes_says_what_it_is_given(name, step):
    assert step.what
    assert bool(step.takes) == (step.scope is Scope.GLOBAL)
    assert not step.whole or step.scope is Scope.GLOBAL


def test_marks_are_read_as_they_were_made():
    marks = per_episode("a"), per_bucket("b"), from_summary("c", "a row"), from_all("d", "all rows")

    @stage(*marks)
    def made():
        """A stage."""

    assert steps_of(made) == marks
    assert [step.scope for step in marks] == [Scope.EPISODE, Scope.BUCKET, Scope.GLOBAL, Scope.GLOBAL]
    assert [step.whole for step in marks] == [False, False, False, True]
    assert Step("a", Scope.EPISODE) == marks[0]


def test_a_function_that_is_no_stage_has_no_steps():
    with pytest.raises(KeyError):
        steps_of(build_dataset)
