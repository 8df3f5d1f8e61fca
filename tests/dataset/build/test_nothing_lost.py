"""No reward of a log is lost on its way into the shards: per-step rewards and final scores, kept apart, each at its place.

The chain is the real one: a log in a real format → connector → store → reward spec → shards. The five ways in which rewards
get lost elsewhere have a test each.
"""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from logforge.dataset.build.pipeline import BuildConfig, build_dataset
from logforge.ingestion.pipeline import ingest
from logforge.rewards.pipeline import parse_spec
from logforge.schemas.errors import CheckFailed
from logforge.shards.reader import load_shards
from logforge.store.store import Store
from support.thoroughness import enough

BOTH = """
gamma: 1.0
terms:
  final: {value: score, at: end, optional: true}
  step: {value: logged_reward, optional: true}
"""
ALL_TRAIN = BuildConfig(encoder="hashing", text_size=4, fractions=(1.0, 0.0, 0.0))


class Run(NamedTuple):
    """What an episode's log says: the reward of each of its calls (None: none is logged) and its final score."""

    rewards: list[float | None]
    score: float | None


class Found(NamedTuple):
    """What came out: from the store by step, and from the shards in all."""

    rewards: list[list[float | None]]
    scores: list[float | None]
    step_sum: float
    final_sum: float
    shard_sum: float


# -- the formats ------------------------------------------------------------------------------------------------------


def step_rows(runs: list[Run]) -> list[dict[str, Any]]:
    rows = []
    for number, run in enumerate(runs):
        for step, reward in enumerate(run.rewards):
            last = step == len(run.rewards) - 1
            row = {
                "episode_id": f"e{number}",
                "step": step,
                "observation": f"saw {number} {step}",
                "action": f"tool_{step % 3}",
            }
            row |= {"reward": reward, "terminated": last, "score": run.score if last else None}
            rows.append(row)
    return rows


def step_lines(runs: list[Run]) -> dict[str, str]:
    return {"steps.jsonl": lines(step_rows(runs))}


def step_csv(runs: list[Run]) -> dict[str, str]:
    text, rows = io.StringIO(), step_rows(runs)
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows({k: "" if v is None else v for k, v in row.items()} for row in rows)
    return {"steps.csv": text.getvalue()}


def trajectories(runs: list[Run]) -> dict[str, str]:
    """ATIF: the reward of a step in its metrics, that of the run in `extra`."""
    files = {}
    for number, run in enumerate(runs):
        steps: list[dict[str, Any]] = [{"step_id": 1, "source": "user", "message": f"do {number}"}]
        for step, reward in enumerate(run.rewards):
            call = {"tool_call_id": f"c{step}", "function_name": "act", "arguments": {"n": step}}
            answer = {"results": [{"source_call_id": f"c{step}", "content": f"done {step}"}]}
            metrics = {"prompt_tokens": 5} | ({} if reward is None else {"reward": reward})
            steps.append(
                {
                    "step_id": step + 2,
                    "source": "agent",
                    "message": "",
                    "tool_calls": [call],
                    "observation": answer,
                    "metrics": metrics,
                }
            )
        extra = {} if run.score is None else {"reward": run.score}
        document = {
            "schema_version": "ATIF-v1.4",
            "session_id": f"s{number}",
            "agent": {"name": "a", "version": "1"},
            "steps": steps,
        }
        files[f"run{number}/trajectory.json"] = json.dumps(document | {"extra": extra})
    return files


def spans(runs: list[Run], *, rename: bool = False, skew: float = 0.0) -> dict[str, str]:
    """OpenTelemetry: a model call for each decision, judged by an evaluation event; the agent's span bears the run's score."""
    rows: list[dict[str, Any]] = []
    chance = random.Random(1)
    for number, run in enumerate(runs):
        trace = f"{number + 1:032x}"
        agent = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": "desk",
            "gen_ai.conversation.id": f"talk-{number}",
        }
        rows.append(span(trace, 1, None, 0, len(run.rewards) + 1, agent, "invoke_agent desk", run.score))
        heard: list[Any] = [{"role": "user", "parts": [{"type": "text", "content": f"do {number}"}]}]
        for step, reward in enumerate(run.rewards):
            call = {"type": "tool_call", "id": f"c{number}-{step}", "name": "act", "arguments": {"n": step}}
            reply = {"role": "assistant", "parts": [call], "finish_reason": "tool_call"}
            said = {"gen_ai.operation.name": "chat", "gen_ai.conversation.id": f"talk-{number}"}
            said |= {
                "gen_ai.input.messages": json.dumps(heard),
                "gen_ai.output.messages": json.dumps([reply]),
            }
            name = f"step {chance.random()}" if rename else "chat m"
            late = skew if step % 2 else 0.0
            rows.append(span(trace, step + 2, 1, step + late, step + late + 0.5, said, name, reward))
            answer = {"type": "tool_call_response", "id": f"c{number}-{step}", "response": f"done {step}"}
            heard = [*heard, {"role": "assistant", "parts": [call]}, {"role": "tool", "parts": [answer]}]
    chance.shuffle(rows)
    return {"spans.jsonl": lines(rows)}


