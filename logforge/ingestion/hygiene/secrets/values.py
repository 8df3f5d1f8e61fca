"""Tells a value that may be a secret from what stands in its place: a placeholder, code, a path, a word of the trade."""

from __future__ import annotations

import re

_STAND_IN = re.compile(
    r"""(?ix)
      ^< | >$ | <\w+> | ^\$ | \$\{ | \{\{ | ^%\w+%$ | ^\{.*\}?$ | ^@\w+@$     # <TOKEN>, $TOKEN, ${…}, {{…}}, %TOKEN%, {token}
    | \.{3} | … | \*{3} | •{2} | x{5} | ^(.)\1*$                    # sk-..., ***, xxxxx, one character again and again
    | ^(?:your|my|the|some|an?|our|test|example|sample|dummy|insert|enter|replace|add|put)[-_\ ]
      (?:\w+[-_\ ])*(?:key|token|password|passwd|secret|here|value|credentials?)s?(?:[-_\ ]here)?$
    | ^(?:your|insert|replace|enter)[-_] | ^your(?:api)?(?:key|token|password|secret) | [-_]here$
    | %[sdr]\b | %\( | change[-_]?me | placeholder | redacted | ^example
    """
)
_WORDS = frozenset(
    "none null nil true false undefined string str bytes text int bool object any password passwd passphrase pwd pass "
    "secret secrets token tokens key keys apikey api_key api-key required optional invalid missing incorrect unset empty "
    "bearer basic digest test user username admin root foo bar baz value env var hidden masked default auto "
    "hash hashed plain disabled enabled expired refresh access not set".split()
)
_DICE_WORD = re.compile(r"[a-z]{3,12}\d{0,3}")
_SENTENCE = frozenset(
    "the and for with from your you must not should may can will are was has have use used that this least long only when than "
    "password passwords passwd passphrase characters character letters digits please enter type confirm new old user users "
    "invalid incorrect wrong missing required field empty minimum reset change forgot login value string default".split()
)
_TRADE = re.compile(r"(?i)^(?:base\d+|sha-?\d+|md5|utf-?\d+|aes-?\d+|rsa-?\d+|hs\d+|rs\d+|es\d+|bcrypt|scrypt|argon2\w*|pbkdf2|"
                    r"oauth\d?|http/?\d|ipv\d|k8s|ec2|s3|v\d+(?:\.\d+)*)(?:$|[-_.:])")  # fmt: skip
_PATH = re.compile(r"^(?:~|\.{1,2})?/[\w.@%-]*(?:/|$)|^[A-Za-z]:[\\/]|^(?:file|https?|s3|gs)://|^arn:|^~")
_CODE = re.compile(
    r"^[A-Za-z_]\w*(?:(?:\.|::|->)[A-Za-z_]\w*)*[(\[]"  # a call or an index
    r"|^(?:self|this|os|process|config|settings|args|options|ctx|env|request|req|params|ENV|cls|form|data|import)[.\[]"
    r"|^(?:f|r|b|u|fr|rb)?[\"'`]"
    r"|^[!=~]|=>|^\W*$"
)
_DOTTED = re.compile(r"^[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+$")


def stands_in(value: str) -> bool:
    """A placeholder or a word that says what should stand there, and no value."""
    return value.lower().strip("\"'`.,;:!?") in _WORDS or bool(_STAND_IN.search(value))


def may_be_secret(value: str) -> bool:
    """Anything that is no placeholder, path or algorithm's name."""
    return not (stands_in(value) or is_path(value) or _TRADE.match(value))


def is_path(value: str) -> bool:
    """A file's or a page's place. Base64 may begin with a slash too, but mixes cases and digits."""
    return bool(_PATH.match(value)) and not (value[0] == "/" and len(value) >= 24 and is_mixed(value))


def is_code(value: str) -> bool:
    """An expression of a programming language, where a value would be quoted."""
    return bool(_CODE.search(value))


def is_dotted(value: str) -> bool:
    """Names joined by dots, as an attribute has (`config.token2`), and no random parts."""
    return bool(_DOTTED.match(value)) and not any(
        is_mixed(part) and len(part) >= 16 for part in value.split(".")
    )


def is_mixed(value: str) -> bool:
    """Upper case, lower case and digits."""
    return (
        any(c.isdigit() for c in value)
        and any(c.islower() for c in value)
        and any(c.isupper() for c in value)
    )


def has_letter_and_digit(value: str) -> bool:
    """At least one of each."""
    return any(c.isdigit() for c in value) and any(c.isalpha() for c in value)


def looks_random(value: str) -> bool:
    """Eight characters or more with letters and digits: seldom a word, often a key."""
    return len(value) >= 8 and has_letter_and_digit(value) and may_be_secret(value)


def is_passphrase(value: str) -> bool:
    """Four words or more that make no sentence: `correct horse battery staple`."""
    words = value.split(" ")
    return len(words) >= 4 and all(map(_DICE_WORD.fullmatch, words)) and _SENTENCE.isdisjoint(words)


def is_telling(value: str) -> bool:
    """Unlikely to stand anywhere by chance, so that it may be looked for in every text of an episode."""
    return len(value) >= 8 and has_letter_and_digit(value) and not value.isalpha() and bool(value.strip())
