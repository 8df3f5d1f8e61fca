"""Redaction: how many made-up secrets and personal data are found, how many real messages are touched, and what hygiene costs a
message.

The corpora are those of tests/support/made_secrets.py and tests/support/made_personal.py with another seed. Messages are those of the sample logs, and of ../shared/logs where
that is there; of what is touched in them, each is printed to be judged by eye.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.made import write_arrays
from benchmarks.measure import Result, cpu_seconds

if TYPE_CHECKING:
    from logforge.ingestion.hygiene.pipeline import Hygiene
    from logforge.ingestion.hygiene.redaction import Redaction
    from logforge.ingestion.reading import Chunk

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
LOGS = [ROOT / "sample_logs", *(path for path in [ROOT.parent / "shared" / "logs"] if path.is_dir())]
MESSAGES = 40_000


def run() -> list[Result]:
    """All figures."""
    return [recall(), false_positives(), harmless(), *personal(), *cost()]


def recall() -> Result:
    """Of the made-up secrets, the share that is gone."""
    from logforge.ingestion.hygiene.redaction import redact, redact_json
    from support.made_secrets import corpus

    samples = corpus(seed=2024, rounds=4)
    missed = Counter(
        f"{s.kind} in {s.carrier}"
        for s in samples
        if s.secret in (redact_json if s.as_json else redact)(s.text).text
    )
    for name, times in missed.most_common(20):
        print(f"  missed {times} × {name}", file=sys.stderr)
    kinds = len({sample.kind for sample in samples})
    share = 1 - sum(missed.values()) / len(samples)
    return Result(
        "recall of made-up secrets",
        f"{share:.2%} of {len(samples):,}",
        f"{kinds} kinds",
        share,
        "≥ 0.99",
        share >= 0.99,
    )


def false_positives() -> Result:
    """Of the real messages, the share that is touched (true secrets included: the logs hold a few)."""
    from logforge.ingestion.hygiene.redaction import Redaction

    return _touched("real messages touched", Redaction(), limit=0.001)


def _touched(name: str, how: Redaction, limit: float | None = None) -> Result:
    import polars as pl

    from logforge.ingestion.hygiene.inspection import inspect
    from logforge.ingestion.reading import Job, ReadOptions, read_source
    from logforge.ingestion.sources.discover import find

    messages = touched = 0
    for item in find(LOGS, ROOT):
        job = Job(item.path, item.label, "", "", 0, ReadOptions(redact=False), item.companions, item.verdict)
        for chunk in read_source(job).chunks:
            texts = pl.Series(chunk.tables.messages["content"].combine_chunks(), dtype=pl.String).drop_nulls()
            found = {
                text: item.secrets
                for text, item in inspect(texts.unique(), redaction=how).items()
                if item.secrets
            }
            messages += len(texts)
            touched += int(texts.is_in(list(found)).sum())
            for secrets in found.values():
                print(
                    f"  touched: {', '.join(f'{s.kind} by {s.rule}: {s.value[:40]!r}' for s in secrets)}",
                    file=sys.stderr,
                )
    share = touched / messages
    wanted, held = ("—", None) if limit is None else (f"≤ {limit}", share <= limit)
    figure = f"{touched} of {messages:,}"
    return Result(name, figure, ", ".join(p.name for p in LOGS), share, wanted, held)


def harmless() -> Result:
    """Of the harmless texts that look like ones with a secret, the share that is touched."""
    from logforge.ingestion.hygiene.redaction import redact
    from support.made_secrets import benign

    texts = benign()
    touched = sum(redact(text).text != text for text in texts)
    share = touched / len(texts)
    return Result("hard harmless texts touched", f"{touched} of {len(texts)}", "—", share, "0", touched == 0)


def personal() -> list[Result]:
    """Of made-up personal data, the share that is gone; of harmless look-alikes and of real messages, what is touched."""
    from logforge.ingestion.hygiene.personal_data import personal_kinds
    from logforge.ingestion.hygiene.redaction import Redaction, redact
    from support.made_personal import LOOK_ALIKES, corpus

    how = Redaction(secrets=False, personal=personal_kinds(["all"]))
    samples = corpus(seed=2024, rounds=40)
    missed = sum(sample.value in redact(sample.text, how).text for sample in samples)
    touched = sum(redact(text, how).text != text for text in LOOK_ALIKES)
    share = 1 - missed / len(samples)
    kinds, found = f"{len(how.personal)} kinds", f"{share:.2%} of {len(samples):,}"
    return [
        Result("recall of made-up personal data", found, kinds, share, "≥ 0.99", share >= 0.99),
        Result(
            "hard harmless texts touched",
            f"{touched} of {len(LOOK_ALIKES)}",
            "--pii all",
            touched,
            "0",
            touched == 0,
        ),
        _touched("real messages with personal data", how),
    ]


def cost() -> list[Result]:
    """CPU time a message of tau-bench, beside that of reading it."""
    from logforge.ingestion.hygiene.pipeline import Hygiene
    from logforge.ingestion.hygiene.redaction import Redaction
    from logforge.ingestion.reading import Job, ReadOptions, read_source
    from logforge.ingestion.sources.discover import find

    with tempfile.TemporaryDirectory() as folder:
        write_arrays(Path(folder, "logs"), MESSAGES, 4000)
        jobs = [
            Job(i.path, i.label, "", "", 0, ReadOptions(redact=False))
            for i in find([Path(folder, "logs")], Path(folder))
        ]
        chunks = [chunk for job in jobs for chunk in read_source(job).chunks]
        messages = sum(len(chunk.tables.messages) for chunk in chunks)
        reading = cpu_seconds(lambda: [list(read_source(job).chunks) for job in jobs])
    results = []
    for name, redacts in (("hygiene with redaction", True), ("hygiene with --no-redact", False)):
        how = Hygiene(Redaction(redacts))
        _clean_all(chunks, how)
        seconds = cpu_seconds(partial(_clean_all, chunks, how))
        figure = f"{1e6 * seconds / messages:.1f} µs a message"
        results.append(
            Result(
                name,
                figure,
                f"reading with --no-redact {1e6 * reading / messages:.1f} µs",
                seconds / reading,
                "—",
                None,
            )
        )
    return results


def _clean_all(chunks: list[Chunk], how: Hygiene) -> None:
    """As a new process does it."""
    from logforge.ingestion.hygiene.inspection import forget_texts
    from logforge.ingestion.hygiene.pipeline import cleaned

    forget_texts()
    for chunk in chunks:
        cleaned(chunk.tables, chunk.quarantine, how)
