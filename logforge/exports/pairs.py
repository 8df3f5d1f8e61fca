"""Contrasts with all that is known of both sides, by logforge/exports/contrasts.py."""

from __future__ import annotations

from logforge.exports.contrasts import export_pairs
from logforge.exports.job import Job, Written
from logforge.exports.trl_dpo import UNCERTAIN


def write(job: Job) -> list[Written]:
    """A line for each contrast whose interval excludes 0; with `uncertain`, for every one."""
    shard = job.shard
    report = export_pairs(job.store, shard.path, job.out, shard.split, job.options.uncertain)
    left_out = {UNCERTAIN: report.uncertain} if report.uncertain else {}
    return [Written(shard.split, report.pairs, report.pairs, left_out)]