def span(
    trace: str,
    number: int,
    parent: int | None,
    start: float,
    end: float,
    said: dict[str, Any],
    name: str,
    score: float | None,
) -> dict[str, Any]:
    begun = 1_772_000_000_000_000_000
    event = {"gen_ai.evaluation.name": "reward", "gen_ai.evaluation.score.value": score}
    return {
        "traceId": trace,
        "spanId": f"{number:016x}",
        "parentSpanId": None if parent is None else f"{parent:016x}",
        "name": name,
        "startTimeUnixNano": str(begun + int(start * 1e9)),
        "endTimeUnixNano": str(begun + int(end * 1e9)),
        "attributes": said,
        "events": [] if score is None else [{"name": "gen_ai.evaluation.result", "attributes": event}],
    }


def openinference(runs: list[Run]) -> dict[str, str]:
    """The same with OpenInference's attributes: annotations on the spans."""
    rows = []
    for number, run in enumerate(runs):
        trace = f"{number + 1:032x}"
        agent = {"openinference.span.kind": "AGENT", "session.id": f"talk-{number}", "agent.name": "desk"}
        rows.append(annotated(span(trace, 1, None, 0, len(run.rewards) + 1, agent, "desk", None), run.score))
        heard = [("user", {"content": f"do {number}"})]
        for step, reward in enumerate(run.rewards):
            call = "message.tool_calls.0.tool_call"
            called = {
                f"{call}.id": f"c{step}",
                f"{call}.function.name": "act",
                f"{call}.function.arguments": json.dumps({"n": step}),
            }
            said: dict[str, Any] = {
                "openinference.span.kind": "LLM",
                "session.id": f"talk-{number}",
                "llm.model_name": "m",
            }
            for place, (role, content) in enumerate(heard):
                prefix = f"llm.input_messages.{place}.message"
                said[f"{prefix}.role"] = role
                said |= {f"{prefix}.{k.removeprefix('message.')}": v for k, v in content.items()}
            said["llm.output_messages.0.message.role"] = "assistant"
            said |= {f"llm.output_messages.0.{k}": v for k, v in called.items()}
            rows.append(annotated(span(trace, step + 2, 1, step, step + 0.5, said, "llm", None), reward))
            heard += [
                ("assistant", called),
                ("tool", {"content": f"done {step}", "tool_call_id": f"c{step}"}),
            ]
    return {"spans.jsonl": lines(rows)}


def annotated(row: dict[str, Any], score: float | None) -> dict[str, Any]:
    if score is not None:
        row["attributes"] |= {
            "annotations.0.annotation.name": "reward",
            "annotations.0.annotation.score": score,
        }
    return row


def langfuse(runs: list[Run], *, skew: str = "") -> dict[str, str]:
    """An export: observations and scores in files of their own; a score names the observation or only the trace."""
    observations, scores, traces = [], [], []
    for number, run in enumerate(runs):
        trace = f"{number + 1:032x}"
        traces.append(
            {
                "id": trace,
                "timestamp": "2026-05-28 20:00:00",
                "name": "run",
                "session_id": None,
                "input": f"do {number}",
                "output": "x",
                "public": False,
                "bookmarked": False,
            }
        )
        heard: list[Any] = [{"role": "user", "content": f"do {number}"}]
        for step, reward in enumerate(run.rewards):
            call = {
                "id": f"c{step}",
                "type": "function",
                "function": {"name": "act", "arguments": json.dumps({"n": step})},
            }
            reply = {"role": "assistant", "content": None, "tool_calls": [call]}
            at = f"2026-05-28 20:{number:02}:{step:02}"
            row = {
                "id": f"o{number}-{step}",
                "trace_id": trace,
                "type": "GENERATION",
                "parent_observation_id": "",
            }
            row |= {
                "start_time": f"{at}.000000",
                "end_time": f"{at}.500000",
                "name": f"llm {step}",
                "metadata": {},
                "level": "DEFAULT",
            }
            row |= {
                "input": json.dumps(heard),
                "output": json.dumps(reply),
                "provided_model_name": "m",
                "tool_calls": [json.dumps(call)],
            }
            observations.append(row)
            if reward is not None:
                scores.append(scored(f"s{number}-{step}", trace, f"o{number}-{step}", reward, skew))
            heard = [*heard, reply, {"role": "tool", "tool_call_id": f"c{step}", "content": f"done {step}"}]
        if run.score is not None:
            scores.append(scored(f"s{number}", trace, None, run.score, skew))
    files = {
        "observations_v2/2026-05-28-20.jsonl": lines(observations),
        "traces/2026-05-28-20.jsonl": lines(traces),
    }
    return files | ({"scores/2026-05-28-22.jsonl": lines(scores)} if scores else {})


