"""Where pytest writes, shared with a thread that shows how far a run is.

Lines of that thread stand below what pytest has written, and are gone before it writes on. The
cursor always stays where pytest left it, so nobody has to know where on the screen that is, and a
terminal that was resized keeps it there.
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
"""Control sequences, which take no column. Source: ECMA-48, 5.4."""
_ERASE_BELOW = "\x1b[J"


class SharedTerminal:
    """Takes the place of the file that pytest's writer writes to, until `close`.

    pytest captures what a test prints by putting another file in the place of stdout, its default
    (`--capture=fd`), where a thread that wrote to stdout would be captured as well. So ours writes
    to the file that stood there before.
    """

    def __init__(self, writer: TerminalWriter) -> None:
        """Take over.

        To be called while nothing is captured.

        Args:
            writer: Pytest's.
        """
        self._writer = writer
        self._file = internals.file_of(writer)
        self._lock = threading.RLock()
        self._is_drawn = False
        self._n_lent = 0
        self._column = writer.width_of_current_line
        self._fd: int | None = None
        # A file in memory has no descriptor.
        with contextlib.suppress(OSError, AttributeError, ValueError):
            self._file.flush()
            self._fd = os.dup(self._file.fileno())
        internals.set_file(writer, self)

    def write(self, text: str) -> int:
        """What pytest writes. Main thread."""
        with self._lock:
            self.clear()
            n: int = self._file.write(text)
            self._file.flush()
            *lines, last = re.split(r"[\r\n]", _CONTROLS.sub("", text))
            self._column = n_cells(last) + (0 if lines else self._column)
        return n

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the file has
        return getattr(self._file, name)

    @property
    def size(self) -> os.terminal_size:
        """Columns and lines of the terminal now."""
        size = os.terminal_size((0, 0))
        with contextlib.suppress(OSError):
            if self._fd is not None:
                size = os.get_terminal_size(self._fd)
        # Some that nobody sized say 0.
        return os.terminal_size((size.columns or self._writer.fullwidth, size.lines or 24))

    def draw(self, lines: Sequence[str]) -> None:
        """Show lines below what pytest has written, in the place of those shown before.

        Args:
            lines: Each narrower than the terminal, and fewer than it has.
        """
        with self._lock:
            column = self._column % max(1, self.size.columns)
            if not lines or self._n_lent or (self._column and not column):
                # On a line that is full the cursor is neither there nor on the next.
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
        """Write lines in the place of all that stands below the cursor, and return there."""
        column = self._column % max(1, self.size.columns)
        n_up = n_lines - (0 if column else 1)
        back = (f"\x1b[{n_up}A" if n_up else "") + "\r"
        back += f"\x1b[{column}C" if column else ""
        begin = "\r\n" if column else ""
        self._out(begin + _ERASE_BELOW + text + back)

    @contextlib.contextmanager
    def lent(self) -> Generator[None]:
        """While others write to the terminal nothing of ours is there; then a line begins."""
        with self._lock:
            self.clear()
            self._n_lent += 1
        try:
            yield
        finally:
            with self._lock:
                self._n_lent -= 1
                # Nobody knows where they left the cursor. As many blanks as a line has end on the
                # line where they began if that was empty, and else on the next.
                self._out(" " * self.size.columns + "\r" + _ERASE_BELOW)
                self._column = 0
                internals.begin_line(self._writer)

    def line(self, text: str) -> None:
        """Write a line that stays, below one that pytest may have begun."""
        with self._lock:
            begun = "\n" if self._column else ""
            self._out(f"{begun}{text}\n")
            self._column = 0
            internals.begin_line(self._writer)

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
        # A terminal that is gone shows nothing.
        with contextlib.suppress(OSError):
            while data:
                data = data[Disk.write(self._fd, data) :]
