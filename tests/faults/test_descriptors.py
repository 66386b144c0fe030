"""Few file descriptors: row 17 of the catalogue."""

from __future__ import annotations

import pytest

from tests.faults.byte_faults import after
from tests.faults.played import SUITE
from tests.light import LIGHT
from tests.plugin.conftest import CANARY

pytestmark = pytest.mark.slow

FEW = """
import resource

# Set before any process starts: workers inherit it.
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
"""


LIMITED = """
import resource

resource.setrlimit(resource.RLIMIT_NOFILE, {limits})
"""


def limited(project, workers, limits):
    project.write_pool()
    project.suite(SUITE.format(prompts=["say a", "say b"]))
    project.pytester.path.joinpath("conftest.py").write_text(LIMITED.format(limits=limits))
    result = project.pytester.runpytest_subprocess(
        *LIGHT, "--ultrapar-pool=pool.toml", workers, timeout=90
    )
    return result, result.stdout.str() + result.stderr.str()


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_too_few_descriptors_are_refused_before_anything_starts(project, workers):
    result, output = limited(project, workers, (24, 24))
    assert result.ret == 4, output
    assert "the limit on open files (ulimit -n) is 24; " in output
    assert "Traceback" not in output
    assert len(project.server.log) == 0
    assert not (project.pytester.path / ".ultrapar").exists()


def test_soft_limit_on_descriptors_is_raised_if_the_hard_limit_allows_it(project):
    result, output = limited(project, "-n0", (24, 1024))
    assert result.ret == 0, output


def test_few_descriptors_slow_a_run_down_and_cost_no_case(project):
    prompts = [f"work {n}" for n in range(120)]
    project.server.faults["work"] = after(0.2)
    project.write_pool(seats=200)
    project.suite(SUITE.format(prompts=prompts))
    project.pytester.path.joinpath("conftest.py").write_text(FEW)
    result = project.pytester.runpytest_subprocess(
        *LIGHT, "--ultrapar-pool=pool.toml", "-n2", timeout=60
    )
    output = result.stdout.str() + result.stderr.str()
    assert result.ret == 0, output
    assert set(project.outcomes().values()) == {"solved"}
    assert len(project.rows()) == 120
    assert "of the 200 seats can be used at once: the limit on open files allows no more" in output
    # One connection too many would have failed a request: every request got an answer.
    assert len(project.server.log) == 120
    assert "Traceback" not in output
    assert CANARY not in output
