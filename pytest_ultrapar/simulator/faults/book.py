"""All faults of a server at work: which one takes a request."""

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
    from pytest_ultrapar.simulator.served import ServedLane


@dataclass(slots=True)
class Trigger:
    """One fault with what it has counted so far.

    Attributes:
        fault: What it stands for.
        seed: Of its draws.
    """

    fault: Fault
    seed: int
    _n_requests: int = 0
    _times: Counter[str] = field(default_factory=Counter)

    def takes(self, elapsed_s: float, request: Callable[[], str]) -> bool:
        """Whether the fault takes a request on one of its lanes; counts it either way.

        Args:
            elapsed_s: Seconds since the script's beginning.
            request: Makes a text that stands for what is asked; called only for a draw.
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
        """A number in [0, 1) made of the seed, the fault, the request and how often it came.

        So the order in which requests come does not matter, and one that comes again, as a retry
        does, has a draw of its own.
        """
        self._times[request] += 1
        text = f"{self.seed}\0{self.fault.label}\0{request}\0{self._times[request]}"
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") / 2**64


class FaultBook:
    """Looks up what the script says of a lane now; holds what its faults have counted."""

    def __init__(
        self, script: FaultScript, lanes: Iterable[ServedLane], timeline: Timeline
    ) -> None:
        triggers = [Trigger(fault, script.seed) for fault in script.faults]
        self._timeline = timeline
        # By the lane's names as bytes, whose hash is kept; a lane's own would be made every time.
        self._triggers: dict[bytes, list[Trigger]] = {}
        for lane in lanes:
            self._triggers[lane.names] = [t for t in triggers if t.fault.where.holds(lane.lane)]

    def decide(self, lane: ServedLane, now_s: float, request: Callable[[], str]) -> Fault | None:
        """The fault that takes a request: of those that could, the first in the file.

        Each counts every request on its lanes, whether or not another one takes it.

        Args:
            lane: Where the request came.
            now_s: When.
            request: Makes a text that stands for what is asked.
        """
        triggers = self._triggers[lane.names]
        if not triggers:
            return None
        elapsed_s = self._timeline.elapsed_s(now_s)
        taken = [one.fault for one in triggers if one.takes(elapsed_s, request)]
        return taken[0] if taken else None


def unused_faults(script: FaultScript, log: Path) -> tuple[str, ...]:
    """The labels of faults that took no request, in the file's order.

    Args:
        script: What the server followed.
        log: Its log, complete. One that cannot be read says nothing of any fault.
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
