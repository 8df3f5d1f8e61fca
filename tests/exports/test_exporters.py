import json
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from logforge.core.extras import import_d3rlpy
from logforge.exports.hugging_face import features
from logforge.exports.pipeline import export
from logforge.schemas.errors import CheckFailed, InputError, Mismatch, StoreError, UnknownName, UsageError
from logforge.schemas.manifest import ArgumentTemplate
from logforge.schemas.transition import PROPENSITY_KINDS
from logforge.shards.arrays import ARRAYS
from logforge.shards.d3rlpy import load_mdp_dataset, to_mdp_dataset
from logforge.shards.reader import Shard, SplitArrays, load_shards, write_dataset
from support.made_arrays import DIM, LAST, VOCABULARY, altered, episode_kinds, make, manifest

KINDS = [(3, True), (3, False), (1, False), (1, True), (2, False)]


@pytest.fixture
def dataset(tmp_path):
    write_dataset(tmp_path / "made", {"train": make(KINDS), "test": make([(2, True)])}, manifest())
    return tmp_path / "made"


def shard_of(arrays, tmp_path="."):
    return Shard(
        **{name: getattr(arrays, name) for name in ARRAYS}, manifest=manifest(), path=tmp_path, split="train"
    )


def transitions_of(buffer):
    """All that can be sampled."""
    pick = buffer.transition_picker
    return [pick(*buffer.buffer[index]) for index in range(buffer.transition_count)]


def column(transitions, name):
    return np.stack([np.reshape(getattr(transition, name), -1) for transition in transitions])


def assert_complete(buffer, arrays):
    """What d3rlpy can sample is what the arrays hold: no transition lost, none added, none changed."""
    found = transitions_of(buffer)
    assert len(found) == arrays.size
    assert np.array_equal(column(found, "observation"), arrays.observations[arrays.observation_rows])
    assert np.array_equal(column(found, "action")[:, 0], arrays.actions)
    assert np.array_equal(column(found, "reward")[:, 0], arrays.rewards)
    terminal = column(found, "terminal")[:, 0]
    assert np.array_equal(terminal, arrays.terminals.astype(float))
    going_on = terminal == 0
    assert np.array_equal(column(found, "next_observation")[going_on], arrays.next_observations()[going_on])


@settings(max_examples=40, deadline=None)
@given(episode_kinds)
def test_d3rlpy_samples_every_transition(kinds):
    arrays = make(kinds)
    buffer = to_mdp_dataset(shard_of(arrays))
    assert_complete(buffer, arrays)
    assert buffer.size() == len(kinds)
    assert buffer.dataset_info.action_size == VOCABULARY.size


def test_without_the_sentinel_d3rlpy_would_lose_rewards():
    """The trap is real: this fails when d3rlpy changes and the sentinel row is no longer needed."""
    d3rlpy = import_d3rlpy()
    arrays = make([(2, False)])
    naive = d3rlpy.dataset.MDPDataset(
        observations=arrays.observations[:2],
        actions=arrays.actions,
        rewards=arrays.rewards,
        terminals=arrays.terminals.astype(np.float32),
        timeouts=arrays.timeouts.astype(np.float32),
        action_space=d3rlpy.ActionSpace.DISCRETE,
    )
    assert naive.transition_count == 1
    assert naive.dataset_info.action_size < VOCABULARY.size
    assert to_mdp_dataset(shard_of(arrays)).transition_count == 2


def test_truncated_episodes_bootstrap_from_their_final_observation(dataset):
    shard = load_shards(dataset)
    found = transitions_of(to_mdp_dataset(shard))
    for step in np.flatnonzero(shard.timeouts):
        final = shard.observations[shard.observation_offsets[shard.episode_index[step] + 1] - 1]
        assert found[step].terminal == 0
        assert found[step].reward == shard.rewards[step]
        assert np.array_equal(found[step].next_observation, final)


def test_the_final_observation_is_never_sampled(dataset):
    shard = load_shards(dataset)
    final = set((shard.observation_offsets[1:] - 1).tolist())
    buffer = to_mdp_dataset(shard)
    np.random.seed(0)
    seen = {int(row) for _ in range(20) for row in buffer.sample_transition_batch(32).observations[:, 0]}
    assert seen == set(range(len(shard.observations))) - final


def test_trajectories_end_before_the_sentinel(dataset):
    shard = load_shards(dataset)
    buffer = to_mdp_dataset(shard)
    final = shard.observation_offsets[1:] - 1
    np.random.seed(0)
    for _ in range(50):
        trajectory = buffer.sample_trajectory(4)
        assert not np.isin(trajectory.observations[trajectory.masks > 0, 0], final).any()


def test_batches_flag_true_ends_and_no_others(dataset):
    shard = load_shards(dataset)
    batch = import_d3rlpy().dataset.TransitionMiniBatch.from_transitions(
        transitions_of(to_mdp_dataset(shard))
    )
    assert np.array_equal(batch.terminals[:, 0] == 1, shard.terminals)
    assert batch.rewards.sum() == shard.rewards.sum()


