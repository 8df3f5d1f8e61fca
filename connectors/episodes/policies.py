"""Who decided: the name of a behaviour policy and the version of its prompt, one rule for every format.

A policy is called by its model, then by what else is known to shape its decisions: `gpt-4o@t=0.7#prompt:ab12cd34`. What a log
does not tell is left out. People, scripts and policies that a log names itself keep the name they have.

The version of a prompt is the log's own name for it, else a hash of its text. Prompts often hold what differs between runs of
one agent (the date, ids, paths, a block about the user or the machine): this is masked first, so that the same agent is the
same policy tomorrow. Small numbers stay: `at most 5 steps` and `at most 10 steps` are two prompts. What no rule can tell from
instructions, such as a person's name or retrieved documents, stays too and makes a version of its own.
"""

from __future__ import annotations

import re
from functools import lru_cache

import xxhash

_SHOWN = 8
"""Digits of a prompt's hash in a policy's name."""
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)[a-z]{0,6}\.?"
_DAY = r"(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day"
_ABOUT_THE_RUN = (
    "env|environment|environment_context|environment_details|system_info|user_info|user_profile|user_context"
    "|current_date|current_time|date|time|session"
)
_BLOCK = re.compile(rf"<({_ABOUT_THE_RUN})>")
_VOLATILE = re.compile(
    r"https?://[^\s<>\"'`)\]}]+"
    r"|[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,4}"
    r"|\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"
    r"|\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?)?(?!\w)"
    r"|\b\d{1,2}[/.]\d{1,2}[/.]\d{2,4}\b"
    rf"|\b(?:{_DAY},? )?{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?(?:,? \d{{4}})?(?!\w)"
    rf"|\b(?:{_DAY},? )?\d{{1,2}}(?:st|nd|rd|th)? (?:of )?{_MONTH}(?:,? \d{{4}})?(?!\w)"
    rf"|\b{_DAY}\b"
    r"|\b\d{1,2}:\d\d(?::\d\d(?:\.\d+)?)?(?: ?[AaPp]\.?[Mm]\b\.?)?(?: (?:UTC|GMT|[ECMP][SD]T)\b)?"
    r"|(?<![\w/])(?:~|[A-Za-z]:)?(?:[/\\][\w.@+-]{1,100}){2,40}"
    r"|\b(?=[A-Za-z_-]{0,40}\d)(?=[\d_-]{0,40}[A-Za-z])[A-Za-z0-9_-]{12,200}\b"
    r"|\b\d{5,}\b"
)
"""Web and e-mail addresses, UUIDs, dates and times, paths, long ids, long numbers."""


@lru_cache(maxsize=256)
def prompt_version(prompt: str) -> str:
    """16 hex digits of a system prompt, the same for prompts that differ in what is masked alone."""
    return xxhash.xxh3_64_hexdigest(_VOLATILE.sub("<>", _without_blocks(prompt)).encode())


def _without_blocks(prompt: str) -> str:
    """The prompt without its blocks about the run."""
    kept, at, unclosed = [], 0, set()
    for begin in _BLOCK.finditer(prompt):
        tag = begin.group(1)
        if begin.start() < at or tag in unclosed:
            continue
        end = prompt.find(f"</{tag}>", begin.end())
        if end < 0:
            unclosed.add(tag)
        else:
            kept.append(prompt[at : begin.start()])
            at = end
    return "<>".join([*kept, prompt[at:]])


_HASH = re.compile(r"[0-9a-f]{16}")


def policy_name(model: str, temperature: float | None, prompt: str | None) -> str:
    """The name of a model's policy; `prompt` is its prompt's version."""
    heat = "" if temperature is None else f"@t={temperature:g}"
    return f"{model}{heat}{prompt_suffix(prompt)}" if prompt else f"{model}{heat}"


def prompt_suffix(prompt: str) -> str:
    """How a policy's name ends that has such a version of its prompt."""
    return f"#prompt:{prompt[:_SHOWN] if _HASH.fullmatch(prompt) else prompt}"
