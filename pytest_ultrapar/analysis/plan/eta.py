"""When a run in progress will have all its answers; pure.

What is left falls on limits as in a plan (`load.limit_loads`). The limit that needs longest
decides, used as fully as it was of late.

Asked twice a second by the process that coordinates a run, while cases go on. So a textbook is
written out here by hand: scipy has survival functions, but loading it would hold up the first cases
by up to a second, and 50 MB of it would stay for the sake of one line.
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
    """Lengths of which some are only known to be longer than so much.

    What has ended early in a run was short; its plain mean would promise too much, and what is
    under way, counted as if it ended now, too.

    Source: Kaplan and Meier, "Nonparametric estimation from incomplete observations" (1958). What
    is left beyond the longest length seen is taken to end at the mean rate of all, and to be no
    longer than that length again: where all are about equally long, few have ended at first.
    """

    def __init__(self, ended: Mapping[float, int], under_way: Mapping[float, int]) -> None:
        """Learn from counts.

        Args:
            ended: How many took how long, > 0.
            under_way: How many took longer than so much, and are not over.
        """
        self._steps: list[tuple[float, float]] = []
        n_left = sum(ended.values()) + sum(under_way.values())
        n_ended = sum(ended.values())
        self.is_known = n_ended > 0
        """Whether anything has ended; else nothing can be said."""
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
        """How much more it takes on the mean, of what has taken `reached` and is not over."""
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
    """Counts of several kinds together."""
    whole: Counter[float] = Counter()
    for part in parts:
        whole.update(part)
    return whole


LEAST_USE = 0.001
"""Of the limits that bind; below it nothing was asked of them yet, and nothing can be said."""
_UNEVEN_END = 0.5
"""Of a mean episode; a rule that was tried on simulated runs (`tests/unit/test_plan_eta.py`)."""
_ALIKE = 0.1
"""Limits that need as long but for this part of it are alike: chance divides requests over them."""


class ToAsk(msgspec.Struct, frozen=True):
    """What a session has to ask, and where.

    Attributes:
        cases: By model, cases whose episodes are to be run.
        n_recovered: Cases whose episode ended in an earlier session.
        lanes: Those of the run.
        limits: Those on the lanes' paths, as declared.
        restricted: Whether rules of mode or assignment keep episodes from lanes that are free.
    """

    cases: Mapping[str, int]
    n_recovered: int
    lanes: tuple[Lane, ...]
    limits: tuple[Limit, ...]
    restricted: bool


class Used(msgspec.Struct, frozen=True):
    """What had been taken of the lanes at one moment.

    Attributes:
        now_s: Monotonic seconds.
        requests: By lane, leases ever granted.
        busy_s: By lane, seconds that they were out.
    """

    now_s: float
    requests: Mapping[LaneId, int]
    busy_s: Mapping[LaneId, float]

    @classmethod
    def of(cls, status: BrokerStatus) -> Used:
        """What the broker counts now."""
        return cls(
            status.now_s,
            {lane.lane: lane.granted for lane in status.lanes},
            {lane.lane: lane.busy_s for lane in status.lanes},
        )


MOST_LOOKS = 32
"""In the second half of a run so far."""


class Looks(msgspec.Struct, frozen=True):
    """What had been taken of the lanes at some moments of a run.

    Attributes:
        started_s: The last moment at which nothing had been taken.
        used: Oldest first, over some more than the second half of the run so far: a run changes its
            pace as models end, limits are found and lanes come and go.
    """

    started_s: float
    used: tuple[Used, ...]

    @classmethod
    def at(cls, now_s: float) -> Looks:
        """Nothing has been taken yet."""
        return cls(now_s, (Used(now_s, {}, {}),))

    def then(self, status: BrokerStatus) -> Looks:
        """These and a later look, less those that are too old or too close to each other."""
        if not any(lane.granted for lane in status.lanes):
            return Looks.at(status.now_s)
        window_s = (status.now_s - self.started_s) / 2
        used = self.used
        if len(used) < 2 or status.now_s - used[-1].now_s >= window_s / MOST_LOOKS:  # noqa: PLR2004
            used = (*used, Used.of(status))
        while len(used) > 1 and status.now_s - used[1].now_s >= window_s:
            used = used[1:]
        return Looks(self.started_s, used)

    @property
    def since(self) -> Used:
        """The look that the pace is taken from."""
        return self.used[0]


class Eta(NamedTuple):
    """An estimate.

    Attributes:
        seconds: Until the last episode ends, >= 0.
        slowest: What takes so long, such as `lab/key0 (qps)`; empty where nobody knows.
    """

    seconds: float
    slowest: str


_OF_FEW = 1.5
"""1.96 times the coefficient of variation of what a case takes, which is taken to be 0.75."""


class EndEstimates:
    """When estimates said that a run ends, over the second half of the run so far."""

    def __init__(self) -> None:
        self._said: list[tuple[float, float]] = []
        self._begin_s: float | None = None

    def note(self, now_s: float, eta: Eta) -> None:
        """Take in an estimate of `now_s`, monotonic seconds."""
        if self._begin_s is None:
            self._begin_s = now_s
        self._said.append((now_s, now_s + eta.seconds))
        half_s = (self._begin_s + now_s) / 2
        self._said = [one for one in self._said if one[0] >= half_s]
        if len(self._said) > 2 * MOST_LOOKS:
            self._said = self._said[::2] + self._said[-1:]

    def interval(self, now_s: float, eta: Eta, n_ended: int) -> tuple[float, float]:
        """Between which times from now the last episode probably ends, in seconds.

        How far estimates have wandered of late shows how much is not known of limits and clients;
        what the cases to come take is known as well as the mean of those that ended.

        Args:
            now_s: Monotonic seconds; `eta` is of this time and noted.
            eta: The estimate.
            n_ended: Episodes that have ended.

        Source: the standard error of a mean; the rest is a rule that was tried on simulated runs of
            ten shapes (`tests/unit/test_plan_eta.py`).
        """
        ends_s = [end_s - now_s for _, end_s in self._said]
        margin_s = _OF_FEW * eta.seconds / math.sqrt(max(1, n_ended))
        return max(0.0, min(ends_s) - margin_s), max(ends_s) + margin_s


class _Left(NamedTuple):
    """What is left of one model.

    Attributes:
        requests: Those not yet sent.
        service_s: Mean seconds of each.
        in_flight_s: Seconds that those in flight still take, together.
        longest_s: How long an open episode goes on.
        episode_s: Mean seconds of a whole episode's requests.
    """

    requests: float
    service_s: float
    in_flight_s: float
    longest_s: float
    episode_s: float


def estimate(to_ask: ToAsk, status: BrokerStatus, since: Used) -> Eta | None:
    """How long the episodes that are left will take.

    Args:
        to_ask: What there is to do in all.
        status: The broker's words now.
        since: What it said some time before; limits are taken to be used as they were since then.

    Returns:
        None as long as too little is known.
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
    # Seats are not all taken while the last episodes end.
    end_s = _UNEVEN_END * max(own.episode_s for model, own in left.items() if model in models)
    seconds = loads[0].alone_s / use + end_s
    return Eta(max(seconds, longest_s), binding(loads, within=_ALIKE))


