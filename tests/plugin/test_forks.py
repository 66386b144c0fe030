"""Tests that fork: what comes back to pytest in the child is no second run."""

from __future__ import annotations

import pytest

from pytest_ultrapar.records import Grade
from pytest_ultrapar.store.journal import decode_record, scan_segment, segments

pytestmark = pytest.mark.slow

SUITE = """
import os
import sys


@pytest.mark.parametrize("prompt", ["a", "b", "c"])
def test_{code}(answer, prompt):
    pid = os.fork()
    if pid == 0:
        {child}
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == {code}
"""


@pytest.mark.parametrize("ends", ["sys.exit()", "return"])
def test_child_that_a_test_forks_ends_where_it_comes_back_to_pytest(project, ends):
    children = {0: ends, 1: "assert not 'sk-canary-child'", 3: "sys.exit(3)"}
    project.suite("".join(SUITE.format(child=children[code], code=code) for code in children))
    result = project.run_apart()
    assert result.ret == 0, str(result.stdout)
    assert set(project.outcomes().values()) == {"solved"}
    assert "sk-canary-child" not in str(result.stdout) + str(result.stderr)
    journal = segments(project.directory / "journal")
    records = [record for path in journal for _, record in scan_segment(path, decode_record)]
    assert len([record for record in records if isinstance(record, Grade)]) == 9


def test_child_that_is_no_part_of_the_run_says_so_where_it_raised(project):
    project.suite(SUITE.format(child="assert not 'sk-canary-child'", code=1))
    result = project.run_apart("-s")
    said = str(result.stdout) + str(result.stderr)
    assert said.count("raised AssertionError and ended") == 3
    assert "sk-canary-child" not in said


def test_child_forked_by_a_fixture_and_in_a_worker_ends_too(project):
    project.suite(
        "import os, sys\n"
        "@pytest.fixture\n"
        "def forked():\n"
        "    if (pid := os.fork()) == 0:\n"
        "        sys.exit(3)\n"
        "    yield os.waitpid(pid, 0)[1]\n"
        "    if (pid := os.fork()) == 0:\n"
        "        sys.exit(3)\n"
        "    os.waitpid(pid, 0)\n"
        "@pytest.mark.parametrize('prompt', ['a', 'b', 'c'])\n"
        "def test_a(answer, forked):\n"
        "    assert os.waitstatus_to_exitcode(forked) == 3\n"
    )
    result = project.run_apart("-n1")
    assert result.ret == 0, str(result.stdout)
    assert set(project.outcomes().values()) == {"solved"}
