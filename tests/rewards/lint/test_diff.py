"""What changes between two specs: by hand, and by the definitions of τ and of ranks."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from logforge.cli.commands import main
from logforge.rewards.lint.diff import kendall, reward_diff
from logforge.schemas.errors import UsageError
from support.made_populations import filled, population, run
from support.made_rewards import episode, spec_of, step

PRICE = spec_of("price: {value: -1}", gamma=1.0)
CALLS = spec_of("calls: {when: kind = 'tool'}", gamma=1.0)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=9))
def test_tau_is_that_of_its_definition(rows):
    pairs = [(np.sign(a - c), np.sign(b - d)) for (a, b), (c, d) in itertools.combinations(rows, 2)]
    untied = [sum(side != 0 for side in sides) for sides in zip(*pairs, strict=True)] if pairs else [0, 0]
    found = kendall(*(np.array([row[i] for row in rows], dtype=float) for i in range(2)))
    if not all(untied):
        assert found is None
    else:
        assert found == pytest.approx(sum(a * b for a, b in pairs) / math.sqrt(untied[0] * untied[1]))


def test_the_same_spec_changes_nothing(store):
    diff = reward_diff(filled(store, population()), PRICE, PRICE)
    assert diff.tau is None  # all episodes are equally long: nothing is ranked
    assert (diff.changed_rewards, diff.movers) == (0, ())
    both = spec_of("success: {when: success, value: 10, at: terminal}", "price: {value: -1}")
    again = reward_diff(store, both, both)
    assert again.tau == pytest.approx(1)
    assert (again.changed_rewards, again.movers, again.mean_return_a) == (0, (), again.mean_return_b)


def test_two_specs_by_hand(store):
    made = [run(f"e{n}", [("find", "ok")] * n, success=n > 1) for n in range(4)]
    diff = reward_diff(filled(store, made), PRICE, CALLS)
    assert (diff.episodes, diff.steps, diff.changed_rewards) == (4, 10, 10)
    assert (diff.mean_return_a, diff.mean_return_b) == (-2.5, 1.5)
    assert diff.tau == pytest.approx(-1)
    assert (diff.auc_a, diff.auc_b) == (0, 1)
    assert [tuple(term) for term in diff.terms] == [("calls", None, 1.5), ("price", -2.5, None)]
    first = diff.movers[0]
    assert (first.episode_id, first.rank_a, first.rank_b, first.return_a, first.return_b) == (
        "e0",
        1,
        4,
        -1,
        0,
    )
    assert first.locator == "e0#"


def test_episodes_without_a_reward_are_counted_and_left_out(store):
    known = [episode(f"k{n}", [step(0)] * 1, score=float(n), task_id=f"k{n}") for n in range(3)]
    unknown = episode("u", [step(0)], task_id="u")
    diff = reward_diff(filled(store, [*known, unknown]), spec_of("score: {value: score}"), PRICE)
    assert (diff.episodes, diff.null_a, diff.null_b) == (3, 1, 0)
    assert diff.mean_return_a == 1
    assert diff.changed_rewards == 4


def test_an_empty_store_is_refused(store):
    with pytest.raises(UsageError, match="no decision"):
        reward_diff(store, PRICE, CALLS)


def test_the_command_prints_and_gives_data(store, tmp_path):
    filled(store, population())
    path = store.path
    store.close()
    for name, text in (
        ("a", "gamma: 1\nterms: {success: {when: success, at: terminal}}"),
        ("b", "gamma: 1\nterms: {err: {when: runtime_error, value: -1}}"),
    ):
        (tmp_path / f"{name}.yaml").write_text(text)
    arguments = ["reward", "diff", str(tmp_path / "a.yaml"), str(tmp_path / "b.yaml"), "--store", str(path)]
    shown = CliRunner().invoke(main, arguments)
    assert shown.exit_code == 0
    assert "Kendall τ" in shown.stdout
    assert "biggest movers" in shown.stdout
    data = json.loads(CliRunner().invoke(main, [*arguments, "--json"]).stdout)
    assert data["episodes"] == 23
    assert data["tau"] < 0
