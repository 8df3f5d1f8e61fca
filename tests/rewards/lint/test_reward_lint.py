"""The linter: exact in its small world, right about the articles' naive specs and their corrected forms, quiet on sane ones."""

from __future__ import annotations

import itertools
import json
import math
from functools import lru_cache

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from logforge.cli.commands import main
from logforge.rewards.lint.cloning import ACTIONS, Chain, clone_risk, fixed_point, penalised
from logforge.rewards.lint.pipeline import lint
from logforge.rewards.lint.rules import spec_findings
from logforge.rewards.lint.trial import LENGTH, Trial
from logforge.rewards.lint.world import HABITS, World
from logforge.rewards.pipeline import load_spec, parse_spec
from support import made_chain
from support.places import ROOT, SAMPLES

EXAMPLES = ROOT / "logforge" / "templates" / "rewards"


def found(text, **more):
    """The findings of terms in flow style, without logs: rule → finding."""
    spec = spec_of(text) if isinstance(text, str) else text
    listed = spec_findings(spec, Trial.of(spec), more.get("typical_steps", 20))
    return {item.rule: item for item in listed}


def spec_of(terms, gamma=0.99):
    lines = "".join(f"  {line.strip()}\n" for line in terms.strip().splitlines())
    return parse_spec(f"gamma: {gamma}\nterms:\n{lines}")


SOLVED = "success: {when: success, value: 10, at: terminal}\nstep_cost: {value: -0.1}\n"


def rules(report, level):
    return {item.rule for item in report.findings if item.level == level}


# -- the articles' specs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "errors"),
    [
        ("similarity_naive", {"early_exit"}),
        ("clarify_naive", {"paid_cycle"}),
        ("commands_naive", {"paid_cycle"}),
        ("similarity_fixed", set()),
        ("clarify_fixed", set()),
        ("commands_fixed", set()),
        ("layers_40_60", set()),
        ("sparse", set()),
        ("detectors", {"early_exit"}),
    ],
)
def test_naive_specs_are_flagged_and_their_corrections_pass(name, errors):
    report = lint(load_spec(EXAMPLES / f"{name}.yaml"))
    assert rules(report, "error") == errors
    assert report.passed == (not errors)


def test_every_example_is_linted_above():
    assert len(list(EXAMPLES.glob("*.yaml"))) == 9


def test_similarity_with_a_step_price_is_an_early_exit_with_its_break_even():
    item = found(load_spec(EXAMPLES / "similarity_naive.yaml"))["early_exit"]
    assert item.figures["stop_return"] == pytest.approx(0.99)
    assert item.figures["break_even_steps"] == 0  # words are as good without work
    assert item.figures["break_even_if_honest"] == 100  # 1 / 0.01, could the scorer tell


def test_ten_less_a_tenth_a_step_breaks_even_at_a_hundred():
    report = lint(spec_of(SOLVED))
    assert report.undiscounted_break_even_steps == 100
    steps = report.break_even_steps
    worth = {n: sum(-0.1 * 0.99**t for t in range(n)) + 10 * 0.99 ** (n - 1) for n in (steps, steps + 1)}
    assert worth[steps] > -0.1 >= worth[steps + 1]
    assert report.optimum == "work/work/stop"


def test_thirteen_clarifications_beat_a_solve():
    item = found(load_spec(EXAMPLES / "clarify_naive.yaml"))["paid_cycle"]
    assert item.terms == ("clarification",)
    assert item.figures["gain_per_turn"] == pytest.approx(0.4)
    assert item.figures["turns_worth_success"] == 13


def test_commands_that_pay_are_a_cycle_and_as_a_potential_are_none():
    item = found(load_spec(EXAMPLES / "commands_naive.yaml"))["paid_cycle"]
    assert item.figures["gain_per_turn"] == pytest.approx(0.05)
    assert item.figures["turns_worth_success"] == 40
    assert found(load_spec(EXAMPLES / "commands_fixed.yaml")) == {}
    once = "solved: {when: success, at: terminal}\ncommand: {when: \"result_status = 'ok'\", value: 0.05, once: true}"
    assert "paid_cycle" not in found(once)


def test_the_sample_spec_passes():
    assert lint(load_spec(SAMPLES / "reward.yaml")).exit_code(strict=True) == 0


