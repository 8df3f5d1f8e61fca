"""Outcomes from files and rules: joined, settled by precedence, explained, kept over a new ingest, and taken away again."""

from __future__ import annotations

import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from logforge.cli.commands import main
from support.places import SAMPLES

LOG = SAMPLES / "openai_messages" / "support.jsonl"
"""Four reports: of the first three the log tells the success, of the fourth nothing."""
LOGGED = {"report-1": True, "report-2": False, "report-3": True, "report-4": None}


def call(*args, code=0):
    result = CliRunner().invoke(main, [str(arg) for arg in args])
    assert result.exit_code == code, result.output + result.stderr
    return result


def told(*args, code=0):
    return json.loads(call(*args, "--json", code=code).stdout)


def rows(query):
    return told("sql", query)["rows"]


def successes():
    return {row["native_id"]: row["success"] for row in rows("SELECT native_id, success FROM episodes")}


def everything():
    """All that labels touch, but the time of their sources."""
    return {
        table: rows(f"SELECT {columns} FROM {table} ORDER BY ALL")
        for table, columns in {
            "episodes": "episode_id, success, score, outcome_from, outcome_unknown",
            "steps": "episode_id, step, logged_reward",
            "labels": "*",
            "quarantine": "*",
            "sources": "*",
        }.items()
    }


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logs").mkdir()
    shutil.copy(LOG, tmp_path / "logs" / "support.jsonl")
    call("ingest", "logs")
    return tmp_path


def write(path, *lines):
    path.write_text("".join(f"{line}\n" for line in lines))


def write_csv(home, *lines, name="labels.csv"):
    write(home / name, "native_id,success,score,comment", *lines)


def test_the_log_as_it_is(home):
    assert successes() == LOGGED


@pytest.mark.parametrize("kind", ["csv", "jsonl", "json", "parquet"])
def test_every_kind_of_file_says_the_same(home, kind):
    found = [{"native_id": "report-4", "success": True, "score": 0.75, "comment": "by hand"}]
    path = home / f"labels.{kind}"
    if kind == "csv":
        write_csv(home, "report-4,true,0.75,by hand")
    elif kind == "parquet":
        pq.write_table(pa.Table.from_pylist(found), path)
    else:
        path.write_text(json.dumps(found if kind == "json" else found[0]))
    report = told("outcomes", path.name)
    assert (report["labels"], report["aside"]) == (1, [])
    (row,) = rows("SELECT success, score, outcome_from FROM episodes WHERE native_id = 'report-4'")
    assert row == {"success": True, "score": 0.75, "outcome_from": f"{path.name}#success+score"}
    (label,) = rows("SELECT comment, kind, precedence FROM labels WHERE kind <> 'log'")
    assert label == {"comment": "by hand", "kind": "file", "precedence": 10}
    call("check")


def test_the_same_file_twice_changes_nothing(home):
    write_csv(home, "report-4,true,,", "nobody,true,,", "report-3,unknown,,")
    assert not told("outcomes", "labels.csv")["unchanged"]
    before = everything()
    assert told("outcomes", "labels.csv")["unchanged"]
    assert everything() == before


def test_a_file_that_changed_replaces_what_it_said(home):
    write_csv(home, "report-3,false,,", "report-4,true,,")
    call("outcomes", "labels.csv")
    assert successes() == {**LOGGED, "report-3": False, "report-4": True}
    write_csv(home, "report-4,false,,")
    call("outcomes", "labels.csv")
    assert successes() == {**LOGGED, "report-4": False}


def test_a_file_goes_before_the_log_and_the_log_before_a_rule(home):
    write_csv(home, "report-2,true,,")
    report = told("outcomes", "labels.csv")
    (found,) = report["contradictions"]
    assert (found["says"], found["other_says"], found["other"], found["counts"]) == (
        True, False, "the log success", True,
    )  # fmt: skip
    assert successes()["report-2"] is True
    call("outcomes", "labels.csv", "--precedence", "-1")
    assert successes() == LOGGED, "and the store keeps another precedence that is given"
    report = told("outcomes", "--from", "native_id = 'report-2' OR native_id = 'report-4'")
    assert (report["judged"], report["agreed"]) == (3, 0)
    assert report["kappa"] < 0
    assert successes() == {**LOGGED, "report-4": True}, (
        "the file comes after the log now, and so does the rule"
    )


