"""Simulated logs: words, Gymnasium's interface, and what ingest makes of them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from logforge.cli.commands import main
from logforge.connectors.detection import detect
from logforge.connectors.episodes.outcome import asks_user, classify_result
from logforge.connectors.records.base import Source
from logforge.dataset.states.fold import states_of
from logforge.envs.behaviour import behaviour, uniform
from logforge.envs.catalogue import WORLDS, make
from logforge.envs.evaluating import evaluate_policy
from logforge.envs.rollout import seeing
from logforge.envs.simulation import logged, rows, simulate
from logforge.envs.tool_env import ToolEnv, gym_env, vector_env
from logforge.envs.wording import as_episode, transcript, wording
from logforge.envs.world import HORIZON, NO_SUCH_TOOL
from logforge.ingestion.pipeline import ingest
from logforge.schemas.errors import UsageError

NAMES = list(WORLDS)


@pytest.mark.parametrize("name", NAMES)
def test_every_code_has_words_some_of_them_held_out(name):
    texts, world = wording(name).texts, make(name)
    assert set(texts["replies"]) == set(world.replies) - {"nothing"}
    assert set(texts["arguments"]) == set(world.tools)
    for choices in (*texts["replies"].values(), texts["opening"], *texts["agent"].values()):
        assert len(set(choices)) == len(choices) >= 4
    known, held = set(wording(name).all()), set(wording(name, held_out=True).all())
    assert held
    assert not known & held


@pytest.mark.parametrize("name", NAMES)
def test_words_are_read_as_they_are_meant(name):
    for held in (False, True):
        words = wording(name, held)
        picks = np.linspace(0, 0.999, 8)
        assert all(asks_user(words.said("clarify", p)) for p in picks)
        assert not any(asks_user(words.said("respond", p)) for p in picks)
        for reply in words.texts["replies"]:
            failed = {classify_result(words.reply(reply, p))[0] not in ("ok", "refused") for p in picks}
            assert failed == {reply == "tool_failed"}, reply


@pytest.mark.parametrize("name", NAMES)
def test_a_run_of_any_length_has_few_distinct_texts(name):
    run, told, parts = logged(make(name), behaviour("mix"), 4000, 0)
    seen = {m["content"] for row in rows(run, told, ["x"] * len(parts), 0) for m in row["messages"]}
    assert len(seen) <= 1500
    held = set(wording(name, held_out=True).all())
    assert not seen & held


@pytest.mark.parametrize("name", NAMES)
def test_a_text_policy_is_shown_held_out_words_alone_when_asked(name):
    known, seen = set(wording(name).all()), []

    def policy(view):
        seen.extend(m["content"] for messages in view.messages() for m in messages)
        episode = view.episodes()[0]
        assert [step.action for step in episode.steps] == [
            view.world.actions[a] for a in view.rollout.actions[view.rows[0], : view.time]
        ]
        return uniform(view.world, view.visible)

    evaluate_policy(name, policy, 20, held_out=True)
    assert seen
    assert not known & set(seen)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_call_writes_the_same_bytes_and_more_episodes_only_add(name, tmp_path):
    for folder, episodes in (("a", 30), ("b", 30), ("c", 45)):
        simulate(make(name), "mix", episodes, 4, tmp_path / folder)
    a, b, c = ((tmp_path / folder / f"{name}.jsonl").read_bytes() for folder in "abc")
    assert a == b
    assert c.startswith(a)
    simulate(make(name), "mix", 30, 5, tmp_path / "d")
    assert (tmp_path / "d" / f"{name}.jsonl").read_bytes() != a


@pytest.mark.parametrize("name", NAMES)
def test_ingest_sees_a_log_like_any_other(name, tmp_path, store):
    report = simulate(make(name), "mix", 120, 0, tmp_path)
    run, told, _ = logged(make(name), behaviour("mix"), 120, 0)
    assert ingest(store, [tmp_path]).kept == 120
    assert store.sql("SELECT records, kept, quarantined FROM sources").rows() == [(120, 120, 0)]
    episodes = store.sql("SELECT * FROM episodes ORDER BY native_id")
    assert episodes["success"].sum() == report.successes
    assert episodes["task_id"].n_unique() == len(set(told.scenarios))
    assert set(episodes["policy_id"]) == {"rule-10", "rule-40", "lazy", "random"}
    assert set(episodes.filter(episodes["policy_id"] == "random")["source_kind"]) == {"random_exploration"}
    assert all(list(tools) == list(make(name).tools) for tools in episodes["tools"])
    steps = store.sql("SELECT s.* FROM steps s JOIN episodes USING (episode_id) ORDER BY native_id, step")
    taken = run.taken
    assert steps["action"].to_list() == [make(name).actions[a] for a in run.actions[taken]]
    assert steps["propensity"].to_list() == run.propensities[taken].tolist()
    assert set(steps["propensity_kind"]) == {"logged"}
    assert steps["action_valid"].all()
    world = make(name)
    statuses = [
        None if world.actions[a] in ("respond", "clarify") else world.status(int(code))
        for a, code in zip(run.actions[taken], run.codes[taken][:, 0], strict=True)
    ]
    assert steps["result_status"].to_list() == statuses
    assert not store.sql("SELECT * FROM messages WHERE created_at IS NULL").height


def test_the_horizon_cuts_off_and_does_not_end(tmp_path, store):
    world = make("it-ops", tool_failure=0.9, impatience=0.0)
    report = simulate(world, "random", 60, 0, tmp_path)
    ingest(store, [tmp_path])
    found = store.sql("SELECT ending, success, count(*) FROM episodes GROUP BY ALL").rows()
    cut = {(ending, success): count for ending, success, count in found}
    assert cut["truncated", False] == report.truncated > 0
    assert ("truncated", True) not in cut
    lengths = store.sql(
        "SELECT count(*) FROM steps JOIN episodes USING (episode_id) WHERE ending = 'truncated' GROUP BY episode_id"
    ).rows()
    assert set(lengths) == {(HORIZON,)}
    chances = store.sql("SELECT DISTINCT propensity FROM steps").rows()
    assert chances == [(pytest.approx(1 / 14),)]


def test_a_propensity_belongs_to_one_decision_and_lies_in_its_range(tmp_path, store, conversation):
    row = conversation("a")
    turn = next(m for m in row["messages"] if m.get("tool_calls"))
    turn["propensity"] = 1.5
    both = conversation("b")
    group = next(m for m in both["messages"] if m.get("tool_calls"))
    group["tool_calls"] = [*group["tool_calls"], {**group["tool_calls"][0], "id": "c2"}]
    group["propensity"] = 0.5
    (tmp_path / "log.jsonl").write_text("\n".join(json.dumps(r) for r in (row, both)))
    ingest(store, [tmp_path / "log.jsonl"])
    assert store.sql("SELECT DISTINCT propensity FROM steps WHERE kind = 'tool'").rows() == [(None,)]
    assert store.sql("SELECT level, rule FROM quarantine WHERE rule = 'bad_propensity'").rows() == [
        ("part", "bad_propensity")
    ]


@pytest.mark.parametrize("name", NAMES)
def test_it_is_an_environment_as_gymnasium_wants_it(name):
    check = pytest.importorskip("gymnasium.utils.env_checker")
    check.check_env(gym_env(name), skip_render_check=True)
    env = gym_env(name, tool_failure=0.0)
    first, info = env.reset(seed=3)
    assert info["action_mask"].all()
    assert first["text"].startswith("user: ")
    texts = [env.step(action)[0]["text"] for action in range(3)]
    env.reset(seed=3)
    assert texts == [env.step(action)[0]["text"] for action in range(3)]
    assert "assistant: " in env.render()


def test_actions_may_be_words_and_nonsense_is_answered():
    env = ToolEnv(make("it-ops", tool_failure=0.0, goal_change=0.0, impatience=0.0))
    env.reset(seed=0)
    for text in ("query_logs", "Which errors do you see?", "I am on it.", "rm"):
        observation, reward, ended, cut, _ = env.act(text)
        assert observation["text"]
        assert (reward, ended, cut) == (0.0, False, False)
    assert [step.action for step in env.episode().steps] == [
        "query_logs",
        "clarify",
        "respond",
        "no_tool_of_this_name",
    ]
    assert not env.episode().steps[-1].action_valid
    assert env.episode().steps[-1].result_status == env.world.status(NO_SUCH_TOOL) == "refused"


@pytest.mark.parametrize("name", NAMES)
def test_episodes_begin_anew_in_a_vector_of_them(name):
    pytest.importorskip("gymnasium")
    env = vector_env(name, 32)
    seen, _ = env.reset(seed=0)
    over = np.zeros(32, bool)
    rng = np.random.default_rng(0)
    for _ in range(60):
        seen, rewards, ended, cut, _ = env.step(rng.integers(14, size=32))
        assert env.observation_space.contains(seen)
        assert (seen[over][:, 0] == 0).all()
        assert (rewards[over] == 0).all()
        over = ended | cut
        assert (np.abs(rewards) == over).all()


def test_the_command_says_what_it_wrote_and_refuses_what_it_does_not_know(tmp_path):
    call = ["simulate", "it-ops", "--episodes", "5", "--policy", "random", "--out", str(tmp_path), "--json"]
    report = json.loads(CliRunner().invoke(main, call).output)
    assert report["episodes"] == 5
    assert len((tmp_path / "it-ops.jsonl").read_text().splitlines()) == 5
    wrong = CliRunner().invoke(main, ["simulate", "itops", "--out", str(tmp_path), "--json"])
    assert wrong.exit_code == 2
    assert "it-ops" in wrong.output
    with pytest.raises(UsageError):
        simulate(make("it-ops"), "mix", 0, 0, tmp_path)


def test_a_policy_of_rows_can_be_played(tmp_path):
    found = evaluate_policy("it-ops", seeing(uniform), 200, gamma=0.9)
    assert (np.abs(found.returns) <= 1).all()
    assert found.successes.sum() == (found.returns > 0).sum()


@pytest.mark.parametrize("name", NAMES)
def test_a_policy_at_work_is_shown_the_states_that_a_dataset_holds(name, tmp_path):
    simulate(make(name), "mix", 25, 0, tmp_path)
    log = tmp_path / f"{name}.jsonl"
    logs = list(detect(log)[0].connector.read(Source(log, "log")))
    run, told, _ = logged(make(name), behaviour("mix"), 25, 0)
    for number, episode in enumerate(logs):
        masks = [("respond",)] * (len(episode.steps) + 1)
        stored = states_of(episode, masks, window_turns=10, history=5)
        for step, state in enumerate(stored):
            seen = as_episode(run.world, transcript(run, told, number, step))
            shown = states_of(seen, masks[: step + 1], window_turns=10, history=5)[-1]
            assert shown == state
