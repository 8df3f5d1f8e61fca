"""Calls in the text: recovered where they are exact, told where they are not, and never seen where there are none."""

from __future__ import annotations

import json
import time

import pytest

from logforge.connectors.episodes.spoken import said_calls

JSON_CALL = '{"name": "forecast", "arguments": {"city": "Tartu", "days": 2}}'
MEANT = [("forecast", {"city": "Tartu", "days": 2})]


def found(text: str, offered: list[str] | None = None) -> list[tuple[str, object]] | None:
    calls = said_calls(text, offered, "here")
    return None if calls is None else [(call.name, call.arguments) for call in calls]


@pytest.mark.parametrize(
    "text",
    [
        f"<tool_call>\n{JSON_CALL}\n</tool_call>",
        f"I will look.\n<tool_call>{JSON_CALL}</tool_call>\n",
        f"<tool_call>\n{JSON_CALL}\n",  # a stop word ate the closing tag
        "<tool_call>\n{'arguments': {'city': 'Tartu', 'days': 2}, 'name': 'forecast'}\n</tool_call>",
        '<tool_call>{"type": "function", "function": ' + JSON_CALL + "}</tool_call>",
        "<functioncall> " + JSON_CALL + " <|endoftext|>",
        '<functioncall> {"name": "forecast", "arguments": \'{"city": "Tartu",\n"days": 2}\'} <|endoftext|>',
        '<function=forecast>{"city": "Tartu", "days": 2}</function>',
        f"[TOOL_CALLS] [{JSON_CALL}]",
        '[TOOL_CALLS]forecast{"city": "Tartu", "days": 2}',
        '[TOOL_CALLS]forecast[ARGS]{"city": "Tartu", "days": 2}',
        '<|python_tag|>{"name": "forecast", "parameters": {"city": "Tartu", "days": 2}}<|eom_id|>',
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>forecast<｜tool▁sep｜>{"city": "Tartu", "days": 2}<｜tool▁call▁end｜>',
        '<｜tool▁call▁begin｜>function<｜tool▁sep｜>forecast\n```json\n{"city": "Tartu", "days": 2}\n```<｜tool▁call▁end｜>',
        '<|tool_call_begin|>functions.forecast:0<|tool_call_argument_begin|>{"city": "Tartu", "days": 2}<|tool_call_end|>',
        '[forecast(city="Tartu", days=2)]',
        "[forecast(city='Tartu',\n  days=2)]",
        f"<think>Perhaps <tool_call>{{...}}</tool_call>?</think>\n<tool_call>{JSON_CALL}</tool_call>",
        f"so I call it\n</think>\n<tool_call>{JSON_CALL}</tool_call>",
    ],
)
def test_a_call_that_is_exact_is_recovered_without_a_list_of_tools(text: str) -> None:
    assert found(text) == MEANT
    assert found(text, ["forecast"]) == MEANT
    calls = said_calls(text, None, "here")
    assert [call.locator for call in calls or []] == ["here"]


@pytest.mark.parametrize(
    "text",
    [
        JSON_CALL,
        f"```json\n{JSON_CALL}\n```",
        f"[{JSON_CALL}]",
        '{"name": "forecast", "parameters": {"city": "Tartu", "days": 2}}',
        'forecast(city="Tartu", days=2)',
    ],
)
def test_a_call_without_a_mark_is_one_where_the_tool_was_offered(text: str) -> None:
    assert found(text, ["forecast", "other"]) == MEANT
    assert found(text, ["other"]) is None
    assert not found(text)  # it may be an answer: nothing is recovered


def test_several_calls_come_in_their_order() -> None:
    tagged = "".join(
        f'<tool_call>{{"name": "f{i}", "arguments": {{"i": {i}}}}}</tool_call>' for i in range(3)
    )
    assert found(tagged) == [("f0", {"i": 0}), ("f1", {"i": 1}), ("f2", {"i": 2})]
    assert found("[f(x=[1, 2], y={'a': (1,)}), Market API.get(z=true, w=null, v=-1.5)]") == [
        ("f", {"x": [1, 2], "y": {"a": [1]}}),
        ("Market API.get", {"z": True, "w": None, "v": -1.5}),
    ]
    two = '{"name": "f", "parameters": {"x": 1}}; {"name": "f", "parameters": {"x": 2}}'
    assert found(two, ["f"]) == [("f", {"x": 1}), ("f", {"x": 2})]


