"""What a lower bound of a makespan is made of: classes of requests, resources, prices.

`lower_bound.py` finds the sharpest prices.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.pool.model import LIMIT_KINDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_ultrapar.pool.model import Lane, Limit


class RequestClass(msgspec.Struct, frozen=True):
    """Requests that are alike.

    Attributes:
        model: What they ask; any lane of that model may answer.
        service_s: No request of the class is served faster, >= 0.
        n: How many there are, >= 1.
    """

    model: str
    service_s: float
    n: int


class Resource(msgspec.Struct, frozen=True):
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
        return LIMIT_KINDS[self.kind].is_rate


def resources(limits: Iterable[Limit]) -> tuple[Resource, ...]:
    """All numbers that bind, in the order of the limits; tokens are not among them.

    Nor is what counts per day, as long as a run is over on its first: a bound that leaves something
    out is lower, and stays one.
    """
    found = []
    for limit in limits:
        for kind, amount in limit.rows:
            if not kind.is_rate:
                found.append(Resource(limit.name, kind.word, amount, amount))
            elif kind.is_spaced:
                # A rate below 1 lets one request go at once, too, and 2.5 per window lets 3.
                per_s, burst = amount / kind.window_s, math.ceil(amount)
                found.append(Resource(limit.name, kind.word, per_s, amount, burst))
    return tuple(found)


class LaneClass(msgspec.Struct, frozen=True):
    """Lanes of one model that differ in nothing but their names.

    Attributes:
        on: Indexes of the resource classes on their path, one for each of their resources: a class
            of which two are on the path stands there twice.
    """

    model: str
    on: tuple[int, ...]


class ResourceClass(msgspec.Struct, frozen=True):
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


class Price(msgspec.Struct, frozen=True):
    """What one resource costs.

    Attributes:
        limit: Name of the limit.
        kind: Its kind, by the word.
        price: Of a second of one seat, or of one send.
        share: Of the whole, 0 to 1: price x what the resource offers in a second.
    """

    limit: str
    kind: str
    price: float
    share: float

    @property
    def is_rate(self) -> bool:
        """Whether its price is that of a send."""
        return LIMIT_KINDS[self.kind].is_rate


class Bound(msgspec.Struct, frozen=True):
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


def spread(
    folded: Sequence[ResourceClass], seconds: float, shares: Sequence[float], longest_s: float
) -> Bound:
    """The bound that shares of folded resources prove, with the price of each of their members.

    Args:
        folded: From `fold`.
        seconds: What the shares prove.
        shares: Of the whole, one for each of `folded`.
        longest_s: As of `Bound`, and proof enough where it is the longer one.
    """
    if seconds <= longest_s:
        return Bound(longest_s, (), longest_s)
    prices = [
        Price(part.limit, part.kind, share / group.per_s, share * part.per_s / group.per_s)
        for group, share in zip(folded, shares, strict=True)
        for part in group.members
        if share > 0
    ]
    prices.sort(key=lambda price: -price.share)
    return Bound(seconds, tuple(prices), longest_s)


def given_away(
    at: int,
    lanes: Sequence[LaneClass],
    folded: Sequence[ResourceClass],
    requests: Sequence[RequestClass],
) -> float:
    """What a folded resource lets go beyond its pace; 0 for seats."""
    if not folded[at].is_rate:
        return 0.0
    users = {lane.model for lane in lanes if at in lane.on}
    return sum(given(one, requests, users) for one in folded[at].members)


def given(part: Resource, requests: Sequence[RequestClass], models: set[str]) -> float:
    """What a rate gives away: its burst, less what it cannot use before its last request's end."""
    shortest_s = min((own.service_s for own in requests if own.model in models), default=0.0)
    return part.burst - part.per_s * shortest_s
