"""The probes of the quality report find what is planted, and nothing where nothing is."""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np
import pytest
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from logforge.report.page.clusters import cluster
from logforge.report.sections import advice, coverage, drift, leak, predictability, sufficiency
from logforge.report.sections.scan import around_the_clock, before_and_after, excess_p, scan
from support.made_report import episode, given, insert, plant, sample

START = datetime(2026, 3, 1)


class Names:
    """Stands for a manifest whose vocabulary is `tool0`, `tool1`, …"""

    class vocabulary:
        actions = tuple(f"tool{n}" for n in range(50))


def texts(section, level):
    return " | ".join(f.text for f in section.findings if f.level == level)


# drift


def days(count, worse, seed=0, usual=0.2, bad=0.95, **more):
    """Episodes every hour; those for which `worse(time)` holds fail at the rate `bad`."""
    generator = np.random.default_rng(seed)
    for n in range(count):
        time = START + timedelta(hours=n, minutes=7)
        failed = generator.random() < (bad if worse(time) else usual)
        yield episode(f"e{n:04}", "x", success=not failed, started_at=time, **more)


def test_night_corruption_is_found_named_and_can_be_picked_out(store):
    context = plant(store, *days(240, lambda time: 1 <= time.hour <= 4))
    [found] = [row for row in drift.measure(context).tables[0].rows if row[0] == "hour"]
    suspect = drift.Suspect(*found)
    assert suspect.slice == "01:00–04:59 UTC"
    assert suspect.rate > 0.6 > 0.4 > suspect.rate_elsewhere
    picked = store.con.execute(
        f"SELECT DISTINCT hour(started_at) FROM episodes WHERE {suspect.condition} ORDER BY 1"
    ).fetchall()
    assert picked == [(1,), (2,), (3,), (4,)]


def test_a_night_that_goes_past_midnight_is_one_window(store):
    context = plant(store, *days(240, lambda time: time.hour >= 22 or time.hour <= 2))
    assert "22:00–02:59" in texts(drift.measure(context), "alarm")


def test_a_change_point_is_found(store):
    context = plant(store, *days(200, lambda time: time >= START + timedelta(hours=120)))
    [found] = [drift.Suspect(*row) for row in drift.measure(context).tables[0].rows if row[0] == "change"]
    ((first,),) = store.con.execute(
        f"SELECT min(started_at) FROM episodes WHERE {found.condition}"
    ).fetchall()
    assert abs((first - START - timedelta(hours=120)).total_seconds()) < 12 * 3600


def test_steady_logs_raise_no_alarm(store):
    section = drift.measure(plant(store, *days(200, lambda time: False)))
    assert section.level == "good"
    assert section.tables[0].rows == ()


def test_the_worse_model_is_named_and_its_name_stays_data(store):
    evil = "x'; DROP TABLE episodes; --"
    good = [episode(f"g{n}", "x", model="fine", success=n % 5 > 0) for n in range(60)]
    bad = [episode(f"b{n}", "x", model=evil, success=n % 5 == 0) for n in range(30)]
    section = drift.measure(plant(store, *good, *bad))
    [found] = [drift.Suspect(*row) for row in section.tables[0].rows]
    assert (found.kind, found.slice, found.failures) == ("model", evil, 24)
    assert store.con.execute(f"SELECT count(*) FROM episodes WHERE {found.condition}").fetchall() == [(30,)]
    assert "no episode of known outcome has a start time" in texts(section, "note")


def test_the_scan_alarms_as_rarely_as_it_says():
    generator = np.random.default_rng(5)
    windows, alarms = around_the_clock(), 0
    for trial in range(60):
        sizes = generator.integers(0, 12, 24)
        found = scan(windows, sizes, generator.binomial(sizes, 0.3), seed=trial)
        alarms += found is not None and found.p < 0.1
    assert alarms <= 13  # 6 are expected; more than 13 come in 1 of 300 runs


@settings(max_examples=40, deadline=None)
@for_all(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=12))
def test_a_window_s_counts_are_those_of_its_bins(parts):
    sizes, failures = [a + b for a, b in parts], [b for _, b in parts]
    found = scan(before_and_after(len(parts)), sizes, failures)
    if found is None:
        assert sum(failures) in (0, sum(sizes)) or sum(size > 0 for size in sizes) < 2
        return
    assert found.episodes == sum(sizes[n] for n in found.bins)
    assert found.failures == sum(failures[n] for n in found.bins)
    assert found.rate >= found.rate_elsewhere
    assert 0 < found.p <= 1


def test_holm_corrects_upwards_and_keeps_the_order():
    raw = [excess_p([n], [f], 100, 30)[0] for n, f in ((20, 14), (20, 9), (20, 5))]
    corrected = excess_p([20, 20, 20], [14, 9, 5], 100, 30)
    assert corrected[0] == pytest.approx(3 * raw[0])
    assert corrected[1] == pytest.approx(max(2 * raw[1], corrected[0]))
    assert corrected == sorted(corrected)


# sufficiency and leak


def made(seed, told, episodes=160, length=3, size=6):
    """States that hold the outcome with the strength `told`, or nothing of it."""
    generator = np.random.default_rng(seed)
    won = generator.random(episodes) < 0.5
    seen = generator.normal(size=(episodes * length, size))
    seen[:, 0] += told * np.repeat(won, length)
    return sample(seen, np.zeros(episodes * length, int), won, length)


