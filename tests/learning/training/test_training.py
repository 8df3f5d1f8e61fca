"""Training on the chain MDP: the preset finds the way, the bundle is the network, and a run is the same twice."""

from __future__ import annotations

import importlib.metadata
import json
import random
import shutil
import sys
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from logforge.cli.commands import main
from logforge.core import extras as optional
from logforge.learning.policies.bundle import load_policy
from logforge.learning.training.config import TrainConfig, epoch_of
from logforge.learning.training.pipeline import train
from logforge.learning.training.presets import preset
from logforge.schemas.errors import MissingExtra, UnknownName, UsageError
from logforge.shards.reader import load_shards
from support import made_chain as chain
from support.made_chain import ALLOWED, CELLS, FORWARD, OFFLINE, VOCABULARY

OBSERVATIONS = np.eye(CELLS, dtype=np.float32)
MASKS = np.isin(np.arange(VOCABULARY.size), ALLOWED) & np.ones((CELLS, 1), bool)


def small(folder, **changes):
    parts = {
        "train": chain.walk(12, 0.5, 0),
        "validation": chain.walk(4, 0.5, 1),
        "test": chain.walk(6, 0.5, 2),
    }
    return chain.write_chain(folder, **{**parts, **changes})


@pytest.fixture
def dataset(tmp_path):
    return small(tmp_path / "chain")


def run(dataset, out, **settings):
    return train(dataset, out=out, **{"updates": 10, "batch_size": 16, "hidden": (8,), **settings})


def files(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "train.json"
    }


@pytest.mark.parametrize(
    ("backend", "updates"), [("torch", 3000), pytest.param("d3rlpy", 1500, marks=pytest.mark.thorough)]
)
def test_cql_goes_forward_where_the_log_did_so_one_time_in_four(tmp_path, backend, updates):
    """The science check: with the preset and +10 at the end, 5 of 5 cells; the clone has nothing to go by."""
    parts = chain.walk(200, 0.25, 0), chain.walk(10, 0.25, 1), chain.walk(10, 0.25, 2)
    report = train(
        chain.write_chain(tmp_path / "chain", *parts), out=tmp_path / "run", updates=updates, backend=backend
    )
    cql = load_policy(tmp_path / "run" / "cql")
    assert (cql.choose(OBSERVATIONS[:5], MASKS[:5]) == FORWARD).all()
    values = cql.scores(OBSERVATIONS[:5])[:, FORWARD]
    assert (np.diff(values) > 0).all()
    assert 6 < values[0] < 10
    clone = load_policy(tmp_path / "run" / "bc")
    assert np.allclose(clone.probabilities(OBSERVATIONS[:5], MASKS[:5])[:, FORWARD], 0.25, atol=0.1)
    assert report.policies["cql"]["transitions"] == load_shards(tmp_path / "chain").size


def test_the_same_run_twice_gives_the_same_bytes_and_another_seed_others(dataset, tmp_path):
    run(dataset, tmp_path / "one")
    np.random.seed(5)
    run(dataset, tmp_path / "two")
    run(dataset, tmp_path / "other", seed=1)
    assert files(tmp_path / "one") == files(tmp_path / "two")
    weights = "cql/weights.safetensors"
    assert files(tmp_path / "one")[weights] != files(tmp_path / "other")[weights]


def test_what_the_caller_had_set_in_torch_and_numpy_stays(dataset, tmp_path):
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        drawn = []
        for out in (None, tmp_path / "run"):
            torch.manual_seed(3), np.random.seed(3), random.seed(3)
            if out:
                run(dataset, out)
            drawn.append((torch.rand(1).item(), np.random.rand(), random.random()))
        assert drawn[0] == drawn[1]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_only_the_train_split_is_fitted_and_test_is_never_read(dataset, tmp_path):
    run(dataset, tmp_path / "one")
    other = small(tmp_path / "other", validation=chain.walk(3, 0.9, 8), test=chain.walk(9, 0.9, 9))
    shutil.rmtree(other / "test")
    run(other, tmp_path / "two")
    weights = [name for name in files(tmp_path / "one") if name.endswith("safetensors")]
    assert len(weights) == 3
    for name in weights:
        assert files(tmp_path / "one")[name] == files(tmp_path / "two")[name]


