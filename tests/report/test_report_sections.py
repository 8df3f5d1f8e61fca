"""Sections of the quality report on planted rows: what is planted is found, with the numbers worked out by hand."""

from __future__ import annotations

import math

import pytest

from logforge.report.sections import (
    balance,
    characteristics,
    conflicts,
    conservation,
    coverage,
    duplicates,
    entropy,
    failures,
    labels,
    laziness,
    overlap,
    returns,
    sources,
    splits,
    terms,
)
from support.made_report import episode, insert, plant


def texts(section, level=None):
    return " | ".join(f.text for f in section.findings if level in (None, f.level))


def rows(section, key):
    return next(query for query in section.queries if query.key == key).dicts()


def source(store, name, records, **parts):
    insert(store, "sources", source_id=name, path=name, format="f", records=records, **{"kept": 0, "duplicates": 0, "quarantined": 0, "skipped": 0} | parts)  # fmt: skip


def test_sources_count_outcomes_and_leave_augmented_copies_apart(store):
    copy = episode("a2", {"action": "x", "parent_id": "a/0", "augmenter": "p"})
    section = sources.measure(
        plant(
            store,
            episode("a", "x", "y"),
            episode("b", "x", success=False),
            episode("c", "x", success=None),
            copy,
        )
    )
    assert [section.number(name) for name in ("episodes", "transitions", "augmented_transitions")] == [
        4,
        5,
        1,
    ]
    [row] = rows(section, "outcomes")
    assert [row[name] for name in ("episodes", "transitions", "success", "failure", "unknown")] == [
        3,
        4,
        1,
        1,
        1,
    ]


def test_dangerous_calls_are_counted_by_kind(store):
    calls = [
        {"action": "pay", "danger": "pay"},
        {"action": "rm", "danger": "delete"},
        {"action": "rm", "danger": "delete"},
        "x",
    ]
    section = sources.measure(plant(store, episode("a", *calls)))
    assert [(row["danger"], row["calls"]) for row in rows(section, "danger")] == [("delete", 2), ("pay", 1)]


def test_conservation_names_the_source_that_loses_a_record(store):
    source(store, "whole.jsonl", 3, kept=1, duplicates=1, skipped=1)
    context = plant(store, episode("a", "x"))
    assert conservation.measure(context).level == "good"
    source(store, "torn.jsonl", 5, kept=4)
    section = conservation.measure(context)
    assert section.level == "alarm"
    assert section.number("difference") == 1
    assert [row["path"] for row in rows(section, "broken")] == ["torn.jsonl"]


def test_conservation_counts_episodes_that_came_after_the_build(store):
    section = conservation.measure(plant(store, episode("a", "x"), episode("late", "x", built=False)))
    assert (section.number("stored"), section.number("used"), section.number("unaccounted")) == (2, 1, 1)
    assert "ingested after the build" in texts(section)


@pytest.mark.parametrize(
    ("outcomes", "level"), [([True] * 19 + [False], "note"), ([False] * 19 + [True], "note"), ([None, None], "alarm"), ([True, False], "good")]
)  # fmt: skip
def test_balance_tells_one_sided_data(store, outcomes, level):
    section = balance.measure(
        plant(store, *(episode(f"e{n}", "x", success=won) for n, won in enumerate(outcomes)))
    )
    assert section.level == level


def test_returns_leave_partial_ones_out_and_alarm_where_failure_pays(store):
    cut = episode("cut", "x", success=None, value=99.0, ending="truncated")
    section = returns.measure(
        plant(store, episode("a", "x", value=1.0), episode("b", "x", value=3.0, success=False), cut)
    )
    assert (section.number("partial"), section.number("highest"), section.number("mean")) == (1, 3, 2)
    assert section.level == "alarm"
    bins = rows(section, "histogram")
    assert sum(row["success"] + row["failure"] + row["unknown"] for row in bins) == 2
    assert (bins[0]["success"], bins[-1]["failure"]) == (1, 1)


