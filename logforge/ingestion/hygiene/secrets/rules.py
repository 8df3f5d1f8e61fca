"""Secrets that their surroundings give away: a name, a header, a flag, a URL. The detectors of issuers' keys are in
shapes.py and vendors.py.

Where a rule captures a value by its context, values.py says whether it may be one.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from logforge.ingestion.hygiene.secrets.columns import HINTS as COLUMN_HINTS
from logforge.ingestion.hygiene.secrets.columns import columns
from logforge.ingestion.hygiene.secrets.findings import Finding
from logforge.ingestion.hygiene.secrets.hints import windows
from logforge.ingestion.hygiene.secrets.values import (
    has_letter_and_digit,
    is_code,
    is_dotted,
    is_passphrase,
    looks_random,
    may_be_secret,
    stands_in,
)


class Rule(NamedTuple):
    """A pattern whose group `v` (or the whole match) is the secret when `fits` says so. It is tried within `reach`
    characters before and after its hints (in lower case)."""

    name: str
    kind: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    fits: Callable[[str], bool]
    reach: tuple[int, int]
    rank: int = 2


def _rule(
    name: str,
    kind: str,
    hints: str,
    pattern: str,
    fits: Callable[[str], bool],
    reach: tuple[int, int] = (60, 600),
    rank: int = 2,
) -> Rule:
    words = tuple(word.replace("~", " ") for word in hints.split())
    return Rule(name, kind, words, re.compile(pattern), fits, reach, rank)


def _any(value: str) -> bool:
    return True


def _no_word(value: str) -> bool:
    return has_letter_and_digit(value) and may_be_secret(value)


def _is_basic(value: str) -> bool:
    """Base64 of `user:password`."""
    try:
        return b":" in base64.b64decode(value + "=" * (-len(value) % 4), validate=True)
    except (binascii.Error, ValueError):
        return False


def _is_url_password(value: str) -> bool:
    return not stands_in(value)


_PEM = r"[A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----"
_Q = r"[\"']?"

RULES = (
    _rule(
        "private_key",
        "PRIVATE_KEY",
        "private~key",
        rf"-----BEGIN {_PEM}(?:(?:(?!-----)[\s\S]){{16,20000}}-----END {_PEM}|(?:\\[nr]|[\sA-Za-z0-9+/=]){{16,20000}})",
        _any,
        (60, 20_200),
        0,
    ),
    _rule(
        "url_password",
        "PASSWORD",
        r":// :\/\/",
        r"(?i)\b[a-z][a-z0-9+.-]{1,20}:(?:\\?/){2}[^\s/:@\"'<>\\]{0,100}:(?P<v>[^\s\"'<>\\/]{1,200})@(?=[\w\[$%{])",
        _is_url_password,
        (24, 400),
    ),
    _rule(
        "authorization",
        "TOKEN",
        "authorization",
        rf"(?i)\bauthorization{_Q}\s{{0,2}}[:=]\s{{0,2}}{_Q}(?:(?:bearer|token|digest|api-?key|key|splunk|bot)\s+)?"
        r"(?P<v>[A-Za-z0-9._~+/=:-]{8,4000})",
        _no_word,
        (60, 4200),
    ),
    _rule(
        "bearer", "TOKEN", "bearer", r"(?i)\bbearer\s+(?P<v>[A-Za-z0-9._~+/=-]{12,4000})", _no_word, (1, 4200)
    ),
    _rule(
        "basic_auth",
        "BASIC_AUTH",
        "authorization \"basic~ 'basic~ =basic~",
        r"(?i)\bbasic\s+(?P<v>[A-Za-z0-9+/]{8,500}={0,2})",
        _is_basic,
    ),
    _rule(
        "curl_user",
        "PASSWORD",
        "curl",
        r"\bcurl\b[^\n|]{0,300}?\s(?:-u|--user)[ =]?[\"']?[^\s:\"'$]{1,60}:(?P<v>[^\s\"'$]{3,200})",
        may_be_secret,
    ),
    _rule(
        "mysql_password",
        "PASSWORD",
        "mysql mariadb",
        r"\b(?:mysql\w*|mariadb\w*)\b[^\n|;]{0,200}?\s-p[\"']?(?P<v>[^\s\"'|;$-][^\s\"'|;]{0,200})",
        may_be_secret,
    ),
    _rule(
        "password_option",
        "PASSWORD",
        "sshpass redis-cli",
        r"\b(?:sshpass\s+-p|redis-cli\b[^\n|;]{0,80}?\s-a)\s*[\"']?(?P<v>[^\s\"'$]{3,200})",
        may_be_secret,
    ),
    _rule(
        "login_password",
        "PASSWORD",
        "~login",
        r"\b(?:docker|podman|nerdctl|buildah|skopeo|crane|oras|helm\s+registry|az|oc|argocd|cf)\s+login\b[^\n|;]{0,200}?\s-p[ =]?[\"']?(?P<v>[^\s\"'|;$-][^\s\"'|;]{3,200})",
        may_be_secret,
    ),
    _rule(
        "archive_password",
        "PASSWORD",
        "zip~ 7z~ 7za~",
        r"\b(?:(?:un)?zip\b[^\n|;]{0,120}?\s-P\s{0,2}|7za?\s[^\n|;]{0,120}?\s-p)[\"']?(?P<v>[^\s\"'|;$-][^\s\"'|;]{3,200})",
        may_be_secret,
    ),
    _rule(
        "html_password",
        "PASSWORD",
        "password",
        r"(?i)<input\b(?=[^>]{0,300}\btype=[\"']?password\b)[^>]{0,300}?\bvalue=[\"'](?P<v>[^\"'<>{}]{4,200})[\"']",
        may_be_secret,
        (320, 620),
    ),
    _rule(
        "password_abroad",
        "PASSWORD",
        "passwort kennwort contraseñ contrasen mot~de~passe senha wachtwoord парол 密码 密碼 口令 パスワード 비밀번호",
        r"(?i)(?:\b(?:passwort|kennwort|contrase[ñn]a|mot\s+de\s+passe|senha|wachtwoord|пароль)\b|密码|密碼|口令|パスワード|비밀번호)"
        r"[\"']?\s{0,2}(?:[:=：]|是|は|\b(?:lautet|ist|es|est|é)\b)\s{0,2}[\"'`]?(?P<v>[^\s\"'`，。]{4,200}[^\s\"'`.,;:!?)\]，。])",
        _no_word,
        rank=3,
    ),
    _rule(
        "password_flag",
        "PASSWORD",
        "passw passphrase",
        r"(?i)(?<!\w)--?[\w-]{0,30}(?:password|passwd|passphrase)(?:=|\s+)[\"']?(?P<v>[^\s\"'$=-][^\s\"']{3,200})",
        may_be_secret,
    ),
    _rule(
        "token_flag",
        "TOKEN",
        "token secret api-key apikey access-key",
        r"(?i)(?<!\w)--?[\w-]{0,30}(?:token|secret|api-?key|access-?key|secret-?key)(?:=|\s+)[\"']?(?P<v>[^\s\"'$=-][^\s\"']{7,400})",
        looks_random,
    ),
    _rule(
        "sql_password",
        "PASSWORD",
        "identified~by password",
        r"(?i)\b(?:identified\s+by|password)\s+'(?P<v>[^'\s]{4,200})'",
        may_be_secret,
    ),
    _rule(
        "xml_password",
        "PASSWORD",
        "passw passphrase",
        r"(?i)<(?P<n>[\w:.-]{0,40}(?:password|passwd|passphrase))>(?P<v>[^<>\s]{4,200})</(?P=n)>",
        may_be_secret,
    ),
    _rule(
        "xml_secret",
        "SECRET",
        "secret token apikey api_key api-key",
        r"(?i)<(?P<n>[\w:.-]{0,40}(?:secret|token|api[_-]?key))>(?P<v>[^<>\s]{8,400})</(?P=n)>",
        looks_random,
    ),
    _rule("netrc", "PASSWORD", "login", r"\blogin\s+\S{1,100}\s+password\s+(?P<v>\S{4,200})", may_be_secret),
    _rule(
        "said_password",
        "PASSWORD",
        "password passphrase passcode pwd",
        r"(?i)\b(?:password|passphrase|passcode|pwd)\s+(?:is|was|to|as)\s*:?\s*[\"'`]?(?P<v>[^\s\"'`]{5,200}[^\s\"'`.,;:!?)\]])",
        _no_word,
        rank=3,
    ),
    _rule("sas_signature", "AZURE_KEY", "sig=", r"(?i)[?&]sig=(?P<v>[A-Za-z0-9%+/=]{30,200})", _any),
    _rule(
        "account_key",
        "AZURE_KEY",
        "accountkey sharedaccesskey",
        r"(?i)\b(?:AccountKey|SharedAccessKey)=(?P<v>[A-Za-z0-9+/]{30,200}={0,2})",
        _any,
        rank=0,
    ),
    _rule(
        "telegram",
        "TELEGRAM_TOKEN",
        ":aa",
        r"(?<!\d)\d{8,10}:AA[A-Za-z0-9_-]{32,36}(?![A-Za-z0-9_-])",
        _any,
        (12, 60),
        0,
    ),
)

_STRONG = r"pass(?:word|wd|phrase|code)|pwd|pswd|(?<=[A-Za-z0-9][_-])pass"
_KEYS = r"(?:api|access|secret|private|auth|account|encryption|signing|shared|access|master|service|storage|subscription|license)[_.-]?key"
_WEAK = rf"secret|token|{_KEYS}|credentials?"
_TAIL = r"(?:[_-]?(?:prod|dev|test|live|staging|old|new|value|text|plain|\d{1,3}))?"
_NAME = rf"(?<![A-Za-z0-9])(?P<name>[A-Za-z0-9_.-]{{0,48}}?(?:(?P<strong>{_STRONG})|{_WEAK}){_TAIL})"
_QUOTED = r"(?P<quote>[\"'`])(?P<quoted>(?:\\.|(?!(?P=quote))[^\\\r\n]){4,400}?)(?P=quote)"
_BARE = (
    r"(?P<bare>(?:(?<=:)|(?<=: ))[^\s\"'`<>,}\]\\]{3,399}[^\s\"'`<>,}\]\\.;)]"  # after a colon it ends with the word
    r"|[^\s\"'`<>()\[\]{},;&|\\]{3,399}[^\s\"'`<>()\[\]{},;&|\\.])"  # else also where a query, a call or a command goes on
)
_ASSIGNMENT = re.compile(
    rf"{_NAME}(?P<between>[\"'`\])]{{0,3}}[ \t]{{0,3}}(?P<sign>=>|:=|=|:)[ \t]{{0,3}})(?:[frb]{{0,2}}{_QUOTED}|{_BARE})",
    re.IGNORECASE,
)
_NAMED_VALUE = re.compile(
    rf"{_Q}\b(?:name|key){_Q}\s{{0,2}}[:=]\s{{0,2}}{_Q}{_NAME}{_Q}\s{{0,2}},?\s{{0,40}}{_Q}\bvalue{_Q}\s{{0,2}}[:=]\s{{0,2}}{_QUOTED}",
    re.IGNORECASE,
)
_ENV_LINE = re.compile(
    r"^[ \t]*(?:export[ \t]+|set[ \t]+|ENV[ \t]+|ARG[ \t]+|-[ \t]+|-e[ \t]+)?"
    r"(?P<name>[A-Z0-9_]{0,60}(?:(?P<strong>PASS(?:WORD|WD|PHRASE|CODE)?|PWD)|SECRET|TOKEN|KEY|CREDENTIALS?)(?:_[A-Z0-9]{1,20})?)="
    r"(?P<bare>[^\s\"'`$<][^\s]{3,400})$",
    re.MULTILINE,
)
_PAGING = re.compile(
    r"(?i)(?:page|next|prev|previous|continuation|sync|cursor|resume|pagination|eos|bos|pad|unk|mask)[_-]?tokens?$"
)
_NO_SECRET_NAME = re.compile(r"^(?:OLD)?PWD$|(?i:public|tokenizer)")
_NAMES = tuple(
    word.replace("~", " ")
    for word in (
        "passw passphrase passcode pwd pswd _pass= _pass: _pass\" _pass' _pass~ _pass] -pass= -pass: secret token credential apikey api_key api-key api.key "
        "accesskey access_key access-key access.key privatekey private_key private-key authkey auth_key auth-key accountkey account_key "
        "encryptionkey encryption_key signingkey signing_key sharedkey shared_key masterkey master_key servicekey service_key storagekey storage_key subscriptionkey "
        "subscription_key subscription-key licensekey license_key"
    ).split()
)
_KINDS = (
    (re.compile(r"(?i)pass|pwd|pswd"), "PASSWORD"),
    (re.compile(r"(?i)api[_.-]?key"), "API_KEY"),
    (re.compile(r"(?i)token"), "TOKEN"),
)
_COOKIE = re.compile(r"(?i)\b(?:set-)?cookie[\"']?\s{0,2}[:=]\s{0,2}(?P<pairs>[^\n]{8,4000})")
_PAIR = re.compile(r"(?P<name>[\w.-]+)=(?P<v>[^;\s\"'\\,]{8,})")

HINTS = tuple(sorted({*_NAMES, "cookie", "_key", *(hint for rule in RULES for hint in rule.hints)}))
"""Every text that a rule finds something in holds one of these, in any case: the cheap test that comes first."""


def kind_of_name(name: str) -> str:
    """The placeholder's word for a value that has such a name."""
    return next((kind for pattern, kind in _KINDS if pattern.search(name)), "SECRET")


