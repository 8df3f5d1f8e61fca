"""How much a run of the tests does: `make test` what finds most, `make test-thorough` all that there is."""

from __future__ import annotations

import os
from typing import TypeVar

THOROUGH = bool(os.environ.get("LOGFORGE_TEST_THOROUGH"))

T = TypeVar("T")


def enough(usually: T, thorough: T) -> T:
    """The first in `make test`, the second in `make test-thorough`."""
    return thorough if THOROUGH else usually
