"""`logforge init`: a small project that runs as it is."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from logforge.core import BaseReport, Lines, noted
from logforge.schemas import StoreError, UsageError

FILES = {
    "support.jsonl": "logs/support.jsonl",
    "reward.yaml": "reward.yaml",
    "reward.schema.json": "reward.schema.json",
    "logforge.toml": "logforge.toml",
}
"""Template to place in the project."""


@dataclass(frozen=True)
class Project(BaseReport):
    """A project as written."""

    folder: str
    written: tuple[str, ...]

    def lines(self) -> Lines:
        """What is there and what to do next."""
        yield from noted(self.written, "wrote ")
        yield "\nnext:"
        yield None if self.folder == "." else f"  cd {shlex.quote(self.folder)}"
        yield "  logforge ingest logs"
        yield "  logforge build-dataset --reward reward.yaml"
        yield '  logforge sql "SELECT action, reward, return_to_go FROM transitions_latest ORDER BY episode_id, step"'


def init_project(folder: str | Path) -> Project:
    """Write the project's files. Raises UsageError, before anything is written, when one of them is there already."""
    root = Path(folder)
    taken = [place for place in FILES.values() if (root / place).exists()]
    if taken:
        raise UsageError(
            f"{root} already has {', '.join(taken)}", "choose another folder; nothing was written"
        )
    for template, place in FILES.items():
        target = root / place
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(files("logforge.templates").joinpath(template).read_bytes())
        except OSError as error:
            remedy = "choose a folder that may be written"
            raise StoreError(str(target), f"cannot be written: {error.strerror}", remedy) from None
    return Project(str(folder), tuple(str(root / place) for place in FILES.values()))