def scored(id: str, trace: str, observation: str | None, value: float, skew: str) -> dict[str, Any]:
    when = skew or "2026-05-28 21:00:00.000000"
    row = {"id": id, "timestamp": when, "trace_id": trace, "observation_id": observation, "session_id": None}
    return row | {
        "dataset_run_id": None,
        "name": "reward",
        "value": value,
        "source": "API",
        "data_type": "NUMERIC",
        "string_value": None,
    }


def tau_bench(runs: list[Run]) -> dict[str, str]:
    """tau-bench has a final reward and no others."""
    rows = []
    for number, run in enumerate(runs):
        traj: list[dict[str, Any]] = [{"role": "user", "content": f"do {number}"}]
        for step in range(len(run.rewards)):
            call = {
                "id": f"c{step}",
                "type": "function",
                "function": {"name": "act", "arguments": json.dumps({"n": step})},
            }
            traj.append({"role": "assistant", "content": None, "tool_calls": [call]})
            traj.append({"role": "tool", "tool_call_id": f"c{step}", "content": f"done {step}"})
        info = {
            "task": {"instruction": f"do {number}"},
            "reward_info": None if run.score is None else {"reward": run.score},
        }
        rows.append(
            {
                "task_id": number,
                "trial": 0,
                "reward": 0.0 if run.score is None else run.score,
                "info": info,
                "traj": traj,
            }
        )
    return {"results.json": json.dumps(rows)}


