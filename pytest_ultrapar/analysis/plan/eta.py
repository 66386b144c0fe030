"""Estimate when a run in progress ends. All functions are pure.

As in a plan, the remaining requests are treated as a load on the limits (`load.limit_loads`). The
run is expected to end when the slowest limit has served its load. It is assumed that this limit
continues to be used as much as it was recently.

The coordinator computes the estimate twice a second while cases are running. The survival estimator
is implemented here, because loading scipy would delay the first cases by up to a second and take
50 MB.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from pytest_ultrapar.analysis.plan.load import LaneLoad, binding, limit_loads, longest
from pytest_ultrapar.broker.protocol import BIN, ModelProgress
from pytest_ultrapar.pool.model import LIMIT_KINDS, Lane, LaneId, Limit

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_ultrapar.analysis.plan.load import LimitLoad
    from pytest_ultrapar.broker.protocol import BrokerStatus


class Survival:
    """A distribution of lengths, such as the times of requests, some of which are still in flight.

    Only a lower bound is known for a length that has not ended. Early in a run, only short requests
    have ended, so their mean would be too small. The mean would also be too small if requests in
    flight were counted as if they ended now.

    Source: Kaplan and Meier, "Nonparametric estimation from incomplete observations" (1958). Beyond
        the longest observed length, lengths are assumed to end at the overall mean rate. No length
        is assumed to be more than twice the longest observed one. If all lengths are similar, only
        a few of them have ended at first. Without this maximum, the estimate would then be far too
        high.
    """

    def __init__(self, ended: Mapping[float, int], under_way: Mapping[float, int]) -> None:
        """Build the distribution from counts.

        Args:
            ended: For each length > 0, how many requests or episodes have ended with this length.
            under_way: For each length, how many have reached this length and have not ended yet.
        """
        self._steps: list[tuple[float, float]] = []
        n_left = sum(ended.values()) + sum(under_way.values())
        n_ended = sum(ended.values())
        self.is_known = n_ended > 0
        """Whether anything has ended. Until then, nothing can be estimated."""
        exposure = sum(length * n for part in (ended, under_way) for length, n in part.items())
        longest = max((*ended, *under_way), default=0.0)
        self._tail = min(exposure / n_ended, longest) if n_ended else 0.0
        share = 1.0
        for length in sorted({*ended, *under_way}):
            if length in ended:
                share *= 1 - ended[length] / n_left
                self._steps.append((length, share))
            n_left -= ended.get(length, 0) + under_way.get(length, 0)

    def rest(self, reached: float = 0.0) -> float:
        """Return how much is left, on average, of a length that has already reached `reached`."""
        still, at, area = 1.0, reached, 0.0
        begun = 1.0
        for length, share in self._steps:
            if length <= reached:
                begun = still = share
                continue
            area += still * (length - at)
            at, still = length, share
        if begun <= 0:
            return self._tail
        return (area + still * self._tail) / begun


def merged(parts: Iterable[Mapping[int, int] | Mapping[float, int]]) -> Counter[float]:
    """Add several counts together."""
    whole: Counter[float] = Counter()
    for part in parts:
        whole.update(part)
    return whole


LEAST_USE = 0.001
"""If a smaller share of the binding limits than this was used, too few requests were sent for an
estimate."""
_UNEVEN_END = 0.5
"""The time at the end of a run during which some seats are free, as a share of the mean time of an
episode. This value was tested on simulated runs (`tests/unit/test_plan_eta.py`)."""
_ALIKE = 0.1
"""Limits are treated as equally slow if the times that they need for their loads differ by less
than this share. Such a difference is only due to chance."""


class ToAsk(msgspec.Struct, frozen=True):
    """All the work of a session.

    Attributes:
        cases: For each model, how many cases still need an episode.
        n_recovered: How many cases already have an episode that ended in an earlier session.
        lanes: The lanes of the run.
        limits: The limits that apply to these lanes, as declared in the pool.
        restricted: Whether a rule of the mode or the assignment may keep an episode from using a
            free lane of its model.
    """

    cases: Mapping[str, int]
    n_recovered: int
    lanes: tuple[Lane, ...]
    limits: tuple[Limit, ...]
    restricted: bool


class Used(msgspec.Struct, frozen=True):
    """How much the lanes had been used up to one moment of a run.

    Attributes:
        now_s: The moment, in monotonic seconds.
        requests: For each lane, how many leases had been granted.
        busy_s: For each lane, how long these leases had been in use in total, in seconds.
    """

    now_s: float
    requests: Mapping[LaneId, int]
    busy_s: Mapping[LaneId, float]

    @classmethod
    def of(cls, status: BrokerStatus) -> Used:
        """Return the use up to now, from the broker's current counts."""
        return cls(
            status.now_s,
            {lane.lane: lane.granted for lane in status.lanes},
            {lane.lane: lane.busy_s for lane in status.lanes},
        )


