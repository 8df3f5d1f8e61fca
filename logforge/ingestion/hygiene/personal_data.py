"""Personal data that its shape gives away: e-mail addresses, phone numbers, payment cards, IBANs, IP addresses, US social security
numbers. Names, postal addresses and dates of birth have no shape; they are not found.

Phone numbers are judged by `phonenumbers`, the rules of Google's libphonenumber, offline and without a model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache
from ipaddress import ip_address
from typing import Any

from logforge.core import need
from logforge.ingestion.hygiene.secrets import Finding
from logforge.schemas import UsageError

ALL = "all"
"""An entry that stands for every kind."""
REGIONS = ("DE", "FR", "GB", "US")
"""Countries whose phone numbers are found without a country code; `phone:JP` adds another."""

SUSPECT = (
    r"[\w.+%'-]@\w|\d(?:[ ().,/\x{a0}-]{0,3}\d){6}|\d\.\d{1,3}\.\d{1,3}\.\d|\b[A-Z]{2}\d{2} ?[A-Z0-9]{4}"
    r"|[0-9A-Fa-f]:[0-9A-Fa-f]{0,4}:"
)
"""Every text with personal data matches this (of Rust's kind): the cheap test that comes first."""

_RULES_VERSION = 1
_RANK = 4
_EMAIL = re.compile(
    r"(?<![^\W_])(?<![.+@-])(?!git@)[^\W_](?:[\w.+%'-]{0,63})@(?:[^\W_](?:[\w-]{0,62})\.){1,6}(?:[A-Za-z]{2,24}|xn--[\w-]{2,59})"
    r"(?!_{0,9}[^\W_]|-|\.\w|:[/~])(?:(?<=\.(?i:com|org|net|edu|gov))|(?!\())"  # `a@b.dot(c)` multiplies matrices
)
_CARD = re.compile(
    r"(?<![\w.-])(?:\d{13,19}|\d{4}([ -])\d{4}\1\d{4}\1\d{4}|\d{4}([ -])\d{6}\2\d{4,5})(?![\w-]|\.\d)"
)
_ISSUERS = re.compile(
    r"4\d{12}(?:\d{3}){1,2}|(?:5[1-5]|2[2-7])\d{14}|3[47]\d{13}|3(?:0[0-5]|[689]\d)\d{11}|6(?:011|5\d\d|4[4-9]\d)\d{12}|35\d{14}|62\d{14,17}"
)
_IBAN = re.compile(r"(?<![A-Za-z0-9])([A-Z]{2})\d{2}(?= ?[A-Z0-9])")
_IBAN_LENGTHS = {
    word[:2]: int(word[2:])
    for word in (
        "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DK18 DO28 EE20 EG29 ES24 FI18 FO18 "
        "FR27 GB22 GE22 GI23 GL18 GR27 GT28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 LB28 LC32 LI21 LT20 LU20 LV21 "
        "MC27 MD24 ME22 MK19 MR27 MT31 MU30 NL18 NO15 PK24 PL28 PS29 PT25 QA29 RO24 RS22 SA24 SC31 SE24 SI19 SK24 SM27 ST25 "
        "SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20"
    ).split()
}
_IPV4 = re.compile(r"(?<![\w.-])(?<![A-Za-z]/)(?:\d{1,3}\.){3}\d{1,3}(?![\w-]|\.\d|/\d{1,2}\b)")
_IPV6 = re.compile(r"(?<![\w:.])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?:\.\d{1,3}){0,3}(?![\w:]|\.\d)")
_GLOBAL_OR_LOCAL = re.compile(r"(?i)(?:2[0-9a-f]{3}|fe80|fd[0-9a-f]{2}):")
_VERSION_BEFORE = re.compile(r"(?i)(?:version|release|\bv|build|==|>=|<=|~=)[\"']?\s{0,2}[:=]?\s{0,2}[\"']?$")
_SSN = re.compile(
    r"(?<![\w.-])(?!000|666|9)\d{3}(?P<sep>[- ]?)(?!00)\d{2}(?P=sep)(?!0000)\d{4}(?![\w-]|\.\d)"
)
_SSN_BEFORE = re.compile(r"(?i)(?:\bssns?\b|social[ _-]?security)[^\d\n]{0,40}$")
_PHONE = re.compile(r"(?<![\w.,+/@#$-])[+(]{0,2}\d(?:[ ()./\u00a0-]{0,2}\d){6,14}(?![\w%]|[.,-]\d)")
_DECIMAL = re.compile(r"\d+\.\d+")
_NANP = re.compile(r"(?:1[-. ])?(?:\([2-9]\d{2}\) ?|[2-9]\d{2}[-.])[2-9]\d{2}[-.]\d{4}")
_PHONE_BEFORE = re.compile(
    r"(?i)(?:phone|\btel\b|telefon|mobile|\bcell\b|handy|\bfax\b|whatsapp|\bsms\b|\bcall (?:me|us|him|her|them)\b)[^\d\n]{0,25}$"
)


def personal_kinds(entries: Iterable[str]) -> tuple[str, ...]:
    """The kinds that entries name, sorted: `email`, `phone`, `phone:JP` (its national forms too), `card`, `iban`, `ip`, `ssn` or
    `all`. Raises UsageError for others, MissingExtra where phone numbers are wanted and `phonenumbers` is not there."""
    found: set[str] = set()
    for entry in entries:
        name, _, region = entry.partition(":")
        if entry != ALL and (name not in _FINDERS or (region and name != "phone")):
            remedy = f"name some of {', '.join(_FINDERS)}, or {ALL}; phone:JP adds the national numbers of a country"
            raise UsageError(f"{entry!r} is no kind of personal data", remedy)
        found |= set(_FINDERS) if entry == ALL else {name, entry}
    regions = sorted(kind.partition(":")[2] for kind in found if ":" in kind)
    if "phone" in found:
        known = need("phonenumbers", "pii").SUPPORTED_REGIONS
        unknown = [region for region in regions if region not in known]
        if unknown:
            raise UsageError(
                f"{unknown[0]!r} is no country of phone numbers", "write its two letters, as phone:JP"
            )
    return tuple(sorted(found))


def personal_version(kinds: Iterable[str]) -> str:
    """The version of the rules for these kinds: another one may find something else."""
    if "phone" not in kinds:
        return str(_RULES_VERSION)
    return f"{_RULES_VERSION}/{need('phonenumbers', 'pii').__version__}"


def personal_findings(text: str, kinds: tuple[str, ...]) -> Iterator[Finding]:
    """The personal data of these kinds in a text; findings may overlap."""
    for kind in kinds:
        if kind in _FINDERS:
            for start, end in _FINDERS[kind](text, kinds):
                yield Finding(start, end, kind.upper(), "personal", _RANK)


Places = Iterator[tuple[int, int]]


def _emails(text: str, kinds: tuple[str, ...]) -> Places:
    yield from (match.span() for match in _EMAIL.finditer(text)) if "@" in text else ()


def _cards(text: str, kinds: tuple[str, ...]) -> Places:
    for match in _CARD.finditer(text):
        digits = re.sub(r"[ -]", "", match[0])
        if _ISSUERS.fullmatch(digits) and _luhn(digits):
            yield match.span()


def _luhn(digits: str) -> bool:
    """ISO/IEC 7812: every second digit from the right doubled, the digits' sum a multiple of ten."""
    doubled = (sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])
    return (sum(doubled) + sum(map(int, digits[::-2]))) % 10 == 0


