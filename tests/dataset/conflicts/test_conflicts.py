import itertools

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logforge.dataset.conflicts.groups import find_conflicts
from logforge.dataset.conflicts.rows import comparable
from logforge.schemas.errors import UsageError
from logforge.schemas.tables import CONFLICTS
from support.made_conflicts import frame, named, row, said
from support.thoroughness import enough


def find(*rows, epsilon=0.5, decisions=None, near=None):
    transitions = frame(*rows)
    return find_conflicts(comparable(transitions, said(transitions, decisions), near), epsilon)


def found(*rows, epsilon=0.5, **more):
    return find(*rows, epsilon=epsilon, **more).rows(named=True)


def test_columns_and_types_are_the_tables():
    conflicts = find(row("a", "s", "x", 1.0), row("b", "s", "x", 0.0))
    kinds = {"VARCHAR": pl.String, "UBIGINT": pl.UInt64, "DOUBLE": pl.Float64, "INTEGER": pl.Int32}
    expected = {c.name: kinds[c.type] for c in CONFLICTS.columns if c.name != "dataset"}
    assert dict(conflicts.schema) == expected
    assert dict(find().schema) == expected


def test_the_same_action_with_different_success_is_an_outcome_of_best_against_worst():
    rows = [
        row("e1", "s", "x", 5.0, True),
        row("e2", "s", "x", 7.0, True),
        row("e0", "s", "x", 7.0, True, step=3),
        row("e3", "s", "x", 7.0, False),
        row("e4", "s", "x", 1.0, False),
        row("e5", "s", "x", -9.0, None),
    ]
    [conflict] = found(*rows, epsilon=100)
    assert conflict["kind"] == "outcome"
    assert (conflict["action_a"], conflict["action_b"]) == ("x", "x")
    assert (conflict["count_a"], conflict["count_b"]) == (3, 2)
    assert conflict["mean_return_a"] == pytest.approx(19 / 3)
    assert conflict["mean_return_b"] == 4.0
    assert (conflict["episode_a"], conflict["step_a"]) == ("e0", 3)
    assert (conflict["episode_b"], conflict["step_b"]) == ("e4", 0)
    assert conflict["detail"].startswith("success 3 of 3 against 0 of 2; mean return")


def test_without_a_difference_in_success_the_returns_divide_the_rows():
    rows = [row(name, "s", "x", value) for name, value in (("a", 0.0), ("b", 1.0), ("c", 9.0), ("d", 10.0))]
    [conflict] = found(*rows)
    assert (conflict["count_a"], conflict["mean_return_a"], conflict["episode_a"]) == (2, 9.5, "d")
    assert (conflict["count_b"], conflict["mean_return_b"], conflict["episode_b"]) == (2, 0.5, "a")


def test_epsilon_is_exclusive():
    rows = [row("a", "s", "x", 1.0), row("b", "s", "x", 0.5)]
    assert found(*rows, epsilon=0.5) == []
    assert len(found(*rows, epsilon=0.49)) == 1


def test_different_actions_with_different_returns_are_a_contrast_with_the_better_one_first():
    rows = [
        row("a", "s", "x", 0.0),
        row("b", "s", "x", 2.0),
        row("c", "s", "y", 3.0),
        row("d", "s", "y", 5.0),
    ]
    [conflict] = [c for c in found(*rows, epsilon=2.5) if c["kind"] == "contrast"]
    assert (conflict["action_a"], conflict["action_b"]) == ("y", "x")
    assert (conflict["mean_return_a"], conflict["mean_return_b"]) == (4.0, 1.0)
    assert (conflict["episode_a"], conflict["episode_b"]) == ("d", "a")
    assert conflict["detail"] == "mean return 4.0 against 1.0"


def test_success_alone_makes_a_contrast():
    rows = [row("a", "s", "x", 1.0, False), row("b", "s", "y", 1.0, True)]
    [conflict] = found(*rows, epsilon=9)
    assert (conflict["kind"], conflict["action_a"], conflict["action_b"]) == ("contrast", "y", "x")


