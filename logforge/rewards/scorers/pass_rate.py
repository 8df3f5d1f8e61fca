"""The share of unit tests that passed, read from what a test run printed or a log counts. No code is run."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from logforge.rewards.scorers.base import InputName, Ready, Resources, Score, Scorer, Texts, each

_MOST_OBJECTS = 10_000


class Counts(NamedTuple):
    """Tests that passed, of those that ran; skipped ones did not run."""

    passed: int
    ran: int


class PassRate(Scorer):
    """Passed tests / tests run, of the last test run in the text.

    Of `results`, the last answer of a tool that reports tests counts.
    """

    name = "pass_rate"

    text: InputName = "result"

    def ready(self, resources: Resources) -> Ready:
        """Needs nothing."""
        return Ready(self.version(), each(_score))


def _score(texts: Texts) -> Score:
    for part in reversed(texts[0].split("\x1e")):
        found = counted_tests(part)
        if found is not None:
            return Score(found.passed / found.ran) if found.ran else Score(None, reason="no test ran")
    return Score(None, reason="no test results in the text")


def counted_tests(text: str) -> Counts | None:
    """The counts that a text reports, in the first of the known shapes that is in it; None when there is none."""
    return next((found for read in _READERS if (found := read(text)) is not None), None)


def _junit_xml(text: str) -> Counts | None:
    """`<testsuite tests="10" failures="2" errors="1" skipped="0">`; a root with counts stands for its suites."""
    tags = re.findall(r"<testsuite(s?)\b([^<>]*)>", text)
    counted = [(bool(root), dict(re.findall(r'(\w+)="(\d+)"', inside))) for root, inside in tags]
    suites = [found for root, found in counted if root and "tests" in found] or [
        found for root, found in counted if not root and "tests" in found
    ]
    if not suites:
        return None
    total, failed, skipped = (
        sum(int(suite.get(word, 0)) for suite in suites for word in words)
        for words in (("tests",), ("failures", "errors"), ("skipped", "disabled"))
    )
    return Counts(max(total - skipped - failed, 0), max(total - skipped, 0))


def _pytest(text: str) -> Counts | None:
    """`=== 7 passed, 2 failed, 1 error in 0.12s ===`. What was expected to fail does not count."""
    lines = re.findall(r"^=*[ \t]*((?:\d+ [a-z]+(?:, )?)+) in \d+(?:\.\d+)?s\b", text, re.MULTILINE)
    counted = [found for line in lines if (found := _words(line)).keys() & _PYTEST]
    if not counted:
        return None
    passed = counted[-1].get("passed", 0) + counted[-1].get("xpassed", 0)
    return Counts(passed, passed + sum(counted[-1].get(word, 0) for word in ("failed", "error", "errors")))


_PYTEST = {"passed", "failed", "error", "errors", "skipped", "xfailed", "xpassed"}


def _words(line: str) -> dict[str, int]:
    return {word: int(number) for number, word in re.findall(r"(\d+) ([a-z]+)", line)}


def _unittest(text: str) -> Counts | None:
    """`Ran 10 tests in 0.1s`, then `OK` or `FAILED (failures=2, errors=1, skipped=1)`."""
    runs = list(
        re.finditer(r"^Ran (\d+) tests? in [^\n]*\s+(OK|FAILED)(?: \(([^()\n]*)\))?", text, re.MULTILINE)
    )
    if not runs:
        return None
    ran, _, details = runs[-1].groups(default="")
    found = {word: int(number) for word, number in re.findall(r"([a-z ]+)=(\d+)", details)}
    failed = sum(
        n for word, n in found.items() if word.strip() in ("failures", "errors", "unexpected successes")
    )
    total = int(ran) - sum(n for word, n in found.items() if word.strip() == "skipped")
    return Counts(max(total - failed, 0), max(total, 0))


def _jest(text: str) -> Counts | None:
    """`Tests: 1 failed, 2 skipped, 9 passed, 12 total`, and vitest's `Tests  1 failed | 9 passed (10)`."""
    lines = re.findall(r"^[ \t]*Tests:?[ \t]+(\d+ [a-z]+[^\n]*)$", text, re.MULTILINE)
    counted = [found for line in lines if (found := _words(line)).keys() & {"passed", "failed"}]
    if not counted:
        return None
    passed = counted[-1].get("passed", 0)
    return Counts(passed, passed + counted[-1].get("failed", 0))


def _surefire(text: str) -> Counts | None:
    """`Tests run: 10, Failures: 2, Errors: 1, Skipped: 0`; the last line is the sum of those before it."""
    lines = re.findall(
        r"Tests run: +(\d+), +Failures: +(\d+)(?:, +Errors: +(\d+))?(?:, +Skipped: +(\d+))?", text
    ) or [(number, "0", "", "") for number in re.findall(r"^OK \((\d+) tests?\)", text, re.MULTILINE)]
    if not lines:
        return None
    total, failures, errors, skipped = (int(number or 0) for number in lines[-1])
    return Counts(max(total - skipped - failures - errors, 0), max(total - skipped, 0))


def _cargo(text: str) -> Counts | None:
    """`test result: FAILED. 7 passed; 3 failed; 0 ignored`, one line for each binary."""
    lines = re.findall(r"^test result: \w+\. (\d+) passed; (\d+) failed", text, re.MULTILINE)
    return _sum(lines)


