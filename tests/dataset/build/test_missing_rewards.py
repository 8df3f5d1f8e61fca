"""Logs without outcomes do not end in a dataset of the runs that were cut off."""

from __future__ import annotations

import json

import pytest

from logforge.dataset.build.pipeline import BuildConfig, build_dataset
from logforge.ingestion.pipeline import ingest
from logforge.schemas.errors import CheckFailed, UsageError

SPEC = "gamma: 1.0\nterms:\n  success: {when: success, value: 1, at: terminal}\n  step: {value: -0.1}\n"
CONFIG = BuildConfig(encoder="hashing", text_size=4)


def talk(number: int, *, cut: bool = False, **more: object) -> dict[str, object]:
    call = {
        "id": "c",
        "type": "function",
        "function": {"name": "look", "arguments": json.dumps({"n": number})},
    }
    messages = [
        {"role": "user", "content": f"Question {number}"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": f"{number}"},
        {"role": "assistant", "content": f"Answer {number}."},
    ]
    return {"id": f"t{number}", "messages": messages[:2] if cut else messages} | more


@pytest.fixture
def build(store, tmp_path):
    """Builds from these rows, with this spec."""
    (tmp_path / "reward.yaml").write_text(SPEC, "utf-8")

    def build(rows, **more):
        (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
        ingest(store, [tmp_path / "rows.jsonl"])
        return build_dataset(store, tmp_path / "reward.yaml", out=tmp_path / "out", config=CONFIG, **more)

    return build


NINE_OF_ELEVEN = [talk(n) for n in range(9)] + [talk(n, cut=True) for n in (9, 10)]


def test_a_build_stops_where_most_complete_episodes_have_no_reward(build, tmp_path):
    with pytest.raises(CheckFailed) as found:
        build(NINE_OF_ELEVEN)
    assert found.value.exit_code == 1
    assert (
        "the reward is missing in 9 of 9 complete episodes, which would be left out; 2 episodes that were cut off would stay"
        in str(found.value)
    )
    spec = tmp_path / "reward.yaml"
    for remedy in (
        f"make the term `optional: true` in {spec}, then `logforge build-dataset --reward {spec}`",
        "`logforge ingest LOGS --mapping MAPPING.yaml`",
        f"`logforge build-dataset --reward {spec} --max-missing 100%`",
    ):
        assert remedy in found.value.remedy
    assert not (tmp_path / "out" / "default").exists()


def test_it_builds_when_told_to(build):
    report = build(NINE_OF_ELEVEN, max_missing="100%")
    assert sum(report.left_out.values()) == 9


@pytest.mark.parametrize(("known", "stops"), [(19, True), (20, False), (40, False)])
def test_half_of_the_complete_episodes_may_be_lost(build, known, stops):
    rows = [talk(n, success=True) for n in range(known)] + [talk(n) for n in range(known, 40)]
    if stops:
        with pytest.raises(CheckFailed, match="21 of 40 complete episodes"):
            build(rows)
    else:
        assert sum(build(rows).left_out.values()) == 40 - known


def test_a_limit_is_a_number_or_a_share(build):
    with pytest.raises(UsageError, match="neither a number of episodes nor a share"):
        build(NINE_OF_ELEVEN, max_missing="most")
