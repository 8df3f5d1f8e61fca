"""Each distinct text once, against encoding every step's joined window again with sentence-transformers; and whether the
int8 ONNX model decides as the fp32 one does.

The logs are the sample's tau-bench episodes, and made ones whose texts repeat as a simulator's do: few distinct answers of
tools, users and the agent, in an order of their own in each episode. All of a log's texts are encoded; of windows, at most
`WINDOWS` drawn at random are, and their time is scaled up. Tokens are counted in full. Times are CPU seconds of a process held
on one core: its wall seconds if the machine has nothing else to do (torch with two threads takes many times as long when
another process wants one of the two cores).
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import numpy as np

import logforge
from benchmarks.measure import Result
from logforge.dataset.actions.vocabulary import ActionSpace, seen_in
from logforge.dataset.states.builder import StateBuilder
from logforge.dataset.states.config import StateConfig
from logforge.dataset.states.symbolic_state import State, Turn
from logforge.schemas.episode import Episode
from logforge.schemas.tables import EMBEDDINGS
from logforge.shards.reader import load_shards
from logforge.store.store import Store
from logforge.texts.encoders import embed, make_encoder
from logforge.texts.pca import Pca
from logforge.texts.sentence import minilm

SAMPLES = Path(__file__).resolve().parent.parent / "sample_logs"
WINDOWS = 300
LONGEST = 256
"""Tokens that MiniLM reads."""
SIMULATED_STEPS, SIMULATED_TEXTS = 20_000, 2_000
POLICIES = ("cql", "bc", "bc_success")


def run(episodes: int | None = None, windows: int = WINDOWS, steps: int = SIMULATED_STEPS) -> list[Result]:
    """Tokens, wall time and decisions."""
    with TemporaryDirectory() as folder, logforge.open_store(f"{folder}/store.duckdb") as store:
        logforge.ingest(store, [SAMPLES / "tau_bench"])
        logged = list(store.episodes())[:episodes]
        space = ActionSpace.build(map(seen_in, logged))
        builder = StateBuilder(StateConfig(), space, 32)
        long = StateBuilder(StateConfig(window_turns=30), space, 32)
        states = _states(builder, logged)
        texts = builder.texts(states)
        found = [
            *_tokens(states, _states(long, logged), texts),
            *_times("tau-bench", states, texts, windows, 2),
        ]
        found += _simulated(steps, windows)
        return [*found, *_decisions(store, Path(folder))]


def _states(builder: StateBuilder, episodes: Iterable[Episode]) -> list[State]:
    """Those before a decision."""
    return [state for episode in episodes for state in builder.symbols(episode)[:-1]]


def _window(state: State) -> str:
    return "\n".join(f"{turn.role}: {turn.content or ''}" for turn in state.window) or (state.task or "-")


def _lengths(texts: Iterable[str]) -> np.ndarray[Any, Any]:
    """Tokens of each text, uncut."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(minilm().folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return np.array([len(found.ids) for found in tokenizer.encode_batch(list(texts))])


def _tokens(states: Sequence[State], long: Sequence[State], texts: Iterable[str]) -> Iterator[Result]:
    own, windows = _lengths(sorted(texts)), _lengths(map(_window, states))
    ours, naive = np.minimum(own, LONGEST).sum(), np.minimum(windows, LONGEST).sum()
    yield Result(
        f"tau-bench: tokens encoded for {len(states):,} steps",
        f"{ours:,} of {len(own):,} texts",
        f"windows of 10 turns as the model cuts them: {naive:,}",
        float(naive / ours),
        "≥ 2 ×",
        bool(naive >= 2 * ours),
    )
    wide, all_ours = _lengths(map(_window, long)).sum(), own.sum()
    yield Result(
        "tau-bench: tokens against windows that are not cut",
        f"{ours:,} (texts uncut: {all_ours:,})",
        f"10 turns: {windows.sum():,} ({windows.sum() / ours:.1f} ×), 30 turns: {wide:,}",
        float(wide / ours),
        "≥ 11 ×",
        bool(wide >= 11 * ours),
    )
    cut, cut_texts = (windows > LONGEST).mean(), (own > LONGEST).mean()
    yield Result(
        "tau-bench: share of texts that the model cuts",
        f"{cut_texts:.1%} of texts",
        f"{cut:.1%} of windows, which keep {naive / windows.sum():.0%} of their tokens",
        cut / cut_texts if cut_texts else None,
        "none",
        None,
    )


