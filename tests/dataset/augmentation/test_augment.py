import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from logforge.connectors.episodes.builder import Call, EpisodeBuilder
from logforge.connectors.episodes.outcome import classify_result
from logforge.dataset.augmentation.augment import (
    AUGMENTERS,
    FAILURES,
    Paraphrase,
    ToolFailure,
    make_augmenter,
    twin_id,
)
from logforge.dataset.augmentation.paraphrase import protected, synonyms
from logforge.schemas.episode import Episode
from logforge.schemas.errors import CheckFailed, UnknownName, UsageError
from support.consistent_episodes import check_episode

ASK = "Hello, please verify my really great order 17 with user_id 3"


def episode(*turns, ask=ASK, **more):
    """An episode of a user's text and then turns: a text, or a list of (tool, result or None)."""
    builder = EpisodeBuilder()
    builder.message("system", "please verify", "l:0")
    builder.message("user", ask, "l:1", created_at=1)
    for number, turn in enumerate(turns):
        where = f"l:{number + 2}"
        if isinstance(turn, str):
            builder.turn(turn, [], where, created_at=number + 2)
            builder.message("user", "really great, please verify", where)
            continue
        calls = [Call(tool, {"q": number}, f"id{number}-{n}", where) for n, (tool, _) in enumerate(turn)]
        builder.turn(f"please verify {number}", calls, where, thought="hm", tokens_out=5, reward=0.5)
        for n, (_, result) in enumerate(turn):
            if result is not None:
                builder.result(f"id{number}-{n}", result, where, created_at=number + 2, latency_s=1.0)
    given = {"ending": "terminal", "ending_reason": "done", "success": True, "task": ask} | more
    return builder.finish(id="e" * 32, format="f", locator="l", **given)


turns_strategy = st.lists(
    st.sampled_from(["really great", "sure?"])
    | st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from(["fine, please verify", "Error: no", "", None])),
        min_size=1,
        max_size=3,
    ),
    max_size=7,
)

episodes = turns_strategy.map(lambda turns: episode(*turns))


# paraphrase


@settings(max_examples=60, deadline=None)
@given(episodes, st.integers(0, 3))
def test_a_paraphrase_changes_the_users_words_and_nothing_else(parent, seed):
    made = Paraphrase(rate=1.0).augment(parent, seed)
    twin = made.episode
    check_episode(twin)
    assert twin.steps == parent.steps
    assert made.parents == list(range(len(parent.steps)))
    for old, new in zip(parent.messages, twin.messages, strict=True):
        assert replace(new, content=old.content) == old
        assert old.role == "user" or new == old
        assert protected(new.content or "") == protected(old.content or "")
    assert twin.task == twin.messages[1].content != parent.task
    same = replace(
        twin,
        episode_id=parent.episode_id,
        messages=parent.messages,
        task=parent.task,
        source_kind=parent.source_kind,
        parent_episode_id=parent.parent_episode_id,
    )
    assert same == parent


def test_a_paraphrase_names_its_parent_and_seed_and_is_repeatable():
    parent = episode("ok")
    made = Paraphrase().augment(parent, 7)
    assert made == Paraphrase().augment(parent, 7)
    assert made.episode.episode_id == twin_id(parent.episode_id, "paraphrase", 7)
    assert made.episode.parent_episode_id == parent.episode_id
    assert made.episode.source_kind == "synthetic"
    texts = {Paraphrase().augment(parent, seed).episode.task for seed in range(20)}
    assert len(texts) > 3
    assert len({twin_id(p, name, s) for p in "ab" for name in "xy" for s in range(3)}) == 12


def test_the_rate_is_the_share_of_words():
    parent = episode(ask=" ".join(word for word in synonyms() if word != "please"))
    counts = []
    for rate in (0.25, 0.75):
        new = Paraphrase(rate).augment(parent, 0).episode.task
        counts.append(sum(f" {word} " not in f" {new} " for word in synonyms()) / len(synonyms()))
    assert counts[0] < 0.45 < counts[1]


@pytest.mark.parametrize("ask", ["Cancel 17, 'really great'", "Ich möchte nicht", ""])
def test_nothing_to_change_is_no_twin(ask):
    assert Paraphrase(1.0).augment(episode(ask=ask), 0) is None


# tool failure


