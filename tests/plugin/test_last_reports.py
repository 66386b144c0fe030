"""The last reports of a worker arrive with any kind of tests."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import cases

pytestmark = pytest.mark.slow

PLAIN = """
def test_one(): pass
def test_two(): pass
def test_three(): pass
def test_four(): pass
def test_five(): pass
def test_six(): pass
"""


@pytest.mark.parametrize("workers", ["-n1", "-n2"])
def test_run_with_a_pool_and_without_cases_ends(project, workers):
    project.suite(PLAIN)
    result = project.run(workers)
    result.assert_outcomes(passed=6)
    assert project.server.prompts == []


def test_run_of_plain_tests_selected_from_a_suite_with_cases_ends(project):
    project.suite(cases(3) + PLAIN)
    project.run("-n2", "-k", "six or five or four or one").assert_outcomes(passed=4)


UNSENT = """
@pytest.mark.parametrize("prompt", ["a", "b", "c"])
def test_it(answer, prompt, grade, record_property):
    if prompt == "LAST":
        record_property("x", object())
    grade("solved")
"""


@pytest.mark.parametrize("last", ["a", "c"])
def test_result_that_cannot_be_sent_fails_the_run(project, last):
    project.suite(UNSENT.replace("LAST", last))
    result = project.run("-n1")
    assert result.ret != 0
    assert "DumpError" in f"{result.stdout}{result.stderr}"


def test_plain_test_that_kills_its_worker_is_named_with_rerunfailures_installed(project):
    killer = "import os\ndef test_killer(): os._exit(1)\n"
    project.suite(cases(8) + PLAIN + killer)
    result = project.run("-n2", "-p", "pytest_rerunfailures")
    result.assert_outcomes(passed=6, failed=1)
    result.stdout.fnmatch_lines(["*test_suite.py::test_killer*"])
