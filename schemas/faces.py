"""The face of a package: the names that others take from it, imported when they are first asked for.

A package's `__init__` lists its names three times: as imports for type checkers, in `__all__`, and in the call of `face`.
A test holds the three equal, and equal to what other packages and the documentation take.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any


def face(package: str, **homes: str) -> None:
    """Give a package its `__getattr__` and `__dir__` (PEP 562). `homes` are its modules, each with its names, a space between.

    They are set from here, so that a type checker knows the package by its imports alone and finds a name that is not there.
    """
    home = {name: module for module, names in homes.items() for name in names.split()}
    own = sys.modules[package].__dict__

    def get(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        own[name] = value = getattr(importlib.import_module(f"{package}.{home[name]}"), name)
        return value

    own["__getattr__"], own["__dir__"] = get, lambda: sorted(home)
