"""Policies lose what they hold of a forgotten episode: `logforge forget --runs`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from logforge.cli.commands import main
from logforge.dataset.build.pipeline import BuildConfig, build_dataset
from logforge.dataset.states.golden import GOLDEN_FILE, of_episodes, read_golden
from logforge.forgetting.pipeline import forget
from logforge.ingestion.pipeline import ingest
from logforge.learning.policies.bundle import CARD, load_policy
from logforge.learning.training.pipeline import train
from logforge.schemas.errors import CheckFailed
from logforge.serving.server import StateServer
from logforge.store.store import Store
from support.made_policy import texts_of_its_own
from support.places import SAMPLES


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A store, its dataset, and a run on it."""
    home = tmp_path_factory.mktemp("runs")
    with Store(home / "s.duckdb") as store:
        ingest(store, [SAMPLES / name for name in ("openai_messages", "star")])
        config = BuildConfig(encoder="hashing", text_size=8)
        build_dataset(store, SAMPLES / "reward.yaml", out=home, config=config)
    train(home / "default", out=home / "runs" / "one", algo="bc", updates=20)
    return home


@pytest.fixture
def home(made, tmp_path) -> Path:
    return shutil.copytree(made, tmp_path / "home")


def golden_in(folder: Path):
    return read_golden((folder / GOLDEN_FILE).read_bytes())


def telling(home):
    """A golden state with texts of its own, and these."""
    golden = golden_in(home / "runs" / "one" / "bc")
    return next((one, own) for one in golden if (own := texts_of_its_own(one, golden)))


def bytes_below(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def call(home, *arguments):
    done = CliRunner().invoke(main, ["forget", "--store", str(home / "s.duckdb"), *arguments])
    assert done.exit_code == 0, done.stderr
    return done


def test_no_byte_of_it_is_left_and_the_policy_serves_as_before(home):
    gone, own = telling(home)
    run = home / "runs" / "one"
    before, server = load_policy(run / "bc"), StateServer(run / "bc")
    states = [one.state for one in golden_in(run / "bc")]
    observations, masks = server.encode(states)
    assert all(text in bytes_below(run) for text in own)
    (run / "bc" / "notes.txt").write_text("a file of somebody's")
    done = call(home, "--episode", gone.episode_id, "--runs", str(home / "runs"))
    assert f"policy {run / 'bc'}: " in done.stdout
    assert done.stderr == ""
    for text in (gone.episode_id.encode(), *own):
        assert text not in bytes_below(home / "runs")
    after = load_policy(run / "bc")
    again = StateServer(run / "bc").encode(states)
    assert np.array_equal(again[0], observations)
    assert (after.choose(observations, masks) == before.choose(observations, masks)).all()
    assert after.card.dataset_hash == before.card.dataset_hash == StateServer(run / "bc").manifest.replaces
    assert (run / "bc" / "notes.txt").read_text() == "a file of somebody's"
    kept = {one.episode_id for one in golden_in(home / "default")}
    assert golden_in(run / "bc") == of_episodes(golden_in(run / "bc"), kept), (
        "those of the dataset, and no other"
    )


def test_without_the_option_it_is_said_and_can_be_done_later(home):
    gone, own = telling(home)
    run = bytes_below(home / "runs")
    done = call(home, "--episode", gone.episode_id)
    assert "runs trained on default may hold texts of it" in done.stderr
    assert f"--episode {gone.episode_id} --runs DIR" in done.stderr
    assert bytes_below(home / "runs") == run
    later = json.loads(call(home, "--episode", gone.episode_id, "--runs", str(home), "--json").stdout)
    assert [part["states"] for part in later["runs"]]
    assert later["episodes"] == 0
    assert not any(text in bytes_below(home / "runs") for text in own)
    once_more = call(home, "--episode", gone.episode_id, "--runs", str(home))
    assert "golden state" not in once_more.stdout


def test_a_dry_run_counts_and_changes_nothing(home):
    gone, _ = telling(home)
    before = bytes_below(home / "runs")
    counted = sum(one.episode_id == gone.episode_id for one in golden_in(home / "runs" / "one" / "bc"))
    done = call(home, "--episode", gone.episode_id, "--runs", str(home / "runs"), "--dry-run", "--json")
    found = {Path(part["path"]).name: part["states"] for part in json.loads(done.stdout)["runs"]}
    assert found["bc"] >= counted > 0
    assert bytes_below(home / "runs") == before


def test_a_policy_that_cannot_be_read_is_named_and_keeps_no_other_from_being_cleaned(home):
    gone, own = telling(home)
    broken = shutil.copytree(home / "runs" / "one" / "bc", home / "runs" / "another")
    (broken / CARD).write_text("{}")
    with (
        Store(home / "s.duckdb") as store,
        pytest.raises(CheckFailed, match="some policies could not be read") as error,
    ):
        forget(store, episode=gone.episode_id, runs=[home / "runs"])
    assert [problem.path for problem in error.value.failures] == [str(broken)]
    assert not any(text in bytes_below(home / "runs" / "one") for text in own)


def test_what_was_taken_out_of_runs_does_not_come_back(home):
    arguments = [
        "forget",
        "--store",
        str(home / "s.duckdb"),
        "--session",
        "x",
        "--revoke",
        "--runs",
        str(home),
    ]
    done = CliRunner().invoke(main, arguments)
    assert (done.exit_code, "leave --runs out" in done.stderr) == (2, True)
