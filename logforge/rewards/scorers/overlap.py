"""Scorers that compare a text with a reference, without a model: ROUGE-L, chrF, exact and numeric match."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from logforge.rewards.scorers.base import Reads, Ready, ReferenceScorer, Resources, Score, Texts, each
from logforge.texts import similarity as text_metrics


class RougeL(ReferenceScorer):
    """F1 of the longest common subsequence of words (of characters in scripts without blanks)."""

    name = "rouge_l"

    def ready(self, resources: Resources) -> Ready:
        """Needs nothing."""
        return Ready(self.version(), each(lambda texts: Score(text_metrics.rouge_l(*texts))))


class Chrf(ReferenceScorer):
    """F2 of character n-grams."""

    name = "chrf"

    def ready(self, resources: Resources) -> Ready:
        """Needs nothing."""
        return Ready(self.version(), each(lambda texts: Score(text_metrics.chrf(*texts))))


class ExactMatch(ReferenceScorer):
    """1 when both say the same but for case, blanks and closing punctuation, else 0."""

    name = "exact_match"
    reads: ClassVar[Reads | None] = "outcome"

    def ready(self, resources: Resources) -> Ready:
        """Needs nothing."""
        return Ready(self.version(), each(lambda texts: Score(text_metrics.exact_match(*texts))))


class NumericMatch(ReferenceScorer):
    """1 when the last number of both is the same within a relative tolerance, else 0."""

    name = "numeric_match"
    reads: ClassVar[Reads | None] = "outcome"

    tolerance: Annotated[float, Field(ge=0, le=1)] = 1e-6

    def ready(self, resources: Resources) -> Ready:
        """Needs nothing."""
        return Ready(self.version(), each(self._match))

    def _match(self, texts: Texts) -> Score:
        text, reference = texts
        value = text_metrics.numeric_match(text, reference, self.tolerance)
        return Score(value, reason=f"no number in {self.reference}" if value is None else None)
