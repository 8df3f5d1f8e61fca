"""Exports for TRL, loaded by `datasets` and formatted by TRL itself with the chat template that it trains Qwen 3 with.

The tokenizer knows the 256 bytes and the template's two marks: it needs no download.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from logforge.exports.catalogue import Options
from logforge.exports.pipeline import export

datasets = pytest.importorskip("datasets", reason="pip install datasets")
pytest.importorskip("trl", reason="pip install trl")

NUMBERS = ("weight", "gap", "interval", "return")
MARKS = ("<|im_start|>", "<|im_end|>")


@pytest.fixture(scope="module")
def tokenizer():
    import trl
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    held = Tokenizer(models.BPE(vocab={letter: place for place, letter in enumerate(letters)}, merges=[]))
    held.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    held.decoder = decoders.ByteLevel()
    held.add_special_tokens(list(MARKS))
    template = Path(trl.__file__).parent / "chat_templates" / "qwen3_training.jinja"
    return PreTrainedTokenizerFast(tokenizer_object=held, chat_template=template.read_text("utf-8"))


@pytest.fixture
def rows(exports_home, tmp_path):
    """Writes a format and gives what `datasets` loads of it, and the lines themselves."""

    def load(name, **options):
        out = tmp_path / f"{name}.jsonl"
        store = exports_home / "store.duckdb"
        export(exports_home / "d", name, out, store=store, options=Options(**options))
        loaded = datasets.load_dataset(
            "json", data_files=str(out), split="train", cache_dir=str(tmp_path / "cache")
        )
        return loaded, [json.loads(line) for line in out.read_text("utf-8").split("\n")[:-1]]

    return load


def rounded(row):
    """`datasets` reads ten digits of a number in JSON."""
    return {name: pytest.approx(value, rel=1e-8) if name in NUMBERS else value for name, value in row.items()}


def tools_of(row):
    """As TRL's trainers read the column."""
    return json.loads(row["tools"])


@pytest.mark.parametrize("name", ["trl-sft", "trl-dpo", "trl-kto", "weighted-sft"])
def test_datasets_loads_every_row_as_it_was_written(rows, name):
    loaded, written = rows(name)
    assert list(loaded) == [rounded(row) for row in written]
    assert written


def test_sft_learns_what_the_agent_said_and_nothing_else(rows, tokenizer):
    from trl.data_utils import apply_chat_template, is_conversational

    loaded, _ = rows("trl-sft")
    for row in {len(row["messages"]): row for row in loaded}.values():  # one of each length: masks are slow
        assert is_conversational(row)
        text = apply_chat_template({"messages": row["messages"]}, tokenizer, tools=tools_of(row))["text"]
        held = tokenizer.apply_chat_template(
            row["messages"],
            tools=tools_of(row),
            tokenize=True,
            return_dict=True,
            return_assistant_tokens_mask=True,
        )
        learned = tokenizer.decode(
            [token for token, mine in zip(held["input_ids"], held["assistant_masks"], strict=True) if mine]
        )
        for message in row["messages"]:
            assert message["content"].strip() in text
            for call in message.get("tool_calls") or ():
                assert json.dumps(call["function"]["name"]) in learned
                assert all(json.dumps(key) in learned for key in call["function"]["arguments"])
            if message["role"] == "assistant":
                assert message["content"] in learned
            elif message["content"]:
                assert message["content"] not in learned
        assert all(json.dumps(tool["function"]["name"]) in text for tool in tools_of(row))


def test_dpo_compares_two_answers_to_one_prompt(rows, tokenizer):
    from trl.data_utils import apply_chat_template

    loaded, _ = rows("trl-dpo")
    for row in loaded:
        example = {name: row[name] for name in ("prompt", "chosen", "rejected")}
        text = apply_chat_template(example, tokenizer, tools=tools_of(row))
        assert "please do often" in text["prompt"]
        for side in ("chosen", "rejected"):
            assert f'"name": "{row[f"{side}_action"]}"' in text[side]
            assert "please do often" not in text[side]


@pytest.mark.parametrize("name", ["trl-kto", "weighted-sft"])
def test_a_turn_is_a_completion_after_its_prompt(rows, tokenizer, name):
    from trl.data_utils import apply_chat_template

    loaded, _ = rows(name, **({"keep": "all"} if name == "weighted-sft" else {}))
    for row in loaded:
        example = {key: row[key] for key in ("prompt", "completion", "label") if key in row}
        text = apply_chat_template(example, tokenizer, tools=tools_of(row))
        [answer] = row["completion"]
        assert answer["content"] in text["completion"]
        assert all(call["function"]["name"] in text["completion"] for call in answer.get("tool_calls") or ())
        assert row["prompt"][-1]["content"].strip() in text["prompt"]
        assert ("label" not in row) or text["label"] is row["label"]
