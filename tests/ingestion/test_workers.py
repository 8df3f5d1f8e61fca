"""Whoever does a task, the results are the same and come in the same order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logforge.ingestion import workers as module
from logforge.ingestion.workers import Crew, Task
from logforge.schemas.errors import StoreError


def nothing() -> None:
    pass


def doubled(number: int) -> int:
    return 2 * number


def who(number: int) -> tuple[int, int]:
    time.sleep(0.01)
    return number, os.getpid()


def failing(number: int) -> int:
    if number == 3:
        raise KeyError(number)
    return number


def dying(number: int) -> None:
    if os.getppid() != number:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.05)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """This process and a helper that is prepared."""
    with Crew(2, nothing, tmp_path_factory.mktemp("room")) as crew:
        crew.start()
        crew._prepared.result()
        yield crew


def tasks(call, numbers, size=1, here=()):
    return (Task(call, number, size, number in here) for number in numbers)


@given(st.lists(st.tuples(st.integers(), st.integers(0, 9), st.booleans()), max_size=12), st.integers(0, 20))
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_the_results_come_in_the_order_of_the_tasks(pair, given_tasks, ahead):
    made = [Task(doubled, number, size, here) for number, size, here in given_tasks]
    wanted = [2 * task.argument for task in made]
    assert list(pair.results(made, ahead)) == wanted
    assert list(Crew(1, nothing, Path()).results(made)) == wanted


def test_both_processes_work_and_what_is_to_be_done_here_is(pair):
    here = range(0, 60, 7)
    done = list(pair.results(tasks(who, range(60), here=here), ahead=20))
    assert [number for number, _ in done] == list(range(60))
    assert {pid for number, pid in done if number in here} == {os.getpid()}
    assert len({pid for _, pid in done}) == 2
    assert list(pair._room.iterdir()) == []


def test_results_of_parts_may_be_asked_for_within(pair):
    outer = []
    for number in pair.results(tasks(doubled, range(5)), ahead=3):
        outer.append((number, list(pair.results(tasks(doubled, range(number)), ahead=3))))
    assert outer == [(2 * n, [2 * k for k in range(2 * n)]) for n in range(5)]


@pytest.mark.parametrize("ahead", [0, 2, 5])
def test_no_more_is_taken_ahead_than_asked_for(pair, ahead):
    taken = []

    def coming():
        for number in range(20):
            taken.append(number)
            yield Task(doubled, number, 1)

    for number, _ in enumerate(pair.results(coming(), ahead)):
        assert len(taken) <= number + 1 + max(ahead, 1)


@pytest.mark.parametrize("helped", [True, False])
def test_what_a_task_raises_is_raised(pair, helped):
    crew = pair if helped else Crew(1, nothing, Path())
    with pytest.raises(KeyError, match="3"):
        list(crew.results(tasks(failing, range(6)), ahead=6))


def test_a_helper_that_dies_is_told(tmp_path):
    with Crew(2, nothing, tmp_path) as crew:
        crew.start()
        crew._prepared.result()
        with pytest.raises(StoreError, match="a reading process died"):
            list(crew.results(tasks(dying, [os.getppid()] * 9), ahead=9))


@pytest.mark.parametrize(("workers", "started"), [(1, True), (3, False)])
def test_there_are_no_helpers_before_the_start_and_for_one_worker(tmp_path, workers, started):
    with Crew(workers, nothing, tmp_path) as crew:
        if started:
            crew.start()
        assert crew.helpers == 0
        assert {pid for _, pid in crew.results(tasks(who, range(5)), ahead=9)} == {os.getpid()}


def test_helpers_end_when_their_process_is_killed(tmp_path):
    script = tmp_path / "alone.py"
    script.write_text(
        "import os, signal, sys\nfrom pathlib import Path\n"
        "from logforge.ingestion.workers import Crew\n"
        "if __name__ == '__main__':\n"
        "    crew = Crew(2, os.getpid, Path('.'))\n"
        "    crew.start()\n"
        "    print(crew._pool.submit(os.getpid).result(), flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, str(script)], stdout=subprocess.PIPE, text=True, check=False)
    helper = int(done.stdout)
    for _ in range(600):
        with suppress(ProcessLookupError):
            os.kill(helper, 0)
            if "Z" not in Path(f"/proc/{helper}/stat").read_text().rpartition(")")[2].split()[0]:
                time.sleep(0.05)
                continue
        return
    pytest.fail(f"process {helper} of {module.__name__} is still there")
