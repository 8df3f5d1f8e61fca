"""A resumed or forked session carries its history along: each logged decision counts once, whatever came first."""

from __future__ import annotations

import itertools
import json

import pytest

from logforge.ingestion.pipeline import ingest
from logforge.store.store import Store
from support.made_sessions import line, session, turn
from support.stored import assert_conserved, content
from support.thoroughness import enough


def kept(store):
    """Session, actions' numbers and what it continues, of every episode."""
    rows = store.con.sql(
        "SELECT e.native_id, (SELECT list(coalesce(arguments->>'command', action) ORDER BY step) FROM steps s "
        "WHERE s.episode_id = e.episode_id), c.native_id FROM episodes e LEFT JOIN episodes c "
        "ON c.episode_id = e.continues_episode_id ORDER BY 1"
    ).fetchall()
    return [(name, [a.removeprefix("echo ") for a in actions or []], other) for name, actions, other in rows]


def sources(store):
    return store.con.sql("SELECT path, kept, duplicates FROM sources ORDER BY 1").fetchall()


@pytest.fixture
def write(tmp_path, write_jsonl):
    return lambda name, rows: write_jsonl(tmp_path / "logs" / f"{name}.jsonl", rows)


def orders(files):
    """Of arrival: of three files or more four, the first and its reverse among them, and in a thorough run all."""
    every = list(itertools.permutations(files))
    step = enough(max(1, len(every) // 3), 1)
    return [*(every[:-1])[::step], every[-1]]


def in_every_order(tmp_path, files):
    """The store after each order of arrival, and after all at once: they must be the same."""
    found = []
    for number, order in enumerate([*orders(files), None]):
        with Store(tmp_path / f"{number}.duckdb") as store:
            for group in [files] if order is None else [[file] for file in order]:
                ingest(store, group)
            assert_conserved(store)
            found.append((content(store), kept(store), sources(store)))
            ingest(store, files)
            assert (content(store), kept(store), sources(store)) == found[-1]
    assert all(item == found[0] for item in found)
    return found[0]


def test_a_resumed_session_takes_the_place_of_the_one_it_resumes(tmp_path, write):
    files = [write("a", session("a", 1, end=19)), write("b", [*session("b", 1, end=19), *turn("b", 2)])]
    _, episodes, counts = in_every_order(tmp_path, files)
    assert episodes == [("b", ["1", "respond", "2"], None)]
    assert counts == [("logs/a.jsonl", 0, 4), ("logs/b.jsonl", 6, 0)]


def test_a_chain_of_resumed_sessions_is_one_episode(tmp_path, write):
    files = [write(name, session(name, *range(1, end))) for name, end in (("a", 2), ("b", 3), ("c", 4))]
    _, episodes, _ = in_every_order(tmp_path, files)
    assert episodes == [("c", ["1", "2", "3"], None)]


def test_forks_share_their_history_as_context(tmp_path, write):
    files = [
        write("a", session("a", 1, 2, 3)),
        write("b", session("b", 1, 4)),
        write("c", session("c", 1, 2, 5, 6)),
    ]
    (_, messages, *_), episodes, counts = in_every_order(tmp_path, files)
    assert episodes == [("a", ["3"], "c"), ("b", ["4"], "c"), ("c", ["1", "2", "5", "6"], None)]
    assert len(messages) == sum(1 + 2 * turns for turns in (3, 2, 4))
    assert [duplicates for _, _, duplicates in counts] == [0, 0, 0]


def test_a_session_that_is_copied_as_it_is_counts_once(tmp_path, write):
    files = [write(name, session(name, 1, 2, end=29)) for name in "ab"]
    _, episodes, counts = in_every_order(tmp_path, files)
    assert [actions for _, actions, _ in episodes] == [["1", "2", "respond"]]
    assert sorted(count[1:] for count in counts) == [(0, 6), (6, 0)]


def test_a_sub_agent_goes_with_the_session_that_stays(tmp_path, write):
    def agent(name):
        call = {"type": "tool_use", "id": "s", "name": "Read", "input": {}}
        rows = [line(name, 50, "user", "read it", side="x"), line(name, 51, "assistant", [call], side="u50")]
        return rows

    files = [
        write("a", [*session("a", 1), *agent("a")]),
        write("b", [*session("b", 1, 2), *agent("b")]),
    ]
    _, episodes, _ = in_every_order(tmp_path, files)
    assert [name for name, *_ in episodes] == ["b", "b/u50"]


def test_other_messages_under_one_uuid_are_other_decisions(tmp_path, write):
    rows = session("b", 1)
    rows[1]["message"]["content"][0]["input"] = {"command": "echo 7"}
    _, episodes, _ = in_every_order(tmp_path, [write("a", session("a", 1)), write("b", rows)])
    assert [actions for _, actions, _ in episodes] == [["1"], ["7"]]


@pytest.mark.parametrize("gone", [("b", ["a"]), ("c", ["a", "b"])])
def test_what_was_dropped_comes_back_when_its_keeper_goes(tmp_path, write, gone):
    """The keeper's file changes into another session."""
    name, _ = gone
    numbers = {"a": (1,), "b": (1, 2), "c": (1, 2, 3)}
    files = {other: write(other, session(other, *found)) for other, found in numbers.items()}
    with Store(tmp_path / "s.duckdb") as store:
        ingest(store, files.values())
        assert kept(store) == [("c", ["1", "2", "3"], None)]
        write(name, session("new", 8, 9))
        ingest(store, files.values())
        assert_conserved(store)
        after = content(store), kept(store), sources(store)
    with Store(tmp_path / "fresh.duckdb") as store:
        ingest(store, files.values())
        assert (content(store), kept(store), sources(store)) == after
    assert {name: actions for name, actions, _ in after[1]}["new"] == ["8", "9"]


def test_a_fork_that_grows_beyond_the_other_takes_the_history_over(tmp_path, write):
    files = [write("a", session("a", 1, 2, 3)), write("b", session("b", 1, 4))]
    with Store(tmp_path / "s.duckdb") as store:
        ingest(store, files)
        assert kept(store) == [("a", ["1", "2", "3"], None), ("b", ["4"], "a")]
        write("b", session("b", 1, 4, 5, 6))
        ingest(store, [files[1]])
        assert kept(store) == [("a", ["2", "3"], "b"), ("b", ["1", "4", "5", "6"], None)]
        assert_conserved(store)
        write("a", session("a", 8))
        ingest(store, files)
        assert kept(store) == [("a", ["8"], None), ("b", ["1", "4", "5", "6"], None)]


def test_a_resumed_session_whose_keeper_shrinks_is_restored_from_its_file(tmp_path, write):
    files = [write("a", session("a", 1, 2, 3)), write("b", session("b", 1, 2, 3, 4))]
    with Store(tmp_path / "s.duckdb") as store:
        ingest(store, files)
        assert kept(store) == [("b", ["1", "2", "3", "4"], None)]
        write("b", session("b", 1))
        ingest(store, files)
        assert kept(store) == [("a", ["1", "2", "3"], None)]
        assert json.loads(json.dumps(sources(store)))[1] == ["logs/b.jsonl", 0, 3]
        assert_conserved(store)


# Codex: a fork rewrites the timestamps, and its messages have no ids.

CODEX = {name: f"019a0000-0000-7000-8000-{number:012}" for number, name in enumerate("abcd")}


def rollout(name, *items, of=None, copied=(), minute=0):
    """A session's lines; one that is a fork of another copies that one's headers and items to its beginning."""
    meta = {"id": CODEX[name], "cwd": "/w"} | ({"forked_from_id": CODEX[of]} if of else {})
    header = {"type": "session_meta", "payload": meta}
    rows = [header, *copied, *({"type": "response_item", "payload": item} for item in items)]
    return [{"timestamp": f"2026-02-03T1{minute}:00:{n:02}.000Z", **row} for n, row in enumerate(rows)]


def said(role, text):
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def codex_turn(number, call_id=None):
    name = call_id or f"call_{number:020}"
    asked = {
        "type": "function_call",
        "name": "sh",
        "arguments": f'{{"command":"echo {number}"}}',
        "call_id": name,
    }
    return [asked, {"type": "function_call_output", "call_id": name, "output": str(number)}]


def bare(rows):
    return [{key: value for key, value in row.items() if key != "timestamp"} for row in rows]


HELLO = [said("user", "hi"), said("assistant", "Hello.")]
ASK = said("user", "go on")
ABOUT = said("user", "<environment_context>here</environment_context>")


def codex_family(write):
    """A session, a fork from its first call, and one that resumes the fork; each goes on by itself."""
    parent = rollout(
        "a", ABOUT, *HELLO, ASK, *codex_turn(1), said("assistant", "Did it."), ASK, *codex_turn(2)
    )
    fork = rollout("b", ASK, *codex_turn(3), *codex_turn(4), of="a", copied=bare(parent[:-4]), minute=1)
    resumed = rollout("c", said("assistant", "More."), of="b", copied=bare(fork), minute=2)
    return [write("pa", parent), write("fb", fork), write("rc", resumed)]


def test_codex_forks_and_resumed_rollouts_count_once(tmp_path, write):
    _, episodes, counts = in_every_order(tmp_path, codex_family(write))
    assert episodes == [
        (CODEX["a"], ["respond", "2"], CODEX["c"]),
        (CODEX["c"], ["respond", "1", "3", "4", "respond"], None),
    ]
    assert [duplicates for _, _, duplicates in counts] == [13, 0, 0]


def test_codex_words_alone_are_one_decision_only_within_a_family(tmp_path, write):
    """Sessions that begin alike by chance are two; the fork of one is not."""
    first = rollout("a", *HELLO, said("user", "bye"), said("assistant", "Bye."), said("user", "?"), HELLO[1])
    own = [said("user", "more"), said("assistant", "No.")]
    files = [
        write("a", first),
        write("b", rollout("b", *own, of="a", copied=bare(first[:3]))),
        write("d", rollout("d", *HELLO)),
    ]
    _, episodes, _ = in_every_order(tmp_path, files)
    found = [(name, len(actions), other) for name, actions, other in episodes]
    assert found == [(CODEX["a"], 3, None), (CODEX["b"], 1, CODEX["a"]), (CODEX["d"], 1, None)]


def test_codex_call_ids_that_are_only_counted_repeat_between_sessions(tmp_path, write):
    files = [
        write(name, rollout(name, said("user", f"go {name}"), *codex_turn(1, "call_0")))
        for name in ("a", "d")
    ]
    _, episodes, _ = in_every_order(tmp_path, files)
    assert [actions for _, actions, _ in episodes] == [["1"], ["1"]]


def test_codex_message_ids_name_a_decision_where_they_are_logged(tmp_path, write):
    first = rollout("a", said("user", "hi"), said("assistant", "Hello.") | {"id": "msg_0123456789abcdef"})
    copy = [row for row in bare(first) if row["type"] != "session_meta"]
    files = [write("a", first), write("b", rollout("b", ASK, *codex_turn(1), copied=copy, minute=1))]
    _, episodes, _ = in_every_order(tmp_path, files)
    assert episodes == [(CODEX["b"], ["respond", "1"], None)]


def test_a_fork_that_writes_its_parent_anew_adds_no_decisions(store, tmp_path):
    """Other uuids and times; what stays are the API's ids of messages."""

    def lines(name, day, *more):
        said = [("user", "List the ports", None), ("assistant", "22 and 80.", "msg_01AAAAAAAAAAAAAA"), *more]
        return [
            {
                "sessionId": f"{name * 8}-{name * 4}-{name * 4}-{name * 4}-{name * 12}",
                "uuid": f"{name}{number}",
                "parentUuid": f"{name}{number - 1}" if number else None,
                "timestamp": f"2026-02-0{day}T10:00:0{number}Z",
                "type": role,
                "message": {"role": role, "content": text} | ({"id": own} if own else {}),
            }
            for number, (role, text, own) in enumerate(said)
        ]

    forked = lines("b", 4, ("user", "Whose is 80?", None), ("assistant", "nginx's.", "msg_01BBBBBBBBBBBBBB"))
    for name, rows in (("a", lines("a", 3)), ("b", forked)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    ingest(store, [tmp_path])
    assert_conserved(store)
    said = store.con.sql(
        "SELECT m.content FROM steps s JOIN messages m USING (episode_id, position) ORDER BY 1"
    )
    assert said.fetchall() == [("22 and 80.",), ("nginx's.",)]