def test_returns_of_cut_episodes_alone_have_no_histogram(store):
    section = returns.measure(plant(store, episode("cut", "x", success=None, ending="truncated")))
    assert section.charts == ()


def test_terms_have_their_rate_share_and_correlation(store):
    pays = [
        episode(
            f"e{n}",
            {"action": "x", "reward_terms": [("goal", 2.0 * (n % 2)), ("cost", -1.0), ("never", 0.0)]},
            success=bool(n % 2),
        )
        for n in range(40)
    ]
    section = terms.measure(plant(store, *pays))
    found = {row["term"]: row for row in rows(section, "terms")}
    assert found["goal"]["firing_rate"] == 0.5
    assert found["goal"]["correlation_with_success"] == pytest.approx(1)
    assert found["goal"]["contribution"] == pytest.approx(0.5)
    assert found["cost"]["correlation_with_success"] is None
    assert found["cost"]["mean_per_episode"] == -1
    assert "never pays at no step" in texts(section)


def test_each_failed_episode_has_the_one_label_planted(store):
    again = {"action": "x", "arguments": "{}"}
    empty = {"action": "y", "result_status": "empty"}
    planted = {
        "cut off": episode("cut", "x", ending="truncated"),
        "loop": episode("loop", again, again, again),
        "no progress": episode("idle", empty, dict(empty), dict(empty), "z"),
        "premature close": episode(
            "closed", "x", {"action": "y", "result_status": "error", "error_class": "timeout"}
        ),
        "invalid tool": episode("ghost", {"action": "ghost", "action_valid": False}, "x"),
        "error": episode("error", {"action": "x", "result_status": "error", "error_class": "not_found"}, "y"),
        "no call": episode(
            "talk", {"action": "respond", "kind": "respond", "result_status": None, "result": None}
        ),
        "wrong result": episode("wrong", "x"),
    }
    for item in planted.values():
        item["success"] = False
    section = failures.measure(plant(store, *planted.values(), episode("fine", "x")))
    found = {row["label"]: (row["episodes"], row["example"]) for row in rows(section, "labels")}
    assert found == {label: (1, f"{item['episode_id']}:1") for label, item in planted.items()}
    assert [label for label, _, _ in failures.RULE] == list(planted)
    assert {row["detail"] for row in rows(section, "details") if row["label"] == "error"} == {"not_found"}


def test_a_success_that_was_closed_too_early_is_told(store):
    section = failures.measure(
        plant(store, episode("forced", {"action": "x", "result_status": "error", "error_class": "other"}))
    )
    assert section.number("closed_early_successes") == 1
    assert [row["locator"] for row in rows(section, "early")] == ["forced:1"]
    assert "closed too early" in texts(section)


def test_lazy_tools_and_episodes_without_progress_are_listed(store):
    clock = {"action": "get_current_time", "arguments": "{}", "result": "noon"}
    lazy = [
        episode(f"lazy{n}", clock, dict(clock), dict(clock), dict(clock), success=False) for n in range(3)
    ]
    section = laziness.measure(
        plant(store, *lazy, *(episode(f"good{n}", "lookup", "book") for n in range(5)))
    )
    assert [row["tool"] for row in rows(section, "never")] == ["get_current_time"]
    assert [row["episode_id"] for row in rows(section, "episodes")] == ["lazy0", "lazy1", "lazy2"]
    assert section.number("without_news") == pytest.approx(9 / 22)
    assert "get_current_time" in texts(section)


def test_the_uncovered_family_is_named(store):
    covered = [episode(f"r{n}", "refund", task_id=f"refund-{n}") for n in range(6)]
    lost = [episode(f"t{n}", "travel", task_id=f"travel_{n:03}", split="test") for n in range(6)]
    section = coverage.measure(
        plant(store, *covered, *lost, episode("v", "x", task_id="visa-1", success=False))
    )
    kinds = {row["family"]: row["coverage"] for row in rows(section, "families")}
    assert kinds == {"f/refund": "covered", "f/travel": "uncovered", "f/visa": "no success"}
    assert "f/travel" in texts(section, "alarm")
    counts = {(row["family"], row["action"]): row["decisions"] for row in rows(section, "matrix")}
    assert counts["f/refund", "refund"] == 6
    assert ("f/travel", "travel") not in counts