def test_labels_of_equal_precedence_that_disagree_leave_it_unknown_with_the_reason(home):
    write_csv(home, "report-1,true,0.5,", name="a.csv")
    write_csv(home, "report-1,false,0.5,", name="b.csv")
    call("outcomes", "a.csv")
    report = told("outcomes", "b.csv")
    assert {item["other"] for item in report["contradictions"]} == {"a.csv:2", "the log success"}
    (row,) = rows("SELECT success, score, outcome_unknown FROM episodes WHERE native_id = 'report-1'")
    assert (row["success"], row["score"]) == (None, 0.5)
    assert "a.csv#success+score says true" in row["outcome_unknown"]
    assert "b.csv#success+score says false" in row["outcome_unknown"]
    call("outcomes", "b.csv", "--remove")
    assert successes() == LOGGED
    call("outcomes", "a.csv", "--remove")
    assert rows("SELECT * FROM labels") == []


def test_a_rule_leaves_unknown_what_is_unknown_and_does_not_read_itself(home):
    report = told("outcomes", "--from", "NOT success")
    assert report["labels"] == 3
    assert successes() == LOGGED
    again = told("outcomes", "--from", "coalesce(success, native_id = 'report-4')")
    assert again["labels"] == 4
    assert successes()["report-4"] is True
    before = everything()
    assert told("outcomes", "--from", "coalesce(success, native_id = 'report-4')")["unchanged"]
    assert everything() == before
    assert "no_column" in call("outcomes", "--from", "no_column > 1", code=2).stderr


def test_rewards_of_steps(home):
    write(
        home / "rewards.jsonl",
        '{"id": "report-4", "step": 0, "reward": 0.5, "comment": "good"}',
        '{"id": "report-4", "step": 99, "reward": 1}',
        '{"id": "report-4", "step": "first", "reward": 1}',
    )
    report = told("outcomes", "rewards.jsonl")
    assert (report["labels"], report["steps"]) == (1, 1)
    assert [(item["rule"], item["rows"]) for item in report["aside"]] == [("unmatched_label", 2)]
    paid = "SELECT step, logged_reward FROM steps WHERE logged_reward IS NOT NULL"
    assert rows(paid) == [{"step": 0, "logged_reward": 0.5}]
    assert successes() == LOGGED, "the reward of a step is no verdict on the run"
    call("check")
    call("outcomes", "rewards.jsonl", "--remove")
    assert rows(paid) == []


def test_rows_that_name_no_one_episode_are_set_aside_with_their_line(home):
    write(
        home / "labels.csv",
        "task_id,success",
        "weekly-refunds,true",
        "no-such-task,true",
        ",true",
        "late-parcels,[]",
    )
    report = told("outcomes", "labels.csv", code=1)
    assert {item["rule"]: item["first"] for item in report["aside"]} == {
        "ambiguous_label": "labels.csv:2",
        "unmatched_label": "labels.csv:3",
        "nameless_label": "labels.csv:4",
        "unreadable_outcome": "labels.csv:5#/success",
    }
    (source,) = rows("SELECT records, kept, quarantined FROM sources WHERE format = 'outcomes'")
    assert source == {"records": 4, "kept": 0, "quarantined": 4}
    assert successes() == LOGGED
    call("check")
    call("quarantine", "--replay", code=0)


def test_a_column_of_ids_of_another_name(home):
    write(home / "labels.csv", "run,resolved", "report-4,1")
    assert "--id" in call("outcomes", "labels.csv", code=2).stderr
    call("outcomes", "labels.csv", "--id", "run")
    assert successes()["report-4"] is True


def test_secrets_in_comments_are_not_stored(home):
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    write_csv(home, f"report-4,true,,the key is {secret}")
    call("outcomes", "labels.csv")
    (label,) = rows("SELECT comment FROM labels WHERE kind = 'file'")
    assert secret not in label["comment"]
    assert "the key is <" in label["comment"]


def test_a_log_that_is_read_again_keeps_its_labels(home):
    write_csv(home, "report-1,false,,", "report-4,true,,")
    call("outcomes", "labels.csv")
    log = home / "logs" / "support.jsonl"
    more = log.read_text().splitlines()[0].replace('"report-1"', '"report-5"')
    write(log, log.read_text().strip(), more)
    call("ingest", "logs")
    assert successes() == {**LOGGED, "report-1": False, "report-4": True, "report-5": True}
    call("check")
    call("outcomes", "labels.csv", "--remove")
    assert successes() == {**LOGGED, "report-5": True}


