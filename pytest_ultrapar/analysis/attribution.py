"""Where the time of a run went: the bound, and what kept the run from it; pure.

A makespan is longer than its lower bound because something that a limit offers was not used. So the
run is cut into slices of equal length; in each, the seats of a limit that were idle are dealt to
those who might have used them: requests that waited for a rate or a seat, those that backed off,
episodes between two turns or not yet opened. Who stands nearest to being sent comes first. What
nobody could have used is the uneven end. The parts of the run are those of the limits that bind, by
their shares of the bound's prices.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from pytest_ultrapar.analysis.requests import RequestColumns
from pytest_ultrapar.plan.bound import resources

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from pytest_ultrapar.analysis.requests import Request, RequestLog
    from pytest_ultrapar.plan.bound import Bound, Price, Resource
    from pytest_ultrapar.pool.model import Lane, Limit

    Floats = NDArray[np.float64]


_SLICES = 1000
_FULL = 0.9
"""Share of its seats at which a limit counts as full: some seats are always changing hands."""
_Name = tuple[str, str]
"""A limit's name and which of its numbers."""


class Parts(msgspec.Struct, frozen=True):
    """A makespan in parts, in seconds; all of them sum to it.

    Attributes:
        used_s: The time that a limit was needed at full use; of a run the bound.
        rate_wait_s: Free, while requests waited for a rate or a pause.
        seat_wait_s: Free, while requests waited for a seat elsewhere on their path.
        backoff_s: Free, while requests waited to be tried again.
        rules_s: Free, while rules of mode or assignment kept episodes from starting there.
        client_s: Free, while requests or episodes were in the hands of the client: leases on their
            way, requests about to be sent, episodes between two turns.
        startup_s: Free, before it was in full use for the first time.
        tail_s: Free, since too few episodes were left to fill it.
        misrouted_s: Of a run: used by requests that a lane of lower prices could have served, so
            that others, which had no other lane, came later. 0 for a limit, where it is in
            `used_s`. `detour_s` in files.
        other_s: The rest: the bound counts requests of nearly the same length as equally long.
    """

    used_s: float
    rate_wait_s: float
    seat_wait_s: float
    backoff_s: float
    rules_s: float
    client_s: float
    startup_s: float
    tail_s: float
    misrouted_s: float = msgspec.field(default=0.0, name="detour_s")
    other_s: float = 0.0


class LimitParts(msgspec.Struct, frozen=True):
    """The makespan as one number of one limit saw it, for all lanes that it bounds most.

    Attributes:
        limit: Its name.
        kind: `workers`, `qps` or `rpm`.
        lanes: Ids of the lanes on which nothing else was used more.
        share: Of the bound, 0 to 1; 0 where the limit does not bind.
    """

    limit: str
    kind: str
    lanes: tuple[str, ...]
    share: float
    parts: Parts


class Attribution(msgspec.Struct, frozen=True):
    """The parts of a run's makespan.

    Attributes:
        run: Of the whole.
        limits: Of each limit that bounds a lane most, most used first.
    """

    makespan_s: float
    run: Parts
    limits: tuple[LimitParts, ...]


def attribute(
    log: RequestLog,
    limits: Iterable[Limit],
    bound: Bound,
    *,
    start_s: float,
    end_s: float,
    restricted: bool,
) -> Attribution:
    """The parts of the makespan from `start_s` to `end_s`.

    Args:
        log: All requests of the run; the measured ones count.
        limits: Those of the log's lanes.
        bound: From `run_bound`.
        start_s: First send, monotonic seconds.
        end_s: End of the last episode, > start_s.
        restricted: Whether the assignment had rules that keep episodes from free lanes.
    """
    occupancy = Occupancy(log, start_s=start_s, end_s=end_s, restricted=restricted)
    parts = resources(limits)
    by_name = {(one.limit, one.kind): one for one in parts}
    shares: dict[_Name, float] = {(price.limit, price.kind): price.share for price in bound.prices}
    found: dict[_Name, Parts] = {
        name: _parts(occupancy, one, parts)
        for name, one in by_name.items()
        if name in shares or occupancy.n_requests(one)
    }
    makespan_s = end_s - start_s
    run = (
        _run(bound, shares, found, makespan_s, misrouted_s(log, bound.prices))
        if shares
        else _last_episode(occupancy, parts, bound, makespan_s)
    )
    lanes = _most_used(occupancy, by_name.values(), found)
    rows = [
        LimitParts(name[0], name[1], tuple(lanes[name]), shares.get(name, 0.0), found[name])
        for name in found
        if name in lanes
    ]
    rows.sort(key=lambda row: -row.parts.used_s)
    return Attribution(makespan_s, run, tuple(rows))


