"""What is special in the rollouts of trainers and their environments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from logforge.connectors.detection import detect
from logforge.connectors.records.base import Source
from logforge.schemas.episode import Episode
from support.places import DATA
from support.read_logs import assert_sound, episodes, rejects, resolve, tool_steps

FILES = DATA / "connectors"


def read(path: Path, name: str) -> list[Any]:
    claim = detect(path)[0]
    assert claim.connector.name == name
    readings = list(claim.connector.read(Source(path, "log")))
    assert_sound(readings)
    return readings


def written(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "x.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def roles(episode: Episode) -> str:
    return " ".join(message.role[0] for message in episode.messages)


# --- verifiers --------------------------------------------------------------------------------------------------------

CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}
ROLLOUT: dict[str, Any] = {
    "example_id": 7,
    "task": "sums",
    "prompt": [{"role": "system", "content": "Add."}, {"role": "user", "content": "1 + 2?"}],
    "completion": [
        {"role": "assistant", "content": "", "tool_calls": [json.dumps(CALL)]},
        {"role": "tool", "tool_call_id": "c1", "content": "3"},
        {"role": "assistant", "content": "3"},
    ],
    "answer": "3",
    "reward": 1.0,
    "is_completed": True,
    "is_truncated": False,
    "stop_condition": "no_tools_called",
}


def test_a_rollout_is_one_episode_with_the_calls_that_are_json_text(tmp_path):
    (episode,) = read(written(tmp_path, ROLLOUT), "verifiers")
    (step,) = tool_steps(episode)
    assert (step.action, step.arguments, step.result) == ("add", '{"a":1,"b":2}', "3")
    assert roles(episode) == "s u a t a"
    assert (episode.score, episode.success, episode.reference) == (1.0, None, "3")
    assert (episode.ending, episode.task_id, episode.task) == ("terminal", "7", "1 + 2?")
    assert json.loads(episode.metadata)["task"] == "sums"


@pytest.mark.parametrize(
    ("more", "reason", "score"),
    [
        ({"is_truncated": True}, "the log says so", 1.0),
        ({"stop_condition": "max_turns_reached"}, "the limit of turns", 1.0),
        ({"stop_condition": "max_total_completion_tokens_reached"}, "the model's output limit", 1.0),
        ({"stop_condition": "prompt_too_long"}, "context overflow", 1.0),
        ({"stop_condition": "timeout_reached"}, "the time limit", 1.0),
        ({"is_completed": False}, "the log says that it was not completed", 1.0),
        ({"error": "ModelError()", "reward": 0.0}, "an error stopped it", None),
        ({"error": {"error": "ModelError"}, "stop_condition": "has_error"}, "an error stopped it", None),
    ],
)
def test_what_cut_a_rollout_and_when_its_reward_judges_nothing(tmp_path, more, reason, score):
    (episode,) = read(written(tmp_path, ROLLOUT | more), "verifiers")
    assert (episode.ending, episode.ending_reason, episode.score) == ("truncated", reason, score)


def test_the_prompt_is_history_and_no_decision(tmp_path):
    shown = [
        {"role": "user", "content": "2 + 2?"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "4"},
        {"role": "assistant", "content": "4"},
        {"role": "user", "content": "1 + 2?"},
    ]
    (episode,) = read(written(tmp_path, ROLLOUT | {"prompt": shown}), "verifiers")
    assert [step.kind for step in episode.steps] == ["tool", "respond"]
    assert roles(episode) == "u a u a u a t a"
    assert [resolve(tmp_path / "x.jsonl", m.locator) for m in episode.messages[2:3]] == [shown[2]]


def test_texts_are_read_where_no_messages_are(tmp_path):
    (episode,) = read(written(tmp_path, ROLLOUT | {"prompt": "1 + 2 =", "completion": " 3"}), "verifiers")
    assert [(m.role, m.content) for m in episode.messages] == [("user", "1 + 2 ="), ("assistant", " 3")]
    assert [step.kind for step in episode.steps] == ["respond"]


def test_rollouts_of_one_prompt_are_of_one_group(tmp_path):
    one, two, other = episodes(
        read(
            written(
                tmp_path, ROLLOUT, ROLLOUT | {"reward": 0.0}, ROLLOUT | {"prompt": "2 + 2 =", "example_id": 8}
            ),
            "verifiers",
        )
    )
    assert one.group_id == two.group_id != other.group_id


def test_what_an_environment_saved_is_read():
    done, wrong, stopped = episodes(read(FILES / "verifiers" / "results.jsonl", "verifiers"))
    assert [(s.action, s.arguments, s.result) for s in tool_steps(done)] == [("add", '{"a":17,"b":25}', "42")]
    assert [(e.score, e.reference, e.tools) for e in (done, wrong)] == [
        (1.0, "42", ["add"]),
        (0.0, "7", ["add"]),
    ]
    assert (wrong.ending, wrong.ending_reason) == ("terminal", "the outcome is known")
    assert [step.result for step in tool_steps(stopped)] == ["3", None]
    assert (stopped.ending, stopped.ending_reason) == ("truncated", "the limit of turns")


def test_later_versions_keep_ids_thoughts_and_errors():
    found, cut, broken = episodes(read(FILES / "verifiers" / "saved.jsonl", "verifiers"))
    assert [(s.tool_call_id, s.result) for s in tool_steps(found)] == [("t0", "none"), ("t1", "7")]
    assert (found.messages[2].thought, found.tools) == ("Look it up.", ["find"])
    assert (cut.ending_reason, cut.score) == ("the model's output limit", 0.0)
    assert (broken.ending, broken.ending_reason, broken.score) == ("truncated", "an error stopped it", None)


def test_rows_of_trl_are_not_taken(tmp_path):
    path = written(tmp_path, {"prompt": "x", "completion": "y", "reward": 1.0})
    assert [claim.connector.name for claim in detect(path)] == ["trl"]


def test_a_trace_s_ways_are_episodes_and_each_response_counts_once():
    first, second, cut, broken = episodes(
        read(FILES / "verifiers_traces" / "traces.jsonl", "verifiers_traces")
    )
    assert [(s.action, s.arguments, s.result) for s in tool_steps(first)] == [
        ("find", '{"word":"ferry"}', "7")
    ]
    assert (roles(first), [s.kind for s in first.steps]) == ("s u a t a", ["tool", "respond"])
    assert (roles(second), [s.kind for s in second.steps]) == ("s u u a", ["respond"])
    assert [(e.score, e.ending, e.records) for e in (first, second)] == [
        (0.75, "terminal", 1),
        (0.75, "terminal", 0),
    ]
    assert (first.model, first.tools, first.messages[2].thought) == ("stand-in", ["find"], "Look it up.")
    assert first.messages[2].created_at == 1_764_547_201_000_000
    assert (cut.ending, cut.ending_reason, cut.score) == ("truncated", "the limit of turns", 0.0)
    assert (broken.ending_reason, broken.score, broken.steps) == ("an error stopped it", None, [])


def test_what_an_earlier_way_told_is_history_in_a_later_one(tmp_path):
    node = {"sampled": True, "message": {"role": "assistant", "content": None, "tool_calls": [CALL]}}
    nodes = [
        {"message": {"role": "user", "content": "1 + 2?"}},
        node | {"parent": 0},
        {"parent": 1, "message": {"role": "tool", "tool_call_id": "c1", "content": "3"}},
        {"parent": 2, "sampled": True, "message": {"role": "assistant", "content": "3"}},
        {"parent": 2, "sampled": True, "message": {"role": "assistant", "content": "three"}},
    ]
    trace = {"task": {}, "nodes": nodes, "rewards": {}}
    one, two = read(written(tmp_path, {"task": {}, "env": {}, "traces": [trace]}), "verifiers_traces")
    assert [len(e.steps) for e in (one, two)] == [2, 1]
    assert (roles(one), roles(two)) == ("u a t a", "u a u a")
    assert (one.score, two.score) == (None, None)


# --- ART --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["groups.jsonl", "0004.parquet"])
def test_what_art_wrote_says_the_same_in_both_forms(name):
    found = episodes(read(FILES / "art" / name, "art"))
    first, cut, *further, sorted_mail = found
    assert [(s.action, s.arguments, s.result) for s in tool_steps(first)] == [
        ("search_inbox", '{"words":["ferry"]}', '[{"mail_id": "m7"}]'),
        ("read_mail", '{"mail_id":"m7"}', "The ferry leaves at 9:40."),
    ]
    assert first.messages[-1].thought == ("The mail says so." if name == "groups.jsonl" else None)
    assert (first.score, first.ending, first.tools) == (1.0, "terminal", ["read_mail", "search_inbox"])
    assert first.group_id == cut.group_id != sorted_mail.group_id
    assert json.loads(first.metadata)["metadata"] == {"scenario_id": "s-12", "split": "train"}
    assert json.loads(first.metadata)["metrics"] == {"correct": True, "turns": 3}
    assert [step.kind for step in sorted_mail.steps] == ["respond"]
    assert roles(sorted_mail) == "s u a u a"
    if name == "groups.jsonl":
        assert (cut.ending, cut.ending_reason) == ("truncated", "the model's output limit")
        (history,) = further
        assert (history.parent_episode_id, history.score, history.records) == (cut.episode_id, 0.0, 0)
        assert history.locator == "log:1#/trajectories/1/additional_histories/0"
        assert [episode.records for episode in found] == [1, 0, 0, 1]
    else:
        assert further == []  # that form does not hold it, nor why a choice ended


def test_a_message_that_is_no_choice_was_given(tmp_path):
    said = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]
    (episode,) = read(written(tmp_path, {"messages_and_choices": said, "reward": 0.5}), "art")
    assert (roles(episode), episode.steps) == ("u a", [])


def test_a_group_with_a_trajectory_that_is_none_is_set_aside(tmp_path):
    good = {"messages_and_choices": [{"role": "user", "content": "Hi"}], "reward": 0.5}
    (reject,) = read(written(tmp_path, {"trajectories": [good, {"reward": 1.0}]}), "art")
    assert (reject.rule, reject.level) == ("not_a_conversation", "record")


# --- verl -------------------------------------------------------------------------------------------------------------

LINE: dict[str, Any] = {"input": "user\nWhere is it?\nassistant\n", "gts": "Riga", "score": 1.0, "step": 3}
CALLED = 'I look.\n<tool_call>\n{"name": "find", "arguments": {"n": 1}}\n</tool_call>'


def test_a_response_is_one_turn(tmp_path):
    (episode,) = read(written(tmp_path, LINE | {"output": "Riga", "acc": True}), "verl")
    assert [(m.role, m.content) for m in episode.messages] == [("user", LINE["input"]), ("assistant", "Riga")]
    assert (episode.score, episode.reference, episode.ending) == (1.0, "Riga", "terminal")
    assert json.loads(episode.metadata) == {"acc": True, "score": 1.0, "step": 3}


def test_a_response_with_calls_is_cut_where_the_template_is(tmp_path):
    answered = "\nuser\n<tool_response>\nRiga\n</tool_response>\nassistant\n"
    (episode,) = read(written(tmp_path, LINE | {"output": f"{CALLED}{answered}Riga."}), "verl")
    assert roles(episode) == "u a t a"
    assert [(s.kind, s.result) for s in episode.steps] == [("tool", "Riga"), ("respond", None)]


def test_words_behind_a_call_are_of_a_turn_that_nobody_marked(tmp_path):
    readings = read(
        written(tmp_path, LINE | {"output": f"{CALLED}\nipython\nRiga\nassistant\nRiga."}), "verl"
    )
    (episode,) = episodes(readings)
    assert episode.steps == []
    assert [part.rule for part in rejects(readings)] == ["unparsed_call"]


# --- RLlib ------------------------------------------------------------------------------------------------------------

BATCH: dict[str, Any] = {
    "type": "SampleBatch",
    "obs": ["hall", "door"],
    "new_obs": ["door", "yard"],
    "actions": [2, 0],
    "rewards": [0.0, 1.5],
    "terminateds": [False, True],
    "truncateds": [False, False],
    "eps_id": [7, 7],
    "t": [0, 1],
    "action_prob": [0.5, 0.25],
}


def test_a_batch_s_steps_are_an_episode_with_rewards_and_propensities(tmp_path):
    (episode,) = read(written(tmp_path, BATCH), "rllib")
    assert [(s.action, s.result, s.logged_reward, s.propensity) for s in episode.steps] == [
        ("2", "door", 0.0, 0.5),
        ("0", "yard", 1.5, 0.25),
    ]
    assert (episode.native_id, episode.ending, episode.source_kind) == ("7", "terminal", "agent_log")
    assert [resolve(tmp_path / "x.jsonl", m.locator) for m in episode.messages if m.role != "assistant"] == [
        "hall",
        "door",
        "yard",
    ]


def test_what_rllib_wrote_is_read_over_its_batches():
    found = episodes(read(FILES / "rllib" / "output.jsonl", "rllib"))
    assert [(e.native_id, len(e.steps), e.ending, e.policy_id, e.records) for e in found] == [
        ("101", 3, "terminal", None, 1),
        ("102", 5, "truncated", None, 1),
        ("103", 2, "truncated", None, 1),
        ("104", 2, "terminal", "left", 1),
        ("104", 2, "terminal", "right", 0),
    ]
    assert all(step.result is not None for episode in found for step in episode.steps)


def test_packed_columns_are_set_aside_and_never_unpacked():
    readings = read(FILES / "rllib" / "packed.jsonl", "rllib")
    (episode,) = episodes(readings)
    assert [(s.action, s.logged_reward, s.result) for s in episode.steps] == [
        ("0", 1.0, None),
        ("0", 1.0, None),
    ]
    assert [(r.rule, r.level, r.locator, r.episode_id) for r in rejects(readings)] == [
        ("packed_column", "part", "log:1#/obs", episode.episode_id),
        ("packed_column", "part", "log:1#/new_obs", episode.episode_id),
    ]


@pytest.mark.parametrize(
    ("actions", "rule"),
    [
        ("BCJNGGhAoQAAAAA=", "packed_column"),
        (["BCJNGGhAoQAAAAA=", "BCJNGGhAoQAAAAA="], "packed_column"),
        ([[0.5], [0.25]], "not_a_step"),
        ([], "not_a_step"),
        ({"move": [1, 2]}, "not_a_step"),
    ],
)
def test_a_batch_whose_actions_cannot_be_told_is_set_aside_whole(tmp_path, actions, rule):
    readings = read(written(tmp_path, BATCH | {"actions": actions}), "rllib")
    whole = [r for r in readings if r.level == "record"]
    assert (episodes(readings), [(r.rule, r.records) for r in whole]) == ([], [(rule, 1)])


def test_a_step_whose_action_is_no_choice_is_set_aside_alone_and_parts_its_neighbours(tmp_path):
    columns = {key: value + value[-1:] for key, value in BATCH.items() if isinstance(value, list)}
    batch = BATCH | columns | {"actions": [2, 0.5, 1], "t": [0, 1, 2], "terminateds": [False, False, True]}
    readings = read(written(tmp_path, batch), "rllib")
    (episode,), (part,) = episodes(readings), rejects(readings)
    assert [(s.action, s.result) for s in episode.steps] == [("2", "door"), ("1", "yard")]
    assert (part.rule, part.level, part.locator) == ("not_a_step", "part", "log:1#/actions/1")


def test_a_line_that_is_there_twice_is_a_copy_and_one_without_ids_is_not(tmp_path):
    assert [item.records for item in read(written(tmp_path, BATCH, BATCH), "rllib")] == [1, 1]
    bare = {key: value for key, value in BATCH.items() if key not in ("eps_id", "t")}
    assert len(episodes(read(written(tmp_path, bare, bare), "rllib"))) == 2


def test_the_probability_is_told_by_its_logarithm_and_a_bad_one_is_set_aside(tmp_path):
    batch = {key: value for key, value in BATCH.items() if key != "action_prob"}
    (episode,) = read(written(tmp_path, batch | {"action_logp": [-0.6931471805599453, 0.5]}), "rllib")
    assert [step.propensity for step in episode.steps] == [pytest.approx(0.5), None]
    readings = read(written(tmp_path, batch | {"action_prob": [1.5, 0]}), "rllib")
    assert [r.rule for r in rejects(readings)] == ["bad_propensity", "bad_propensity"]


def test_a_column_without_a_value_for_each_step_is_set_aside(tmp_path):
    readings = read(written(tmp_path, BATCH | {"seq_lens": [2], "vf_preds": [0.1, 0.2]}), "rllib")
    (episode,), (part,) = episodes(readings), rejects(readings)
    assert (part.rule, part.locator) == ("bad_column", "log:1#/seq_lens")
    assert json.loads(episode.metadata)["rows"] == [{"vf_preds": 0.1}, {"vf_preds": 0.2}]


def test_equal_episodes_of_a_file_without_ids_are_samples(tmp_path):
    bare = {key: value for key, value in BATCH.items() if key not in ("eps_id", "t")}
    path = written(tmp_path, bare, bare, bare)
    readings = list(detect(path)[0].connector.read(Source(path, "log", samples=True)))
    assert_sound(readings)
    assert len({episode.episode_id for episode in episodes(readings)}) == 3
    copies = read(path, "rllib")
    assert len({episode.episode_id for episode in episodes(copies)}) == 1
