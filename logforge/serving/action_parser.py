"""What a language model wrote, as one action of the vocabulary: the way from its text to what an agent can run.

The forms are those that logs hold, read by the connectors that read those: OpenAI's tool calls (a message, a response, a call),
Anthropic's blocks, `<tool_call>` and `<function=…>` tags, ReAct's `Action:`, and plain words, which are an answer or a question.
Nothing is guessed and nothing is run: damaged JSON, an unknown tool or two calls are told, not mended.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

from logforge.connectors.chat import add_message
from logforge.connectors.episodes import (
    CALL_BLOCKS,
    Call,
    EpisodeBuilder,
    bad_part,
    bare_name,
    function_calls,
    meant,
)
from logforge.connectors.records import NotJson, canonical, loads
from logforge.connectors.trajectories import Run, cut
from logforge.schemas import INVALID, OTHER, Episode, Manifest, Step

Fault = Literal["unclear", "bad_json", "several_calls", "unknown_tool", "bad_arguments"]

_NEAR: Final = 3
_WHERE: Final = "text"
_FENCE = re.compile(r"\s*```(?:json)?[ \t]*\n(.*)\n[ \t]*```\s*", re.DOTALL)
_THINKS, _THOUGHT = "<think>", "</think>"
_TAGGED = re.compile(r"<tool_call>(.*?)(</tool_call>|\Z)", re.DOTALL)
_FUNCTION = re.compile(r"<function=[^>\s]+>.*?</function>", re.DOTALL)
_ACTS = re.compile(r"^(?:Action|Final Answer)(?: \d+)?:", re.MULTILINE)
_BEGINS_JSON = re.compile(r"\s*(?:\{|\[\s*\{)")
_TAGS: Final = (("<tool_call>", "</tool_call>"), ("<function=", "</function>"))
_GIVEN: Final = ("arguments", "args", "parameters", "input")
_BESIDE: Final = frozenset({"name", "id", "type", "index", "call_id"})


class ParsedAction(NamedTuple):
    """One action: its name and id in the vocabulary, its arguments as canonical JSON text of an object, and the words around it."""

    action: str
    id: int
    arguments: str
    said: str | None


class Unparsed(NamedTuple):
    """Why there is no one action: the kind of fault, what was found, and for an unknown tool the known ones that are near."""

    fault: Fault
    what: str
    near: tuple[str, ...] = ()


def parse_action(text: str, manifest: Manifest) -> ParsedAction | Unparsed:
    """The one action that a model's text takes, by the vocabulary of a dataset or a policy's bundle. It never raises for a text.

    What stands up to the last `</think>` was thought and is no action; a thought that is not closed was cut off before there was one.
    """
    decided = _decided(text)
    if isinstance(decided, Unparsed):
        return decided
    builder = _logged(decided)
    if builder.rejects:
        reject = builder.rejects[0]
        return Unparsed("bad_json" if reject.rule == "bad_call" else "unclear", reject.reason)
    episode = _finished(builder)
    if len(episode.steps) != 1:
        names = ", ".join(bare_name(step.action) for step in episode.steps)
        return Unparsed("several_calls", names) if names else Unparsed("unclear", "neither a call nor words")
    said = next((message.content for message in episode.messages if message.role == "assistant"), None)
    return _of_step(episode.steps[0], said or None, manifest)


def call_text(action: str, arguments: str = "{}") -> str:
    """A tool call as text that `parse_action` reads back, in the form that most open models are trained on (`<tool_call>`).

    `arguments` are JSON text of an object. No text in them can close the tag.
    """
    call = canonical({"name": bare_name(action), "arguments": loads(arguments)})
    return f"<tool_call>\n{call.replace('<', chr(92) + 'u003c')}\n</tool_call>"


def _decided(text: str) -> str | Unparsed:
    """The text after its thoughts. In a text that is JSON such tags are part of a string."""
    if _BEGINS_JSON.match(_unfenced(text)):
        return text
    _, closed, rest = text.rpartition(_THOUGHT)
    if _THINKS in rest:
        return Unparsed("unclear", f"a {_THINKS} that is not closed")
    if closed and any(rest.count(closes) > rest.count(opens) for opens, closes in _TAGS):
        return Unparsed("unclear", f"a {_THOUGHT} within a call")
    return rest


def _unfenced(text: str) -> str:
    fenced = _FENCE.fullmatch(text)
    return fenced[1] if fenced else text


def _of_step(step: Step, said: str | None, manifest: Manifest) -> ParsedAction | Unparsed:
    vocabulary = manifest.vocabulary
    action = vocabulary.aliases.get(step.action, step.action)
    if action not in vocabulary or action in (INVALID, OTHER):
        return Unparsed(
            "unknown_tool", bare_name(step.action), _near(bare_name(step.action), vocabulary.actions)
        )
    if step.arguments_status != "ok":
        damage = f"mended by {step.repair}" if step.repair else "no JSON"
        return Unparsed("bad_arguments", f"the arguments of {action} are damaged ({damage})")
    if not isinstance(loads(step.arguments), dict):
        return Unparsed("bad_arguments", f"the arguments of {action} are no object")
    return ParsedAction(action, vocabulary.id(action), step.arguments, said)


def _near(name: str, actions: Sequence[str]) -> tuple[str, ...]:
    known = [action for action in actions if action not in (INVALID, OTHER)]
    likely = meant(name, known)
    close = difflib.get_close_matches(name, known, _NEAR)
    return tuple(dict.fromkeys([*([likely.name] if likely else []), *close]))


def _finished(builder: EpisodeBuilder) -> Episode:
    return builder.finish(id=_WHERE, format=_WHERE, locator=_WHERE, ending="truncated", ending_reason=_WHERE)


def _logged(text: str) -> EpisodeBuilder:
    """What the connector of its form makes of the text."""
    builder = EpisodeBuilder()
    body = _unfenced(text)
    if _BEGINS_JSON.match(body):
        _add_json(builder, body)
    elif "<tool_call>" in text:
        _add_tagged(builder, text)
    elif "<function=" in text:
        _add_functions(builder, text)
    elif _ACTS.search(text):
        _add_react(builder, text)
    elif text.strip():
        builder.turn(text.strip(), [], _WHERE)
    return builder


def _refuse(builder: EpisodeBuilder, reason: str, rule: str, value: Any) -> None:
    builder.rejects.append(bad_part(_WHERE, reason, rule, value))


def _add_json(builder: EpisodeBuilder, text: str) -> None:
    try:
        value = loads(text)
    except NotJson as error:
        return _refuse(builder, f"not JSON: {error}", "bad_call", text)
    if isinstance(value, dict) and value.keys() == {"action", "action_input"}:  # LangChain's
        return _add_react(builder, f"Action: {canonical(value)}")
    message = _message(value)
    if message is None:
        return _refuse(builder, "JSON that is no call", "nameless_call", value)
    add_message(builder, {**message, "role": "assistant"}, _WHERE)
    return None


def _message(value: Any) -> dict[str, Any] | None:
    """An assistant's message, from a message, a response that holds one, a call, or a list of calls or blocks."""
    if isinstance(value, list):
        if any(map(_is_block, value)):
            return {"content": value}
        calls = [_call(item) for item in value]
        return {"tool_calls": calls} if calls and all(calls) else None
    if not isinstance(value, dict):
        return None
    choices = value.get("choices")
    if isinstance(choices, list):
        inner = choices[0].get("message") if len(choices) == 1 and isinstance(choices[0], dict) else None
        return inner if isinstance(inner, dict) else None
    if _is_block(value):
        return {"content": [value]}
    if value.get("role") == "assistant" or value.get("tool_calls") or value.get("function_call"):
        return value
    call = _call(value)
    return None if call is None else {"tool_calls": [call]}


