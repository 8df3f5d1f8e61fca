"""What `logforge export` can write: the formats by name, what each keeps and loses, and the module that writes it.

Loads nothing heavy: the command line and the docs read it too.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from logforge.core import option
from logforge.schemas import UnknownName, UsageError

TRANSITIONS: Final = "transitions"
CONTRASTS: Final = "contrasts"


@dataclass(frozen=True)
class Format:
    """One form of a dataset. `writer` names a function of one job, see logforge/exports/job.py."""

    name: str
    writer: str
    """As `package.module:function`."""
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
        writer="logforge.exports.mdp:write",
        writes="HDF5 file by d3rlpy's own writer, the manifest beside it",
        keeps="observations with the final one, actions and their number, rewards, true ends apart from cut-offs",
        loses="masks, returns, weights, propensities, outcomes",
        loads="`logforge.shards.load_mdp_dataset`; `d3rlpy.dataset.ReplayBuffer.load` with `action_size` given",
        extra="train",
    ),
    Format(
        name="minari",
        writer="logforge.exports.minari:write",
        writes="Minari dataset folder (HDF5), an episode each",
        keeps="observations with the final one, spaces, actions, rewards, terminations, truncations, masks and outcomes",
        loses="returns, weights, propensities, split groups",
        loads="`minari.MinariDataset(OUT/data)`, or `minari.load_dataset` with `MINARI_DATASETS_PATH` one above OUT",
        extra="minari",
    ),
    Format(
        name="parquet",
        writer="logforge.exports.rows:write",
        writes="Parquet file, a row for each transition",
        keeps="every array of the shard (kinds, policies and templates by name), the manifest in the schema's metadata",
        loses="texts; arguments but their templates and numbers",
        loads="anything that reads Parquet",
    ),
    Format(
        name="huggingface",
        writer="logforge.exports.hugging_face:write",
        writes="folder of Parquet files by split with a dataset card, a row for each transition",
        keeps="what `parquet` keeps, of every split, and the actions' names as class labels",
        loses="texts; arguments but their templates and numbers",
        loads="`datasets.load_dataset(OUT)`",
        every_split=True,
    ),
    Format(
        name="rlds",
        writer="logforge.exports.rlds:write",
        writes="Parquet file, a row for each episode with nested steps as RLDS has them",
        keeps="observations with the final one, masks, actions, rewards, true ends apart from cut-offs, outcomes",
        loses="returns, weights, propensities; no TFRecord files",
        loads="anything that reads Parquet; the last step's action, reward and discount mean nothing",
    ),
    Format(
        name="trl-sft",
        writer="logforge.exports.trl_sft:write",
        writes="JSON lines, a conversation each: `messages`, `tools`",
        keeps="texts, thoughts, calls with arguments, results, tools; outcome and return beside them",
        loses="observations; augmented episodes, which have no texts",
        loads="`datasets.load_dataset('json')`, TRL's SFTTrainer with `assistant_only_loss=True`",
        texts=True,
        options=("successes",),
    ),
    Format(
        name="trl-dpo",
        writer="logforge.exports.trl_dpo:write",
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
        writer="logforge.exports.turns:write_labelled",
        writes="JSON lines, a turn of the agent each: `prompt`, `completion`, `label`, `tools`",
        keeps="every turn with the outcome of its episode as label",
        loses="episodes without outcome, augmented ones, turns that no prompt leads to or whose calls are invalid",
        loads="`datasets.load_dataset('json')`, TRL's KTOTrainer",
        texts=True,
    ),
    Format(
        name="weighted-sft",
        writer="logforge.exports.turns:write_weighted",
        writes="JSON lines, a turn of the agent each: `prompt`, `completion`, `weight`, `tools`",
        keeps="the turns that did better than average, weighted by how much (`--weigh`, `--keep`)",
        loses="what `--keep` leaves out, augmented episodes, turns that no prompt leads to or whose calls are invalid",
        loads="`datasets.load_dataset('json')`, a trainer that multiplies each row's loss by `weight`",
        texts=True,
        options=("weigh", "keep"),
    ),
    Format(
        name="credit-text",
        writer="logforge.exports.credit_text:write",
        writes="JSON lines, an episode each: `parts` with credit, and one `text` with tags at key steps",
        keeps="texts, thoughts, calls, results; each step's credit and support, key steps by credit and by people",
        loses="observations, times, counterfactual episodes, augmented ones",
        loads="`datasets.load_dataset('json')`; `logforge.exports.tagged_text.parse` reads `text` back",
        texts=True,
        options=("credit", "key_share", "least_support", "key_steps"),
    ),
    Format(
        name="preference-pairs",
        writer="logforge.exports.pairs:write",
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
        writer="logforge.exports.atif:write",
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


@dataclass(frozen=True)
class Options:
    """What some formats let one choose. A format refuses those it does not take."""

    uncertain: bool = option(
        False, "Also contrasts whose interval holds 0 or cannot be given (trl-dpo, preference-pairs)."
    )
    successes: bool = option(False, "Only episodes that succeeded (trl-sft).")
    weigh: str = option(
        "return",
        "By the return to go, or by a method of credit that the store keeps (weighted-sft).",
        metavar="return|METHOD",
    )
    keep: str = option(
        "positive", "Which turns, by their weight (weighted-sft).", metavar="positive|all|top=SHARE"
    )
    credit: str = option(
        "counterfactual",
        "The method of credit that the store keeps: logforge credit RUN --split SPLIT (credit-text).",
        metavar="METHOD",
    )
    key_share: float = option(
        0.1,
        "Which share of the steps are key steps, those of the largest |credit| (credit-text).",
        least=0,
        most=1,
        above=True,
    )
    least_support: int = option(
        0,
        "Credit of a step with less support in the train split counts as unknown; 1 takes out what is unsupported (credit-text).",
        least=0,
    )
    key_steps: str | None = option(
        None,
        "Key steps as people judged them, a judgement a line: docs/returns.md (credit-text).",
        path="any",
    )

    def check(self, form: Format) -> None:
        """Raise UsageError for an option that the format would ignore."""
        for one in fields(self):
            if getattr(self, one.name) != one.default and one.name not in form.options:
                named = f"--{one.name.replace('_', '-')}"
                raise UsageError(f"{form.name} takes no {named}", "leave it out, or choose another --format")