_SECRET_NAME = re.compile(f"(?i)^{_NAME}$")


def named_secret(name: str, value: str) -> bool:
    """Whether a field of such a name (of a JSON object, say) with such a value holds a secret."""
    found = _SECRET_NAME.match(name)
    if not found or _is_no_secret_name(name) or not may_be_secret(value):
        return False
    if found["strong"]:
        return len(value) >= 4 and (" " not in value or has_letter_and_digit(value) or is_passphrase(value))
    return looks_random(value) and " " not in value and not _is_identifier(value)


def _is_no_secret_name(name: str) -> bool:
    return bool(_PAGING.search(name) or _NO_SECRET_NAME.search(name))


def contextual(text: str, low: str, hints: frozenset[str]) -> Iterator[Finding]:
    """Every secret that its surroundings give away; they may overlap. `low` is the text in lower case, `hints` are those that
    it holds."""
    for rule in RULES:
        group: int | str = "v" if "v" in rule.pattern.groupindex else 0
        for begin, end in windows(low, hints.intersection(rule.hints), *rule.reach):
            for match in rule.pattern.finditer(text, begin, end):
                if rule.fits(match[group]):
                    yield Finding(match.start(group), match.end(group), rule.kind, rule.name, rule.rank)
    for begin, end in windows(low, hints.intersection(_NAMES), 100, 520):
        yield from _assignments(text, begin, end)
        yield from _named_values(text, begin, end)
    for begin, end in windows(low, hints.intersection((*_NAMES, "_pass", "_key")), 100, 520):
        yield from _env_lines(text, begin, end)
    if hints.intersection(COLUMN_HINTS):
        yield from columns(text)
    for begin, end in windows(low, hints.intersection(("cookie",)), 5, 4100):
        yield from _cookies(text, begin, end)