def lines(rows: list[Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


FORMATS: dict[str, Callable[[list[Run]], dict[str, str]]] = {
    "step lines": step_lines,
    "step csv": step_csv,
    "atif": trajectories,
    "otlp": spans,
    "openinference": openinference,
    "langfuse": langfuse,
    "tau_bench": tau_bench,
}


# -- the chain --------------------------------------------------------------------------------------------------------


def through(folder: Path, files: dict[str, str], spec: str = BOTH) -> Found:
    """Write the log, ingest it, build a dataset, and say what is in the store and in the shards."""
    for name, text in files.items():
        path = folder / "logs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    with Store(folder / "s.duckdb") as store:
        ingest(store, [folder / "logs"])
        build_dataset(store, parse_spec(spec), out=folder, config=ALL_TRAIN)
        steps = store.con.sql(
            "SELECT e.episode_id, e.score, list(s.logged_reward ORDER BY s.step) FROM episodes e JOIN steps s USING (episode_id)"
            " GROUP BY ALL"
        ).fetchall()
        terms = dict(
            store.con.sql(
                "SELECT t.key, sum(t.value) FROM (SELECT unnest(map_entries(reward_terms)) AS t FROM transitions) GROUP BY 1"
            ).fetchall()
        )
    shard = load_shards(folder / "default", "train")
    total = float(shard.rewards.astype(np.float64).sum())
    return Found(
        [row[2] for row in steps],
        [row[1] for row in steps],
        terms.get("step", 0.0),
        terms.get("final", 0.0),
        total,
    )


def as_meant(form: str, run: Run) -> Run:
    """tau-bench has no rewards of steps; what judges the only call of a trace, and nothing else does, judges the run."""
    if form == "tau_bench":
        return Run([None] * len(run.rewards), run.score)
    if form in ("otlp", "openinference", "langfuse") and len(run.rewards) == 1 and run.score is None:
        return Run([None], run.rewards[0])
    return run


numbers = st.floats(-100, 100).map(lambda x: round(x, 3))
logged = st.lists(
    st.builds(Run, st.lists(st.none() | numbers, min_size=1, max_size=5), st.none() | numbers),
    min_size=1,
    max_size=4,
)


@pytest.mark.parametrize("form", FORMATS)
@settings(
    max_examples=enough(2, 12),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)
@given(runs=logged)
def test_sum_in_is_sum_out(form, runs, tmp_path_factory):
    found = through(tmp_path_factory.mktemp("lost"), FORMATS[form](runs))
    runs = [as_meant(form, run) for run in runs]
    assert sorted(map(repr, found.rewards)) == sorted(repr(run.rewards) for run in runs)
    assert sorted(map(repr, found.scores)) == sorted(repr(run.score) for run in runs)
    step_sum = sum(r for run in runs for r in run.rewards if r is not None)
    final_sum = sum(run.score for run in runs if run.score is not None)
    assert found.step_sum == pytest.approx(step_sum, abs=1e-9)
    assert found.final_sum == pytest.approx(final_sum, abs=1e-9)
    # a float32 holds 24 bits: half a unit in the last place for each reward, of at most 200 here
    steps = sum(len(run.rewards) for run in runs)
    assert found.shard_sum == pytest.approx(step_sum + final_sum, abs=steps * 200 * 2**-24)


# -- the five ways ----------------------------------------------------------------------------------------------------

JUDGED = [form for form in FORMATS if form != "tau_bench"]
ONE = Run([0.25, None, -1.0, 0.0], 7.5)


@pytest.mark.parametrize("form", JUDGED)
def test_the_final_reward_stays_beside_step_rewards(form, tmp_path):
    found = through(tmp_path, FORMATS[form]([ONE]))
    assert found.scores == [7.5]
    assert (found.step_sum, found.final_sum) == (-0.75, 7.5)


@pytest.mark.parametrize("form", JUDGED)
def test_a_reward_is_credited_to_its_own_step(form, tmp_path):
    runs = [Run([3.5 + place if step == place else None for step in range(4)], None) for place in range(4)]
    found = through(tmp_path, FORMATS[form](runs)).rewards
    assert sorted(map(repr, found)) == sorted(repr(run.rewards) for run in runs)


def test_a_renamed_span_keeps_its_reward(tmp_path):
    assert through(tmp_path, spans([ONE], rename=True)).rewards == [ONE.rewards]


@pytest.mark.parametrize("skew", [-3600.0, -0.2, 0.2, 3600.0])
def test_a_skewed_clock_moves_no_reward(skew, tmp_path):
    """Every second call comes from a machine whose clock is off; prompts and parents say what belongs where."""
    found = through(tmp_path, spans([ONE], skew=skew))
    assert found.scores == [7.5]
    assert found.rewards == [ONE.rewards]


@pytest.mark.parametrize(
    "when", ["1970-01-01 00:00:00.000000", "2026-05-28 20:00:00.100000", "2999-01-01 00:00:00.000000"]
)
def test_a_score_is_found_whenever_it_was_given(when, tmp_path):
    found = through(tmp_path, langfuse([ONE], skew=when))
    assert (found.rewards, found.scores) == ([ONE.rewards], [7.5])


@pytest.mark.parametrize("form", FORMATS)
def test_a_missing_reward_stays_null_and_is_no_zero(form, tmp_path):
    """Asked for without `optional`, it makes the episode unusable, with its reason; 0 that is logged is 0."""
    none, zero = Run([None, None], None), Run([0.0, 0.0], 0.0)
    required = BOTH.replace(", optional: true", "")
    with pytest.raises(CheckFailed, match="no episode can be used") as refused:
        through(tmp_path / "none", FORMATS[form]([none]), required)
    assert "missing" in str(refused.value.as_dict())
    if form != "tau_bench":
        found = through(tmp_path / "zero", FORMATS[form]([zero]), required)
        assert (found.rewards, found.scores, found.shard_sum) == ([[0.0, 0.0]], [0.0], 0.0)


# -- what stood in the way --------------------------------------------------------------------------------------------


def test_what_a_turn_of_several_calls_earned_counts_once(tmp_path):
    files = trajectories([Run([2.5], None)])
    document = json.loads(files["run0/trajectory.json"])
    calls = document["steps"][1]["tool_calls"]
    calls.append({**calls[0], "tool_call_id": "other", "arguments": {"n": 9}})
    found = through(tmp_path, {"run0/trajectory.json": json.dumps(document)})
    assert found.rewards == [[None, 2.5]]


def test_a_reward_without_a_decision_is_set_aside_by_name(tmp_path):
    document = json.loads(trajectories([Run([1.0], None)])["run0/trajectory.json"])
    document["steps"].append({"step_id": 3, "source": "agent", "message": "", "metrics": {"reward": 4.0}})
    through(tmp_path, {"run0/trajectory.json": json.dumps(document)})
    with Store(tmp_path / "s.duckdb", read_only=True) as store:
        rows = store.con.sql("SELECT rule, reason, locator FROM quarantine").fetchall()
    assert [(rule, reason) for rule, reason, _ in rows] == [("bad_reward", "reward without an action")]
    assert rows[0][2].endswith("/steps/2/metrics/reward")