MOST_LOOKS = 32
"""The time between two samples is at least half of the run's time so far, divided by this
number."""


class UseSamples(msgspec.Struct, frozen=True):
    """Samples of how much a run's lanes had been used, taken at several moments.

    Attributes:
        started_s: The last known moment at which no lease had been granted yet.
        used: The samples, oldest first, from slightly more than the second half of the run so far.
            Older samples are dropped, because the pace changes when a model has no cases left, a
            limit is discovered, or lanes come and go.
    """

    started_s: float
    used: tuple[Used, ...]

    @classmethod
    def at(cls, now_s: float) -> UseSamples:
        """Begin at a moment before the first lease, with a sample without any use."""
        return cls(now_s, (Used(now_s, {}, {}),))

    def then(self, status: BrokerStatus) -> UseSamples:
        """Return the samples with a new one if it is due, and without those that are too old."""
        if not any(lane.granted for lane in status.lanes):
            return UseSamples.at(status.now_s)
        window_s = (status.now_s - self.started_s) / 2
        used = self.used
        if len(used) < 2 or status.now_s - used[-1].now_s >= window_s / MOST_LOOKS:  # noqa: PLR2004
            used = (*used, Used.of(status))
        while len(used) > 1 and status.now_s - used[1].now_s >= window_s:
            used = used[1:]
        return UseSamples(self.started_s, used)

    @property
    def since(self) -> Used:
        """The oldest sample: the pace is measured from its moment until now."""
        return self.used[0]


class Eta(NamedTuple):
    """An estimate of how much time is left.

    Attributes:
        seconds: How many seconds are left until the last episode ends, >= 0.
        slowest: The limit that needs the longest time for its load, such as `lab/key0 (qps)`; empty
            if unknown.
    """

    seconds: float
    slowest: str


_OF_FEW = 1.5
"""1.96 times the coefficient of variation of the time that a case takes. This coefficient is
assumed to be about 0.75."""


class EndEstimates:
    """Collects estimates of when a run ends.

    Only those from the second half of the time since the first estimate are kept.
    """

    def __init__(self) -> None:
        self._said: list[tuple[float, float]] = []
        self._begin_s: float | None = None

    def note(self, now_s: float, eta: Eta) -> None:
        """Record an estimate that was made at `now_s`, in monotonic seconds."""
        if self._begin_s is None:
            self._begin_s = now_s
        self._said.append((now_s, now_s + eta.seconds))
        half_s = (self._begin_s + now_s) / 2
        self._said = [one for one in self._said if one[0] >= half_s]
        if len(self._said) > 2 * MOST_LOOKS:
            self._said = self._said[::2] + self._said[-1:]

    def interval(self, now_s: float, eta: Eta, n_ended: int) -> tuple[float, float]:
        """Return the earliest and the latest probable end of the run, in seconds from now.

        The end of the run is the end of its last episode. The spread of recent estimates shows the
        uncertainty about the effects of limits and clients. For the remaining cases, the
        uncertainty is taken to be the standard error of a mean over the cases that have ended.

        Args:
            now_s: The time at which `eta` was made, as passed to `note`, in monotonic seconds.
            eta: The estimate.
            n_ended: How many episodes have ended.

        Source: the standard error of a mean; the rest is a rule that was tested on ten kinds of
            simulated runs (`tests/unit/test_plan_eta.py`).
        """
        ends_s = [end_s - now_s for _, end_s in self._said]
        margin_s = _OF_FEW * eta.seconds / math.sqrt(max(1, n_ended))
        return max(0.0, min(ends_s) - margin_s), max(ends_s) + margin_s