def test_the_page_shows_the_examples_as_they_ship():
    page = (ROOT / "docs" / "reward-lint.md").read_text("utf-8")
    for path in EXAMPLES.glob("*.yaml"):
        assert path.stem == "sparse" or f"```yaml\n{path.read_text('utf-8')}```" in page, path.name


# -- exactness --------------------------------------------------------------------------------------------------------

EVENTS = {
    "runtime_error": lambda habit, last: habit in ("fail", "ghost") or (habit == "again" and last != "ok"),
    "invalid_tool": lambda habit, last: habit == "ghost" or (habit == "again" and last == "ghost"),
    "clarify": lambda habit, last: habit == "ask",
    "kind = 'respond'": lambda habit, last: habit in ("talk", "stop"),
    "result_status = 'ok'": lambda habit, last: (
        habit in ("work", "busy") or (habit == "again" and last == "ok")
    ),
}


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from([0.9, 0.99, 1.0]),
    st.integers(-4, 8),
    st.sampled_from([-0.5, -0.1, 0.0, 0.05]),
    st.lists(
        st.tuples(
            st.sampled_from(sorted(EVENTS)),
            st.sampled_from([-1.0, -0.2, 0.3, 0.7]),
            st.sampled_from([None, 1, 2]),
        ),
        max_size=3,
    ),
)
def test_the_optimum_is_that_of_value_iteration(gamma, outcome, cost, events):
    """Against value iteration over states in plain Python: calls made, what the last one came to, what has been paid."""
    lines = [f"solved: {{when: success, value: {outcome}, at: terminal}}", f"cost: {{value: {cost}}}"]
    for n, (event, pays, limit) in enumerate(events):
        lines.append(
            f'e{n}: {{when: "{event}", value: {pays}{f", max_per_episode: {limit}" if limit else ""}}}'
        )
    trial = Trial.of(spec_of("\n".join(lines), gamma))
    needed = len(trial.world.tools)

    @lru_cache(None)
    def best(left, done, last, paid):
        return max(act(habit, left, done, last, paid) for habit in HABITS) if left else 0.0

    def act(habit, left, done, last, paid):
        fires = [EVENTS[event](habit, last) for event, _, _ in events]
        pay = cost + sum(
            pays
            for on, (_, pays, limit), n in zip(fires, events, paid, strict=True)
            if on and (not limit or n < limit)
        )
        if habit == "stop":
            return pay + outcome * (done >= needed)
        kinds = {"work": "ok", "busy": "ok", "fail": "fail", "ghost": "ghost"}
        counts = tuple(min(n + on, 3) for n, on in zip(paid, fires, strict=True))
        after = best(left - 1, min(done + (habit == "work"), needed), kinds.get(habit, last), counts)
        return pay + gamma * after

    assert trial.returns[trial.optimum] == pytest.approx(best(LENGTH, 0, "ok", (0,) * len(events)))


def test_every_sequence_is_in_the_world_once():
    walks = World(("a", "b")).every(3)
    assert len(walks) == len(set(walks)) == 1 + 7 + 49 + 343
    assert set(itertools.chain(*walks)) == set(HABITS)


@settings(max_examples=10, deadline=None)
@given(
    st.floats(4, 20), st.floats(0, 1), st.sampled_from([0.97, 0.99, 1.0]),
    st.lists(st.sampled_from([
        "fault: {when: runtime_error, value: -0.3}", "looped: {when: loop, value: -0.5}",
        "stuck: {when: no_progress, value: -0.2}", "stranger: {when: invalid_tool, value: -1}",
        "asked: {when: clarify, value: 0.2, once: true}", 'slow: {when: "coalesce(latency_s, 0) > 30", value: -0.1}',
        "news: {when: \"result_status = 'ok'\", value: 0.1, diminishing: 0.5}",
        "state: {value: -0.1 * errors_so_far, potential: true}",
        "closed: {when: premature_close, value: -2, at: terminal}",
    ]), unique=True, max_size=4),
)  # fmt: skip
def test_sane_specs_raise_no_error(outcome, share, gamma, others):
    """An outcome that is worth its steps, prices for faults, pay that is bounded or a potential."""
    price = outcome * share / 60
    text = f"success: {{when: success, value: {outcome}, at: terminal}}\nprice: {{value: -{price}}}\n"
    spec = spec_of(text + "\n".join(others), gamma)
    assert [item for item in spec_findings(spec, Trial.of(spec), 20) if item.level == "error"] == []


