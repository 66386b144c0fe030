"""What the lanes of a run did at each time, and why what they offer was not used; pure.

Only a compaction needs it, which has numpy; who prints a run's summary has not.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from pytest_ultrapar.analysis.plan.load import Resource
    from pytest_ultrapar.analysis.requests import RequestColumns, RequestLog
    from pytest_ultrapar.pool.model import Lane

    Floats = NDArray[np.float64]


_SLICES = 1000
_FULL = 0.9
"""Share of its seats at which a limit counts as full: some seats are always changing hands."""


class Reasons(NamedTuple):
    """Seconds of idle capacity by why it was idle; see `attribution.Parts`."""

    rate_wait_s: float = 0.0
    seat_wait_s: float = 0.0
    backoff_s: float = 0.0
    rules_s: float = 0.0
    client_s: float = 0.0
    startup_s: float = 0.0
    tail_s: float = 0.0


_Flow = tuple["Floats", "Floats"]
"""By slice, seconds in flight and held on the lanes of a limit."""


class Occupancy:
    """The measured requests of a run, by slices of its makespan.

    Args:
        log: All requests of the run.
        start_s: First send, monotonic seconds.
        end_s: End of the last episode, > start_s.
        restricted: Whether the assignment had rules that keep episodes from free lanes.
    """

    def __init__(self, log: RequestLog, *, start_s: float, end_s: float, restricted: bool) -> None:
        self.makespan_s = end_s - start_s
        self._start_s = start_s
        self._restricted = restricted
        self._log = log
        columns = log.columns()
        self._services_s: list[list[float]] = []
        busy = [Bins(start_s, end_s, _SLICES) for _ in log.lanes]
        held = [Bins(start_s, end_s, _SLICES) for _ in log.lanes]
        models: dict[str, _ModelBins] = {}
        for at, lane in enumerate(log.lanes):
            here = columns.measured & (columns.lane == at)
            own = columns.of(here)
            self._services_s.append((own.ended_s - own.sent_s)[own.served].tolist())
            busy[at].add(own.sent_s, own.ended_s)
            held[at].add(own.granted_s, own.sent_s)
            if len(own.lane):
                if lane.model not in models:
                    models[lane.model] = _ModelBins(start_s, end_s)
                models[lane.model].add(own, start_s)
        self._width_s = self.makespan_s / _SLICES
        self._busy = [one.seconds() for one in busy]
        self._held = [one.seconds() for one in held]
        self._models = models
        self._lanes_of: dict[str, list[int]] = defaultdict(list)
        for at, lane in enumerate(log.lanes):
            for name in lane.limits:
                self._lanes_of[name].append(at)
        self._flows: dict[str, _Flow] = {}

    def n_requests(self, part: Resource) -> int:
        """Measured requests that were served on the lanes of a limit."""
        return sum(len(self._services_s[at]) for at in self._on(part))

    def used_s(self, part: Resource) -> float:
        """Seconds that the limit was needed at full use, as the bound counts them, >= 0."""
        services_s = [each for at in self._on(part) for each in self._services_s[at]]
        if not part.is_rate:
            return sum(services_s) / part.per_s
        shortest_s = min(services_s, default=0.0)
        return max(0.0, (len(services_s) - part.burst) / part.per_s + shortest_s)

    def busy_lanes(self) -> Iterator[Lane]:
        """The lanes on which a measured request was served."""
        for lane, services_s in zip(self._log.lanes, self._services_s, strict=True):
            if services_s:
                yield lane

    def reasons(self, part: Resource, parts: Iterable[Resource]) -> Reasons:
        """Why what a limit offers was not used, in seconds of the whole limit."""
        seats = self._seats(part)
        slices = self._slices(part)
        starting = np.arange(_SLICES) < _first_full(slices, seats)
        full = self._full_elsewhere(part, parts)
        reasons = self._split(slices, seats, starting=starting, full_elsewhere=full)
        return Reasons(*(float(each.sum()) * self._width_s / seats for each in reasons))

    def last_episode(self, parts: Iterable[Resource]) -> Reasons:
        """What the measured episode that ended last waited for, from the run's first send on.

        Args:
            parts: All limits; what came before its first request is told by how full they were.
        """
        last = self._last_requests()
        if last is None:
            return Reasons()
        waits_s = np.maximum(0.0, last.granted_s - np.maximum(last.asked_s, self._start_s))
        if self._restricted:
            waits_s[0] = 0.0
        pauses_s, again = (last.asked_s - last.before_s)[1:], last.again[1:]
        kept_s = max(0.0, float(last.granted_s[0]) - self._start_s) if self._restricted else 0.0
        own = Reasons(
            rate_wait_s=float(waits_s @ last.rate_share),
            seat_wait_s=float(waits_s @ (1.0 - last.rate_share)),
            backoff_s=float(pauses_s[again].sum()),
            rules_s=kept_s,
            client_s=float((last.sent_s - last.granted_s).sum() + pauses_s[~again].sum()),
        )
        if self._restricted:
            return own
        return Reasons(*map(sum, zip(own, self._before(last, parts), strict=True)))

    def _before(self, last: RequestColumns, parts: Iterable[Resource]) -> Reasons:
        """Why the first request of an episode was not asked for at the run's first send.

        It stood behind those of its model that waited then; where none did, and none of its limits
        was full, nobody kept the client from asking: workers were still starting.
        """
        lane, asked_s = self._log.lanes[last.lane[0]], float(last.asked_s[0])
        full = self._full([part for part in parts if part.limit in lane.limits])
        rate, seat, *_ = (each.tolist() for each in self._models[lane.model].seconds)
        rate_s = seat_s = client_s = startup_s = 0.0
        for at, is_full in enumerate(full):
            now_s = min(self._width_s, asked_s - self._start_s - at * self._width_s)
            if now_s <= 0:
                break
            waiting = rate[at] + seat[at]
            for_rate_s = now_s * rate[at] / waiting if waiting > 0 else 0.0
            rate_s += for_rate_s
            if is_full:
                seat_s += now_s - for_rate_s
            elif waiting > 0:
                client_s += now_s - for_rate_s
            else:
                startup_s += now_s
        return Reasons(
            rate_wait_s=rate_s, seat_wait_s=seat_s, client_s=client_s, startup_s=startup_s
        )

    def _last_requests(self) -> RequestColumns | None:
        """Those of the measured episode that ended last."""
        columns = self._log.columns()
        if not columns.measured.any():
            return None
        ended_s = np.where(columns.measured, columns.ended_s, -np.inf)
        episode = np.cumsum(columns.first)
        # Of some that end at once the last.
        at = len(ended_s) - 1 - int(ended_s[::-1].argmax())
        return columns.of(columns.measured & (episode == episode[at]))

    def _on(self, part: Resource) -> list[int]:
        """Indexes of the lanes of a limit."""
        return self._lanes_of[part.limit]

    def _flow(self, part: Resource) -> _Flow:
        """By slice, seconds in flight and held on all lanes of a limit; added up once per limit.

        Without that 100 deployments on 3 keys, where each asks for those beside it, took 2.8 s at
        the end of a run.
        """
        flow = self._flows.get(part.limit)
        if flow is None:
            on = self._on(part)
            flow = self._flows[part.limit] = (
                _sum(self._busy[at] for at in on),
                _sum(self._held[at] for at in on),
            )
        return flow

    def _seats(self, part: Resource) -> float:
        """Requests in flight that the limit allows; for a rate by Little's law."""
        if not part.is_rate:
            return part.per_s
        services_s = [each for at in self._on(part) for each in self._services_s[at]]
        mean_s = sum(services_s) / len(services_s) if services_s else 0.0
        return part.per_s * max(mean_s, 1e-6)

    def _slices(self, part: Resource) -> _Slices:
        models = {self._log.lanes[at].model for at in self._on(part)} & self._models.keys()
        seconds = [self._models[name].seconds for name in sorted(models)]
        others = (_sum(each[state] for each in seconds) for state in range(_N_STATES))
        return _Slices(*(amount / self._width_s for amount in (*self._flow(part), *others)))

    def _full_elsewhere(self, part: Resource, parts: Iterable[Resource]) -> NDArray[np.bool_]:
        """By slice, whether another limit on the path of the same lanes had no seat left."""
        own = {name for at in self._on(part) for name in self._log.lanes[at].limits}
        return self._full([one for one in parts if one != part and one.limit in own])

    def _full(self, parts: Iterable[Resource]) -> NDArray[np.bool_]:
        """By slice, whether one of some limits had no seat left."""
        found = np.zeros(_SLICES, dtype=bool)
        for other in parts:
            if not other.is_rate:
                busy, held = self._flow(other)
                found |= busy + held >= _FULL * other.per_s * self._width_s
        return found

    def _split(
        self,
        now: _Slices,
        seats: float,
        *,
        starting: NDArray[np.bool_],
        full_elsewhere: NDArray[np.bool_],
    ) -> tuple[Floats, ...]:
        """The idle seats of each slice, dealt to those who might have used them, nearest first.

        In the order of `Reasons`.
        """
        idle = np.maximum(0.0, seats - now.busy)
        held = np.minimum(idle, now.held)
        idle = idle - held
        waiting = now.rate + now.seat
        waits = waiting > 0
        # Episodes that are not opened yet stand behind those that wait.
        served = np.minimum(idle, waiting + np.where(waits, now.unopened, 0.0))
        rate = np.where(waits, served * now.rate / np.where(waits, waiting, 1.0), 0.0)
        seat = served - rate
        idle = idle - served
        backoff = np.minimum(idle, now.backoff)
        idle = idle - backoff
        between = np.minimum(idle, now.between)
        idle = idle - between
        fed = np.minimum(idle, now.unopened)
        tail = idle - fed
        client = held + between
        rules = startup = np.zeros(_SLICES)
        # A seat of this very limit that is free and waited for is changing hands.
        ours = np.where(full_elsewhere, 0.0, seat)
        if self._restricted:
            kept_free = now.busy + now.held < _FULL * seats
            rules = fed + np.where(kept_free, ours, 0.0)
            client = client + np.where(kept_free, 0.0, ours)
        else:
            startup = np.where(starting, fed, 0.0)
            client = client + np.where(starting, 0.0, fed) + ours
        return rate, seat - ours, backoff, rules, client, startup, tail


