"""A server that queues and never refuses: so many at work, the others wait for their turn.

Source: first come, first served with a bound on sequences at work, as vLLM's scheduler does by
default (`max_num_seqs`); a queue of several servers in the sense of Kendall's G/G/c. Its throughput
grows up to `knee / mean` and stays there, and by Little's law (L = lambda W) the mean latency with
n requests kept in flight is `n * mean / knee` beyond the knee.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

_T = TypeVar("_T", bound=Hashable)


class Waiter(Hashable, Protocol):
    """A request at a station."""

    def begin(self, now_s: float) -> None:
        """Be at work from now on."""
        ...


class Station(Generic[_T]):
    """Who is at work and who waits, in order of arrival. Pure."""

    __slots__ = ("_knee", "_waiting", "n_running")

    def __init__(self, knee: int) -> None:
        """Have `knee` places, >= 1."""
        self._knee = knee
        self._waiting: dict[_T, None] = {}
        self.n_running = 0

    @property
    def n_waiting(self) -> int:
        """Requests that wait for a place."""
        return len(self._waiting)

    def arrive(self, request: _T) -> bool:
        """Whether the request is at work at once; else it waits until a `leave` names it."""
        if self.n_running < self._knee:
            self.n_running += 1
            return True
        self._waiting[request] = None
        return False

    def leave(self, request: _T) -> _T | None:
        """The request that is at work now that another one has ended or given up, if one is."""
        if request in self._waiting:
            del self._waiting[request]
            return None
        self.n_running -= 1
        if not self._waiting:
            return None
        following = next(iter(self._waiting))
        del self._waiting[following]
        self.n_running += 1
        return following