def _assignments(text: str, begin: int, end: int) -> Iterator[Finding]:
    for match in _ASSIGNMENT.finditer(text, begin, end):
        group = "bare" if match["quoted"] is None else "quoted"
        value = match[group]
        fits = _fits_quoted if group == "quoted" else _fits_bare
        if may_be_secret(value) and not _is_no_secret_name(match["name"]) and fits(match, value):
            yield Finding(match.start(group), match.end(group), kind_of_name(match["name"]), "assignment", 3)


def _fits_quoted(match: re.Match[str], value: str) -> bool:
    if match["strong"]:
        return " " not in value or is_passphrase(value)
    return " " not in value and looks_random(value) and not _is_identifier(value)


def _fits_bare(match: re.Match[str], value: str) -> bool:
    """Without quotes it may as well be code: the shape of the assignment and of the value decide."""
    tight = match["between"].strip("\"'`])") in ("=", ":", ": ")
    settled = match["sign"] == "=" and tight and match["name"].isupper()
    if (
        match.string[match.end() : match.end() + 1] in ("(", "[")
        or is_code(value)
        or (is_dotted(value) and not settled)
    ):
        return False
    if match["strong"]:
        return settled or has_letter_and_digit(value) or (value.isdigit() and tight)
    return looks_random(value) and (tight or len(value) >= 16) and not _is_identifier(value)


