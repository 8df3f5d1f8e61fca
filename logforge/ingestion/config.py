"""The settings of an ingest. Loads nothing heavy: the command line reads it for its options."""

from __future__ import annotations

from dataclasses import dataclass, field

from logforge.core import option
from logforge.ingestion.sources import Limits


@dataclass(frozen=True)
class IngestConfig:
    """How logs are read, and what of them is taken out or marked: the settings of `ingest`, by the same names."""

    format: str | None = option(None, "Read every file as this format instead of detecting it.")
    mapping: str | None = option(None, "A YAML mapping that describes a shape of your own.", path="any")
    strict_arguments: bool = option(False, "Mend no arguments and no tool names; damaged ones are invalid.")
    samples: bool = option(
        True,
        "Keep each of equal rows of one file that have neither an id nor a time: samples of one prompt.",
        switch=True,
    )
    redact: bool = option(True, "Take secrets out of all text before it is stored.", switch=True)
    pii: tuple[str, ...] = option(
        (),
        "Take personal data out too: email, phone, card, iban, ip, ssn or all; may be given again.",
        "--pii",
        "--redact-pii",
        metavar="KIND",
    )
    allow_secret: tuple[str, ...] = option(
        (),
        "A known sample key that stays, as AKIA*EXAMPLE, or its SHA-256; may be given again.",
        metavar="PATTERN",
    )
    flag_with: tuple[str, ...] = option(
        (),
        "A function of yours that flags messages, by toxicity say. It is run.",
        metavar="MODULE:FUNCTION",
    )
    danger: tuple[str, ...] = option(
        (),
        "Tools that are dangerous, as pay=buy_*; `none` leaves the built-in list out; may be given again.",
        metavar="KIND=PATTERN",
    )
    limits: Limits = field(default_factory=Limits)
