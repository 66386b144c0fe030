"""The state of a run in progress, as plain data for a terminal. All functions are pure.

`live_screen` draws this data. Lanes that fail or delay the run come first, because a terminal has
room for only about 10 of 300 lanes.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from pytest_ultrapar.analysis.statistics import wilson_interval
from pytest_ultrapar.records import RATED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_ultrapar.broker.protocol import BrokerStatus, LaneStatus
    from pytest_ultrapar.pool.model import Lane, LaneId, Limit
    from pytest_ultrapar.report.progress import ProgressState

T = TypeVar("T")
LATELY_S = 10.0
"""The period over which rates and waits are measured, in seconds. It is long enough for each lane
to get some leases, and short enough for changes to become visible."""
_BETWEEN_S = 1.0
MOST_FAILURES = 5
_WAITING = 0.2
"""A lane is shown as waiting for a limit only if, on average, at least this many of its requests
are waiting for it."""


def lately(kept: Sequence[BrokerStatus], status: BrokerStatus) -> tuple[BrokerStatus, ...]:
    """Return the statuses to keep, oldest first. Rates are measured from the oldest one onwards."""
    if not kept or status.now_s - kept[-1].now_s >= _BETWEEN_S:
        kept = (*kept, status)
    # Keep one status from before the period, so that the whole period is always covered.
    while len(kept) > 1 and status.now_s - kept[1].now_s >= LATELY_S:
        kept = kept[1:]
    return tuple(kept)


class Use(NamedTuple):
    """How much of a limit is used.

    Attributes:
        used: How many requests are in flight, or how many are sent per second.
        most: The limit itself; None if there is no limit.
    """

    used: float
    most: float | None

    @property
    def share(self) -> float:
        """The used share of the limit: 0 if there is no limit, 1 if the limit is 0."""
        return self.used / self.most if self.most else float(self.most is not None)


class LaneRow(NamedTuple):
    """The current state of a lane.

    Attributes:
        seats: How many of the lane's own requests are in flight, and the fullest `workers` limit
            that applies to the lane.
        rate: How many requests the lane itself sends per second, and the fullest rate limit that
            applies to the lane. None while unknown.
        waits_for: The limit for which the lane's requests recently waited longest, or another cause
            in `LaneStatus.waited_s`. Empty if they hardly waited.
        trouble: Why the lane is paused or removed, in one sentence; empty if it is neither.
        is_removed: Whether the lane is removed for the rest of the run.
    """

    lane: LaneId
    seats: Use
    rate: Use | None
    waits_for: str
    trouble: str
    is_removed: bool


def lane_rows(
    lanes: Iterable[Lane],
    limits: Mapping[str, Limit],
    kept: Sequence[BrokerStatus],
    now: BrokerStatus,
) -> list[LaneRow]:
    """Return a row for each lane: paused and removed lanes first, then lanes that delay requests.

    Apart from that, rows stay in the order of the pool, so that they do not jump about on the
    screen.

    Args:
        lanes: All lanes of the run.
        limits: The pool's limits, by name.
        kept: Recent statuses of the broker, from `lately`.
        now: The current status.
    """
    known = {one.lane: one for one in now.lanes}
    since = kept[0] if kept else now
    before = {one.lane: one for one in since.lanes}
    span_s = now.now_s - since.now_s
    own = [lane for lane in lanes if lane.lane_id in known]
    sent = {lane.lane_id: _sent(known[lane.lane_id], before.get(lane.lane_id)) for lane in own}
    shares = {(one.limit, one.word): one.share for one in now.shares}
    seats, rates = _uses(own, limits, known, sent, span_s, shares=shares)
    rows = []
    for lane in own:
        status = known[lane.lane_id]
        in_trouble = status.state != "up"
        rows.append(
            LaneRow(
                lane.lane_id,
                _of_fullest(lane, seats, status.in_flight + status.orphans),
                _of_fullest(lane, rates, sent[lane.lane_id] / span_s) if span_s > 0 else None,
                "" if in_trouble else _waits_for(status, before.get(lane.lane_id), span_s),
                status.reason or status.state if in_trouble else "",
                status.is_removed,
            )
        )
    return sorted(rows, key=_rank)


def _rank(row: LaneRow) -> int:
    if row.trouble:
        # Show a paused lane before a removed one: it is more interesting, because it comes back.
        return 1 if row.is_removed else 0
    return 2 if row.waits_for else 3


def _sent(now: LaneStatus, before: LaneStatus | None) -> int:
    return now.granted - (0 if before is None else before.granted)


def _uses(
    lanes: Sequence[Lane],
    limits: Mapping[str, Limit],
    known: Mapping[LaneId, LaneStatus],
    sent: Mapping[LaneId, int],
    span_s: float,
    *,
    shares: Mapping[tuple[str, str], float],
) -> tuple[dict[str, Use], dict[str, Use]]:
    """For each limit, return its use by all lanes that share it: seats, and requests per second."""
    held: Counter[str] = Counter()
    gone: Counter[str] = Counter()
    estimated = {}
    for lane in lanes:
        status = known[lane.lane_id]
        for name in lane.limits:
            held[name] += status.in_flight + status.orphans
            gone[name] += sent[lane.lane_id]
        if status.estimated is not None:
            estimated[status.estimated.limit] = status.estimated
    seats, rates = {}, {}
    for name, n_held in held.items():
        most: list[float] = []
        per_s: list[float] = []
        for kind, amount in limits[name].rows if name in limits else ():
            # If several hosts share the limit, use this host's share.
            own = shares.get((name, kind.word), amount)
            if kind.counts == "in flight":
                most.append(own)
            elif kind.is_spaced:
                per_s.append(own / kind.window_s)
        if (found := estimated.get(name)) is not None:
            # The provider may allow less than the pool declares.
            most += [] if found.workers is None else [found.workers]
            per_s += [] if found.qps is None else [found.qps]
        if most:
            seats[name] = Use(n_held, min(most))
        if per_s and span_s > 0:
            rates[name] = Use(gone[name] / span_s, min(per_s))
    return seats, rates


def _of_fullest(lane: Lane, uses: Mapping[str, Use], own: float) -> Use:
    """Return the lane's use of the fullest limit that applies to it.

    If several limits are equally full, it is the innermost of them.
    """
    on_path = [uses[name] for name in reversed(lane.limits) if name in uses]
    fullest = max(on_path, key=lambda use: use.share, default=None)
    return Use(own, None if fullest is None else fullest.most)


def _waits_for(now: LaneStatus, before: LaneStatus | None, span_s: float) -> str:
    earlier = {} if before is None else before.waited_s
    waited = {name: s - earlier.get(name, 0.0) for name, s in now.waited_s.items()}
    name = max(waited, key=waited.__getitem__, default="")
    return name if name and waited[name] >= _WAITING * span_s > 0 else ""


class ModelRow(NamedTuple):
    """The results of a model so far.

    Attributes:
        n_done: How many of its cases are finished.
        n_planned: How many cases it has.
        n_rated: How many of its cases the solve rate includes.
        n_solved: How many of these are solved.
        interval: The 95 % interval of the solve rate, computed as if cases were independent. None
            if `n_rated` is 0.
    """

    model: str
    n_done: int
    n_planned: int
    n_rated: int
    n_solved: int
    interval: tuple[float, float] | None


def model_rows(planned: Mapping[str, int], counts: Mapping[tuple[str, str], int]) -> list[ModelRow]:
    """Return a row for each model. Models whose cases are all finished come last.

    Args:
        planned: The number of cases by model, in the order of the pool.
        counts: The number of finished cases, by model and outcome.
    """
    done, rated = dict.fromkeys(planned, 0), dict.fromkeys(planned, 0)
    for (model, outcome), n in counts.items():
        if model in done:
            done[model] += n
            rated[model] += n if outcome in RATED else 0
    rows = []
    for model, n_planned in planned.items():
        n_solved = counts.get((model, "solved"), 0)
        interval = wilson_interval(n_solved, rated[model]) if rated[model] else None
        rows.append(ModelRow(model, done[model], n_planned, rated[model], n_solved, interval))
    return sorted(rows, key=lambda row: row.n_done >= row.n_planned)


class Failure(NamedTuple):
    """A failed case.

    Attributes:
        case: The case's node id in pytest.
        outcome: `infra`, `error`, or `failed` for a failed assertion.
        reason: The reason for the failure, on one line.
    """

    case: str
    outcome: str
    reason: str


class Spent(NamedTuple):
    """How much the cases have cost so far, and how much they may cost in total.

    Attributes:
        amount: The cost so far, in the pool's currency.
        projected: The cost of all cases if each remaining case costs as much as the average
            finished case of its model.
    """

    amount: float
    projected: float
    currency: str


def projected(
    spent: Mapping[str, float], done: Mapping[str, int], planned: Mapping[str, int]
) -> float:
    """Return the cost of all cases if each remaining case costs its model's average so far.

    Args:
        spent: The cost so far, by model. If a model has no finished case, the mean cost of all
            finished cases is used for it.
        done: The number of finished cases by model. There must be at least one in total.
        planned: The number of all cases by model.
    """
    everyone = sum(spent.values()) / sum(done.values())
    return sum(
        spent.get(model, 0.0) / done[model] * n if done.get(model) else everyone * n
        for model, n in planned.items()
    )


class LiveView(NamedTuple):
    """All data that is shown on the screen at one moment.

    Attributes:
        progress: The progress of the run.
        eta_s: The earliest and the latest time at which the last episode probably ends, in
            seconds after `progress.eta_at_s`. None while unknown.
        now_s: The time of the view, in seconds on the monotonic clock.
        waiting: How many requests are waiting to be sent.
        spent: The cost so far; None without prices.
        is_simulated: Whether any answer comes from the simulated provider.
    """

    progress: ProgressState
    eta_s: tuple[float, float] | None
    now_s: float
    waiting: int
    lanes: Sequence[LaneRow]
    models: Sequence[ModelRow]
    failures: Sequence[Failure]
    spent: Spent | None
    is_simulated: bool


class Room(NamedTuple):
    """How many lines each part of the screen gets; 0 if the part is left out.

    The heading and a line such as `+ 212 more` are included.
    """

    lanes: int
    models: int
    failures: int


_TURNS = ("lanes", "models", "lanes", "failures")
"""The order in which the parts take turns to get lines. On a small terminal, the lanes get half of
the lines."""


def room(view: LiveView, n_lines: int) -> Room:
    """Divide `n_lines` among the parts, so that no part gets more lines than it needs.

    No part gets only a heading.
    """
    wanted = {
        name: len(rows) + 1
        for name, rows in zip(Room._fields, (view.lanes, view.models, view.failures), strict=True)
        if rows
    }
    given = dict.fromkeys(Room._fields, 0)
    while True:
        before = n_lines
        for name in _TURNS:
            # The first row needs two lines, because the heading is added with it.
            needs = 1 if given[name] else 2
            if given[name] < wanted.get(name, 0) and needs <= n_lines:
                given[name] += needs
                n_lines -= needs
        if n_lines == before:
            return Room(**given)


def shown(rows: Sequence[T], n_lines: int) -> tuple[Sequence[T], int]:
    """Return the rows that fit below a heading, and the number of hidden rows.

    Args:
        rows: All rows.
        n_lines: The number of lines of the part, from `Room`. If not all rows fit, the last line is
            kept for the number of hidden rows, unless there is only one line for rows.
    """
    n_rows = max(0, n_lines - 1)
    if len(rows) > n_rows > 1:
        n_rows -= 1
    return rows[:n_rows], max(0, len(rows) - n_rows)
