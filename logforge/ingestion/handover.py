"""Values from one process to another through files of a private folder: their tables are mapped into memory, not copied."""

from __future__ import annotations

import mmap
import os
import pickle
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

_ALIGNED = 64
"""Arrow wants its buffers to begin at multiples of this."""


class Parcel(NamedTuple):
    """A pickled value without its buffers, and the file that has these, one after the other, of so many bytes each."""

    pickled: bytes
    path: str
    sizes: tuple[int, ...]


def hand_over(value: Any, folder: Path) -> Parcel:
    """Write a value's buffers to a new file. Raises OSError when the disk is full."""
    buffers: list[pickle.PickleBuffer] = []
    pickled = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    raw = [buffer.raw() for buffer in buffers]
    descriptor, path = tempfile.mkstemp(dir=folder)
    with open(descriptor, "wb") as file:
        file.write(bytes(_ALIGNED))  # nothing cannot be mapped
        for part in raw:
            file.write(part)
            file.write(bytes(_padding(part.nbytes)))
    return Parcel(pickled, path, tuple(part.nbytes for part in raw))


def take_over(parcel: Parcel) -> Any:
    """The value, read-only; its file is gone from the folder, and from the disk when the value is."""
    with open(parcel.path, "rb") as file:
        whole = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    os.unlink(parcel.path)
    buffers, at = [], _ALIGNED
    for size in parcel.sizes:
        buffers.append(whole[at : at + size])
        at += size + _padding(size)
    return pickle.loads(parcel.pickled, buffers=buffers)


def _padding(size: int) -> int:
    return -size % _ALIGNED
