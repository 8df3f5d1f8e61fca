"""Synonyms for plain English words, and everything else byte-equal: text in, text out.

The rule is a whitelist: a chunk between white space is touched only when it is a listed word in plain letters with
nothing but ordinary punctuation around it. So numbers, ids, paths, e-mails, contractions and compounds never are.
Not touched either: what stands in quotes, code, brackets, JSON or markup; lines that look like code; words in
capitals; capitalised words but at the start of a sentence and away from a name; a negation and the word after it.
When in doubt (an unclosed quote, say) the rest of the text is left alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from logforge.schemas import Problem, SpecError, parse

SYNONYM_FILE = "synonyms.yaml"
"""Beside this module, and says what it leaves out."""
_NEVER_LAST = frozenset({"please"})

NEGATIONS: frozenset[str] = frozenset(
    "not no never none nothing nobody nowhere neither nor without cannot cant dont doesnt didnt wont wouldnt isnt"
    " arent wasnt werent couldnt shouldnt havent hasnt hadnt hardly barely scarcely rarely seldom unless except"
    " lacking lacks minus unable refuse refuses refused".split()
)
"""Words that turn a meaning round; neither they nor the word after them are touched. So is any word in n't."""

_CODE = "git|cd|ls|pip|npm|npx|yarn|sudo|curl|docker|kubectl|python3?|node|cargo|bash|sh|cat|echo|export"
_CODE_LINE = re.compile(
    rf"""^(?:[ ]{{4}}|\t).*\S | ^\s*(?:[$>#%@]|//|/\*|\*/|--|<) | ^\s*(?:{_CODE})\s
    | ^\s*(?:import|return|from\s+\S+\s+import|(?:async\s+)?def|class|function|const|let|var|public|private|static)\s
    | ^\s*(?:if|elif|else|for|while|try|except|finally|with)\b.*:\s*$
    | ^\s*[a-z_][\w.-]*:\s | ^\s*(?:SELECT|INSERT|UPDATE|DELETE|CREATE|DROP|ALTER|WITH)\s
    | [;{{}}\\|]\s*$ | = | => | -> | :: | \w\( | \(\) | \s--?[A-Za-z] | && | \|\| | \|""",
    re.VERBOSE | re.MULTILINE,
)
_SPANS = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]*`|`.*|“[^”]*(?:”|\Z)|‘[^’\n]*’|«[^»]*(?:»|\Z)|(?<!\w)'[^'\n]*'(?!\w)",
    re.DOTALL,
)
_BRACKETS = re.compile(r"\{.*\}|\{.*|\[.*\]|\[.*|<[A-Za-z/!?].*>|<[A-Za-z/!?].*", re.DOTALL)
_CHUNK = re.compile(r"\S+")
_WORD = re.compile(r"""([("]*)([A-Za-z]+)([.,!?;:)]*)\Z""")
_NEGATION = re.compile(r"\W*(?:(" + "|".join(sorted(NEGATIONS)) + r")|\w*n['’]t)\W*\Z", re.IGNORECASE)
_VOWEL = re.compile(r"[aeio]|u(?!s|ni|ti)")


class Chunk(NamedTuple):
    """What stands between white space: `word` is set when it is a plain word that may be replaced."""

    start: int
    end: int
    text: str
    word: re.Match[str] | None
    article: str
    """`a` or `an`, where that is the word before."""


@cache
def synonyms() -> Mapping[str, tuple[str, ...]]:
    """For each word the words that can take its place."""
    text = files("logforge.dataset.augmentation").joinpath(SYNONYM_FILE).read_text("utf-8")
    return read_synonyms(text, SYNONYM_FILE)


def read_synonyms(text: str, path: str) -> dict[str, tuple[str, ...]]:
    """A table of synonyms, `word: [others]` a line. Raises SpecError, which names file and line, where it is none."""
    table, lines = parse(text, path)
    if not isinstance(table, dict):
        raise SpecError([Problem("not a table of words", path, 1)])
    faults = {word: fault for word, others in table.items() if (fault := _fault(word, others))}
    if faults:
        raise SpecError([Problem(what, path, lines.get(word), word) for word, what in faults.items()])
    return {word: tuple(others) for word, others in table.items()}


