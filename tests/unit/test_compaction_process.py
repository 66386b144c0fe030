"""The process that compacts a run, as the coordinator starts and ends it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from pytest_ultrapar.analysis.beside import Beside
from pytest_ultrapar.analysis.process import CompactionProcess
from pytest_ultrapar.errors import ResultsError
from tests.unit.finished_run import run_of_seven


@pytest.fixture
def run(tmp_path):
    return run_of_seven(tmp_path / "out")


def test_compactor_returns_the_summary_and_keeps_pyarrow_out(run):
    code = (
        "import sys; from pathlib import Path;"
        "from pytest_ultrapar.analysis.process import CompactionProcess;"
        "s = CompactionProcess.start(Path(sys.argv[1])).compact();"
        "print(s.statistics.n_final, s.run_id, 'pyarrow' in sys.modules,"
        " 'pytest_benchmark' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, run.path], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["6", run.run_id, "False", "False"]


def test_compactor_shares_the_cpu_of_our_session_but_not_our_ctrl_c(run):
    """A session of its own would get half a core whatever its priority (Linux's autogroups)."""
    compaction = CompactionProcess.start(run.path)
    try:
        pid = compaction.pid
        assert os.getsid(pid) == os.getsid(0)
        assert os.getpgid(pid) == pid
    finally:
        compaction.stop()


def test_compactor_says_how_far_it_is(run):
    said = []
    compaction = CompactionProcess.start(run.path)
    assert compaction.compact(lambda *how_far: said.append(how_far)).run_id == run.run_id
    assert said[0] == (0, 7)
    assert all(0 <= done <= total == 7 for done, total in said)


def test_compactor_says_why_it_failed_and_how_to_try_again(tmp_path):
    with pytest.raises(ResultsError, match=r"(?s)cannot read .*manifest\.json.*try again with"):
        CompactionProcess.start(tmp_path).compact()


def test_compactor_that_is_stopped_or_left_leaves_the_run_alone(run):
    before = sorted(run.path.iterdir())
    stopped = CompactionProcess.start(run.path)
    stopped.stop()
    stopped.stop()
    waiting = subprocess.Popen(
        [sys.executable, "-m", "pytest_ultrapar.analysis.beside", run.path],
        stdin=subprocess.PIPE,
    )
    waiting.communicate(b"")
    assert waiting.returncode == 0
    assert sorted(run.path.iterdir()) == before


def test_compactor_whose_process_was_killed_starts_another(run):
    compaction = CompactionProcess.start(run.path)
    compaction.stop()
    assert compaction.compact().run_id == run.run_id


def test_compaction_by_hand_says_in_one_sentence_what_was_written(tmp_path):
    run = run_of_seven(tmp_path / "run")
    child = subprocess.run(
        [sys.executable, "-m", "pytest_ultrapar.analysis.compact", run.path],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    (line,) = child.stdout.splitlines()
    assert line.startswith("wrote results.parquet, ")
    assert line.endswith(f" of run {run.run_id}: 4 of 7 cases graded")


def test_reading_ahead_that_fails_is_logged(tmp_path, caplog):
    beside = Beside(tmp_path / "gone")
    beside.follow.set()
    beside.start()
    beside.join(300)
    assert beside.end() is None
    (record,) = caplog.records
    assert record.message.startswith("the journal was not read ahead: ResultsError(")
    assert str(tmp_path / "gone") in record.message


def test_reading_ahead_is_of_ordinary_priority_once_somebody_waits(run, monkeypatch):
    given, is_low = [], threading.Event()

    def give(*how):
        given.append(how)
        is_low.set()

    monkeypatch.setattr(os, "setpriority", give)
    beside = Beside(run.path)
    beside.follow.set()
    beside.start()
    assert is_low.wait(60)
    beside.end()
    own = os.getpriority(os.PRIO_PROCESS, 0)
    thread = beside.native_id
    assert given == [(os.PRIO_PROCESS, thread, 19), (os.PRIO_PROCESS, thread, own)]