def test_a_failed_attempt_is_followed_by_the_same_call_with_its_real_result():
    parent = episode("hi", [("a", "fine")], [("b", "good")])
    made = ToolFailure(("b",)).augment(parent, 0)
    attempt, retry = made.episode.steps[2:]
    original = parent.steps[2]
    assert made.parents == [0, 1, 2, 2]
    assert (attempt.action, attempt.arguments) == (retry.action, retry.arguments) == ("b", original.arguments)
    assert attempt.result in FAILURES
    assert attempt.result_status in ("error", "timeout")
    assert attempt.error_class in ("timeout", "rate_limit", "server")
    assert (attempt.step, attempt.position, attempt.result_position) == (
        2,
        original.position,
        original.position + 1,
    )
    assert (attempt.logged_reward, attempt.latency_s, attempt.result_locator) == (None, None, None)
    assert attempt.tool_call_id != original.tool_call_id == retry.tool_call_id
    assert (retry.step, retry.position, retry.result) == (3, original.position + 2, "good")
    assert retry.logged_reward == 0.5
    said, answer, again = made.episode.messages[original.position : original.position + 3]
    assert (said.content, said.thought) == ("please verify 2", "hm")
    assert (answer.role, answer.content) == ("tool", attempt.result)
    assert (said.created_at, answer.created_at) == (None, None)
    assert (again.role, again.content, again.thought) == ("assistant", None, None)
    assert (made.episode.success, made.episode.ending) == (True, "terminal")


def test_the_retry_has_no_known_propensity():
    parent = episode([("a", "fine")])
    logged = replace(parent.steps[0], propensity=0.25, propensity_kind="logged")
    attempt, retry = ToolFailure(("a",)).augment(replace(parent, steps=[logged]), 0).episode.steps
    assert (attempt.propensity, attempt.propensity_kind) == (0.25, "logged")
    assert (retry.propensity, retry.propensity_kind) == (None, "missing")


@settings(max_examples=100, deadline=None)
@given(episodes, st.integers(0, 5), st.booleans())
def test_only_retryable_calls_fail_and_all_else_is_shifted(parent, seed, first):
    made = ToolFailure(("a", "b"), first=first).augment(parent, seed)
    able = [
        s.step
        for s in parent.steps
        if s.action in ("a", "b") and s.result_status == "ok" and s.parallel_group is None
    ]
    assert (made is None) == (not able)
    if made is None:
        return
    twin = made.episode
    check_episode(twin)
    where = next(new for new, old in enumerate(made.parents) if made.parents[new + 1] == old)
    assert where in able
    assert not first or where == able[0]
    assert made == ToolFailure(("a", "b"), first=first).augment(parent, seed)
    at = parent.steps[where].position
    rest = [*twin.messages[:at], *twin.messages[at + 2 :]]
    for old, new in zip(parent.messages, rest, strict=True):
        moved = old.position + 2 * (old.position >= at)
        if old.position == at:
            old = replace(old, content=None, thought=None)
        assert new == replace(old, position=moved)
    kept = [*twin.steps[:where], *twin.steps[where + 1 :]]
    for old, new in zip(parent.steps, kept, strict=True):
        assert new.result_position is None or twin.messages[new.result_position].content == old.result
        fields = ("action", "arguments", "result", "result_status", "tool_call_id", "logged_reward", "kind")
        assert all(getattr(old, f) == getattr(new, f) for f in fields)
    follower = twin.steps[where + 1]
    assert (twin.steps[where].action, twin.steps[where].arguments) == (follower.action, follower.arguments)
    ids = [s.tool_call_id for s in twin.steps if s.kind == "tool"]
    assert len(set(ids)) == len(ids)


def test_a_late_result_of_an_earlier_call_is_shifted():
    builder = EpisodeBuilder()
    builder.turn(None, [Call("slow", {}, "1")], "l:0")
    builder.turn(None, [Call("a", {}, "2")], "l:1")
    builder.result("2", "fine", "l:2")
    builder.result("1", "at last", "l:3")
    parent = builder.finish(id="e", format="f", locator="l", ending="terminal", ending_reason="")
    twin = ToolFailure(("a",)).augment(parent, 0).episode
    check_episode(twin)
    assert [twin.messages[s.result_position].content for s in twin.steps[::2]] == ["at last", "fine"]


def test_every_failure_and_step_comes_up():
    parent = episode(*[[("a", "fine")]] * 3)
    made = [ToolFailure(("a",)).augment(parent, seed) for seed in range(60)]
    failed = {step.step for m in made for step in m.episode.steps if step.result in FAILURES}
    assert failed == {0, 1, 2}
    results = {s.result for m in made for s in m.episode.steps} - {"fine"}
    assert results == set(FAILURES)


