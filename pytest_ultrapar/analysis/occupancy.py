"""How a run's lanes were used over time, and why they were idle. All functions are pure.

This module needs numpy, so only compactions import it.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from pytest_ultrapar.analysis.plan.load import Resource
    from pytest_ultrapar.analysis.requests import RequestColumns, RequestLog
    from pytest_ultrapar.pool.model import Lane

    Floats = NDArray[np.float64]


_SLICES = 1000
_FULL = 0.9
"""A limit counts as full if at least this share of its seats is taken. A share of 1 would never be
reached, because some seats are always being handed from one request to the next."""


class Reasons(NamedTuple):
    """Seconds of idle capacity by reason; see `attribution.Parts`."""

    rate_wait_s: float = 0.0
    seat_wait_s: float = 0.0
    backoff_s: float = 0.0
    rules_s: float = 0.0
    client_s: float = 0.0
    startup_s: float = 0.0
    tail_s: float = 0.0


class _OnLimit(NamedTuple):
    """The measured requests on the lanes to which a limit applies.

    Attributes:
        models: The models on these lanes, except for models without measured requests.
        services_s: How long each served request took, in seconds.
        busy: For each slice, the total time for which requests were in flight, in seconds.
        held: For each slice, the total time for which requests had a lease but were not yet sent,
            in seconds.
    """

    models: tuple[str, ...]
    services_s: Floats
    busy: Floats
    held: Floats


class Occupancy:
    """How the measured requests of a run fill the slices of its makespan.

    A request is measured if the makespan includes it.

    Args:
        log: All requests in the run.
        start_s: The time of the first send, in seconds on the monotonic clock.
        end_s: The time when the last episode ended, on the same clock; later than `start_s`.
        restricted: Whether assignment rules may have prevented episodes from using free lanes.
    """

    def __init__(self, log: RequestLog, *, start_s: float, end_s: float, restricted: bool) -> None:
        self.makespan_s = end_s - start_s
        self._width_s = self.makespan_s / _SLICES
        self._start_s = start_s
        self._end_s = end_s
        self._restricted = restricted
        self._lanes = log.lanes
        self._columns = log.columns()
        measured = self._columns.of(self._columns.measured)
        self._served_on = frozenset(measured.lane[measured.served].tolist())
        lanes_of: dict[str, list[int]] = defaultdict(list)
        lanes_for: dict[str, list[int]] = defaultdict(list)
        for at, lane in enumerate(log.lanes):
            lanes_for[lane.model].append(at)
            for name in lane.limits:
                lanes_of[name].append(at)
        asked = ((model, measured.on(lanes)) for model, lanes in lanes_for.items())
        self._models = {model: self._states(own) for model, own in asked if len(own.lane)}
        self._limits = {name: self._on_limit(measured, lanes) for name, lanes in lanes_of.items()}

    def _on_limit(self, measured: RequestColumns, lanes: Sequence[int]) -> _OnLimit:
        own = measured.on(lanes)
        return _OnLimit(
            tuple(sorted({self._lanes[at].model for at in lanes} & self._models.keys())),
            (own.ended_s - own.sent_s)[own.served],
            self._by_slice(own.sent_s, own.ended_s),
            self._by_slice(own.granted_s, own.sent_s),
        )

    def _states(self, own: RequestColumns) -> Floats:
        """Return how long a model's requests and episodes were in each state without a lease.

        There is a row for each state, in the order of the fields in `_Slices`, beginning with
        `rate`. A row contains the seconds spent in this state in each slice.
        """
        again, between = ~own.first & own.again, ~own.first & ~own.again
        return np.array(
            [
                self._by_slice(own.asked_s, own.granted_s, own.rate_share),
                self._by_slice(own.asked_s, own.granted_s, 1.0 - own.rate_share),
                self._by_slice(own.before_s[again], own.asked_s[again]),
                self._by_slice(own.before_s[between], own.asked_s[between]),
                self._by_slice(self._start_s, own.asked_s[own.first]),
            ]
        )

    def _by_slice(
        self, from_s: float | Floats, until_s: Floats, weight: float | Floats = 1.0
    ) -> Floats:
        return seconds_by_slice(
            from_s, until_s, weight, start_s=self._start_s, end_s=self._end_s, n=_SLICES
        )

    def n_requests(self, part: Resource) -> int:
        """Count the measured requests that were served on the lanes of a limit."""
        own = self._limits.get(part.limit)
        return 0 if own is None else len(own.services_s)

    def used_s(self, part: Resource) -> float:
        """Return how long the requests take if the limit is always full, as in the bound; >= 0."""
        services_s = self._limits[part.limit].services_s
        if not part.is_rate:
            return float(services_s.sum()) / part.per_s
        shortest_s = float(services_s.min()) if len(services_s) else 0.0
        return max(0.0, (len(services_s) - part.burst) / part.per_s + shortest_s)

    def busy_lanes(self) -> Iterator[Lane]:
        """Yield the lanes on which a measured request was served."""
        return (lane for at, lane in enumerate(self._lanes) if at in self._served_on)

    def reasons(self, part: Resource, parts: Iterable[Resource]) -> Reasons:
        """Return how long a limit was idle for each reason: idle seat-seconds / seats."""
        own = self._limits[part.limit]
        seats = self._seats(part)
        states = sum((self._models[name] for name in own.models), np.zeros((_N_STATES, _SLICES)))
        slices = _Slices(*np.vstack([own.busy, own.held, states]) / self._width_s)
        starting = np.arange(_SLICES) < _first_full(slices, seats)
        beside = {name for lane in self._lanes if part.limit in lane.limits for name in lane.limits}
        full = self._full(one for one in parts if one != part and one.limit in beside)
        reasons = self._split(slices, seats, starting=starting, full_elsewhere=full)
        return Reasons(*(float(each.sum()) * self._width_s / seats for each in reasons))

    def last_episode(self, parts: Iterable[Resource]) -> Reasons:
        """Return how the measured episode that ended last waited after the run's first send.

        Args:
            parts: All limits; their load explains the time before the episode's first request.
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
        """Return why the first request of an episode was not sent at the very beginning of the run.

        While other requests of its model were waiting, it was queued behind them. While none was
        waiting and no limit that applied to it was full, the workers were still starting.
        """
        lane = self._lanes[last.lane[0]]
        full = self._full(part for part in parts if part.limit in lane.limits)
        rate, seat, *_ = self._models[lane.model]
        since_s = last.asked_s[0] - self._start_s - np.arange(_SLICES) * self._width_s
        now_s = np.clip(since_s, 0.0, self._width_s)
        waiting = rate + seat
        for_rate_s = now_s * _share(rate, waiting)
        rest_s = now_s - for_rate_s
        return Reasons(
            rate_wait_s=float(for_rate_s.sum()),
            seat_wait_s=float(rest_s[full].sum()),
            client_s=float(rest_s[~full & (waiting > 0)].sum()),
            startup_s=float(rest_s[~full & (waiting <= 0)].sum()),
        )

    def _last_requests(self) -> RequestColumns | None:
        """Return the requests of the measured episode that ended last."""
        columns = self._columns
        if not columns.measured.any():
            return None
        ended_s = np.where(columns.measured, columns.ended_s, -np.inf)
        episode = np.cumsum(columns.first)
        # If several requests end at the same time, take the last of them.
        at = len(ended_s) - 1 - int(ended_s[::-1].argmax())
        return columns.of(columns.measured & (episode == episode[at]))

    def _seats(self, part: Resource) -> float:
        """Return how many requests the limit allows in flight. For a rate, use Little's law."""
        if not part.is_rate:
            return part.per_s
        services_s = self._limits[part.limit].services_s
        mean_s = float(services_s.mean()) if len(services_s) else 0.0
        return part.per_s * max(mean_s, 1e-6)

    def _full(self, parts: Iterable[Resource]) -> NDArray[np.bool_]:
        """Return for each slice whether the seats of any of these limits were full; see `_FULL`."""
        found = np.zeros(_SLICES, dtype=bool)
        for other in parts:
            if not other.is_rate:
                own = self._limits[other.limit]
                found |= own.busy + own.held >= _FULL * other.per_s * self._width_s
        return found

    def _split(
        self,
        now: _Slices,
        seats: float,
        *,
        starting: NDArray[np.bool_],
        full_elsewhere: NDArray[np.bool_],
    ) -> tuple[Floats, ...]:
        """Assign each slice's idle seats to possible users; those closest to being sent come first.

        The result is in the order of `Reasons`.
        """
        waiting = now.rate + now.seat
        # Episodes that have not started come after the waiting requests.
        in_line = np.where(waiting > 0, waiting + now.unopened, 0.0)
        idle = np.maximum(0.0, seats - now.busy)
        dealt = []
        for wanted in (now.held, in_line, now.backoff, now.between, now.unopened):
            dealt.append(np.minimum(idle, wanted))
            idle = idle - dealt[-1]
        held, served, backoff, between, fed = dealt
        rate = served * _share(now.rate, waiting)
        seat = served - rate
        client = held + between
        rules = startup = np.zeros(_SLICES)
        # If a request waits although this limit has a free seat, the seat is being handed over to
        # it.
        ours = np.where(full_elsewhere, 0.0, seat)
        if self._restricted:
            kept_free = now.busy + now.held < _FULL * seats
            rules = fed + np.where(kept_free, ours, 0.0)
            client = client + np.where(kept_free, 0.0, ours)
        else:
            startup = np.where(starting, fed, 0.0)
            client = client + np.where(starting, 0.0, fed) + ours
        return rate, seat - ours, backoff, rules, client, startup, idle


