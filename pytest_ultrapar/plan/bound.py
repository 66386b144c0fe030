"""How fast a run could have been at best: a lower bound of its makespan that anybody can check."""

from __future__ import annotations

import math
import operator
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_ultrapar.pool.model import Lane, Limit


BUCKET = 1.01
"""Requests of one model whose service times lie within this factor form a class. A class counts
with its shortest time, so the bound stays one; it loses half of the factor, 0.5 %, on average, and
only where seats bind."""


@dataclass(frozen=True, slots=True)
class RequestClass:
    """Requests that are alike.

    Attributes:
        model: What they ask; any lane of that model may answer.
        service_s: No request of the class is served faster, >= 0.
        n: How many there are, >= 1.
    """

    model: str
    service_s: float
    n: int


@dataclass(frozen=True, slots=True)
class Resource:
    """One number of one limit, as a bound on what can pass in `T` seconds.

    In `T` seconds `workers` seats hold `workers x T` seconds of service; a rate lets
    `per_s x T + burst` requests go.

    Attributes:
        limit: Name of the limit.
        kind: Which of its numbers, by its word.
        per_s: Seats, or requests per second, > 0.
        number: As the limit declares it, per window.
        burst: Requests that a rate may let go on top: any window holds its number at most, rounded
            up, and so may the first moment.
    """

    limit: str
    kind: str
    per_s: float
    number: float
    burst: float = 0.0

    @property
    def is_rate(self) -> bool:
        """Whether a request counts once, and not with its service time."""
        return self.kind != "workers"


def request_classes(services: Mapping[str, Iterable[float]]) -> tuple[RequestClass, ...]:
    """Sort requests into classes.

    Args:
        services: For each model the service times of its requests, in seconds, without waiting.

    Returns:
        Models in the order given, each from short to long.
    """
    classes = []
    for model, times in services.items():
        shortest: dict[int, float] = {}
        sizes: Counter[int] = Counter()
        for time_s in times:
            bucket = math.floor(math.log(time_s, BUCKET)) if time_s > 0 else -(10**9)
            shortest[bucket] = min(time_s, shortest.get(bucket, math.inf))
            sizes[bucket] += 1
        classes += [RequestClass(model, shortest[at], sizes[at]) for at in sorted(sizes)]
    return tuple(classes)


def resources(limits: Iterable[Limit]) -> tuple[Resource, ...]:
    """All numbers that bind, in the order of the limits; tokens are not among them.

    Nor is what counts per day, as long as a run is over on its first: a bound that leaves something
    out is lower, and stays one.
    """
    found = []
    for limit in limits:
        for kind, amount in limit.rows:
            if not kind.window_s:
                found.append(Resource(limit.name, kind.word, amount, amount))
            elif kind.is_spaced:
                # A rate below 1 lets one request go at once, too, and 2.5 per window lets 3.
                per_s, burst = amount / kind.window_s, math.ceil(amount)
                found.append(Resource(limit.name, kind.word, per_s, amount, burst))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class LaneClass:
    """Lanes of one model that differ in nothing but their names.

    Attributes:
        on: Indexes of the resource classes on their path.
    """

    model: str
    on: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ResourceClass:
    """Resources that differ in nothing but their names; they have the same price."""

    members: tuple[Resource, ...]

    @property
    def per_s(self) -> float:
        """Of all members together."""
        return sum(member.per_s for member in self.members)

    @property
    def is_rate(self) -> bool:
        """As of each member."""
        return self.members[0].is_rate


