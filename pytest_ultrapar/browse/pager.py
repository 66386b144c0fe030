"""Text that may be more than a screen."""

from __future__ import annotations

import shutil
import sys


def write_paged(text: str, *, pager: bool) -> None:
    """Write text to stdout; on a terminal by `$PAGER` where it does not fit.

    Characters that the terminal's encoding lacks are written as escapes.

    Args:
        text: Made harmless for terminals.
        pager: Whether a pager may be started.
    """
    on_terminal = sys.stdout.isatty() and sys.stdin is not None and sys.stdin.isatty()
    if pager and on_terminal and text.count("\n") >= shutil.get_terminal_size().lines:
        import pydoc  # noqa: PLC0415 - 20 ms, for terminals only

        pydoc.pager(text)
        return
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