class _Left(NamedTuple):
    """The remaining work of one model.

    Attributes:
        requests: How many requests have not been sent yet.
        service_s: How long a request takes on average, in seconds.
        in_flight_s: How many more seconds the requests in flight take in total.
        longest_s: How many more seconds are needed for the open episode with the most work left.
        episode_s: The total time of all requests in an episode, on average, in seconds.
    """

    requests: float
    service_s: float
    in_flight_s: float
    longest_s: float
    episode_s: float


def estimate(to_ask: ToAsk, status: BrokerStatus, since: Used) -> Eta | None:
    """Estimate how much time the remaining episodes need.

    Args:
        to_ask: All the work of the session.
        status: The broker's current status.
        since: How much the lanes had been used up to an earlier moment. The estimate assumes that
            limits continue to be used as much as they have been since that moment.

    Returns:
        The estimate; None as long as too little is known.
    """
    removed = {lane.lane for lane in status.lanes if lane.is_removed}
    lanes = tuple(lane for lane in to_ask.lanes if lane.lane_id not in removed)
    left = _left(to_ask, status, {lane.model for lane in lanes})
    if left is None:
        return None
    longest_s = max((own.longest_s for own in left.values()), default=0.0)
    now = Used.of(status)
    loads = [] if to_ask.restricted else _loads(lanes, to_ask, left, now)
    if not loads:
        seconds = _at_this_pace(left.values(), now, since)
        return None if seconds is None else Eta(max(seconds, longest_s), "")
    alike = longest(loads, within=_ALIKE)
    use = _use(alike, lanes, left, now, since)
    if use < LEAST_USE:
        return None
    models = {lane.model for lane in lanes if loads[0].limit in lane.limits}
    # While the last episodes end, some seats are free.
    end_s = _UNEVEN_END * max(own.episode_s for model, own in left.items() if model in models)
    seconds = loads[0].alone_s / use + end_s
    return Eta(max(seconds, longest_s), binding(loads, within=_ALIKE))


def _loads(
    lanes: Sequence[Lane], to_ask: ToAsk, left: Mapping[str, _Left], now: Used
) -> list[LimitLoad]:
    """Return the remaining load on each limit, the slowest limit first; empty if there is no load.

    Each model's requests are divided among its lanes in the same proportion as its earlier
    requests, or evenly if there are no earlier ones.
    """
    sent = Counter[str]()
    n_lanes = Counter(lane.model for lane in lanes)
    for lane in lanes:
        sent[lane.model] += now.requests.get(lane.lane_id, 0)
    loads = {}
    for lane in lanes:
        own, n = left.get(lane.model), sent[lane.model]
        part = now.requests.get(lane.lane_id, 0) / n if n else 1 / n_lanes[lane.model]
        if own is not None and own.requests * part > 0:
            requests = own.requests * part
            loads[lane.lane_id] = LaneLoad(requests, requests * own.service_s)
    limits = {one.name: one for one in to_ask.limits}
    found = limit_loads(lanes, limits, loads)
    return [one for one in found if not LIMIT_KINDS[one.kind].is_daily]


def _left(to_ask: ToAsk, status: BrokerStatus, served: set[str]) -> dict[str, _Left] | None:
    progress = {one.model: one for one in status.models}
    everyone = _Progress(progress.values())
    if not (everyone.turns.is_known and everyone.seconds.is_known):
        return None
    unseen = Counter(to_ask.cases)
    for model, one in progress.items():
        unseen[model] -= sum(one.ended.values()) + sum(one.open.values())
    # These episodes ended without a request, and their models are unknown.
    n_seen = sum(sum(one.ended.values()) for one in progress.values())
    n_silent = max(0, status.ended_episodes - to_ask.n_recovered - n_seen)
    n_unseen = sum(max(0, n) for n in unseen.values())
    part = max(0.0, 1 - n_silent / n_unseen) if n_unseen else 0.0
    left = {}
    for model, n in unseen.items():
        if model not in served:
            continue
        one = progress.get(model, ModelProgress(model, {}, {}, {}, {}))
        own = _Progress([one])
        turns = own.turns if own.turns.is_known else everyone.turns
        seconds = own.seconds if own.seconds.is_known else everyone.seconds
        more = {k: max(0.0, turns.rest(k - 1) - 1) for k in one.open}
        service_s = seconds.rest()
        in_flight = {at: seconds.rest(_seconds(at)) for at in one.under_way}
        left[model] = _Left(
            max(0, n) * part * turns.rest() + sum(more[k] * m for k, m in one.open.items()),
            service_s,
            sum(in_flight[at] * m for at, m in one.under_way.items()),
            max(more.values(), default=0.0) * service_s + max(in_flight.values(), default=0.0),
            turns.rest() * service_s,
        )
    for model, n_more in _in_roles(progress.values(), unseen, part).items():
        if model in served:
            own = _Progress([progress.get(model, ModelProgress(model, {}, {}, {}, {}))])
            seconds = own.seconds if own.seconds.is_known else everyone.seconds
            known = left.get(model, _Left(0.0, seconds.rest(), 0.0, 0.0, 0.0))
            left[model] = known._replace(requests=known.requests + n_more)
    return left


