"""Which algorithm the data suits, by three figures: how good the behaviour is, how varied, and how much of it can be compared.

BC    the behaviour succeeds nearly always: there is little to improve, and cloning it is as good (Schweighofer et al. 2022:
      BC keeps up with the best where TQ is high)
BCQ   the data are narrow: in most states one action alone, so stay close to it (Fujimoto et al. 2019)
IQL   the behaviour is good and varied: values from the data's own actions alone, robust to settings (Kostrikov et al. 2022)
CQL   the behaviour is mediocre and varied: pessimism on what is rarely tried (Kumar et al. 2020)
"""

from __future__ import annotations

from typing import NamedTuple

from logforge.report.page import Context, Finding, Number, Section, numbers_of, plain

EXPERT, GOOD = 0.9, 0.6
"""Success rates from which the behaviour is near-perfect, and near-optimal."""
NARROW_BITS, NARROW_CLUSTERS = 0.5, 0.6
"""A mean entropy below, or a share of single-action clusters above: the data are narrow."""
_BEHAVIOUR = """
WITH :logged
SELECT
  avg(success::INTEGER) FILTER (step = 0) AS success_rate, count(*) FILTER (step = 0 AND success IS NOT NULL) AS known_outcomes,
  count(*) FILTER (step = 0 AND success) AS successes, entropy(action) AS action_entropy
FROM logged WHERE split = 'train'
"""


class Advice(NamedTuple):
    """The algorithm (None: nothing can be learnt yet) and the reason."""

    algorithm: str | None
    reason: str


def advise(success_rate: float | None, entropy: float | None, single: float | None) -> Advice:
    """The algorithm for a behaviour's success rate, the mean action entropy within state clusters (bits), and the share of the
    clusters with one action."""
    if not success_rate:
        return Advice(None, "no success is known in train: collect some, or reward what leads to one")
    rate = f"{success_rate:.0%} of the known outcomes are successes"
    if success_rate >= EXPERT:
        return Advice("bc", f"{rate}: there is little to improve on, and cloning loses nothing")
    if entropy is None or single is None:
        return Advice("cql", f"{rate}, and too few decisions to say how varied they are: pessimism is safe")
    spread = f"{entropy:.2f} bits of choice in similar states, one action alone in {single:.0%} of them"
    if entropy < NARROW_BITS or single > NARROW_CLUSTERS:
        return Advice(
            "bcq", f"{rate}, {spread}: narrow data, so stay with the actions seen and improve a little"
        )
    if success_rate >= GOOD:
        return Advice("iql", f"{rate}, {spread}: good and varied, so values of logged actions alone suffice")
    return Advice(
        "cql", f"{rate}, {spread}: mixed and varied, so there is much to gain, and pessimism guards it"
    )


def measure(context: Context) -> Section:
    """The advice for this dataset."""
    behaviour = context.ask("behaviour", _BEHAVIOUR)
    clusters = None if context.missing else context.clusters
    entropy, single = (clusters.entropy, clusters.single) if clusters else (None, None)
    found = advise(behaviour.value("success_rate"), entropy, single)
    method = f"state clusters as in Coverage, seed {context.seed}"
    numbers = (
        Number(
            "algorithm",
            "suits this dataset",
            (found.algorithm or "none yet").upper(),
            "behaviour",
            method="logforge.report.sections.advice.advise",
        ),
        *numbers_of(
            behaviour,
            {"success_rate": "success rate in train", "successes": "successes in train"},
            ("success_rate",),
        ),
        Number(
            "cluster_entropy", "bits: action entropy in a cluster", plain(entropy), "behaviour", method=method
        ),
        Number(
            "single_action",
            "clusters with a single action",
            plain(single),
            "behaviour",
            method=method,
            percent=True,
        ),
    )
    return Section(
        "advice",
        "Which algorithm",
        f"BC where {EXPERT:.0%} succeed; else BCQ where data are narrow (below {NARROW_BITS} bits, or one action in more than "
        f"{NARROW_CLUSTERS:.0%} of the clusters); else IQL where {GOOD:.0%} succeed; else CQL. A first guess: evaluation decides.",
        (behaviour,),
        numbers,
        findings=(
            Finding(
                "good" if found.algorithm else "alarm",
                f"{(found.algorithm or 'none yet').upper()}: {found.reason}",
            ),
        ),
    )
