"""Output to stdout: a terminal with a width, or another program."""

from __future__ import annotations

import shutil
import sys

from pytest_ultrapar.report.text import visible

_PLAIN_WIDTH = 100_000
"""Lines for other programs are not shortened."""


def table_width() -> int:
    """Characters for a line of a table on stdout."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else _PLAIN_WIDTH


def write(text: str) -> None:
    """Write text to stdout; escape characters that its encoding lacks."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))


def write_line(line: str) -> None:
    """`write` a line and flush; escape control characters."""
    write(f"{visible(line)}\n")
    sys.stdout.flush()


def write_paged(text: str) -> None:
    """`write`, on a terminal through `$PAGER` if the text does not fit."""
    on_terminal = sys.stdout.isatty() and sys.stdin is not None and sys.stdin.isatty()
    if on_terminal and text.count("\n") >= shutil.get_terminal_size().lines:
        import pydoc  # noqa: PLC0415 - 20 ms, for terminals only

        pydoc.pager(text)
    else:
        write(text)