def fold(
    lanes: Sequence[Lane], parts: Sequence[Resource]
) -> tuple[tuple[LaneClass, ...], tuple[ResourceClass, ...]]:
    """Fold lanes and resources that are interchangeable.

    Colour refinement: start with what each is, and tell apart whatever meets different colours,
    until nothing changes. Prices that are equal within a colour lose nothing against any others,
    since the mean of optimal prices over a symmetry is optimal too. 300 lanes of 3 models become 3.

    Source: Grohe et al., "Dimension reduction via colour refinement" (2014), for linear programs.
    """
    on = [[i for i, part in enumerate(parts) if part.limit in lane.limits] for lane in lanes]
    users: dict[int, list[int]] = defaultdict(list)
    for number, path in enumerate(on):
        for part in path:
            users[part].append(number)
    lane_colours = _renumbered([lane.model for lane in lanes])
    part_colours = _renumbered([(part.kind, part.per_s, part.burst) for part in parts])
    while True:
        n_colours = len({*lane_colours}), len({*part_colours})
        lane_colours = _renumbered(
            [
                (own, tuple(sorted(part_colours[part] for part in path)))
                for own, path in zip(lane_colours, on, strict=True)
            ]
        )
        part_colours = _renumbered(
            [
                (own, tuple(sorted(lane_colours[lane] for lane in users[part])))
                for part, own in enumerate(part_colours)
            ]
        )
        if n_colours == (len({*lane_colours}), len({*part_colours})):
            break
    members: dict[int, list[Resource]] = defaultdict(list)
    for own, colour in zip(parts, part_colours, strict=True):
        members[colour].append(own)
    first = {colour: number for number, colour in reversed([*enumerate(lane_colours)])}
    return (
        tuple(
            LaneClass(lanes[number].model, tuple(part_colours[part] for part in on[number]))
            for _, number in sorted(first.items())
        ),
        tuple(ResourceClass(tuple(members[colour])) for colour in sorted(members)),
    )


def _renumbered(signatures: Sequence[object]) -> list[int]:
    """A number for each distinct signature, in the order of their first appearance."""
    numbers: dict[object, int] = {}
    return [numbers.setdefault(signature, len(numbers)) for signature in signatures]


MOST_STEPS = 2000
"""Price changes at most; few pools need more than 500."""
ENOUGH = 0.995
"""Stop when the bound is at least this share of what splitting all requests at will would take,
which is no less than the linear program's optimum."""
_LOOK_EVERY = 10
_FORGET_AFTER = 50
_MOST_LANES_SEEN = 240_000
"""Lanes x price changes: half a second. 300 lanes that all differ get 800 changes."""
_Priced = dict[tuple[str, str], float]
_Path = tuple[int, ...]
_Prices = Callable[[Sequence[float]], tuple[float, ...]]
_Offer = tuple[float, float, _Path]
"""What a lane takes for a send, and for a second, and the resources on its path."""


@dataclass(frozen=True, slots=True)
class Price:
    """What one resource costs.

    Attributes:
        limit: Name of the limit.
        kind: `workers`, `qps` or `rpm`.
        price: Of a second of one seat, or of one send.
        share: Of the whole, 0 to 1: price x what the resource offers in a second.
    """

    limit: str
    kind: str
    price: float
    share: float


@dataclass(frozen=True, slots=True)
class Bound:
    """A lower bound of the makespan.

    Attributes:
        seconds: No schedule that keeps the limits is shorter, >= 0.
        prices: The certificate, dearest share first; empty when the longest episode bounds.
        longest_s: The longest episode alone.
    """

    seconds: float
    prices: tuple[Price, ...]
    longest_s: float

    @property
    def binding(self) -> str:
        """What bounds, as in `ideallab/key0 (qps)`; `longest episode` when no limit does."""
        if not self.prices:
            return "longest episode"
        top, n_more = self.prices[0], len(self.alike) - 1
        return f"{top.limit} ({top.kind})" + (f" and {n_more} alike" if n_more else "")

    @property
    def alike(self) -> tuple[Price, ...]:
        """The prices with the dearest share; none where the longest episode bounds."""
        return tuple(one for one in self.prices if math.isclose(one.share, self.prices[0].share))


