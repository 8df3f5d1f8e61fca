"""The conformance kit finds what is wrong: every law is broken by a connector made for it, and by no sound one."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from logforge.connectors.episodes.builder import Call, EpisodeBuilder
from logforge.connectors.episodes.identity import content_id
from logforge.connectors.episodes.rows import close, read_rows, reject
from logforge.connectors.records.base import Head, Source, at
from logforge.schemas.episode import Duplicate, Episode, Reject
from logforge.schemas.errors import UnknownName
from logforge.testing.kit import HASH_SEED, LAWS, check_connector, count_json_records

replace = msgspec.structs.replace


class Sound:
    """Lines of {"talk": [{"who", "text", "tool", "id"}]}."""

    name = "made_for_tests"
    version = 1
    record = "a line"

    def sniff(self, head: Head) -> float:
        return 0.9 if "talk" in head.top else 0.0

    def read(self, source: Source) -> Iterator[Any]:
        yield from read_rows(source, self.row)

    def row(self, row: Any, locator: str) -> Iterator[Any]:
        talk = row.get("talk") if isinstance(row, dict) else None
        if not isinstance(talk, list):
            yield reject(locator, "no talk", "", row)
            return
        builder = EpisodeBuilder()
        for index, turn in enumerate(talk):
            if isinstance(turn, dict):
                self.turn(builder, turn, at(locator, f"/talk/{index}"))
        yield from close(builder, self.episode(builder, row, locator))

    def turn(self, builder: EpisodeBuilder, turn: dict[str, Any], where: str) -> None:
        text, call = str(turn.get("text") or ""), turn.get("id")
        call_id = call if isinstance(call, str) else None
        if turn.get("who") == "agent":
            tool = turn.get("tool")
            calls = [Call(tool, {"q": text}, call_id, where)] if isinstance(tool, str) and tool else []
            builder.turn(text, calls, f"{where}/text")
        elif turn.get("who") == "tool":
            builder.result(call_id, text, f"{where}/text")
        else:
            builder.message("user", text, f"{where}/text")

    def episode(self, builder: EpisodeBuilder, row: dict[str, Any], locator: str) -> Episode:
        return builder.finish(
            id=content_id(self.name, row),
            format=self.name,
            locator=locator,
            ending="terminal",
            ending_reason="",
        )


def turn(who: str, text: str, tool: str | None = None, call: str | None = None) -> dict[str, Any]:
    return {"who": who, "text": text, "tool": tool, "id": call}


def talk(number: int) -> dict[str, Any]:
    said = [
        turn("user", f"hello {number}"),
        turn("agent", "looking", "find", "call-1"),
        turn("tool", f"found {number}", call="call-1"),
        turn("agent", "again", "find", "call-2"),
        turn("tool", "found more", call="call-2"),
        turn("agent", "done"),
    ]
    return {"talk": said}


@pytest.fixture
def log(tmp_path, write_jsonl):
    return write_jsonl(tmp_path / "logs" / "talks.jsonl", [talk(number) for number in range(4)])


def broken(connector: Any, log: Any, **more: Any) -> set[str]:
    report = check_connector(connector, [log], count_records=count_json_records, **more)
    assert report.ok == (not report.findings)
    return {finding.law for finding in report.findings}


def test_a_sound_connector_breaks_no_law(log):
    report = check_connector(Sound(), [log], count_records=count_json_records)
    report.raise_if_broken()
    assert report.laws == (*LAWS, HASH_SEED)
    assert "holds  pairing: A result belongs to the nearest" in report.render()


def changed(change: Any) -> type[Sound]:
    """A connector that changes what the sound one yields."""

    class Changed(Sound):
        def read(self, source: Source) -> Iterator[Any]:
            yield from change(list(super().read(source)), source)

    return Changed


def edited(**more: Any) -> type[Sound]:
    return changed(lambda items, _: [replace(i, **more) if isinstance(i, Episode) else i for i in items])


class Forgets(Sound):
    """Loses the lines that are no JSON."""

    def read(self, source: Source) -> Iterator[Any]:
        yield from (item for item in super().read(source) if not isinstance(item, Reject))


class Numbers(Sound):
    """Numbers its lines and says that each stands for itself."""

    splittable = True

    def read(self, source: Source) -> Iterator[Any]:
        for number, item in enumerate(super().read(source)):
            yield replace(item, native_id=str(number)) if isinstance(item, Episode) else item


class GivesUp(Sound):
    """Stops at the first bad line."""

    def read(self, source: Source) -> Iterator[Any]:
        for item in super().read(source):
            yield item
            if isinstance(item, Reject):
                return


class Raises(Sound):
    def row(self, row: Any, locator: str) -> Iterator[Any]:
        row["talk"]
        yield from super().row(row, locator)


class LastCall(Sound):
    """Gives every result to the first call of its id."""

    def episode(self, builder: EpisodeBuilder, row: dict[str, Any], locator: str) -> Episode:
        episode = super().episode(builder, row, locator)
        first: dict[str | None, int] = {}
        steps = list(episode.steps)
        for index, step in enumerate(steps):
            other = first.setdefault(step.tool_call_id, index)
            if other != index and step.kind == "tool" and step.result_position is not None:
                mine, theirs = steps[other], step
                swap = ("result", "result_position", "result_status", "result_locator")
                steps[other] = replace(mine, **{name: getattr(theirs, name) for name in swap})
                steps[index] = replace(theirs, **{name: getattr(mine, name) for name in swap})
        return replace(
            episode, steps=[s for s in steps if s.result_position is None or s.result_position > s.position]
        )


class Foresees(Sound):
    """Tells the agent its last words as the task."""

    def episode(self, builder: EpisodeBuilder, row: dict[str, Any], locator: str) -> Episode:
        episode = super().episode(builder, row, locator)
        return replace(
            episode, task=builder.messages[-1].content if builder.messages else None, native_id=locator
        )


class NamesTools(Sound):
    """Takes the tools that were used for those that were offered."""

    def episode(self, builder: EpisodeBuilder, row: dict[str, Any], locator: str) -> Episode:
        said = sorted({str(t.get("text")) for t in row["talk"] if isinstance(t, dict)})
        return replace(super().episode(builder, row, locator), tools=["find", *said], native_id=locator)


class PathIdentity(Sound):
    def read(self, source: Source) -> Iterator[Any]:
        for item in super().read(source):
            yield (
                replace(item, episode_id=content_id(self.name, source.label + item.locator))
                if isinstance(item, Episode)
                else item
            )


class Greedy(Sound):
    def sniff(self, head: Head) -> float:
        return 0.9


class Seeded(Sound):
    """Its metadata is in the order of a set."""

    def episode(self, builder: EpisodeBuilder, row: dict[str, Any], locator: str) -> Episode:
        words = json.dumps(list({"a", "b", "c", "d", "e", "f", os.environ.get("PYTHONHASHSEED", "")}))
        return replace(super().episode(builder, row, locator), metadata=words)


@pytest.mark.parametrize(
    ("connector", "law"),
    [
        (changed(lambda items, _: [*items, Duplicate()]), "conservation"),
        (changed(lambda items, _: items[:-1]), "conservation"),
        (edited(metadata="{"), "soundness"),
        (edited(episode_id="7"), "soundness"),
        (edited(messages=[]), "soundness"),
        (edited(score="high"), "soundness"),
        (PathIdentity, "determinism"),
        (edited(locator="log:99"), "locators"),
        (changed(lambda items, source: _one_line_on(items)), "locators"),
        (LastCall, "pairing"),
        (Foresees, "no_future"),
        (NamesTools, "no_future"),
        (Forgets, "bad_neighbour"),
        (GivesUp, "bad_neighbour"),
        (Forgets, "torn_tail"),
        (Raises, "damage"),
        (Greedy, "sniffing"),
        (Numbers, "parts"),
    ],
)
def test_each_law_finds_what_breaks_it(connector, law, log, tmp_path, write_jsonl):
    other = write_jsonl(tmp_path / "other.jsonl", [{"rows": 1}])
    found = broken(connector(), log, laws=LAWS, foreign=[other])
    assert law in found, found


def _one_line_on(items: list[Any]) -> list[Any]:
    """Locators that lead to the next turn."""
    return [
        replace(item, messages=[replace(m, locator=item.messages[-1].locator) for m in item.messages])
        for item in items
        if isinstance(item, Episode)
    ]


def test_a_connector_whose_readings_depend_on_the_hash_seed_is_found(log):
    report = check_connector(Seeded(), [log], laws=[HASH_SEED])
    assert [finding.law for finding in report.findings] == [HASH_SEED]
    with pytest.raises(AssertionError, match="another hash seed"):
        report.raise_if_broken()


def test_an_unknown_law_is_named(log):
    with pytest.raises(UnknownName, match="conservation"):
        check_connector(Sound(), [log], laws=["gravity"])
