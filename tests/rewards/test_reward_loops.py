"""The plain loops of the benchmark give what the queries of the example specs give, to the last bit."""

import pytest
from benchmarks.rewards import EXAMPLES, SPECS, made, sides


@pytest.fixture(scope="module")
def tables():
    return made(3_000)


@pytest.mark.parametrize("name", SPECS)
def test_query_and_loop_agree(name, tables):
    sides(name, tables).assert_equal()


def test_every_example_has_a_loop():
    assert sorted(SPECS) == sorted(path.stem for path in EXAMPLES.glob("*.yaml"))