def test_a_potential_that_grows_with_time_is_no_paid_cycle():
    """γΦ − Φ of a negative Φ is above 0 at every idle step; it still changes no policy's rank."""
    assert "paid_cycle" not in found(SOLVED + "state: {value: -5 - errors_so_far, potential: true}")


def test_a_discount_below_the_usual_is_short_sighted():
    spec = spec_of(SOLVED, gamma=0.5)
    item = found(spec)["short_sighted"]
    assert item.level == "warning"
    assert (
        item.what == "gamma 0.5 lies outside [0.9, 1]: what comes more than about 2 steps later hardly counts"
    )
    assert "short_sighted" not in found(spec_of(SOLVED, gamma=0.9))
    assert "short_sighted" not in found(spec_of(SOLVED, gamma=1.0))


# -- a broken spec for each rule --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("terms", "rule", "level", "about"),
    [
        ("cost: {value: -0.1}", "early_exit", "error", ("cost",)),
        (SOLVED + "alive: {value: 0.2}", "paid_cycle", "error", ("alive",)),
        (SOLVED + "try: {when: \"prev_result_status = 'error' and result_status = 'ok'\", value: 1}", "paid_cycle", "error", ("try",)),
        (SOLVED + "ask: {when: clarify, value: 0.05}", "unbounded", "warning", ("ask",)),
        (SOLVED + "ask: {when: clarify, value: 0.05}", "shaping", "warning", ("ask",)),
        (SOLVED + "polite: {when: \"contains(said, 'please')\", value: 0.05}", "own_words", "warning", ("polite",)),
        (SOLVED + "polite: {when: \"contains(said, 'please')\", value: 0.5}", "own_words", "error", ("polite",)),
        (SOLVED + "ask: {when: clarify, value: 0.5, once: true}", "own_words", "note", ("ask",)),
        (SOLVED + "ask: {when: clarify, value: 0.5, once: true}", "paid_detour", "note", ("ask",)),
        (SOLVED + "tiny: {when: loop, value: -0.001}", "scale_ratio", "warning", ("tiny", "success")),
        (SOLVED + "dead: {when: step < 0, value: -1}", "never_fires", "note", ("dead",)),
        (SOLVED + "nil: {when: loop, value: 0}", "never_pays", "warning", ("nil",)),
        (SOLVED + "all: {when: step >= 0, value: -0.01}", "always_fires", "warning", ("all",)),
        (SOLVED + "oops: {when: runtime_error, value: 0.05, once: true}", "sign", "error", ("oops",)),
        (SOLVED + "oops: {when: success, value: -1, at: terminal}", "sign", "error", ("oops",)),
        (SOLVED + "loop_penalty: {when: clarify, value: 0.05, once: true}", "sign", "error", ("loop_penalty",)),
        (SOLVED + "won: {when: success, value: 1, at: end}", "outcome_at_truncation", "warning", ("won",)),
        ("speed: {value: 'score / 0', at: end}", "no_reward", "error", ()),
    ],
)  # fmt: skip
def test_each_rule_finds_its_fault(terms, rule, level, about):
    item = found(terms)[rule]
    assert (item.level, item.terms) == (level, about)
    assert item.what
    assert item.remedy


def test_layers_that_are_not_normalised_are_an_error():
    text = (EXAMPLES / "layers_40_60.yaml").read_text("utf-8")
    broken = parse_spec(text.replace("weight: 0.6\n", "weight: 0.6\n    normalise: none\n"))
    item = found(broken)["unnormalised_layer"]
    assert item.level == "error"
    assert "quality" in item.what
    assert "unnormalised_layer" not in found(parse_spec(text))


# -- clone risk -------------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.01, 0.3, 1.0, 5.0, 100.0]))
def test_penalised_values_are_where_the_gradient_of_the_loss_is_zero(seed, alpha):
    rng = np.random.default_rng(seed)
    targets, shares = rng.normal(0, 3, (4, 5)), rng.dirichlet(np.ones(5), 4) * 0.9 + 0.02
    found = penalised(targets, shares, alpha)
    policy = np.exp(found - found.max(axis=1, keepdims=True))
    policy /= policy.sum(axis=1, keepdims=True)
    gradient = alpha * (policy - shares) + shares * (found - targets)
    np.testing.assert_allclose(gradient, 0, atol=1e-6 * (1 + alpha))