def _ibans(text: str, kinds: tuple[str, ...]) -> Places:
    for match in _IBAN.finditer(text):
        length = _IBAN_LENGTHS.get(match[1], 0)
        rest = (
            re.compile(rf"(?: ?[A-Z0-9]){{{length - 4}}}(?![A-Za-z0-9])").match(text, match.end())
            if length
            else None
        )
        if rest and _mod97(text[match.start() : rest.end()].replace(" ", "")):
            yield match.start(), rest.end()


def _mod97(iban: str) -> bool:
    """ISO 13616: with its head at its end and letters as numbers from 10, the remainder by 97 is 1."""
    return int("".join(str(int(letter, 36)) for letter in iban[4:] + iban[:4])) % 97 == 1


def _addresses(text: str, kinds: tuple[str, ...]) -> Places:
    """Of machines on a network; loopback, masks and what stands for no machine are no one's."""
    for match in _IPV4.finditer(text):
        if _names_machine(match[0]) and not _VERSION_BEFORE.search(
            text, max(match.start() - 20, 0), match.start()
        ):
            yield match.span()
    for match in _IPV6.finditer(text) if ":" in text else ():
        groups = sum(map(bool, match[0].split(":")))
        if (groups >= 4 or _GLOBAL_OR_LOCAL.match(match[0])) and _names_machine(match[0]):
            yield match.span()


def _names_machine(address: str) -> bool:
    try:
        found = ip_address(address)
    except ValueError:
        return False
    return not (
        found.is_loopback or found.is_unspecified or found.is_multicast or address.startswith(("0.", "255."))
    )


def _social_security(text: str, kinds: tuple[str, ...]) -> Places:
    for match in _SSN.finditer(text):
        before = max(match.start() - 60, 0)
        if match["sep"] == "-" or _SSN_BEFORE.search(text, before, match.start()):
            yield match.span()


def _phones(text: str, kinds: tuple[str, ...]) -> Places:
    regions = tuple(sorted({*REGIONS, *(kind[6:] for kind in kinds if kind.startswith("phone:"))}))
    for match in _PHONE.finditer(text):
        number = match[0].lstrip("(") if match[0].count("(") > match[0].count(")") == 0 else match[0]
        number = number[number.startswith("((") :]
        named = bool(_PHONE_BEFORE.search(text, max(match.start() - 60, 0), match.start()))
        if _NANP.fullmatch(number) or _is_phone(number, regions, named):
            yield match.end() - len(number), match.end()


@lru_cache(maxsize=8192)
def _is_phone(number: str, regions: tuple[str, ...], named: bool) -> bool:
    """Valid, and written as its country writes it; a bare run of digits only where a word beside it says what it is."""
    if _DECIMAL.fullmatch(number) or (number.isdigit() and not named):
        return False
    matcher, leniency = _matcher()
    strict = leniency.VALID if named or number.startswith(("+", "(+")) else leniency.STRICT_GROUPING
    return any(
        found.raw_string.lstrip("(") == number.lstrip("(")
        for region in regions
        for found in matcher(number, region, leniency=strict)
    )


@cache
def _matcher() -> tuple[Callable[..., Iterable[Any]], Any]:
    phonenumbers = need("phonenumbers", "pii")
    return phonenumbers.PhoneNumberMatcher, phonenumbers.Leniency


_FINDERS: dict[str, Callable[[str, tuple[str, ...]], Places]] = {
    "email": _emails,
    "phone": _phones,
    "card": _cards,
    "iban": _ibans,
    "ip": _addresses,
    "ssn": _social_security,
}