def lower_bound(
    lanes: Sequence[Lane],
    limits: Iterable[Limit],
    requests: Sequence[RequestClass],
    *,
    longest_s: float = 0.0,
) -> Bound:
    """The sharpest bound found within `MOST_STEPS` changes of prices.

    Args:
        lanes: All that the run may use.
        limits: Those on the lanes' paths; others are left out.
        requests: What has to be answered.
        longest_s: The services of the longest episode, whose turns cannot overlap, in seconds.

    Raises:
        ValueError: A request's model has no lane.

    Source: dual of the linear program of scheduling under limits; multiplicative weights as in
    Plotkin, Shmoys and Tardos, "Fast approximation algorithms for fractional packing" (1995).
    """
    named = {name for lane in lanes for name in lane.limits}
    parts = resources(limit for limit in limits if limit.name in named)
    missing = {own.model for own in requests} - {lane.model for lane in lanes}
    if missing:
        msg = f"no lane answers for {', '.join(sorted(missing))}"
        raise ValueError(msg)
    folded_lanes, folded = fold(lanes, parts)
    best_s, shares = _Market(folded_lanes, folded, requests).settle()
    if best_s <= longest_s:
        return Bound(longest_s, (), longest_s)
    prices = [
        Price(part.limit, part.kind, share / group.per_s, share * part.per_s / group.per_s)
        for group, share in zip(folded, shares, strict=True)
        for part in group.members
        if share > 0
    ]
    prices.sort(key=lambda price: -price.share)
    return Bound(best_s, tuple(prices), longest_s)


def certify(
    lanes: Sequence[Lane],
    limits: Iterable[Limit],
    requests: Sequence[RequestClass],
    prices: Iterable[Price],
) -> float:
    """The seconds that a price list proves, worked out lane by lane without any folding.

    Args:
        lanes: As for `lower_bound`.
        limits: As for `lower_bound`.
        requests: As for `lower_bound`.
        prices: Any, >= 0; those that cost more than 1 together are scaled down.
    """
    parts = resources(limits)
    priced: _Priced = {(one.limit, one.kind): one.price for one in prices}
    whole = sum(priced.get((part.limit, part.kind), 0.0) * part.per_s for part in parts)
    if whole <= 0:
        return 0.0
    proven = 0.0
    for own in requests:
        proven += own.n * min(
            sum(
                priced.get((part.limit, part.kind), 0.0) * (1.0 if part.is_rate else own.service_s)
                for part in parts
                if part.limit in lane.limits
            )
            for lane in lanes
            if lane.model == own.model
        )
    for part in parts:
        if part.is_rate:
            users = {lane.model for lane in lanes if part.limit in lane.limits}
            proven -= priced.get((part.limit, part.kind), 0.0) * _given(part, requests, users)
    return max(0.0, proven / whole)


def _given(part: Resource, requests: Sequence[RequestClass], models: set[str]) -> float:
    """What a rate gives away: its burst, less what it cannot use before its last request's end."""
    shortest_s = min((own.service_s for own in requests if own.model in models), default=0.0)
    return part.burst - part.per_s * shortest_s


