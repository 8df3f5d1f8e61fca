"""Reduces text vectors with a PCA that is fitted once, on what the train split says, and saved with the dataset."""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import xxhash

from logforge.schemas import InputError, Mismatch, UsageError

F32 = npt.NDArray[np.float32]
_AGAIN = "build the dataset again"
_ROWS = 4_096
_ARRAYS = ("mean", "basis", "explained")


@dataclass(frozen=True, eq=False)
class Pca:
    """A fitted reduction: x ↦ (x - mean) @ basis. `explained` is each component's share of the variance."""

    mean: F32
    basis: F32
    explained: F32

    @property
    def dim(self) -> int:
        """The size of a vector before."""
        return int(self.basis.shape[0])

    @property
    def size(self) -> int:
        """The size of a vector after."""
        return int(self.basis.shape[1])

    def apply(self, vectors: F32) -> F32:
        """The reduced vectors. Each row on its own, so that it is bit-equal whatever rows stand beside it."""
        from threadpoolctl import threadpool_limits

        if vectors.shape[1] != self.dim:
            remedy = "use the encoder that the PCA was fitted with"
            raise Mismatch("size of the vectors to reduce", self.dim, vectors.shape[1], remedy)
        centred: F32 = np.subtract(vectors, self.mean, dtype=np.float32, order="C")
        with threadpool_limits(1):
            # A stack of 1 × dim matrices: one product of a fixed shape per row.
            reduced: F32 = (centred[:, None, :] @ self.basis)[:, 0, :]
        return reduced

    @cached_property
    def hash(self) -> str:
        """32 hex digits over the bytes that `save` writes."""
        return xxhash.xxh3_128_hexdigest(self.to_bytes())

    def to_bytes(self) -> bytes:
        """An .npz file without pickles; equal reductions give equal bytes (numpy's own writer stamps the time)."""
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
            for name in _ARRAYS:
                entry = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
                entry.create_system = 3
                with archive.open(entry, "w") as file:
                    np.lib.format.write_array(file, getattr(self, name), allow_pickle=False)
        return buffer.getvalue()

    def save(self, path: str | Path) -> None:
        """Write `to_bytes` to a file."""
        Path(path).write_bytes(self.to_bytes())

    @classmethod
    def load(cls, path: str | Path) -> Pca:
        """Read a file that `save` or `to_bytes` made. Raises InputError for any other."""
        try:
            with np.load(Path(path), allow_pickle=False) as found:
                arrays = {name: np.ascontiguousarray(found[name], "<f4") for name in _ARRAYS}
        except (KeyError, ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
            raise InputError(str(path), f"not a saved PCA: {error}", remedy=_AGAIN) from None
        pca = cls(**arrays)
        shapes = (pca.mean.shape, pca.basis.shape, pca.explained.shape)
        if pca.basis.ndim != 2 or shapes != ((pca.dim,), (pca.dim, pca.size), (pca.size,)):
            raise InputError(str(path), f"not a saved PCA: arrays of shapes {shapes}", remedy=_AGAIN)
        return pca


def fit_pca(vectors: F32, weights: npt.NDArray[np.float64], size: int) -> Pca:
    """Fit on rows in a fixed order (the hashes' of their texts, say). At most rows - 1 and dim components.

    `weights` say how often each row was said: if each counted once, a thousand openings that differ in a number would outweigh the
    few answers that every episode turns on.
    """
    from threadpoolctl import threadpool_limits

    rows, dim = vectors.shape
    if size < 1:
        raise UsageError(f"text size {size}", "give at least 1")
    if rows < 2:  # one text or none has no variance: it says nothing, and all else in the state still does
        mean = vectors[0] if rows else np.zeros(dim, np.float32)
        return Pca(_f32(mean), np.zeros((dim, 1), np.float32), np.zeros(1, np.float32))
    shares = weights / weights.sum()
    with threadpool_limits(1):
        mean, covariance = _moments(vectors, shares)
        values, basis = np.linalg.eigh(covariance)
    order = np.argsort(-values, kind="stable")[: min(size, rows - 1, dim)]
    values, basis = np.maximum(values[order], 0), basis[:, order]
    # A component's sign is arbitrary: the largest number of each is made positive.
    basis *= np.sign(basis[np.abs(basis).argmax(axis=0), np.arange(len(order))])
    whole = float(np.trace(covariance))
    return Pca(_f32(mean), _f32(basis), _f32(values / whole if whole > 0 else np.zeros_like(values)))


def _moments(
    vectors: F32, shares: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Weighted mean and covariance, some rows at a time."""
    pieces = [slice(start, start + _ROWS) for start in range(0, len(vectors), _ROWS)]
    dim = vectors.shape[1]
    mean, covariance = np.zeros(dim), np.zeros((dim, dim))
    for piece in pieces:
        mean += shares[piece] @ vectors[piece].astype(np.float64)
    for piece in pieces:
        centred = vectors[piece] - mean
        covariance += centred.T @ (centred * shares[piece, None])
    return mean, covariance


def _f32(array: npt.NDArray[np.floating]) -> F32:
    return np.ascontiguousarray(array, "<f4")
