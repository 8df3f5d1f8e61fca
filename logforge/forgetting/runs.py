"""Takes the golden states of forgotten episodes out of the policies below some folders: a bundle holds up to 20 states, with texts.

What is left of a bundle proves and serves as before; its manifest and its card bear new hashes. The store knows what was forgotten by
hashes alone, so that this can be done at any time after, and again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import xxhash

from logforge.core import plain_file, replaced_folder
from logforge.dataset.states import GOLDEN_FILE, digests, golden_file, of_episodes, read_golden
from logforge.forgetting.report import RunLoss
from logforge.learning.policies import CARD, PolicyBundle, load_policy
from logforge.schemas import CheckFailed, LogforgeError, Manifest, Problem
from logforge.shards import MANIFEST


def drop_from_runs(
    folders: Iterable[str | Path], gone: Callable[[str], bool], dry_run: bool = False
) -> tuple[RunLoss, ...]:
    """Take golden states out of every policy bundle below these folders; `gone` tells an episode that was forgotten by its id.

    Each bundle changes whole or not at all. Raises CheckFailed, once all others are done, for those that cannot be read: nobody can
    say what they hold.
    """
    found: list[RunLoss] = []
    unread: list[Problem] = []
    bundles = {card.parent for root in folders for card in Path(root).rglob(CARD)}
    # What a killed run left beside a bundle has a name that begins with a dot, and goes with the bundle if that changes.
    for folder in sorted(bundles, key=lambda folder: (folder.name.startswith("."), folder)):
        if not (folder / GOLDEN_FILE).is_file():
            continue
        try:
            found += _dropped(folder, gone, dry_run)
        except LogforgeError as error:
            unread.append(Problem(error.message, str(folder)))
    if unread:
        raise CheckFailed(
            "some policies could not be read, and may hold texts that were to be forgotten",
            unread,
            "delete them",
        )
    return tuple(found)


def _dropped(folder: Path, gone: Callable[[str], bool], dry_run: bool) -> Iterator[RunLoss]:
    golden = read_golden(plain_file(folder, GOLDEN_FILE).read_bytes(), str(folder / GOLDEN_FILE))
    kept = {one.episode_id for one in golden if not gone(one.episode_id)}
    left = of_episodes(golden, kept)
    if len(left) == len(golden):
        return
    yield RunLoss(str(folder), len(golden) - len(left))
    if dry_run:
        return
    bundle = load_policy(folder)
    data = golden_file(left)
    manifest = Manifest.from_json(bundle.files[MANIFEST], str(folder / MANIFEST))
    changed = msgspec.structs.replace(manifest, golden_states=digests(left), replaces=manifest.hash)
    sums = {**manifest.checksums, GOLDEN_FILE: xxhash.xxh3_128_hexdigest(data)}
    sealed = changed.sealed(manifest.splits, manifest.return_range, sums)
    _save(
        replace(bundle, files={**bundle.files, GOLDEN_FILE: data, MANIFEST: sealed.to_json().encode()}),
        folder,
    )


def _save(bundle: PolicyBundle, folder: Path) -> None:
    """In place of what is there, with whatever else lies beside it."""
    with replaced_folder(folder) as fresh:
        shutil.copytree(folder, fresh, symlinks=True, dirs_exist_ok=True)
        bundle.save(fresh)
