"""How often and how long a lane rested, by why."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_ultrapar.lanes.health import Cause


class RestLog:
    """Counts the times for which a lane was paused.

    Attributes:
        n: Rests begun, by cause; one that goes on for another cause counts for both.
    """

    __slots__ = ("_cause", "_rested_s", "_since_s", "n")

    def __init__(self) -> None:
        self._cause: Cause | None = None
        self._since_s = 0.0
        self._rested_s: dict[str, float] = {}
        self.n: dict[str, int] = {}

    def begin(self, cause: Cause, now_s: float) -> None:
        """The lane rests from now on; nothing happens when it does so already for that cause."""
        if cause == self._cause:
            return
        self.end(now_s)
        self._cause, self._since_s = cause, now_s
        self.n[cause] = self.n.get(cause, 0) + 1

    def end(self, now_s: float) -> None:
        """The lane is up, or out."""
        self._rested_s = self.rested_s(now_s)
        self._cause = None

    def rested_s(self, now_s: float) -> dict[str, float]:
        """Seconds of rest up to now, by cause."""
        rested_s = dict(self._rested_s)
        if self._cause is not None:
            this_s = max(0.0, now_s - self._since_s)
            rested_s[self._cause] = rested_s.get(self._cause, 0.0) + this_s
        return rested_s
