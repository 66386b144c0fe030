"""How a run spent its time, and why it took longer than its lower bound.

All functions are pure.

If a makespan is longer than its lower bound, some limit was not always fully used. To find out why,
this module cuts the run into slices of equal length. In each slice, it assigns the idle seats of a
limit to the requests and episodes that could have used them. These are requests that waited for a
rate or a seat, requests in back-off, and episodes between two turns or before their start. The
seats go first to those that were closest to being sent. Any seats that remain are attributed to the
end of the run, when too few episodes are left. For the whole run, each part is the mean of that
part over the binding limits, weighted by each limit's share of the bound.
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
"""The name of a limit, and the kind of one of its maximums, such as `qps`."""


class Parts(msgspec.Struct, frozen=True):
    """The parts of a makespan, in seconds. They add up to the makespan.

    Attributes:
        used_s: How long the requests would have taken if the limit had always been fully used. For
            a run, this is the bound.
        rate_wait_s: Idle time while requests waited because of a rate limit or a pause.
        seat_wait_s: Idle time while requests waited for a seat in another limit that applied to
            them.
        backoff_s: Idle time while requests waited before their next attempt.
        rules_s: Idle time while rules of the mode or the assignment kept episodes from starting on
            this limit's lanes.
        client_s: Idle time while the client delayed requests or episodes: leases were in transit,
            requests were about to be sent, or episodes were between two turns.
        startup_s: Idle time before the limit was fully used for the first time.
        tail_s: Idle time because too few episodes were left.
        misrouted_s: The time used by requests that could have been served by another lane, whose
            limits have lower prices in the bound. These requests delayed others that had no
            alternative lane. Only a whole run has this part. For a single limit it is 0, because
            the limit's `used_s` includes this time. In files, the field is named `detour_s`.
        other_s: The remainder. It exists because the bound treats requests with nearly the same
            service time as equal.
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
"""The names of the parts that `occupancy.Reasons` also contains."""


class LimitParts(msgspec.Struct, frozen=True):
    """How the makespan splits up, judged by one maximum of one limit, such as its `qps`.

    The parts are computed over all lanes of the limit. `Attribution.limits` contains the limit only
    if, on at least one lane, it is the most used limit.

    Attributes:
        limit: The limit's name.
        kind: `workers`, `qps` or `rpm`.
        lanes: The ids of the lanes on which this was the most used limit.
        share: The limit's share of the bound, from 0 to 1. It is 0 if the limit is not binding.
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
        limits: The parts for each limit that is the most used limit on at least one lane. The
            limits are in descending order of use.
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
        log: All requests in the run. Only those that the makespan includes are used.
        limits: The limits that apply to the log's lanes.
        bound: The bound from `run_bound`.
        start_s: The time of the first send, in seconds on the monotonic clock.
        end_s: The time when the last episode ended, on the same clock; later than `start_s`.
        restricted: Whether assignment rules may have prevented episodes from using free lanes.
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
"""Use of the limits beyond the bound is not counted as misrouted if it is at most this share of the
bound. Such small differences arise because the bound groups requests into classes and uses the
shortest time in each class."""


def _run(bound: Bound, shares: dict[_Name, float], found: dict[_Name, Parts]) -> Parts:
    """Return the parts for the whole run: the weighted mean of the binding limits' parts.

    The weights are the limits' shares of the bound. Each binding limit has a price in the bound. At
    these prices, all requests together cost at least the bound. If requests took a lane although
    another lane of their model had lower prices, they cost more. The binding limits were then in
    use for longer than the bound.
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
    """Return the parts if the longest episode is the bound: how the last episode waited."""
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
