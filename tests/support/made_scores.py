"""Small episodes and specs that the tests of scorers share."""

import json

from logforge.connectors.episodes.builder import Call, EpisodeBuilder
from logforge.core.frames import tables_of
from logforge.rewards.pipeline import parse_spec
from logforge.rewards.scorers.run import run_scorers
from support.made_episodes import finish


def dialogue(
    name="e",
    answer="It is 42.",
    result="found 42",
    reply="thanks",
    thought="let me look",
    first="let me see",
    **more,
):
    """A question, a call with its result, a user's word, an answer."""
    builder = EpisodeBuilder()
    builder.message("user", "how many?", "x:1")
    builder.turn(first, [Call("find", {"n": 1}, "c1")], "x:2", thought=thought)
    builder.result("c1", result, "x:3")
    builder.message("user", reply, "x:4")
    builder.turn(answer, [], "x:5")
    return finish(builder, name, task="how many?", **more)


def spec_of(scorer, **term):
    """A spec whose one term `t` has this scorer."""
    return parse_spec(json.dumps({"gamma": 1.0, "terms": {"t": {"scorer": scorer, **term}}}))


def scored(store, scorer, episodes, ready=None, **term):
    """(value, reason) of each scored step."""
    frame = run_scorers(spec_of(scorer, **term), tables_of(episodes), store.con, ready=ready)
    return [
        (value, reason)
        for value, reason in frame.sort("episode_id", "step").select("value", "reason").iter_rows()
    ]


def results(store):
    """The rows of the cache."""
    return store.con.sql("FROM scorer_results ORDER BY text_hash").fetchall()