@pytest.mark.parametrize("kind", [(1, True), (1, False)])
def test_an_episode_of_one_step_survives_alone(kind):
    assert_complete(to_mdp_dataset(shard_of(make([kind]))), make([kind]))


def test_an_unused_last_tool_still_counts(dataset):
    shard = load_shards(dataset)
    assert LAST not in shard.actions
    info = to_mdp_dataset(shard).dataset_info
    assert (info.action_size, info.action_space) == (VOCABULARY.size, import_d3rlpy().ActionSpace.DISCRETE)


@pytest.mark.parametrize(
    ("name", "where", "value"),
    [
        ("timeouts", 2, True),
        ("timeouts", -1, False),
        ("rewards", 0, np.nan),
        ("observations", 0, np.inf),
        ("actions", 0, VOCABULARY.size),
        ("actions", 0, -1),
    ],
)
def test_what_d3rlpy_would_take_without_a_word_is_refused(name, where, value):
    with pytest.raises(CheckFailed):
        to_mdp_dataset(shard_of(altered(make(KINDS), name, where, value)))


def test_a_q_learner_trains_on_it(dataset):
    d3rlpy = import_d3rlpy()
    algo = d3rlpy.algos.DQNConfig(batch_size=4).create(device="cpu")
    algo.build_with_dataset(to_mdp_dataset(load_shards(dataset)))
    loss = algo.update(to_mdp_dataset(load_shards(dataset)).sample_transition_batch(4))
    assert np.isfinite(loss["loss"])
    assert algo.impl.q_function[0](_tensor(np.zeros((1, DIM)))).q_value.shape == (1, VOCABULARY.size)


def _tensor(array):
    import torch

    return torch.tensor(array, dtype=torch.float32)


def test_nothing_is_said_on_stdout(dataset, capfd):
    to_mdp_dataset(load_shards(dataset))
    assert capfd.readouterr() == ("", "")


# files


def test_hdf5_round_trip_keeps_transitions_and_action_size(dataset, tmp_path):
    file = export(dataset, "d3rlpy", tmp_path / "out" / "train.h5").path
    assert (tmp_path / "out" / "train.manifest.json").read_bytes() == (dataset / "manifest.json").read_bytes()
    loaded = load_mdp_dataset(file)
    assert_complete(loaded, make(KINDS))
    assert loaded.dataset_info.action_size == VOCABULARY.size
    # d3rlpy's own loader reads the file too, and guesses.
    d3rlpy = import_d3rlpy()
    with file.open("rb") as stream:
        own = d3rlpy.dataset.ReplayBuffer.load(stream, d3rlpy.dataset.InfiniteBuffer())
    assert own.transition_count == loaded.transition_count
    assert own.dataset_info.action_size < VOCABULARY.size


def test_splits_are_chosen_by_name(dataset, tmp_path):
    assert (
        load_mdp_dataset(export(dataset, "d3rlpy", tmp_path / "t.h5", split="test").path).transition_count
        == 2
    )
    with pytest.raises(UnknownName, match="valid: test, train"):
        export(dataset, "d3rlpy", tmp_path / "v.h5", split="validation")


def test_unknown_formats_list_the_known_ones(dataset, tmp_path):
    with pytest.raises(UnknownName, match="valid: d3rlpy, minari, parquet"):
        export(dataset, "hdf6", tmp_path / "x")


def test_an_empty_split_cannot_be_exported(tmp_path):
    write_dataset(tmp_path / "made", {"train": SplitArrays.empty(DIM, VOCABULARY.size)}, manifest())
    with pytest.raises(UsageError, match="no transitions"):
        export(tmp_path / "made", "d3rlpy", tmp_path / "x.h5")
    assert to_mdp_dataset(load_shards(tmp_path / "made")).transition_count == 0


def test_damaged_datasets_are_not_exported(dataset, tmp_path):
    data = bytearray((dataset / "train" / "rewards.npy").read_bytes())
    data[-1] ^= 1
    (dataset / "train" / "rewards.npy").write_bytes(data)
    with pytest.raises(Mismatch, match=r"rewards\.npy"):
        export(dataset, "parquet", tmp_path / "x.parquet")
    assert not (tmp_path / "x.parquet").exists()


def test_a_file_beside_another_datasets_manifest_is_refused(dataset, tmp_path):
    file = export(dataset, "d3rlpy", tmp_path / "train.h5").path
    other = write_dataset(tmp_path / "other", {"train": make(KINDS, seed=1)}, manifest())
    (tmp_path / "train.manifest.json").write_text(other.to_json())
    with pytest.raises(Mismatch, match="dataset"):
        load_mdp_dataset(file)
    (tmp_path / "train.manifest.json").unlink()
    with pytest.raises(UsageError, match=r"train\.manifest\.json"):
        load_mdp_dataset(file)


def test_files_that_are_no_export_are_refused(dataset, tmp_path):
    file = export(dataset, "d3rlpy", tmp_path / "train.h5").path
    file.write_bytes(b"no HDF5")
    with pytest.raises(InputError, match=r"train\.h5"):
        load_mdp_dataset(file)


