"""Which actions are dangerous, and how: they delete, pay, send, … A flag for people, rewards and gates; nothing is executed.

The tool's name decides; for tools that run commands or queries, what they run does. A list in the config
adds to the built-in one, or replaces it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

from logforge.connectors.records import NotJson, loads
from logforge.schemas import UsageError

BUILT_IN_OFF = "none"
"""An entry that leaves the built-in list out."""

SAFE = "safe"
"""The kind of an entry that takes tools off the list."""

VERBS: dict[str, frozenset[str]] = {
    "delete": frozenset(
        "delete del remove rm drop destroy purge erase wipe truncate uninstall unlink trash".split()
    ),
    "pay": frozenset(
        "pay purchase buy charge refund withdraw checkout deposit payout donate book reserve order".split()
    ),
    "send": frozenset("send email mail post publish tweet reply forward sms notify broadcast share".split()),
    "cancel": frozenset("cancel terminate revoke deactivate disable suspend close".split()),
    "grant": frozenset("grant chmod chown sudo authorize invite promote".split()),
    "deploy": frozenset("deploy release rollback migrate merge push shutdown reboot restart".split()),
}
"""The danger of a verb at the beginning or the end of a tool's name."""
MONEY = frozenset("money payment payments funds invoice".split())
"""Whatever is done with these, but reading, is `pay`."""
NOUNS = frozenset("order post email mail book release share".split())
"""These are verbs at the beginning alone, but for `restaurant_book`."""
FACTS = frozenset("status history info details metadata count stats list".split())
"""A name that ends with one of these asks too."""
READS = frozenset(
    "get list search find read check view show lookup look fetch query describe count calculate is has can think see browse "
    "preview validate verify estimate retrieve scan inspect open track compare explain summarize".split()
)
"""A name that begins with one of these asks, whatever else it says (`get_deleted_users`)."""
SHELLS = frozenset(
    "bash sh zsh shell terminal cmd command commands exec execute powershell run console sql query database db ipython python code "
    "script kubectl ssh".split()
)
"""A name with one of these runs what its arguments say."""

HTTP = frozenset("http https request requests api rest fetch url webhook endpoint".split())
"""A name with one of these sends what its arguments say, by their `method`."""

COMMANDS: dict[str, str] = {
    "delete": r"\brm\s+(?:-[\w-]{1,40}\s{1,20}){0,9}[^\s|&;'\"-]|\brmdir\s|\bunlink\s|\bshred\s|\bmkfs\b|\bdd\s[^\n|;]{0,300}\bof=/dev/|\bfind\b[^\n|;]{0,300}\s-delete\b"
    r"|\bgit\s+(?:clean\s+-\w*f|reset\s+--hard|branch\s+-D|checkout\s+--\s)|\bkubectl\s+delete\b|\bterraform\s+destroy\b"
    r"|\bdocker\s+(?:\w+\s+)?(?:prune|rm|rmi)\b|\baws\s[^\n|;]{0,300}\b(?:delete|terminate|rm|rb)\b|\bgcloud\s[^\n|;]{0,300}\bdelete\b"
    r"|\b(?:drop|truncate)\s+(?:table|database|schema|view|index|user|role)\b|\bdelete\s+from\b|\bshutil\.rmtree\b|\bos\.(?:remove|unlink|rmdir)\b"
    r"|\bcurl\b[^\n|;]{0,300}(?:-X|--request[ =])\s*['\"]?DELETE\b|\brequests\.delete\b|\bRemove-Item\b|\b(?:pip3?|npm|apt|apt-get|brew|yum)\s+(?:uninstall|remove|purge)\b",
    "send": r"\b(?:sendmail|mailx|mutt|msmtp)\b|\bsmtplib\b|\bcurl\b[^\n|;]{0,300}(?:-X\s*['\"]?(?:POST|PUT|PATCH)\b|\s(?:-d|--data\S*|-F|--form|-T|--upload-file)\s)"
    r"|\brequests\.(?:post|put|patch)\b|\b(?:npm|cargo|poetry)\s+publish\b|\btwine\s+upload\b|\bscp\s|\brsync\s[^\n|;]{0,300}\S{1,100}@\S{1,100}:",
    "execute": r"\b(?:curl|wget)\b[^\n|;]{0,300}\|\s*(?:sudo\s+)?(?:ba|z|k)?sh\b|\beval\s+[\"'$`]|:\(\)\s*\{",
    "grant": r"\bsudo\s|\bchmod\s+(?:-R\s+)?(?:0?777|a\+\w*w|\+s|u\+s)|\bchown\s|\bgrant\s+(?:all|select|insert|update|delete|usage|execute)\b|\busermod\b|\bvisudo\b",
    "deploy": r"\bgit\s+push\b|\bdocker\s+push\b|\bkubectl\s+(?:apply|rollout|scale)\b|\bterraform\s+apply\b|\bhelm\s+(?:install|upgrade)\b"
    r"|\b(?:shutdown|reboot|halt|poweroff)\b|\bsystemctl\s+(?:stop|restart|disable)\b|\bkill(?:all)?\s+-(?:9|KILL|SIGKILL)\b",
}
"""The danger of a command or query; of several the first in this order counts. `git push --force` deletes history."""

