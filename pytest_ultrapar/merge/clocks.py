"""The clocks of the parts of a run, put on one; pure.

Each segment of a host has its monotonic clock. Hosts that shared limits have the clock of the
server by which they did. Its error is what the calls leave open: a server whose clock was set, or
another one in its place, shows as a jump, and that is in the error, too.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_ultrapar.store.clock_stamps import Stamp

TICK_S = 0.001
"""The server tells whole milliseconds."""
_STRETCH_S = 10.0


SAME_CLOCK_S = 5.0
"""Monotonic clocks of one machine that lie closer together are one: between two boots there are
more seconds, and a wall clock that was set since is mostly set by less."""


def clocks_of(anchors_s: Mapping[str, float]) -> dict[str, float]:
    """The monotonic clock of each journal segment of a host: what the wall clock is ahead of it.

    Args:
        anchors_s: Of each segment, the wall clock less the monotonic one, in seconds.

    Returns:
        Segments of one clock share the least of theirs, so that what was in one order on a host
        stays so to the last digit.
    """
    found: dict[str, float] = {}
    clock_s = before_s = -math.inf
    for name, anchor_s in sorted(anchors_s.items(), key=lambda one: one[1]):
        if anchor_s - before_s > SAME_CLOCK_S:
            clock_s = anchor_s
        found[name], before_s = clock_s, anchor_s
    return found


class _Point(NamedTuple):
    """A host's clock at one call: `ahead_s` is the server's time less its own."""

    at_s: float
    ahead_s: float
    error_s: float


class _HostClock:
    def __init__(self, stamps: Sequence[Stamp]) -> None:
        best: dict[int, _Point] = {}
        for one in stamps:
            at_s = (one.begun_s + one.ended_s) / 2
            error_s = (one.ended_s - one.begun_s + TICK_S) / 2
            server_s = (one.ledger_ms + one.lag_ms) / 1000 + TICK_S / 2
            stretch = int(at_s // _STRETCH_S)
            if error_s >= 0 and (stretch not in best or error_s < best[stretch].error_s):
                best[stretch] = _Point(at_s, server_s - at_s, error_s)
        self.points = sorted(best.values())
        self._times_s = [one.at_s for one in self.points]
        self.error_s = max((one.error_s for one in self.points), default=0.0)
        for before, after in pairwise(self.points):
            # More than the two calls leave open: a clock was set, or held back.
            open_s = before.error_s + after.error_s
            self.error_s = max(self.error_s, abs(after.ahead_s - before.ahead_s) - open_s)

    def ahead(self, at_s: float) -> float:
        """The server's time less the host's, at a time of the host."""
        at = bisect_right(self._times_s, at_s)
        if at in {0, len(self.points)}:
            return self.points[0 if at == 0 else -1].ahead_s
        one, other = self.points[at - 1], self.points[at]
        share = (at_s - one.at_s) / (other.at_s - one.at_s)
        return one.ahead_s + share * (other.ahead_s - one.ahead_s)


class ServerClock:
    """Moves times of hosts to the clock of the first of them.

    Args:
        hosts: Of each its stamps; None for one that has no times.

    Attributes:
        error_s: By how much two times of different hosts may be wrong beside each other, to each
            side.
        lacks: Why it cannot be told, in words that follow "since"; empty if it can.
    """

    def __init__(self, hosts: Sequence[Sequence[Stamp] | None]) -> None:
        self._hosts = [_HostClock(stamps or ()) for stamps in hosts]
        known = [own for own, stamps in zip(self._hosts, hosts, strict=True) if stamps is not None]
        n_without = sum(not one.points for one in known)
        self.lacks = "" if known else "no host sent anything"
        if n_without:
            self.lacks = f"{n_without} of {len(known)} hosts did not note the server's time"
        self.error_s = sum(sorted((host.error_s for host in known), reverse=True)[:2])
        self._first_s = 0.0 if self.lacks else known[0].points[0].ahead_s

    def shift(self, host: int, at_s: float) -> float:
        """Seconds to add to a time of a host."""
        return self._hosts[host].ahead(at_s) - self._first_s
