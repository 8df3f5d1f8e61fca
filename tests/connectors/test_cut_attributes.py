"""OpenTelemetry traces whose ids are spelled differently, or whose messages a limit of length cut off."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logforge.connectors import get
from logforge.connectors.records import Source
from logforge.schemas import Episode, Reading, Reject

TRACE, SPANS = "0af7651916cd43dd8448eb211c80319c", ("b7ad6b7169203331", "00f067aa0ba902b7")
ASKED = [{"role": "user", "parts": [{"type": "text", "content": "Weather in Riga?"}]}]
SAID = [
    {"role": "assistant", "parts": [{"type": "text", "content": "Rain [all] day"}], "finish_reason": "stop"}
]


def span(own: str, trace: str = TRACE, parent: str | None = None, **texts: str) -> dict[str, Any]:
    told = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
    told |= {f"gen_ai.{key}.messages": text for key, text in texts.items()}
    attributes = [{"key": key, "value": {"stringValue": value}} for key, value in told.items()]
    row = {
        "traceId": trace,
        "spanId": own,
        "parentSpanId": parent,
        "name": "chat m",
        "attributes": attributes,
    }
    return row | {"startTimeUnixNano": "1700000000000000000", "endTimeUnixNano": "1700000001000000000"}


def read(path: Path, *spans: dict[str, Any]) -> list[Reading]:
    path.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}))
    return list(get("otlp").read(Source(path, path.name)))


def in_base64(hexed: str) -> str:
    return base64.b64encode(bytes.fromhex(hexed)).decode()


@pytest.mark.parametrize("spelled", [str.upper, in_base64, "0x{}".format])
def test_ids_are_one_however_they_are_spelled(tmp_path, spelled):
    texts = {"input": json.dumps(ASKED), "output": json.dumps(SAID)}
    path = tmp_path / "trace.json"
    (plain,) = read(path, span(SPANS[0], **texts))
    (other,) = read(path, span(spelled(SPANS[0]), spelled(TRACE), **texts))
    assert isinstance(plain, Episode)
    assert isinstance(other, Episode)
    assert plain.episode_id == other.episode_id
    both = read(
        path, span(SPANS[0], **texts), span(spelled(SPANS[1]), spelled(TRACE), spelled(SPANS[0]), **texts)
    )
    assert [item.native_id for item in both if isinstance(item, Episode)] == [plain.native_id]


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(10, len(json.dumps(SAID)) - 1), st.sampled_from(["input", "output"]))
def test_what_is_cut_off_is_told_and_never_said(tmp_path, length, cut):
    texts = {"input": json.dumps(ASKED), "output": json.dumps(SAID)}
    whole, texts[cut] = texts[cut], texts[cut][: min(length, len(texts[cut]) - 1)]
    found = read(tmp_path / "trace.json", span(SPANS[0], **texts))
    assert "cut_attribute" in {item.rule for item in found if isinstance(item, Reject)}
    episodes = [item for item in found if isinstance(item, Episode)]
    said = {message.content for episode in episodes for message in episode.messages}
    assert said <= {"Weather in Riga?", "Rain [all] day"}
    assert bool(episodes) == (cut == "input")  # the agent's decision lay in its answer
    assert whole not in said


def test_langfuse_s_words_in_place_of_a_long_text_are_nobody_s(tmp_path):
    told = "<truncated due to size exceeding limit>"
    found = read(tmp_path / "trace.json", span(SPANS[0], input=json.dumps(ASKED), output=told))
    assert not [item for item in found if isinstance(item, Episode)]
    assert "cut_attribute" in {item.rule for item in found if isinstance(item, Reject)}


def test_an_answer_in_json_is_an_answer(tmp_path):
    for said in ('[{"city": "Riga"}', '{"role": "user"', "[1, 2", '[{"city": "Riga"}]'):
        found = read(tmp_path / "trace.json", span(SPANS[0], input=json.dumps(ASKED), output=said))
        assert "cut_attribute" not in {item.rule for item in found if isinstance(item, Reject)}
