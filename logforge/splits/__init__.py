"""Which episodes stay on one side, and the proof that they do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logforge.schemas.faces import face

if TYPE_CHECKING:
    from logforge.splits.assign import PROOF, assign_splits, crossing, grouping_frame
    from logforge.splits.duplicates import THRESHOLD, near_duplicates
    from logforge.splits.report import (
        MOVES,
        SplitReport,
        TaskLeak,
        balance,
        earlier_splits,
        moves,
        prove,
        split_report,
        task_leak,
    )

__all__ = [
    "MOVES", "PROOF", "THRESHOLD", "SplitReport", "TaskLeak", "assign_splits", "balance", "crossing",
    "earlier_splits", "grouping_frame", "moves", "near_duplicates", "prove", "split_report", "task_leak",
]  # fmt: skip

face(
    __name__,
    assign="PROOF assign_splits crossing grouping_frame",
    duplicates="THRESHOLD near_duplicates",
    report="MOVES SplitReport TaskLeak balance earlier_splits moves prove split_report task_leak",
)
