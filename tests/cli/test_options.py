"""A field of settings is the one place of an option: each field has its option, with its default, and each option its field."""

from __future__ import annotations

import inspect
import subprocess
import sys
from dataclasses import fields, is_dataclass

import click
import pytest
from click.testing import CliRunner

from logforge.cli.commands import main
from logforge.cli.config import default_map
from logforge.cli.options import taken
from logforge.connectors.records.source import MAX_RECORD
from logforge.core.options import KEY, option
from logforge.dataset.build.config import BuildConfig, Gates
from logforge.dataset.build.pipeline import build_dataset
from logforge.dataset.conflicts.views import Narrowed
from logforge.dataset.diff.pipeline import diff_datasets
from logforge.dataset.quality.gates import GATES
from logforge.dataset.states.config import StateConfig
from logforge.evaluation.config import EstimateConfig, PlayConfig
from logforge.evaluation.credit.agreement import credit_agreement
from logforge.evaluation.credit.config import CreditConfig
from logforge.evaluation.credit.methods import METHODS
from logforge.evaluation.credit.pipeline import credit_of, fit_values
from logforge.evaluation.pipeline import evaluate
from logforge.evaluation.playing import play
from logforge.evaluation.tuning.config import SweepConfig
from logforge.evaluation.tuning.sweeping import sweep
from logforge.exports.catalogue import FORMATS, Options
from logforge.ingestion.config import IngestConfig
from logforge.ingestion.pipeline import ingest, read_options
from logforge.ingestion.sources.limits import Limits
from logforge.learning.ope import fqe
from logforge.learning.training.config import TrainConfig
from logforge.learning.training.fingerprints import compare as fingerprints
from logforge.report.bad_case_files import write_bad_cases
from logforge.report.bad_case_search import bad_cases
from logforge.report.pipeline import report
from logforge.schemas.manifest import ObservationDtype
from logforge.shards.files import PART_BYTES

ARGUMENTS = {
    "badcases": [],
    "build-dataset": ["--reward", "reward.yaml"],
    "check": [],
    "conflicts": [],
    "credit": ["run"],
    "credit-agreement": ["run", "key_steps.jsonl"],
    "diff": ["a", "b"],
    "evaluate": ["run"],
    "export": ["dataset", "--out", "file"],
    "ingest": ["logs"],
    "policy fingerprint": ["folder", "--dataset", "dataset"],
    "report": [],
    "sweep": ["dataset"],
    "train": ["dataset"],
}
"""What a command cannot do without."""
SETTINGS = {
    "build-dataset": (BuildConfig, Gates),
    "check": (Gates,),
    "credit": (CreditConfig,),
    "evaluate": (EstimateConfig, PlayConfig),
    "export": (Options,),
    "ingest": (IngestConfig,),
    "sweep": (SweepConfig,),
    "train": (TrainConfig,),
}
OWN = {
    "build-dataset": "reward store name out vocabulary like max-quarantine max-missing wait json",
    "check": "dataset store sources wait json",
    "credit": "run store json",
    "evaluate": "run json",
    "export": "dataset format out split store json",
    "ingest": "paths store name workers strict dry-run watch interval wait json",
    "sweep": "dataset algo preset updates out json",
    "train": "dataset out json",
}
"""The arguments and options of a command that are no settings."""
NOT_ASKED = {
    BuildConfig: {"fractions"},
    StateConfig: {"decay", "answer_size", "memory_columns", "fact_columns"},
    Limits: {"members", "depth"},
    TrainConfig: {"hidden"},
}
"""Fields that no command sets."""
PAIRS = [(name, struct) for name, structs in SETTINGS.items() for struct in structs]


def inner(field):
    return field.default_factory if is_dataclass(field.default_factory) else None


def asked(struct):
    """The fields that are options, those of settings within settings too."""
    for field in fields(struct):
        if (struct_of := inner(field)) is not None:
            yield from asked(struct_of)
        elif KEY in field.metadata:
            yield field


def parsed(command):
    group, _, own = command.rpartition(" ")
    within = main.commands[group] if group else main
    return within.commands[own].make_context(command, list(ARGUMENTS[command])).params


def named(command):
    return {str(one.name): one for one in main.commands[command].params}


def key_of(parameter):
    return parameter.opts[0].lstrip("-")


@pytest.mark.parametrize(("command", "struct"), PAIRS, ids=lambda it: getattr(it, "__name__", it))
def test_each_field_has_an_option_that_says_what_the_field_says(command, struct):
    parameters = named(command)
    for field in asked(struct):
        parameter, told = parameters[field.name], field.metadata[KEY]
        assert isinstance(parameter, click.Option)
        assert parameter.help == told.help
        assert parameter.envvar is None
        assert not parameter.required
        if told.flags:
            assert (*parameter.opts, *parameter.secondary_opts) == told.flags
        else:
            assert key_of(parameter) == field.name.replace("_", "-")
        if told.choices:
            assert tuple(parameter.type.choices) == told.choices
        if told.least is not None:
            assert (parameter.type.min, parameter.type.max) == (told.least, told.most)


