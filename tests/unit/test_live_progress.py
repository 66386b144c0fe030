"""Progress without a terminal, and with a live view that fails."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import select
import struct
import termios
import threading
from types import SimpleNamespace

import pytest
from _pytest._io import TerminalWriter

from pytest_ultrapar.analysis.plan.eta import Eta, ToAsk
from pytest_ultrapar.broker.protocol import BrokerStatus
from pytest_ultrapar.coordinator import live


class Output(io.StringIO):
    """Sets an event when two lines of progress have been written."""

    def __init__(self) -> None:
        super().__init__()
        self.has_two = threading.Event()

    def write(self, text: str) -> int:
        n = super().write(text)
        if self.getvalue().count("4/9") > 1:
            self.has_two.set()
        return n


@pytest.mark.parametrize("begun", ["", "....", "tests/test_it.py ..u"])
def test_progress_begins_its_own_line_and_ends_it(monkeypatch, begun):
    monkeypatch.setattr(live.progress, "next_line_s", lambda _elapsed_s: 0.001)
    output = Output()
    writer = TerminalWriter(output)
    reporter = SimpleNamespace(
        config=SimpleNamespace(get_terminal_writer=lambda: writer),
        hasmarkup=False,
        isatty=False,
        # With xdist pytest adds no newline, because letters follow no file name.
        ensure_newline=lambda: None,
        write_line=writer.line,
    )
    progress = live.LiveProgress(reporter, counts_items=False)
    progress.writing_tables()
    progress.tables_written(4, 9)
    writer.write(begun)
    progress._thread.start()
    assert output.has_two.wait(60)
    progress.stop()
    writer.write(".")
    *lines, last = output.getvalue().split("\n")
    assert last == "."
    if begun:
        assert lines.pop(0) == begun
    assert lines
    assert all("4/9" in line for line in lines[:-1])


@pytest.fixture
def terminal():
    """A pseudo-terminal of 80 columns: its writer, and the descriptor to read from."""
    ours, its = pty.openpty()
    resize(its, 30, 80)
    with os.fdopen(its, "w") as file:
        yield TerminalWriter(file), ours
    os.close(ours)


def resize(fd, lines, columns):
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


def on_terminal(writer):
    """A reporter on a terminal that can show a live view."""
    plugins = SimpleNamespace(getplugin=lambda _: None, hasplugin=lambda _: False)
    config = SimpleNamespace(
        get_terminal_writer=lambda: writer,
        get_verbosity=lambda: 0,
        getoption=lambda _name, default: default,
        pluginmanager=plugins,
    )
    return SimpleNamespace(config=config, hasmarkup=True, isatty=True)


def status(n_ended):
    return BrokerStatus(1.0, 3, 3, 3, n_ended, [])


def to_ask(n_recovered=0):
    return ToAsk({"m": 20}, n_recovered, (), (), restricted=False)


def read_until(fd, words):
    seen = b""
    while words not in seen:
        assert select.select([fd], [], [], 20)[0], seen
        seen += os.read(fd, 1 << 16)
    return seen


@pytest.mark.parametrize("has_line", [True, False])
def test_view_that_fails_is_replaced_by_the_progress_line(terminal, monkeypatch, has_line):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(live, "_LOOK_S", 0.01)

    def fails(*_):
        raise AttributeError

    monkeypatch.setattr("pytest_ultrapar.report.live_screen.LiveScreen.lines", fails)
    if not has_line:
        monkeypatch.setattr(live.progress, "progress_line", fails)
    writer, fd = terminal
    progress = live.LiveProgress(on_terminal(writer), counts_items=False)
    progress.asking(to_ask(), {"m": 20}, lambda: status(4), is_simulated=False)
    progress.collecting(None)
    progress.asking(to_ask(), {"m": 20}, lambda: status(4), is_simulated=False)
    wanted = b"running: 0/20 graded" if has_line else b"is no longer shown (AttributeError)\r\n"
    read_until(fd, wanted)
    progress.stop()


def asking(monkeypatch, eta, took_s=0.0, **to_do):
    """The view of a run with 9 ended episodes, and the times of its estimates."""
    times_s = []

    def estimated(*_):
        times_s.append(now_s[0])
        return eta

    now_s = [1000.0]
    monkeypatch.setattr(live, "estimate", estimated)
    monkeypatch.setattr(live, "boot_s", lambda: now_s[0] + took_s)
    found = live._Asking(
        to_ask(**to_do), {"m": 20}, lambda: status(9), live.CaseCounter(), is_simulated=False
    )
    for _ in range(30):
        found.read_status(now_s[0])
        view = found.view(now_s[0])
        now_s[0] += 0.1
    return view, times_s


def test_no_eta_is_shown_while_cases_only_wait_to_retry(monkeypatch):
    monkeypatch.setattr(live, "estimate", lambda *_: Eta(0.29, "lab/key0 (workers)"))
    looks = [BrokerStatus(1.0, n, 3, 1, 19, [], trying=1) for n in (1, 0)]
    found = live._Asking(
        to_ask(), {"m": 20}, lambda: looks.pop(0), live.CaseCounter(), is_simulated=False
    )
    found.read_status(1000.0)
    assert "ETA 0.29 s, slowest: lab/key0 (workers)" in found.line(1000.0, 200)
    found.read_status(1000.1)
    line = found.line(1000.1, 200)
    assert "1 case is waiting for a retry after refusals or failures" in line
    assert "ETA" not in line


def test_interval_depends_only_on_episodes_of_this_session(monkeypatch):
    whole, _ = asking(monkeypatch, Eta(100.0, ""))
    resumed, _ = asking(monkeypatch, Eta(100.0, ""), n_recovered=5)
    assert resumed.eta_s[1] - 100 == pytest.approx((whole.eta_s[1] - 100) * 9**0.5 / 4**0.5)
