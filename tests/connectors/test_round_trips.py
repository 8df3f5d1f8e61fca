"""What is written in any shape and read back is the same: messages, decisions, arguments, results, pairing, endings,
outcomes."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logforge.connectors.detection import detect
from logforge.connectors.episodes.builder import Call, EpisodeBuilder
from logforge.connectors.records.base import Source
from logforge.schemas.episode import Duplicate, Episode
from logforge.testing.kit import unsound
from support import (
    renderers,
    renderers_captures,
    renderers_coding,
    renderers_editors,
    renderers_harness,
    renderers_rollouts,
    renderers_sdks,
    renderers_traces,
    renderers_vendors,
)
from support.renderers import Act, Said, Shape, Talk, Turn
from support.thoroughness import enough

SHAPES = renderers.SHAPES | renderers_coding.SHAPES | renderers_harness.SHAPES
SHAPES |= renderers_traces.SHAPES | renderers_vendors.SHAPES | renderers_editors.SHAPES
SHAPES |= renderers_sdks.SHAPES | renderers_captures.SHAPES | renderers_rollouts.SHAPES

PLAIN = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=12)
TEXTS = PLAIN.filter(str.strip) | st.sampled_from(
    [
        "Error: no such order",
        "timed out",
        "[1, 2]",
        '{"a": 1}',
        "one\u2028two\r\nthree\x85",
        "What is it?",
        "null",
        "7",
    ]
)
NUMBERS = st.integers(-(2**70), 2**70) | st.booleans() | st.none()
ARGUMENTS = st.dictionaries(TEXTS, NUMBERS | TEXTS | st.lists(NUMBERS, max_size=2), max_size=3)
TOOLS = st.sampled_from(["book", "find", "pay"])


@st.composite
def turns(draw: st.DrawFn, shape: Shape, number: int) -> Turn:
    """A turn whose ids may have been used by an earlier turn."""
    speaks = not shape.acts or (shape.speech and draw(st.booleans()))
    thought = draw(st.none() | TEXTS) if shape.thoughts else None
    if speaks:
        return Turn(draw(TEXTS), thought if shape.spoken_thoughts else None, (), ())
    count = draw(st.integers(1, 3)) if shape.parallel else 1
    acts = []
    for index in range(count):
        answer = draw(TEXTS) if not shape.unanswered or draw(st.integers(0, 5)) else None
        repeats = shape.ids_repeat and draw(st.booleans())
        call_id = f"call-{index if repeats else f'{number}.{index}'}"
        acts.append(Act(call_id, draw(TOOLS), draw(ARGUMENTS), answer))
    answered = [index for index, act in enumerate(acts) if act.answer is not None]
    order = draw(st.permutations(answered)) if shape.ids and not shape.ordered else answered
    text = (
        draw(TEXTS.filter(lambda text: text.strip() != (thought or "").strip()))
        if not shape.speech or (shape.text_with_calls and draw(st.booleans()))
        else None
    )
    return Turn(text, thought, tuple(acts), tuple(order))


@st.composite
def talks(draw: st.DrawFn, shape: Shape, name: str) -> Talk:
    """A talk that a shape can hold."""
    entries: list[Said | Turn] = [Said("system", draw(TEXTS))] if shape.system and draw(st.booleans()) else []
    entries.append(Said("user", f"{name}: {draw(TEXTS)}"))
    for number in range(draw(st.integers(1, 5))):
        turn = draw(turns(shape, number))
        entries.append(turn)
        # Two responses with nothing between them are one in some shapes.
        if not turn.answered and shape.users_later:
            entries.append(Said("user", draw(TEXTS)))
    if isinstance(entries[-1], Said) and (shape.ends_with_agent or draw(st.booleans())):
        entries.pop()
    if shape.ends_with_agent and shape.unanswered and not _spoke(entries[-1]):
        entries += [] if _open(entries[-1]) else [Turn(draw(TEXTS), None, (), ())]
    return Talk(name, tuple(entries), draw(st.sampled_from([True, False, None])))


def _spoke(entry: Said | Turn) -> bool:
    return isinstance(entry, Turn) and not entry.acts


def _open(entry: Said | Turn) -> bool:
    return isinstance(entry, Turn) and not entry.answered


def built(talk: Talk, shape: Shape) -> Episode:
    """The talk as an episode, put together without any log."""
    builder = EpisodeBuilder()
    failed = False if shape.flags_failure else None
    for entry in talk.entries:
        if isinstance(entry, Said):
            builder.message(entry.role, entry.text, "")
            continue
        calls = [Call(act.name, act.arguments, act.call_id if shape.ids else None) for act in entry.acts]
        text = shape.silence if entry.text is None else entry.text
        builder.turn(text, calls, "", thought=entry.thought)
        for index in entry.answered:
            act = entry.acts[index]
            builder.result(act.call_id if shape.ids else None, act.answer, "", failed=failed)
    ending = "terminal" if shape.ending(talk) else "truncated"
    success = talk.success if shape.judged else None
    return builder.finish(id="", format="", locator="", ending=ending, ending_reason="", success=success)


def essence(episode: Episode) -> tuple[object, ...]:
    messages = [(m.role, m.content, m.thought) for m in episode.messages]
    steps = [
        (
            s.position,
            s.kind,
            s.action,
            s.arguments,
            s.arguments_status,
            s.tool_call_id,
            s.result,
            s.result_position,
            s.result_status,
            s.error_class,
            s.parallel_group,
        )
        for s in episode.steps
    ]
    return messages, steps, episode.ending, episode.success


@pytest.mark.parametrize("name", SHAPES)
@settings(
    max_examples=enough(8, 100),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data())
def test_what_is_written_is_read_back(name, tmp_path_factory, data):
    shape = SHAPES[name]
    count = 1 if shape.one_talk else data.draw(st.integers(1, 3))
    written = [data.draw(talks(shape, f"talk-{number}")) for number in range(count)]
    chance = data.draw(st.randoms(use_true_random=False))
    path = tmp_path_factory.getbasetemp() / f"{name.replace(' ', '-')}{shape.suffix}"
    path.write_bytes(shape.render(written, chance))
    assert [claim.connector.name for claim in detect(path)][:1] == [shape.format]
    readings = list(detect(path)[0].connector.read(Source(path, "log")))
    assert list(unsound(readings)) == []
    assert all(isinstance(item, Episode | Duplicate) for item in readings), readings
    found = {task_of(item): essence(item) for item in readings if isinstance(item, Episode)}
    assert found == {f"talk-{i}": essence(built(talk, shape)) for i, talk in enumerate(written)}


def task_of(episode: Episode) -> str:
    """Which talk it is: the first user message says so."""
    return next(m.content or "" for m in episode.messages if m.role == "user").partition(":")[0]


def test_three_containers_of_one_table_give_equal_episodes(tmp_path):
    shape = SHAPES["step lines"]
    acts = (Act("", "find", {"n": 1}, "Error: none"),)
    entries = (Said("user", "a: go"), Turn("hm", "think", acts, (0,)), Turn('done, "ok"?', None, (), ()))
    talk = Talk("a", entries, True)
    found = []
    for name in ("step lines", "step csv", "step parquet"):
        path = tmp_path / f"x{SHAPES[name].suffix}"
        path.write_bytes(SHAPES[name].render([talk], random.Random(0)))
        (episode,) = detect(path)[0].connector.read(Source(path, "log"))
        assert [step.logged_reward for step in episode.steps] == [0.0, 0.5]
        found.append(essence(episode))
    assert found == [essence(built(talk, shape))] * 3
