"""A dataset, a policy or a run that someone else made: its names lead nowhere else, and its files are what they are said to be."""

from __future__ import annotations

import json
import os
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logforge.checks.pipeline import check_folder
from logforge.dataset.build.earlier_dataset import earlier_reduction, earlier_vocabulary
from logforge.dataset.build.pipeline import BuildConfig, build_dataset
from logforge.dataset.diff.pipeline import diff_datasets
from logforge.dataset.weights.curriculum import read_stages
from logforge.evaluation.pipeline import evaluate
from logforge.forgetting.runs import drop_from_runs
from logforge.ingestion.pipeline import ingest
from logforge.learning.policies.bundle import load_policy
from logforge.learning.policies.runs import read_run
from logforge.learning.training.pipeline import train
from logforge.schemas.errors import InputError, LogforgeError, Mismatch, UsageError
from logforge.schemas.manifest import Manifest, digest, unsafe_file_names
from logforge.serving.server import StateServer
from logforge.shards.reader import load_shards, read_manifest, write_dataset
from logforge.store.store import Store
from support.places import SAMPLES

IDENTITY = (
    "schema_version", "actions", "action_aliases", "argument_templates", "argument_numbers", "behaviour_policies", "layout",
    "gamma", "spec_hash", "config", "encoder", "checksums",
)  # fmt: skip
FAST = {"updates": 10, "batch_size": 16, "hidden": (8,), "members": 1}
READERS = {
    "read_manifest": read_manifest,
    "load_shards": load_shards,
    "server": StateServer,
    "train": lambda folder: train(folder, out=folder.parent / "run-of-it", **FAST),
    "vocabulary": earlier_vocabulary,
    "reduction": lambda folder: earlier_reduction(folder, "hashing"),
    "stages": read_stages,
}
EVIL = [
    "../x", "encoder/../../../.bashrc", "/etc/passwd", "a/../../b", "..", ".", "", "./x", "a//b", "a\\..\\..\\b", "C:/x", "C:x", "//host/x",
    "encoder/.hidden", ".ssh/authorized_keys", "a\0b", "a\nb", "a\u202eb", "~/x", "$HOME/x", "-rf", "file:///etc/passwd", "x/", " x", "con:",
]  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A dataset from a store, and a run of it."""
    home = tmp_path_factory.mktemp("received")
    with Store(home / "l.duckdb") as store:
        ingest(store, [SAMPLES / "tau_bench"])
        config = BuildConfig(encoder="hashing", text_size=8)
        build_dataset(store, SAMPLES / "reward.yaml", name="dataset", out=home, config=config)
    train(home / "dataset", out=home / "run", **FAST)
    return home


@pytest.fixture
def received(made, tmp_path):
    shutil.copytree(made / "dataset", tmp_path / "home" / "dataset")
    shutil.copytree(made / "run", tmp_path / "home" / "run")
    (tmp_path / "private").write_text("a secret of this machine")
    return tmp_path / "home"


def forge(folder, **changes):
    """Change a manifest and give it the hash that fits: its maker can do so too."""
    told = json.loads((folder / "manifest.json").read_text())
    for key, value in changes.items():
        told[key] = {**told[key], **value}
    told["hash"] = digest({key: told[key] for key in IDENTITY})
    (folder / "manifest.json").write_text(json.dumps(told))


def tree(folder):
    return {str(p): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.parametrize("field", ["checksums", "splits"])
def test_a_manifest_with_an_evil_name_is_read_by_nobody(received, field):
    folder = received / "dataset"
    whole = (folder / "manifest.json").read_text()
    for name in EVIL:
        forge(folder, **{field: {name: next(iter(json.loads(whole)[field].values()))}})
        before = tree(received.parent)
        for reader in READERS.values():
            with pytest.raises(InputError, match="no plain name"):
                reader(folder)
        assert tree(received.parent) == before, "nothing is written, in the folder or beside it"
        (folder / "manifest.json").write_text(whole)


@given(st.text(max_size=12))
def test_a_name_that_passes_stays_in_its_folder(name):
    if not list(unsafe_file_names([name])):
        assert os.path.normpath(os.path.join("/folder", name)).startswith("/folder/")
        assert not any(part.startswith(".") for part in name.split("/"))
        assert name.isascii()
        assert name.isprintable()
        assert not set(name) & set("\\:$~ ")


def test_every_name_that_is_written_passes(made):
    manifest = Manifest.from_json((made / "dataset" / "manifest.json").read_bytes())
    assert not list(unsafe_file_names(manifest.checksums))
    assert set(json.loads((made / "run" / "cql" / "bundle.json").read_text())["files"]) == {
        "actions.json", "encoder/pca.npz", "golden_states.json", "manifest.json", "weights.safetensors",
    }  # fmt: skip


FILES = [
    "encoder/pca.npz",
    "actions.json",
    "golden_states.json",
    "train/observations.npy",
    "train/actions.npy",
    "validation/masks.npy",
]


@pytest.mark.parametrize("name", FILES)
def test_nothing_is_trained_on_a_file_with_another_byte(received, name):
    file = received / "dataset" / name
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(Mismatch, match="checksum"):
        READERS["train"](received / "dataset")


@pytest.mark.parametrize("name", [*FILES, "manifest.json"])
def test_a_link_is_never_followed(received, name):
    file, private = received / "dataset" / name, received.parent / "private"
    file.rename(received.parent / "moved")
    for target in (private, received.parent / "moved"):
        file.symlink_to(target)
        with pytest.raises(InputError, match="link"):
            READERS["train"](received / "dataset")
        file.unlink()
    assert not any(b"a secret" in data for data in tree(received).values())


def test_a_linked_folder_is_not_followed(received):
    (received / "dataset" / "encoder").rename(received.parent / "encoder")
    (received / "dataset" / "encoder").symlink_to(received.parent / "encoder")
    for reader in ("server", "train", "reduction"):
        with pytest.raises(InputError, match="link"):
            READERS[reader](received / "dataset")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes on this system")
@pytest.mark.parametrize("name", ["train/rewards.npy", "encoder/pca.npz", "manifest.json"])
def test_a_pipe_ends_with_an_error_and_not_never(received, name):
    (received / "dataset" / name).unlink()
    os.mkfifo(received / "dataset" / name)
    with pytest.raises(LogforgeError, match=r"plain file|no dataset"):
        READERS["train"](received / "dataset")


def test_a_policy_names_no_other_file(received):
    card = received / "run" / "cql" / "bundle.json"
    whole = card.read_text()
    for name in (*EVIL, "other.npz", "encoder/other.npz", "bundle.json"):
        told = json.loads(whole)
        told["files"][name] = told["files"]["actions.json"]
        card.write_text(json.dumps(told))
        with pytest.raises(InputError, match="no file of a policy"):
            load_policy(card.parent)
        with pytest.raises(InputError, match="no file of a policy"):
            evaluate(received / "run", dataset_path=received / "dataset")


@pytest.mark.parametrize(
    "name",
    [
        "bundle.json",
        "weights.safetensors",
        "manifest.json",
        "actions.json",
        "encoder/pca.npz",
        "golden_states.json",
    ],
)
def test_a_policy_with_a_link_or_another_byte_is_refused(received, name):
    file = received / "run" / "cql" / name
    whole = file.read_bytes()
    if name != "bundle.json":
        file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        with pytest.raises(Mismatch, match="hash"):
            load_policy(received / "run" / "cql")
    (received / "moved").write_bytes(whole)
    file.unlink()
    file.symlink_to(received / "moved")
    with pytest.raises(InputError, match="link"):
        load_policy(received / "run" / "cql")
    if name == "golden_states.json":
        with pytest.raises(LogforgeError, match="link"):
            drop_from_runs([received / "run"], lambda episode: True)
        assert (received / "moved").read_bytes() == whole


@pytest.mark.parametrize("name", ["../elsewhere", "/etc", "a/../../b", ".."])
def test_a_run_names_no_policy_elsewhere(received, name):
    record = received / "run" / "train.json"
    told = json.loads(record.read_text())
    told["policies"][name] = told["policies"]["cql"]
    record.write_text(json.dumps(told))
    for reader in (read_run, evaluate):
        with pytest.raises(InputError, match="no plain name"):
            reader(received / "run")


@pytest.mark.parametrize("policies", [None, 3, [1], [None]])
def test_a_run_whose_policies_have_no_names_is_no_run(received, policies):
    record = received / "run" / "train.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"policies": policies}))
    with pytest.raises(InputError, match="not the record of a run"):
        read_run(received / "run")


def test_the_writer_takes_no_name_that_no_reader_takes(made, tmp_path):
    manifest = read_manifest(made / "dataset")
    for name in ("a b", "\u00fc.txt", "a\\b", ".hidden", "../x", "/x"):
        with pytest.raises(UsageError, match="no place for an extra file"):
            write_dataset(tmp_path / "new", {}, manifest, {name: b""})
    assert not (tmp_path / "new").exists()


def test_comparing_and_checking_refuse_it_too(made, received):
    forge(received / "dataset", checksums={"../x": "0"})
    with pytest.raises(InputError, match="no plain name"):
        diff_datasets(str(made / "dataset"), str(received / "dataset"))
    with pytest.raises(InputError, match="no plain name"):
        check_folder(received / "dataset")
