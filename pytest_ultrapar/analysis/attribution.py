"""How a run spent its time, and why it took longer than its lower bound.

All functions are pure.

If a makespan is longer than its lower bound, some limit was not always fully used. To find out why,
this module cuts the run into slices of equal length. In each slice, it assigns the idle seats of a
limit to the requests and episodes that could have used them. These are requests that waited for a
rate or a seat, requests in back-off, and episodes between two turns or before their start. The ones
that were closest to being sent come first. Any seats that are still idle are attributed to the end
of the run, when too few episodes are left. The parts of the whole run are the mean of the binding
limits' parts, weighted by each limit's share of the bound.
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
    from pytest_ultrapar.store.lower_bound import Bound


_Name = tuple[str, str]
"""A limit's name, and the kind of one of its numbers, such as `qps`."""


class Parts(msgspec.Struct, frozen=True):
    """The parts of a makespan, in seconds. They add up to the makespan.

    Attributes:
        used_s: How long the requests would have taken if the limit had always been fully used. For
            a run, this is the bound.
        rate_wait_s: Idle time while requests waited because of a rate or a pause.
        seat_wait_s: Idle time while requests waited for a seat of another limit on their path.
        backoff_s: Idle time while requests waited before their next attempt.
        rules_s: Idle time while rules of the mode or the assignment kept episodes from starting on
            this limit's lanes.
        client_s: Idle time while the client delayed requests or episodes: leases were in transit,
            requests were about to be sent, or episodes were between two turns.
        startup_s: Idle time before the limit was fully used for the first time.
        tail_s: Idle time because too few episodes were left.
        misrouted_s: The time used by requests that a lane with lower prices could have served.
            These requests delayed others that had no alternative lane. Only a run has this part;
            for a limit it is 0, because `used_s` includes the time. In files, the field is named
            `detour_s`.
        other_s: The remainder. It exists because the bound treats requests of nearly the same
            length as equal.
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
"""The parts that `occupancy.Reasons` contains."""


class LimitParts(msgspec.Struct, frozen=True):
    """How the makespan splits up under one number of one limit, such as its `qps`.

    The parts are computed over all lanes of the limit. `Attribution.limits` contains the limit only
    if it is the most used one of some lane.

    Attributes:
        limit: The limit's name.
        kind: `workers`, `qps` or `rpm`.
        lanes: The ids of the lanes on which this limit was the most used one.
        share: The limit's share of the bound, from 0 to 1. It is 0 if the limit does not bind.
    """

    limit: str
    kind: str
    lanes: tuple[str, ...]
    share: float
    parts: Parts


class Attribution(msgspec.Struct, frozen=True):
    """How a run's makespan splits up, for the whole run and for each limit.

    Attributes:
        run: The parts for the whole run.
        limits: The parts for each limit that is the most used one of some lane. The most used limit
            comes first.
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
    """Split the makespan from `start_s` to `end_s` into its parts.

    Args:
        log: All requests of the run; only the measured ones are used.
        limits: The limits of the log's lanes.
        bound: The bound from `run_bound`.
        start_s: The time of the first send, in monotonic seconds.
        end_s: When the last episode ended, in monotonic seconds; later than `start_s`.
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
    # Scale the reasons, because they may not add up to the idle time. For example, a rate that was
    # used in bursts may have been in use for longer than the bound requires.
    scale = max(0.0, idle_s) / whole if whole > 0 else 0.0
    shares = [scale * reason for reason in reasons]
    known = dict(zip(_REASONS, shares, strict=True))
    return Parts(used_s, **known, other_s=idle_s - sum(shares))


_ALIKE = 0.01
"""A difference up to this share of the bound is not counted as misrouted. The bound groups requests
in classes and uses the shortest time of each class, and this causes small differences."""


def _run(bound: Bound, shares: dict[_Name, float], found: dict[_Name, Parts]) -> Parts:
    """Return the parts for the whole run: the binding limits' mean, weighted by their shares.

    If requests took a lane although another lane of their model had lower prices, these limits were
    in use for longer than the bound. At these prices, all requests together cost at least the
    bound.
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
    """Return the parts if the longest episode sets the bound: the waits of the last episode."""
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