def _in_roles(
    progress: Iterable[ModelProgress], unseen: Mapping[str, int], part: float
) -> dict[str, float]:
    """Estimate how many requests to models in roles, such as judges, are still to be sent.

    Each episode is assumed to need as many such requests as the ended episodes did on average.

    Args:
        progress: The progress of each model on which cases run.
        unseen: For each model, how many episodes have not sent a request yet.
        part: The share of these episodes that is expected to send any requests.
    """
    found: dict[str, float] = {}
    for one in progress:
        n_ended, n_open = sum(one.ended.values()), sum(one.open.values())
        n_left = max(0, unseen.get(one.model, 0)) * part + n_open
        for other in {**one.ended_beside, **one.open_beside}:
            asked = one.open_beside.get(other, 0)
            if n_ended:
                mean = one.ended_beside.get(other, 0) / n_ended
            else:
                mean = asked / n_open if n_open else 0.0
            found[other] = found.get(other, 0.0) + max(0.0, mean * n_left - asked)
    return found


class _Progress:
    """The distributions of the number of requests per episode and of the seconds per request."""

    def __init__(self, progress: Iterable[ModelProgress]) -> None:
        progress = list(progress)
        self.turns = Survival(
            merged(one.ended for one in progress),
            # The last request is in flight or has just ended. So only the number of requests before
            # it is certain.
            merged({k - 1: n for k, n in one.open.items()} for one in progress),
        )
        self.seconds = Survival(
            merged({_seconds(at): n for at, n in one.seconds.items()} for one in progress),
            merged({_seconds(at): n for at, n in one.under_way.items()} for one in progress),
        )


def _seconds(at: int) -> float:
    return math.pow(BIN, at)


def _use(
    loads: Sequence[LimitLoad],
    lanes: Sequence[Lane],
    left: Mapping[str, _Left],
    now: Used,
    since: Used,
) -> float:
    """Return the share of these equally slow limits that was used from `since` to `now`, 0 to 1.

    Even the use of seats is calculated from the number of requests and their estimated time, not
    from actual times. The first requests of a run determine this estimate, and often take longer
    than later ones. If the actual times of later requests were used, some seats would seem to be
    unused.
    """
    elapsed_s = now.now_s - since.now_s
    taken = offered = 0.0
    for load in loads:
        kind = LIMIT_KINDS[load.kind]
        offered += load.allows / (kind.window_s or 1.0) * elapsed_s
        for lane in lanes:
            if load.limit in lane.limits and lane.model in left:
                n = now.requests.get(lane.lane_id, 0) - since.requests.get(lane.lane_id, 0)
                taken += n * (1.0 if kind.is_rate else left[lane.model].service_s)
    return min(1.0, taken / offered) if offered > 0 else 0.0


def _at_this_pace(left: Iterable[_Left], now: Used, since: Used) -> float | None:
    """Return the remaining work divided by the work done per second; None if none has been done.

    Use this if a rule may keep an episode from using a free lane, or if no limit is known. Also use
    it if all requests have been sent, so that only requests in flight are left.
    """
    elapsed_s = now.now_s - since.now_s
    done_s = sum(now.busy_s.values()) - sum(since.busy_s.values())
    if elapsed_s <= 0 or done_s <= 0:
        return None
    return sum(own.requests * own.service_s + own.in_flight_s for own in left) * elapsed_s / done_s
