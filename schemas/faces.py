"""The face of a package: the names that others take from it, imported when they are first asked for.

A package's `__init__` lists its names three times: as imports for type checkers, in `__all__`, and in the call of `face`.
A test holds the three equal, and equal to what other packages and the documentation take.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any


def face(package: str, **homes: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and the `__dir__` of a package (PEP 562). `homes` are its modules, each with its names, a space between."""
    home = {name: module for module, names in homes.items() for name in names.split()}

    def get(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{package}.{home[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted(home)
