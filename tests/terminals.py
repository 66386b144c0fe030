"""A program in a pseudo-terminal, and the screen that a terminal emulator shows."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from typing import TYPE_CHECKING, Self

import pyte

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

_UNSET = ("CI", "NO_COLOR", "FORCE_COLOR", "PY_COLORS", "COLUMNS", "LINES", "BUILD_NUMBER")


class Terminal:
    """Run a command in a terminal; a context manager that ends it.

    Attributes:
        raw: All bytes written to the terminal.
        process: The command's process.
    """

    def __init__(
        self,
        command: Sequence[str],
        cwd: Path,
        *,
        columns: int = 80,
        lines: int = 30,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self._ours, its = pty.openpty()
        self.raw = b""
        self._resize(its, columns, lines)
        known = {name: text for name, text in os.environ.items() if name not in _UNSET}
        self.process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**known, "TERM": "xterm-256color", **(environ or {})},
            stdin=its,
            stdout=its,
            stderr=its,
            start_new_session=True,
            # Ctrl-C reaches the processes of a controlling terminal.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - no threads
        )
        os.close(its)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._ours)

    @property
    def lines(self) -> list[str]:
        """The lines on the screen, without empty lines and blanks at their ends."""
        shown = [line.rstrip() for line in self._screen.display]
        while shown and not shown[-1]:
            shown.pop()
        return shown

    def until(self, wanted: Callable[[list[str]], bool], most_s: float = 60.0) -> list[str]:
        """Wait for a screen that meets the condition; return it."""
        deadline_s = time.monotonic() + most_s
        while not wanted(self.lines):
            assert time.monotonic() < deadline_s, "\n".join(self.lines)
            assert self._read(), "\n".join(self.lines)
        return self.lines

    def end(self) -> list[str]:
        """Wait for the command's end; return the last screen."""
        while self._read():
            pass
        self.process.wait()
        return self.lines

    def resize(self, columns: int, lines: int) -> None:
        """Resize the terminal, as when a user drags a corner of the window.

        Terminals keep the cursor at its place in the text; pyte would keep its place on the screen.
        """
        screen = self._screen
        x, y = screen.cursor.x, screen.cursor.y
        n_gone = max(0, y + 1 - lines)
        screen.cursor.y = 0
        screen.delete_lines(n_gone)
        screen.lines, screen.columns = lines, columns
        for row in [*screen.buffer]:
            if row >= lines:
                del screen.buffer[row]
                continue
            for column in [*screen.buffer[row]]:
                if column >= columns:
                    del screen.buffer[row][column]
        screen.set_margins()
        screen.cursor.x, screen.cursor.y = min(x, columns - 1), y - n_gone
        self._resize(self._ours, columns, lines)

    def press(self, keys: bytes) -> None:
        """Type something."""
        os.write(self._ours, keys)

    @staticmethod
    def _resize(fd: int, columns: int, lines: int) -> None:
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def _read(self) -> bool:
        if not select.select([self._ours], [], [], 0.5)[0]:
            return True
        try:
            data = os.read(self._ours, 65_536)
        except OSError:  # no process has the other end open any more
            return False
        self.raw += data
        self._stream.feed(data)
        return True