def test_a_format_with_a_family_per_task_is_one_family(store):
    names = [f"{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(61)]
    section = coverage.measure(plant(store, *(episode(name, "x", task_id=name) for name in names)))
    assert [row["family"] for row in rows(section, "families")] == ["f"]


def test_entropy_in_bits_of_all_and_within_states(store):
    same = {"state_key_canonical": "s"}
    section = entropy.measure(
        plant(
            store,
            episode("a", {"action": "x", **same}),
            episode("b", {"action": "y", **same}),
            episode("c", "x"),
            episode("d", "x"),
        )
    )
    assert section.number("action_entropy") == pytest.approx(
        -(0.75 * math.log2(0.75) + 0.25 * math.log2(0.25))
    )
    assert section.number("in_known_states") == 1
    assert section.number("single_action_states") == 0


def pairs(name, *keys, **more):
    return episode(name, *({"action": "x", "state_key": key} for key in keys), **more)


def test_tq_and_saco_are_as_published(store):
    planted = [
        pairs("random", "s1", "s2", value=-1.0, source_kind="random_exploration", policy_id="r"),
        pairs("expert", "s1", value=3.0, source_kind="human_demo", policy_id="h"),
        pairs("mine", "s1", "s3", value=2.0, policy_id="p"),
    ]
    section = characteristics.measure(plant(store, *planted))
    assert section.number("tq") == pytest.approx((4 / 3 + 1) / 4)
    assert section.number("unique_pairs") == 3
    found = {row["policy"]: row for row in rows(section, "policies")}
    assert (found["r"]["tq"], found["h"]["tq"], found["p"]["tq"]) == (0, 1, 0.75)
    assert (found["h"]["saco"], found["p"]["saco"]) == (pytest.approx(1 / 3), pytest.approx(2 / 3))


def test_without_references_tq_lies_between_the_lowest_and_the_highest_return(store):
    section = characteristics.measure(
        plant(store, pairs("a", "s", value=0.0), pairs("b", "s", value=1.0), pairs("c", "s", value=5.0))
    )
    assert section.number("tq") == pytest.approx(2 / 5)


def test_saco_is_relative_to_the_dataset_named(store):
    plant(store, pairs("w1", "s1", "s2"), pairs("w2", "s3", "s4"), dataset="whole")
    context = plant(store, pairs("a", "s1"), dataset="part")
    context.reference = "whole"
    assert characteristics.measure(context).number("saco") == 0.25


def test_overlap_gives_kish_effective_size(store):
    section = overlap.measure(
        plant(
            store,
            *(
                episode(f"e{n}", {"action": "x", "propensity": p, "propensity_kind": "logged"})
                for n, p in enumerate((0.5, 0.5, 0.005))
            ),
            episode("m", "x"),
        )
    )
    weights = [1 / (2 * p) for p in (0.5, 0.5, 0.005)]
    expected = sum(weights) ** 2 / sum(w * w for w in weights)
    assert section.number("effective_size") == pytest.approx(expected)
    assert section.number("missing") == 0.25
    assert section.number("below_1_percent") == 1


def test_conflicts_of_any_kind_are_counted_with_their_largest_example(store):
    context = plant(store, pairs("a", "s"), pairs("b", "s", success=False), pairs("c", "t"))
    sides = {"dataset": "d", "level": "exact", "state_key": "s", "action_a": "x", "action_b": "x", "count_a": 1, "count_b": 1, "episode_a": "a", "step_a": 0, "episode_b": "b", "step_b": 0}  # fmt: skip
    for kind in ("outcome", "contrast", "a_kind_of_tomorrow"):
        insert(store, "conflicts", kind=kind, mean_return_a=1.0, mean_return_b=0.0, **sides)
    section = conflicts.measure(context)
    assert (section.number("conflicts"), section.number("contrasts")) == (3, 1)
    assert section.number("conflict_rate") == pytest.approx(2 / 3)
    assert {(row["kind"], row["side_a"], row["side_b"]) for row in rows(section, "examples")} == {
        (kind, "x\n1 × 1.0\na:0", "x\n1 × 0.0\nb:0") for kind in ("outcome", "contrast", "a_kind_of_tomorrow")
    }


def test_a_label_conflict_strikes_every_state_of_its_trajectory(store):
    context = plant(store, pairs("a", "s"), pairs("b", "s", success=False), pairs("c", "t"))
    sides = {"dataset": "d", "kind": "label", "level": "exact", "state_key": "a trajectory's", "episode_a": "a", "step_a": 0, "episode_b": "b", "step_b": 0}  # fmt: skip
    insert(store, "conflicts", count_a=1, count_b=1, mean_return_a=1.0, mean_return_b=0.0, **sides)
    assert conflicts.measure(context).number("conflict_rate") == pytest.approx(2 / 3)


def test_near_duplicates_that_contradict_come_first(store):
    context = plant(store, episode("a", "x"), episode("b", "x", success=False), episode("c", "x"))
    for a, b, similarity in (("a", "c", 1.0), ("a", "b", 0.92)):
        insert(
            store,
            "near_duplicates",
            dataset="d",
            episode_a=a,
            episode_b=b,
            similarity=similarity,
            shingles=30,
        )
    section = duplicates.measure(context)
    assert [section.number(name) for name in ("pairs", "identical", "episodes", "contradicting")] == [
        2,
        1,
        3,
        1,
    ]
    assert rows(section, "shown")[0]["episode_b"] == "b:1"


def test_a_task_in_two_splits_is_an_alarm(store):
    fine = [
        episode(f"e{n}", "x", task_id=f"t{n}", split=split)
        for n, split in enumerate(("train", "validation", "test"))
    ]
    context = plant(store, *fine)
    assert splits.measure(context).level == "good"
    context = plant(store, episode("leak", "x", task_id="t0", split="test"))
    section = splits.measure(context)
    assert section.level == "alarm"
    assert ("task", "f/t0") in {(row["link"], row["key"]) for row in rows(section, "proof")}
    assert section.number("ours") == 0.5


def test_a_near_duplicate_pair_in_two_splits_is_an_alarm(store):
    context = plant(
        store,
        *(episode(f"e{n}", "x", split=split) for n, split in enumerate(("train", "validation", "test"))),
    )
    insert(
        store, "near_duplicates", dataset="d", episode_a="e0", episode_b="e2", similarity=0.95, shingles=30
    )
    assert [row["link"] for row in rows(splits.measure(context), "proof")] == ["near"]


def test_kappa_of_two_sources_of_labels(store):
    cells = [(True, 0.9)] * 4 + [(True, 0.1)] * 3 + [(False, 0.9)] * 3 + [(False, 0.1)] * 2
    section = labels.measure(
        plant(
            store, *(episode(f"e{n}", "x", success=won, score=score) for n, (won, score) in enumerate(cells))
        )
    )
    [row] = rows(section, "agreement")
    agreement, chance = 6 / 12, (7 / 12) ** 2 + (5 / 12) ** 2
    assert row["kappa"] == pytest.approx((agreement - chance) / (1 - chance))
    assert section.level == "alarm"


def test_success_that_goes_with_length_is_told(store):
    context = plant(store, *(episode(f"e{n}", "x", success=n % 2 == 0) for n in range(20)))
    for n in range(20):
        insert(
            store,
            "messages",
            episode_id=f"e{n}",
            position=0,
            role="assistant",
            content="word " * (50 if n % 2 == 0 else 2),
        )
    section = labels.measure(context)
    assert section.number("verbosity") == pytest.approx(1)
    assert "paying for length" in texts(section)
