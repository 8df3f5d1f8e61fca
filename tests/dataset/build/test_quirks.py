"""Cases from public bug reports, through the real ingest: what the store holds is what each case asks for.

The inputs are invented; each case's `expect.json` says what is right. Counts are mapped to the store's tables as docs/formats.md says.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from logforge.dataset.build.pipeline import BuildConfig, build_dataset
from logforge.ingestion.pipeline import ingest
from logforge.schemas.episode import Episode, Step
from logforge.shards.reader import load_shards
from logforge.store.store import Store
from support.places import DATA, SHARED
from support.stored import assert_conserved, content

CASES = sorted((DATA / "quirks").iterdir())
A_STEP = "gamma: 1.0\nterms:\n  step: {value: -1}\n"
SPECS = {
    "003": A_STEP,
    "008": A_STEP,
    "010": A_STEP,
    "011": "gamma: 1.0\nterms:\n  logged: {value: logged_reward}\n",
    "012": A_STEP,
    "019": A_STEP,
    "069": A_STEP,
    "083": A_STEP,
}
"""Reward specs of the cases that are built into a dataset."""
OPEN: dict[str, str] = {}
"""Cases that are not right yet, and why."""
DATASET = BuildConfig(encoder="hashing", text_size=8)


def named(case: Path) -> Any:
    number = case.name[:3]
    marks = [pytest.mark.xfail(strict=True, reason=OPEN[number])] if number in OPEN else []
    return pytest.param(case, id=case.name, marks=marks)


@pytest.fixture
def expected(case: Path) -> dict[str, Any]:
    return json.loads((case / "expect.json").read_text("utf-8"))


@pytest.fixture
def filled(case: Path, store: Store) -> Store:
    """The case's folder, ingested as a user does it: twice, and the second time changes nothing."""
    report = ingest(store, [case / "input"])
    assert report.exit_code() == 0
    assert_conserved(store)
    before = content(store)
    again = ingest(store, [case / "input"])
    assert again.read == 0
    assert content(store) == before
    return store


def number(store: Store, query: str) -> int:
    return store.con.sql(f"SELECT count(*) FROM {query}").fetchall()[0][0]


every_case = pytest.mark.parametrize("case", [named(case) for case in CASES])
sound_cases = pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])


@sound_cases
def test_counts(filled, expected):
    counts = {
        "episodes": number(filled, "episodes"),
        "messages": number(filled, "messages WHERE role <> 'tool'"),
        "tool_calls": number(filled, "steps WHERE kind = 'tool'"),
        "tool_results": number(filled, "steps WHERE result_position IS NOT NULL"),
        "unanswered_calls": number(filled, "steps WHERE kind = 'tool' AND result_position IS NULL"),
        "quarantined": number(filled, "quarantine"),
    }
    for name, count in counts.items():
        wanted = expected.get(name)
        if wanted is not None:
            low, high = wanted if isinstance(wanted, list) else (wanted, wanted)
            assert low <= count <= high, (name, count)
    if "unanswered_calls" not in expected and isinstance(expected["tool_calls"], int):
        assert counts["unanswered_calls"] == expected["tool_calls"] - expected["tool_results"]
    if "respond" in expected:
        assert number(filled, "steps WHERE kind <> 'tool'") <= expected["respond"]
    duplicates = filled.con.sql("SELECT sum(duplicates) FROM sources").fetchall()[0][0]
    assert duplicates == expected.get("duplicates_skipped", 0)


REASONS = {
    "malformed_record": {"malformed_record"},
    "orphan_result": {"orphan_result"},
    "bad_arguments": set(),
    "non_finite": {"unreadable_outcome"},
    "missing_reward": {"unreadable_outcome"},
    "too_short": set(),
}
"""The rules that set something aside for a reason class; none where the record is kept and marked instead."""


@sound_cases
def test_what_is_set_aside_has_its_place_and_its_reason(filled, expected):
    found = filled.con.sql("SELECT locator, rule, reason FROM quarantine").fetchall()
    allowed = set().union(*(REASONS[name] for name in expected.get("reason_classes", [])))
    assert {rule for _, rule, _ in found} <= allowed
    for place in expected.get("quarantine_location", []):
        wanted = f"{place['file']}:{place['line']}"
        assert any(locator.endswith(wanted) and reason for locator, _, reason in found)


@sound_cases
def test_facts(filled, expected):
    episodes = list(filled.episodes())
    for fact in expected.get("values", []):
        assert_fact(fact, episodes)
    for name in expected.get("must_not_be_respond", []):
        steps = [e.steps for e in episodes if e.native_id == name]
        assert all(found and found[0].kind == "tool" for found in steps), name
    for text in expected.get("must_not_appear_as_own_message", []):
        assert text not in {m.content for e in episodes for m in e.messages}


