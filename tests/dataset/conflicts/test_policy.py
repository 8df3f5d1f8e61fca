"""What a policy weighs down and sets aside, per kind."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logforge.dataset.conflicts.groups import KINDS, find_conflicts
from logforge.dataset.conflicts.policy import (
    FLAG_ALL,
    TREATMENTS,
    contradicted,
    factors,
    read_policy,
    set_aside,
)
from logforge.dataset.conflicts.rows import comparable
from logforge.schemas.errors import UnknownName, UsageError
from support.made_conflicts import frame, row, said


def found(*rows, words=None, near=None, epsilon=0.5):
    transitions = frame(*rows)
    compared = comparable(transitions, said(transitions, words), near)
    return contradicted(compared, find_conflicts(compared, epsilon), epsilon)


def hit(kind, *rows, **more):
    return found(*rows, **more).filter(kind=kind).select("episode_id", "step").rows()


def test_words_make_a_policy_and_contrast_is_touched_only_by_name():
    assert read_policy([]) == FLAG_ALL == dict.fromkeys(KINDS, "flag")
    assert read_policy(["filter"]) == {**dict.fromkeys(KINDS, "filter"), "contrast": "flag"}
    assert read_policy(["filter", "label=weight", "contrast=filter"]) == {
        "outcome": "filter",
        "demonstration": "filter",
        "label": "weight",
        "contrast": "filter",
    }
    for wrong, valid in (("drop", "flag, weight, filter"), ("labels=weight", "label"), ("=weight", "")):
        if valid:
            with pytest.raises(UnknownName, match=valid):
                read_policy([wrong])
    with pytest.raises(UsageError):
        factors(frame(), found(), {"nothing": "weight"})


@given(
    st.lists(
        st.sampled_from([*TREATMENTS, *(f"{k}={t}" for k in KINDS if k != "contrast" for t in TREATMENTS)])
    )
)
def test_no_word_without_its_name_touches_contrast(words):
    assert read_policy(words)["contrast"] == "flag"


def test_an_outcome_contradicts_both_sides():
    rows = [row("a", "s", "x", 9.0, True), row("b", "s", "x", 0.0, False), row("c", "s", "y", 9.0, True)]
    assert hit("outcome", *rows) == [("a", 0), ("b", 0)]


def test_a_contrast_contradicts_the_worse_action():
    rows = [
        row("a", "s", "x", 9.0),
        row("b", "s", "y", 0.0),
        row("c", "s", "z", 0.1),
        row("d", "s", "y", 0.0),
    ]
    assert hit("contrast", *rows) == [("b", 0), ("c", 0), ("d", 0)]


def test_a_label_contradicts_the_smaller_side_and_both_where_they_are_equal():
    words = {(name, step): "w" for name in "abc" for step in range(2)}
    rows = [row(n, f"s{i}", "x", 0.0, n != "b", step=i) for n in "abc" for i in range(2)]
    assert hit("label", *rows, words=words) == [("b", 0), ("b", 1)]
    assert hit("label", *rows[:4], words=words) == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]


def test_a_demonstration_contradicts_the_agent_alone():
    rows = [
        row("d", "s", "x", 1.0, kind="human_demo"),
        row("a", "s", "y", 1.0),
        row("b", "s", "x", 1.0),
        row("e", "t", "y", 1.0, kind="human_demo"),
    ]
    assert hit("demonstration", *rows) == [("a", 0)]


def test_coarser_levels_contradict_their_rows():
    rows = [row("a", "s1", "x", 9.0, True, canonical="c"), row("b", "s2", "x", 0.0, False, canonical="c")]
    assert hit("outcome", *rows) == [("a", 0), ("b", 0)]
    apart = [(*item[:3], f"c-{item[2]}", *item[4:]) for item in rows]
    near = pl.DataFrame({"exact": ["s1", "s2"], "near": ["s1", "s1"]})
    assert hit("outcome", *apart, near=near) == [("a", 0), ("b", 0)]
    assert hit("outcome", *apart) == []


def test_factors_count_each_kind_once_and_reach_the_copies():
    rows = [
        row("d", "s", "x", 9.0, True, kind="human_demo"),
        row("a", "s", "y", 9.0, True),
        row("b", "s", "y", 0.0, False),
        row("copy", "s", "y", 9.0, True, parent="a/0"),
        row("free", "t", "y", 9.0, True),
    ]
    hits = found(*rows)
    weighed = factors(frame(*rows), hits, read_policy(["weight"]))
    assert weighed.rows() == [("a", 0, 0.25), ("b", 0, 0.25), ("copy", 0, 0.25)]
    only = factors(frame(*rows), hits, read_policy(["outcome=weight"]))
    assert only.rows() == [("a", 0, 0.5), ("b", 0, 0.5), ("copy", 0, 0.5)]
    assert factors(frame(*rows), hits, FLAG_ALL).is_empty()


def test_whole_episodes_are_set_aside_by_their_first_contradicted_step():
    rows = [
        row("a", "other", "x", 9.0, True, step=0),
        row("a", "s", "x", 9.0, True, step=1),
        row("b", "s", "x", 0.0, False),
    ]
    aside = set_aside(found(*rows), read_policy(["outcome=filter"]))
    assert aside.select("episode_id", "step", "kind").rows() == [("a", 1, "outcome"), ("b", 0, "outcome")]
    assert set_aside(found(*rows), read_policy(["weight"])).is_empty()
