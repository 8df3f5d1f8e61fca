"""ONNX files of policies: what onnxruntime makes of them is what the bundle does."""

from __future__ import annotations

import json
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from logforge.cli.commands import main
from logforge.learning.policies.bundle import load_policy
from logforge.learning.policies.layers import Layer
from logforge.learning.policies.onnx import TOLERANCE, export_onnx, onnx_bytes
from logforge.learning.policies.side_inputs import SideInputs
from logforge.learning.training.pipeline import train
from logforge.schemas.errors import Mismatch
from logforge.shards.reader import load_shards
from support import made_chain as chain
from support.made_arrays import DIM, VOCABULARY
from support.made_policy import made, with_templates

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")
A = VOCABULARY.size


def session(policy):
    return onnxruntime.InferenceSession(onnx_bytes(policy), providers=["CPUExecutionProvider"])


def whole(seed):
    """A policy with a clone that it keeps to, and a second head."""
    policy = replace(made("q", seed), behaviour=made(seed=seed + 1).layers)
    return with_templates(replace(policy, card=msgspec.structs.replace(policy.card, threshold=0.2)))


def over_texts(seed):
    """A policy whose network sees the vectors of actions, and of three policies."""
    rng, policy = np.random.default_rng(seed), made("q", seed)
    sizes = ((8, DIM + 3 + 2), (6, 8), (1, 6))
    layers = [Layer(*(rng.normal(size=s).astype(np.float32) / 3 for s in (size, size[:1]))) for size in sizes]
    side = SideInputs(*(rng.normal(size=s).astype(np.float32) for s in ((A, 3), (3, 2))))
    return replace(policy, layers=tuple(layers), behaviour=policy.layers, side=side)


POLICIES = {"plain": made("q"), "clone": made(seed=3), "whole": whole(5), "texts": over_texts(7)}
SESSIONS = {name: session(policy) for name, policy in POLICIES.items()}


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(POLICIES)), st.integers(0, 2**32 - 1), st.integers(1, 40))
def test_scores_choices_support_and_templates_are_those_of_the_bundle(name, seed, count):
    policy, rng = POLICIES[name], np.random.default_rng(seed)
    rows = (rng.normal(size=(count, DIM)) * 3).astype(np.float32)
    masks = rng.random((count, A)) < 0.5
    masks[:, 0] = True
    names = [output.name for output in SESSIONS[name].get_outputs()]
    found = dict(zip(names, SESSIONS[name].run(None, {"observations": rows, "mask": masks}), strict=True))
    assert np.abs(found["scores"] - policy.scores(rows)).max() < TOLERANCE
    choices = policy.choose(rows, masks)
    assert (found["action"] == choices).all()
    if policy.behaviour:
        assert np.allclose(found["support"], policy.support(rows, masks), atol=1e-5)
    if policy.card.templates:
        assert (found["template"] == policy.templates(rows, choices)).all()
    assert ("support" in found, "template" in found) == (bool(policy.behaviour), bool(policy.card.templates))


def test_without_a_mask_everything_but_the_invalid_action_is_allowed():
    rows = np.random.default_rng(0).normal(size=(50, DIM)).astype(np.float32)
    last = POLICIES["plain"].layers[-1]
    bias = last.bias.copy()
    bias[VOCABULARY.invalid] = 1e3
    policy = replace(POLICIES["plain"], layers=(*POLICIES["plain"].layers[:-1], Layer(last.weight, bias)))
    [action] = session(policy).run(["action"], {"observations": rows})
    assert (action == policy.choose(rows, np.ones((50, A), bool))).all()
    assert VOCABULARY.invalid not in action
    only_invalid = np.arange(A)[None] == VOCABULARY.invalid
    [action] = session(policy).run(["action"], {"observations": rows, "mask": only_invalid})
    assert (action == -1).all()
    rows[3] = np.nan
    assert session(policy).run(["action"], {"observations": rows})[0][3] == -1


def test_the_same_policy_gives_the_same_bytes():
    assert onnx_bytes(whole(5)) == onnx_bytes(whole(5))
    assert onnx_bytes(whole(5)) != onnx_bytes(whole(6))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    home = tmp_path_factory.mktemp("onnx")
    parts = (chain.walk(40, 0.5, seed) for seed in range(3))
    train(chain.write_chain(home / "chain", *parts), out=home / "run", updates=60, batch_size=32)
    return home


def test_a_trained_policy_on_its_validation_states(run):
    """The target's bound: |ΔQ| < 1e-4 on golden rows and on validation states."""
    report = export_onnx(run / "run" / "cql", run / "q.onnx")
    assert report.golden_rows > 0
    assert report.worst < 1e-4
    policy, held = load_policy(run / "run" / "cql"), load_shards(run / "chain", "validation")
    model = onnxruntime.InferenceSession(run / "q.onnx", providers=["CPUExecutionProvider"])
    rows, masks = np.asarray(held.observations, np.float32), np.asarray(held.masks)
    scores, action = model.run(["scores", "action"], {"observations": rows, "mask": masks})
    assert np.abs(scores - policy.scores(rows)).max() < 1e-4
    assert (action == policy.choose(rows, masks)).all()
    about = model.get_modelmeta().custom_metadata_map
    assert json.loads(about["actions"]) == list(chain.VOCABULARY.actions)
    assert (about["kind"], about["dataset_hash"]) == ("q", policy.card.dataset_hash)


def test_a_model_that_computes_otherwise_is_not_written(run, monkeypatch):
    monkeypatch.setattr(
        "logforge.learning.policies.onnx.onnx_bytes",
        lambda bundle: onnx_bytes(
            replace(bundle, layers=tuple(Layer(w * 1.01, b) for w, b in bundle.layers))
        ),
    )
    with pytest.raises(Mismatch, match="ONNX scores of the golden rows"):
        export_onnx(run / "run" / "cql", run / "none.onnx")
    assert not (run / "none.onnx").exists()


def test_the_commands(run):
    out, folder = str(run / "cli.onnx"), str(run / "run" / "cql")
    done = CliRunner().invoke(main, ["policy", "export", folder, "--out", out, "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["outputs"].keys() == {"scores", "action", "support"}
    assert found["inputs"]["observations"] == ["rows", chain.CELLS]
    shown = CliRunner().invoke(main, ["policy", "show", folder])
    assert shown.exit_code == 0, shown.output
    assert "forward" in shown.stdout
    facts = json.loads(CliRunner().invoke(main, ["policy", "show", folder, "--json"]).stdout)
    assert facts["clone"]
    assert facts["hidden"] == [64, 64]
    gone = CliRunner().invoke(main, ["policy", "show", str(run)])
    assert gone.exit_code == 1
    assert "no policy bundle" in gone.stderr
