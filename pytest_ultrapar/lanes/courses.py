"""How episodes and requests of each model went so far: what an estimate of the rest stands on."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from pytest_ultrapar.lanes.protocol import BIN, ModelCourse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_ultrapar.lanes.protocol import LeaseOutcome
    from pytest_ultrapar.lanes.queueing import HeldLease

_SHORTEST_S = 0.001
_LOG_BIN = math.log(BIN)


class Courses:
    """Counts requests by episode, and seconds by request. A few steps for each lease."""

    __slots__ = ("_ended", "_open", "_seconds")

    def __init__(self) -> None:
        # Model and requests so far of each open episode, by case id.
        self._open: dict[str, tuple[str, int]] = {}
        self._ended: defaultdict[str, Counter[int]] = defaultdict(Counter)
        self._seconds: defaultdict[str, Counter[int]] = defaultdict(Counter)

    def sent(self, model: str, case_id: str) -> None:
        """A request of a case got a lease; those of unnamed cases are not counted."""
        if case_id:
            self._open[case_id] = (model, self._open.get(case_id, ("", 0))[1] + 1)

    def came_back(self, held: HeldLease, outcome: LeaseOutcome, now_s: float) -> None:
        """A lease was given back."""
        if outcome == "unsent":
            return
        seconds = now_s - held.granted_s
        held.lane.busy_s += seconds
        self._seconds[held.lane.model.name][_bin(seconds)] += 1

    def ended(self, case_id: str) -> None:
        """An episode is over; nothing happens for one that asked for nothing or ended before."""
        if (episode := self._open.pop(case_id, None)) is not None:
            model, n_requests = episode
            self._ended[model][n_requests] += 1

    def lost(self, case_ids: Iterable[str]) -> None:
        """Episodes are gone with their worker, to be begun anew."""
        for case_id in case_ids:
            self._open.pop(case_id, None)

    def status(self, held: Iterable[HeldLease], now_s: float) -> list[ModelCourse]:
        """A snapshot, a row for each model that was asked.

        Args:
            held: All leases that are out.
            now_s: The time.
        """
        still_open: dict[str, Counter[int]] = {}
        for model, n_requests in self._open.values():
            still_open.setdefault(model, Counter())[n_requests] += 1
        under_way: dict[str, Counter[int]] = {}
        for lease in held:
            counts = under_way.setdefault(lease.lane.model.name, Counter())
            counts[_bin(now_s - lease.granted_s)] += 1
        parts = (self._ended, still_open, self._seconds, under_way)
        models = dict.fromkeys(model for part in parts for model in part)
        return [
            ModelCourse(model, *(dict(part.get(model, ())) for part in parts)) for model in models
        ]


def _bin(seconds: float) -> int:
    return round(math.log(max(seconds, _SHORTEST_S)) / _LOG_BIN)
