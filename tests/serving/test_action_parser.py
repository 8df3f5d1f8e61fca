"""A model's text as one action: every form that logs have, faults that are told, and nothing that raises."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from logforge.schemas.manifest import Manifest, Vocabulary
from logforge.serving.action_parser import ParsedAction, Unparsed, call_text, parse_action
from support.made_arrays import manifest

TOOLS = ["search", "refund_order", "tool:respond"]
KNOWN: Manifest = manifest(actions=Vocabulary.build(TOOLS).actions, action_aliases={"find": "search"})
GIVEN = {"query": "a < b", "n": 2}
INNER = {"name": "search", "arguments": json.dumps(GIVEN)}
CALL = {"id": "c1", "type": "function", "function": INNER}
BARE = {"name": "search", "arguments": GIVEN}
BLOCK = {"type": "tool_use", "id": "t1", "name": "search", "input": GIVEN}
JSON_FORMS: list[Any] = [
    BARE,
    {"name": "search", "parameters": GIVEN},
    CALL,
    [CALL],
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"choices": [{"message": {"role": "assistant", "tool_calls": [CALL]}}]},
    {"role": "assistant", "function_call": INNER},
    BLOCK,
    [{"type": "text", "text": "let me look"}, BLOCK],
    {"role": "assistant", "type": "message", "content": [BLOCK]},
    {"action": "search", "action_input": GIVEN},
]
TEXT_FORMS = [
    *(json.dumps(form) for form in JSON_FORMS),
    f"```json\n{json.dumps(BARE, indent=1)}\n```",
    f"<tool_call>\n{json.dumps(BARE)}\n</tool_call>",
    f"<think>a call: <tool_call>no</tool_call></think>\nI look.\n<tool_call>{json.dumps(BARE)}</tool_call>",
    f"Well. <think>or</think> so\n<think>a call: {json.dumps(CALL)}</think><tool_call>{json.dumps(BARE)}</tool_call>",
    f"or <tool_call>no</tool_call> then\n</think>\n<tool_call>{json.dumps(BARE)}</tool_call>",
    f"Thought: I look\nAction: search\nAction Input: {json.dumps(GIVEN)}",
    f"Action: ```json\n{json.dumps({'action': 'search', 'action_input': GIVEN})}\n```",
]


@pytest.mark.parametrize("text", TEXT_FORMS)
def test_every_form_of_a_call_is_the_same_action(text: str) -> None:
    found = parse_action(text, KNOWN)
    assert isinstance(found, ParsedAction), found
    assert (found.action, found.id) == ("search", KNOWN.actions.index("search"))
    assert json.loads(found.arguments) == GIVEN


def test_tags_with_parameters_and_bracketed_actions_give_texts() -> None:
    tags = "Looking.\n<function=search>\n<parameter=query>\na\n</parameter>\n</function>"
    assert parse_action(tags, KNOWN) == ParsedAction("search", 2 + 1, '{"query":"a"}', "Looking.")
    assert parse_action("Action: search[a]", KNOWN) == ParsedAction("search", 3, '{"input":"a"}', None)


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("It is booked.", "respond"),
        ("Which day would you like to fly?", "clarify"),
        ("Thought: done\nFinal Answer: It is booked.", "respond"),
        ('{"role": "assistant", "content": "Which day?"}', "clarify"),
        ('{"action": "Final Answer", "action_input": "It is booked."}', "respond"),
    ],
)
def test_words_are_an_answer_or_a_question_as_the_connectors_tell_them_apart(text: str, action: str) -> None:
    found = parse_action(text, KNOWN)
    assert isinstance(found, ParsedAction)
    assert (found.action, found.arguments) == (action, "{}")
    assert found.said
    assert found.said in text


def test_words_beside_a_call_are_kept() -> None:
    found = parse_action(f"I look.\n<tool_call>{json.dumps(BARE)}</tool_call>", KNOWN)
    assert isinstance(found, ParsedAction)
    assert found.said == "I look."


def test_an_earlier_name_is_the_tool_of_today_and_a_reserved_one_is_no_speaking() -> None:
    assert parse_action(call_text("find"), KNOWN)[:2] == ("search", KNOWN.actions.index("search"))
    found = parse_action('<tool_call>{"name": "respond", "arguments": {}}</tool_call>', KNOWN)
    assert found[0] == "tool:respond"


@pytest.mark.parametrize("tag", ["<think>", "</think>", "<think>a</think>b"])
@pytest.mark.parametrize("fence", ["{}", "```json\n{}\n```"])
def test_a_tag_in_a_string_of_json_is_no_thought(tag: str, fence: str) -> None:
    found = parse_action(
        fence.replace("{}", json.dumps({"name": "search", "arguments": {"query": tag}})), KNOWN
    )
    assert isinstance(found, ParsedAction), found
    assert json.loads(found.arguments) == {"query": tag}


@pytest.mark.parametrize(
    ("text", "fault", "near"),
    [
        (call_text("serch"), "unknown_tool", ("search",)),
        (call_text("functions.search"), "unknown_tool", ("search",)),
        (call_text("RefundOrder"), "unknown_tool", ("refund_order",)),
        (call_text("zzz"), "unknown_tool", ()),
        (call_text("<invalid>"), "unknown_tool", ()),
        ('{"name": "search", "arguments": {', "bad_json", ()),
        ("<tool_call>{'name': 'search'}</tool_call>", "bad_json", ()),
        ('<tool_call>{"name": "search", "arguments": {}}', "bad_json", ()),
        ("<function=search><parameter=query>rm", "bad_json", ()),
        ('{"name": "search", "arguments": "{\'query\': 1}"}', "bad_arguments", ()),
        ('{"name": "search", "arguments": "{\\"query\\": "}', "bad_arguments", ()),
        ('{"name": "search", "arguments": [1]}', "bad_arguments", ()),
        ("Action: search\nAction Input: {'query': 1}", "bad_arguments", ()),
        (json.dumps([CALL, CALL]), "several_calls", ()),
        (call_text("search") * 2, "several_calls", ()),
        ("Action: search[a]\nObservation: b\nAction: search[c]", "several_calls", ()),
        ('{"answer": 3}', "unclear", ()),
        ('{"name": "search", "query": "a"}', "unclear", ()),
        ('{"name": "search", "args": {}, "arguments": {}}', "unclear", ()),
        ('{"tool_calls": [{"id": "x"}]}', "unclear", ()),
        (f"<think>maybe {call_text('search')} no", "unclear", ()),
        (f"<think>a</think> well <think>{call_text('search')}", "unclear", ()),
        (f"I look. <think>{call_text('search')}</think>", "unclear", ()),
        (f"{call_text('search')}</think>", "unclear", ()),
        ('<tool_call>{"name": "search", "arguments": {"query": "</think>"}}</tool_call>', "unclear", ()),
        ('{"name": "search", "arguments": {"query": "</think>"', "bad_json", ()),
        ("  \n", "unclear", ()),
        ("", "unclear", ()),
    ],
)
def test_what_is_no_one_action_says_why(text: str, fault: str, near: tuple[str, ...]) -> None:
    found = parse_action(text, KNOWN)
    assert isinstance(found, Unparsed), found
    assert (found.fault, found.near) == (fault, near)
    assert found.what


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
TRICKS = st.sampled_from(
    ["</tool_call>", "<tool_call>", "```", "Action: search[x]", "\n", "<function=search>"]
)


@given(
    st.sampled_from(["search", "refund_order", "tool:respond"]),
    st.dictionaries(st.text(max_size=6) | TRICKS, VALUES | TRICKS, max_size=4),
)
def test_a_call_s_text_is_read_back(action: str, arguments: dict[str, Any]) -> None:
    found = parse_action(call_text(action, json.dumps(arguments)), KNOWN)
    assert isinstance(found, ParsedAction)
    assert (found.action, json.loads(found.arguments), found.said) == (action, arguments, None)


KEYS = st.sampled_from(
    "name arguments function tool_calls content role type choices message action action_input input id".split()
)
MESSAGES = st.recursive(
    VALUES | st.sampled_from(["assistant", "tool_use", "search", "text", "function"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=12,
)
PIECES = st.lists(
    TRICKS
    | st.sampled_from(
        ["Action:", "Action Input:", "Thought: ", "{", "}", '"name"', "search", "</function>", "Question: "]
    )
    | st.text(max_size=8),
    max_size=10,
).map("".join)


@example('{"type": []}')
@example('<tool_call>{"name": ""}</tool_call>')
@example('{"name": "search", "arguments": ' + "[" * 300 + "]" * 300 + "}")
@given(
    MESSAGES.map(json.dumps)
    | PIECES
    | MESSAGES.map(lambda value: f"<tool_call>{json.dumps(value)}</tool_call>")
)
def test_no_text_raises_and_what_is_parsed_is_in_the_vocabulary(text: str) -> None:
    found = parse_action(text, KNOWN)
    if isinstance(found, ParsedAction):
        assert KNOWN.actions[found.id] == found.action
        assert isinstance(json.loads(found.arguments), dict)
    else:
        assert found.what
