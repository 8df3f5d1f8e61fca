"""What `logforge export` can write: the formats by name, what each keeps and loses, and the module that writes it.

Loads nothing heavy: the command line and the docs read it too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from logforge.schemas.errors import UnknownName

TRANSITIONS: Final = "transitions"
CONTRASTS: Final = "contrasts"


@dataclass(frozen=True)
class Format:
    """One form of a dataset. `module` has the function `write(job)`, see logforge/exports/job.py."""

    name: str
    module: str
    writes: str
    """The file or folder, and what a row of it is."""
    keeps: str
    loses: str
    loads: str
    """Who reads it, and how."""
    counts: str = TRANSITIONS
    """What the conservation law is over: written and left out together are all of the split's."""
    extra: str | None = None
    texts: bool = False
    """It holds texts, which are in the store and not in the shards."""
    every_split: bool = False
    """Holds all splits, unless one is named."""
    options: tuple[str, ...] = ()
    """The fields of `job.Options` that it takes."""


_ALL = (
    Format(
        name="d3rlpy",
        module="logforge.exports.mdp",
        writes="HDF5 file by d3rlpy's own writer, the manifest beside it",
        keeps="observations with the final one, actions and their number, rewards, true ends apart from cut-offs",
        loses="masks, returns, weights, propensities, outcomes",
        loads="`logforge.exports.pipeline.load_mdp_dataset`; `d3rlpy.dataset.ReplayBuffer.load` with `action_size` given",
        extra="train",
    ),
    Format(
        name="minari",
        module="logforge.exports.minari",
        writes="Minari dataset folder (HDF5), an episode each",
        keeps="observations with the final one, spaces, actions, rewards, terminations, truncations, masks and outcomes",
        loses="returns, weights, propensities, split groups",
        loads="`minari.MinariDataset(OUT/data)`, or `minari.load_dataset` with `MINARI_DATASETS_PATH` one above OUT",
        extra="minari",
    ),
    Format(
        name="parquet",
        module="logforge.exports.rows",
        writes="Parquet file, a row for each transition",
        keeps="every array of the shard (kinds, policies and templates by name), the manifest in the schema's metadata",
        loses="texts; arguments but their templates and numbers",
        loads="anything that reads Parquet",
    ),
    Format(
        name="huggingface",
        module="logforge.exports.hugging_face",
        writes="folder of Parquet files by split with a dataset card, a row for each transition",
        keeps="what `parquet` keeps, of every split, and the actions' names as class labels",
        loses="texts; arguments but their templates and numbers",
        loads="`datasets.load_dataset(OUT)`",
        every_split=True,
    ),
    Format(
        name="rlds",
        module="logforge.exports.rlds",
        writes="Parquet file, a row for each episode with nested steps as RLDS has them",
        keeps="observations with the final one, masks, actions, rewards, true ends apart from cut-offs, outcomes",
        loses="returns, weights, propensities; no TFRecord files",
        loads="anything that reads Parquet; the last step's action, reward and discount mean nothing",
    ),
    Format(
        name="trl-sft",
        module="logforge.exports.trl_sft",
        writes="JSON lines, a conversation each: `messages`, `tools`",
        keeps="texts, thoughts, calls with arguments, results, tools; outcome and return beside them",
        loses="observations; augmented episodes, which have no texts",
        loads="`datasets.load_dataset('json')`, TRL's SFTTrainer with `assistant_only_loss=True`",
        texts=True,
        options=("successes",),
    ),
    Format(
        name="trl-dpo",
        module="logforge.exports.trl_dpo",
        writes="JSON lines, a contrast each: `prompt`, `chosen`, `rejected`, `tools`",
        keeps="states whose better action is certain, both actions as they were called, the gap of returns with its interval",
        loses="states with one action; contrasts whose interval holds 0 (`--uncertain` writes them)",
        loads="`datasets.load_dataset('json')`, TRL's DPOTrainer",
        counts=CONTRASTS,
        texts=True,
        options=("uncertain",),
    ),
    Format(
        name="trl-kto",
        module="logforge.exports.trl_kto",
        writes="JSON lines, a turn of the agent each: `prompt`, `completion`, `label`, `tools`",
        keeps="every turn with the outcome of its episode as label",
        loses="episodes without outcome, augmented ones, turns that no prompt leads to or whose calls are invalid",
        loads="`datasets.load_dataset('json')`, TRL's KTOTrainer",
        texts=True,
    ),
    Format(
        name="weighted-sft",
        module="logforge.exports.weighted",
        writes="JSON lines, a turn of the agent each: `prompt`, `completion`, `weight`, `tools`",
        keeps="the turns that did better than average, weighted by how much (`--weigh`, `--keep`)",
        loses="what `--keep` leaves out, augmented episodes, turns that no prompt leads to or whose calls are invalid",
        loads="`datasets.load_dataset('json')`, a trainer that multiplies each row's loss by `weight`",
        texts=True,
        options=("weigh", "keep"),
    ),
    Format(
        name="credit-text",
        module="logforge.exports.credit_text",
        writes="JSON lines, an episode each: `parts` with credit, and one `text` with tags at key steps",
        keeps="texts, thoughts, calls, results; each step's credit and support, key steps by credit and by people",
        loses="observations, times, counterfactual episodes, augmented ones",
        loads="`datasets.load_dataset('json')`; `logforge.exports.tagged_text.parse` reads `text` back",
        texts=True,
        options=("credit", "key_share", "least_support", "key_steps"),
    ),
    Format(
        name="preference-pairs",
        module="logforge.exports.pairs",
        writes="JSON lines, a contrast each, with both sides' means, success rates and source lines",
        keeps="what is known of a contrast",
        loses="calls in the prompt: its messages are role and text",
        loads="a script of your own",
        counts=CONTRASTS,
        texts=True,
        options=("uncertain",),
    ),
    Format(
        name="atif",
        module="logforge.exports.atif",
        writes="JSON lines, a trajectory each (ATIF 1.8, as Harbor has them)",
        keeps="messages, thoughts, calls, results, times, tokens, costs, step rewards, outcome, ending, tools",
        loses="observations, augmented episodes; a result's place when something was said before it",
        loads="`logforge ingest`, whatever reads ATIF",
        texts=True,
    ),
)

FORMATS: Final[dict[str, Format]] = {form.name: form for form in _ALL}
"""Every format by name."""


def format_named(name: str) -> Format:
    """The format, or UnknownName with those there are."""
    if name not in FORMATS:
        raise UnknownName("export format", name, list(FORMATS))
    return FORMATS[name]