def test_equal_mixtures_are_no_contrast():
    rows = [row(f"{action}{n}", "s", action, 1.0, n == 0) for action in "xy" for n in range(2)]
    assert {c["kind"] for c in found(*rows)} == {"outcome"}


def test_agreement_and_other_states_are_no_conflict():
    rows = [row("a", "s", "x", 1.0, True), row("b", "s", "x", 1.0, True), row("c", "s", "y", 1.0, True)]
    assert found(*rows, row("d", "other", "x", -5.0, False)) == []


def test_partial_returns_and_augmented_rows_do_not_count():
    rows = [
        row("a", "s", "x", 5.0, True),
        row("b", "s", "x", 0.0, False, partial=True),
        row("c", "s", "x", 0.0, False, parent="a/0"),
        row("d", "s", "y", 0.0, False, parent="a/0"),
    ]
    assert found(*rows) == []


def test_the_canonical_level_reports_only_what_no_exact_state_shows():
    rows = [
        row("a", "s1", "x", 1.0, canonical="c"),
        row("b", "s2", "x", 9.0, canonical="c"),
        row("c", "s3", "y", 9.0, canonical="c"),
    ]
    conflicts = found(*rows)
    assert [(c["level"], c["kind"], c["state_key"]) for c in conflicts] == [
        ("canonical", "contrast", "c"),
        ("canonical", "outcome", "c"),
    ]
    assert all(c["detail"].endswith("; spans 3 exact states") for c in conflicts)
    shown = found(*rows, row("d", "s1", "x", 8.0, canonical="c"))
    assert [(c["level"], c["kind"]) for c in shown] == [("canonical", "contrast"), ("exact", "outcome")]


def test_a_negative_epsilon_is_refused():
    with pytest.raises(UsageError):
        find(epsilon=-0.1)
    with pytest.raises(UsageError):
        find(epsilon=float("nan"))


rows_strategy = st.lists(
    st.tuples(
        st.sampled_from(["s1", "s2", "s3"]),
        st.sampled_from("xyz"),
        st.sampled_from([0.0, 0.25, 1.0, 2.0]),
        st.sampled_from([True, False, None]),
    ),
    max_size=25,
)


def expected(rows, epsilon, key):
    """Which (kind, key, pair) conflict, by comparing rows and groups one by one."""
    groups = {}
    for each in rows:
        groups.setdefault((each[key], each[4]), []).append(each)
    result = set()
    for (state, action), members in groups.items():
        if any(
            {a[7], b[7]} == {True, False} or abs(a[5] - b[5]) > epsilon
            for a, b in itertools.combinations(members, 2)
        ):
            result.add(("outcome", state, frozenset([action])))
    for (one, a), (two, b) in itertools.combinations(groups.items(), 2):
        if one[0] == two[0]:
            known = [[r[7] for r in side if r[7] is not None] for side in (a, b)]
            rates = [sum(side) / len(side) if side else None for side in known]
            means = [sum(r[5] for r in side) / len(side) for side in (a, b)]
            if (None not in rates and rates[0] != rates[1]) or abs(means[0] - means[1]) > epsilon:
                result.add(("contrast", one[0], frozenset([one[1], two[1]])))
    return result


@settings(max_examples=enough(15, 100), deadline=None)
@given(rows_strategy, st.sampled_from([0.0, 0.6]), st.randoms(use_true_random=False))
def test_it_finds_what_comparing_every_pair_finds(drawn, epsilon, random):
    above = {"s1": "c1", "s2": "c1", "s3": "c2"}
    rows = [row(f"e{n:02}", k, a, v, ok, canonical=above[k]) for n, (k, a, v, ok) in enumerate(drawn)]
    conflicts = find(*rows, epsilon=epsilon)
    got = {
        level: {
            (c["kind"], c["state_key"], frozenset([c["action_a"], c["action_b"]]))
            for c in part.rows(named=True)
        }
        for level in ("exact", "canonical")
        for part in [conflicts.filter(level=level)]
    }
    exact = expected(rows, epsilon, 2)
    assert got["exact"] == exact
    assert got["canonical"] == expected(rows, epsilon, 3) - {(k, above[s], pair) for k, s, pair in exact}
    assert conflicts.height == len(got["exact"]) + len(got["canonical"])
    random.shuffle(rows)
    assert find(*rows, epsilon=epsilon).equals(conflicts)


