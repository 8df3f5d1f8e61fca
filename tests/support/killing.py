"""Processes to be killed: quick to start, since they are forked from one that has everything imported and no store open."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from multiprocessing import forkserver, get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from logforge.core import scratch_files
from logforge.dataset.build.pipeline import BuildConfig, build_dataset
from logforge.forgetting.pipeline import forget
from logforge.ingestion import batches, rounds
from logforge.ingestion import pipeline as ingestion
from logforge.ingestion.pipeline import ingest
from logforge.schemas.tables import TABLES
from logforge.store.store import Store, open_store
from support.places import ROOT

_CONTEXT = get_context("forkserver")
_CONTEXT.set_forkserver_preload(["support.warm"])

POINTS = ("anywhere", "commit", "checkpoint", "report", "settle")
"""Where a kill is aimed at; the delay counts from there."""


def rows_of(store: Store) -> dict[str, list[tuple]]:
    """Every row of every table, all columns but the time of the ingest."""
    return {
        name: store.con.sql(
            f"SELECT {'* EXCLUDE (ingested_at)' if name == 'sources' else '*'} FROM {name} ORDER BY ALL"
        ).fetchall()
        for name in TABLES
    }


def _die(delay: float) -> None:
    def run() -> None:
        time.sleep(delay)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=run, daemon=True).start()


def _aim(point: str, delay: float, skip: int) -> None:
    """Have the process killed `delay` seconds after it came to a point for the time `skip` + 1."""
    if point == "anywhere":
        _die(delay)
        return
    left = [skip]

    def come() -> None:
        if left[0] == 0:
            _die(delay)
        left[0] -= 1

    def before(real: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **more: Any) -> Any:
            come()
            return real(*args, **more)

        return wrapped

    transaction = Store.transaction

    @contextmanager
    def about_to_commit(self: Store) -> Any:
        with transaction(self):
            yield
            come()

    if point == "commit":
        Store.transaction = about_to_commit
    elif point == "checkpoint":
        Store.checkpoint = before(Store.checkpoint)
    else:
        module, name = {"report": (ingestion, "report_of"), "settle": (rounds, "settle")}[point]
        setattr(module, name, before(getattr(module, name)))


def _ingest(path: Path, logs: Path, aim: tuple[str, float, int], commit_sources: int) -> None:
    batches.COMMIT_SOURCES = commit_sources
    _aim(*aim)
    with open_store(path) as store:
        ingest(store, [logs])


def _forget(path: Path, user: str, aim: tuple[str, float, int]) -> None:
    _aim(*aim)
    with open_store(path) as store:
        forget(store, user=user)


def _build(path: Path, reward: Path, out: Path, delay: float) -> None:
    scratch_files.TOGETHER = 4  # many commits to be killed between
    _die(delay)
    with open_store(path) as store:
        build_dataset(store, reward, name="d", out=out, config=BuildConfig(encoder="hashing", text_size=8))


def started(target: Callable[..., None], *args: Any) -> BaseProcess:
    """A process that calls a function of a module."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(
        ROOT / "tests"
    )  # the process that forks the others finds `support.warm` by it
    try:
        forkserver.ensure_running()
    finally:
        del os.environ["PYTHONPATH"]
        os.environ.update({} if before is None else {"PYTHONPATH": before})
    process = _CONTEXT.Process(target=target, args=args)
    process.start()
    return process


def _hit(target: Callable[..., None], *args: Any) -> bool:
    process = started(target, *args)
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL), process.exitcode
    return process.exitcode == -signal.SIGKILL


def kill_ingest(path: Path, logs: Path, aim: tuple[str, float, int], commit_sources: int = 3) -> bool:
    """Ingest in a process that is killed. False when it was done before."""
    return _hit(_ingest, path, logs, aim, commit_sources)


def kill_build(path: Path, reward: Path, out: Path, delay: float) -> bool:
    """Build a dataset in a process that is killed after so many seconds. False when it was done before."""
    return _hit(_build, path, reward, out, delay)


def kill_forget(path: Path, user: str, aim: tuple[str, float, int]) -> bool:
    """Forget a user in a process that is killed. False when it was done before."""
    return _hit(_forget, path, user, aim)
