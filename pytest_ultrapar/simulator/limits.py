"""The limits that the server enforces: exact seats, and rates in windows."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from typing import TYPE_CHECKING, ClassVar
from zoneinfo import ZoneInfo

from pytest_ultrapar.pool.model import LIMIT_KINDS
from pytest_ultrapar.system.clock import HostDayClock

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_ultrapar.pool.model import Limit, LimitKind
    from pytest_ultrapar.simulator.faults.timeline import Capacity, Timeline
    from pytest_ultrapar.system.clock import DayClock


class Window:
    """A sliding window log: it accepts an arrival while the window contains <= `rate` units.

    Therefore a window exceeds the rate by at most one call. The extra call allows for the network:
    calls that were sent at the right interval may arrive closer together. A window is half open, so
    arrivals that are exactly `window_s` apart are never in the same window.
    """

    __slots__ = ("_arrivals", "_n", "_window_s", "rate")
    _most_over: ClassVar[int] = 0

    def __init__(self, rate: float, window_s: float) -> None:
        self.rate = rate
        self._window_s = window_s
        self._n = 0
        self._arrivals: deque[tuple[float, int]] = deque()

    def wait_s(self, now_s: float) -> float:
        """Return the seconds until the window accepts one more arrival; 0 if it accepts one now."""
        at_s = self._read(now_s)
        arrivals = self._arrivals
        while arrivals and self._over_s(arrivals[0][0]) <= at_s:
            self._n -= arrivals.popleft()[1]
        # If the rate was reduced after these arrivals, several of them must expire first.
        over = self._n - self.rate
        if over <= self._most_over:
            return 0.0
        for arrived_s, n in arrivals:
            over -= n
            if over <= self._most_over:
                return self._over_s(arrived_s) - at_s
        return self._window_s

    def arrive(self, now_s: float, n: int = 1) -> None:
        """Count the `n` units of one arrival."""
        self._arrivals.append((self._read(now_s), n))
        self._n += n

    def _read(self, now_s: float) -> float:
        """The time `now_s` on the window's own clock."""
        return now_s

    def _over_s(self, at_s: float) -> float:
        """The time at which an arrival at `at_s` leaves the window."""
        return at_s + self._window_s


class DayWindow(Window):
    """The units of a day on the wall clock: a calendar day in a time zone, or any 24 hours.

    It has no tolerance: it accepts an arrival only while it contains fewer than `rate` units. The
    rate is an integer.
    """

    __slots__ = ("_clock", "_zone")
    _most_over = -1

    def __init__(self, rate: float, window_s: float, zone: str | None, clock: DayClock) -> None:
        super().__init__(rate, window_s)
        self._zone = None if zone is None else ZoneInfo(zone)
        self._clock = clock

    def _read(self, now_s: float) -> float:
        return self._clock.wall_s(now_s)

    def _over_s(self, at_s: float) -> float:
        if self._zone is None:
            return super()._over_s(at_s)
        then = datetime.fromtimestamp(at_s, self._zone)
        return datetime.combine(then.date() + timedelta(days=1), time(), self._zone).timestamp()


class Lateness:
    """Finds the earliest possible arrival time of a request that is read now.

    On a busy machine, a server may get no CPU for a quarter of a second. Then it reads, all at
    once, the requests that arrived in that time, although the callers sent them at the right
    interval.
    """

    _NOTICED_S: ClassVar[float] = 0.002
    _BATCH_S: ClassVar[float] = 0.02
    """A request that is read within this time after the server waited for a CPU may have arrived
    during that wait."""

    def __init__(self, waited_s: float) -> None:
        self._waited_s = waited_s
        self._since_s = self._batch_end_s = -math.inf

    def since_s(self, now_s: float, waited_s: float) -> float:
        """Return the earliest arrival time; `waited_s` is the current `CpuWaits.total_s`."""
        wait_s = waited_s - self._waited_s
        if wait_s > self._NOTICED_S:
            if now_s >= self._batch_end_s:
                self._since_s = now_s - wait_s
            self._batch_end_s = now_s + self._BATCH_S
        self._waited_s = waited_s
        return self._since_s if now_s < self._batch_end_s else now_s


SEAT_RETRY_S = 1.0
"""The wait to report if all seats are taken, because it is unknown when one will be free."""


@dataclass(frozen=True, slots=True)
class Exceeded:
    """The reason why a request is not admitted.

    Attributes:
        limit: The name of the limit.
        bound: The word for the bound that was exceeded, such as `rpm`.
        allowed: The amount that the bound allows.
        retry_after_s: Seconds until the limit accepts a request again, > 0.
    """

    limit: str
    bound: str
    allowed: float
    retry_after_s: float