def _loads(
    lanes: Sequence[Lane], to_ask: ToAsk, left: Mapping[str, _Left], now: Used
) -> list[LimitLoad]:
    """What is left for each limit, that which needs longest first; empty where none is asked.

    Each model's requests are spread over its lanes as they were so far, evenly before the first.
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
    # Episodes that ended and had asked for nothing: nobody knows of which models.
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
    """Requests that are left to models in roles: as many per episode as those had that are over.

    Args:
        progress: Of each model that cases are about.
        unseen: By model, episodes that have asked for nothing yet.
        part: Of these, how many will ask for anything.
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
    """How long episodes are, in requests, and requests, in seconds."""

    def __init__(self, progress: Iterable[ModelProgress]) -> None:
        progress = list(progress)
        self.turns = Survival(
            merged(one.ended for one in progress),
            # The last of them is in flight or just over: as many as there are before it are known.
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
    """How fully limits that are alike were used since then, 0 to 1.

    Seats by requests, too: times of the first requests, which set the estimate, are often longer
    than those of later ones, and then seats look as if they were hardly used.
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
    """Work left by work done per second; None before any was done.

    Where rules say who may go when, no limit is known, or nothing is left to be sent and only
    requests in flight are to end.
    """
    elapsed_s = now.now_s - since.now_s
    done_s = sum(now.busy_s.values()) - sum(since.busy_s.values())
    if elapsed_s <= 0 or done_s <= 0:
        return None
    return sum(own.requests * own.service_s + own.in_flight_s for own in left) * elapsed_s / done_s