def cloned_chain(goal, step, gamma, alpha, seed):
    """In how many of the five cells of tests/support/made_chain.py tabular CQL goes forward, on a log that does so 25 % of the time."""
    log = made_chain.walk(1000, 0.25, seed)
    last = log.episode_offsets[1:] + np.arange(log.episode_count)
    cells = np.delete(log.observations.argmax(axis=1), last)
    actions = [*made_chain.IDLE, made_chain.FORWARD]
    counts = np.array(
        [[np.sum(log.actions[cells == cell] == action) for action in actions] for cell in range(5)]
    )
    rewards = np.full((5, 4), step)
    rewards[-1, -1] += goal

    def targets(values):
        after = np.repeat(values[:, None], 4, axis=1)
        after[:, -1] = np.append(values[1:], 0)
        return rewards + gamma * after

    values = fixed_point(targets, counts / counts.sum(axis=1, keepdims=True), alpha)
    return int((values.argmax(axis=1) == 3).sum())


def test_tabular_cql_finds_and_loses_the_way_where_d3rlpy_did():
    """Measured with d3rlpy (docs/reward-lint.md): +1 at γ 0.99 went forward in 0 of 5 cells, +10 − 0.1 and γ 0.9 in all."""
    seeds = range(3)
    assert np.mean([cloned_chain(1, 0, 0.99, 1, seed) for seed in seeds]) < 2.5
    assert {cloned_chain(10, -0.1, 0.99, 1, seed) for seed in seeds} == {5}
    assert {cloned_chain(1, 0, 0.9, 1, seed) for seed in seeds} == {5}
    assert {cloned_chain(1, 0, 0.99, 0.1, seed) for seed in seeds} == {5}


def test_the_largest_alpha_is_where_the_best_action_is_lost():
    trial = Trial.of(spec_of(SOLVED))
    chain, shares = Chain.of(trial), {"work": 0.1, "talk": 0.5, "stop": 0.1, "ask": 0.1, "busy": 0.2}
    risk = clone_risk(trial, shares)
    whole = np.array([max(shares.get(action, 0), 1e-3) for action in ACTIONS])
    rows = np.tile(whole / whole.sum(), (3, 1))
    best = fixed_point(chain.targets, rows, 0.0).argmax(axis=1)
    assert [ACTIONS[place] for place in best] == ["work", "work", "stop"]
    below, above = (
        fixed_point(chain.targets, rows, risk.logged * factor).argmax(axis=1) for factor in (0.95, 1.05)
    )
    assert (below == best).all()
    assert (above != best).any()


def test_a_gap_grows_with_the_outcome_and_with_impatience():
    risks = [
        clone_risk(Trial.of(spec_of(f"s: {{when: success, value: {v}, at: terminal}}", g)))
        for v, g in ((1, 0.99), (10, 0.99), (1, 0.9))
    ]
    assert risks[0].gap == pytest.approx(0.01 * 0.99**2, rel=0.02)
    assert risks[0].even < min(risks[1].even, risks[2].even)
    assert clone_risk(Trial.of(spec_of("s: {value: -0.1}"))) is None  # nothing to find


# -- the command ------------------------------------------------------------------------------------------------------


def test_the_command_says_all_and_exits_by_the_worst():
    naive, fixed = (str(EXAMPLES / f"clarify_{name}.yaml") for name in ("naive", "fixed"))
    result = CliRunner().invoke(main, ["reward", "lint", naive])
    assert result.exit_code == 1
    assert "13 turns are worth more than a success" in result.stdout
    data = json.loads(CliRunner().invoke(main, ["reward", "lint", naive, "--json"]).stdout)
    assert data["passed"] is False
    assert data["logs"] is None
    assert {item["rule"] for item in data["findings"]} >= {"paid_cycle", "own_words", "shaping"}
    assert CliRunner().invoke(main, ["reward", "lint", fixed, "--strict"]).exit_code == 0
    sparse = str(EXAMPLES / "sparse.yaml")
    codes = [
        CliRunner().invoke(main, ["reward", "lint", sparse, *more]).exit_code for more in ([], ["--strict"])
    ]
    assert codes == [0, 1]  # a warning: CQL clones it at α 1


def test_nan_never_reaches_json():
    assert math.isfinite(
        json.loads(
            CliRunner().invoke(main, ["reward", "lint", str(EXAMPLES / "sparse.yaml"), "--json"]).stdout
        )["optimal_return"]
    )
