"""Defaults come from the nearest config file; what is wrong in it is said with its place."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from logforge.cli.commands import main
from logforge.cli.config import default_map
from logforge.schemas.errors import SpecError

OPTIONS = {
    "ingest": {"store": "store", "workers": "workers"},
    "build-dataset": {"store": "store", "text-size": "text_size"},
}


def test_the_nearest_file_wins_and_both_places_mean_the_same(tmp_path):
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text(
        '[tool.logforge]\nstore = "outer.duckdb"\n[tool.logforge.build-dataset]\ntext-size = 8\n'
    )
    assert default_map(inner, OPTIONS) == {
        "ingest": {"store": str(tmp_path / "outer.duckdb")},
        "build-dataset": {"store": str(tmp_path / "outer.duckdb"), "text_size": 8},
    }
    (inner / "logforge.toml").write_text('store = "inner.duckdb"\n')
    assert default_map(inner, OPTIONS)["ingest"] == {"store": str(inner / "inner.duckdb")}


def test_a_pyproject_without_our_table_is_passed_over(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert default_map(tmp_path, OPTIONS) == {}


def test_every_unknown_key_is_named_with_the_nearest_valid_one(tmp_path):
    (tmp_path / "logforge.toml").write_text('stoer = "x"\n[ingest]\nworker = 2\n[buld-dataset]\n')
    with pytest.raises(SpecError) as caught:
        default_map(tmp_path, OPTIONS)
    text = str(caught.value)
    for part in ("stoer", "'store'", "ingest.worker", "'workers'", "'build-dataset'", "logforge.toml"):
        assert part in text


def test_the_command_takes_its_default_from_the_file_and_the_option_wins(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logforge.toml").write_text('store = "nowhere.duckdb"\n')
    result = CliRunner().invoke(main, ["sql", "SELECT 1"])
    assert result.exit_code == 4
    assert "nowhere.duckdb" in result.stderr
    other = CliRunner().invoke(main, ["sql", "SELECT 1", "--store", "other.duckdb"])
    assert "other.duckdb" in other.stderr


def test_damaged_toml_is_a_usage_error_also_as_json(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logforge.toml").write_text("store = \n")
    result = CliRunner().invoke(main, ["formats", "--json"])
    assert result.exit_code == 2
    assert json.loads(result.stdout)["error"] == "SpecError"


@pytest.mark.parametrize("play", [[], ["--simulator", "it-ops"]], ids=["estimated", "played"])
def test_what_a_file_sets_for_estimating_does_not_hinder_playing_nor_the_other_way(
    tmp_path, monkeypatch, play
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logforge.toml").write_text("[evaluate]\nfqe-members = 4\nepisodes = 50\n")
    result = CliRunner().invoke(main, ["evaluate", "no_run", *play])
    assert "says how to estimate" not in result.stderr
    assert "needs a simulator" not in result.stderr
    assert "no_run" in result.stderr