def assert_fact(fact: dict[str, Any], found: list[Episode]) -> None:
    found = [e for e in found if "episode" not in fact or e.native_id == fact["episode"]]
    assert found, fact
    if "message_text" in fact:
        said = {(m.role, m.content) for e in found for m in e.messages}
        wanted = fact["message_text"]
        assert any(content == wanted and role in (fact.get("role") or role) for role, content in said), fact
        return
    if "output_tokens_total" in fact:
        assert sum(m.tokens_out or 0 for e in found for m in e.messages) == fact["output_tokens_total"]
        return
    steps = [
        step
        for episode in found
        for step in episode.steps
        if step.kind == "tool" and fact.get("call") in (None, step.tool_call_id)
    ]
    if "nth_call" in fact:
        steps = [steps[fact["nth_call"] - 1]]
    agreeing = [step for step in steps if agrees(step, fact)]
    assert agreeing, fact
    if "call" in fact and "episode" in fact:
        assert agreeing == steps, fact


def agrees(step: Step, fact: dict[str, Any]) -> bool:
    arguments = json.loads(step.arguments) if step.arguments_status != "invalid" else None
    texts = fact.get("result_text_contains", [])
    checks = {
        "name": lambda wanted: step.action == wanted,
        "arguments": lambda wanted: arguments == wanted,
        "arguments_must_not_equal": lambda wanted: arguments != wanted and step.arguments_status != "ok",
        "arguments_text_contains": lambda wanted: wanted in step.arguments,
        "result_text": lambda wanted: step.result == wanted,
        "result_text_contains": lambda wanted: all(
            text in (step.result or "") for text in ([texts] if isinstance(texts, str) else texts)
        ),
        "result_is_error": lambda wanted: (step.result_status in ("error", "timeout")) == wanted,
        "result_status": lambda wanted: step.result_status == wanted,
        "result_has_non_text": lambda wanted: ("[image]" in (step.result or "")) == wanted,
        "answered": lambda wanted: (step.result_position is not None) == wanted,
    }
    unknown = set(fact) - set(checks) - {"episode", "call", "nth_call"}
    assert not unknown, unknown
    return all(check(fact[key]) for key, check in checks.items() if key in fact)


@every_case
def test_what_must_and_must_not_be_in_the_store(filled, expected, tmp_path):
    filled.con.execute("CHECKPOINT")
    rows = "\n".join(
        str(row)
        for table in ("episodes", "messages", "steps", "quarantine")
        for row in filled.con.sql(f"SELECT * FROM {table}").fetchall()
    )
    for text in expected.get("must_still_appear", []):
        assert text in rows
    for text in expected.get("must_not_appear_in_output", []):
        assert text not in rows
        assert text.encode() not in filled.path.read_bytes()


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case.name) for case in CASES if case.name[:3] in SPECS]
)
def test_facts_of_the_dataset(filled, case, expected, tmp_path):
    wanted = expected.get("dataset", {})
    spec = tmp_path / "reward.yaml"
    spec.write_text(SPECS[case.name[:3]])
    build_dataset(filled, spec, name="d", out=tmp_path / "out", config=DATASET)
    rows = filled.con.sql("SELECT * FROM transitions WHERE dataset = 'd'").pl()
    for name, column in (("terminals", "terminal"), ("timeouts", "timeout")):
        if name in wanted:
            assert_within(int(rows[column].sum()), wanted[name])
    if "transitions" in wanted:
        assert_within(len(rows), wanted["transitions"])
    returns = filled.con.sql(
        "SELECT native_id, sum(reward) FROM transitions JOIN episodes USING (episode_id) GROUP BY episode_id, native_id"
    ).fetchall()
    for name, value in returns:
        assert np.isfinite(value)
        assert value == wanted.get("return_by_episode", {}).get(name, value), name
    assert len(returns) == number(filled, "episodes")
    if "distinct_tools" in wanted:
        manifest = load_shards(tmp_path / "out" / "d").manifest
        actions = list(manifest.actions)
        assert sorted(set(actions) - {"respond", "clarify", "<invalid>"}) == wanted["distinct_tools"]
        assert set(rows["action_id"].to_list()) <= set(range(len(actions)))
        assert all(actions[number] == name for number, name in rows["action_id", "action"].rows())


def assert_within(count: int, wanted: Any) -> None:
    low, high = wanted if isinstance(wanted, list) else (wanted, wanted)
    assert low <= count <= high


@pytest.mark.skipif(not (SHARED / "quirks").is_dir(), reason="the shared quirk cases are not here")
def test_the_copies_are_those_of_the_reports():
    reported = sorted(path.name for path in (SHARED / "quirks").iterdir() if path.is_dir())
    assert [case.name for case in CASES] == reported
    for case in CASES:
        for path in (path for path in case.rglob("*") if path.is_file()):
            other = SHARED / "quirks" / path.relative_to(case.parent)
            assert path.read_bytes() == other.read_bytes()
