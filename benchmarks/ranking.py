"""How well specs without an outcome rank tau-bench's episodes against their logged success: AUC, with the 95 % interval of a
bootstrap over tasks, beside the length alone and a peer's 0.58. No weight was chosen on these logs.

The logs are those of ../shared/logs (150 episodes of 50 tasks), or the 15 of sample_logs where they are not there.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from benchmarks.measure import Result
from logforge.core.ranking import auc_estimates
from logforge.ingestion.pipeline import ingest
from logforge.rewards.lint.diff import episode_returns, rewarded, stored_decisions
from logforge.rewards.lint.pipeline import lint
from logforge.rewards.pipeline import load_spec, parse_spec
from logforge.store.store import Store

ROOT = Path(__file__).resolve().parent.parent
SHARED, SAMPLE = ROOT.parent / "shared" / "logs" / "tau_bench", ROOT / "sample_logs" / "tau_bench"
DETECTORS = ROOT / "logforge" / "templates" / "rewards" / "detectors.yaml"
EARLY_EXIT = "gamma: 1.0\nterms:\n  step_cost: {value: -0.1}\n"
PEER = 0.58


def run() -> list[Result]:
    """Detectors with and without the cost of a step, and the early-exit spec, each beside the number of messages."""
    detectors = load_spec(DETECTORS)
    alone = detectors.model_copy(
        update={"terms": {k: v for k, v in detectors.terms.items() if k != "step_cost"}}
    )
    specs = {
        "detectors.yaml": detectors,
        "its detectors alone": alone,
        "early exit (step cost alone)": parse_spec(EARLY_EXIT),
    }
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder, "s.duckdb")) as store:
        ingest(store, [SHARED if SHARED.is_dir() else SAMPLE])
        logged = [episode for episode in stored_decisions(store) if episode.success is not None]
        won = np.array([bool(episode.success) for episode in logged])
        tasks = [episode.task_id or episode.episode_id for episode in logged]
        length = np.array([-float(len(episode.messages)) for episode in logged])
        results = []
        for name, spec in specs.items():
            totals = dict(episode_returns(rewarded(store, spec, logged, 0), spec.gamma).iter_rows())
            scores = np.array([totals[episode.episode_id] for episode in logged])
            (own, short), more = auc_estimates([scores, length], won, tasks)
            better = (
                "better than length"
                if (more.low or 0) > 0
                else "worse than length"
                if (more.high or 0) < 0
                else "no better than length"
            )
            flagged = ", ".join(sorted({item.rule for item in lint(spec).findings if item.level == "error"}))
            results.append(
                Result(
                    f"AUC of {name}, {len(won)} episodes, {len(set(tasks))} tasks",
                    f"{_shown(own)}: {better} ({_shown(more, sign='+')})",
                    f"length {_shown(short)}, a peer {PEER}",
                    None,
                    "lint flags early_exit",
                    "early_exit" in flagged,
                )
            )
    return results


def _shown(estimate, sign: str = "") -> str:
    if estimate.value is None:
        return estimate.reason
    return f"{estimate.value:{sign}.2f} [{estimate.low:{sign}.2f}, {estimate.high:{sign}.2f}]"