def test_a_label_is_a_trajectory_told_twice_with_two_outcomes_and_told_once():
    rows = [
        row(name, f"s{step}", action, 5.0 if ok else 0.0, ok, step=step)
        for name, ok in (("a", True), ("b", True), ("c", False))
        for step, action in enumerate("xy")
    ]
    same = {(name, step): f"say {step}" for name in "abc" for step in range(2)}
    [conflict] = found(*rows, decisions=same)
    assert (conflict["kind"], conflict["level"]) == ("label", "exact")
    assert (conflict["count_a"], conflict["count_b"]) == (2, 1)
    assert (conflict["episode_a"], conflict["step_a"], conflict["episode_b"]) == ("a", 0, "c")
    assert conflict["detail"] == (
        "the same 2 decisions; success 2 of 2 against 0 of 1; mean return 5.0 against 0.0"
    )
    # what the last decision said differs: no label, and the outcomes are told at each step
    other = {**same, ("c", 1): "something else"}
    assert [(c["kind"], c["state_key"]) for c in found(*rows, decisions=other)] == [
        ("outcome", "s0"),
        ("outcome", "s1"),
    ]


def test_a_label_by_score_alone_needs_no_success():
    rows = [row("a", "s", "x", 1.0), row("b", "s", "x", 1.0)]
    words = {("a", 0): "w", ("b", 0): "w"}
    scored = named(frame(*rows), words, {"a": 0.2, "b": 0.9})
    [conflict] = find_conflicts(comparable(frame(*rows), scored), 0.5).rows(named=True)
    assert (conflict["kind"], conflict["episode_a"], conflict["episode_b"]) == ("label", "b", "a")
    assert "score 0.9 against 0.2" in conflict["detail"]
    assert find_conflicts(comparable(frame(*rows), scored), 0.7).is_empty()


def test_a_canonical_label_masks_states_and_words():
    rows = [row("a", "s1", "x", 9.0, True, canonical="s"), row("b", "s2", "x", 0.0, False, canonical="s")]
    [conflict] = found(*rows, decisions={("a", 0): "order 17", ("b", 0): "order 4"})
    assert (conflict["kind"], conflict["level"]) == ("label", "canonical")
    assert conflict["detail"].endswith("; spans 2 exact trajectories")
    [conflict] = found(*rows, decisions={("a", 0): "order 17", ("b", 0): "refund 4"})
    assert (conflict["kind"], conflict["level"]) == ("outcome", "canonical")


def test_an_outcome_stays_where_another_trajectory_disagrees_too():
    rows = [
        row("a", "s", "x", 9.0, True),
        row("b", "s", "x", 0.0, False),
        row("c", "s", "x", 0.0, False),
    ]
    words = {("a", 0): "w", ("b", 0): "w", ("c", 0): "v"}
    assert [c["kind"] for c in found(*rows, decisions=words)] == ["label", "outcome"]


def test_a_demonstration_is_left_by_what_no_demonstrator_did():
    rows = [
        row("d1", "s", "x", 1.0, kind="human_demo"),
        row("d2", "s", "y", 1.0, kind="human_demo"),
        row("a1", "s", "y", 1.0),
        row("a2", "s", "z", 1.0),
        row("a3", "s", "z", 0.9),
        row("a4", "t", "z", 1.0),
    ]
    conflicts = found(*rows)
    assert [(c["kind"], c["action_a"], c["action_b"]) for c in conflicts] == [
        ("demonstration", "x", "z"),
        ("demonstration", "y", "z"),
    ]
    assert [(c["count_a"], c["count_b"], c["episode_b"]) for c in conflicts] == [(1, 2, "a3")] * 2