def test_the_run_folder_tells_what_was_done(dataset, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    ticks = []
    report = run(dataset, tmp_path / "runs" / "a", progress=lambda *tick: ticks.append(tick))
    told = json.loads((tmp_path / "runs" / "a" / "train.json").read_text())
    assert told == json.loads(json.dumps(report.as_dict()))
    manifest = load_shards(dataset).manifest
    assert told["dataset"] == {
        "name": "chain",
        "path": str(dataset),
        "hash": manifest.hash,
        "spec_hash": manifest.spec_hash,
    }
    assert told["config"]["updates"] == 10
    assert told["packages"]["d3rlpy"] == importlib.metadata.version("d3rlpy")
    assert [tick[:2] for tick in ticks] == [(k, 30) for k in range(1, 31)]
    assert [tick[2].split()[0] for tick in ticks] == [
        ("bc", "bc_success", "cql")[(k - 1) // 10] for k in range(1, 31)
    ]
    assert "max Q" in ticks[-1][2]
    rows = [json.loads(line) for line in (tmp_path / "runs" / "a" / "metrics.jsonl").read_text().splitlines()]
    assert [row["update"] for row in rows] == 3 * list(range(1, 11))
    last = rows[-1]
    assert {
        "loss",
        "td_loss",
        "conservative_loss",
        "validation_td_error",
        "validation_max_q",
        "possible_high",
    } <= set(last)
    assert 0 <= last["validation_match"] <= 1
    assert last["possible_high"] == pytest.approx(9.9)
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith(".")) == [
        "chain",
        "runs",
    ]
    assert capsys.readouterr().out == ""
    assert "bc_success" in report.render()


def test_td_error_on_validation_is_that_of_the_definition(dataset, tmp_path):
    """By hand: (Q(s, a) − r − γ max over the allowed Q(s', ·))², nothing after a true end."""
    held = load_shards(dataset, "validation")
    metrics = run(dataset, tmp_path / "run").policies["cql"]
    policy, errors = load_policy(tmp_path / "run" / "cql"), []
    for episode in held.episodes():
        scores = policy.scores(episode.observations)
        for step, action in enumerate(episode.actions):
            ended = episode.terminal and step == len(episode.actions) - 1
            follow = 0 if ended else max(scores[step + 1, a] for a in ALLOWED)
            errors.append((scores[step, action] - episode.rewards[step] - 0.99 * follow) ** 2)
    assert metrics["validation_td_error"] == pytest.approx(np.mean(errors), rel=1e-4)


@pytest.mark.parametrize(("updates", "epochs"), [(10, 3), (7, 7), (5, 9), (1000, 10), (3, 1)])
def test_a_run_is_measured_at_the_end_of_equal_parts(updates, epochs):
    config = TrainConfig(updates=updates, epochs=epochs)
    ends = [u for u in range(1, updates + 1) if epoch_of(u, config)]
    assert len(ends) == min(updates, epochs)
    assert ends[-1] == updates
    assert epoch_of(updates, config) == epochs
    assert np.ptp(np.diff([0, *ends])) <= 1


def test_passes_over_the_data_set_the_updates(dataset, tmp_path):
    report = run(dataset, tmp_path / "run", passes=2.0, batch_size=16)
    assert report.config["updates"] == -(-2 * load_shards(dataset).size // 16)
    assert report.policies["cql"]["update"] == report.config["updates"]


def test_another_discount_and_a_step_cost_are_trained_on(dataset, tmp_path):
    """Rewards and returns are made anew, and the policy says its discount."""
    report = run(dataset, tmp_path / "run", gamma=0.5, step_cost=0.4)
    assert load_policy(tmp_path / "run" / "cql").card.gamma == 0.5
    facts = report.policies["cql"]
    assert (facts["possible_low"], facts["possible_high"]) == pytest.approx((-1.0, 9.5), abs=1e-5)


def test_the_chain_goes_forward_or_a_risk_of_cloning_is_told(tmp_path):
    """By the exact fixed point, before any training shows it: with +1 at the end and a discount of 0.99 there is a risk, with
    +10 and a cost of every step, or a discount of 0.9, there is none."""
    parts = [chain.walk(200, 0.25, 0), chain.walk(10, 0.25, 1), chain.walk(6, 0.25, 2)]

    def sparse(arrays):
        rewards = np.where(arrays.terminals, 1, 0).astype(np.float32)
        return replace(arrays, rewards=rewards, returns=chain.returns_to_go(rewards, arrays.episode_offsets))

    at = chain.write_chain(tmp_path / "dense", *parts)
    assert not any("clone risk" in note for note in run(at, tmp_path / "run").notes)
    at = chain.write_chain(tmp_path / "sparse", *map(sparse, parts))
    told = next(note for note in run(at, tmp_path / "run", alpha=1.0).notes if "clone risk" in note)
    assert "with alpha 1 CQL comes to rest at another action than the best in 81%" in told
    assert not any("clone risk" in note for note in run(at, tmp_path / "run", alpha=0.3, gamma=0.9).notes)


def test_a_spec_that_makes_cqls_alpha_too_large_is_told_of_where_states_do_not_repeat(tmp_path):
    spec = {"gamma": 0.99, "terms": {"success": {"when": "success", "value": 1.0, "at": "terminal"}}}
    parts = []
    for seed in range(3):
        walked = chain.walk(80, 0.25, seed)
        noise = np.random.default_rng(seed).normal(size=walked.observations.shape) / 100
        parts.append(replace(walked, observations=(walked.observations + noise).astype(np.float32)))
    at = chain.write_chain(tmp_path / "chain", *parts, reward={"spec": spec, "scales": {}})
    told = next(note for note in run(at, tmp_path / "run").notes if "clone risk" in note)
    assert "by the reward spec" in told


def test_presets_carry_their_figures_and_are_recorded(dataset, tmp_path):
    config = preset("article-a")
    assert (config.hidden, config.batch_size, config.alpha) == ((256, 256, 256), 256, 5.0)
    assert (config.gamma, config.passes, config.epochs) == (0.99, 100.0, 100)
    assert preset("article-a-text").alpha == 1.0
    assert preset("sparse", updates=5) == TrainConfig(alpha=0.3, updates=5, preset="sparse")
    assert preset("default") == TrainConfig()
    with pytest.raises(UnknownName, match=r"unknown preset 'spares'\. did you mean 'sparse'"):
        preset("spares")
    words = ["train", str(dataset), "--out", str(tmp_path / "run"), "--preset", "article-a", "--passes", "0"]
    result = CliRunner().invoke(main, [*words, "--updates", "3", "--json"])
    assert result.exit_code == 0
    config = json.loads(result.stdout)["config"]
    assert (config["preset"], config["alpha"], config["updates"]) == ("article-a", 5.0, 3)
    assert config["hidden"] == [256, 256, 256]


def test_clones_of_success_learn_from_complete_successes_only(tmp_path):
    """Episode 0 succeeds, 1 is a success that was cut off, 2 failed: only the first is cloned."""
    parts = chain.walk(3, 1.0, 0)
    timeouts, terminals = parts.timeouts.copy(), parts.terminals.copy()
    terminals[9], timeouts[9] = False, True
    marked = replace(parts, success=np.array([1, 1, 0], np.int8), terminals=terminals, timeouts=timeouts)
    report = run(small(tmp_path / "chain", train=marked), tmp_path / "run")
    facts = report.policies["bc_success"]
    assert (facts["episodes"], facts["transitions"]) == (1, 5)
    assert report.policies["bc"]["episodes"] == 3


def test_without_successes_their_clone_is_left_out_and_that_is_said(tmp_path):
    none = replace(chain.walk(5, 0.5, 0), success=np.full(5, -1, np.int8))
    report = run(small(tmp_path / "chain", train=none), tmp_path / "run", algo="bc")
    assert set(report.policies) == {"bc"}
    assert not (tmp_path / "run" / "bc_success").exists()
    assert "bc_success: no complete episode" in report.render()


def test_an_unused_action_has_its_place_and_is_never_chosen(dataset, tmp_path):
    run(dataset, tmp_path / "run")
    policy = load_policy(tmp_path / "run" / "cql")
    assert policy.scores(OBSERVATIONS).shape == (CELLS, VOCABULARY.size)
    assert OFFLINE not in policy.choose(OBSERVATIONS, MASKS)


def test_notes_say_what_was_not_used(tmp_path):
    parts = chain.walk(6, 0.5, 0)
    weighted = replace(parts, weights=np.full(parts.size, 0.5, np.float32))
    report = run(small(tmp_path / "chain", train=weighted, validation=chain.EMPTY), tmp_path / "run")
    assert any("no validation split" in note for note in report.notes)
    theirs = run(tmp_path / "chain", tmp_path / "theirs", backend="d3rlpy")
    for words in ("sample weights were not used", "masks hold when a policy acts"):
        assert any(words in note for note in theirs.notes)
        assert not any(words in note for note in report.notes)
    assert "validation_match" not in report.policies["cql"]
    assert not any("alpha" in note for note in report.notes)


@pytest.mark.parametrize(
    ("scale", "alpha", "warned"), [(0.1, 1.0, True), (0.1, 0.3, False), (1.0, 1.0, False), (1, 5.0, True)]
)
def test_an_alpha_for_returns_of_another_size_is_warned_of(tmp_path, scale, alpha, warned):
    """Returns of the chain reach 10; a tenth of them reaches 1."""
    parts = chain.walk(6, 0.5, 0)
    scaled = replace(
        parts, rewards=parts.rewards * np.float32(scale), returns=parts.returns * np.float32(scale)
    )
    report = run(small(tmp_path / "chain", train=scaled), tmp_path / "run", alpha=alpha)
    assert any("alpha" in note for note in report.notes) is warned


@pytest.mark.parametrize(
    "setting",
    [
        {"updates": 0},
        {"batch_size": 0},
        {"learning_rate": 0},
        {"alpha": -1},
        {"hidden": ()},
        {"alpha": float("nan")},
        {"seed": -1},
        {"members": 0},
        {"expectile": 1},
        {"threshold": 0},
        {"target_rate": 0},
        {"epochs": 0},
        {"passes": -1},
        {"gamma": 0},
        {"step_cost": float("inf")},
    ],
)
def test_settings_that_cannot_be_are_refused(dataset, tmp_path, setting):
    with pytest.raises(UsageError, match=next(iter(setting))):
        train(dataset, out=tmp_path / "run", **setting)


def test_an_unknown_algorithm_is_refused_with_those_there_are(dataset, tmp_path):
    with pytest.raises(
        UnknownName, match=r"unknown algorithm of the backend torch 'cpl'. did you mean 'cql'\? "
    ):
        train(dataset, out=tmp_path / "run", algo="cpl")
    with pytest.raises(UnknownName, match=r"unknown algorithm of the backend d3rlpy 'iql'"):
        train(dataset, out=tmp_path / "run", algo="iql", backend="d3rlpy")
    with pytest.raises(UnknownName, match=r"unknown backend 'jax'"):
        train(dataset, out=tmp_path / "run", backend="jax")


def test_an_empty_train_split_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"train split .* is empty"):
        run(small(tmp_path / "chain", train=chain.EMPTY), tmp_path / "run")


def test_a_folder_that_is_not_a_run_is_not_replaced_and_a_run_is(dataset, tmp_path):
    out = tmp_path / "run"
    out.mkdir()
    (out / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match="not a run"):
        run(dataset, out)
    assert (out / "thesis.txt").read_text() == "years of work"
    (out / "thesis.txt").unlink()
    run(dataset, out)
    run(dataset, out, algo="bc")
    assert not (out / "cql").exists()


def test_a_run_that_fails_leaves_the_earlier_one(dataset, tmp_path):
    run(dataset, tmp_path / "run")
    before = files(tmp_path / "run")

    def stop(done, total, note):
        if note.startswith("cql"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(dataset, tmp_path / "run", seed=3, progress=stop)
    assert files(tmp_path / "run") == before
    assert not (tmp_path / ".run.new").exists()


def test_without_d3rlpy_the_extra_is_named(dataset, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "d3rlpy", None)
    optional.import_d3rlpy.cache_clear()
    try:
        with pytest.raises(MissingExtra, match=r'pip install "logforge-rl\[train\]"'):
            run(dataset, tmp_path / "run", backend="d3rlpy")
    finally:
        optional.import_d3rlpy.cache_clear()