_HINTS = (
    "rm ", "rmdir", "unlink", "shred", "mkfs", "dd ", "-delete", "git ", "kubectl", "terraform", "docker", "aws ", "gcloud", "drop", "truncate",
    "delete", "rmtree", "os.remove", "curl", "wget", "remove", "uninstall", "purge", "mail", "mutt", "msmtp", "smtplib", "requests.", "publish",
    "twine", "scp", "rsync", "sudo", "chmod", "chown", "grant", "usermod", "helm", "shutdown", "reboot", "halt", "poweroff", "systemctl", "kill",
    "eval", ":()",
)  # fmt: skip
_SAID = re.compile(
    r"\b(?:echo|printf)\s+(?:-\w+\s+)*(?:\"(?:[^\"\\`$]|\\.|\$(?!\())*\"|'[^']*')(?=\s*(?:$|[\n;>]|&&|\|\|))"
)
"""What is printed, or written into a file, is not run; piped on it may be."""
_METHOD = re.compile(r"\"(?:http_?)?(?:method|verb)\"\s*:\s*\"(delete|post|put|patch)\"", re.IGNORECASE)
_FORCED = re.compile(
    r"\bgit\s+push\b[^\n|;&]{0,300}\s(?:-f\b|--force\b|--force-with-lease\b|--delete\b|--mirror\b|:\S)",
    re.IGNORECASE,
)
_COMMANDS = {kind: re.compile(pattern, re.IGNORECASE) for kind, pattern in COMMANDS.items()}
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SCOPE = re.compile(r"__|[./:]")


@dataclass(frozen=True)
class Dangers:
    """The list to go by: `own` entries (kind, pattern of names) come before the built-in ones, where these are wanted."""

    own: tuple[tuple[str, str], ...] = ()
    built_in: bool = True

    @classmethod
    def of(cls, entries: Iterable[str]) -> Dangers:
        """From entries `KIND=PATTERN` (a glob over tool names, as `pay=buy_*`; the first that fits counts) and `none`.

        Raises UsageError for others.
        """
        entries = list(entries)
        own = []
        for entry in entries:
            kind, sign, pattern = entry.partition("=")
            if entry == BUILT_IN_OFF:
                continue
            if not (sign and pattern.strip() and re.fullmatch(r"[a-z][a-z_]*", kind.strip())):
                raise UsageError(
                    f"{entry!r} is no entry of the danger list",
                    "write KIND=PATTERN, as delete=archive_*, or none",
                )
            own.append((kind.strip(), pattern.strip()))
        return cls(tuple(own), BUILT_IN_OFF not in entries)

    def of_action(self, action: str, arguments: str) -> str | None:
        """How a tool call is dangerous; None when it is not. `arguments` are the JSON text of the call."""
        for kind, pattern in self.own:
            if fnmatchcase(action, pattern):
                return None if kind == SAFE else kind
        if not self.built_in:
            return None
        words = _words(action)
        return (
            _of_name(action)
            or (_of_command(arguments) if words & SHELLS else None)
            or (_of_method(arguments) if words & HTTP else None)
        )


@lru_cache(maxsize=4096)
def _words(action: str) -> frozenset[str]:
    return frozenset(word.lower() for word in _WORD.findall(action))


@lru_cache(maxsize=4096)
def _of_name(action: str) -> str | None:
    name, _, service = _SCOPE.split(action)[-1].partition("_for_")
    words = [word.lower() for word in _WORD.findall(name)]
    if not words or words[0] in READS or words[-1] in FACTS or (service and words[0] in NOUNS):
        return None
    if not MONEY.isdisjoint(words):
        return "pay"
    verbs = [words[0], *(word for word in (*words[1:2], words[-1]) if word == "book" or word not in NOUNS)]
    return next((kind for verb in verbs for kind, known in VERBS.items() if verb in known), None)


def _of_method(arguments: str) -> str | None:
    found = _METHOD.search(arguments)
    return None if found is None else "delete" if found[1].lower() == "delete" else "send"


def _unfolded(arguments: str) -> str:
    """The strings of a call's arguments, a line each; what is no JSON as it is."""
    try:
        return "\n".join(_strings(loads(arguments)))
    except NotJson:
        return arguments


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        yield " ".join(item for item in value if isinstance(item, str))
        yield from (text for item in value if not isinstance(item, str) for text in _strings(item))


def _of_command(arguments: str) -> str | None:
    low = arguments.lower().replace('","', " ")
    if not any(hint in low for hint in _HINTS):
        return None
    text = _SAID.sub("echo", _unfolded(arguments))
    if _FORCED.search(text):
        return "delete"
    return next((kind for kind, pattern in _COMMANDS.items() if pattern.search(text)), None)
