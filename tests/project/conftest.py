"""What the tests of the project share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.ready_process import ready_commands


@pytest.fixture(scope="session")
def commands() -> Iterator[Path]:
    """A folder with `logforge` and `python` that are quick to start."""
    with ready_commands() as folder:
        yield folder
