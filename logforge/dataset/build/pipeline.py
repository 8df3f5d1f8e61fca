"""Builds a dataset from the store: a chain of stages, each a function of what the one before it made.

Episodes and observations lie in scratch files beside the dataset (logforge/core/scratch_files.py); in memory are rows without texts, and some episodes
at a time. `logforge.core.stages.steps_of` tells of each stage which of its steps see one episode and which see all.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from logforge.core import Tick
from logforge.dataset.actions import ArgumentSpace
from logforge.dataset.build.broken_rows import validate_rows
from logforge.dataset.build.config import BuildConfig
from logforge.dataset.build.conflict_treatment import treat_conflicts
from logforge.dataset.build.encoding import encode
from logforge.dataset.build.plan import Earlier, Plan
from logforge.dataset.build.propensity import estimate
from logforge.dataset.build.publication import judge, publish
from logforge.dataset.build.report import BuildReport
from logforge.dataset.build.rows import make_rows
from logforge.dataset.build.scoring import augment, score
from logforge.dataset.build.selection import choose
from logforge.dataset.build.splitting import split
from logforge.dataset.build.weighing import weigh_rows
from logforge.schemas import RewardSpec, Vocabulary
from logforge.store import Store
from logforge.texts import Pca

_STORE_MEMORY = "1GB"
"""What the database may hold of its file and of what is on its way there; it spills what is more."""

STAGES: Final = (
    choose, split, score, augment, make_rows, validate_rows, encode, estimate, treat_conflicts, weigh_rows, judge, publish,
)  # fmt: skip
"""The stages in their order."""


def build_dataset(
    store: Store,
    reward: str | Path | RewardSpec,
    *,
    name: str = "default",
    out: str | Path = "datasets",
    config: BuildConfig | None = None,
    vocabulary: Vocabulary | None = None,
    arguments: ArgumentSpace | None = None,
    reduction: Pca | None = None,
    gates: Mapping[str, float] | None = None,
    max_quarantine: str = "0",
    max_missing: str = "50%",
    progress: Tick | None = None,
) -> BuildReport:
    """Build dataset `name` from the store's episodes and write it to `out`/`name` and to the store's tables.

    `vocabulary` is that of an earlier manifest whose action ids must stay, `arguments` (earlier_dataset.py) the second level
    whose places must, and `reduction` that of an earlier dataset whose columns must keep their meaning, so that its policies can
    go on; `gates` are thresholds by name (logforge/dataset/quality/gates.py),
    and `max_quarantine` is how many episodes with broken rows may be set aside: a number or a share (`3`, `2%`); so
    is `max_missing` of the complete episodes whose reward is missing. Raises
    SpecError for a wrong spec, and CheckFailed when the store holds nothing to learn from, the splits leak, more rows than
    that break a rule of schemas/transition.py, more rewards than that are missing, or a gate is not met: then the earlier build stays as it was.
    """
    earlier = Earlier(vocabulary, arguments, reduction)
    settings = config or BuildConfig()
    plan = Plan.of(
        store, reward, name, Path(out), settings, earlier, gates or {}, max_quarantine, max_missing, progress
    )
    with store.settings(memory_limit=_STORE_MEMORY):
        chosen = choose(plan)
        in_splits = split(chosen, plan)
        scored = score(in_splits, plan)
        augmented = augment(scored, plan)
        rows = make_rows(augmented, plan)
        validated = validate_rows(rows, plan)
        encoded = encode(validated, plan)
        estimated = estimate(encoded, plan)
        treated = treat_conflicts(estimated, plan)
        weighed = weigh_rows(treated, plan)
        judged = judge(weighed, plan)
        return publish(judged, plan)
