"""How fast near-duplicates are found among 100,000 episodes, and how many of the planted ones.

The texts are 40 to 400 words (public logs have 60 to 350 word triples) of 20,000 words drawn by Zipf's law. Half of the
episodes bear a template of 300 words. One in twenty is copied with up to one word in ten replaced; what of it is at least
as similar as the threshold, by the exact similarity, has to be found.
"""

from __future__ import annotations

import itertools
import random
import time

import numpy as np

from benchmarks.measure import Result
from logforge.schemas.episode import Episode, Message
from logforge.splits.duplicates import THRESHOLD, jaccard, near_duplicates, shingles_of, text_of

EPISODES = 100_000
RATE = 1_000
"""Episodes a second on one core: 100,000 in less than two minutes."""
RECALL = 0.99


def run(count: int = EPISODES) -> list[Result]:
    """Rate, recall of planted pairs, and what comparing every pair would take."""
    episodes, planted = _made(count)
    start = time.process_time()
    found = near_duplicates(episodes)
    seconds = time.process_time() - start
    pairs = set(found.select("episode_a", "episode_b").iter_rows())
    due = {pair for pair, similarity in planted.items() if similarity >= THRESHOLD}
    wrong = {pair for pair in pairs if planted.get(pair, 0) < THRESHOLD}
    recall = len(due & pairs) / len(due)
    exact = _exact_pairs_per_second(episodes)
    return [
        Result(
            f"near-duplicates among {len(episodes):,} episodes",
            f"{len(episodes) / seconds:,.0f} episodes/CPU s ({seconds:.0f} s)",
            f"every pair: {exact:,.0f} pairs/s, {len(episodes) ** 2 / 2 / exact / 3600:,.1f} h",
            len(episodes) ** 2 / 2 / exact / seconds,
            f"≥ {RATE:,}/s",
            len(episodes) / seconds >= RATE,
        ),
        Result(
            f"planted pairs of similarity ≥ {THRESHOLD}",
            f"{recall:.4f} of {len(due):,}; {len(wrong):,} wrong ones",
            f"{len(planted) - len(due):,} planted pairs below it",
            None,
            f"recall ≥ {RECALL}, none below {THRESHOLD}",
            recall >= RECALL and not wrong,
        ),
    ]


def _made(count: int) -> tuple[list[Episode], dict[tuple[str, str], float]]:
    """Episodes, and the exact similarity of each planted pair."""
    draw = random.Random(0)
    words = [f"w{number}" for number in range(20_000)]
    weights = list(itertools.accumulate(1 / (rank + 10) for rank in range(len(words))))
    template = draw.choices(words, k=300)
    episodes, planted = [], {}
    while len(episodes) < count:
        own = draw.choices(words, cum_weights=weights, k=draw.randint(40, 400))
        shown = template if draw.random() < 0.5 else []
        number = len(episodes)
        episodes.append(_episode(number, [*shown, *own]))
        if number % 20 == 0:
            share = draw.choice([0, 0.01, 0.02, 0.03, 0.04, 0.1])
            other = [draw.choice(words) if draw.random() < share else word for word in own]
            episodes.append(_episode(number + 1, [*shown, *other]))
            # the template is boilerplate: it counts neither for nor against
            boilerplate = shingles_of(" ".join(template))
            sets = [np.setdiff1d(shingles_of(text_of(episode)), boilerplate) for episode in episodes[-2:]]
            planted[episodes[-2].episode_id, episodes[-1].episode_id] = jaccard(*sets)[0]
    return episodes, planted


def _episode(number: int, words: list[str]) -> Episode:
    message = Message(0, "user", " ".join(words), f"made:{number}")
    name = f"e{number:08}"
    return Episode(
        episode_id=name,
        format="made",
        locator=message.locator,
        ending="terminal",
        ending_reason="",
        messages=[message],
        steps=[],
        task_id=name,
    )


def _exact_pairs_per_second(episodes: list[Episode]) -> float:
    sets = [shingles_of(text_of(episode)) for episode in episodes[:200]]
    start = time.process_time()
    for a, b in itertools.combinations(sets, 2):
        jaccard(a, b)
    return len(sets) * (len(sets) - 1) / 2 / (time.process_time() - start)
