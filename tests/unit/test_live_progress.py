"""Progress where there is no terminal."""

from __future__ import annotations

import io
import threading
from types import SimpleNamespace

import pytest
from _pytest._io import TerminalWriter

from pytest_ultrapar.coordinator import live


class Output(io.StringIO):
    """Says when two lines of progress have been written."""

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
    monkeypatch.setattr(live, "next_line_s", lambda _elapsed_s: 0.001)
    output = Output()
    writer = TerminalWriter(output)
    reporter = SimpleNamespace(
        config=SimpleNamespace(get_terminal_writer=lambda: writer),
        hasmarkup=False,
        isatty=False,
        # What pytest does with xdist, where letters stand behind no file.
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