def test_near_states_are_compared_under_their_leader():
    rows = [
        row("a", "s1", "x", 1.0, True),
        row("b", "s2", "x", 0.0, False),
        row("c", "s3", "x", 0.0, False),
    ]
    near = pl.DataFrame({"exact": ["s1", "s2"], "near": ["s2", "s2"]})
    [conflict] = found(*rows, near=near)
    assert (conflict["level"], conflict["kind"], conflict["state_key"]) == ("near", "outcome", "s2")
    assert (conflict["count_a"], conflict["count_b"]) == (1, 1)
    assert conflict["detail"].endswith("; spans 2 exact states")
    shown = found(*rows, row("d", "s1", "x", 0.0, False), near=near)
    assert [c["level"] for c in shown] == ["exact"]


episodes_strategy = st.lists(
    st.tuples(
        st.lists(
            st.tuples(st.sampled_from(["s1", "s2", "s3"]), st.sampled_from("xy")), min_size=1, max_size=2
        ),
        st.sampled_from([True, False, None]),
        st.sampled_from([0.0, 1.0, 2.0]),
        st.sampled_from(["agent_log", "human_demo"]),
        st.sampled_from(["", "partial", "augmented"]),
    ),
    max_size=10,
)


def rows_of(drawn):
    above = {"s1": "c1", "s2": "c1", "s3": "c2"}
    return [
        row(
            f"e{n:02}", key, action, value, ok, step=step, canonical=above[key], kind=kind,
            partial=flaw == "partial", parent="e00/0" if flaw == "augmented" else None,
        )
        for n, (steps, ok, value, kind, flaw) in enumerate(drawn)
        for step, (key, action) in enumerate(steps)
    ]  # fmt: skip


@settings(max_examples=enough(15, 100), deadline=None)
@given(episodes_strategy, st.randoms(use_true_random=False))
def test_laws_of_every_conflict(drawn, random):
    rows = rows_of(drawn)
    near = pl.DataFrame({"exact": ["s2", "s3"], "near": ["s2", "s2"]})
    words = {(item[0], item[1]): "w" for item in rows}
    conflicts = find(*rows, decisions=words, near=near)
    counted = {item[:2] for item in rows if not item[6] and item[8] is None}
    columns = {"exact": 2, "canonical": 3}
    for c in conflicts.rows(named=True):
        # both examples are rows that count, and the sides add up to at most the rows there are
        assert {(c["episode_a"], c["step_a"]), (c["episode_b"], c["step_b"])} <= counted
        assert c["count_a"] >= 1
        assert c["count_b"] >= 1
        if c["kind"] == "contrast" and c["level"] in columns:
            at = [
                item for item in rows if item[:2] in counted and item[columns[c["level"]]] == c["state_key"]
            ]
            for side in "ab":
                values = [item[5] for item in at if item[4] == c[f"action_{side}"]]
                assert c[f"count_{side}"] == len(values)
                assert c[f"mean_return_{side}"] == pytest.approx(sum(values) / len(values))
    keys = conflicts.select("kind", "level", "state_key", "action_a", "action_b")
    assert keys.is_unique().all()
    # neither the order of rows nor rows that do not count change anything
    only = [item for item in rows if item[:2] in counted]
    random.shuffle(only)
    assert find(*only, decisions=words, near=near).equals(conflicts)
    # turning outcomes round turns every contrast round
    turned = [
        (*item[:5], -item[5], item[6], None if item[7] is None else not item[7], *item[8:]) for item in rows
    ]
    again = find(*turned, decisions=words, near=near)
    sides = [
        {(*sorted(r[3:5]), *r[:3]) for r in f.filter(kind="contrast").select(keys.columns).rows()}
        for f in (conflicts, again)
    ]
    assert sides[0] == sides[1]
