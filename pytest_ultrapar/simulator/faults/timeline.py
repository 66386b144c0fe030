"""When a script of faults begins."""

from __future__ import annotations


class Timeline:
    """Seconds since the first request, or since the server's start."""

    __slots__ = ("_began_s",)

    def __init__(self, began_s: float | None = None) -> None:
        """Count from `began_s`; None counts from the first `begin`."""
        self._began_s = began_s

    def begin(self, now_s: float) -> None:
        """Called at every request; only the first one counts, and none if it began before."""
        if self._began_s is None:
            self._began_s = now_s

    def elapsed_s(self, now_s: float) -> float:
        """Seconds since the beginning, 0 before it."""
        return 0.0 if self._began_s is None else now_s - self._began_s
