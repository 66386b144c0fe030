"""Ends a process that code of a suite forks where it leaves that code.

All that follows belongs to the run: its loop and sockets, its journal, the next item of pytest.
"""

from __future__ import annotations

import os
from collections.abc import Coroutine
from typing import Any


def exit_code(error: BaseException | None) -> int:
    """The exit code that the interpreter gives a process that ends with this exception."""
    if error is None:
        return 0
    if not isinstance(error, SystemExit):
        return 1
    if error.code is None:
        return 0
    return error.code & 0xFF if isinstance(error.code, int) else 1


class Steps(Coroutine[Any, Any, Any]):
    """Stands for a coroutine of a suite; a process that it forks ends with the step that forked.

    That process has no other thread, and the next step of its loop would use the sockets of all
    episodes.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine
        self._pid = os.getpid()

    def send(self, value: Any, /) -> Any:  # noqa: ANN401 - as the next, what coroutines have
        """Go on to the next `await`."""
        try:
            asked = self._coroutine.send(value)
        except BaseException as error:
            self._end_fork(error)
            raise
        self._end_fork(None)
        return asked

    def throw(self, *error: Any) -> Any:  # noqa: ANN401
        """Go on to the next `await` with an exception."""
        try:
            asked = self._coroutine.throw(*error)
        except BaseException as raised:
            self._end_fork(raised)
            raise
        self._end_fork(None)
        return asked

    def close(self) -> None:
        """End the coroutine where it is."""
        self._coroutine.close()

    def __await__(self) -> Steps:
        return self

    def __next__(self) -> Any:  # noqa: ANN401
        return self.send(None)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - `cr_frame` and the like
        return getattr(self._coroutine, name)

    def _end_fork(self, error: BaseException | None) -> None:
        if os.getpid() != self._pid:
            os._exit(0 if isinstance(error, StopIteration) else exit_code(error))
