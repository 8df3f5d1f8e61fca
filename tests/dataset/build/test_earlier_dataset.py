"""A later build that keeps an earlier one's ids and text columns: policies go on from the one to the other."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

from logforge.cli.commands import main
from logforge.dataset.build.earlier_dataset import earlier_arguments, earlier_reduction
from logforge.learning.policies.bundle import load_policy
from logforge.schemas.errors import Mismatch
from logforge.shards.reader import load_shards, read_manifest
from support.places import SAMPLES

SMALL = ["--updates", "5", "--batch-size", "16", "--algo", "bc", "--json"]


def called(*arguments):
    done = CliRunner().invoke(main, list(map(str, arguments)))
    assert done.exit_code == 0, done.output
    return done


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A dataset of some logs, and two of more of them: one like it, one not."""
    home = tmp_path_factory.mktemp("earlier")
    for store, sources in (("a.duckdb", ["tau_bench"]), ("b.duckdb", ["tau_bench", "claude_code"])):
        called("ingest", *(SAMPLES / source for source in sources), "--store", home / store)
    build = ("build-dataset", "--reward", SAMPLES / "reward.yaml", "--encoder", "hashing", "--out", home)
    called(*build, "--store", home / "a.duckdb", "--name", "first")
    called(*build, "--store", home / "b.duckdb", "--name", "like", "--like", home / "first")
    called(*build, "--store", home / "b.duckdb", "--name", "ids", "--vocabulary", home / "first")
    called("train", home / "first", "--out", home / "run", *SMALL)
    return home


def test_ids_and_text_columns_stay_and_new_tools_follow(home):
    first, like, ids = (read_manifest(home / name) for name in ("first", "like", "ids"))
    assert like.actions[: len(first.actions)] == first.actions
    assert len(like.actions) > len(first.actions)
    assert like.checksums["encoder/pca.npz"] == first.checksums["encoder/pca.npz"]
    assert ids.checksums["encoder/pca.npz"] != first.checksums["encoder/pca.npz"]


def test_a_policy_goes_on_with_the_dataset_like_its_own(home):
    on = ("--warm-start", home / "run", "--ewc", "1", "--replay", home / "first", "--learning-rate", "1e-9")
    called("train", home / "like", "--out", home / "on", *SMALL, *on)
    before, after = load_policy(home / "run" / "bc"), load_policy(home / "on" / "bc")
    held = load_shards(home / "like", "train")
    assert after.card.actions == held.manifest.actions
    known = len(before.card.actions)
    places = {part.name: part for part in held.manifest.layout}
    columns = np.concatenate(
        [
            np.arange(places[part.name].start, places[part.name].start + part.stop - part.start)
            for part in before.card.layout
        ]
    )
    rows = np.zeros((40, held.observation_size), np.float32)
    rows[:, columns] = held.observations[:40][:, columns]
    theirs = before.scores(rows[:, columns])
    assert np.allclose(after.scores(rows)[:, :known], theirs, atol=1e-4)


def test_a_dataset_with_other_text_columns_is_refused(home):
    on = ("--warm-start", home / "run", *SMALL)
    done = CliRunner().invoke(main, list(map(str, ("train", home / "ids", "--out", home / "no", *on))))
    assert done.exit_code == 1
    assert "encoder files" in done.stderr
    assert "--like" in done.stderr


def test_a_reduction_of_another_encoder_is_refused(home, monkeypatch):
    assert earlier_reduction(None, "hashing") is None
    monkeypatch.setattr("logforge.texts.hashing.HashingEncoder.revision", "another")
    with pytest.raises(Mismatch, match="encoder of"):
        earlier_reduction(home / "first", "hashing")


def test_templates_of_arguments_keep_their_places(home):
    second = ("--action-level", "tool+template")
    build = ("build-dataset", "--reward", SAMPLES / "reward.yaml", "--encoder", "hashing", "--out", home)
    called(*build, "--store", home / "a.duckdb", "--name", "second", *second)
    called(*build, "--store", home / "b.duckdb", "--name", "more", *second, "--like", home / "second")
    one, more = (read_manifest(home / name) for name in ("second", "more"))
    assert more.argument_templates[: len(one.argument_templates)] == one.argument_templates
    assert len(more.argument_templates) > len(one.argument_templates), "those of the tools of the other logs"
    assert more.argument_numbers[: len(one.argument_numbers)] == one.argument_numbers
    load_shards(home / "more", "train").verify()
    assert earlier_arguments(home / "first") is None
    assert earlier_arguments(home / "more").templates == more.argument_templates
