"""Huge, compressed or deeply nested answers use bounded memory: row 6 of the catalogue."""

from __future__ import annotations

import pytest

from tests.faults.played import Played, play

pytestmark = pytest.mark.slow

MOST_MIB = 64.0
PEAK = """
from pathlib import Path

def pytest_unconfigure(config):
    status = Path("/proc/self/status").read_text()
    Path("peak.txt").write_text(status.partition("VmHWM:")[2].split()[0])
"""
PEAK_PROJECT = "conftest.py"


def peak_mib(project, prompt: str) -> tuple[Played, float]:
    """Run one case in a new process; return the process's peak memory."""
    project.pytester.path.joinpath(PEAK_PROJECT).write_text(PEAK)
    played = play(project, [prompt], "-p", "no:xdist", "--ultrapar-max-attempts=1", timeout_s=15)
    return played, int(project.pytester.path.joinpath("peak.txt").read_text()) / 1024


@pytest.fixture(scope="module")
def usual_mib() -> list[float]:
    """The memory of a run with a small answer, once it was measured."""
    return []


@pytest.mark.parametrize(
    ("fault", "outcome", "kind"),
    [
        ("large", "solved", None),
        ("too_large", "infra", "malformed"),
        ("double_bomb", "infra", "malformed"),
    ],
)
def test_answer_of_any_size_uses_bounded_memory(project, usual_mib, fault, outcome, kind):
    if not usual_mib:
        usual_mib.append(peak_mib(project, "say fine")[1])
        project.server.reset()
    played, peak = peak_mib(project, f"{fault} it")
    assert played.outcome(f"{fault} it") == (outcome, kind)
    assert len(project.server.log) == 1
    assert peak - usual_mib[0] < MOST_MIB
