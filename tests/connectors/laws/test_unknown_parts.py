"""What is not understood makes no decision: a key under another name, a level deeper, or a block that nobody knows.

Each change is made once at each kind of place of a format's logs. Whatever the change, no utterance becomes a decision that was
none before (a call whose key nobody reads is no answer), and what was said is either kept somewhere or its loss leaves a trace.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from logforge.connectors.detection import registry
from support.places import DATA
from support.strange_parts import account, changed, changes, written
from support.thoroughness import enough

SHAPED = (
    "adk_evalset adk_session agentdojo anthropic_managed atif cline codex_rollout gemini_cli inspect_json langfuse llamafactory_v1 "
    "message_list mini_swe_agent openai_requests openai_stream openhands_events openhands_output rated_chat sharegpt_tools tau2_bench trl "
    "autogen bedrock_converse chatgpt claude_ai copilot_cli gemini_contents glaive goose har langchain mlflow openai_items openai_responses "
    "opencode pydantic_ai smolagents vercel_ai verifiers verifiers_traces verl xlam art"
).split()
"""The formats whose records are made of messages."""
MOST = enough(80, 400)
OTHERS_SAY_SO = {
    "adk_session": r"events\.\*\.partial$",
    "gemini_cli": r"\$rewindTo$",
    "openai_responses": r"previous_response_id$|call_id$",
    "opencode": r"info\.summary$",
}
"""Keys that take back or complete what other records say: without them, those stand as they are."""
UNTOLD = {
    "adk_evalset": r"final_response$|intermediate_data$|tool_responses|invocation_events",
    "adk_session": r"function_?[rR]esponse",
    "agentdojo": r"messages\.\*\.content\.\*\.text",
    "anthropic_managed": r"\*\.\*\.agent$|\.events\.|content\.\*\.text",
    "atif": r"observation|tool_calls|subagent_trajectories|steps\.\*\.message$",
    "gemini_cli": r"thoughts|\$set|result|messages\.\*\.content$",
    "inspect_json": r"plan|critic|\.result$|\.error|attachments",
    "llamafactory_v1": r"referee",
    "mini_swe_agent": r"output",
    "openhands_events": r"tool_call_metadata",
    "openhands_output": r"tool_call_metadata",
    "rated_chat": r"moderator",
    "tau2_bench": r"tool_calls|tool_messages|narrator",
    "trl": r"prompt\.\*\.tool_calls",
    "art": r"additional_histories",
    "bedrock_converse": r"toolResult",
    "chatgpt": r"message\.content|attachments",
    "claude_ai": r"summaries|content",
    "copilot_cli": r"data\.(?:content|error|result)",
    "gemini_contents": r"function_?[rR]esponse",
    "goose": r"toolResult",
    "langchain": r"content|outputs",
    "openai_items": r"summary|output|error",
    "openai_responses": r"response\.output",
    "opencode": r"parts",
    "pydantic_ai": r"parts",
    "smolagents": r"model_input_messages|observations|content|error",
    "vercel_ai": r"output|content|errorText",
}
"""Places where words can go without a trace: what a tool gave, what the log says of itself, messages that are set aside anyhow."""


def records_of(path: Path) -> tuple[list[Any], bool] | None:
    """A log's records, and whether it is JSON lines."""
    text = path.read_text("utf-8", "replace")
    try:
        return [json.loads(text)], False
    except ValueError:
        pass
    try:
        return [json.loads(line) for line in text.splitlines() if line.strip()][:40], True
    except ValueError:
        return None


def logs() -> list[Any]:
    found = []
    for name in SHAPED:
        files = sorted((DATA / "connectors" / name).rglob("*"), key=lambda path: path.stat().st_size)
        small = [path for path in files if path.is_file() and path.stat().st_size < 300_000]
        found += [
            pytest.param(name, path, id=f"{name}-{path.name}")
            for path in small[: enough(2, 9)]
            if records_of(path)
        ]
    return found


@pytest.mark.parametrize(("name", "path"), logs())
def test_what_is_not_understood_makes_no_decision(name, path, tmp_path):
    connector = registry()[name]
    records, lines = records_of(path)
    before = account(connector, written(records, lines, tmp_path / path.name))
    made = changes(records, MOST)
    assert made
    invented, lost = [], []
    for change in made:
        after = account(connector, written(changed(records, change), lines, tmp_path / path.name))
        place = ".".join(change.pattern)
        if after.spoken - before.spoken and not re.search(OTHERS_SAY_SO.get(name, r"\A\Z"), place):
            invented.append((change.kind, place, dict(after.spoken - before.spoken)))
        if not re.search(UNTOLD.get(name, r"\A\Z"), place) and (gone := before.lost(after, change)):
            lost.append((change.kind, place, gone[0][:80]))
    assert not invented
    assert not lost


def test_all_formats_of_messages_are_changed():
    assert {param.values[0] for param in logs()} == set(SHAPED)
