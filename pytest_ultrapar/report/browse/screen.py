"""Write to stdout, which may lead to a terminal or to another program."""

from __future__ import annotations

import shutil
import sys

from pytest_ultrapar.report.text import visible

_PLAIN_WIDTH = 100_000
"""The width of lines if stdout is not a terminal. It is so large that no line is shortened."""


def table_width() -> int:
    """The width of a table on stdout, in characters."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else _PLAIN_WIDTH


def write(text: str) -> None:
    """Write text to stdout, and escape characters that its encoding cannot represent."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))


def write_line(line: str) -> None:
    """Escape a line's control characters, write the line with `write`, and flush stdout."""
    write(f"{visible(line)}\n")
    sys.stdout.flush()


def write_paged(text: str) -> None:
    """Write text with `write`, or show it in `$PAGER` if it does not fit on the terminal."""
    on_terminal = sys.stdout.isatty() and sys.stdin is not None and sys.stdin.isatty()
    if on_terminal and text.count("\n") >= shutil.get_terminal_size().lines:
        import pydoc  # noqa: PLC0415 - 20 ms, for terminals only

        pydoc.pager(text)
    else:
        write(text)