def test_a_hidden_variable_is_flagged_and_a_state_that_shows_it_is_not():
    hidden = predictability.probes(made(0, told=0.0))
    assert [probe.verdict for probe in hidden] == ["insufficient", "insufficient"]
    shown = predictability.probes(made(0, told=3.0))
    assert [probe.verdict for probe in shown] == ["sufficient", "sufficient"]
    assert shown[0].state.value > 0.5
    assert shown[1].state.value > 0.9
    assert shown[1].shuffled.value < 0.6


def test_what_the_step_number_tells_is_not_counted_for_the_state():
    generator = np.random.default_rng(1)
    steps = np.tile(np.arange(4.0), 200)
    states = np.column_stack([steps, generator.normal(size=(800, 4))])
    found = predictability.probes(
        sample(
            states,
            np.zeros(800, int),
            generator.random(200) < 0.5,
            4,
            returns=-steps + generator.normal(size=800) / 4,
        )
    )
    assert found[0].time.value > 0.8
    assert found[0].verdict == "insufficient"


def test_with_few_episodes_nothing_is_said():
    assert {probe.verdict for probe in predictability.probes(made(2, told=0.0, episodes=30))} == {"undecided"}
    probe = predictability.probes(made(2, told=0.0, episodes=4))[0]
    assert probe.gain.value is None
    assert "independent episodes" in probe.gain.reason


def test_probes_give_the_same_numbers_again():
    assert predictability.probes(made(3, told=1.0, episodes=20)) == predictability.probes(
        made(3, told=1.0, episodes=20)
    )


def test_the_section_flags_the_hidden_variable_and_counts_aliases(store):
    same = {"state_key": "s"}
    context = plant(
        store,
        episode("a", {"action": "x", **same}),
        episode("b", {"action": "x", **same}, success=False),
        episode("c", "y"),
    )
    section = sufficiency.measure(given(context, seen=made(0, told=0.0)))
    assert "what decides is not in it" in texts(section, "alarm")
    assert (section.number("repeated_pairs"), section.number("aliasing_rate")) == (1, 1)


@pytest.mark.parametrize(("told", "level"), [(9.0, "alarm"), (0.0, "good")])
def test_a_first_state_that_holds_the_outcome_is_an_alarm(store, told, level):
    section = leak.measure(given(plant(store, episode("a", "x")), seen=made(4, told=told)))
    assert section.level == level


# clusters and advice


def groups_of(actions, seed=0, each=40):
    """Five far-apart places, in each of which the actions given for it are taken in turn."""
    generator = np.random.default_rng(seed)
    seen = np.concatenate(
        [generator.normal(scale=0.05, size=(each, 3)) + 10 * place for place in range(len(actions))]
    )
    taken = np.concatenate([np.resize(own, each) for own in actions])
    return seen, taken


def test_clusters_are_judged_by_their_actions():
    seen, taken = groups_of([[0], [1, 2], [3], [4, 5, 6, 7]])
    found = cluster(sample(seen, taken, np.ones(len(taken))), seed=0)
    judged = {frozenset(range(item.actions)): item for item in found.told}
    assert found.single == pytest.approx(sum(item.actions == 1 for item in found.told) / len(found.told))
    assert 0.3 < found.single < 0.7
    assert max(item.entropy for item in judged.values()) == pytest.approx(2, abs=0.1)
    assert found == cluster(sample(seen, taken, np.ones(len(taken))), seed=0)


def test_equal_states_are_one_cluster():
    found = cluster(sample(np.ones((30, 4)), np.arange(30) % 3, np.ones(30)), seed=0)
    assert [(item.decisions, item.actions) for item in found.told] == [(30, 3)]


def test_coverage_tells_the_share_of_single_action_clusters(store):
    seen, taken = groups_of([[0], [1], [2], [3]])
    context = given(
        plant(store, episode("a", "x")), train=sample(seen, taken, np.ones(len(taken))), manifest=Names
    )
    section = coverage.measure(context)
    assert section.number("single_action_clusters") == 1
    assert "one action alone was ever taken" in texts(section, "note")


MIXED, NARROW = [[0, 1, 2, 3]] * 4, [[0], [1], [2], [3]]


@pytest.mark.parametrize(
    ("actions", "wins", "expected"),
    [(MIXED, 4, "CQL"), (MIXED, 8, "IQL"), (NARROW, 5, "BCQ"), (MIXED, 10, "BC"), (MIXED, 0, "NONE YET")],
)
def test_synthetic_datasets_map_to_their_algorithms(store, actions, wins, expected):
    context = plant(store, *(episode(f"e{n}", "x", success=n < wins) for n in range(10)))
    seen, taken = groups_of(actions)
    section = advice.measure(given(context, train=sample(seen, taken, np.ones(len(taken)))))
    assert section.number("algorithm") == expected
    assert section.findings[0].text.startswith(f"{expected}: ")


def test_insert_writes_the_columns_it_is_given(store):
    insert(store, "sources", source_id="s", path="p", records=1)
    assert store.con.execute("SELECT path, kept FROM sources").fetchall() == [("p", None)]
