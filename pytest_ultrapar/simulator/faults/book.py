"""All faults of a server at work: which one takes a request, and what callers are told is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.simulator.faults.left_headers import left_headers
from pytest_ultrapar.simulator.faults.trigger import Trigger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pytest_ultrapar.simulator.asgi import Header
    from pytest_ultrapar.simulator.faults.script import Fault, FaultScript
    from pytest_ultrapar.simulator.faults.timeline import Timeline
    from pytest_ultrapar.simulator.served import ServedLane


class FaultBook:
    """Looks up what the script says of a lane now; holds what its faults have counted."""

    def __init__(
        self, script: FaultScript, lanes: Iterable[ServedLane], timeline: Timeline
    ) -> None:
        triggers = [Trigger(fault, script.seed) for fault in script.faults]
        self._timeline = timeline
        # By the lane's names as bytes, whose hash is kept; a lane's own would be made every time.
        self._triggers: dict[bytes, list[Trigger]] = {}
        self._counting: dict[bytes, list[Trigger]] = {}
        self._headers = {}
        for lane in lanes:
            own = [trigger for trigger in triggers if trigger.fault.where.holds(lane)]
            self._triggers[lane.names] = own
            self._counting[lane.names] = [t for t in own if t.fault.when.after_tokens]
            self._headers[lane.names] = [h for h in script.rate_headers if h.where.holds(lane)]

    def decide(self, lane: ServedLane, now_s: float, request: Callable[[], str]) -> Fault | None:
        """The fault that takes a request: of those that could, the first in the file.

        Each counts every request on its lanes, whether or not another one takes it.

        Args:
            lane: Where the request came.
            now_s: When.
            request: Makes a text that stands for what is asked.
        """
        elapsed_s = self._timeline.elapsed_s(now_s)
        taken = [t.fault for t in self._triggers[lane.names] if t.takes(elapsed_s, request)]
        return taken[0] if taken else None

    def count_tokens(self, lane: ServedLane, n_tokens: int) -> None:
        """Tokens of one admitted request."""
        for trigger in self._counting[lane.names]:
            trigger.n_tokens += n_tokens

    def headers(self, lane: ServedLane, now_s: float) -> tuple[Header, ...]:
        """What the lane's callers are told is left of its limits; nothing unless asked for."""
        elapsed_s = self._timeline.elapsed_s(now_s)
        for entry in self._headers[lane.names]:
            if entry.span.holds(elapsed_s):
                return left_headers(lane.path, now_s, dict(entry.values))
        return ()
