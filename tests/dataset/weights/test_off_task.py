"""Stray steps are found among real ones, and what had a part in the task is never called stray."""

import msgspec
import polars as pl
import pytest

from logforge.connectors.benchmarks.tau_bench import TauBench
from logforge.connectors.episodes.builder import Call, EpisodeBuilder
from logforge.connectors.records.base import Source
from logforge.dataset.weights.off_task import THRESHOLD, pollution
from logforge.schemas.episode import Episode
from logforge.store.store import Store
from logforge.texts.encoders import embed, make_encoder
from support.made_episodes import finish
from support.places import SAMPLES
from support.planted_strays import planted_steps, polluted

REAL = SAMPLES / "tau_bench" / "gpt-4o-airline.15tasks.json"
STRAY = "penguins marry forever presenting pebbles while waddling"


@pytest.fixture(scope="module")
def embedded(tmp_path_factory):
    """Makes vectors with the hashing encoder."""
    with Store(tmp_path_factory.mktemp("vectors") / "store.duckdb") as store:
        yield lambda texts: embed(store.con, make_encoder("hashing"), texts)


def judged(embedded, episodes):
    return pollution(episodes, embedded)


def real():
    return [item for item in TauBench().read(Source(REAL, "t")) if isinstance(item, Episode)]


@pytest.mark.parametrize("share", [1 / 3, 1 / 6])
@pytest.mark.parametrize("seed", range(3))
def test_planted_strays_are_found_among_real_steps_with_high_precision(embedded, seed, share):
    episodes = polluted(real(), seed, share)
    planted = planted_steps(episodes)
    found = judged(embedded, episodes)
    assert found.height == sum(len(episode.steps) for episode in episodes)
    assert found["pollution"].is_between(0, 1).all()
    flagged = set(found.filter(pl.col("pollution") >= THRESHOLD).select("episode_id", "step").rows())
    assert len(planted) >= 6
    assert len(flagged & planted) / len(flagged) >= 0.9
    assert len(flagged & planted) / len(planted) >= 0.5


def test_hardly_a_real_step_is_called_stray(embedded):
    found = judged(embedded, real())
    assert (found["pollution"] >= THRESHOLD).sum() <= found.height / 500


def test_the_order_of_the_episodes_changes_nothing(embedded):
    episodes = polluted(real()[:20], 0, 1 / 3)
    found = judged(embedded, episodes)
    assert judged(embedded, episodes[::-1]).equals(found)


def talk(name, *turns, last="all done then"):
    """An episode of calls of `look`: each turn is arguments, result and what is said after it."""
    builder = EpisodeBuilder()
    builder.message("user", "please reserve the marble ballroom", "x")
    for number, (arguments, result, answer) in enumerate(turns):
        builder.turn("", [Call("look", {"for": arguments}, f"c{number}")], "x")
        builder.result(f"c{number}", result, "x")
        if answer:
            builder.turn(answer, [], "x")
    builder.turn(last, [], "x")
    return finish(builder, name, task="please reserve the marble ballroom")


def steps_of(embedded, *turns, **more):
    """The pollution of the calls of one such episode, in a crowd of orderly ones."""
    crowd = [
        talk(f"n{n}", (f"hall{n}", f"the marble ballroom has velvet{n} curtains{n}", f"it is velvet{n}"))
        for n in range(30)
    ]
    one = talk("one", *turns, **more)
    found = judged(embedded, [*crowd, one]).filter(pl.col("episode_id") == one.episode_id)
    kinds = [step.kind for step in one.steps]
    return [value for value, kind in zip(found["pollution"], kinds, strict=True) if kind == "tool"]


def test_a_stray_result_pollutes(embedded):
    assert steps_of(embedded, ("zoo", STRAY, None))[0] >= THRESHOLD


def test_a_result_that_is_used_later_does_not(embedded):
    assert steps_of(embedded, ("zoo", STRAY, "the pebbles it is")) == [0.0]
    assert steps_of(embedded, ("zoo", STRAY, None), ("waddling", "nothing", None))[0] == 0.0


def test_a_call_about_what_was_said_does_not(embedded):
    assert steps_of(embedded, ("zoo", f"{STRAY} ballroom", None))[0] >= THRESHOLD, (
        "every episode says ballroom"
    )
    both = steps_of(embedded, ("zoo", "otters float", "otters float"), ("otters", STRAY, None))
    assert both == [0.0, 0.0]


def test_what_says_little_or_failed_does_not(embedded):
    assert steps_of(embedded, ("zoo", "penguins", None)) == [0.0]
    assert steps_of(embedded, ("zoo", "12 13 14 15 16 17", None)) == [0.0]
    episode = talk("one", ("zoo", STRAY, None))
    failed = msgspec.structs.replace(
        episode,
        steps=[
            msgspec.structs.replace(s, result_status="error") if s.kind == "tool" else s
            for s in episode.steps
        ],
    )
    assert judged(embedded, [failed])["pollution"].to_list() == [0.0, 0.0]


def test_a_farewell_does_not(embedded):
    farewell = talk("one", last=STRAY)
    found = judged(embedded, [farewell, *(talk(f"n{n}") for n in range(20))])
    assert set(found["pollution"]) == {0.0}


def test_no_episode_gives_no_row(embedded):
    assert judged(embedded, []).height == 0
