"""Work shared by several processes, this one among them: whoever waits for a result makes a later one meanwhile."""

from __future__ import annotations

import mmap
import os
import pickle
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Any, NamedTuple, Self

from logforge.schemas import StoreError

QUEUED = 6
"""Tasks handed to each helper ahead: what keeps it busy while this process writes a checkpoint."""

POOL_BYTES = 64 << 20
"""Less than this in all is read by one process: starting another takes as long as reading a third of it."""


class Task(NamedTuple):
    """A call, its one argument, and its size: how much of what may be made ahead it takes up.

    One that is to be done `here` is never handed to another process.
    """

    call: Callable[[Any], Any]
    argument: Any
    size: int
    here: bool = False


@dataclass
class _Work:
    """A task that was taken, and what comes of it: a parcel where it was handed out."""

    task: Task
    future: Future[Any] = field(default_factory=Future)

    def do(self) -> None:
        """Do it in this process."""
        self.future = Future()
        self.future.set_result(self.task.call(self.task.argument))

    def result(self) -> Any:
        """What it gives. Waits for it."""
        given = self.future.result()
        return take_over(given) if isinstance(given, Parcel) else given


class Crew:
    """So many processes, this one among them. Use it as a context manager.

    The others, the helpers, call `prepare` first. What they make comes through files in the private folder `room`. Until they
    are started and prepared this process works alone.
    """

    def __init__(self, workers: int, prepare: Callable[[], None], room: Path) -> None:
        self.helpers = 0
        self._workers = workers
        self._prepare = prepare
        self._room = room
        self._pool: ProcessPoolExecutor | None = None
        self._prepared: Future[int] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def start_for(self, size: int) -> None:
        """Start the helpers where so many bytes are worth it."""
        if size >= POOL_BYTES:
            self.start()

    def start(self) -> None:
        """Start the helpers, once there is enough work for them."""
        if self._workers > 1 and self._pool is None:
            self.helpers = self._workers - 1
            context = get_context("spawn" if sys.platform == "win32" else "forkserver")
            self._pool = ProcessPoolExecutor(
                self.helpers, context, initializer=_begin, initargs=(self._prepare,)
            )
            self._prepared = self._pool.submit(int)

    def results(self, tasks: Iterable[Task], ahead: int = 0) -> Iterator[Any]:
        """What the tasks give, in their order; those handed out or done before their turn have a size of `ahead` in all.

        May be called while results of another call are iterated over, for the parts of a task. Raises StoreError when a
        process died, and whatever a task raises.
        """
        try:
            yield from self._results(iter(tasks), ahead)
        except BrokenProcessPool:
            reason = "a reading process died (out of memory, or the caller lacks a __main__ guard)"
            raise StoreError("ingest", reason, "use --workers 1; what was stored so far is whole") from None

    def _results(self, tasks: Iterator[Task], ahead: int) -> Iterator[Any]:
        taken: deque[_Work] = deque()
        while True:
            self._hand_out(tasks, taken, ahead)
            first = taken[0] if taken else None
            if first is not None and (first.future.done() or not self._help(tasks, taken, ahead)):
                yield taken.popleft().result()
            elif first is None and not self._help(tasks, taken, ahead):
                return

    def _hand_out(self, tasks: Iterator[Task], taken: deque[_Work], ahead: int) -> None:
        """Give the helpers as much as they are to have."""
        if self._pool is None or self._prepared is None or not self._prepared.done():
            return
        while sum(not work.future.done() for work in taken) < self.helpers * QUEUED and _size(taken) < ahead:
            task = next(tasks, None)
            if task is None:
                return
            taken.append(_Work(task))
            if task.here:
                taken[-1].do()
            else:
                taken[-1].future = self._pool.submit(_done_for_another, task.call, task.argument, self._room)

    def _help(self, tasks: Iterator[Task], taken: deque[_Work], ahead: int) -> bool:
        """Do one task here: the next, or the last that no helper has begun. False when there is none, or too much is
        done already."""
        if not taken or _size(taken) < ahead:
            task = next(tasks, None)
            if task is not None:
                taken.append(_Work(task))
                taken[-1].do()
                return True
        work = next((work for work in reversed(taken) if work.future.cancel()), None)
        if work is not None:
            work.do()
        return work is not None


def _begin(prepare: Callable[[], None]) -> None:
    Thread(target=_end_with_parent, daemon=True).start()
    prepare()


def _end_with_parent() -> None:
    """A helper waits for tasks on a pipe of which it holds both ends: it would not notice that nobody is left."""
    if (parent := parent_process()) is not None:
        parent.join()
        os._exit(1)


def _done_for_another(call: Callable[[Any], Any], argument: Any, room: Path) -> Parcel:
    return hand_over(call(argument), room)


def _size(taken: Iterable[_Work]) -> int:
    return sum(work.task.size for work in taken)


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
