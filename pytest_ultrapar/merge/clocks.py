"""Convert the times in all parts of a run to one clock, without I/O.

The times in each segment of a host's journal come from a monotonic clock. Hosts that share limits
also record the time on their server's clock. The longer it takes to ask the server, the less
accurate the recorded time is. If the server's clock was changed, or the server was replaced with
another one, its time jumps. The size of the jump is then included in `ServerClock.error_s`.
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
"""The precision of the server's time, which is in whole milliseconds."""
_STRETCH_S = 10.0


SAME_CLOCK_S = 5.0
"""If the anchors (see `clocks_of`) of two segments from one machine differ by less than this, the
segments share a monotonic clock. After a reboot, the anchors differ by more. Setting the wall clock
usually changes an anchor by less."""


def clocks_of(anchors_s: Mapping[str, float]) -> dict[str, float]:
    """Find out which journal segments of a host share a monotonic clock.

    Args:
        anchors_s: The anchor of each segment: the wall-clock time minus the monotonic time, in
            seconds.

    Returns:
        The anchor to use for each segment. Segments with the same clock all use the smallest of
        their anchors, so that the times of a host keep their exact order.
    """
    found: dict[str, float] = {}
    clock_s = before_s = -math.inf
    for name, anchor_s in sorted(anchors_s.items(), key=lambda one: one[1]):
        if anchor_s - before_s > SAME_CLOCK_S:
            clock_s = anchor_s
        found[name], before_s = clock_s, anchor_s
    return found


class _Point(NamedTuple):
    """A host's time `at_s` at one call to the server, whose clock is ahead by `ahead_s`."""

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
            # If the difference exceeds the sum of both errors, a clock was set, or ran slower for
            # a while.
            open_s = before.error_s + after.error_s
            self.error_s = max(self.error_s, abs(after.ahead_s - before.ahead_s) - open_s)

    def ahead(self, at_s: float) -> float:
        """Return the server's time minus the host's, at a given time on the host's clock."""
        at = bisect_right(self._times_s, at_s)
        if at in {0, len(self.points)}:
            return self.points[0 if at == 0 else -1].ahead_s
        one, other = self.points[at - 1], self.points[at]
        share = (at_s - one.at_s) / (other.at_s - one.at_s)
        return one.ahead_s + share * (other.ahead_s - one.ahead_s)


class ServerClock:
    """Converts the times of hosts to the clock of the first host.

    Args:
        hosts: The clock stamps of each host; None for a host that has no times to convert.

    Attributes:
        error_s: The maximum error, in either direction, in the time between two events on different
            hosts.
        lacks: The reason why the hosts' clocks cannot be compared, as a clause that could follow
            "since". Empty if they can be compared.
    """

    def __init__(self, hosts: Sequence[Sequence[Stamp] | None]) -> None:
        self._hosts = [_HostClock(stamps or ()) for stamps in hosts]
        known = [own for own, stamps in zip(self._hosts, hosts, strict=True) if stamps is not None]
        n_without = sum(not one.points for one in known)
        self.lacks = "" if known else "no host sent a request"
        if n_without:
            self.lacks = f"{n_without} of {len(known)} hosts did not record the server's time"
        self.error_s = sum(sorted((host.error_s for host in known), reverse=True)[:2])
        self._first_s = 0.0 if self.lacks else known[0].points[0].ahead_s

    def shift(self, host: int, at_s: float) -> float:
        """Return how many seconds to add to the time `at_s` on a host's clock."""
        return self._hosts[host].ahead(at_s) - self._first_s