class _Slices(NamedTuple):
    """By slice what was there, in requests (or episodes) at a time."""

    busy: Floats
    held: Floats
    rate: Floats
    seat: Floats
    backoff: Floats
    between: Floats
    unopened: Floats


_N_STATES = len(_Slices._fields) - 2
"""Those of a model: all but `busy` and `held`, which are of a lane."""


class _ModelBins:
    """What the requests and episodes of a model did while they were not in flight."""

    def __init__(self, start_s: float, end_s: float) -> None:
        self.rate, self.seat, self.backoff, self.between, self.unopened = (
            Bins(start_s, end_s, _SLICES) for _ in range(5)
        )

    def add(self, requests: RequestColumns, start_s: float) -> None:
        """Count what came before each request was sent."""
        first, again = requests.first, requests.again
        self.unopened.add(start_s, requests.asked_s[first])
        for bins, which in ((self.backoff, ~first & again), (self.between, ~first & ~again)):
            bins.add(requests.before_s[which], requests.asked_s[which])
        asked_s, granted_s, share = requests.asked_s, requests.granted_s, requests.rate_share
        self.rate.add(asked_s, granted_s, share)
        self.seat.add(asked_s, granted_s, 1.0 - share)

    @cached_property
    def seconds(self) -> tuple[Floats, ...]:
        """By slice, in the order of `_Slices` from `rate` on."""
        bins = (self.rate, self.seat, self.backoff, self.between, self.unopened)
        return tuple(one.seconds() for one in bins)