@pytest.mark.parametrize("struct", [*dict.fromkeys(struct for _, struct in PAIRS), StateConfig, Limits])
def test_every_other_field_is_known_to_be_none_of_the_command_line(struct):
    held = {field.name for field in fields(struct) if KEY not in field.metadata and inner(field) is None}
    assert held == NOT_ASKED.get(struct, set())


@pytest.mark.parametrize("command", SETTINGS)
def test_every_other_option_is_known_to_be_the_commands_own(command):
    of_settings = {field.name for struct in SETTINGS[command] for field in asked(struct)}
    assert of_settings <= set(named(command))
    own = {key_of(one) for name, one in named(command).items() if name not in of_settings}
    assert own == set(OWN[command].split())


@pytest.mark.parametrize(("command", "struct"), PAIRS, ids=lambda it: getattr(it, "__name__", it))
def test_a_command_without_options_gives_the_settings_as_they_are(command, struct):
    assert struct(**taken(struct, parsed(command))) == struct()


def test_what_is_taken_is_gone_from_the_options():
    given = parsed("ingest")
    config = taken(IngestConfig, given)
    assert config["limits"] == Limits()
    assert not set(given) & {field.name for field in asked(IngestConfig)}


@pytest.mark.parametrize("command", SETTINGS)
def test_a_config_file_reaches_every_field_by_its_option(tmp_path, command):
    wanted = {
        key_of(parameter): field.name
        for struct in SETTINGS[command]
        for field in asked(struct)
        for parameter in [named(command)[field.name]]
    }
    lines = [f'{key} = "{name}"' for key, name in wanted.items() if key not in ("out", "weights")]
    (tmp_path / "logforge.toml").write_text("\n".join([f"[{command}]", *lines]))
    options = {
        name: {key_of(one): str(one.name) for one in item.params} for name, item in main.commands.items()
    }
    found = default_map(tmp_path, options)[command]
    assert found == {name: name for key, name in wanted.items() if key not in ("out", "weights")}


@pytest.mark.parametrize(
    ("command", "function"),
    [
        ("badcases", bad_cases),
        ("badcases", write_bad_cases),
        ("build-dataset", build_dataset),
        ("conflicts", Narrowed),
        ("credit", credit_of),
        ("credit", fit_values),
        ("credit-agreement", credit_agreement),
        ("diff", diff_datasets),
        ("evaluate", evaluate),
        ("evaluate", play),
        ("ingest", ingest),
        ("ingest", read_options),
        ("policy fingerprint", fingerprints),
        ("report", report),
        ("sweep", sweep),
    ],
)
def test_a_function_has_the_defaults_of_its_command(command, function):
    given = parsed(command)
    for struct in SETTINGS.get(command, ()):
        given |= taken(struct, dict(given))
    shared = {
        name: parameter.default
        for name, parameter in inspect.signature(function).parameters.items()
        if name in given and parameter.default is not inspect.Parameter.empty
    }
    skipped = {"workers", "store", "limits"} | ({"members", "updates"} if function is fit_values else set())
    assert len(shared) > 1
    for name in shared.keys() - skipped:
        assert shared[name] == given[name], name


def test_settings_agree_with_what_they_set():
    assert (BuildConfig.part_bytes, Limits.record) == (PART_BYTES, MAX_RECORD)
    assert (EstimateConfig.members, EstimateConfig.updates) == (fqe.MEMBERS, fqe.UPDATES)
    assert (CreditConfig.members, CreditConfig.updates) == (fqe.MEMBERS, fqe.UPDATES)
    assert SweepConfig.fqe_updates == fqe.UPDATES
    assert CreditConfig.method == next(iter(METHODS))
    assert [field.name for field in fields(Gates)] == list(GATES)
    assert {name for form in FORMATS.values() for name in form.options} == {
        one.name for one in fields(Options)
    }
    dtype = next(field for field in fields(BuildConfig) if field.name == "observation_dtype")
    assert dtype.metadata[KEY].choices == ObservationDtype.__args__


def test_what_cannot_be_read_is_a_usage_error_that_names_the_option():
    result = CliRunner().invoke(main, ["sweep", "dataset", "--alpha", "1,two"])
    assert result.exit_code == 2
    assert "--alpha: '1,two' is not a list of numbers such as 0.3,1" in result.stderr


def test_option_keeps_the_fields_default():
    assert option(3, "How many.").default == 3


def test_no_help_loads_anything_heavy():
    """The settings of every command are loaded for any help."""
    code = (
        "import sys\nfrom click.testing import CliRunner\nfrom logforge.cli.commands import main\n"
        "for name in main.commands:\n"
        "    assert CliRunner().invoke(main, [name, '--help']).exit_code == 0, name\n"
        "heavy = {'polars', 'torch', 'duckdb', 'pyarrow', 'numpy', 'pandera', 'sklearn', 'pydantic', 'msgspec'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
