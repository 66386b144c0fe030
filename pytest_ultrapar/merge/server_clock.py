"""One clock for all hosts of a run, by the server that they asked the time of; pure.

The server's time is one clock as long as the server lives and its clock is not set. Two such clocks
are joined by a host that saw both: its own clock went on meanwhile. If none did but the server
lived, its clock is taken to have gone on. So all stand on the clock of the first host, and the
error is what the calls leave open.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ultrapar.store.clock_stamps import Stamp

TICK_S = 0.001
"""The server tells whole milliseconds."""
_STRETCH_S = 10.0


class _Point(NamedTuple):
    """A host's clock at one call: `ahead_s` is the ledger's time less its own."""

    at_s: float
    clock: tuple[int, int]
    ahead_s: float
    error_s: float


class _HostClock:
    def __init__(self, stamps: Sequence[Stamp]) -> None:
        best: dict[tuple[tuple[int, int], int], _Point] = {}
        for one in stamps:
            at_s = (one.begun_s + one.ended_s) / 2
            error_s = (one.ended_s - one.begun_s + TICK_S) / 2
            ahead_s = one.ledger_ms / 1000 + TICK_S / 2 - at_s
            key = (one.clock, int(at_s // _STRETCH_S))
            if error_s >= 0 and (key not in best or error_s < best[key].error_s):
                best[key] = _Point(at_s, one.clock, ahead_s, error_s)
        self.points = sorted(best.values())
        self._times_s = [one.at_s for one in self.points]
        self.clocks = {one.clock for one in self.points}
        self.error_s = max((one.error_s for one in self.points), default=0.0)
        for before, after in pairwise(self.points):
            if before.clock == after.clock:
                # More than the two calls leave open: a clock was set, or held back.
                open_s = before.error_s + after.error_s
                jump_s = abs(after.ahead_s - before.ahead_s) - open_s
                self.error_s = max(self.error_s, jump_s)

    def ahead(self, at_s: float) -> tuple[tuple[int, int], float]:
        """The ledger's clock at a time of this host, and its time less the host's own."""
        at = bisect_right(self._times_s, at_s)
        if at in {0, len(self.points)}:
            one = self.points[0 if at == 0 else -1]
            return one.clock, one.ahead_s
        one, other = self.points[at - 1], self.points[at]
        if one.clock != other.clock:
            near = one if at_s - one.at_s < other.at_s - at_s else other
            return near.clock, near.ahead_s
        share = (at_s - one.at_s) / (other.at_s - one.at_s)
        return one.clock, one.ahead_s + share * (other.ahead_s - one.ahead_s)

    def between(self) -> list[tuple[tuple[int, int], tuple[int, int], float]]:
        """For each clock that follows another here: both, and by how much the later is ahead."""
        return [
            (one.clock, other.clock, other.ahead_s - one.ahead_s)
            for one, other in pairwise(self.points)
            if one.clock != other.clock
        ]


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
        self.error_s = 0.0
        self.lacks = ""
        self._offset_s: dict[tuple[int, int], float] = {}
        n_without = sum(not one.points for one in known)
        if n_without:
            self.lacks = f"{n_without} of {len(known)} hosts did not note the server's time"
            return
        if not known:
            self.lacks = "no host sent anything"
            return
        first = known[0].points[0]
        # The time of a clock of the ledger, less this, is on the first host's clock.
        self._offset_s[first.clock] = first.ahead_s
        while self._joined_by_a_host(known) or self._joined_by_the_server(known):
            pass
        if any(not host.clocks <= self._offset_s.keys() for host in known):
            self.lacks = "the server started anew, and no host saw it before and after"
            return
        errors_s = sorted((host.error_s for host in known), reverse=True)
        self.error_s = sum(errors_s[:2]) * max(1, len(self._offset_s))

    def _joined_by_a_host(self, known: Sequence[_HostClock]) -> bool:
        for before, after, later_s in (pair for host in known for pair in host.between()):
            for one, other, by_s in ((before, after, later_s), (after, before, -later_s)):
                if one in self._offset_s and other not in self._offset_s:
                    self._offset_s[other] = self._offset_s[one] + by_s
                    return True
        return False

    def _joined_by_the_server(self, known: Sequence[_HostClock]) -> bool:
        """The nearest two: what was set while hosts asked lies between others."""
        pairs = [
            (abs(one_ms - other_ms), (epoch, one_ms), (epoch, other_ms))
            for epoch, one_ms in self._offset_s
            for other_epoch, other_ms in set().union(*(host.clocks for host in known))
            if other_epoch == epoch and (epoch, other_ms) not in self._offset_s
        ]
        if not pairs:
            return False
        _, one, other = min(pairs)
        self._offset_s[other] = self._offset_s[one] + (one[1] - other[1]) / 1000
        return True

    def shift(self, host: int, at_s: float) -> float:
        """Seconds to add to a time of a host."""
        clock, ahead_s = self._hosts[host].ahead(at_s)
        return ahead_s - self._offset_s[clock]
