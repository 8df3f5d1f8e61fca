"""Defaults from `logforge.toml` or `[tool.logforge]` in pyproject.toml, whichever lies nearest above the working folder."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from logforge.schemas import Problem, SpecError

GLOBAL = "store"
"""The one key at the top that every command which takes it gets."""
PATHS = frozenset({"store", "reward", "out", "vocabulary", "weights"})
"""Keys that name a file or folder; in a config file they are relative to that file's folder."""
_AT_LINE = re.compile(r"\(at line (\d+), column \d+\)")
_REMEDY = "correct the config file; `logforge COMMAND --help` lists the options, which are its keys"


def find_config(start: Path) -> tuple[Path, dict[str, Any]] | None:
    """The nearest config file at or above `start`, and its logforge table. Raises SpecError for damaged TOML."""
    for folder in (start, *start.parents):
        for name in ("logforge.toml", "pyproject.toml"):
            path = folder / name
            if path.is_file():
                values = _read(path)
                if name == "pyproject.toml":
                    values = _table(_table(values, "tool", path), "logforge", path)
                if values or name == "logforge.toml":
                    return path, values
    return None


def _table(values: Mapping[str, Any], key: str, path: Path) -> dict[str, Any]:
    value = values.get(key, {})
    if not isinstance(value, dict):
        raise SpecError([Problem(f"{key} must be a table", str(path), _line(path, key))], _REMEDY)
    return value


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        at_line = _AT_LINE.search(str(error))
        what = _AT_LINE.sub("", str(error)).strip()
        line = int(at_line[1]) if at_line else None
        raise SpecError([Problem(f"not valid TOML: {what}", str(path), line)], _REMEDY) from None
    except OSError as error:
        raise SpecError([Problem(f"cannot be read: {error.strerror}", str(path))], _REMEDY) from None


def _line(path: Path, key: str) -> int | None:
    """The first line that sets a key or begins its table; None when it stands elsewhere."""
    wanted = re.compile(rf"\s*(\[(?:.*\.)?)?[\"']?{re.escape(key)}[\"']?\s*[\]=]")
    lines = path.read_text("utf-8-sig").splitlines()
    return next((number for number, line in enumerate(lines, 1) if wanted.match(line)), None)


def default_map(start: Path, options: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, Any]]:
    """click's default_map: for each command, the values that the config file gives its parameters.

    `options` maps each command to its options (`text-size`) and those to the parameters they fill (`text_size`).
    Raises SpecError listing every unknown section and key.
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
        raise SpecError(problems, _REMEDY)
    values = {command: {**scalars, **sections.get(command, {})} for command in options}
    return {
        command: {
            known[key]: _placed(key, value, path) for key, value in values[command].items() if key in known
        }
        for command, known in options.items()
    }


def _placed(key: str, value: Any, path: Path) -> Any:
    if key in PATHS and isinstance(value, list):
        return [_placed(key, item, path) for item in value]
    return str(path.parent / value) if key in PATHS and isinstance(value, str) else value


def _unknown(found: Iterable[str], valid: Iterable[str], path: Path, prefix: str) -> list[Problem]:
    names = list(valid)
    problems = []
    for key in found:
        if key not in names:
            near = difflib.get_close_matches(key, names, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            what = f"unknown key{hint} (valid: {', '.join(names)})"
            problems.append(Problem(what, str(path), _line(path, key), prefix + key))
    return problems