def _times(
    name: str, states: Sequence[State], texts: Iterable[str], most: int, target: float
) -> Iterator[Result]:
    """Seconds to vectors in an empty cache, against sentence-transformers as anyone would call it."""
    from sentence_transformers import SentenceTransformer

    windows = [_window(state) for state in states]
    drawn = random.Random(0).sample(windows, min(most, len(windows)))
    model = SentenceTransformer(str(minilm().folder), device="cpu")
    model.encode(drawn[:8], show_progress_bar=False)
    naive = _seconds(lambda: model.encode(drawn, show_progress_bar=False)) * len(windows) / len(drawn)
    for encoder in ("minilm", "minilm-onnx"):
        made = make_encoder(encoder)
        made.encode(["warm"])
        ours = _seconds(lambda made=made: embed(_cache(), made, texts))  # type: ignore[misc]
        yield Result(
            f"{name}: one core's seconds to the vectors of {len(windows):,} steps, {encoder}",
            f"{ours:.1f} s for {len(set(texts)):,} texts",
            f"windows: {naive:.1f} s ({len(drawn):,} of {len(windows):,} measured)",
            naive / ours,
            f"≥ {target:g} ×",
            bool(naive >= target * ours),
        )


def _seconds(call: Callable[[], object]) -> float:
    start = time.process_time()
    with _one_core():
        call()
    return time.process_time() - start


@contextmanager
def _one_core() -> Iterator[None]:
    """This thread, those it starts, and torch: all on one core."""
    import torch

    cores, threads = os.sched_getaffinity(0), torch.get_num_threads()
    os.sched_setaffinity(0, {min(cores)})
    torch.set_num_threads(1)
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)
        torch.set_num_threads(threads)


def _cache() -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    con.execute(f"CREATE TABLE embeddings ({', '.join(f'{c.name} {c.type}' for c in EMBEDDINGS.columns)})")
    return con


def _simulated(steps: int, windows: int) -> Iterator[Result]:
    draw = random.Random(0)
    words = [
        f"{a}{b}" for a in ("fl", "ho", "ca", "pa", "bo", "re") for b in ("ight", "tel", "ncel", "y", "ok")
    ]
    known = [
        (role, " ".join(draw.choices(words, k=draw.randint(8, 40))) + f" {number}")
        for number in range(SIMULATED_TEXTS)
        for role in [draw.choice(("user", "assistant", "tool"))]
    ]
    messages = [draw.choice(known) for _ in range(steps + 10)]
    states = [
        State(
            "solve it",
            tuple(Turn(*pair) for pair in messages[start : start + 10]),
            None,
            (),
            (),
            start % 30,
            0,
            (),
        )
        for start in range(steps)
    ]
    texts = {content for _, content in messages} | {"solve it"}
    yield from _times("simulator", states, texts, windows, 20)


def _decisions(store: Store, folder: Path) -> Iterator[Result]:
    """Policies trained on fp32 states decide on all of the log's states, once with fp32 vectors and once with int8 ones."""
    config = logforge.BuildConfig(encoder="minilm")
    logforge.build_dataset(store, SAMPLES / "reward.yaml", out=folder, config=config)
    logforge.train(folder / "default", out=folder / "run", updates=1000)
    manifest = load_shards(folder / "default", "train").manifest
    pca = Pca.load(folder / "default/encoder/pca.npz")
    episodes = list(store.episodes())
    space = ActionSpace.from_dict(json.loads((folder / "default/actions.json").read_text("utf-8")))
    builder = StateBuilder(StateConfig.from_dict(manifest.config["state"]), space, pca.size)
    states = [state for episode in episodes for state in builder.symbols(episode)]
    masks = np.array([mask.allowed for episode in episodes for mask in space.masks(episode)])
    exact, light = (
        builder.vectors(states, embed(store.con, make_encoder(name), builder.texts(states)).map(pca.apply))
        for name in ("minilm", "minilm-onnx")
    )
    for name in POLICIES:
        policy = logforge.load_policy(folder / "run" / name)
        alike = float((policy.choose(exact, masks) == policy.choose(light, masks)).mean())
        yield Result(
            f"decisions of {name} with int8 vectors",
            f"{alike:.2%} of {len(states):,} states alike",
            "the same policy with fp32 vectors",
            None,
            "≥ 99 %",
            alike >= 0.99,
        )