class _Slices(NamedTuple):
    """For each slice, the mean number of requests or episodes in each state."""

    busy: Floats
    held: Floats
    rate: Floats
    seat: Floats
    backoff: Floats
    between: Floats
    unopened: Floats


_N_STATES = len(_Slices._fields) - 2
"""The number of states that belong to a model: all except `busy` and `held`, which belong to a
lane."""


def _share(part: Floats, whole: Floats) -> Floats:
    """Divide parts by wholes; the result is 0 where the whole is 0."""
    return np.divide(part, whole, out=np.zeros_like(whole), where=whole > 0)


def _first_full(slices: _Slices, seats: float) -> int:
    """Return the first slice in which a limit was fully used, or the fullest slice if none was."""
    full = (slices.busy >= _FULL * seats) | (slices.rate + slices.seat > 0)
    return int(full.argmax() if full.any() else slices.busy.argmax())


def seconds_by_slice(
    from_s: float | Floats,
    until_s: float | Floats,
    weight: float | Floats = 1.0,
    *,
    start_s: float,
    end_s: float,
    n: int,
) -> Floats:
    """Return for each slice the weighted sum of the seconds that the periods spend in it.

    The computing time does not depend on how long the periods are.

    Args:
        from_s: When each period begins.
        until_s: When each period ends. A period that ends before it begins is ignored.
        weight: The weight of each period.
        start_s: When the first slice begins. Parts of periods that lie outside all slices are cut
            off.
        end_s: When the last slice ends; later than `start_s`.
        n: The number of slices, >= 1. All slices have the same length.
    """
    width_s = (end_s - start_s) / n
    begins, ends, weights = np.broadcast_arrays(from_s, until_s, weight)
    counts = ends > begins
    places = (np.concatenate([begins[counts], ends[counts]]) - start_s) / width_s
    steps = np.concatenate([weights[counts], -weights[counts]])
    place = np.clip(places, 0, n)
    at = place.astype(np.int64)
    # A period counts partly in the slice in which it begins, and fully in all later ones.
    here = np.bincount(at, steps * (at + 1 - place), n + 1)
    later = np.bincount(at + 1, steps, n + 2).cumsum()
    return cast("Floats", (here[:n] + later[:n]) * width_s)
