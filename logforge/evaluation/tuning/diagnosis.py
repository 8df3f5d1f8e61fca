"""`logforge doctor RUN`: what went wrong in a training run, why, and what to do, each with its numbers.

Symptoms of the run come from its metrics (run_symptoms.py), causes in the data from its dataset (data_symptoms.py). The most
likely root cause comes first: a run that ran away also does what the log never did, and says nothing of its α.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from logforge.core import BaseReport, Lines, noted, picked, plural
from logforge.evaluation.tuning.data_symptoms import data_symptoms
from logforge.evaluation.tuning.run_symptoms import run_symptoms
from logforge.evaluation.tuning.symptoms import Patient, Symptom, told
from logforge.learning.policies import load_policy, read_run, run_data
from logforge.learning.training import FINDINGS, TrainConfig, fresh_starts, rescored
from logforge.schemas import LogforgeError, Manifest


@dataclass(frozen=True)
class DoctorReport(BaseReport):
    """What was found, the likeliest root first; nothing of a healthy run."""

    run: str
    dataset: str
    findings: tuple[Symptom, ...]
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """1 when something is wrong."""
        return int(bool(self.findings))

    def as_dict(self) -> dict[str, Any]:
        """As JSON data."""
        return picked(self, "run", "dataset", "healthy", "findings", "notes")

    @property
    def healthy(self) -> bool:
        """Nothing was found."""
        return not self.findings

    def lines(self) -> Lines:
        """Each finding with its cause and remedy, and how many there are."""
        yield f"{self.run} (trained on {self.dataset})"
        for item in self.findings:
            yield f"\n{item.rule}: {item.symptom}"
            yield f"   cause   {item.cause}"
            yield f"   remedy  {item.remedy}"
        yield "" if self.notes else None
        yield from noted(self.notes)
        yield "\n" + (
            f"{plural(len(self.findings), 'finding')}" if self.findings else "healthy: nothing found"
        )


def diagnose(run_path: str | Path, *, dataset_path: str | Path | None = None) -> DoctorReport:
    """Look at a run, its bundles and its dataset. Raises UsageError, InputError or Mismatch where they cannot be read."""
    folder = Path(run_path)
    run = read_run(folder)
    patient = _patient(run, dataset_path)
    found = [*_bundles(folder, run, patient.train.manifest), *run_symptoms(patient), *data_symptoms(patient)]
    found.sort(key=lambda item: list(FINDINGS).index(item.rule))
    fresh = fresh_starts(run["config"]["warm_start"], run.get("started_from", {}))
    return DoctorReport(str(run_path), run["dataset"]["name"], tuple(found), tuple(fresh))


def _patient(run: dict[str, Any], dataset_path: str | Path | None) -> Patient:
    config = TrainConfig(**run["config"])
    _, train = run_data(run, dataset_path, "train")
    return Patient(run, config, rescored(train, config.gamma, config.step_cost))


def _bundles(folder: Path, run: dict[str, Any], manifest: Manifest) -> Iterator[Symptom]:
    for name in run["policies"]:
        try:
            load_policy(folder / name).check(manifest)
        except LogforgeError as error:
            yield told("broken_bundle", {}, policy=name, what=error.message, advice=error.remedy)
