"""How a process that code of a suite forks ends where it leaves that code.

All that follows belongs to the run: its loop and sockets, its journal, the next item of pytest.
`engine/loop.py` ends what episodes fork, `session/forks.py` what tests fork.
"""

from __future__ import annotations


def exit_code(error: BaseException | None) -> int:
    """The exit code that the interpreter gives a process that ends with this exception."""
    if error is None:
        return 0
    if not isinstance(error, SystemExit):
        return 1
    if error.code is None:
        return 0
    return error.code & 0xFF if isinstance(error.code, int) else 1