def _fault(word: str, others: Any) -> str:
    """Why a line of the table cannot be used; empty where it can."""
    if not re.fullmatch("[a-z]+", word):
        return "not one plain word in lower case"
    if not isinstance(others, list) or not others:
        return "names no list of words"
    odd = [other for other in others if not re.fullmatch("[a-z]+(?: [a-z]+)*", str(other)) or other == word]
    return f"cannot stand for it: {', '.join(map(str, odd))}" if odd else ""


def paraphrase(text: str, choose: Callable[[str], str | None]) -> str:
    """The text with the words that `choose` names replaced. It is asked for a listed word in lower case and returns
    one of its synonyms, or None to leave it. A word after `a` or `an` is left where the article would not fit."""
    parts: list[str] = []
    done = 0
    for chunk in chunks(text):
        new = _replacement(chunk, choose)
        if chunk.word is not None and new is not None:
            start, end = chunk.start + chunk.word.start(2), chunk.start + chunk.word.end(2)
            parts += [text[done:start], new]
            done = end
    return "".join([*parts, text[done:]])


def _replacement(chunk: Chunk, choose: Callable[[str], str | None]) -> str | None:
    if chunk.word is None:
        return None
    old, after = chunk.word.group(2, 3)
    closes = bool(after) and old.lower() in _NEVER_LAST
    new = choose(old.lower()) if old.lower() in synonyms() and not closes else None
    if new is None or (chunk.article and bool(_VOWEL.match(new)) != (chunk.article == "an")):
        return None
    return new[0].upper() + new[1:] if old[0].isupper() else new


def protected(text: str) -> list[str]:
    """The chunks of a text that may not change, in order."""
    return [chunk.text for chunk in chunks(text) if chunk.word is None]


def chunks(text: str) -> Iterator[Chunk]:
    """The chunks of a text, each marked as free to change or not."""
    hidden = _hidden(text)
    found = list(_CHUNK.finditer(text))
    negated, article = False, ""
    for index, match in enumerate(found):
        piece = match.group()
        negation = _NEGATION.match(piece) is not None
        word = None if negation or negated or any(hidden[match.start() : match.end()]) else _WORD.match(piece)
        if word is not None and not word.group(2).islower():
            after = found[index + 1].group() if index + 1 < len(found) else ""
            word = word if _opens_sentence(text, found, index) and not _joins_name(word, after) else None
        yield Chunk(match.start(), match.end(), piece, word, article)
        negated = negation
        bare = piece.lower().lstrip("(")
        article = bare if bare in ("a", "an") else ""


def _opens_sentence(text: str, found: list[re.Match[str]], index: int) -> bool:
    if index == 0:
        return True
    before = found[index - 1]
    return before.group().endswith((".", "!", "?")) or "\n" in text[before.end() : found[index].start()]


def _joins_name(word: re.Match[str], after: str) -> bool:
    """True for words in capitals, and for a capitalised word right before another: a name, or a greeting to one."""
    return not word.group(2).istitle() or (not word.group(3) and after[:1].isupper())


def _hidden(text: str) -> bytearray:
    """One byte per character: 1 where nothing may change."""
    hidden = bytearray(len(text))
    for start, end in _spans(text):
        hidden[start:end] = b"\1" * (end - start)
    return hidden


def _spans(text: str) -> Iterator[tuple[int, int]]:
    yield from (match.span() for match in _SPANS.finditer(text))
    yield from (match.span() for match in _BRACKETS.finditer(text))
    yield from _quoted(text)
    start = 0
    for line in text.split("\n"):
        if _CODE_LINE.search(line):
            yield start, start + len(line)
        start += len(line) + 1


def _quoted(text: str) -> Iterator[tuple[int, int]]:
    """What stands in double quotes: pairs where every line closes its own, else all from the first quote on."""
    if any(line.count('"') % 2 for line in text.split("\n")):
        yield text.index('"'), len(text)
    else:
        yield from (match.span() for match in re.finditer(r'"[^"]*"', text))
