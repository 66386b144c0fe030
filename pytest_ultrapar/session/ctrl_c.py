"""Handle Ctrl-C: the first press stops the run, and later presses do not disturb the shutdown."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

from pytest_ultrapar.system.clock import boot_s

if TYPE_CHECKING:
    from collections.abc import Callable


SAME_WISH_S = 1.0
"""A Ctrl-C within this many seconds of the previous one is ignored. People press Ctrl-C two or
three times in a row, and process managers send the signal both to the process and to its group."""


class CtrlC:
    """Handles SIGINT in one process for as long as pytest's session lasts.

    The first Ctrl-C calls the previous handler, which raises `KeyboardInterrupt`. A Ctrl-C within
    `SAME_WISH_S` of the previous one is ignored. Once the session is ending, a Ctrl-C calls `again`
    instead, because an exception would then cut the shutdown short and print a traceback.
    """

    def __init__(self, again: Callable[[], object], *, now_s: Callable[[], float] = boot_s) -> None:
        """Prepare a handler; `install` puts it in place.

        Args:
            again: Called on the main thread for a Ctrl-C while the session is ending.
            now_s: A monotonic clock.
        """
        self._again = again
        self._now_s = now_s
        self._before: Any = None
        self._last_s = float("-inf")
        self._is_ending = False

    def install(self) -> None:
        """Handle SIGINT from now on, unless SIGINT is ignored or this is not the main thread."""
        before = signal.getsignal(signal.SIGINT)
        if not callable(before):
            return
        try:
            signal.signal(signal.SIGINT, self._handle)
        except ValueError:  # pytest runs in another thread, where no Ctrl-C arrives
            return
        self._before = before

    def note_ending(self) -> None:
        """Record that the session is ending and must no longer be interrupted."""
        self._is_ending = True

    def remove(self) -> None:
        """Stop calling `again`, and restore the previous SIGINT handler.

        Within `SAME_WISH_S` of a Ctrl-C, the previous handler is not restored. The interpreter
        takes a while to exit, and another Ctrl-C during that time must not print a traceback.
        """
        self._is_ending = False
        if self._before is None or self._is_same_wish(self._now_s()):
            return
        if signal.getsignal(signal.SIGINT) == self._handle:
            signal.signal(signal.SIGINT, self._before)

    def _is_same_wish(self, now_s: float) -> bool:
        return now_s - self._last_s < SAME_WISH_S

    def _handle(self, number: int, frame: object) -> None:
        now_s = self._now_s()
        is_same, self._last_s = self._is_same_wish(now_s), now_s
        if is_same:
            return
        if self._is_ending:
            self._again()
        else:
            self._before(number, frame)
