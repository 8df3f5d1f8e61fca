"""What a policy's folder says of itself, in one page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from logforge.core import BaseReport, Lines, table
from logforge.learning.policies.bundle import load_policy
from logforge.learning.policies.card import Habits
from logforge.learning.policies.layers import BEHAVIOUR, TEMPLATE
from logforge.learning.policies.runs import RUN_FILE, read_run
from logforge.schemas import INVALID
from logforge.shards import ACTIONS_FILE


@dataclass(frozen=True)
class PolicyFacts(BaseReport):
    """A policy that was loaded, and so checked: hashes, shapes, the dataset's manifest and golden rows."""

    path: str
    algo: str
    scores: str
    dataset: str
    dataset_hash: str
    gamma: float
    observation_size: int
    actions: tuple[str, ...]
    templates: dict[str, list[str]]
    encoder: str | None
    hidden: tuple[int, ...]
    side_columns: int
    policies: tuple[str, ...]
    golden_rows: int
    clone: bool
    support_floor: float
    habits: Habits | None
    serves: bool
    began_with: str | None
    files: dict[str, str]

    def lines(self) -> Lines:
        """A row for each fact."""
        scores = {"q": "Q (pessimistic under CQL, no value)", "logits": "logits"}[self.scores]
        support = (
            f"flagged below {self.support_floor:g}" if self.clone else "unknown: no clone of the behaviour"
        )
        serving = "this folder alone" if self.serves else "no states of its own: its dataset has no encoder"
        templates = ", ".join(f"{name} {len(found)}" for name, found in self.templates.items())
        facts = {
            "policy": f"{self.algo}, scores are {scores}",
            "dataset": f"{self.dataset} ({self.dataset_hash[:12]}), discount {self.gamma:g}",
            "network": self._network(),
            **({"began with": self.began_with} if self.began_with else {}),
            **({"policies": ", ".join(self.policies)} if self.policies else {}),
            "actions": ", ".join(name for name in self.actions if name != INVALID),
            "templates": templates or "none",
            "encoder": self.encoder or "none",
            "support": support,
            "habits": "not noted" if self.habits is None else self.habits.told(),
            "serves from": serving,
            "golden rows": f"{self.golden_rows}, reproduced",
        }
        yield self.path
        yield table(("what", "found"), facts.items())

    def _network(self) -> str:
        if not self.side_columns:
            return " → ".join(map(str, (self.observation_size, *self.hidden, len(self.actions))))
        inputs = f"{self.observation_size}+{self.side_columns}"
        return " → ".join((inputs, *map(str, self.hidden), "1")) + " for each action's text"


def _began_with(folder: Path) -> str | None:
    """What its run says it began with, beside a warm start; None where there was none, or the folder lies in no run."""
    if not (folder.parent / RUN_FILE).is_file():
        return None
    run = read_run(folder.parent)
    started = run.get("started_from", {})
    if folder.name not in started:
        return None
    return started[folder.name] or f"fresh weights: {run['config']['warm_start']} has no such policy"


def about(folder: str | Path) -> PolicyFacts:
    """Load a policy and say what it is."""
    bundle = load_policy(folder)
    card = bundle.card
    templates: dict[str, list[str]] = {}
    for item in card.templates if TEMPLATE in bundle.parts else ():
        templates.setdefault(item.action, []).append(item.template)
    return PolicyFacts(
        path=str(folder),
        algo=card.algo,
        scores=card.kind,
        dataset=card.dataset,
        dataset_hash=card.dataset_hash,
        gamma=card.gamma,
        observation_size=card.observation_size,
        actions=card.actions,
        templates=templates,
        encoder=None if card.encoder is None else f"{card.encoder.name} {card.encoder.revision}",
        hidden=tuple(len(layer.bias) for layer in bundle.layers[:-1]),
        side_columns=0 if bundle.side is None else bundle.side.columns,
        policies=card.policies,
        golden_rows=len(card.golden.observations),
        clone=BEHAVIOUR in bundle.parts,
        habits=card.habits,
        support_floor=card.support_floor,
        serves=ACTIONS_FILE in bundle.files,
        began_with=_began_with(Path(folder)),
        files=card.files,
    )
