"""The dataset card: what a dataset is made of and what it cannot tell, for whoever finds the folder."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from itertools import groupby
from typing import Final

from logforge.schemas import FeatureSlice, Manifest, UnknownName, UsageError

CARD: Final = "README.md"
UNSTATED: Final = "not stated"
_LATER_SLOT = re.compile(r"(\w+)\.[1-9]\d*\.")


def read_licences(stated: Iterable[str], formats: Collection[str] | None = None) -> dict[str, str]:
    """`FORMAT=LICENCE` as given on the command line, by format: one of `formats`, where they are known."""
    found = {}
    for item in stated:
        form, equals, licence = (part.strip() for part in item.partition("="))
        if not (form and equals and licence):
            raise UsageError(f"{item!r} names no licence", "write it as FORMAT=LICENCE, like tau_bench=MIT")
        if formats is not None and form not in formats:
            raise UnknownName("format", form, sorted(formats))
        found[form] = licence
    return found


def dataset_card(manifest: Manifest) -> str:
    """Markdown, made of the manifest alone; it is no part of the dataset's hash, which it names."""
    parts = [
        f"# {_text(manifest.dataset)}",
        "Logged decisions of LLM agents for offline reinforcement learning, built by logforge. `manifest.json` says what the "
        "arrays mean; numpy alone can read them.",
        _facts(manifest),
        "## Sources",
        _sources(manifest),
        "## Splits",
        _splits(manifest),
        "## Observations",
        _observations(manifest),
        "## Actions",
        f"{len(manifest.actions)} actions; an action's id is its place: "
        + ", ".join(_code(action) for action in manifest.actions),
        "## Limits",
        "\n".join(f"- {limit}" for limit in _limits(manifest)),
    ]
    return "\n\n".join(parts) + "\n"


def _facts(manifest: Manifest) -> str:
    return _table(
        ("", ""),
        [
            ("hash", _code(manifest.hash)),
            ("schema version", str(manifest.schema_version)),
            ("discount γ", f"{manifest.gamma:g}"),
            ("reward spec", _code(manifest.spec_hash)),
            (
                "returns in train",
                "none" if manifest.return_range is None else "{:g} to {:g}".format(*manifest.return_range),
            ),
            ("seed", str(manifest.seed)),
        ],
    )


def _sources(manifest: Manifest) -> str:
    if not manifest.sources:
        return "None is named."
    counts = Counter(source.format for source in manifest.sources)
    rows = [
        (_code(form), str(count), _text(manifest.licences.get(form, UNSTATED)))
        for form, count in sorted(counts.items())
    ]
    return _table(("format", "files", "licence"), rows)


def _splits(manifest: Manifest) -> str:
    header = ("split", "episodes", "transitions", "terminals", "timeouts", "successes")
    rows = [
        (name, *(str(getattr(found, column)) for column in header[1:]))
        for name, found in manifest.splits.items()
    ]
    return _table(header, rows)


def _observations(manifest: Manifest) -> str:
    encoder = manifest.encoder
    made = "No text was encoded." if encoder is None else (
        f"Texts were encoded by {_code(encoder.name)} ({_code(encoder.revision)}, {encoder.dim} numbers"
        + (f", reduced to {encoder.reduced_dim})." if encoder.reduced_dim else ").")
    )  # fmt: skip
    if manifest.text_variance is not None:
        made += f" The reduction keeps {manifest.text_variance:.0%} of the variance of the texts that it was fitted on."
    rows = [
        (_code(name), f"{start}:{stop}", _text(meaning))
        for name, start, stop, meaning in _rows(manifest.layout)
    ]
    size = f"{manifest.observation_size} numbers each, stored as {manifest.observation_dtype}. {made}"
    return f"{size}\n\n{_table(('block', 'columns', 'meaning'), rows)}"


def _rows(layout: Iterable[FeatureSlice]) -> Iterator[tuple[str, int, int, str]]:
    """A row for each slice; slots after the first of a block, which have the same slices, share one."""
    for later, slices in groupby(
        layout, lambda one: found[1] if (found := _LATER_SLOT.match(one.name)) else ""
    ):
        parts = list(slices)
        if later:
            last = parts[-1].name.split(".")[1]
            yield (
                f"{later}.1 … {later}.{last}",
                parts[0].start,
                parts[-1].stop,
                f"as {later}.0, of older ones",
            )
        else:
            yield from ((one.name, one.start, one.stop, one.meaning) for one in parts)


def _limits(manifest: Manifest) -> Iterator[str]:
    """What the numbers of the manifest say against it."""
    yield (
        "It holds what was done, by whoever logged it: of actions that were never tried in a state it says nothing, and "
        "a policy's worth on it is an estimate."
    )
    unstated = sorted({source.format for source in manifest.sources} - set(manifest.licences))
    if unstated:
        named = ", ".join(_code(form) for form in unstated)
        yield f"The licence of what came from {named} was not stated at the build: ask where the logs come from."
    for name, split in manifest.splits.items():
        if not split.transitions:
            yield f"The {name} split is empty."
    every = list(manifest.splits.values())
    episodes, cut = sum(split.episodes for split in every), sum(split.timeouts for split in every)
    if cut:
        yield f"{cut} of {episodes} episodes are cut off: their returns are partial, and values bootstrap at their ends."
    inferred = manifest.mask_kinds.get("inferred", 0)
    if inferred:
        total = sum(manifest.mask_kinds.values())
        yield f"{inferred} of {total} masks are inferred: the log does not say what was offered."
    calls, given = (manifest.thoughts.get(name, 0) for name in ("calls", "named"))
    if given and any(block.name == "thought" for block in manifest.layout):
        yield (
            f"The last thought before a call names its tool in {given} of {calls} ({given / calls:.0%}): where most do, a policy "
            "learns to read plans, and is lost where no thoughts are served."
        )
    if manifest.observation_dtype == "float16":
        yield "Observations are stored with 11 bits of precision."
    if manifest.golden_states:
        count = len(manifest.golden_states)
        yield f"{_code('golden_states.json')} holds texts of the logs: {count} states of the train split, as the store has them."
    if manifest.forgotten:
        yield f"{manifest.forgotten} episodes were taken out after the build (`logforge forget`)."


def _table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _text(value: str) -> str:
    """Names come from logs: nothing of them is markup, and none breaks a line or a table."""
    flat = "".join(character if character.isprintable() else " " for character in value)
    for special in "\\`*_{}[]<>|#&!":
        flat = flat.replace(special, f"\\{special}")
    return flat


def _code(value: str) -> str:
    flat = "".join(character if character.isprintable() else " " for character in value)
    return f"`{flat.replace('`', 'ˋ').replace('|', '¦')}`"
