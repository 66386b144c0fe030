"""Forecast how long a run takes, by simulating it with the real broker in virtual time."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_ultrapar.analysis.plan.load import LaneLoad
from pytest_ultrapar.broker.broker import LaneBroker
from pytest_ultrapar.broker.headroom import settled_late_s
from pytest_ultrapar.broker.protocol import Grant, LeaseRequest
from pytest_ultrapar.broker.virtual_time import BrokerPlay
from pytest_ultrapar.engine.admission import Admission
from pytest_ultrapar.pool.model import LaneId

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ultrapar.broker.assignment import Assignment
    from pytest_ultrapar.broker.protocol import Action, Lease
    from pytest_ultrapar.engine.admission import Line
    from pytest_ultrapar.pool.model import Pool

_WORKER = "forecast"


@dataclass(frozen=True, slots=True)
class Step:
    """A request in an episode: its model, how long it occupies its seat, and its tokens."""

    model: str
    service_s: float
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class ForecastEpisode:
    """An episode in the forecast: its requests, and how long each of them occupies a seat.

    Attributes:
        group: The name of its group in the assignment; empty without a group.
        services_s: How long each request occupies its seat, in order. There is at least one
            request.
        tokens: The input and output tokens of each request together; 0 if unknown.
        beside: The episode's requests to roles, which come after all its other requests.
    """

    case_id: str
    model: str
    group: str
    services_s: tuple[float, ...]
    tokens: int = 0
    beside: tuple[Step, ...] = ()

    def step(self, turn: int) -> Step:
        """Return the request with the number `turn`, counted from 0."""
        n_own = len(self.services_s)
        if turn < n_own:
            return Step(self.model, self.services_s[turn], self.tokens)
        return self.beside[turn - n_own]

    @property
    def n_steps(self) -> int:
        """How many requests the episode has, including requests to roles."""
        return len(self.services_s) + len(self.beside)


@dataclass(frozen=True, slots=True)
class Forecast:
    """The result of a forecast.

    Attributes:
        makespan_s: The time from the first send to the last answer.
        peak_in_flight: The largest number of requests in flight at the same time.
        refused: The ids of cases that no lane can ever serve.
        lanes: The load on each lane. Lanes without requests are left out.
        longest_s: How long the longest episode takes, from its first lease to its last answer.
    """

    makespan_s: float
    peak_in_flight: int
    refused: tuple[str, ...]
    lanes: Mapping[LaneId, LaneLoad] = field(default_factory=dict)
    longest_s: float = 0.0


def forecast(
    pool: Pool,
    courses: Sequence[ForecastEpisode],
    assignment: Assignment,
    *,
    between_s: float = 0.0,
    most_open: int = 1_000_000,
    seed: int = 0,
) -> Forecast:
    """Simulate a run and all its episodes in virtual time.

    The simulation does not model the workers. In a real run, any worker with cases takes over idle
    seats. So homes determine which worker sends a request, but not when it is sent. The same
    arguments give the same forecast.

    Args:
        pool: The lanes and limits as declared. Sends are spaced with the same headroom as in runs.
        courses: All episodes, in the order in which they are to begin.
        assignment: The assignment of the cases. Only its groups are used; its homes are ignored.
        between_s: How long the client and the network take between an answer and the next request
            in the same episode, in seconds, >= 0.
        most_open: How many episodes may run at the same time; 1 in the modes `serial` and `rotate`.
        seed: The broker's seed.
    """
    return _Play(pool, courses, assignment, between_s, most_open, seed).run()


class _Play(BrokerPlay):
    def __init__(  # noqa: PLR0917 - called once
        self,
        pool: Pool,
        courses: Sequence[ForecastEpisode],
        assignment: Assignment,
        between_s: float,
        most_open: int,
        seed: int,
    ) -> None:
        super().__init__(LaneBroker(pool, seed=seed, late_s=settled_late_s))
        self._between_s = between_s
        self._ids = itertools.count()
        self._asked: dict[int, tuple[ForecastEpisode, int]] = {}
        self._admission: Admission[ForecastEpisode] = Admission(most_open)
        # If all episodes may run at the same time, no episode waits for another to end.
        self._is_narrow = most_open < len(courses)
        self._begin_s = math.inf
        self._end_s = 0.0
        self._in_flight = 0
        self._peak = 0
        self._refused: list[str] = []
        self._lanes: defaultdict[LaneId, LaneLoad] = defaultdict(LaneLoad)
        self._opened_s: dict[str, float] = {}
        self._longest_s = 0.0
        # The queues in which a case may request a lease, because a request was granted or refused,
        # or an episode ended.
        self._to_open: dict[Line, None] = {}
        self.connect(_WORKER)
        self.assign(assignment)
        for course in courses:
            self._to_open[self._admission.add(course)] = None
        self._open()

    def run(self) -> Forecast:
        """Simulate the run until the last episode has ended."""
        while self.step():
            self._open()
        span_s = max(0.0, self._end_s - self._begin_s)
        return Forecast(
            span_s, self._peak, tuple(self._refused), dict(self._lanes), self._longest_s
        )

    def _open(self) -> None:
        """Let cases request leases, until enough cases in each queue are waiting for a lease."""
        while self._to_open:
            lines, self._to_open = self._to_open, {}
            for line in lines:
                while (course := self._admission.next_to_ask(line)) is not None:
                    self._ask(course, 0, None)

    def _ask(self, course: ForecastEpisode, turn: int, lane: LaneId | None) -> None:
        number = next(self._ids)
        self._asked[number] = (course, turn)
        step, is_own = course.step(turn), turn < len(course.services_s)
        request = LeaseRequest(
            number,
            step.model,
            course.group if is_own else "",
            opens=turn == 0,
            lane=lane if is_own else None,
            case_id=course.case_id,
            tokens=step.tokens,
        )
        self.request(_WORKER, request)

    def _answered(self, course: ForecastEpisode, turn: int, lease: Lease) -> None:
        self._in_flight -= 1
        self._end_s = self.now_s
        self.release(_WORKER, lease.lease_id)
        if turn + 1 < course.n_steps:
            self.later(self._between_s, self._ask, course, turn + 1, lease.lane)
        else:
            self._over(course)

    def _over(self, course: ForecastEpisode) -> None:
        case_id = course.case_id
        self._longest_s = max(self._longest_s, self.now_s - self._opened_s.pop(case_id))
        self.episode_ended(_WORKER, case_id)
        self._admission.closed()
        if self._is_narrow:
            self._to_open.update(dict.fromkeys(self._admission.lines()))

    def book(self, actions: list[Action]) -> None:
        """Let granted requests take the time that they need; end the cases of refused requests."""
        for action in actions:
            course, turn = self._asked.pop(action.request_id)
            line = (course.model, course.group)
            if not isinstance(action, Grant):
                self._refused.append(course.case_id)
                if turn == 0:
                    self._admission.refused(line)
                    self._to_open[line] = None
                else:
                    self._over(course)
                continue
            if self._peak == 0:
                self._begin_s = self.now_s
            self._in_flight += 1
            self._peak = max(self._peak, self._in_flight)
            lane = action.lease.lane
            load = self._lanes[lane]
            step = course.step(turn)
            load.requests += 1
            load.busy_s += step.service_s
            load.tokens += step.tokens
            self.later(step.service_s, self._answered, course, turn, action.lease)
            if turn == 0:
                self._opened_s[course.case_id] = self.now_s
                self._admission.opened(line)
                self._to_open[line] = None
