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
from typing import NamedTuple

_TABLE = """
    absolutely: definitely, certainly
    additional: extra
    adequate: sufficient
    allow: permit
    allowing: permitting
    allows: permits
    almost: nearly
    alter: change
    altered: changed
    altering: changing
    although: though
    annoyed: irritated
    annoying: irritating
    anybody: anyone
    anyone: anybody
    anyway: anyhow
    approximately: roughly
    assist: help
    assistance: help
    assisted: helped
    assisting: helping
    assists: helps
    attempted: tried
    attempting: trying
    awesome: great, wonderful
    awful: terrible, horrible
    began: started
    begin: start
    begins: starts
    believe: think
    believed: thought
    believes: thinks
    bizarre: strange, weird
    bought: purchased
    buy: purchase
    buying: purchasing
    certainly: definitely, surely
    cheap: inexpensive
    choose: select, pick
    choosing: selecting, picking
    chose: selected, picked
    chosen: selected
    commence: begin, start
    completed: finished
    completely: entirely, totally
    consequently: therefore
    costly: expensive
    crucial: vital, essential
    currently: presently
    dad: father
    definitely: certainly, absolutely
    departing: leaving
    departs: leaves
    despite: in spite of
    difficult: tough, challenging
    discuss: talk about
    discussed: talked about
    discussing: talking about
    enormous: huge, gigantic
    ensure: make sure
    ensures: makes sure
    ensuring: making sure
    entire: whole
    entirely: completely, fully
    especially: particularly
    essential: crucial, vital
    eventually: in the end
    everybody: everyone
    everyone: everybody
    examine: inspect
    examined: inspected
    examining: inspecting
    excellent: great, superb
    expensive: costly
    extremely: exceedingly
    fantastic: wonderful, great
    frequently: often
    frightened: scared
    fully: completely, entirely
    furthermore: moreover
    generally: usually, normally
    grateful: thankful
    great: excellent, wonderful
    hello: hi
    hi: hello
    horrible: terrible, awful
    huge: enormous
    immediately: right away, at once
    incorrect: wrong
    inexpensive: cheap
    inform: tell
    informed: told
    informing: telling
    informs: tells
    initially: at first
    inspect: examine
    inspected: examined
    inspecting: examining
    instantly: immediately
    irritated: annoyed
    irritating: annoying
    kids: children
    kindly: please
    lately: recently
    likewise: similarly
    lots: plenty
    mainly: mostly, primarily
    maybe: perhaps
    merely: just, simply
    modified: changed
    modifies: changes
    modify: change
    modifying: changing
    mom: mother
    moreover: furthermore
    mostly: mainly, largely
    nearly: almost
    nonetheless: nevertheless
    normally: usually, ordinarily
    notified: informed
    notifies: informs
    notify: inform
    notifying: informing
    nowadays: these days
    numerous: many
    obtain: get, acquire
    obtaining: getting, acquiring
    occasionally: sometimes, at times
    okay: alright
    particularly: especially
    perhaps: maybe
    photo: picture
    photos: pictures
    physician: doctor
    please: kindly
    presently: currently
    primarily: mainly, mostly
    probably: most likely
    promptly: quickly
    purchased: bought
    purchasing: buying
    quickly: rapidly, swiftly
    rapidly: quickly, swiftly
    really: truly
    receive: get
    receiving: getting
    recently: lately
    regarding: about, concerning
    repair: fix
    repaired: fixed
    repairing: fixing
    repairs: fixes
    replied: responded
    require: need
    required: needed
    requires: needs
    reside: live
    resides: lives
    residing: living
    responded: replied
    roughly: approximately
    select: choose, pick
    selecting: choosing, picking
    shortly: soon
    similarly: likewise
    simply: just
    somebody: someone
    someone: somebody
    sometimes: occasionally, at times
    speedy: quick
    strange: weird, peculiar
    suddenly: all of a sudden
    sufficient: enough
    surely: certainly
    swiftly: quickly, rapidly
    terrible: awful, horrible
    thankful: grateful
    therefore: thus, consequently
    totally: completely, entirely
    tough: difficult
    toward: towards
    towards: toward
    truly: really
    typically: usually, normally
    upon: on
    usually: normally, typically
    utilize: use
    utilized: used
    utilizes: uses
    utilizing: using
    verified: checked
    verifies: checks
    verify: check
    verifying: checking
    vital: crucial, essential
    weird: strange, odd
    wonderful: fantastic, great
"""


def _table(text: str) -> dict[str, tuple[str, ...]]:
    pairs = (line.split(":") for line in text.strip().splitlines())
    return {word.strip(): tuple(map(str.strip, others.split(","))) for word, others in pairs}


SYNONYMS: Mapping[str, tuple[str, ...]] = _table(_TABLE)
"""For each word the words that can take its place. Left out on purpose: words of trade and travel (order, return,
small, trip), words that are noun and verb at once (want, need, change), and words of other languages (also, till)."""

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
    new = choose(old.lower()) if old.lower() in SYNONYMS and not closes else None
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
