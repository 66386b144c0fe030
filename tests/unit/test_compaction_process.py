"""The process that compacts a run, as the coordinator starts and ends it."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import threading
from importlib import import_module

import psutil
import pytest

from pytest_ultrapar.analysis.compaction_child import FOLLOW, CpuYield, Reader, work_ahead
from pytest_ultrapar.analysis.compaction_process import CompactionProcess
from pytest_ultrapar.analysis.journal_scan import JournalScan
from pytest_ultrapar.errors import ResultsError


@pytest.mark.slow
@pytest.mark.cpu_s(2)
def test_compactor_returns_the_summary_and_keeps_pyarrow_out(run):
    code = (
        "import sys; from pathlib import Path;"
        "from pytest_ultrapar.analysis.compaction_process import CompactionProcess;"
        "s = CompactionProcess.start(Path(sys.argv[1])).compact();"
        "print(s.statistics.n_final, s.run_id, 'pyarrow' in sys.modules,"
        " 'pytest_benchmark' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, run.path], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["6", run.run_id, "False", "False"]


def test_compactor_shares_pytests_session_but_not_its_ctrl_c(run):
    """Linux's autogroups give a separate session half a core, regardless of its priority."""
    compaction = CompactionProcess.start(run.path)
    try:
        pid = compaction.pid
        assert os.getsid(pid) == os.getsid(0)
        assert os.getpgid(pid) == pid
    finally:
        compaction.stop()


@pytest.mark.cpu_s(2)
def test_compactor_that_is_stopped_or_abandoned_changes_no_file(run):
    before = sorted(run.path.iterdir())
    stopped = CompactionProcess.start(run.path)
    stopped.stop()
    stopped.stop()
    waiting = subprocess.Popen(
        [sys.executable, "-m", "pytest_ultrapar.analysis.compaction_child", run.path],
        stdin=subprocess.PIPE,
    )
    waiting.communicate(b"")
    assert waiting.returncode == 0
    assert sorted(run.path.iterdir()) == before


@pytest.fixture
def held_up(run):
    """A lock that keeps compactions of the run from finishing until it is closed."""
    with (run.path / "compact.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock


def later(tmp_path, monkeypatch, body):
    """A module whose function `at_end` has this body."""
    (tmp_path / "later.py").write_text(f"import os, signal, time\ndef at_end(run): {body}\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("later", None)
    return ["later"]


@pytest.mark.slow
def test_steps_after_the_tables_do_not_delay_the_summary(run, tmp_path, monkeypatch):
    go_on = tmp_path / "go-on"
    then = later(
        tmp_path,
        monkeypatch,
        f"\n while not os.path.exists({str(go_on)!r}): time.sleep(0.01)\n"
        " (run / 'later').write_text('done')",
    )
    compaction = CompactionProcess.start(run.path, afterwards=then)
    assert compaction.compact().run_id == run.run_id
    assert not (run.path / "later").exists()
    go_on.touch()
    assert compaction.rest() is None
    assert (run.path / "later").read_text() == "done"
    assert not psutil.pid_exists(compaction.pid)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("raise OSError('no room')", "OSError: no room"),
        ("pass\nraise ImportError('no such library')", "ImportError: no such library"),
        (
            "(run / f'.page.{os.getpid()}.tmp').touch(); os.kill(os.getpid(), signal.SIGKILL)",
            "process {pid} was killed by signal 9",
        ),
    ],
)
def test_failure_after_the_tables_is_reported(run, tmp_path, monkeypatch, body, why):
    compaction = CompactionProcess.start(run.path, afterwards=later(tmp_path, monkeypatch, body))
    assert compaction.compact().run_id == run.run_id
    assert compaction.rest() == why.format(pid=compaction.pid)
    assert not psutil.pid_exists(compaction.pid)
    assert list(run.path.glob(".*.tmp")) == []


@pytest.mark.slow
def test_second_process_makes_the_tables_if_the_first_is_killed(
    run, held_up, tmp_path, monkeypatch
):
    then = later(tmp_path, monkeypatch, "raise OSError('no room')")
    compaction = CompactionProcess.start(run.path, afterwards=then)
    killed, told = compaction.pid, []

    def end_it():
        os.kill(compaction.pid, signal.SIGKILL)
        held_up.close()

    assert compaction.compact(meanwhile=end_it, said=told.append).run_id == run.run_id
    assert told == [
        f"process {killed} was killed by signal 9 while writing the tables; it is being restarted"
    ]
    assert compaction.rest() == "OSError: no room"


