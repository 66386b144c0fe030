"""Where the time of a run went: the bound, and what kept the run from it; pure.

A makespan is longer than its lower bound because something that a limit offers was not used. So the
run is cut into slices of equal length; in each, the seats of a limit that were idle are dealt to
those who might have used them: requests that waited for a rate or a seat, those that backed off,
episodes between two turns or not yet opened. Who stands nearest to being sent comes first. What
nobody could have used is the uneven end. The parts of the run are those of the limits that bind, by
their shares of the bound's prices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.analysis.plan.load import resources

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_ultrapar.analysis.occupancy import Occupancy
    from pytest_ultrapar.analysis.plan.load import Resource
    from pytest_ultrapar.analysis.requests import RequestLog
    from pytest_ultrapar.pool.model import Limit
    from pytest_ultrapar.store.bound import Bound


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


_REASONS = Parts.__struct_fields__[1:-2]
"""Those that `occupancy.Reasons` has."""


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
    from pytest_ultrapar.analysis.occupancy import Occupancy  # noqa: PLC0415 - with numpy

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
        _run(bound, shares, found) if shares else _last_episode(occupancy, parts, bound, makespan_s)
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
    shares = [scale * reason for reason in reasons]
    known = dict(zip(_REASONS, shares, strict=True))
    return Parts(used_s, **known, other_s=idle_s - sum(shares))


_ALIKE = 0.01
"""Of the bound: so much may be due to its classes, whose requests count with the shortest one."""


def _run(bound: Bound, shares: dict[_Name, float], found: dict[_Name, Parts]) -> Parts:
    """The mean of the limits that bind, by their shares.

    They were used for longer than the bound says where requests took a lane of higher prices than
    another one of their model: at these prices all of them together cost the bound at least.
    """
    mean = {
        name: sum(share * getattr(found[at], name) for at, share in shares.items())
        for name in ("used_s", *_REASONS, "other_s")
    }
    more_s = mean["used_s"] - bound.seconds
    mean["misrouted_s"] = more_s if more_s > _ALIKE * bound.seconds else 0.0
    mean["other_s"] += more_s - mean["misrouted_s"]
    return Parts(**{**mean, "used_s": bound.seconds})


def _last_episode(
    occupancy: Occupancy, parts: Sequence[Resource], bound: Bound, makespan_s: float
) -> Parts:
    """Where the longest episode bounds, what counts is how the one that ended last fared."""
    waits = occupancy.last_episode(parts)
    excess_s = max(0.0, makespan_s - bound.seconds)
    scale = min(1.0, excess_s / whole) if (whole := sum(waits)) > 0 else 0.0
    waits_s = [scale * wait for wait in waits]
    waits_s[-1] += excess_s - sum(waits_s)
    return Parts(bound.seconds, **dict(zip(_REASONS, waits_s, strict=True)))


def _most_used(
    occupancy: Occupancy, parts: Iterable[Resource], found: dict[_Name, Parts]
) -> dict[_Name, list[str]]:
    lanes: dict[_Name, list[str]] = {}
    for lane in occupancy.busy_lanes():
        on = [(one.limit, one.kind) for one in parts if one.limit in lane.limits]
        on = [name for name in on if name in found]
        if on:
            lanes.setdefault(max(on, key=lambda name: found[name].used_s), []).append(lane.lane_id)
    return lanes