def _sum(columns: Iterable[Floats]) -> Floats:
    return sum(columns, np.zeros(_SLICES))


def _first_full(slices: _Slices, seats: float) -> int:
    """The slice in which a limit was in full use for the first time, or else the fullest."""
    full = (slices.busy >= _FULL * seats) | (slices.rate + slices.seat > 0)
    return int(full.argmax() if full.any() else slices.busy.argmax())


class Bins:
    """Adds up stretches of time by slices of equal length, each in constant time.

    Args:
        start_s: Where the first slice begins.
        end_s: Where the last slice ends, > start_s.
        n: How many slices, >= 1.

    Attributes:
        width_s: Of one slice.
    """

    __slots__ = ("_from_here", "_in_slice", "_n", "_start_s", "width_s")

    def __init__(self, start_s: float, end_s: float, n: int) -> None:
        self._start_s = start_s
        self._n = n
        self.width_s = (end_s - start_s) / n
        # What begins in a slice counts there in part, and in whole in all that follow.
        self._in_slice = np.zeros(n + 1)
        self._from_here = np.zeros(n + 2)

    def add(
        self, from_s: float | Floats, until_s: float | Floats, weight: float | Floats = 1.0
    ) -> None:
        """Count stretches; what lies outside of all slices is cut off."""
        begins, ends, weights = np.broadcast_arrays(from_s, until_s, weight)
        counts = ends > begins
        self._step(begins[counts], weights[counts])
        self._step(ends[counts], -weights[counts])

    def seconds(self) -> Floats:
        """By slice, seconds times weight of all that was added."""
        steps = self._from_here.cumsum()[: self._n]
        seconds: Floats = self._in_slice[: self._n] + steps * self.width_s
        return seconds

    def _step(self, at_s: Floats, weights: Floats) -> None:
        place = (at_s - self._start_s) / self.width_s
        inside = (place > 0) & (place < self._n)
        at = place[inside].astype(np.int64)
        parts = weights[inside] * (at + 1 - place[inside]) * self.width_s
        self._in_slice += np.bincount(at, parts, self._n + 1)
        self._from_here += np.bincount(at + 1, weights[inside], self._n + 2)
        self._from_here[0] += weights[place <= 0].sum()
