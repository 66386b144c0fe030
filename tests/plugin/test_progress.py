"""The progress lines of a run without a terminal."""

from __future__ import annotations

import re

import pytest

from pytest_ultrapar.coordinator.live import LiveProgress
from pytest_ultrapar.report import progress
from tests.plugin.conftest import CANARY

SUITE = """
import time
time.sleep(0.3)

@pytest.mark.parametrize("prompt", [f"slow 0.2 yes {n}" for n in range(16)])
def test_it(answer, grade):
    time.sleep(0.05)
    grade("solved")

@pytest.mark.skip
@pytest.mark.parametrize("prompt", ["say no"])
def test_skipped(answer):
    assert False
"""


@pytest.fixture(autouse=True)
def lines_without_a_pause(monkeypatch):
    monkeypatch.setattr(progress, "LINE_S", 0.01)


def test_every_step_of_a_run_has_a_line(project):
    project.suite(SUITE.partition("@pytest.mark.skip")[0])
    said = project.run_here().stdout.str()
    steps = re.findall(r"(collecting|running|grading|writing tables):", said)
    assert list(dict.fromkeys(steps)) == ["collecting", "running", "grading", "writing tables"]
    graded = [int(n) for n in re.findall(r"(?:running|grading): (\d+)/16 graded", said)]
    assert graded == sorted(graded)
    assert re.search(r"running: .* ETA [0-9.]+ s, slowest: p/key0 \(workers\)", said), said
    assert re.search(r"grading: .* ETA [0-9.]+ s", said), said
    assert "writing tables: 0/16 cases" in said
    assert CANARY not in said


@pytest.mark.slow
def test_collection_shows_how_long_the_latest_one_took(project):
    project.suite(SUITE)
    assert "the latest run collected" not in project.run_here().stdout.str()
    said = project.run_here().stdout.str()
    assert re.search(
        r"collecting: .* so far, .*the latest run collected its 17 cases in [0-9.]+ s", said
    )


def test_run_without_cases_shows_no_progress_of_its_collection(project):
    project.pytester.path.joinpath("test_plain.py").write_text(
        "import time\ndef test_plain(): time.sleep(0.3)\n"
    )
    said = project.run_here().stdout.str()
    assert not re.search(r"\brunning: \d", said)
    assert not re.search(r"test_plain.py[^=]*collecting:", said)


@pytest.mark.slow
def test_progress_of_a_resumed_run_counts_the_remaining_cases(project, monkeypatch):
    given = []
    asking = LiveProgress.asking

    def spy(self, to_ask, planned, status, **options):
        given.append((dict(to_ask.cases), to_ask.n_recovered, sum(planned.values())))
        asking(self, to_ask, planned, status, **options)

    monkeypatch.setattr(LiveProgress, "asking", spy)
    project.suite(SUITE + "\ndef test_stops(): assert False\n")
    project.run_here("-x", "--ultrapar-out=first")
    project.run_here("--ultrapar-resume=first")
    (whole, none, planned), (rest, recovered, again) = given
    assert (whole, none, planned, again) == ({"m": 16}, 0, 17, 17)
    assert recovered >= 1
    assert sum(rest.values()) + recovered == 16
