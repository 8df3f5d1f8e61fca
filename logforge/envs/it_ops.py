"""`it-ops`: find out why a service is down, and put it right. The hidden cause is one of six.

The trap: a hanging process shows why it hangs in its status, and only until it is restarted. Who restarts without having
looked loses the case, since the incident is closed without a cause and comes back. What is wrong with the fix of another
cause loses it too. After the user hands the incident to another team, only handing over is right.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from itertools import product
from typing import ClassVar

import numpy as np

from logforge.envs.world import (
    CHANGED,
    COMMON,
    Bools,
    Column,
    Difficulty,
    Floats,
    Handler,
    Ints,
    Reply,
    World,
    ending,
    running,
)

SYMPTOM, LOGS, HINT, DISK, RELEASES, CONNECTION, CHECKED, SEEN, APPLIED, CAUSE, IN_LOGS, LOST = range(2, 14)
HANG, RELEASE, FULL, DATABASE, CERTIFICATE, HARDWARE = range(6)
SAID = np.array([1, 2, 3, 4, 4, 5])
"""The symptom that logs and users tell of each cause: a lost database and an expired certificate look alike."""
SYMPTOMS = ("hang", "release", "disk", "connection", "hardware")
SAYS_HARDWARE, TOLD, NOT_TOLD = 5, 1, 2
DOWN, HANGING, HEALTHY = 1, 2, 2
FIXES = (
    "restart_service",
    "roll_back_release",
    "free_disk_space",
    "fail_over_database",
    "renew_certificate",
)
SEVERAL = 6
_WEIGHTS = (0.30, 0.19, 0.15, 0.13, 0.13, 0.10)


class ItOps(World):
    """Columns: the symptom and whether logs and user told it; what disk, releases and connection showed; status before any fix (CHECKED) and since the
    last one (SEEN); the fix that was applied (APPLIED, or SEVERAL). Hidden: cause, whether the logs tell it, case lost."""

    name: ClassVar[str] = "it-ops"
    kinds: ClassVar[tuple[str, ...]] = ("hang", "release", "disk", "database", "certificate", "hardware")
    tools: ClassVar[tuple[str, ...]] = (
        "check_disk", "check_status", "close_incident", "escalate_incident", "fail_over_database", "free_disk_space",
        "list_releases", "query_logs", "renew_certificate", "restart_service", "roll_back_release", "test_connection",
    )  # fmt: skip
    columns: ClassVar[tuple[Column, ...]] = (
        Column("steps", 21), Column("changed", 2), Column("symptom", 6), Column("logs", 3), Column("hint", 3),
        Column("disk", 3), Column("releases", 3), Column("connection", 4), Column("checked", 3), Column("seen", 3), Column("applied", 7),
        Column("cause", 6, False), Column("in_logs", 2, False), Column("lost", 2, False),
    )  # fmt: skip
    replies: ClassVar[tuple[str, ...]] = (
        *COMMON,
        *(f"logs_{name}" for name in SYMPTOMS), "logs_nothing",
        *(f"user_{name}" for name in SYMPTOMS), "user_nothing",
        "disk_fine", "disk_full", "releases_old", "release_new",
        "connection_fine", "database_away", "certificate_expired",
        "status_down", "status_hanging", "status_healthy",
        *(f"{name}_done" for name in FIXES),
        "closed", "reopened", "handed_over", "handed_back",
    )  # fmt: skip
    refusals: ClassVar[frozenset[str]] = frozenset()
    usual: ClassVar[Difficulty] = Difficulty(impatience=0.04, trap=0.95)

    @property
    def luck(self) -> float:
        """The probability that a restart without a look at the status costs the case."""
        return self.difficulty.trap

    def starts(self) -> tuple[Ints, Floats]:
        """Cause by cause, told by the logs or not."""
        count = self.difficulty.kinds or len(self.kinds)
        weights = np.array(_WEIGHTS[:count]) / sum(_WEIGHTS[:count])
        told = (self.difficulty.missing_knowledge, 1 - self.difficulty.missing_knowledge)
        rows = np.zeros((2 * count, len(self.columns)), np.int16)
        chances = np.zeros(2 * count)
        for row, (cause, in_logs) in enumerate(product(range(count), (0, 1))):
            rows[row, [CAUSE, IN_LOGS]] = cause, in_logs
            chances[row] = weights[cause] * told[in_logs]
        return rows, chances

    def spoken(self, states: Ints) -> Reply:
        """The user knows what the logs do not tell, and nothing else."""
        return self._told(states, HINT, states[:, IN_LOGS] == 0, "user_hang")

    def _told(self, states: Ints, column: int, knows: Bools, first: str) -> Reply:
        said = SAID[states[:, CAUSE]]
        states[:, column] = np.where(knows, TOLD, NOT_TOLD)
        states[:, SYMPTOM] = np.where(knows, said, states[:, SYMPTOM])
        return running(self.code[first] + np.where(knows, said - 1, len(SYMPTOMS)))

    @cached_property
    def handlers(self) -> Mapping[str, Handler]:
        """What each tool does."""
        fixes = {name: self._fix(number) for number, name in enumerate(FIXES, 1)}
        return {
            "check_disk": self._look(DISK, {FULL: 2}, "disk_fine"),
            "list_releases": self._look(RELEASES, {RELEASE: 2}, "releases_old"),
            "test_connection": self._look(CONNECTION, {DATABASE: 2, CERTIFICATE: 3}, "connection_fine"),
            "query_logs": self._query_logs,
            "check_status": self._check_status,
            "close_incident": self._close,
            "escalate_incident": self._escalate,
            **fixes,
        }

    def _look(self, column: int, found: dict[int, int], first: str) -> Handler:
        """A check that shows some causes (as the value given) and is otherwise fine (1)."""
        shown = np.array([found.get(cause, 1) for cause in range(len(self.kinds))])

        def look(states: Ints, luck: Bools) -> Reply:
            states[:, column] = shown[states[:, CAUSE]]
            return running(self.code[first] - 1 + states[:, column])

        return look

    def _query_logs(self, states: Ints, luck: Bools) -> Reply:
        return self._told(states, LOGS, states[:, IN_LOGS] == 1, "logs_hang")

    def _check_status(self, states: Ints, luck: Bools) -> Reply:
        untouched = states[:, APPLIED] == 0
        healthy = states[:, APPLIED] == states[:, CAUSE] + 1
        hangs = untouched & (states[:, CAUSE] == HANG)
        states[:, CHECKED] = np.where(untouched, np.where(hangs, HANGING, DOWN), states[:, CHECKED])
        states[:, SEEN] = np.where(untouched, 0, np.where(healthy, HEALTHY, DOWN))
        return running(self.code["status_down"] + np.where(healthy, 2, hangs))

    def _fix(self, number: int) -> Handler:
        def fix(states: Ints, luck: Bools) -> Reply:
            before = states[:, APPLIED]
            unchecked = (states[:, CHECKED] == 0) & (before == 0) & (states[:, CAUSE] == HANG)
            wrong = states[:, CAUSE] + 1 != number
            states[:, LOST] |= (wrong | (unchecked & luck)).astype(np.int16)
            states[:, APPLIED] = np.where((before == 0) | (before == number), number, SEVERAL)
            states[:, SEEN] = 0
            return running(np.full(len(states), self.code["restart_service_done"] + number - 1))

        return fix

    def _close(self, states: Ints, luck: Bools) -> Reply:
        fixed = (states[:, APPLIED] == states[:, CAUSE] + 1) & (states[:, LOST] == 0)
        return ending(fixed & (states[:, CHANGED] == 0), self.code["closed"], self.code["reopened"])

    def _escalate(self, states: Ints, luck: Bools) -> Reply:
        hardware = (states[:, SYMPTOM] == SAYS_HARDWARE) & (states[:, APPLIED] == 0)
        right = ((states[:, CHANGED] == 1) & (states[:, LOST] == 0)) | hardware
        return ending(right, self.code["handed_over"], self.code["handed_back"])
