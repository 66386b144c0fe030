"""What falls on each key and each limit of a pool, and which of them holds a run up most."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pytest_ultrapar.plan.demand import Kind, resources
from pytest_ultrapar.plan.forecast import LaneLoad
from pytest_ultrapar.pool.model import Level

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_ultrapar.pool.model import Lane, LaneId, Limit

_MINUTE_S = 60.0


@dataclass(frozen=True, slots=True)
class LimitLoad:
    """What falls on one number of one limit.

    Attributes:
        limit: Its name.
        level: Where in the pool it was declared.
        kind: Which of its numbers.
        allows: The number: seats, sends in 1 s or 60 s, or tokens in 60 s.
        requests: How many pass it.
        share: Of all requests of the run, 0 to 1.
        alone_s: Seconds that this limit would need for them if nothing else held them up:
            seconds of service / seats, requests / rate, or tokens / rate.
    """

    limit: str
    level: Level
    kind: Kind | Literal["tpm"]
    allows: float
    requests: int
    share: float
    alone_s: float

    @property
    def name(self) -> str:
        """For people, as in `ideallab/key0 (qps)`."""
        return f"{self.limit} ({self.kind})"


def limit_loads(
    lanes: Sequence[Lane], limits: Mapping[str, Limit], loads: Mapping[LaneId, LaneLoad]
) -> tuple[LimitLoad, ...]:
    """The load of every number of every limit that has any, that which needs longest first.

    Args:
        lanes: All of the run.
        limits: Those of the pool by name; whatever is on no lane's path has no load.
        loads: What each lane is going to answer, or answered.
    """
    whole = sum(load.requests for load in loads.values())
    passing: dict[str, LaneLoad] = defaultdict(LaneLoad)
    for lane in lanes:
        own = loads.get(lane.lane_id)
        for name in lane.limits if own is not None else ():
            assert own is not None
            passing[name].requests += own.requests
            passing[name].busy_s += own.busy_s
            passing[name].tokens += own.tokens
    found = []
    for part in resources(limits.values()):
        load = passing.get(part.limit)
        if load is not None:
            asked = load.requests if part.is_rate else load.busy_s
            found.append(
                LimitLoad(
                    part.limit,
                    limits[part.limit].level,
                    part.kind,
                    part.number,
                    load.requests,
                    load.requests / whole,
                    asked / part.per_s,
                )
            )
    for name, load in passing.items():
        tpm = limits[name].tpm
        if tpm is not None and load.tokens:
            share = load.requests / whole
            alone_s = load.tokens * _MINUTE_S / tpm
            level = limits[name].level
            found.append(LimitLoad(name, level, "tpm", tpm, load.requests, share, alone_s))
    return tuple(sorted(found, key=lambda one: -one.alone_s))


def longest(loads: Sequence[LimitLoad]) -> tuple[LimitLoad, ...]:
    """The limits that need longest, to 1 %; of loads in the order of `limit_loads`."""
    return tuple(one for one in loads if math.isclose(one.alone_s, loads[0].alone_s, rel_tol=0.01))


def binding(loads: Sequence[LimitLoad]) -> str:
    """The limit that needs longest, and how many need as long; `no limit` where none is loaded."""
    if not loads:
        return "no limit"
    top, alike = loads[0], len(longest(loads)) - 1
    return top.name + (f" and {alike} alike" if alike else "")


@dataclass(frozen=True, slots=True)
class KeyShare:
    """What falls on one key, over all its models and instances.

    Attributes:
        name: `provider/key`, all its names where the pool lists it more than once.
        requests: How many it is used for.
        share: Of all requests of the run, 0 to 1.
        busy_s: Seconds of their services together.
    """

    name: str
    requests: int
    share: float
    busy_s: float


def key_shares(lanes: Sequence[Lane], loads: Mapping[LaneId, LaneLoad]) -> tuple[KeyShare, ...]:
    """The load of each key, in the order of the pool file; keys without a request have zeros."""
    whole = sum(load.requests for load in loads.values())
    sums: dict[str, LaneLoad] = defaultdict(LaneLoad)
    for lane in lanes:
        key = sums[lane.key_name]
        own = loads.get(lane.lane_id)
        if own is not None:
            key.requests += own.requests
            key.busy_s += own.busy_s
    return tuple(
        KeyShare(name, load.requests, load.requests / whole if whole else 0.0, load.busy_s)
        for name, load in sums.items()
    )
