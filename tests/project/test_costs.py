"""What was paid, where a log says so: of a model call on its message, of a run on its episode."""

from __future__ import annotations

import json

import pytest

from logforge.connectors.detection import get
from logforge.connectors.episodes.builder import EpisodeBuilder
from logforge.connectors.episodes.content import cost_or_none
from logforge.connectors.records.base import Source
from logforge.schemas.episode import Episode
from support.made_episodes import finish
from support.places import DATA, SAMPLES

FIXTURES = DATA / "connectors"

LOGGED = {
    "atif/subagents.json": ("atif", 0.002, [0.002]),
    "claude_cost.jsonl": ("claude_code", 0.0138, [0.0123, 0.0015]),
    "langsmith_runs/agent.jsonl": ("langsmith_runs", 0.00046, [0.00012, 0.00034]),
    "mini_swe_agent/toolcalls.traj.json": ("mini_swe_agent", 0.05, []),
    "openai_stream/cases.jsonl": ("openai_stream", 0.0000421, [0.0000421]),
    "otlp/openinference.jsonl": ("otlp", 0.004, [0.002, 0.002]),
    "swe.traj": ("swe_agent_traj", 0.2, []),
    "tau2_bench/cases.json": ("tau2_bench", 0.01234, [0.00345]),
}
"""Fixtures with a price: the connector, and the first such episode's cost and those of its messages."""


def read(path, name):
    return [item for item in get(name).read(Source(path, "log")) if isinstance(item, Episode)]


@pytest.mark.parametrize("file", LOGGED)
def test_costs_are_taken_as_logged(file):
    name, whole, single = LOGGED[file]
    first = next(episode for episode in read(FIXTURES / file, name) if episode.cost_usd is not None)
    assert first.cost_usd == whole
    assert [m.cost_usd for m in first.messages if m.cost_usd is not None] == single


def test_openhands_tells_what_its_run_cost(tmp_path):
    row = {
        "instance_id": "a__b-1",
        "metrics": {"accumulated_cost": 0.3, "costs": [{"cost": 0.1}, {"cost": 0.2}]},
    }
    event = {
        "id": 0,
        "source": "agent",
        "action": "finish",
        "args": {"thought": "done"},
        "timestamp": "2025-01-01",
    }
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps(row | {"instruction": "go", "history": [event]}), "utf-8")
    assert [episode.cost_usd for episode in read(path, "openhands_output")] == [0.3]


def test_what_nobody_asked_a_model_for_cost_nothing_that_is_known():
    """Runs of people and replays say 0: no model was asked."""
    path = SAMPLES / "swe_agent_traj" / "human_thought_humanevalfix-python-0.traj"
    assert json.loads(path.read_text("utf-8"))["info"]["model_stats"]["instance_cost"] == 0
    assert [episode.cost_usd for episode in read(path, "swe_agent_traj")] == [None]


def test_the_runs_own_figure_wins_over_the_sum():
    def run(**more):
        builder = EpisodeBuilder()
        for cost in (0.1, 0.2, None):
            builder.turn("ok", [], "x", cost_usd=cost)
        return finish(builder, **more)

    assert run().cost_usd == 0.3
    assert run(cost_usd=0.5).cost_usd == 0.5
    assert run(cost_usd=None).cost_usd == 0.3


@pytest.mark.parametrize(
    ("value", "cost"),
    [
        (0, 0.0),
        (1, 1.0),
        ("0.25", 0.25),
        (-1, None),
        ("x", None),
        (True, None),
        (None, None),
        ("nan", None),
        ("inf", None),
    ],
)
def test_a_cost_is_a_finite_number_that_is_not_negative(value, cost):
    assert cost_or_none(value) == cost
