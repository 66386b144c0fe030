"""What a run in progress shows of itself on a terminal, as plain data; pure.

`live_screen` draws it. What is in trouble or holds the run up comes first, for of 300 lanes a
terminal shows ten.
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
"""Seconds that count as now, for rates and waiting: some grants on each lane, few enough to see a
change."""
_BETWEEN_S = 1.0
MOST_FAILURES = 5
_WAITING = 0.2
"""Requests that wait for the same thing on the mean; with fewer it holds nothing up."""


def lately(kept: Sequence[BrokerStatus], status: BrokerStatus) -> tuple[BrokerStatus, ...]:
    """What is kept of a run's statuses, oldest first: rates are taken from the first to now."""
    if not kept or status.now_s - kept[-1].now_s >= _BETWEEN_S:
        kept = (*kept, status)
    # The newest that is old enough stays, so that the span is always full.
    while len(kept) > 1 and status.now_s - kept[1].now_s >= LATELY_S:
        kept = kept[1:]
    return tuple(kept)


class Use(NamedTuple):
    """How much of a limit is in use.

    Attributes:
        used: Requests in flight, or sends per second.
        most: As many as the limit allows; None: nothing limits them.
    """

    used: float
    most: float | None

    @property
    def share(self) -> float:
        """Of the limit."""
        return self.used / self.most if self.most else float(self.most is not None)


class LaneRow(NamedTuple):
    """A lane as it is now.

    Attributes:
        seats: Its own, of all that the limit on its path allows which is nearest to being full.
        rate: The same, of sends per second; None while nobody knows.
        waits_for: What its requests waited for most of late, a limit's name or a word as in
            `LaneStatus.waited_s`; empty: nothing.
        trouble: Why it is paused or removed, one sentence; empty: it is not.
        is_removed: Whether it is, until the end of the run.
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
    """A row for each lane, those in trouble first, then those that hold requests up.

    Otherwise they keep the order of the pool, so that rows stay where they are.

    Args:
        lanes: All of the run.
        limits: Of the pool, by name.
        kept: What the broker said of late, see `lately`.
        now: What it says now.
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
        # One that pauses comes back: there is something to see.
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
    """Of each limit by name: its seats in use, and its sends per second; lanes share limits."""
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
            # Of limits that hosts share, the part of this one.
            own = shares.get((name, kind.word), amount)
            if kind.counts == "in flight":
                most.append(own)
            elif kind.is_spaced:
                per_s.append(own / kind.window_s)
        if (found := estimated.get(name)) is not None:
            # The provider may let less pass than is declared.
            most += [] if found.workers is None else [found.workers]
            per_s += [] if found.qps is None else [found.qps]
        if most:
            seats[name] = Use(n_held, min(most))
        if per_s and span_s > 0:
            rates[name] = Use(gone[name] / span_s, min(per_s))
    return seats, rates


def _of_fullest(lane: Lane, uses: Mapping[str, Use], own: float) -> Use:
    """What a lane has of the fullest limit on its path; of equally full ones the innermost."""
    on_path = [uses[name] for name in reversed(lane.limits) if name in uses]
    fullest = max(on_path, key=lambda use: use.share, default=None)
    return Use(own, None if fullest is None else fullest.most)


def _waits_for(now: LaneStatus, before: LaneStatus | None, span_s: float) -> str:
    earlier = {} if before is None else before.waited_s
    waited = {name: s - earlier.get(name, 0.0) for name, s in now.waited_s.items()}
    name = max(waited, key=waited.__getitem__, default="")
    return name if name and waited[name] >= _WAITING * span_s > 0 else ""


class ModelRow(NamedTuple):
    """How a model does so far.

    Attributes:
        n_done: Its cases that are over.
        n_planned: All of them.
        n_rated: Those that count in its solved rate.
        n_solved: Of these.
        interval: Of the share solved, 95 %, cases taken for independent; None while there is none.
    """

    model: str
    n_done: int
    n_planned: int
    n_rated: int
    n_solved: int
    interval: tuple[float, float] | None


def model_rows(planned: Mapping[str, int], counts: Mapping[tuple[str, str], int]) -> list[ModelRow]:
    """A row for each model; those whose cases are all over come last.

    Args:
        planned: Cases by model, in the order of the pool.
        counts: Cases that are over, by model and outcome.
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
    """A case that came to nothing.

    Attributes:
        case: pytest's id of its test.
        outcome: `infra`, `error`, or `failed` for an assertion that did not hold.
        reason: One line.
    """

    case: str
    outcome: str
    reason: str


class Spent(NamedTuple):
    """What the cases so far have cost.

    Attributes:
        amount: In the pool's currency.
        projected: What all cases will cost if the others are as dear as those of their model.
    """

    amount: float
    projected: float
    currency: str


def projected(
    spent: Mapping[str, float], done: Mapping[str, int], planned: Mapping[str, int]
) -> float:
    """What all cases cost, if those to come cost on the mean what those of their model did.

    Args:
        spent: By model; models of which no case is over cost as the others do on the mean.
        done: Cases that are over, by model; at least one of any.
        planned: All cases, by model.
    """
    everyone = sum(spent.values()) / sum(done.values())
    return sum(
        spent.get(model, 0.0) / done[model] * n if done.get(model) else everyone * n
        for model, n in planned.items()
    )


class LiveView(NamedTuple):
    """All that is shown.

    Attributes:
        progress: How far the run is.
        eta_s: Between which times after `progress.eta_at_s` it probably has asked all, in seconds;
            None while nobody knows.
        now_s: The time of it, monotonic seconds.
        waiting: Requests that wait to be sent.
        spent: None where no price is known.
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
    """Lines for each part, its heading and the line `+ 212 more` included; 0 leaves it out."""

    lanes: int
    models: int
    failures: int


_TURNS = ("lanes", "models", "lanes", "failures")
"""In which order parts get their lines: of a small terminal lanes have half."""


def room(view: LiveView, n_lines: int) -> Room:
    """How `n_lines` are divided: nobody gets more than there is to say, or a heading alone."""
    wanted = {
        name: len(rows) + 1
        for name, rows in zip(Room._fields, (view.lanes, view.models, view.failures), strict=True)
        if rows
    }
    given = dict.fromkeys(Room._fields, 0)
    while True:
        before = n_lines
        for name in _TURNS:
            # The heading comes with the first row.
            needs = 1 if given[name] else 2
            if given[name] < wanted.get(name, 0) and needs <= n_lines:
                given[name] += needs
                n_lines -= needs
        if n_lines == before:
            return Room(**given)


def shown(rows: Sequence[T], n_lines: int) -> tuple[Sequence[T], int]:
    """The rows that fit below a heading, and how many more there are.

    Args:
        rows: All of them.
        n_lines: Those of the part, see `Room`; the last one is for saying how many more there are,
            unless that is the only one.
    """
    n_rows = max(0, n_lines - 1)
    if len(rows) > n_rows > 1:
        n_rows -= 1
    return rows[:n_rows], max(0, len(rows) - n_rows)
