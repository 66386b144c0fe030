"""What a run asks of a pool: requests in classes, and the resources on which they fall."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_ultrapar.pool.model import Lane, Limit

Kind = Literal["workers", "qps", "rpm"]

BUCKET = 1.01
"""Requests of one model whose service times lie within this factor form a class. A class counts
with its shortest time, so the bound stays one; it loses half of the factor, 0.5 %, on average, and
only where seats bind."""

_WINDOW_S: dict[Kind, float] = {"qps": 1.0, "rpm": 60.0}


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
        kind: Which of its numbers.
        per_s: Seats, or requests per second, > 0.
        number: As the limit declares it, per window.
        burst: Requests that a rate may let go on top: any window holds its number at most, rounded
            up, and so may the first moment.
    """

    limit: str
    kind: Kind
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
    """All numbers that bind, in the order of the limits."""
    found = []
    for limit in limits:
        if limit.workers is not None:
            found.append(Resource(limit.name, "workers", limit.workers, limit.workers))
        for kind in ("qps", "rpm"):
            rate = limit.qps if kind == "qps" else limit.rpm
            if rate is not None:
                # A rate below 1 lets one request go at once, too, and 2.5 per window lets 3.
                per_s, burst = rate / _WINDOW_S[kind], math.ceil(rate)
                found.append(Resource(limit.name, kind, per_s, rate, burst))
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