def _dotnet(text: str) -> Counts | None:
    """`Failed: 3, Passed: 7, Skipped: 0, Total: 10`."""
    lines = re.findall(r"Failed: +(\d+), +Passed: +(\d+), +Skipped: +\d+, +Total: +\d+", text)
    return _sum([(passed, failed) for failed, passed in lines])


def _rspec(text: str) -> Counts | None:
    """`10 examples, 3 failures, 1 pending`."""
    lines = re.findall(r"^(\d+) examples?, (\d+) failures?(?:, (\d+) pending)?", text, re.MULTILINE)
    if not lines:
        return None
    total, failed, pending = (int(number or 0) for number in lines[-1])
    return Counts(max(total - pending - failed, 0), max(total - pending, 0))


def _mocha(text: str) -> Counts | None:
    """`7 passing (10ms)`, then `3 failing`."""
    passing = re.findall(r"^[ \t]*(\d+) passing\b", text, re.MULTILINE)
    failing = re.findall(r"^[ \t]*(\d+) failing\b", text, re.MULTILINE)
    return _pair(passing, failing)


def _tap(text: str) -> Counts | None:
    """`# pass 7` and `# fail 3`, or the lines `ok 1 - name` and `not ok 2 - name`."""
    passed = re.findall(r"^# pass(?:ed)?:? +(\d+)", text, re.MULTILINE)
    failed = re.findall(r"^# fail(?:ed)?:? +(\d+)", text, re.MULTILINE)
    if found := _pair(passed, failed):
        return found
    lines = re.findall(r"^(not )?ok \d+\b(?![^\n]*# SKIP)", text, re.MULTILINE)
    return Counts(lines.count(""), len(lines)) if lines else None


def _go(text: str) -> Counts | None:
    """`--- PASS: TestX (0.00s)` of `go test -v`, subtests left out; else the packages: `ok  pkg  0.1s`, `FAIL  pkg  0.1s`."""
    tests = re.findall(r"^--- (PASS|FAIL): ", text, re.MULTILINE)
    packages = re.findall(
        r"^(ok|FAIL)[ \t]+\S+[ \t]+(?:\d+\.\d+s|\(cached\)|\[build failed\])", text, re.MULTILINE
    )
    found = [word in ("PASS", "ok") for word in (tests if "PASS" in tests else packages or tests)]
    return Counts(sum(found), len(found)) if found else None


def _sentence(text: str) -> Counts | None:
    """`7/10 tests passed`, `7 of 10 tests passed`, `Passed 7/10 tests`."""
    share = r"(\d+) ?(?:/|of|out of) ?(\d+)"
    lines = re.findall(
        rf"{share} (?:unit )?(?:tests?|test cases?) (?:have )?pass(?:ed|ing)?\b|\bpass(?:ed|ing)?:? {share} (?:unit )?test",
        text,
        re.IGNORECASE,
    )
    if not lines:
        return None
    passed, total = (int(number) for number in lines[-1] if number)
    return Counts(passed, total) if passed <= total else None


def _sum(lines: list[tuple[str, str]]) -> Counts | None:
    """The sum of lines of passed and failed tests."""
    passed, failed = (sum(int(line[place]) for line in lines) for place in (0, 1))
    return Counts(passed, passed + failed) if lines else None


def _pair(passed: list[str], failed: list[str]) -> Counts | None:
    """The last numbers of either kind."""
    if not passed and not failed:
        return None
    good, bad = (int(numbers[-1]) if numbers else 0 for numbers in (passed, failed))
    return Counts(good, good + bad)


def _json(text: str) -> Counts | None:
    """Counts in JSON: `{"passed": 7, "total": 10}`, `{"tests_passed": 7, "tests_failed": 3}`, and SWE-bench's `tests_status`."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return next((found for item in _objects(data) if (found := _counted(item)) is not None), None)


def _objects(data: Any) -> Iterator[Mapping[str, Any]]:
    """The objects in a document, those further out first."""
    waiting, seen = deque([data]), 0
    while waiting and seen < _MOST_OBJECTS:
        item, seen = waiting.popleft(), seen + 1
        if isinstance(item, dict):
            yield item
        waiting.extend(item.values() if isinstance(item, dict) else item if isinstance(item, list) else ())


def _counted(item: Mapping[str, Any]) -> Counts | None:
    if isinstance(item.get("tests_status"), dict):
        groups = [group for group in item["tests_status"].values() if isinstance(group, dict)]
        good, bad = (sum(len(group.get(word) or ()) for group in groups) for word in ("success", "failure"))
        return Counts(good, good + bad)
    found = {
        re.sub(r"^(?:num|n|tests?)_|_(?:tests?|count)$", "", name): value
        for name, value in item.items()
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0
    }
    passed = found.get("passed")
    if passed is None:
        return None
    total = found.get(
        "total", passed + found["failed"] + found.get("errors", 0) if "failed" in found else None
    )
    return Counts(passed, total) if total is not None and passed <= total else None


_READERS: tuple[Callable[[str], Counts | None], ...] = (
    _json, _junit_xml, _pytest, _unittest, _jest, _surefire, _cargo, _dotnet, _rspec, _mocha, _go, _tap, _sentence,
)  # fmt: skip
