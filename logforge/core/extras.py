"""Optional dependencies: imported where they are needed, and asked for by the pip command that brings them."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType

from logforge.schemas import MissingExtra


def need(module: str, extra: str) -> ModuleType:
    """Import `module`; where it is not installed, say which extra of logforge brings it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        root = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != root:
            raise
        raise MissingExtra(root, extra) from error


@cache
def import_d3rlpy() -> ModuleType:
    """d3rlpy without gym's banner, and with its log on stderr: stdout belongs to data."""
    _silence_gym()
    d3rlpy = need("d3rlpy", "train")
    structlog = need("structlog", "train")
    # Looked up at each call: a stream kept from now may be closed or redirected by then.
    structlog.configure(logger_factory=lambda *_: structlog.PrintLogger(sys.stderr))
    return d3rlpy


def _silence_gym() -> None:
    """Take away what gym prints when imported, and nothing else that might be said meanwhile."""
    with contextlib.suppress(ModuleNotFoundError):
        importlib.import_module("gym_notices.notices").notices.clear()


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch on one thread, so that sums come in one order on any machine; the earlier count comes back after."""
    import torch

    earlier = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(earlier)
