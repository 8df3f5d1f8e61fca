"""How satisfied a user sounds: a classifier that learns from the rated episodes of the train split."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from logforge.rewards.scorers.base import Example, InputName, Ready, Resources, Score, Scorer, Texts
from logforge.texts import text_hash

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

MIN_EPISODES = 10
"""Of either kind, satisfied or not: fewer teach nothing."""
Label = tuple[str, bool]


class Satisfaction(Scorer):
    """Probability that the episode of such a text is rated well: TF-IDF of words and word pairs, logistic regression."""

    name = "satisfaction"
    code_version: ClassVar[int] = 2
    fitted: ClassVar[bool] = True

    text: InputName = "user_reply"
    rating: Literal["success", "score"] = "success"
    good: Annotated[float, Field(allow_inf_nan=False)] = 0.5
    """From which `score` on an episode is rated well."""

    def ready(self, resources: Resources) -> Ready:
        """Fits the classifier, when the first text is scored."""
        labels, episodes = self._labels(resources.examples)
        few = min(episodes[True], episodes[False])
        unready = None
        if few < MIN_EPISODES:
            unready = (
                f"{episodes[True]} episodes rated well and {episodes[False]} rated badly in the train split, "
                f"{MIN_EPISODES} of each needed"
            )
        learnt = [(text_hash(text), good) for text, good in labels]
        model = cache(lambda: _fitted(labels))

        def score(items: Sequence[Texts]) -> Iterator[tuple[int, Score]]:
            chances = model().predict_proba([text for (text,) in items])[:, 1]
            return ((index, Score(float(chance))) for index, chance in enumerate(chances))

        return Ready(self.version(learnt, _library_version()), score, unready=unready)

    def _labels(self, examples: Sequence[Example]) -> tuple[list[Label], Counter[bool]]:
        """The texts with their episode's rating, in an order of their own, and how many episodes were rated so."""
        rated = [(example, self._rating(example)) for example in examples]
        known = [(example, good) for example, good in rated if good is not None]
        labels = sorted(
            ((example.text, good) for example, good in known), key=lambda item: (text_hash(item[0]), item[1])
        )
        return labels, Counter(good for _, good in {(example.episode_id, good) for example, good in known})

    def _rating(self, example: Example) -> bool | None:
        if self.rating == "success":
            return example.success
        return None if example.score is None else example.score >= self.good


def _fitted(labels: list[Label]) -> Pipeline:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"(?u)\w+|[!?]")
    model = make_pipeline(words, LogisticRegression(C=1.0, class_weight="balanced", max_iter=1000))
    return model.fit([text for text, _ in labels], [good for _, good in labels])


def _library_version() -> str:
    from importlib.metadata import version

    return version("scikit-learn")
