"""The verbs that take more than one package: what Python users find in `logforge`, and the command line too.

A forget that a kill or a full disk cut short is completed before anything is read, so that nothing of it comes back. Verbs that
are one package's own (see logforge/__init__.py) need nothing here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

from logforge.forgetting import complete
from logforge.ingestion import INTERVAL_S, Pass, Summary, pipeline, replaying, watching
from logforge.store import Store

__all__ = ["ingest", "replay", "watch"]

Verb = TypeVar("Verb", bound=Callable[..., Any])


def _with_nothing_pending(verb: Verb) -> Verb:
    """The verb, on a store whose pending forget is completed first."""

    @wraps(verb, assigned=("__name__", "__qualname__", "__doc__", "__annotations__"))
    def run(store: Store, *args: Any, **given: Any) -> Any:
        complete(store)
        return verb(store, *args, **given)

    return cast(Verb, run)


ingest = _with_nothing_pending(pipeline.ingest)
replay = _with_nothing_pending(replaying.replay)


def watch(
    store: str | Path,
    paths: Iterable[str | Path],
    *,
    interval: float = INTERVAL_S,
    stop: threading.Event | None = None,
    say: Callable[[str], None] = lambda text: None,
    **options: Any,
) -> Iterator[Pass | Summary]:
    """Follow the paths until `stop` is set, looking every `interval` seconds; the last item is a Summary.

    `options` are those of `ingest`, which each pass is. While another process has the store open, the pass is put off and `say`
    told so. Raises what `ingest` raises.
    """
    return watching.watch(store, paths, interval=interval, stop=stop, say=say, ingest=ingest, **options)
