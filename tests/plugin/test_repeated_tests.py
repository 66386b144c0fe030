"""Plugins that run a test again: requests are sent once, and the last grade counts."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from tests.plugin.conftest import CANARY

RERUNS = ("-p", "pytest_rerunfailures")
REPEAT = ("-p", "pytest_repeat")

WAVERING = """
from pathlib import Path

def nth_time(name):
    path = Path(__file__).parent / name
    n = int(path.read_text()) + 1 if path.exists() else 1
    path.write_text(str(n))
    return n

@pytest.mark.parametrize("prompt", ["say asserted"])
def test_asserted(answer):
    print("<test prints>")
    assert nth_time("asserted") == 2

@pytest.mark.parametrize("prompt", ["say graded"])
def test_graded(answer, grade):
    n = nth_time("graded")
    grade("partial" if n == 1 else "solved", n=n)
    assert n == 2

@pytest.mark.parametrize("prompt", ["say broken"])
def test_broken(answer):
    assert nth_time("broken") > 1
    raise LookupError

@pytest.mark.parametrize("prompt", ["say wrong"])
def test_wrong(answer):
    assert nth_time("wrong") == 0

@pytest.mark.parametrize("prompt", ["say right"])
def test_right(answer): pass
"""
WAVERED = {
    "test_asserted": ("solved", "passed"),
    "test_graded": ("solved", "passed"),
    "test_broken": ("error", "failed"),
    "test_wrong": ("unsolved", "failed"),
    "test_right": ("solved", "passed"),
}
HOOKS = """
import os
from pathlib import Path

def pytest_ultrapar_attempt(record):
    with Path(__file__).with_name("attempts").open("a") as file:
        print(record.turn, file=file)
"""
# As pytest-retry does: set-up and call again inside the hook that makes a report, after the report
# of the first call was logged with an outcome of its own.
RETRIES = """
import pytest

@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if call.when != "call" or not report.failed:
        return
    hook = item.ihook
    pytest.CallInfo.from_call(
        lambda: hook.pytest_runtest_teardown(item=item, nextitem=None), when="teardown"
    )
    report.outcome = "retried"
    hook.pytest_runtest_logreport(report=report)
    item._initrequest()
    pytest.CallInfo.from_call(lambda: hook.pytest_runtest_setup(item=item), when="setup")
    again = pytest.CallInfo.from_call(lambda: hook.pytest_runtest_call(item=item), when="call")
    second = pytest.TestReport.from_item_and_call(item, again)
    report.outcome, report.longrepr = second.outcome, second.longrepr

def pytest_report_teststatus(report):
    if report.outcome == "retried":
        return "retried", "R", ("RETRY", {"yellow": True})

def pytest_terminal_summary(terminalreporter):
    for report in terminalreporter.stats.get("retried", ()):
        terminalreporter.write_line(report.longreprtext)
"""


def by_test(project):
    return {row["nodeid"].split("::")[1].split("[")[0]: row for row in project.rows()}


def check_wavered(project, result):
    assert result.ret == 1
    assert Counter(project.server.prompts) == Counter(
        f"say {word}" for word in ("asserted", "graded", "broken", "wrong", "right")
    )
    rows = by_test(project)
    assert {name: (row["outcome"], row["test"]) for name, row in rows.items()} == WAVERED
    assert len(project.rows()) == len(WAVERED)
    assert rows["test_graded"]["score.n"] == 2
    assert "LookupError" in rows["test_broken"]["error"]
    assert "has no episode" not in result.stdout.str()


def test_reruns_get_the_stored_episode_and_the_last_grade_counts(project, workers):
    project.pytester.makeconftest(HOOKS)
    project.suite(WAVERING)
    result = project.run(*RERUNS, "--reruns=1", workers)
    check_wavered(project, result)
    result.stdout.fnmatch_lines(["*4 rerun*"])
    # Each request is reported once.
    told = (project.pytester.path / "attempts").read_text().splitlines()
    assert len(told) == len(WAVERED)


def test_retries_inside_a_report_get_the_stored_episode_and_the_last_grade_counts(project, workers):
    project.pytester.makeconftest(RETRIES)
    project.suite(WAVERING)
    result = project.run(workers)
    check_wavered(project, result)
    result.stdout.fnmatch_lines(["*4 retried*"])


@pytest.mark.parametrize(
    "options", [(*RERUNS, "--reruns=1", "-n0"), pytest.param(("-n2",), marks=pytest.mark.slow)]
)
def test_reports_of_earlier_tries_contain_no_secret(project, monkeypatch, options):
    monkeypatch.setenv("TEST_KEY_0", CANARY)
    project.pytester.makeconftest(RETRIES if options == ("-n2",) else "")
    project.suite(
        """
import os
@pytest.mark.parametrize("prompt", ["say a"])
def test_it(answer):
    assert answer == os.environ["TEST_KEY_0"]
"""
    )
    result = project.run(*options, "-rA", "--junitxml=junit.xml")
    said = result.stdout.str() + (project.pytester.path / "junit.xml").read_text()
    assert result.ret == 1
    assert "***" in said
    assert CANARY not in said


REPEATED = """
@prefetch
async def told(llm, case, prompt) -> list:
    await llm.chat([{"role": "user", "content": prompt}])
    return [case.repeat, case.seed]

@pytest.mark.parametrize("prompt", ["say a", "say b"])
def test_it(told, grade):
    grade("solved", repeat=told[0])

@pytest.mark.repeat(2)
@pytest.mark.parametrize("prompt", ["say c"])
def test_marked(told, grade):
    grade("solved", repeat=told[0])
"""


def test_count_of_pytest_repeat_is_the_number_of_repetitions(project):
    project.suite(REPEATED)
    assert project.run(*REPEAT, "--count=3", "--ultrapar-repeats=2", "-n0").ret == 0
    rows = project.rows()
    assert [name for name in rows[0] if name.startswith("param.")] == ["param.prompt"]
    found = Counter((row["param.prompt"], row["repeat"]) for row in rows)
    cells = {"say a": 6, "say b": 6, "say c": 4}
    assert found == Counter((prompt, n) for prompt, most in cells.items() for n in range(most))
    assert len({row["case_id"] for row in rows}) == len({row["seed"] for row in rows}) == 16
    # The table has the values that the episode got.
    assert all(row["score.repeat"] == row["repeat"] for row in rows)
    planned = msgspec.json.decode((project.directory / "cases.json").read_bytes())
    assert {tuple(case["params"]) for case in planned} == {("prompt",)}