class Machine:
    """A clock, a coordinator that sends lines at given seconds, and other processes."""

    def __init__(self, says=()):
        self.now_s, self.cpu_s = 0.0, 0.0
        self.heard = []
        self.says = list(says)

    def clock(self):
        return self.now_s, self.cpu_s

    def hear(self, within_s):
        self.heard.append(within_s)
        if self.says and self.says[0][0] <= self.now_s + within_s:
            at_s, line = self.says.pop(0)
            self.now_s = max(self.now_s, at_s)
            return line
        self.now_s += within_s
        return None

    def work(self, cpu_s, waited_s=0.0):
        self.cpu_s += cpu_s
        self.now_s += cpu_s + waited_s


def test_no_break_is_taken_while_no_other_process_wants_the_cpu():
    machine = Machine()
    breaks = CpuYield(machine.hear, machine.clock)
    for _ in range(1000):
        machine.work(0.001)
        assert not breaks.take()
    assert set(machine.heard) == {0.0}
    assert len(machine.heard) <= 500, "it does not check after each short step"


def test_other_processes_that_want_the_cpu_get_nearly_all_of_it():
    machine = Machine()
    breaks = CpuYield(machine.hear, machine.clock)
    while machine.now_s < 10:
        machine.work(0.002, waited_s=0.002)
        breaks.take()
    assert machine.cpu_s / machine.now_s < 1 / 10


def test_no_break_is_taken_while_the_coordinator_waits():
    machine = Machine([(0.05, FOLLOW), (0.1, b"go")])
    breaks = CpuYield(machine.hear, machine.clock)
    machine.work(0.01, waited_s=0.01)
    assert not breaks.take()
    assert (breaks.follows, machine.now_s) == (True, 0.05)
    machine.work(0.01, waited_s=0.01)
    assert breaks.take()
    assert machine.now_s == pytest.approx(0.1)
    n_heard = len(machine.heard)
    for _ in range(10):
        machine.work(0.01, waited_s=0.01)
        assert breaks.take()
    assert len(machine.heard) == n_heard


def test_break_is_taken_during_an_import(tmp_path, monkeypatch):
    (tmp_path / "needs_another.py").write_text("import needed_by_it\n")
    (tmp_path / "needed_by_it.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    machine = Machine()
    breaks = CpuYield(machine.hear, machine.clock)
    monkeypatch.setattr(sys, "meta_path", [breaks, *sys.meta_path])
    machine.work(0.01, waited_s=0.01)
    import_module("needs_another")
    assert machine.heard == [pytest.approx(0.1)]
    assert "needed_by_it" in sys.modules


def test_nothing_is_loaded_on_one_core_before_the_run_is_planned(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {3})
    monkeypatch.setattr(sys, "meta_path", before := [*sys.meta_path])
    machine = Machine([(0.35, b"")])
    with pytest.raises(SystemExit):
        work_ahead("nowhere", CpuYield(machine.hear, machine.clock))
    assert machine.heard == [0.1] * 4
    assert sys.meta_path == before


def test_work_ends_when_the_coordinator_ends():
    machine = Machine([(0.0, b"")])
    breaks = CpuYield(machine.hear, machine.clock)
    machine.work(0.01)
    with pytest.raises(SystemExit):
        breaks.take()


class ReadOnce(JournalScan):
    """Reports when it has read the journal, and at which priority."""

    def __init__(self, run_dir):
        super().__init__(run_dir)
        self.is_read = threading.Event()
        self.priority = None

    def read_new(self, stop=lambda: False):
        super().read_new(stop)
        self.priority = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
        self.is_read.set()


def test_journal_that_was_read_ahead_is_ready_at_the_end(run):
    reader = Reader(ReadOnce(run.path))
    own = os.getpriority(os.PRIO_PROCESS, 0)
    reader.start()
    assert reader._taken.is_read.wait(60)
    begun = reader.end()
    assert begun.tables.spent(begun.ended()).num_rows == 6
    begun.close()
    if sys.platform == "linux":
        assert (begun.priority, os.getpriority(os.PRIO_PROCESS, 0)) == (19, own)


def test_error_of_reading_ahead_is_raised_at_the_end(run):
    taken = ReadOnce(run.path)
    reader = Reader(taken)
    shutil.rmtree(run.path)
    reader.start()
    reader.join(60)
    with pytest.raises(ResultsError):
        reader.end()
    taken.close()
