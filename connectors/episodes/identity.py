"""Which id makes an episode: a native id that is unique wherever it is met, else the record that it stands on.

And which one makes a group: runs on one task stay on one side of a split, whatever format they were logged in.
"""

from __future__ import annotations

import re

import xxhash

from logforge.connectors.records import canonical

_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE)
_ISSUES = (
    re.compile(
        r"<(?P<tag>pr_description|issue_description|problem_statement)>\s*\n(?P<issue>.*?)</(?P=tag)>",
        re.DOTALL,
    ),
    re.compile(r"^[ \t]*ISSUE:[ \t]*\n(?P<issue>.*?)\n[ \t]*INSTRUCTIONS:", re.DOTALL | re.MULTILINE),
    re.compile(
        r"\A\s*Please solve this issue:(?P<issue>.*?)\n[ \t]*You can execute bash commands", re.DOTALL
    ),
)
"""Where harnesses put the issue; what stands around it differs between them, and between configurations of one."""
_LEAD = re.compile(r"\A\s*(?:Task:|Consider the following PR description:)")
_CHANCES = re.compile(r"\n[ \t]*You have \d+ chances to interact with the environment.*\Z", re.DOTALL)
_SMITH_RUN = re.compile(r"(\S+__\S+\.[0-9a-f]{8}\.\S+)\.[0-9a-z]{8}_\d+")
_RUN_NUMBER = re.compile(r"(\S+__\S+-\d+)_\d+")


def episode_id(format_name: str, *identity: object) -> str:
    """32 hex digits from the format and what identifies the episode (see docs/design.md §3, Identity)."""
    return xxhash.xxh3_128_hexdigest("\x1f".join((format_name, *map(str, identity))).encode())


def content_id(format_name: str, record: object) -> str:
    """An episode id from the whole record, for formats whose own ids are not unique across files."""
    return episode_id(format_name, canonical(record))


def is_uuid(text: str | None) -> bool:
    """True for an id that is a UUID."""
    return text is not None and _UUID.fullmatch(text) is not None


def native_or_content(format_name: str, native_id: str | None, record: object) -> str:
    """The episode id from a UUID; any other native id repeats between machines, so the record decides."""
    if native_id is not None and is_uuid(native_id):
        return episode_id(format_name, native_id.lower())
    return content_id(format_name, record)


def issue_in(task: str | None) -> str | None:
    """The issue that a harness asks to be solved, without what it says around it; None for other tasks."""
    found = (pattern.search(task or "") for pattern in _ISSUES)
    return next((match["issue"] for match in found if match), None)


def task_group(task: str | None) -> str | None:
    """The group of a task's text, the same in every format. Runs on one issue share it, whatever stands around it."""
    words = _CHANCES.sub("", _LEAD.sub("", issue_in(task) or task or "")).split()
    return episode_id("task", " ".join(words)) if words else None


def run_task(name: str | None) -> str | None:
    """The task of a run whose name ends with its number, such as `owner__repo-12_3` (SWE-bench's instances) or
    `owner__repo.1d70d009.kind__abcdefgh.ijklmnop_1` (SWE-smith's, with a trajectory's own id); None for other names."""
    made = _SMITH_RUN.fullmatch(name or "")
    return made.group(1) if made else instance_task(name) if _RUN_NUMBER.fullmatch(name or "") else None


def instance_task(instance: str | None) -> str | None:
    """The task of an instance id such as `owner__repo-12_3`, without the number of the run at its end."""
    run = _RUN_NUMBER.fullmatch(instance or "")
    return run.group(1) if run else instance
