"""The files of one array of a split: rows appended in bounded memory, a checksum growing beside them, mapped to be read."""

from __future__ import annotations

import errno
import io
import math
import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

import numpy as np
import xxhash
from numpy.typing import DTypeLike, NDArray

from logforge.core import StoredRows, plain_file
from logforge.schemas import CheckFailed, InputError, Mismatch, Problem, UsageError

PCA_FILE: Final = "encoder/pca.npz"
"""What reduces the vectors of texts."""
ACTIONS_FILE: Final = "actions.json"
"""Which tools each format offers."""
PART_BYTES: Final = 2 << 30
"""A wide array (observations, masks) with more bytes than this lies in several files."""
_BLOCK = 8 << 20
_MOST_PARTS = 99_999
_AGAIN = "build the dataset again"


class ArrayWriter:
    """Writes an array of known shape row by row, as `np.save` would. `checksums` holds the files that are finished."""

    def __init__(
        self, folder: Path, name: str, dtype: DTypeLike, shape: tuple[int, ...], part_bytes: int | None = None
    ) -> None:
        # One byte order and one memory order: equal arrays must give equal files.
        self.dtype, self.tail = np.dtype(dtype).newbyteorder("<"), shape[1:]
        self._row_bytes = max(1, self.dtype.itemsize * math.prod(self.tail))
        most = shape[0] if part_bytes is None else max(1, part_bytes // self._row_bytes)
        lengths = [min(most, shape[0] - start) for start in range(0, shape[0], max(1, most))] or [0]
        if len(lengths) > _MOST_PARTS:
            raise UsageError(f"{name} would lie in {len(lengths)} files", "choose a larger part size")
        names = (
            [f"{name}.npy"]
            if len(lengths) == 1
            else [f"{name}-{part:05}.npy" for part in range(len(lengths))]
        )
        self._parts = iter([(folder / file, length) for file, length in zip(names, lengths, strict=True)])
        self._block = max(1, _BLOCK // self._row_bytes)
        self._left, self.checksums = 0, dict[str, str]()
        self._begin_part()

    def append(self, rows: NDArray[Any]) -> None:
        """Add rows, a block at a time; raise CheckFailed for a number that the stored dtype cannot hold."""
        while len(rows):
            if not self._left:
                self.finish()
                self._begin_part()
            count = min(len(rows), self._left, self._block)
            self._write(rows[:count])
            self._left, rows = self._left - count, rows[count:]

    def finish(self) -> None:
        """Close the file that is open, and keep its checksum."""
        self._file.close()
        self.checksums[self._path.name] = self._hash.hexdigest()

    def abandon(self) -> None:
        """Close the file that is open; it stays as it is."""
        self._file.close()

    def _begin_part(self) -> None:
        self._path, self._left = next(self._parts)
        self._file, self._hash = self._path.open("wb"), xxhash.xxh3_128()
        header = _header(self.dtype, (self._left, *self.tail))
        _reserve(self._file.fileno(), len(header) + self._left * self._row_bytes)
        self._put(header)

    def _write(self, rows: NDArray[Any]) -> None:
        with np.errstate(over="ignore"):
            block = np.ascontiguousarray(rows, self.dtype)
        if self.dtype.itemsize < rows.itemsize and not np.isfinite(block).all():
            what = Problem(f"a number is too large for {self.dtype.name}", field=self._path.stem)
            remedy = "store them as float32, or scale what is that large"
            raise CheckFailed("the observations do not fit the dtype they are stored as", [what], remedy)
        self._put(block.reshape(-1).view(np.uint8).data)

    def _put(self, data: bytes | memoryview) -> None:
        self._hash.update(data)
        self._file.write(data)


def checksum(file: Path) -> str:
    """xxh3-128 of a file's bytes: it finds damage, at the speed of memory; it is no seal against a forger."""
    state = xxhash.xxh3_128()
    with file.open("rb", buffering=0) as stream:
        while block := stream.read(_BLOCK):
            state.update(block)
    return state.hexdigest()


def files_of(name: str, known: Collection[str]) -> list[str]:
    """The files, among those a manifest knows, that hold the array `SPLIT/ARRAY`, in the order of its rows."""
    part = re.compile(rf"{re.escape(name)}-\d{{5}}\.npy")
    return sorted(file for file in known if part.fullmatch(file)) or [f"{name}.npy"]


def map_rows(folder: Path, files: list[str], dtype: np.dtype[Any], stored: str) -> NDArray[Any]:
    """The rows of these files as one read-only array of `dtype`, stored as `stored`: a plain memory map where it can be."""
    parts = [_map(folder, file) for file in files]
    if len(parts) == 1 and stored == dtype.name:
        return parts[0]
    for part, file in zip(parts, files, strict=True):
        if part.dtype.name != stored or part.ndim != parts[0].ndim or part.shape[1:] != parts[0].shape[1:]:
            found = f"{part.dtype.name} {part.shape}"
            raise Mismatch(f"{folder / file}: rows", f"{stored} {parts[0].shape}", found, _AGAIN)
    return StoredRows(parts, dtype).as_array()


def _map(folder: Path, name: str) -> NDArray[Any]:
    try:
        # A plain view of the map: slicing np.memmap itself costs several times as much.
        array: NDArray[Any] = np.load(plain_file(folder, name), mmap_mode="r", allow_pickle=False).view(
            np.ndarray
        )
        return array
    except FileNotFoundError:
        raise Mismatch(f"{folder / name}: file", "one", "none", _AGAIN) from None
    except (ValueError, EOFError) as error:
        raise InputError(str(folder / name), f"not an array: {error}", remedy=_AGAIN) from error


def _reserve(handle: int, size: int) -> None:
    """Take the file's room at once, as numpy does: writes cost a third less, and a full disk is known before the work."""
    if size <= _BLOCK or not hasattr(os, "posix_fallocate"):
        return
    try:
        os.posix_fallocate(handle, 0, size)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise


def _header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    written = io.BytesIO()
    descr = np.lib.format.dtype_to_descr(dtype)
    np.lib.format.write_array_header_1_0(written, {"descr": descr, "fortran_order": False, "shape": shape})
    return written.getvalue()
