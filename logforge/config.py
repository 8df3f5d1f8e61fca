"""Defaults from `logforge.toml` or `[tool.logforge]` in pyproject.toml, whichever lies nearest above the working folder."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from logforge.schemas.errors import Problem, SpecError

GLOBAL = "store"
"""The one key at the top that every command which takes it gets."""


def find_config(start: Path) -> tuple[Path, dict[str, Any]] | None:
    """The nearest config file at or above `start`, and its logforge table. Raises SpecError for damaged TOML."""
    for folder in (start, *start.parents):
        for name in ("logforge.toml", "pyproject.toml"):
            path = folder / name
            if path.is_file():
                values = _read(path)
                table = values if name == "logforge.toml" else values.get("tool", {}).get("logforge")
                if table is not None:
                    return path, table
    return None


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpecError([Problem(f"not valid TOML: {error}", str(path))]) from None


def default_map(start: Path, options: Mapping[str, Mapping[str, object]]) -> dict[str, dict[str, Any]]:
    """click's default_map: for each command, the values that the config file gives its options.

    `options` maps each command to the options it has. Raises SpecError listing every unknown section and key.
    """
    found = find_config(start)
    if found is None:
        return {}
    path, table = found
    sections = {key: value for key, value in table.items() if isinstance(value, dict)}
    scalars = {key: value for key, value in table.items() if not isinstance(value, dict)}
    problems = _unknown(scalars, (GLOBAL,), path, "") + _unknown(sections, options, path, "")
    for name, section in sections.items():
        problems += _unknown(section, options[name], path, f"{name}.") if name in options else []
    if problems:
        raise SpecError(problems)
    return {
        command: {
            **{key: value for key, value in scalars.items() if key in known},
            **{key.replace("-", "_"): value for key, value in sections.get(command, {}).items()},
        }
        for command, known in options.items()
    }


def _unknown(
    found: Mapping[str, object], valid: Mapping[str, object] | tuple[str, ...], path: Path, prefix: str
) -> list[Problem]:
    problems = []
    for key in found:
        if key not in valid and key.replace("-", "_") not in valid:
            near = difflib.get_close_matches(key, list(valid), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            problems.append(
                Problem(f"unknown key{hint} (valid: {', '.join(valid)})", str(path), field=prefix + key)
            )
    return problems
