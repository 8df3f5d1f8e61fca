"""Whether the first state tells the outcome too well: then the future leaked into it."""

from __future__ import annotations

from logforge.core import Estimate
from logforge.dataset.quality import leak_auc
from logforge.report.page import Context, Finding, Number, Section, numbers_of, plain

TOO_GOOD = 0.95
"""An AUC whose interval begins above this is an alarm."""
SUSPICIOUS = 0.85
_EPISODES = """
WITH :logged
SELECT count(*) AS known_episodes, avg(success::INTEGER) AS success_rate
FROM logged WHERE step = 0 AND split IN ('train', 'validation') AND success IS NOT NULL
"""


def measure(context: Context) -> Section:
    """The AUC of success from s₀ on train and validation."""
    episodes = context.ask("episodes", _EPISODES)
    numbers = numbers_of(
        episodes,
        {"known_episodes": "episodes of known outcome", "success_rate": "success rate"},
        ("success_rate",),
    )
    if context.missing:
        found = Estimate(None, reason=context.missing)
    else:
        sample = context.seen
        found = leak_auc(sample.observations[sample.first], sample.success, sample.groups, context.seed)
        numbers += (
            Number(
                "leak_auc", "AUC of success from the first state", plain(found.value), "episodes", low=found.low, high=found.high,
                method=f"logforge.dataset.quality.leak_probe.leak_auc, seed {context.seed}, {sample.told}",
            ),
        )  # fmt: skip
    return Section(
        "leak",
        "Future leak",
        "What is known before the first decision cannot decide the outcome. A logistic regression predicts success from the first "
        f"observation, on split groups it has not seen. An AUC above {TOO_GOOD} beyond chance says that the future is in the state.",
        (episodes,),
        numbers,
        findings=(_finding(found),),
    )


def _finding(found: Estimate) -> Finding:
    if found.value is None or found.low is None:
        return Finding("note", f"cannot be told: {found.reason}")
    told = f"the first state tells success with AUC {found.value:.2f} [{found.low:.2f}, {found.high:.2f}]"
    if found.low > TOO_GOOD:
        return Finding("alarm", f"{told}: the outcome is in the state")
    if found.value > SUSPICIOUS:
        return Finding("note", f"{told}: see whether tasks are that different")
    return Finding("good", told)