def _parts(occupancy: Occupancy, part: Resource, parts: Sequence[Resource]) -> Parts:
    used_s = occupancy.used_s(part)
    idle_s = occupancy.makespan_s - used_s
    reasons = occupancy.reasons(part, parts)
    whole = sum(reasons)
    # A rate that was used in bursts may have been used more than a bound asks for.
    scale = max(0.0, idle_s) / whole if whole > 0 else 0.0
    shares = Reasons(*(scale * reason for reason in reasons))
    return Parts(used_s, *shares, other_s=idle_s - sum(shares))


def _run(
    bound: Bound,
    shares: dict[_Name, float],
    found: dict[_Name, Parts],
    makespan_s: float,
    misrouted_s: float,
) -> Parts:
    mean = {
        name: sum(share * getattr(found[at], name) for at, share in shares.items())
        for name in Reasons._fields
    }
    other_s = makespan_s - bound.seconds - misrouted_s - sum(mean.values())
    return Parts(used_s=bound.seconds, **mean, misrouted_s=misrouted_s, other_s=other_s)


def _last_episode(
    occupancy: Occupancy, parts: Sequence[Resource], bound: Bound, makespan_s: float
) -> Parts:
    """Where the longest episode bounds, what counts is how the one that ended last fared."""
    waits = occupancy.last_episode(parts)
    excess_s = max(0.0, makespan_s - bound.seconds)
    scale = min(1.0, excess_s / whole) if (whole := sum(waits)) > 0 else 0.0
    waits = Reasons(*(scale * wait for wait in waits))
    rest_s = excess_s - sum(waits)
    return Parts(bound.seconds, *waits[:-1], tail_s=waits.tail_s + rest_s)


def _most_used(
    occupancy: Occupancy,
    parts: Iterable[Resource],
    found: dict[_Name, Parts],
) -> dict[_Name, list[str]]:
    lanes: dict[_Name, list[str]] = {}
    for lane in occupancy.busy_lanes():
        on = [(one.limit, one.kind) for one in parts if one.limit in lane.limits]
        on = [name for name in on if name in found]
        if on:
            lanes.setdefault(max(on, key=lambda name: found[name].used_s), []).append(lane.lane_id)
    return lanes


class Reasons(NamedTuple):
    """Seconds of idle capacity by why it was idle; see `attribution.Parts`."""

    rate_wait_s: float = 0.0
    seat_wait_s: float = 0.0
    backoff_s: float = 0.0
    rules_s: float = 0.0
    client_s: float = 0.0
    startup_s: float = 0.0
    tail_s: float = 0.0


