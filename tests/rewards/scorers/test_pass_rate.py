import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logforge.rewards.scorers.pass_rate import Counts, counted_tests
from support.made_scores import dialogue, scored

PRINTED = {
    "pytest": "....\n=================== 7 passed, 3 failed in 0.12s ===================\n",
    "pytest -q": "FAILED tests/test_a.py::test_b - assert 0\n3 failed, 7 passed, 2 skipped, 1 xfailed, 4 warnings in 1.50s\n",
    "pytest errors": "===== 7 passed, 2 failed, 1 error in 61.02s (0:01:01) =====",
    "unittest": "FAIL: test_x\n-----\nRan 10 tests in 0.004s\n\nFAILED (failures=2, errors=1)\n",
    "unittest skipped": "Ran 12 tests in 0.004s\n\nFAILED (failures=3, skipped=2)\n",
    "jest": "Tests:       3 failed, 2 skipped, 7 passed, 12 total\nSnapshots:   0 total\n",
    "vitest": " Test Files  1 failed | 2 passed (3)\n      Tests  3 failed | 7 passed (10)\n",
    "surefire": "Tests run: 4, Failures: 1, Errors: 0, Skipped: 0\n[INFO] Tests run: 11, Failures: 2, Errors: 1, Skipped: 1\n",
    "junit 4": "FAILURES!!!\nTests run: 10,  Failures: 3\n",
    "cargo": "test result: ok. 4 passed; 0 failed; 1 ignored\ntest result: FAILED. 3 passed; 3 failed; 0 ignored\n",
    "dotnet": "Failed!  - Failed:     3, Passed:     7, Skipped:     1, Total:    11, Duration: 2 s",
    "rspec": "11 examples, 3 failures, 1 pending\n",
    "mocha": "  7 passing (12ms)\n  3 failing\n",
    "go -v": "".join(f"=== RUN   TestA{n}\n--- {'PASS' if n < 7 else 'FAIL'}: TestA{n} (0.00s)\n" for n in range(10))
    + "    --- FAIL: TestA8/sub (0.00s)\nFAIL\n",
    "go": "".join(f"{'ok  ' if n < 7 else 'FAIL'}\texample.com/p{n}\t0.01{n}s\n" for n in range(10)),
    "tap": "TAP version 13\n" + "".join(f"{'' if n < 7 else 'not '}ok {n + 1} - t\n" for n in range(10)) + "1..10\n",
    "node": "# tests 10\n# pass 7\n# fail 3\n",
    "words": "Result: 7/10 tests passed.",
    "words 2": "7 out of 10 unit tests pass",
    "words 3": "Passed: 7 of 10 tests",
    "junit xml": '<?xml version="1.0"?><testsuites><testsuite name="a" tests="6" failures="1" errors="1" skipped="1"/>'
    '<testsuite tests="5" failures="1" errors="0"/></testsuites>',
    "junit xml root": '<testsuites tests="10" failures="3"><testsuite tests="10" failures="3"/></testsuites>',
    "counts": json.dumps({"run": {"tests_passed": 7, "tests_failed": 3}}),
    "counts 2": json.dumps({"results": {"passed": 7, "total": 10}}),
    "counts 3": json.dumps([{"num_passed_tests": 7, "num_total_tests": 10}]),
    "swe-bench": json.dumps(
        {"tests_status": {"FAIL_TO_PASS": {"success": ["a"], "failure": ["b", "c", "d"]},
                          "PASS_TO_PASS": {"success": list("efghij"), "failure": []}}}
    ),
}  # fmt: skip


@pytest.mark.parametrize("text", PRINTED.values(), ids=PRINTED.keys())
def test_seven_of_ten_in_every_shape(text):
    assert counted_tests(text) == Counts(7, 10)


def test_seven_of_ten_is_0_7(store):
    episode = dialogue(result=PRINTED["pytest"])
    assert scored(store, "pass_rate", [episode], when="kind = 'tool'") == [(0.7, None)]
    logged = dialogue(metadata=PRINTED["swe-bench"])
    assert scored(store, {"name": "pass_rate", "text": "metadata"}, [logged], at="terminal") == [(0.7, None)]


def test_the_last_run_of_an_episode_counts(store):
    from logforge.connectors.episodes.builder import Call, EpisodeBuilder
    from support.made_episodes import finish

    builder = EpisodeBuilder()
    for number, result in enumerate(
        ["1 passed, 9 failed in 0.1s", "7 passed, 3 failed in 0.1s", "file written"]
    ):
        builder.turn("", [Call("run", {"n": number}, f"c{number}")], "x")
        builder.result(f"c{number}", result, "x")
    found = scored(store, {"name": "pass_rate", "text": "results"}, [finish(builder)], at="end")
    assert found == [(0.7, None)]


@pytest.mark.parametrize(
    ("text", "value", "reason"),
    [
        ("all went well", None, "no test results in the text"),
        ("I passed 3 of them on", None, "no test results in the text"),
        ("5 skipped in 0.01s", None, "no test ran"),
        ("1 error in 0.01s", 0.0, None),
        ("Ran 3 tests in 0.1s\n\nOK", 1.0, None),
        ("12/10 tests passed", None, "no test results in the text"),
    ],
)
def test_what_is_no_result_is_null(store, text, value, reason):
    assert scored(store, "pass_rate", [dialogue(result=text)], when="kind = 'tool'") == [(value, reason)]


@given(st.text(st.sampled_from('0123456789 passedfilngtso,:/()=-.\n|#kTR<>"'), max_size=200))
def test_counts_are_sane_for_any_text(text):
    found = counted_tests(text)
    assert found is None or 0 <= found.passed <= found.ran


def test_long_texts_are_quick():
    for piece in ("1 passed, ", "Tests run: 1, ", "<testsuite ", "0 of 1 ", " \t", "Ran 1 tests in ", "ok 1"):
        counted_tests(piece * 20_000)
