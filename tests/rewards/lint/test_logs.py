"""A spec on logged episodes: planted gaming is found, and the ranking is judged beside length alone."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from logforge.cli.commands import main
from logforge.core.frames import tables_of
from logforge.core.ranking import auc, auc_estimates
from logforge.rewards.lint.logs import read_logs
from logforge.rewards.lint.pipeline import lint
from logforge.rewards.lint.trial import paid_terms
from logforge.rewards.pipeline import parse_spec
from logforge.schemas.errors import UsageError
from support.made_populations import filled, population, run
from support.made_rewards import episode, spec_of, step

SOLVED = ("success: {when: success, value: 10, at: terminal}", "step_cost: {value: -0.1}")


def rules(report):
    return {item.rule: item for item in report.findings}


# -- planted faults ---------------------------------------------------------------------------------------------------


def test_force_closed_dialogs_get_no_success_reward_and_are_listed(store):
    filled(store, population())
    guarded = spec_of("success: {when: success and not premature_close, value: 10, at: terminal}", SOLVED[1])
    logs = read_logs(store, guarded)
    assert [item.episode_id for item in logs.forced] == ["forced0", "forced1", "forced2"]
    assert [item.paid for item in logs.forced] == [0, 0, 0]
    assert "forced_close_paid" not in rules(lint(guarded, store))
    naive = lint(spec_of(*SOLVED), store)
    assert rules(naive)["forced_close_paid"].what.startswith("3 episodes")
    assert [item.paid for item in naive.logs.forced] == [10, 10, 10]
    assert "closed too early (3)" in naive.render()


def test_tools_that_never_help_are_named(store):
    """Lying flat: `echo` works and is in no success."""
    logs = read_logs(filled(store, population()), spec_of(*SOLVED))
    assert [tuple(item) for item in logs.useless] == [("echo", 10, 10)]


def test_the_best_paid_failure_is_found(store):
    planted = run("planted", [("find", "ok")] * 5, success=False)
    filled(store, [*population(), planted])
    report = lint(spec_of("calls: {when: \"result_status = 'ok'\", value: 1}"), store)
    worst = next(item for item in report.logs.suspects if item.kind == "failed")
    assert (worst.episode_id, worst.rank, worst.locator) == ("planted", 1, "planted#")
    assert "failure_pays" in rules(report)


def test_a_repetitive_failure_is_found(store):
    steps = [step(n, "find", "ok", arguments="{}") for n in range(6)]
    filled(store, [*population(), episode("again", steps, task_id="again", success=False)])
    kinds = {(item.kind, item.episode_id) for item in read_logs(store, spec_of(*SOLVED)).suspects}
    assert ("repetitive", "again") in kinds


def test_terms_that_fire_nowhere_or_everywhere_on_the_logs(store):
    terms = (
        *SOLVED,
        "never: {when: \"action = 'nothing'\", value: -1}",
        "ever: {when: step >= 0, value: -0.01}",
    )
    found = rules(lint(spec_of(*terms), filled(store, population())))
    assert found["never_fires"].terms == ("never",)
    assert found["never_fires"].level == "warning"
    assert found["always_fires"].terms == ("ever",)


def test_shares_add_up_and_are_those_of_the_terms(store):
    filled(store, population())
    spec = parse_spec(
        "gamma: 1\nlayers:\n  a: {weight: 0.25, terms: {x: {when: success, at: terminal}}}\n"
        "  b: {weight: 0.75, terms: {y: {value: -0.1}, z: {when: \"result_status = 'error'\", value: -1}}}\n"
    )
    logs = read_logs(store, spec)
    assert sum(item.share for item in logs.terms) == pytest.approx(1)
    assert logs.layers["a"] == pytest.approx(logs.terms[0].share)
    assert set(logs.layers) == {"a", "b"}
    assert [item.term for item in logs.terms] == ["x", "y", "z"]
    assert "layers: a " in logs.render()
    assert logs.scales.keys() == {"x", "y", "z"}


def test_typical_length_decides_what_an_early_exit_is(store):
    """A success of 60 steps costs more than it pays where the price is 0.2: the default of 20 steps would not tell."""
    spec = spec_of("success: {when: success, value: 10, at: terminal}", "price: {value: -0.2}")
    assert "early_exit" not in rules(lint(spec))
    long = [run(f"long{n}", [("find", "ok")] * 59, success=True) for n in range(6)]
    report = lint(spec, filled(store, long))
    assert report.logs.success_steps == 60
    assert rules(report)["early_exit"].figures["typical_steps"] == 60


def test_shares_of_actions_are_those_of_the_log(store):
    shares = read_logs(filled(store, population()), spec_of(*SOLVED)).shares
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["fail"] == pytest.approx(3 / 69)
    assert shares["busy"] == pytest.approx(10 / 69)
    assert shares["stop"] == pytest.approx(23 / 69)


def test_a_store_without_decisions_is_refused(store):
    with pytest.raises(UsageError, match="no decision"):
        lint(spec_of(*SOLVED), store)


# -- ranking ----------------------------------------------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from([True, False, None])), max_size=12))
def test_auc_is_the_share_of_pairs(rows):
    pairs = [
        1.0 if a > b else 0.5 if a == b else 0.0
        for (a, won), (b, other) in itertools.product(rows, rows)
        if won is True and other is False
    ]
    found = auc(np.array([score for score, _ in rows], dtype=float), [won for _, won in rows])
    assert found == (pytest.approx(np.mean(pairs)) if pairs else None)


def test_an_interval_over_tasks_is_wider_than_one_over_episodes():
    rng = np.random.default_rng(0)
    task = np.repeat(np.arange(12), 10)
    won = rng.random(12)[task] > 0.5
    scores = rng.normal(size=12)[task]
    (clustered, _), _ = auc_estimates([scores, scores], won, [str(item) for item in task])
    (loose, _), _ = auc_estimates([scores, scores], won, [str(item) for item in range(120)])
    assert clustered.value == loose.value == pytest.approx(auc(scores, list(won)))
    assert clustered.high - clustered.low > 2 * (loose.high - loose.low)


def test_a_return_that_is_the_length_is_no_better_than_length(store):
    rng = np.random.default_rng(1)
    lengths = [int(length) for length in rng.integers(1, 9, 40)]
    made = [
        run(f"e{n}", [("find", "ok")] * length, success=bool(rng.random() < (0.8 if length < 5 else 0.2)))
        for n, length in enumerate(lengths)
    ]
    report = lint(spec_of("price: {value: -0.1}", gamma=1.0), filled(store, made))
    assert report.logs.verdict == "no better than length alone"
    assert report.logs.advantage.value == pytest.approx(0)
    assert {"ranks_like_length", "early_exit"} <= set(rules(report))


def test_a_return_that_tells_success_is_better_than_length(store):
    logs = read_logs(filled(store, population()), spec_of("help: {when: \"action = 'book'\", value: 1}"))
    assert logs.auc.value == 1
    assert logs.verdict == "better than length alone"
    assert not logs.pays_outcome
    assert read_logs(store, spec_of(*SOLVED)).pays_outcome


def test_without_outcomes_nothing_is_said(store):
    logs = read_logs(
        filled(store, [run(f"e{n}", [("a", "ok")]) for n in range(3)]), spec_of("price: {value: -0.1}")
    )
    assert logs.auc.value is None
    assert logs.verdict == "cannot be said: no outcome is logged"


def test_the_command_takes_a_store(store, tmp_path):
    filled(store, population())
    path = store.path
    store.close()
    spec = tmp_path / "reward.yaml"
    spec.write_text("gamma: 0.99\nterms:\n" + "".join(f"  {term}\n" for term in SOLVED))
    result = CliRunner().invoke(main, ["reward", "lint", str(spec), "--store", str(path), "--json"])
    data = json.loads(result.stdout)
    assert result.exit_code == 0
    assert data["logs"]["verdict"] == "better than length alone"
    assert len(data["logs"]["forced"]) == 3
    shown = CliRunner().invoke(main, ["reward", "lint", str(spec), "--store", str(path)]).stdout
    assert "verdict: the return is better than length alone" in shown
    assert "(the spec pays the logged outcome itself)" in shown


def test_paid_terms_keep_the_sum():
    from logforge.rewards.pipeline import score

    frame = score(spec_of(*SOLVED), tables_of(population()))
    assert paid_terms(frame)["value"].sum() == pytest.approx(frame["reward"].sum())
