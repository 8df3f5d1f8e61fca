"""How predictable a text is to an n-gram model of what the agents of the train split said."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Annotated, ClassVar

from pydantic import Field

from logforge.rewards.scorers.base import Reads, Ready, Resources, Score, Scorer, Texts, each
from logforge.texts import text_hash, tokens

MIN_TEXTS = 20
"""Fewer distinct texts teach nothing."""
_END = "</s>"
Gram = tuple[str, ...]


class Perplexity(Scorer):
    """1 / perplexity per word: the geometric mean of the words' probabilities, so that higher is more fluent.

    The probabilities are those of an n-gram model with Witten-Bell interpolation, down to a uniform one over the words seen
    and one more. It learns each distinct text of the train split once.
    """

    name = "perplexity"
    code_version: ClassVar[int] = 2
    reads: ClassVar[Reads | None] = "own words"
    fitted: ClassVar[bool] = True

    order: Annotated[int, Field(ge=1, le=5)] = 3

    @property
    def learns_from(self) -> str:
        """What agents said, whatever is scored."""
        return "said"

    def ready(self, resources: Resources) -> Ready:
        """Counts the n-grams of the texts, when the first one is scored."""
        learnt = sorted({example.text for example in resources.examples}, key=text_hash)
        version = self.version([text_hash(text) for text in learnt])
        unready = (
            f"{len(learnt)} texts to learn from, {MIN_TEXTS} needed" if len(learnt) < MIN_TEXTS else None
        )
        model = cache(lambda: NgramModel(self.order, learnt))  # counted when the first text is scored

        def score(texts: Texts) -> Score:
            return Score(math.exp(-model().cross_entropy(texts[0])))

        return Ready(version, each(score), unready=unready)


class NgramModel:
    """Counts of n-grams in distinct texts, and the probabilities that follow from them."""

    def __init__(self, order: int, texts: Iterable[str]) -> None:
        self.order = order
        self.counts: Counter[Gram] = Counter()
        for text in set(texts):
            self.counts.update(_grams(text, order))
        self.contexts, self.followers = _contexts(self.counts)

    def cross_entropy(self, text: str) -> float:
        """Mean negative log probability (in nats) of the text's words and its end."""
        words = _words(text, self.order)
        size = self.followers.get((), 0) + 1
        total = 0.0
        for end in range(self.order - 1, len(words)):
            probability = 1.0 / size
            for length in range(self.order):
                context = tuple(words[end - length : end])
                if seen := self.contexts.get(context, 0):
                    kinds = self.followers[context]
                    count = self.counts[*context, words[end]]
                    probability = (count + kinds * probability) / (seen + kinds)
            total -= math.log(probability)
        return total / (len(words) - self.order + 1)


def _words(text: str, order: int) -> list[str]:
    return ["<s>"] * (order - 1) + [*tokens(text), _END]


def _grams(text: str, order: int) -> Iterator[Gram]:
    """Every n-gram that ends in a word or in the text's end."""
    words = _words(text, order)
    for end in range(order - 1, len(words)):
        yield from (tuple(words[end - length : end + 1]) for length in range(order))


def _contexts(counts: Counter[Gram]) -> tuple[defaultdict[Gram, int], defaultdict[Gram, int]]:
    """How often each context was followed, and by how many different words."""
    totals: defaultdict[Gram, int] = defaultdict(int)
    kinds: defaultdict[Gram, int] = defaultdict(int)
    for gram, count in counts.items():
        totals[gram[:-1]] += count
        kinds[gram[:-1]] += 1
    return totals, kinds
