"""One clock for all hosts of a run, by the server that they asked the time of; pure.

Within an epoch the server's time is one clock. Epochs are joined by a host that saw both: its own
clock went on meanwhile. So all stand on the clock of the first host, and the error is what the
calls leave open.
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
    epoch: int
    ahead_s: float
    error_s: float


class _HostClock:
    def __init__(self, stamps: Sequence[Stamp]) -> None:
        best: dict[tuple[int, int], _Point] = {}
        for one in stamps:
            at_s = (one.begun_s + one.ended_s) / 2
            error_s = (one.ended_s - one.begun_s + TICK_S) / 2
            ahead_s = one.ledger_ms / 1000 + TICK_S / 2 - at_s
            key = (one.epoch, int(at_s // _STRETCH_S))
            if error_s >= 0 and (key not in best or error_s < best[key].error_s):
                best[key] = _Point(at_s, one.epoch, ahead_s, error_s)
        self.points = sorted(best.values())
        self._times_s = [one.at_s for one in self.points]
        self.epochs = {one.epoch for one in self.points}
        self.error_s = max((one.error_s for one in self.points), default=0.0)
        for before, after in pairwise(self.points):
            if before.epoch == after.epoch:
                # More than the two calls leave open: a clock was set, or held back.
                open_s = before.error_s + after.error_s
                jump_s = abs(after.ahead_s - before.ahead_s) - open_s
                self.error_s = max(self.error_s, jump_s)

    def ahead(self, at_s: float) -> tuple[int, float]:
        """The epoch at a time of this host, and the ledger's time less its own."""
        at = bisect_right(self._times_s, at_s)
        if at in {0, len(self.points)}:
            one = self.points[0 if at == 0 else -1]
            return one.epoch, one.ahead_s
        one, other = self.points[at - 1], self.points[at]
        if one.epoch != other.epoch:
            near = one if at_s - one.at_s < other.at_s - at_s else other
            return near.epoch, near.ahead_s
        share = (at_s - one.at_s) / (other.at_s - one.at_s)
        return one.epoch, one.ahead_s + share * (other.ahead_s - one.ahead_s)

    def between(self) -> list[tuple[int, int, float]]:
        """For each epoch that follows another here: both, and by how much the later is ahead."""
        return [
            (one.epoch, other.epoch, other.ahead_s - one.ahead_s)
            for one, other in pairwise(self.points)
            if one.epoch != other.epoch
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
        self._offset_s: dict[int, float] = {}
        n_without = sum(not one.points for one in known)
        if n_without:
            self.lacks = f"{n_without} of {len(known)} hosts did not note the server's time"
            return
        if not known:
            self.lacks = "no host sent anything"
            return
        first = known[0].points[0]
        # The ledger's time of an epoch, less this, is on the first host's clock.
        self._offset_s[first.epoch] = first.ahead_s
        found = True
        while found:
            found = False
            for host in known:
                for before, after, later_s in host.between():
                    for one, other, by_s in ((before, after, later_s), (after, before, -later_s)):
                        if one in self._offset_s and other not in self._offset_s:
                            self._offset_s[other] = self._offset_s[one] + by_s
                            found = True
        if any(not host.epochs <= self._offset_s.keys() for host in known):
            self.lacks = "the server started anew, and no host saw it before and after"
            return
        errors_s = sorted((host.error_s for host in known), reverse=True)
        self.error_s = sum(errors_s[:2]) * max(1, len(self._offset_s))

    def shift(self, host: int, at_s: float) -> float:
        """Seconds to add to a time of a host."""
        epoch, ahead_s = self._hosts[host].ahead(at_s)
        return ahead_s - self._offset_s[epoch]