def test_values_of_tags_stay_text() -> None:
    coder = "<tool_call>\n<function=run>\n<parameter=code>\nprint(1)\n</parameter>\n<parameter=n>\n3\n</parameter>\n</function>\n</tool_call>"
    assert found(coder) == [("run", {"code": "print(1)", "n": "3"})]
    glm = "<tool_call>run\n<arg_key>code</arg_key>\n<arg_value>print(1)</arg_value>\n<arg_key>n</arg_key>\n<arg_value>3</arg_value>\n</tool_call>"
    assert found(glm) == [("run", {"code": "print(1)", "n": "3"})]


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>\n{"name": "forecast", "arguments": {"city": "Tar',
        "<tool_call>forecast in Tartu</tool_call>",
        '<tool_call>{"name": "forecast", "city": "Tartu"}</tool_call>',
        '<tool_call>{"name": "forecast", "arguments": {}} and more</tool_call>',
        f"<tool_call>{JSON_CALL}</tool_call><tool_call>{{</tool_call>",
        '<functioncall> {"name": "forecast", "arguments": \'{"city": \'} <|endoftext|>',
        "<execute>ls</execute>",
        "```mswea_bash_command\nls\n```",
        f"An example:\n```xml\n<tool_call>{JSON_CALL}</tool_call>\n```",
        f"<think>I call <tool_call>{JSON_CALL}</tool_call>",
        '[forecast(city="Tartu", days)]',
        '[forecast(city="Tartu)]',
        "[forecast(city=here)]",
    ],
)
def test_a_call_that_is_not_exact_is_told_and_not_guessed(text: str) -> None:
    assert found(text) == []
    assert found(text, ["forecast"]) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Rain in Tartu.",
        "Write `<tool_call>` before the call.",
        "[1, 2, 3]",
        "[image]",
        "[laughs (quietly)]",
        "[see note (1)]",
        "[Note: see f(x=1)]",
        '{"name": "Ann", "age": 3}',
        '[{"name": "Ann"}, {"name": "Bob"}]',
        f"<think><tool_call>{JSON_CALL}</tool_call></think>Rain.",
        "print(x=1)",
    ],
)
def test_words_hold_no_call(text: str) -> None:
    assert found(text) is None
    assert found(text, []) is None
    assert found(text, ["forecast"]) is None


def test_a_call_without_arguments_is_told_where_no_tools_are_known() -> None:
    assert found("[get_zones()]") == []
    assert found("[get_zones()]", ["get_zones"]) == [("get_zones", {})]
    assert found("[an aside()]") is None


def test_an_answer_in_json_is_none_where_no_tool_was_offered() -> None:
    assert found(JSON_CALL, []) is None


def test_quotes_brackets_and_marks_inside_a_value_are_the_values() -> None:
    given = {"text": 'it\'s [a] </tool_call> (b), <tool_call> `c` "d"'}
    written = json.dumps({"name": "say", "arguments": given})
    assert found(f"<tool_call>{written}</tool_call>") == [("say", given)]
    assert found(f"[say(text={given['text']!r})]") == [("say", given)]
    assert found("[say(text='a, b)', more=\"c=(d\")]") == [("say", {"text": "a, b)", "more": "c=(d"})]


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>" + "<function=f>" + "<parameter=a>b</parameter>" * 20_000 + "x</tool_call>",
        "<tool_call>f" + "<arg_key>a</arg_key><arg_value>b</arg_value>" * 15_000 + "x</tool_call>",
        "<think>" * 100_000 + "<tool_call>",
        "[" + "f(x=1), " * 100_000 + "]",
        "[f(x=" + "(" * 500_000,
        "<functioncall> {" * 50_000,
        "<tool_call>" * 80_000,
        '{"name": "f", "arguments": {}} ' * 30_000,
        "[TOOL_CALLS]" + "[" * 900_000,
    ],
)
def test_the_time_grows_no_faster_than_the_text(text: str) -> None:
    begin = time.process_time()
    said_calls(text, ["f"], "here")
    assert time.process_time() - begin < 5