def _is_block(value: Any) -> bool:
    kind = value.get("type") if isinstance(value, dict) else None
    return isinstance(kind, str) and kind in CALL_BLOCKS


def _call(value: Any) -> dict[str, Any] | None:
    """A bare call with its arguments under the name that the connectors read; None where some key might be arguments too."""
    inner = value.get("function", value) if isinstance(value, dict) else None
    name = inner.get("name") if isinstance(inner, dict) else None
    if not isinstance(inner, dict) or not isinstance(name, str) or not name.strip():
        return None
    given = [key for key in _GIVEN if key in inner]
    if len(given) > 1 or inner.keys() - _BESIDE - set(given):
        return None
    return {"name": name, "arguments": inner[given[0]] if given else None}


def _add_tagged(builder: EpisodeBuilder, text: str) -> None:
    calls = []
    for body, close in _TAGGED.findall(text):
        try:
            call = _call(loads(body)) if close else None
        except NotJson as error:
            return _refuse(builder, f"not JSON: {error}", "bad_call", body)
        if call is None:
            cut_off = "a <tool_call> that is not closed"
            return _refuse(
                builder,
                "JSON that is no call" if close else cut_off,
                "nameless_call" if close else "bad_call",
                body,
            )
        calls.append(Call(call["name"], call["arguments"]))
    builder.turn(_TAGGED.sub("", text).strip() or None, calls, _WHERE)
    return None


def _add_functions(builder: EpisodeBuilder, text: str) -> None:
    """The connector reads to the end what is not closed; here that is a call that was cut off."""
    rest = _FUNCTION.sub("", text)
    if "<function=" in rest or text.count("<parameter=") != text.count("</parameter>"):
        return _refuse(builder, "a <function=…> or a <parameter=…> that is not closed", "bad_call", text)
    builder.turn(rest.strip() or None, function_calls(text, _WHERE), _WHERE)
    return None


def _add_react(builder: EpisodeBuilder, text: str) -> None:
    for block in cut(text.encode("utf-8", "replace")).blocks:
        made = Run(block, _WHERE).builder
        builder.rejects += made.rejects
        for step in _finished(made).steps:
            words = step.kind != "tool"
            said = next((m.content for m in made.messages if m.position == step.position), None)
            call = Call(bare_name(step.action), _as_given(step))
            builder.turn(said, [] if words else [call], _WHERE, kind=step.kind if words else None)


def _as_given(step: Step) -> str:
    """Arguments as they stood in the text, before they were mended."""
    return step.arguments if step.logged_arguments is None else step.logged_arguments