def test_parquet_has_a_row_per_transition(dataset, tmp_path):
    table = pq.read_table(export(dataset, "parquet", tmp_path / "train.parquet").path)
    shard = load_shards(dataset)
    assert table.num_rows == shard.size
    assert np.array_equal(
        np.array(table["observation"].to_pylist(), np.float32), shard.observations[shard.observation_rows]
    )
    assert np.array_equal(
        np.array(table["next_observation"].to_pylist(), np.float32), shard.next_observations()
    )
    assert np.array_equal(np.array(table["mask"].to_pylist()), shard.masks[shard.observation_rows])
    assert table["action"].to_pylist() == [VOCABULARY.actions[action] for action in shard.actions]
    assert table["step"].to_pylist() == [0, 1, 2, 0, 1, 2, 0, 0, 0, 1]
    assert table["episode"].to_pylist() == [0, 0, 0, 1, 1, 1, 2, 3, 4, 4]
    assert table["timeout"].to_pylist() == shard.timeouts.tolist()
    assert table["propensity"].to_pylist() == [0.5, None] * 5
    assert table["propensity_kind"].to_pylist() == [PROPENSITY_KINDS[kind] for kind in shard.propensity_kinds]
    assert table["proposed_action"].to_pylist() == [VOCABULARY.actions[one] for one in shard.proposed_actions]
    per_step = np.repeat(np.arange(shard.episode_count), np.diff(shard.episode_offsets))
    assert table["augmented"].to_pylist() == shard.augmented[per_step].tolist()
    assert table["group"].to_pylist() == shard.groups[per_step].tolist()
    assert table["success"].to_pylist() == [
        {1: True, 0: False, -1: None}[int(shard.success[e])] for e in per_step
    ]
    assert json.loads(table.schema.metadata[b"logforge_manifest"])["hash"] == shard.manifest.hash


def test_rows_name_policies_and_templates_and_hold_numeric_arguments(tmp_path):
    arrays = make([(3, True), (1, False)])
    known = np.array([[True], [False], [False], [True]])
    arrays = replace(
        arrays,
        actions=np.full(4, VOCABULARY.id("refund"), np.int32),
        argument_templates=np.array([0, -1, 0, 0], np.int32),
        behaviour_policies=np.array([0, 0, -1, 1], np.int32),
        argument_numbers=np.where(known, np.float32(2.5), np.float32(0)),
        argument_numbers_known=known,
    )
    side = {
        "argument_templates": (ArgumentTemplate("refund", '{"amount": <number>}'),),
        "argument_numbers": ("refund.amount",),
        "behaviour_policies": ("old", "new"),
    }
    write_dataset(tmp_path / "made", {"train": arrays}, manifest(**side))
    table = pq.read_table(export(tmp_path / "made", "parquet", tmp_path / "t.parquet").path)
    assert table["behaviour_policy"].to_pylist() == ["old", "old", None, "new"]
    template = side["argument_templates"][0].template
    assert table["argument_template"].to_pylist() == [template, None, template, template]
    assert table["argument_numbers"].to_pylist() == [[2.5], [0.0], [0.0], [2.5]]
    assert table["argument_numbers_known"].to_pylist() == known.tolist()
    columns = [column["name"] for column in features(load_shards(tmp_path / "made"))]
    assert table.schema.names == columns


def test_parquet_over_many_batches(tmp_path, monkeypatch):
    monkeypatch.setattr("logforge.exports.rows.GROUP", 3)
    write_dataset(tmp_path / "made", {"train": make(KINDS)}, manifest())
    table = pq.read_table(export(tmp_path / "made", "parquet", tmp_path / "t.parquet").path)
    assert np.array_equal(table["reward"].to_numpy(), make(KINDS).rewards)


def test_exports_replace_earlier_ones_whole(dataset, tmp_path):
    first = export(dataset, "parquet", tmp_path / "x.parquet").path.read_bytes()
    assert export(dataset, "parquet", tmp_path / "x.parquet").path.read_bytes() == first
    assert {path.name for path in tmp_path.iterdir()} == {"made", ".made.lock", "x.parquet"}


def test_a_failed_export_leaves_the_earlier_one(dataset, tmp_path, monkeypatch):
    before = export(dataset, "parquet", tmp_path / "x.parquet").path.read_bytes()
    monkeypatch.setattr(
        "logforge.core.files.sync", lambda path: (_ for _ in ()).throw(OSError(28, "No space left"))
    )
    with pytest.raises(StoreError, match="No space left"):
        export(dataset, "parquet", tmp_path / "x.parquet", split="test")
    assert (tmp_path / "x.parquet").read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"made", ".made.lock", "x.parquet"}


def test_sampling_keeps_observations_mapped(dataset):
    """No copy of the observations is made: the buffer's episodes are views of the shard's file."""
    shard = load_shards(dataset)
    assert all(
        np.shares_memory(episode.observations, shard.observations)
        for episode in to_mdp_dataset(shard).episodes
    )
