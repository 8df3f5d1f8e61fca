"""Policy bundles: what they choose, what they refuse, and that they need nothing but numpy."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logforge.dataset.build.pipeline import BuildConfig, build_dataset
from logforge.ingestion.pipeline import ingest
from logforge.learning.policies.bundle import Layer, load_policy
from logforge.learning.training.pipeline import train
from logforge.schemas.errors import InputError, Mismatch, UsageError
from logforge.schemas.manifest import EncoderRef, FeatureSlice
from logforge.serving.server import StateServer
from logforge.store.store import Store
from support.made_arrays import DIM, VOCABULARY, manifest
from support.made_policy import SEALED, A, by_hand, made, with_templates
from support.places import SAMPLES

masks = st.lists(
    st.lists(st.booleans(), min_size=A, max_size=A).filter(
        lambda row: any(flag for place, flag in enumerate(row) if place != VOCABULARY.invalid)
    ),
    min_size=1,
    max_size=6,
).map(lambda rows: np.array(rows))


def test_scores_are_those_of_the_mlp():
    policy = made()
    observations = np.random.default_rng(1).normal(size=(7, DIM))
    assert np.allclose(policy.scores(observations), by_hand(policy.layers, observations), atol=1e-4)


@given(masks, st.integers(0, 50))
def test_only_allowed_actions_are_chosen_and_never_the_invalid_one(allowed, seed):
    policy = made(seed=seed)
    observations = np.random.default_rng(seed).normal(size=(len(allowed), DIM)).astype(np.float32)
    chosen = policy.choose(observations, allowed)
    assert allowed[np.arange(len(allowed)), chosen].all()
    assert (chosen != VOCABULARY.invalid).all()
    scores = policy.scores(observations)
    for row, action in enumerate(chosen):
        open_to_it = [a for a in range(A) if allowed[row, a] and a != VOCABULARY.invalid]
        assert scores[row, action] == max(scores[row, a] for a in open_to_it)


@given(masks, st.sampled_from([None, 0.0, 0.1, 1.0, 5.0]), st.sampled_from(["q", "logits"]))
def test_probabilities_add_up_over_the_allowed_actions(allowed, temperature, kind):
    policy = made(kind)
    observations = np.random.default_rng(3).normal(size=(len(allowed), DIM))
    chances = policy.probabilities(observations, allowed, temperature)
    assert np.allclose(chances.sum(axis=1), 1)
    assert (chances[~allowed] == 0).all()
    assert (chances[:, VOCABULARY.invalid] == 0).all()
    assert (chances.argmax(axis=1) == policy.choose(observations, allowed)).all()


def test_a_q_policy_is_greedy_unless_a_temperature_is_given_and_a_clone_is_not():
    allowed, row = np.ones((1, A), bool), np.ones((1, DIM))
    assert made("q").probabilities(row, allowed).max() == 1
    assert made("q").probabilities(row, allowed, 5.0).max() < 1
    assert made("logits").probabilities(row, allowed).max() < 1
    with pytest.raises(UsageError, match="temperature"):
        made().probabilities(row, allowed, -1)


def test_a_softmax_of_huge_scores_stays_finite():
    policy = made()
    last = Layer(policy.layers[-1].weight * 1e6, policy.layers[-1].bias)
    chances = replace(policy, layers=(*policy.layers[:-1], last)).probabilities(
        np.ones((2, DIM)), np.ones((2, A))
    )
    assert np.isfinite(chances).all()


def test_what_cannot_be_decided_is_refused():
    policy = made()
    with pytest.raises(UsageError, match="row 1: its mask allows no action"):
        policy.choose(np.ones((2, DIM)), np.array([[True] * A, [a == VOCABULARY.invalid for a in range(A)]]))
    with pytest.raises(UsageError, match="row 0: the observation gives no finite scores"):
        policy.choose(np.full((1, DIM), np.nan), np.ones((1, A)))
    with pytest.raises(Mismatch, match="observations"):
        policy.scores(np.ones((2, DIM + 1)))
    with pytest.raises(Mismatch, match="masks"):
        policy.choose(np.ones((2, DIM)), np.ones((2, A + 1)))


def test_saved_and_loaded_it_is_the_same_and_the_bytes_are_stable(tmp_path):
    policy = made()
    one, two = policy.save(tmp_path / "one"), made().save(tmp_path / "two")
    for name in ("bundle.json", "weights.safetensors"):
        assert (one / name).read_bytes() == (two / name).read_bytes()
    loaded = load_policy(one)
    rows = np.random.default_rng(5).normal(size=(4, DIM))
    assert (loaded.scores(rows) == policy.scores(rows)).all()
    assert loaded.card == msgspec.structs.replace(policy.card, files=loaded.card.files)
    assert set(loaded.card.files) == {"weights.safetensors"}
    assert loaded.card.encoder_files == {"encoder/pca.npz": "one"}
    assert (loaded.card.dataset_hash, loaded.card.spec_hash, loaded.card.gamma) == (SEALED.hash, "5bec", 0.9)


def test_a_decision_says_why_and_how_far_the_log_supports_it():
    """Chances and support by hand; a policy without a clone does not know its support."""
    policy = replace(made("q"), behaviour=made(seed=2).layers)
    rows, allowed = np.random.default_rng(2).normal(size=(40, DIM)), np.ones((40, A), bool)
    allowed[::3, VOCABULARY.id("refund")] = False
    logits = by_hand(policy.behaviour, rows)
    for decision, row, mask, logit in zip(
        policy.decisions(rows, allowed), rows, allowed, logits, strict=True
    ):
        offered = [a for a in range(A) if mask[a] and a != VOCABULARY.invalid]
        share = np.exp(logit[decision.action]) / np.exp(logit[offered]).sum()
        assert decision.support == pytest.approx(share, abs=1e-4)
        assert decision.supported == (decision.support >= policy.card.support_floor)
        assert decision.name == VOCABULARY.actions[decision.action]
        assert decision.probabilities[decision.action] == 1
        assert decision.action == max(offered, key=lambda a, of=decision: of.scores[a])
        assert np.allclose(policy.act(row, mask).scores, decision.scores, atol=1e-5)
        assert policy.act(row, mask).name == decision.name
    assert {d.supported for d in policy.decisions(rows, allowed)} == {True, False}
    alone = made().act(rows[0], allowed[0])
    assert (alone.support, alone.supported, alone.template) == (None, None, None)
    json.dumps(alone.as_dict())


def test_the_second_head_chooses_among_the_templates_of_the_action():
    policy, rows = with_templates(made()), np.random.default_rng(2).normal(size=(200, DIM))
    refund, search, respond = (VOCABULARY.id(name) for name in ("refund", "search", "respond"))
    assert set(policy.templates(rows, np.full(200, refund))) == {0, 2}
    assert set(policy.templates(rows, np.full(200, search))) == {1}
    assert set(policy.templates(rows, np.full(200, respond))) == {-1}
    for decision in policy.decisions(rows, np.ones((200, A), bool)):
        fitting = {t.template for t in policy.card.templates if t.action == decision.name}
        assert (decision.template in fitting) if fitting else decision.template is None


def test_a_head_and_its_templates_belong_together(tmp_path):
    policy = with_templates(made())
    assert load_policy(policy.save(tmp_path / "p")).card.templates == policy.card.templates
    with pytest.raises(Mismatch, match="argument templates"):
        policy.check(SEALED)
    policy.check(
        manifest(argument_templates=policy.card.templates).sealed({}, None, {"encoder/pca.npz": "one"})
    )
    with pytest.raises(Mismatch, match="head over templates"):
        load_policy(replace(policy, extras={}).save(tmp_path / "q"))


def edit_card(folder, **changes):
    file = folder / "bundle.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def test_golden_rows_that_do_not_come_out_are_refused(tmp_path):
    policy = made()
    golden = msgspec.to_builtins(policy.card.golden)
    golden["scores"][1][2] += 0.01
    folder = policy.save(tmp_path / "p")
    edit_card(folder, golden=golden)
    with pytest.raises(Mismatch, match=r"golden scores.*off by 0\.01"):
        load_policy(folder)


def test_damaged_and_foreign_bundles_are_refused(tmp_path):
    folder = made().save(tmp_path / "p")
    weights = (folder / "weights.safetensors").read_bytes()
    (folder / "weights.safetensors").write_bytes(weights[:-1] + bytes([weights[-1] ^ 1]))
    with pytest.raises(Mismatch, match="the file was altered"):
        load_policy(folder)
    (folder / "weights.safetensors").unlink()
    with pytest.raises(InputError, match="cannot be read"):
        load_policy(folder)
    with pytest.raises(InputError, match="no policy bundle"):
        load_policy(tmp_path / "nothing")
    edit_card(folder, schema_version=1)
    with pytest.raises(Mismatch, match="schema version"):
        load_policy(folder)
    (folder / "bundle.json").write_text('{"schema_version": 3}')
    with pytest.raises(InputError, match="not a policy card"):
        load_policy(folder)
    for files, said in (
        ({"../x": "0", "weights.safetensors": "0"}, "no file of a policy"),
        ({}, "no weights"),
    ):
        edit_card(made().save(tmp_path / "q"), files=files)
        with pytest.raises(InputError, match=said):
            load_policy(tmp_path / "q")


def test_a_bundle_with_another_datasets_manifest_or_reduction_is_refused(tmp_path):
    other = manifest(layout=(FeatureSlice("row", 0, DIM),)).sealed({}, None, {"encoder/pca.npz": "one"})
    folder = replace(made(), files={"manifest.json": other.to_json().encode()}).save(tmp_path / "p")
    with pytest.raises(Mismatch, match="feature layout"):
        load_policy(folder)
    folder = replace(made(), files={"encoder/pca.npz": b"numbers"}).save(tmp_path / "q")
    (folder / "encoder" / "pca.npz").write_bytes(b"others")
    with pytest.raises(Mismatch, match=r"pca\.npz: hash"):
        load_policy(folder)


@pytest.mark.parametrize(
    "layers",
    [
        lambda first, middle, last: (first, last),
        lambda first, middle, last: (first, middle, Layer(last.weight[:-1], last.bias[:-1])),
        lambda first, middle, last: (Layer(first.weight[:, :-1], first.bias), middle, last),
        lambda first, middle, last: (first, middle, Layer(last.weight, last.bias * np.nan)),
        lambda *_: (),
    ],
)
def test_weights_that_do_not_fit_the_card_are_refused(tmp_path, layers):
    policy = made(golden_rows=0)
    folder = replace(policy, layers=layers(*policy.layers)).save(tmp_path / "p")
    with pytest.raises(Mismatch):
        load_policy(folder)


def test_it_takes_the_dataset_it_was_trained_on_and_one_with_other_rows():
    made().check(SEALED)
    made().check(
        manifest(seed=9).sealed({}, (0.0, 1.0), {"encoder/pca.npz": "one", "train/actions.npy": "other"})
    )


@pytest.mark.parametrize(
    ("said", "changes", "files"),
    [
        (
            "action vocabulary",
            {"actions": ("respond", "clarify", "refund", "search", "other", "<invalid>")},
            "one",
        ),
        ("feature layout", {"layout": (FeatureSlice("noise", 0, 2), FeatureSlice("row", 2, DIM))}, "one"),
        ("observation size", {"layout": (FeatureSlice("row", 0, 4),), "observation_size": 4}, "one"),
        ("encoder", {"encoder": EncoderRef("minilm", "1", 64, 2)}, "one"),
        ("encoder", {"encoder": EncoderRef("hashing", "2", 64, 2)}, "one"),
        ("encoder", {"encoder": None}, "one"),
        ("encoder files", {}, "fitted on other texts"),
        ("state settings", {"config": {"state": {"window_turns": 3}}}, "one"),
        ("dataset schema", {"schema_version": 1}, "one"),
    ],
)
def test_a_dataset_with_other_features_or_actions_is_refused(said, changes, files):
    other = manifest(**changes).sealed({}, None, {"encoder/pca.npz": files})
    with pytest.raises(Mismatch, match=f"bc policy, {said}"):
        made().check(other)


def test_it_loads_and_acts_without_torch_and_d3rlpy(tmp_path):
    folder = made().save(tmp_path / "p")
    code = (
        "import sys; sys.modules.update(torch=None, d3rlpy=None)\n"
        "import numpy as np\nfrom logforge.learning.policies.bundle import load_policy\n"
        f"print(load_policy({str(folder)!r}).choose(np.ones((1, {DIM})), np.ones((1, {A}), bool))[0])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) == made().choose(np.ones((1, DIM)), np.ones((1, A), bool))[0]


def test_a_trained_bundle_serves_without_its_dataset(tmp_path):
    """States, masks and decisions are those of the dataset's folder, which is gone by then."""
    with Store(tmp_path / "s.duckdb") as store:
        ingest(store, [SAMPLES])
        config = BuildConfig(encoder="hashing", text_size=8)
        build_dataset(store, SAMPLES / "reward.yaml", out=tmp_path, config=config)
        episodes = sorted(store.episodes(), key=lambda episode: episode.episode_id)[:6]
    settings = {"updates": 5, "batch_size": 16, "hidden": (8,)}
    train(tmp_path / "default", out=tmp_path / "run", algo="bc", **settings)
    wanted = StateServer(tmp_path / "default").observe(episodes)
    shutil.rmtree(tmp_path / "default")
    bundle = load_policy(tmp_path / "run" / "bc")
    server = StateServer(tmp_path / "run" / "bc")
    bundle.check(server.manifest)
    for mine, theirs in zip(server.observe(episodes), wanted, strict=True):
        assert mine.tobytes() == theirs.tobytes()
    decisions = bundle.decisions(*wanted)
    assert [decision.action for decision in decisions] == bundle.choose(*wanted).tolist()
    for decision, chances in zip(decisions, bundle.probabilities(*wanted), strict=True):
        assert decision.support == pytest.approx(chances[decision.action], abs=1e-5)
