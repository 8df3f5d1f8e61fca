"""How satisfied a user sounds: a classifier that learns from the rated episodes of the train split."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from logforge.encoders import text_hash
from logforge.scorer import Example, InputName, Ready, Resources, Score, Scorer, Texts

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

MIN_EPISODES = 10
"""Of either kind, satisfied or not: fewer teach nothing."""
FOLDS = 5
Label = tuple[str, bool]


class Satisfaction(Scorer):
    """Probability that the episode of such a text is rated well: TF-IDF of words and word pairs, logistic regression.

    A text that was learnt from is scored by a model that did not see it (one of five folds of texts), so that the scores of
    the train split mean what those of the others do.
    """

    name = "satisfaction"
    fitted: ClassVar[bool] = True

    text: InputName = "user_reply"
    rating: Literal["success", "score"] = "success"
    good: Annotated[float, Field(allow_inf_nan=False)] = 0.5
    """From which `score` on an episode is rated well."""

    def ready(self, resources: Resources) -> Ready:
        """Fits the classifiers, when the first text is scored."""
        labels, episodes = self._labels(resources.examples)
        few = min(episodes[True], episodes[False])
        unready = None
        if few < MIN_EPISODES:
            unready = (
                f"{episodes[True]} episodes rated well and {episodes[False]} rated badly in the train split, "
                f"{MIN_EPISODES} of each needed"
            )
        learnt = [(text_hash(text), good) for text, good in labels]
        folds = _Folds(labels)
        return Ready(self.version(learnt, _library_version()), folds.score, unready=unready)

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


class _Folds:
    """The classifiers: one of all texts, for those it has not seen, and one without each fold of them."""

    def __init__(self, labels: list[Label]) -> None:
        self.labels = labels
        self.learnt = {text for text, _ in labels}
        self.models: dict[int | None, Pipeline] = {}

    def score(self, items: Sequence[Texts]) -> Iterator[tuple[int, Score]]:
        """The scores, fold by fold."""
        places: dict[int | None, list[int]] = {}
        for index, (text,) in enumerate(items):
            places.setdefault(_fold(text) if text in self.learnt else None, []).append(index)
        for fold, indices in places.items():
            chances = self._model(fold).predict_proba([items[index][0] for index in indices])[:, 1]
            yield from ((index, Score(float(chance))) for index, chance in zip(indices, chances, strict=True))

    def _model(self, fold: int | None) -> Pipeline:
        if fold not in self.models:
            chosen = [item for item in self.labels if fold is None or _fold(item[0]) != fold]
            # A fold may hold all the texts of one kind: then the model of all texts is the best there is.
            self.models[fold] = _fitted(chosen if len({good for _, good in chosen}) == 2 else self.labels)
        return self.models[fold]


def _fold(text: str) -> int:
    return int(text_hash(text)[:8], 16) % FOLDS


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