def test_what_a_log_says_now_comes_back_when_its_labels_go(home):
    log = home / "logs" / "2781.json"
    shutil.copy(SAMPLES / "star" / "2781.json", log)
    call("ingest", "logs")
    found = "SELECT success, score FROM episodes WHERE native_id = '2781'"
    assert rows(found) == [{"success": True, "score": None}]
    write(home / "labels.jsonl", json.dumps({"id": 2781, "success": True, "score": 3}))
    call("outcomes", "labels.jsonl")
    dialogue = json.loads(log.read_text())
    del dialogue["UserQuestionnaire"], dialogue["WizardQuestionnaire"]
    log.write_text(json.dumps(dialogue))
    call("ingest", "logs")
    assert rows(found) == [{"success": True, "score": 3}]
    call("check")
    call("outcomes", "labels.jsonl", "--remove")
    assert rows(found) == [{"success": None, "score": None}]


def test_a_label_waits_for_its_log(home):
    log = home / "logs" / "support.jsonl"
    whole = log.read_text()
    write_csv(home, "report-4,true,,")
    call("outcomes", "labels.csv")
    log.write_text("".join(whole.splitlines(keepends=True)[:3]))
    call("ingest", "logs")
    call("check")
    log.write_text(whole)
    call("ingest", "logs")
    assert successes() == {**LOGGED, "report-4": True}


def test_forgetting_the_file_gives_the_log_back_and_keeps_the_file_out(home):
    write_csv(home, "report-1,false,,", "report-4,true,,")
    call("outcomes", "labels.csv")
    call("forget", "--source", "labels.csv")
    assert successes() == LOGGED
    assert rows("SELECT * FROM labels") == []
    assert "--revoke" in call("outcomes", "labels.csv", code=2).stderr
    call("check")
    call("forget", "--source", "labels.csv", "--revoke")
    call("outcomes", "labels.csv")
    assert successes()["report-4"] is True


def test_forgetting_an_episode_takes_its_labels_and_names_the_file(home):
    write_csv(home, "report-1,false,,", "report-4,true,,it was kind")
    call("outcomes", "labels.csv")
    assert "labels.csv" in told("forget", "--session", "report-4")["files"]
    assert not rows("SELECT * FROM labels WHERE comment IS NOT NULL")
    call("check")
    call("outcomes", "labels.csv")
    told_of = json.dumps(everything())
    assert "report-4" not in told_of
    assert "it was kind" not in told_of
    call("check")


def test_a_build_that_lacks_outcomes_names_the_command_and_explain_tells_where_they_came_from(home):
    log = home / "logs" / "support.jsonl"
    log.write_text(log.read_text().replace('"success": true, ', "").replace('"success": false, ', ""))
    call("ingest", "logs")
    write(home / "reward.yaml", "gamma: 0.9", "terms:", "  win: {at: terminal, when: success, value: 1}")
    build = ("build-dataset", "--reward", "reward.yaml", "--encoder", "hashing", "--max-missing", "50%")
    assert "logforge outcomes FILE" in call(*build, code=1).stderr
    write_csv(home, "report-1,true,,", "report-2,false,,wrong sum", "report-3,true,,", "report-4,true,,")
    call("outcomes", "labels.csv")
    call(*build)
    (row,) = rows("SELECT episode_id FROM episodes WHERE native_id = 'report-2'")
    text = call("explain", row["episode_id"]).stdout
    assert "outcome from labels.csv#success" in text
    assert "file says success False: wrong sum  (precedence 10) at labels.csv:3" in text
    write_csv(home, "report-2,true,,")
    assert "labels.csv has changed" in call("explain", row["episode_id"]).stdout
    call("outcomes", "labels.csv")
    assert "built with success False; the store says True now" in call("explain", row["episode_id"]).stdout


def test_what_cannot_be_asked_for(home):
    call("outcomes", code=2)
    call("outcomes", "labels.csv", "--from", "true", code=2)
    call("outcomes", "absent.csv", code=1)
    assert "none at all" in call("outcomes", "absent.csv", "--remove", code=2).stderr