def test_the_rate_spares_episodes():
    parent = replace(episode([("a", "fine")]))
    parents = [replace(parent, episode_id=f"{n}") for n in range(300)]
    made = [ToolFailure(("a",), rate=0.3).augment(p, 0) for p in parents]
    assert 60 < sum(m is not None for m in made) < 120


@pytest.mark.parametrize("text", FAILURES)
def test_failures_read_as_what_they_are(text):
    status, error = classify_result(text)
    assert status in ("error", "timeout")
    assert error in ("timeout", "rate_limit", "server")


# registry


def test_augmenters_are_made_by_name():
    made = make_augmenter("tool_failure", {"retryable": ["a"], "first": True})
    assert made == ToolFailure(("a",), first=True)
    assert make_augmenter("paraphrase") == Paraphrase()
    assert {
        name: make_augmenter(name, {"retryable": []} if name == "tool_failure" else {}).changes
        for name in AUGMENTERS
    } == {
        "paraphrase": "observation",
        "tool_failure": "dynamics",
    }
    assert all(
        make_augmenter(n, {"retryable": []} if n == "tool_failure" else {}).name == n for n in AUGMENTERS
    )


def test_wrong_names_and_options_are_refused():
    with pytest.raises(UnknownName, match="paraphrase, tool_failure"):
        make_augmenter("parafrase")
    with pytest.raises(UnknownName, match="retryable"):
        make_augmenter("tool_failure", {"retriable": ["a"]})
    with pytest.raises(UsageError, match="retryable"):
        make_augmenter("tool_failure")
    with pytest.raises(UsageError, match="rate"):
        make_augmenter("paraphrase", {"rate": 0})
    with pytest.raises(UsageError, match="list of tool names"):
        make_augmenter("tool_failure", {"retryable": "search"})


def test_an_augmenter_that_does_not_say_what_it_changes_is_refused(monkeypatch):
    class Silent:
        name = "silent"
        changes = None

    monkeypatch.setitem(AUGMENTERS, "silent", Silent)
    with pytest.raises(UsageError, match="does not say what it changes"):
        make_augmenter("silent")


# check_episode


def broken(parent, where, changes):
    """The episode with one message or step changed: where is {"message": n} or {"step": n}."""
    ((kind, index),) = where.items()
    items = list(parent.messages if kind == "message" else parent.steps)
    items[index] = replace(items[index], **changes)
    return replace(parent, **{f"{kind}s": items})


@pytest.mark.parametrize(
    ("where", "changes", "problem"),
    [
        ({"message": 2}, {"position": 9}, "message positions"),
        ({"step": 1}, {"step": 5}, "steps do not count"),
        ({"step": 0}, {"position": 1}, "no assistant message"),
        ({"step": 1}, {"position": 99}, "no assistant message"),
        ({"step": 1}, {"position": 2}, "follows outside a parallel group"),
        ({"step": 2}, {"parallel_group": None}, "follows outside a parallel group"),
        ({"step": 0}, {"position": 4}, "does not follow"),
        ({"step": 1}, {"result_position": 1}, "no later tool message"),
        ({"step": 3}, {"result_position": 6}, "another step has the same result"),
        ({"step": 0}, {"action": "speak"}, "respond step with action"),
        ({"step": 1}, {"result_position": None}, "does not fit"),
        ({"step": 1}, {"result_status": "missing"}, "does not fit"),
    ],
)
def test_check_episode_finds(where, changes, problem):
    parent = episode("hi", [("a", "x"), ("b", "y"), ("c", "z")])
    check_episode(parent)
    with pytest.raises(CheckFailed, match=problem):
        check_episode(broken(parent, where, changes))


def test_check_episode_lists_every_problem():
    parent = episode("hi", [("a", "x")])
    bad = broken(broken(parent, {"message": 0}, {"position": 4}), {"step": 0}, {"action": "speak"})
    with pytest.raises(CheckFailed) as caught:
        check_episode(bad)
    assert len(caught.value.failures) == 2


def test_an_episode_survives_the_round_trip_as_data():
    made = ToolFailure(("a",)).augment(episode([("a", "fine")]), 0)
    assert msgspec.convert(msgspec.to_builtins(made.episode), Episode) == made.episode
