"""Masks what varies between runs of one task: numbers, dates, ids, addresses and names become typed placeholders.

The rules, in the order they are tried at each place; each is a rule on text alone and knows no language:

    <url>    what follows the host of a web address; a host with digits becomes <host>
    <email>  an e-mail address
    <date>   2024-05-01 (with or without a time), 5/1/24, May 20th, 20 May 2024, a month or a weekday
             (May and March count only beside a number)
    <time>   10:30, 10:30:05.1, 9:15 PM
    <uuid>   8-4-4-4-12 hex digits
    <id>     capitals and digits joined by hyphens (AB-12-C, 555-0100); a prefixed call id (call_…, toolu_…);
             any word that holds both a digit and something else (mia_li_3668, HAT136, 5kg, v2)
    <num>    what is left of digits: 7, 1,299.50, 10.0.0.1
    <name>   capitalised words (second letter small) after a small letter or comma and one space: "I am Mia Li",
             "to New York"; and the value of a JSON key that ends in `name`

So places and products are masked as names, and a name that begins a sentence is not. Masking twice changes nothing.
"""

from __future__ import annotations

import re

_UPPER, _LOWER = "A-ZÀ-ÖØ-Þ", "a-zß-öø-ÿ"
_MONTH = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?|Oct(?:ober)?"
    r"|Nov(?:ember)?|Dec(?:ember)?)"
)
_LONG_MONTH = r"(?:January|February|April|June|July|August|September|October|November|December)"
_CLOCK = r"\d{1,2}:\d\d(?::\d\d(?:[.,]\d+)?)?"
_CAPITALISED = rf"[{_UPPER}][{_LOWER}][^\W\d_]*"

# Lengths are bounded where a failed try would otherwise be repeated over a long run (base64, dotted or dashed lines).
_RULES = {
    "url": r"https?://[^\s/?#<>\"'`()\[\]{}\\]*(?:[/?#][^\s<>\"'`()\[\]{}\\]*)?(?:<url>)?",
    "email": r"\w[\w.+-]{0,63}@\w[\w-]{0,62}(?:\.\w[\w-]{0,62}){1,8}",
    "date": rf"\d{{4}}-\d\d-\d\d(?:[T ]{_CLOCK}(?:Z|[+-]\d\d:?\d\d)?)?(?!\w)"
    r"|\d{1,2}/\d{1,2}/(?:\d{4}|\d\d)(?!\w)"
    rf"|{_MONTH}\.? \d{{1,2}}(?:st|nd|rd|th)?(?:,? \d{{4}})?(?!\w)"
    rf"|\d{{1,2}}(?:st|nd|rd|th)? (?:of )?{_MONTH}(?:,? \d{{4}})?(?!\w)"
    rf"|(?:{_LONG_MONTH}|(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day)(?!\w)",
    "time": rf"{_CLOCK}(?: ?[AaPp]\.?[Mm])?(?!\w)",
    "uuid": r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}(?!\w)",
    "id": r"(?=[A-Z-]{0,32}\d)[A-Z0-9]{1,32}(?:-[A-Z0-9]{1,32}){1,16}(?![\w-])"
    r"|(?:call|toolu|chatcmpl|msg|req|run|sess)_[A-Za-z0-9]{8,}(?!\w)"
    r"|(?!\d+(?!\w))\w*\d\w*",
    "num": r"\d+(?:[.,]\d+)*(?!\w)",
    "name": rf"(?<=[{_LOWER},] ){_CAPITALISED}(?:[ -]{_CAPITALISED})*(?!\w)"
    r"|(?:(?<=name\": \")|(?<=name\":\"))[^\"<>\\\n]{1,80}(?=\")",
}
_VOLATILE = re.compile(rf"(?<!\w)(?:{'|'.join(f'(?P<{name}>{rule})' for name, rule in _RULES.items())})")
_URL = re.compile(r"(https?://)([^/?#<]*)(.*)", re.DOTALL)


def mask_volatile(text: str) -> str:
    """The text with what varies between runs replaced by typed placeholders; one pass, idempotent."""
    return _VOLATILE.sub(_placeholder, text)


def _placeholder(match: re.Match[str]) -> str:
    kind = str(match.lastgroup)
    return _masked_url(match.group()) if kind == "url" else f"<{kind}>"


def _masked_url(url: str) -> str:
    found = _URL.match(url)
    assert found is not None
    scheme, host, rest = found.groups()
    if any(character.isdigit() for character in host):
        host = "<host>"
    return f"{scheme}{host}/<url>" if rest else f"{scheme}{host}"
