"""Files of weights are checked as a whole, and several are taken together."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logforge.cli.config import default_map
from logforge.dataset.weights.files import load_weights
from logforge.dataset.weights.parts import Weights
from logforge.schemas.errors import LogforgeError, SpecError


def write(folder, text, name="weights.yaml"):
    (folder / name).write_text(text, "utf-8")
    return folder / name


def test_no_file_gives_the_defaults():
    assert load_weights([]) == Weights()


def test_settings_and_episodes_are_read(tmp_path):
    text = "half_life_days: 30\nno_progress: 0.5\nepisodes:\n  12e4: 2\n  ab: 0.5\n"
    assert load_weights([write(tmp_path, text)]) == Weights(
        half_life_days=30, no_progress=0.5, episodes={"12e4": 2.0, "ab": 0.5}
    )


def test_of_several_files_the_last_word_counts_and_episodes_are_gathered(tmp_path):
    first = write(tmp_path, "off_task: 0.1\nepisodes: {a: 2, b: 2}\n", "1.yaml")
    second = write(tmp_path, "off_task: 1\nepisodes: {b: 3}\n", "2.yaml")
    assert load_weights([first, second]) == Weights(off_task=1, episodes={"a": 2.0, "b": 3.0})


def test_files_named_in_a_config_file_are_relative_to_it(tmp_path):
    write(tmp_path, '[build-dataset]\nweights = ["w.yaml"]\n', "logforge.toml")
    found = default_map(tmp_path, {"build-dataset": {"weights": "weight_files"}})
    assert found == {"build-dataset": {"weight_files": [str(tmp_path / "w.yaml")]}}


def test_null_switches_recency_off_again(tmp_path):
    first, second = write(tmp_path, "half_life_days: 3\n", "1"), write(tmp_path, "half_life_days:\n", "2")
    assert load_weights([first, second]).half_life_days is None


def test_all_problems_are_told_with_their_lines(tmp_path):
    text = (
        "no_progres: 0.5\nlazy_episode: -1\noff_task: yes\nepisodes:\n  a: lots\n  b: 1\nhalf_life_days: 0\n"
    )
    with pytest.raises(SpecError) as caught:
        load_weights([write(tmp_path, text)])
    told = str(caught.value)
    for line, words in (
        (1, "did you mean 'no_progress'"),
        (2, "at least 0"),
        (3, "no number"),
        (5, "no number"),
        (7, "above 0"),
    ):
        assert any(f"weights.yaml:{line}" in part and words in part for part in told.splitlines()), (
            line,
            told,
        )
    assert len(caught.value.problems) == 5
    assert "docs/weights.md" in told


@pytest.mark.parametrize(
    "text", ["- 1\n", "5\n", "episodes: [a, b]\n", "no_progress: .nan\n", "off_task: .inf\n"]
)
def test_what_is_no_mapping_of_numbers_is_refused(tmp_path, text):
    with pytest.raises(SpecError):
        load_weights([write(tmp_path, text)])


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("w") / "w.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with contextlib.suppress(LogforgeError):
        load_weights([path])
