"""Every block of the README and the docs runs, and the generated pages are up to date.

A page is one script: its bash, sql and python blocks run in order in a folder that holds the sample logs, a reward spec,
a store and a dataset `default`, under a config file that lets fitted Q evaluation take less time (a thorough run has none).
YAML, TOML and JSON blocks are parsed; `text` blocks show output.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib

import pytest
from click.testing import CliRunner

from logforge.cli.commands import main
from logforge.rewards.pipeline import parse_spec
from support.doc_blocks import as_script, blocks, joined, run
from support.places import ROOT, SAMPLES
from support.thoroughness import enough

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    SAMPLES / "README.md",
]

FEW = "fqe-members = 4\nfqe-updates = 100\n"
LESS_TIME = enough(f"[evaluate]\n{FEW}[credit]\n{FEW}[credit-agreement]\n{FEW}", "")


@pytest.fixture(scope="module")
def project(tmp_path_factory, commands):
    """A folder as the pages presuppose it."""
    folder = tmp_path_factory.mktemp("project")
    shutil.copytree(SAMPLES, folder / "sample_logs")
    shutil.copy(SAMPLES / "reward.yaml", folder / "reward.yaml")
    run(
        "logforge ingest sample_logs && logforge build-dataset --reward reward.yaml --encoder hashing "
        "--augment paraphrase --augment tool_failure --retryable get_user_details",
        folder,
        commands,
    )
    return folder


def clone(folder):
    """What the page that is read first can presuppose: what lies in a copy of the repository, and nothing else."""
    for name in ("sample_logs", "docs"):
        shutil.copytree(ROOT / name, folder / name)


def make_targets(text):
    return re.findall(r"^make ([a-z]+)", text, re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_runs(page, project, commands, tmp_path):
    script = ""
    for language, text in joined(blocks(page)):
        if language in ("bash", "sql", "python"):
            script += as_script(language, text)
            for target in make_targets(text):
                subprocess.run(["make", "-n", target], cwd=ROOT, check=True, capture_output=True)
        elif language == "yaml":
            parse_spec(text, page.name)
        elif language == "toml":
            tomllib.loads(text)
        elif language == "json":
            json.loads(text)
        else:
            assert language == "text", (
                f"a block of {page.name} is marked {language!r}: it would not be tested"
            )
    if script:
        (tmp_path / "logforge.toml").write_text(LESS_TIME, "utf-8")
        folder = tmp_path / "page"
        if page == ROOT / "README.md":
            clone(folder)
        else:
            shutil.copytree(project, folder)
        run(script, folder, commands)


def test_there_are_ten_queries_and_each_gives_rows(project):
    queries = [text for language, text in blocks(ROOT / "docs" / "sql.md") if language == "sql"]
    assert len(queries) >= 10
    for query in queries:
        result = CliRunner().invoke(
            main, ["sql", query, "--json", "--store", str(project / "logforge.duckdb")]
        )
        assert result.exit_code == 0, result.stderr
        assert json.loads(result.stdout)["rows"], query


def test_generated_pages_are_up_to_date():
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_every_command_has_help_with_an_example_and_takes_json():
    groups = (main.commands["reward"], main.commands["policy"])
    commands = [*main.commands.values(), *(one for group in groups for one in group.commands.values())]
    for command in commands:
        if hasattr(command, "commands"):
            continue
        assert "Example" in (command.help or ""), command.name
        assert "--json" in [option for parameter in command.params for option in parameter.opts], command.name


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
