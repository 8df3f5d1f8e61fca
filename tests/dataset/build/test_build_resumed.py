"""A build that is killed is completed by the next one, which encodes nothing twice; one more log costs its own texts alone."""

from __future__ import annotations

import random
import time

import pytest

from logforge.core import scratch_files
from logforge.dataset.build.pipeline import BuildConfig, build_dataset
from logforge.dataset.weights.parts import Weights
from logforge.ingestion.pipeline import ingest
from logforge.store.store import Store
from logforge.texts.encoders import is_blank
from logforge.texts.hashing import HashingEncoder
from support.killing import kill_build

SPEC = """
gamma: 0.9
terms:
  success: {when: success, value: 10, at: terminal}
  step_cost: {value: -0.1}
"""
CONFIG = BuildConfig(encoder="hashing", text_size=8)
ROUNDS = 6


@pytest.fixture
def logs(tmp_path, conversation, write_jsonl):
    """Thirty episodes with texts of their own."""
    (tmp_path / "reward.yaml").write_text(SPEC)
    rows = [conversation(f"item {n}", result=f"result {n}") for n in range(30)]
    write_jsonl(tmp_path / "logs" / "a.jsonl", rows)
    return tmp_path / "logs"


@pytest.fixture
def encoded(monkeypatch):
    """The texts that the encoder is given, as they come."""
    given, encode = [], HashingEncoder.encode

    def counting(self, texts):
        given.extend(texts)
        return encode(self, texts)

    monkeypatch.setattr(HashingEncoder, "encode", counting)
    return given


def filled(tmp_path, logs, name="s"):
    store = Store(tmp_path / f"{name}.duckdb")
    ingest(store, [logs])
    return store


def built(store, tmp_path, name="d", config=CONFIG):
    return build_dataset(store, tmp_path / "reward.yaml", name="d", out=tmp_path / name, config=config)


def test_builds_killed_at_any_moment_end_in_the_dataset_of_one_clean_build(tmp_path, logs):
    with filled(tmp_path, logs, "clean") as store:
        start = time.monotonic()
        expected = built(store, tmp_path, "clean").hash
        length = time.monotonic() - start
    filled(tmp_path, logs).close()
    chance, killed = random.Random(3), 0
    for _ in range(ROUNDS):
        killed += kill_build(
            tmp_path / "s.duckdb", tmp_path / "reward.yaml", tmp_path / "d", chance.uniform(0, length)
        )
    assert killed, "no build lived to its end each time"
    with Store(tmp_path / "s.duckdb") as store:
        assert built(store, tmp_path).hash == expected
        assert store.con.sql("SELECT hash FROM datasets").fetchall() == [(expected,)]
    left = {path.name for path in (tmp_path / "d").iterdir()}
    assert left == {"d", ".d.lock"}, "what a killed build left beside the dataset is gone"


def test_what_a_killed_build_has_committed_is_not_encoded_again(tmp_path, logs, encoded, monkeypatch):
    monkeypatch.setattr(scratch_files, "TOGETHER", 8)

    class Killed(BaseException):
        pass

    def killed_at(done, total, what):
        if done > 20:
            raise Killed

    with filled(tmp_path, logs, "clean") as store:
        expected = built(store, tmp_path, "clean").hash
        whole = set(encoded)
    encoded.clear()
    with filled(tmp_path, logs) as store:
        with pytest.raises(Killed):
            build_dataset(
                store, tmp_path / "reward.yaml", out=tmp_path / "d", config=CONFIG, progress=killed_at
            )
        first = set(encoded)
        assert 20 < len(first) < len(whole)
        encoded.clear()
        assert built(store, tmp_path).hash == expected
        assert set(encoded) == whole - first
        assert len(encoded) == len(whole - first), "each once"


def test_one_more_log_encodes_its_own_texts_and_touches_no_other_row(
    tmp_path, logs, encoded, conversation, write_jsonl
):
    config = BuildConfig(encoder="hashing", text_size=8, weights=Weights(off_task=1.0))
    rows = "SELECT * FROM transitions WHERE episode_id IN (SELECT unnest(?)) ORDER BY episode_id, step"
    with filled(tmp_path, logs) as store:
        built(store, tmp_path, config=config)
        ids = [row[0] for row in store.con.sql("SELECT episode_id FROM episodes").fetchall()]
        before, known = store.con.execute(rows, [ids]).fetchall(), set(encoded)
        encoded.clear()
        write_jsonl(logs / "b.jsonl", [conversation("a new item", result="its result")])
        ingest(store, [logs])
        again = built(store, tmp_path, config=config).hash
        said = store.con.sql("SELECT DISTINCT content FROM messages").fetchall()
        new = {text for (text,) in said if not is_blank(text)} - known
        assert new
        assert set(encoded) - known == set(encoded), "nothing is encoded again"
        assert new <= set(encoded)
        assert len(encoded) < len(known) / 4
        assert store.con.execute(rows, [ids]).fetchall() == before
    with filled(tmp_path, logs, "fresh") as store:
        assert built(store, tmp_path, "fresh", config).hash == again, "as if all had come at once"
