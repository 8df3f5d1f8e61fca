"""How alike two texts are: ROUGE-L, chrF, exact and numeric match. Pure functions, each from 0 to 1."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

_CJK = (
    "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # kana and Han
    "\u0e00-\u0e7f\u0e80-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\U00020000-\U0003134f"
)
_TOKEN = re.compile(f"[{_CJK}]|(?:(?![{_CJK}])\\w)+")
_ASCII = re.compile(r"\w+", re.ASCII)
_NUMBER = re.compile(r"(?:(?<![\w.])[-+−])?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?%?")
CHRF_ORDER, CHRF_BETA = 6, 2.0


def tokens(text: str) -> list[str]:
    """Words in lower case; in scripts that put no blanks between words, characters."""
    if text.isascii():  # the same, three times as fast
        return _ASCII.findall(text.lower())
    return _TOKEN.findall(unicodedata.normalize("NFKC", text).lower())


def rouge_l(text: str, reference: str) -> float:
    """F1 of the longest common subsequence of words (Lin 2004)."""
    said, meant = tokens(text), tokens(reference)
    common = longest_common(said, meant)
    return 2 * common / (len(said) + len(meant)) if said or meant else 1.0


def longest_common(a: Sequence[str], b: Sequence[str]) -> int:
    """Length of the longest common subsequence, a row of bits at a time (Hyyrö 2004)."""
    places: dict[str, int] = {}
    for index, token in enumerate(a):
        places[token] = places.get(token, 0) | 1 << index
    whole = (1 << len(a)) - 1
    row = whole
    for token in b:
        match = row & places.get(token, 0)
        row = ((row + match) | (row - match)) & whole
    return len(a) - row.bit_count()


def chrf(text: str, reference: str) -> float:
    """F2 of character n-grams, n from 1 to 6, blanks left out, averaged over n (Popović 2015)."""
    said, meant = ("".join(item.split()) for item in (text, reference))
    if not said and not meant:
        return 1.0
    precisions, recalls = [], []
    for order in range(1, CHRF_ORDER + 1):
        ours, theirs = _ngrams(said, order), _ngrams(meant, order)
        if not ours or not theirs:
            continue
        common = (ours & theirs).total()
        precisions.append(common / ours.total())
        recalls.append(common / theirs.total())
    if not precisions:
        return 0.0
    precision, recall = sum(precisions) / len(precisions), sum(recalls) / len(recalls)
    weight = CHRF_BETA**2
    return (1 + weight) * precision * recall / (weight * precision + recall) if precision + recall else 0.0


def _ngrams(text: str, order: int) -> Counter[str]:
    return Counter(text[start : start + order] for start in range(len(text) - order + 1))


def exact_match(text: str, reference: str) -> float:
    """1 when both say the same but for case, blanks, Unicode form and closing punctuation; else 0."""
    return float(_plain(text) == _plain(reference))


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split()).strip(" .!?。！？\"'“”")


def numbers(text: str) -> list[float]:
    """The numbers in a text; `1,234.5`, `−3`, `1e-3`, and `12%` as 0.12."""
    found = []
    for match in _NUMBER.findall(unicodedata.normalize("NFKC", text)):
        plain = match.replace(",", "").replace("−", "-")
        found.append(float(plain[:-1]) / 100 if plain.endswith("%") else float(plain))
    return found


def numeric_match(text: str, reference: str, tolerance: float = 1e-6) -> float | None:
    """1 when the last number of both is the same within a relative tolerance, else 0; None when the reference has none."""
    meant = numbers(reference)
    if not meant:
        return None
    said = numbers(text)
    if not said:
        return 0.0
    return float(math.isclose(said[-1], meant[-1], rel_tol=tolerance, abs_tol=1e-12))