def _is_identifier(value: str) -> bool:
    """`token1`, `access_token_2`: a name and no value."""
    return bool(re.fullmatch(r"[A-Za-z_]+\d{0,2}", value))


def _named_values(text: str, begin: int, end: int) -> Iterator[Finding]:
    """`{"name": "DB_PASSWORD", "value": "…"}`."""
    for match in _NAMED_VALUE.finditer(text, begin, end):
        if not _is_no_secret_name(match["name"]) and _no_word(match["quoted"]):
            yield Finding(
                match.start("quoted"), match.end("quoted"), kind_of_name(match["name"]), "named_value", 3
            )


def _env_lines(text: str, begin: int, end: int) -> Iterator[Finding]:
    """A whole line `NAME=value`: the value goes to the end of the line, whatever characters it has."""
    for match in _ENV_LINE.finditer(text, begin, end):
        value = match["bare"]
        fits = may_be_secret(value) and not is_code(value) and not _is_no_secret_name(match["name"])
        if fits and (match["strong"] or looks_random(value)):
            yield Finding(match.start("bare"), match.end("bare"), kind_of_name(match["name"]), "env_line", 3)


def _cookies(text: str, begin: int, end: int) -> Iterator[Finding]:
    for header in _COOKIE.finditer(text, begin, end):
        for pair in _PAIR.finditer(text, header.start("pairs"), header.end("pairs")):
            if _no_word(pair["v"]):
                yield Finding(pair.start("v"), pair.end("v"), "SESSION", "cookie", 3)