class Gate:
    """A limit, and its count of admitted requests.

    Attributes:
        counts_tokens: Whether the limit must know a request's tokens before it admits the request.
    """

    __slots__ = ("_clock", "_day", "_rows", "_workers", "counts_tokens", "in_flight", "name")

    def __init__(self, limit: Limit, clock: DayClock | None = None) -> None:
        self.name = limit.name
        self.in_flight = 0
        self._day, self._clock = limit.day, clock or HostDayClock()
        self._rows: tuple[tuple[str, Window, bool], ...] = ()
        amounts = amounts_of(limit)
        self.counts_tokens = _counts_tokens(amounts)
        self.hold(amounts)

    def hold(self, amounts: Mapping[str, float]) -> None:
        """Change the amounts. Requests in flight and earlier arrivals still count.

        Args:
            amounts: Amounts by their names in the pool file, such as `rpm`; a missing amount is
                unlimited.
        """
        self._workers = amounts.get("workers", math.inf)
        had = {word: one for word, one, _ in self._rows}
        meters: dict[str, Window] = {}
        for word, amount in amounts.items():
            kind = LIMIT_KINDS[word]
            if kind.window_s:
                meters[word] = had.get(word) or self._new_window(kind)
                meters[word].rate = amount
        # A tuple, because every request iterates over it twice.
        self._rows = tuple((word, one, _counts_tokens([word])) for word, one in meters.items())

    def _new_window(self, kind: LimitKind) -> Window:
        if kind.is_daily:
            return DayWindow(0, kind.window_s, self._day, self._clock)
        return Window(0, kind.window_s)

    def decide(self, now_s: float) -> Exceeded | None:
        """The reason to refuse one more request now; None if the gate admits it."""
        for word, meter, _ in self._rows:
            if wait_s := meter.wait_s(now_s):
                return Exceeded(self.name, word, meter.rate, wait_s)
        if self.in_flight >= self._workers:
            return Exceeded(self.name, "workers", self._workers, SEAT_RETRY_S)
        return None

    def take(self, since_s: float, n_tokens: int) -> None:
        """Admit one request; `since_s` is its earliest possible arrival time."""
        self.in_flight += 1
        for _, meter, counts_tokens in self._rows:
            meter.arrive(since_s, n_tokens if counts_tokens else 1)

    def free(self) -> None:
        """Record that one admitted request has ended."""
        self.in_flight -= 1


class LimitPath:
    """The gates of one lane. An admitted request takes a unit from each; a refused one, nothing."""

    __slots__ = ("_gates", "counts_tokens")

    def __init__(self, gates: Iterable[Gate]) -> None:
        self._gates = tuple(gates)
        self.counts_tokens = any(gate.counts_tokens for gate in self._gates)

    def admit(
        self, now_s: float, n_tokens: int = 0, since_s: float | None = None
    ) -> Exceeded | None:
        """Take a unit from every gate and return None, or return the refusal with the longest wait.

        No window counts a refused request. So a caller that waits as long as the refusal says
        succeeds, unless other callers have taken its unit or all seats are still taken.

        Args:
            now_s: The current time.
            n_tokens: The tokens of prompt and completion; used only if a gate counts them.
            since_s: The earliest possible arrival time, if it differs from `now_s`. Windows count
                this request from that time on, so that they refuse a later request only if it
                certainly exceeds the limit.
        """
        shut = [exceeded for gate in self._gates if (exceeded := gate.decide(now_s))]
        if shut:
            return max(shut, key=lambda exceeded: exceeded.retry_after_s)
        for gate in self._gates:
            gate.take(now_s if since_s is None else since_s, n_tokens)
        return None

    def free(self) -> None:
        """Record that an admitted request has ended."""
        for gate in self._gates:
            gate.free()


def amounts_of(limit: Limit) -> dict[str, float]:
    """The amounts of a limit in the pool, by kind."""
    return {kind.word: amount for kind, amount in limit.rows}


def amounts_at(
    base: Mapping[str, float], steps: Sequence[Capacity], elapsed_s: float
) -> Mapping[str, float]:
    """Return the amounts of a limit at one moment. Later entries in the file override earlier ones.

    Args:
        base: The amounts that apply without any entry.
        steps: All entries for the limit.
        elapsed_s: Seconds since the script began.
    """
    amounts = base
    for step in steps:
        if step.span.holds(elapsed_s):
            amounts = {word: amount * step.factor for word, amount in amounts.items()}
            if "workers" in amounts:
                amounts["workers"] = max(1, math.floor(amounts["workers"]))
            amounts |= step.amounts
    return amounts


class MovingGate(Gate):
    """A gate whose amounts change over time."""

    __slots__ = ("_base", "_steps", "_timeline")

    def __init__(self, limit: Limit, steps: Sequence[Capacity], timeline: Timeline) -> None:
        super().__init__(limit)
        self._base = amounts_of(limit)
        self._steps = tuple(steps)
        self._timeline = timeline
        self.counts_tokens |= any(_counts_tokens(step.amounts) for step in self._steps)

    def decide(self, now_s: float) -> Exceeded | None:
        """The reason to refuse one more request now; None if the gate admits it."""
        self.hold(amounts_at(self._base, self._steps, self._timeline.elapsed_s(now_s)))
        return super().decide(now_s)


def _counts_tokens(words: Iterable[str]) -> bool:
    return any(LIMIT_KINDS[word].counts == "tokens" for word in words)