_Flow = tuple[list[float], list[float]]
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
            own = RequestColumns(*(column[here] for column in columns))
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
        slices = list(self._slices(part))
        full = self._full_elsewhere(part, parts)
        opened = _first_full(slices, seats)
        total = [0.0] * len(Reasons._fields)
        for at, now in enumerate(slices):
            reasons = self._split(now, seats, starting=at < opened, full_elsewhere=full[at])
            for index, reason in enumerate(reasons):
                total[index] += reason
        return Reasons(*(amount * self._width_s / seats for amount in total))

    def last_episode(self, parts: Iterable[Resource]) -> Reasons:
        """What the measured episode that ended last waited for, from the run's first send on.

        Args:
            parts: All limits; what came before its first request is told by how full they were.
        """
        last = self._last_requests()
        if not last:
            return Reasons()
        first = last[0]
        waits = [
            (one.granted_s - max(one.asked_s, self._start_s), one.rate_share)
            for one in last
            if one is not first or not self._restricted
        ]
        pauses = [(one.asked_s - one.before_s, one.again) for one in last[1:]]
        own = Reasons(
            rate_wait_s=sum(wait_s * share for wait_s, share in waits if wait_s > 0),
            seat_wait_s=sum(wait_s * (1.0 - share) for wait_s, share in waits if wait_s > 0),
            backoff_s=sum(pause_s for pause_s, again in pauses if again),
            rules_s=max(0.0, first.granted_s - self._start_s) if self._restricted else 0.0,
            client_s=sum(one.sent_s - one.granted_s for one in last)
            + sum(pause_s for pause_s, again in pauses if not again),
        )
        if self._restricted:
            return own
        return Reasons(*map(sum, zip(own, self._before(first, parts), strict=True)))

    def _before(self, first: Request, parts: Iterable[Resource]) -> Reasons:
        """Why the first request of an episode was not asked for at the run's first send.

        It stood behind those of its model that waited then; where none did, and none of its limits
        was full, nobody kept the client from asking: workers were still starting.
        """
        lane = self._log.lanes[first.lane]
        full = self._full([part for part in parts if part.limit in lane.limits])
        rate, seat, *_ = self._models[lane.model].seconds
        rate_s = seat_s = client_s = startup_s = 0.0
        for at, is_full in enumerate(full):
            now_s = min(self._width_s, first.asked_s - self._start_s - at * self._width_s)
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

    def _last_requests(self) -> list[Request]:
        found: list[Request] = []
        episode: list[Request] = []
        for request in self._log:
            if request.first:
                episode = []
            if request.measured:
                episode.append(request)
                if not found or request.ended_s >= found[-1].ended_s:
                    found = episode
        return found

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
            flow = self._flows[part.limit] = (_sum(self._busy, on), _sum(self._held, on))
        return flow

    def _seats(self, part: Resource) -> float:
        """Requests in flight that the limit allows; for a rate by Little's law."""
        if not part.is_rate:
            return part.per_s
        services_s = [each for at in self._on(part) for each in self._services_s[at]]
        mean_s = sum(services_s) / len(services_s) if services_s else 0.0
        return part.per_s * max(mean_s, 1e-6)

    def _slices(self, part: Resource) -> Iterator[_Slice]:
        models = {self._log.lanes[at].model for at in self._on(part)} & self._models.keys()
        lanes = zip(*self._flow(part), strict=True)
        nobody = (array("d", bytes(8 * _SLICES)),) * _N_STATES
        others = [
            [sum(amounts) for amounts in zip(*column, strict=True)]
            for column in zip(nobody, *(self._models[name].seconds for name in models), strict=True)
        ]
        for (busy, held), *rest in zip(lanes, *others, strict=True):
            yield _Slice(*(amount / self._width_s for amount in (busy, held, *rest)))

    def _full_elsewhere(self, part: Resource, parts: Iterable[Resource]) -> list[bool]:
        """By slice, whether another limit on the path of the same lanes had no seat left."""
        own = {name for at in self._on(part) for name in self._log.lanes[at].limits}
        return self._full([one for one in parts if one != part and one.limit in own])

    def _full(self, parts: Iterable[Resource]) -> list[bool]:
        """By slice, whether one of some limits had no seat left."""
        found = [False] * _SLICES
        for other in parts:
            if other.is_rate:
                continue
            needed = _FULL * other.per_s * self._width_s
            for at, (busy, held) in enumerate(zip(*self._flow(other), strict=True)):
                found[at] |= busy + held >= needed
        return found

    def _split(self, now: _Slice, seats: float, *, starting: bool, full_elsewhere: bool) -> Reasons:
        """The idle seats of a slice, dealt to those who might have used them, nearest first."""
        idle = max(0.0, seats - now.busy)
        held = min(idle, now.held)
        idle -= held
        waiting = now.rate + now.seat
        # Episodes that are not opened yet stand behind those that wait.
        served = min(idle, waiting + (now.unopened if waiting > 0 else 0.0))
        rate = served * now.rate / waiting if waiting > 0 else 0.0
        seat = served - rate
        idle -= served
        backoff = min(idle, now.backoff)
        idle -= backoff
        between = min(idle, now.between)
        idle -= between
        fed = min(idle, now.unopened)
        tail = idle - fed
        client = held + between
        rules = startup = 0.0
        if self._restricted:
            rules = fed
        elif starting:
            startup = fed
        else:
            client += fed
        if not full_elsewhere:
            if self._restricted and now.busy + now.held < _FULL * seats:
                rules += seat
            else:
                # A seat of this very limit that is free and waited for is changing hands.
                client += seat
            seat = 0.0
        return Reasons(rate, seat, backoff, rules, client, startup, tail)


