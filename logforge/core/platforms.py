"""Where operating systems differ. Linux and macOS have all that logforge asks for; Windows has not.

`sys.platform` is compared where it is asked, here and elsewhere: a type checker leaves out what another system runs.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from logforge.schemas import StoreError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl
    import resource

ON_LINUX = "run it on Linux or macOS, or in the Windows Subsystem for Linux"


def not_on_windows(path: Path | str, what: str) -> StoreError:
    """The error of something that Windows has no means for."""
    return StoreError(str(path), f"{what} does not work on Windows", ON_LINUX, rule="not_on_windows")


def lock(file: IO[Any]) -> None:
    """Lock a file for this handle alone, once no other has it. Closing it ends the lock."""
    if sys.platform == "win32":
        while True:  # each try waits for ten seconds
            with suppress(OSError):
                msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
                return
    fcntl.flock(file, fcntl.LOCK_EX)


def peak_megabytes() -> float | None:
    """The most memory this process has had; None where the system does not tell (Windows)."""
    if sys.platform == "win32":
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)