class _Market:
    """Folded lanes and resources, and requests that buy from the cheapest."""

    def __init__(
        self,
        lanes: Sequence[LaneClass],
        parts: Sequence[ResourceClass],
        requests: Sequence[RequestClass],
    ) -> None:
        self._per_s = [part.per_s for part in parts]
        self._is_rate = [part.is_rate for part in parts]
        self._n_lanes = len(lanes)
        self._lanes: dict[str, list[tuple[_Prices, _Prices, _Path]]] = {}
        for lane in lanes:
            rates = _prices_of(at for at in lane.on if parts[at].is_rate)
            seats = _prices_of(at for at in lane.on if not parts[at].is_rate)
            self._lanes.setdefault(lane.model, []).append((rates, seats, lane.on))
        self._asked = {model: _Asked(model, requests) for model in {own.model for own in requests}}
        self._given = [0.0] * len(parts)
        for index, part in enumerate(parts):
            if part.is_rate:
                users = {lane.model for lane in lanes if index in lane.on}
                self._given[index] = sum(_given(one, requests, users) for one in part.members)

    def settle(self) -> tuple[float, list[float]]:
        """The best bound met, and the shares that prove it; they sum to 1.

        Prices of what is asked too much for rise, all others fall. The mean of recent prices is
        tried as well: it settles where single steps go to and fro.
        """
        n = len(self._per_s)
        best, proof = 0.0, [0.0] * n
        if not n:
            return best, proof
        logs = [0.0] * n
        paid, used, since = [0.0] * n, [0.0] * n, 0
        for step in range(1, min(MOST_STEPS, _MOST_LANES_SEEN // self._n_lanes) + 1):
            shares = _shares(logs)
            found, loads = self._visit(shares)
            paid = list(map(operator.add, paid, shares))
            used = list(map(operator.add, used, loads))
            if found > best:
                best, proof = found, shares
            if step % _LOOK_EVERY == 0:
                mean = [value / (step - since) for value in paid]
                found, _ = self._visit(mean)
                if found > best:
                    best, proof = found, mean
                # Requests split over the lanes that they bought of late: a fractional schedule.
                if best >= ENOUGH * max(used) / (step - since):
                    break
                if step >= 2 * since + _FORGET_AFTER:
                    # Early steps are far off, and in a mean over all of them they weigh for ever.
                    paid, used, since = [0.0] * n, [0.0] * n, step
            spread = max(map(abs, loads)) or 1.0
            rate = 2.0 / math.sqrt(step)
            logs = [value + rate * load / spread for value, load in zip(logs, loads, strict=True)]
        return best, proof

    def _visit(self, shares: Sequence[float]) -> tuple[float, list[float]]:
        """The bound at these shares, and the seconds that each resource would be busy."""
        per_s, is_rate = self._per_s, self._is_rate
        prices = list(map(operator.truediv, shares, per_s))
        proven = -sum(price * given for price, given in zip(prices, self._given, strict=True))
        busy = [-given for given in self._given]
        priced = (*prices, 0.0)
        for model, asked in self._asked.items():
            offers = _cheapest(
                [
                    (sum(rates(priced)), sum(seats(priced)), on)
                    for rates, seats, on in self._lanes[model]
                ]
            )
            for (send, second, on), (n, seconds) in zip(offers, asked.split(offers), strict=True):
                proven += n * send + seconds * second
                for at in on:
                    busy[at] += n if is_rate[at] else seconds
        return proven, list(map(operator.truediv, busy, per_s))


def _prices_of(places: Iterable[int]) -> _Prices:
    """What picks the prices at these places, and two of the zero that stands at the end."""
    return operator.itemgetter(*places, -1, -1)  # two, so that it gives a tuple always


class _Asked:
    """All requests of one model, from short to long, in sums."""

    def __init__(self, model: str, requests: Iterable[RequestClass]) -> None:
        own = sorted((one.service_s, one.n) for one in requests if one.model == model)
        self._services_s = [service_s for service_s, _ in own]
        self._n = [0, *accumulate(n for _, n in own)]
        self._seconds = [0.0, *accumulate(service_s * n for service_s, n in own)]

    def split(self, offers: Sequence[_Offer]) -> list[tuple[int, float]]:
        """How many requests, and seconds, are cheapest with each of `_cheapest` offers."""
        ends = [bisect_left(self._services_s, _meet(*pair)) for pair in pairwise(offers)]
        places = [0, *ends, len(self._services_s)]
        return [
            (self._n[end] - self._n[begin], self._seconds[end] - self._seconds[begin])
            for begin, end in pairwise(places)
        ]


def _cheapest(offers: Iterable[_Offer]) -> list[_Offer]:
    """The offers that are the cheapest for some service time, those for short ones first.

    They are the lower envelope of lines: what an offer costs by the service time.
    """
    kept: list[_Offer] = []
    for offer in sorted(offers):
        if kept and offer[1] >= kept[-1][1]:
            continue  # an earlier one costs no more for any service
        while len(kept) > 1 and _meet(kept[-2], offer) <= _meet(kept[-2], kept[-1]):
            kept.pop()
        kept.append(offer)
    return kept


def _meet(early: _Offer, late: _Offer) -> float:
    """The service time from which on the later offer is the cheaper one."""
    return (late[0] - early[0]) / (early[1] - late[1])


def _shares(logs: Sequence[float]) -> list[float]:
    """Positive numbers in these proportions, given by their logarithms, that sum to 1."""
    highest = max(logs)
    raw = [math.exp(value - highest) for value in logs]
    whole = sum(raw)
    return [value / whole for value in raw]