class _Slice(NamedTuple):
    """What was there in one slice, in requests (or episodes) at a time."""

    busy: float
    held: float
    rate: float
    seat: float
    backoff: float
    between: float
    unopened: float


_N_STATES = len(_Slice._fields) - 2
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
    def seconds(self) -> tuple[array[float], ...]:
        """By slice, in the order of `_Slice` from `rate` on."""
        bins = (self.rate, self.seat, self.backoff, self.between, self.unopened)
        return tuple(one.seconds() for one in bins)


def _sum(columns: Sequence[array[float]], on: Sequence[int]) -> list[float]:
    return [sum(amounts) for amounts in zip(*(columns[at] for at in on), strict=True)]


def _first_full(slices: Sequence[_Slice], seats: float) -> int:
    """The slice in which a limit was in full use for the first time, or else the fullest."""
    for at, now in enumerate(slices):
        if now.busy >= _FULL * seats or now.rate + now.seat > 0:
            return at
    return max(range(len(slices)), key=lambda at: slices[at].busy, default=0)


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
        import numpy as np  # noqa: PLC0415 - as in `requests`

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
        import numpy as np  # noqa: PLC0415 - as in `requests`

        begins, ends, weights = np.broadcast_arrays(from_s, until_s, weight)
        counts = ends > begins
        self._step(begins[counts], weights[counts])
        self._step(ends[counts], -weights[counts])

    def seconds(self) -> array[float]:
        """By slice, seconds times weight of all that was added."""
        steps = self._from_here.cumsum()[: self._n]
        return array("d", (self._in_slice[: self._n] + steps * self.width_s).tobytes())

    def _step(self, at_s: Floats, weights: Floats) -> None:
        import numpy as np  # noqa: PLC0415 - as above

        place = (at_s - self._start_s) / self.width_s
        inside = (place > 0) & (place < self._n)
        at = place[inside].astype(np.int64)
        parts = weights[inside] * (at + 1 - place[inside]) * self.width_s
        self._in_slice += np.bincount(at, parts, self._n + 1)
        self._from_here += np.bincount(at + 1, weights[inside], self._n + 2)
        self._from_here[0] += weights[place <= 0].sum()


_Offer = tuple[float, float]
"""What a second of a lane costs, and what a send costs."""


def misrouted_s(log: RequestLog, prices: Iterable[Price]) -> float:
    """Seconds of the makespan that the measured requests would have left to others, >= 0.

    A lane that only one model may use is cheap where that model has little to do; who takes a dear
    lane all the same makes those wait that have no other.
    """
    import numpy as np  # noqa: PLC0415 - as in `requests`

    seconds: dict[str, float] = {}
    sends: dict[str, float] = {}
    for price in prices:
        kind = sends if price.is_rate else seconds
        kind[price.limit] = kind.get(price.limit, 0.0) + price.price
    paid: list[_Offer] = [
        (
            sum(seconds.get(name, 0.0) for name in lane.limits),
            sum(sends.get(name, 0.0) for name in lane.limits),
        )
        for lane in log.lanes
    ]
    offers: dict[str, set[_Offer]] = {}
    for lane, offer in zip(log.lanes, paid, strict=True):
        offers.setdefault(lane.model, set()).add(offer)
    columns = log.columns()
    counts = columns.measured & columns.served
    total_s = 0.0
    for at in set(columns.lane[counts].tolist()):
        services_s = (columns.ended_s - columns.sent_s)[counts & (columns.lane == at)]
        second, send = paid[at]
        costs = [a * services_s + b for a, b in offers[log.lanes[at].model]]
        total_s += float((second * services_s + send - np.minimum.reduce(costs)).sum())
    return total_s
