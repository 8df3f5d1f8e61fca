"""The format of key steps: what is read, and every mistake named with its line."""

from __future__ import annotations

import json

import numpy as np
import pytest

from logforge.evaluation.credit.key_steps import read_key_steps, scored
from logforge.schemas.errors import CheckFailed, InputError

ROW = {"episode_id": "e1", "step": 1, "annotator": "ana", "key": True}


def written(folder, *rows):
    path = folder / "key_steps.jsonl"
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def test_judgements_are_read_with_their_lines(tmp_path):
    path = written(tmp_path, ROW, "", ROW | {"step": 0, "key": 0.25}, ROW | {"annotator": "bo", "key": False})
    found = read_key_steps(path)
    assert [(one.annotator, one.step, one.score, one.line) for one in found] == [
        ("ana", 1, 1.0, 1),
        ("ana", 0, 0.25, 3),
        ("bo", 1, 0.0, 4),
    ]
    of = scored(path, found, {"e1": 3})
    assert np.array_equal(of["e1"], [[0.25, 1, 0], [0, 0, 0]])


@pytest.mark.parametrize(
    ("row", "rule"),
    [
        ("{", "not_json"),
        ("[" * 5000, "not_json"),
        ("[1]", "missing_field"),
        ({"episode_id": "e1"}, "missing_field"),
        (ROW | {"annotator": ""}, "no_name"),
        (ROW | {"episode_id": 3}, "no_name"),
        (ROW | {"step": -1}, "no_step"),
        (ROW | {"step": True}, "no_step"),
        (ROW | {"step": 1.5}, "no_step"),
        (ROW | {"key": 1.5}, "no_score"),
        (ROW | {"key": "yes"}, "no_score"),
        (ROW | {"key": None}, "no_score"),
        (ROW, "repeated"),
    ],
)
def test_what_is_no_judgement_is_named(tmp_path, row, rule):
    path = written(tmp_path, ROW, row)
    with pytest.raises(CheckFailed) as refused:
        read_key_steps(path)
    (problem,) = refused.value.failures
    assert (problem.path, problem.line, problem.rule) == (str(path), 2, rule)
    assert problem.remedy


def test_every_line_about_what_is_not_there_is_named(tmp_path):
    path = written(tmp_path, ROW, ROW | {"step": 3}, ROW | {"episode_id": "e9"})
    with pytest.raises(CheckFailed) as refused:
        scored(path, read_key_steps(path), {"e1": 3})
    found = [(problem.line, problem.rule) for problem in refused.value.failures]
    assert found == [(2, "unknown_step"), (3, "unknown_episode")]


def test_a_file_that_is_not_there_or_holds_nothing_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        read_key_steps(tmp_path / "none.jsonl")
    with pytest.raises(InputError, match="holds no key step"):
        read_key_steps(written(tmp_path, ""))
