"""The terminal that pytest writes to, shared with a thread that shows progress.

The thread's lines appear below pytest's output, and are removed before pytest writes again.
The cursor always returns to the place where pytest left it. The code does not need to know that
place, so it also works after the user has resized the terminal.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from typing import TYPE_CHECKING, Any

from pytest_ultrapar.report.text import n_cells
from pytest_ultrapar.session import internals
from pytest_ultrapar.system.disk import Disk

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from _pytest._io import TerminalWriter

_CONTROLS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
"""Control sequences, which take up no columns. Source: ECMA-48, 5.4."""
_ERASE_BELOW = "\x1b[J"


class SharedTerminal:
    """Replaces the file that pytest's terminal writer uses, until `close`.

    By default (`--capture=fd`) pytest captures the output of tests: it replaces stdout with another
    file. That would also capture what a thread writes to stdout. Therefore this class writes to the
    original file.
    """

    def __init__(self, writer: TerminalWriter) -> None:
        """Replace the writer's file. Call this while pytest does not capture output.

        Args:
            writer: The terminal writer of pytest.
        """
        self._writer = writer
        self._file = internals.file_of(writer)
        self._lock = threading.RLock()
        self._is_drawn = False
        self._n_lent = 0
        self._column = writer.width_of_current_line
        self._fd: int | None = None
        # A file in memory has no file descriptor.
        with contextlib.suppress(OSError, AttributeError, ValueError):
            self._file.flush()
            self._fd = os.dup(self._file.fileno())
        internals.set_file(writer, self)

    def write(self, text: str) -> int:
        """Write text for pytest, on the main thread."""
        with self._lock:
            self.clear()
            n: int = self._file.write(text)
            self._file.flush()
            *lines, last = re.split(r"[\r\n]", _CONTROLS.sub("", text))
            self._column = n_cells(last) + (0 if lines else self._column)
        return n

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any attribute of the file
        return getattr(self._file, name)

    @property
    def size(self) -> os.terminal_size:
        """The terminal's current number of columns and lines."""
        size = os.terminal_size((0, 0))
        with contextlib.suppress(OSError):
            if self._fd is not None:
                size = os.get_terminal_size(self._fd)
        # Terminals without a set size report 0.
        return os.terminal_size((size.columns or self._writer.fullwidth, size.lines or 24))

    def draw(self, lines: Sequence[str]) -> None:
        """Show lines below pytest's output, instead of the lines shown before.

        Args:
            lines: Fewer lines than the terminal has, each narrower than the terminal.
        """
        with self._lock:
            column = self._column % max(1, self.size.columns)
            if not lines or self._n_lent or (self._column and not column):
                # After a full line, the cursor is neither on that line nor on the next.
                self.clear()
                return
            self._below("\r\n".join(lines), len(lines))
            self._is_drawn = True

    def clear(self) -> None:
        """Remove the lines that are shown."""
        with self._lock:
            if self._is_drawn:
                self._is_drawn = False
                self._below("", 1)

    def _below(self, text: str, n_lines: int) -> None:
        """Replace everything below the cursor with these lines, and move the cursor back."""
        column = self._column % max(1, self.size.columns)
        n_up = n_lines - (0 if column else 1)
        back = (f"\x1b[{n_up}A" if n_up else "") + "\r"
        back += f"\x1b[{column}C" if column else ""
        begin = "\r\n" if column else ""
        self._out(begin + _ERASE_BELOW + text + back)

    @contextlib.contextmanager
    def lent(self) -> Generator[None]:
        """Show no lines while other programs write to the terminal; then start a new line."""
        with self._lock:
            self.clear()
            self._n_lent += 1
        try:
            yield
        finally:
            with self._lock:
                self._n_lent -= 1
                # The cursor's column is unknown. Write as many spaces as the terminal has columns.
                # They fill the current line if it is empty; otherwise they continue on the next
                # line.
                self._out(" " * self.size.columns + "\r" + _ERASE_BELOW)
                self._column = 0
                internals.mark_line_ended(self._writer)

    def line(self, text: str) -> None:
        """Write a permanent line. If pytest has an unfinished line, write below that line."""
        with self._lock:
            begun = "\n" if self._column else ""
            self._out(f"{begun}{text}\n")
            self._column = 0
            internals.mark_line_ended(self._writer)

    def close(self) -> None:
        """Give the writer its file back. Idempotent."""
        with self._lock:
            self.clear()
            if internals.file_of(self._writer) is self:
                internals.set_file(self._writer, self._file)
            if self._fd is not None:
                os.close(self._fd)
                self._fd = None

    def _out(self, text: str) -> None:
        if self._fd is None:
            self._file.write(text)
            self._file.flush()
            return
        data = text.encode(self._file.encoding or "utf-8", "backslashreplace")
        # A closed terminal shows nothing.
        with contextlib.suppress(OSError):
            while data:
                data = data[Disk.write(self._fd, data) :]
