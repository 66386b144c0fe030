"""The faults of a running server. This module chooses the fault for each request."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_ultrapar.simulator.faults.script import Fault
from pytest_ultrapar.simulator.log import with_more
from pytest_ultrapar.system.files import open_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from pytest_ultrapar.simulator.faults.script import FaultScript
    from pytest_ultrapar.simulator.faults.timeline import Timeline
    from pytest_ultrapar.simulator.served_pool import ServedLane


@dataclass(slots=True)
class Trigger:
    """A fault and its counts.

    Attributes:
        fault: The fault.
        seed: The seed for its random draws.
    """

    fault: Fault
    seed: int
    _n_requests: int = 0
    _times: Counter[str] = field(default_factory=Counter)

    def takes(self, elapsed_s: float, request: Callable[[], str]) -> bool:
        """Whether the fault affects a request on one of its lanes.

        Each request within the fault's time span is counted, even if the fault does not affect it.

        Args:
            elapsed_s: Seconds since the script began.
            request: Returns a text that identifies the request; called only for a random draw.
        """
        when = self.fault.when
        if not when.span.holds(elapsed_s):
            return False
        self._n_requests += 1
        n = self._n_requests - when.after_requests
        if n <= 0 or (when.for_requests is not None and n > when.for_requests):
            return False
        return when.share >= 1 or self._draw(request()) < when.share

    def _draw(self, request: str) -> float:
        """Draw a number in [0, 1).

        It depends on the seed, the fault, the request and how many numbers have already been drawn
        for that request. So the order of different requests does not matter, and a request that
        comes again, for example as a retry, gets a new number.
        """
        self._times[request] += 1
        text = f"{self.seed}\0{self.fault.label}\0{request}\0{self._times[request]}"
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") / 2**64


class FaultBook:
    """Finds the fault for a request, and keeps the counts of all faults."""

    def __init__(
        self, script: FaultScript, lanes: Iterable[ServedLane], timeline: Timeline
    ) -> None:
        triggers = [Trigger(fault, script.seed) for fault in script.faults]
        self._timeline = timeline
        # Bytes cache their hash. The hash of a lane would be computed again for every request.
        self._triggers: dict[bytes, list[Trigger]] = {}
        for lane in lanes:
            self._triggers[lane.names] = [t for t in triggers if t.fault.where.holds(lane.lane)]

    def decide(self, lane: ServedLane, now_s: float, request: Callable[[], str]) -> Fault | None:
        """Return the fault that affects a request, or None.

        If several faults apply, return the one that comes first in the file. Each fault also counts
        the requests on its lanes that another fault affects.

        Args:
            lane: The lane of the request.
            now_s: The current time.
            request: Returns a text that identifies the request.
        """
        triggers = self._triggers[lane.names]
        if not triggers:
            return None
        elapsed_s = self._timeline.elapsed_s(now_s)
        taken = [one.fault for one in triggers if one.takes(elapsed_s, request)]
        return taken[0] if taken else None


def unused_faults(script: FaultScript, log: Path) -> tuple[str, ...]:
    """Return the labels of faults that did not affect any request, in the order of the file.

    Args:
        script: The server's script.
        log: The server's complete log. If it cannot be read, the result is empty.
    """
    left = {fault.label: with_more(b"", fault=fault.label) for fault in script.faults}
    try:
        with open_file(log) as lines:
            for line in lines:
                for label in [label for label, mark in left.items() if mark in line]:
                    del left[label]
                if not left:
                    break
    except OSError:
        return ()
    return tuple(left)
