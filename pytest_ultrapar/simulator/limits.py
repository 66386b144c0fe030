"""How the server judges its callers: exact seats, and rates by windows."""

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
    """A sliding window log: one more arrival has a place while the window holds <= `rate` units.

    So no window holds more than the rate and one call. That call of tolerance is for the way from
    sender to server: sends that keep their distance may arrive closer together. A window is half
    open, so arrivals exactly `window_s` apart never share one.
    """

    __slots__ = ("_arrivals", "_n", "_window_s", "rate")
    _most_over: ClassVar[int] = 0

    def __init__(self, rate: float, window_s: float) -> None:
        self.rate = rate
        self._window_s = window_s
        self._n = 0
        self._arrivals: deque[tuple[float, int]] = deque()

    def wait_s(self, now_s: float) -> float:
        """Seconds until one more arrival has a place, 0 when it has one now."""
        at_s = self._read(now_s)
        arrivals = self._arrivals
        while arrivals and self._over_s(arrivals[0][0]) <= at_s:
            self._n -= arrivals.popleft()[1]
        # The rate may have fallen since they came: then several must go first.
        over = self._n - self.rate
        if over <= self._most_over:
            return 0.0
        for arrived_s, n in arrivals:
            over -= n
            if over <= self._most_over:
                return self._over_s(arrived_s) - at_s
        return self._window_s

    def arrive(self, now_s: float, n: int = 1) -> None:
        """Count the units of one arrival."""
        self._arrivals.append((self._read(now_s), n))
        self._n += n

    def _read(self, now_s: float) -> float:
        """The time by the clock of this window."""
        return now_s

    def _over_s(self, at_s: float) -> float:
        """When what arrived at a time counts no more."""
        return at_s + self._window_s


class DayWindow(Window):
    """Units of a day: a calendar day of a zone, or any 24 hours, by the wall clock.

    No tolerance: an arrival has a place while fewer than `rate` units, a whole number, are counted.
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
    """When a request that is read now arrived at the earliest.

    On a busy machine a server has no CPU for a quarter of a second, and then reads at once all that
    came meanwhile: the callers kept their distance.
    """

    _NOTICED_S: ClassVar[float] = 0.002
    _BATCH_S: ClassVar[float] = 0.02
    """What is read so soon after a wait may have come while it lasted."""

    def __init__(self, waited_s: float) -> None:
        self._waited_s = waited_s
        self._since_s = self._batch_end_s = -math.inf

    def since_s(self, now_s: float, waited_s: float) -> float:
        """That time; `waited_s` as `CpuWaits.total_s` says it now."""
        wait_s = waited_s - self._waited_s
        if wait_s > self._NOTICED_S:
            if now_s >= self._batch_end_s:
                self._since_s = now_s - wait_s
            self._batch_end_s = now_s + self._BATCH_S
        self._waited_s = waited_s
        return self._since_s if now_s < self._batch_end_s else now_s


SEAT_RETRY_S = 1.0
"""What a caller is told to wait when all seats are taken: nobody knows when one frees."""


@dataclass(frozen=True, slots=True)
class Exceeded:
    """Why a request is not admitted.

    Attributes:
        limit: Name of the limit.
        bound: Which of its numbers, by its word.
        allowed: That number.
        retry_after_s: Seconds until a place frees, > 0.
    """

    limit: str
    bound: str
    allowed: float
    retry_after_s: float


class Gate:
    """One limit with what it has admitted so far.

    Attributes:
        counts_tokens: Whether a request's tokens must be known to admit it.
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
        """Hold callers to other numbers from now on; who is in flight or arrived still counts.

        Args:
            amounts: By the words of the pool file; what is missing is unlimited.
        """
        self._workers = amounts.get("workers", math.inf)
        had = {word: one for word, one, _ in self._rows}
        meters: dict[str, Window] = {}
        for word, amount in amounts.items():
            kind = LIMIT_KINDS[word]
            if kind.window_s:
                meters[word] = had.get(word) or self._new_window(kind)
                meters[word].rate = amount
        # A tuple, since every request goes through it twice.
        self._rows = tuple((word, one, _counts_tokens([word])) for word, one in meters.items())

    def _new_window(self, kind: LimitKind) -> Window:
        if kind.is_daily:
            return DayWindow(0, kind.window_s, self._day, self._clock)
        return Window(0, kind.window_s)

    def decide(self, now_s: float) -> Exceeded | None:
        """Why one more request has no place here now; None when it has one."""
        for word, meter, _ in self._rows:
            if wait_s := meter.wait_s(now_s):
                return Exceeded(self.name, word, meter.rate, wait_s)
        if self.in_flight >= self._workers:
            return Exceeded(self.name, "workers", self._workers, SEAT_RETRY_S)
        return None

    def take(self, since_s: float, n_tokens: int) -> None:
        """Admit one request, which came at that time at the earliest."""
        self.in_flight += 1
        for _, meter, counts_tokens in self._rows:
            meter.arrive(since_s, n_tokens if counts_tokens else 1)

    def free(self) -> None:
        """One admitted request has ended."""
        self.in_flight -= 1


class LimitPath:
    """The gates that requests of one lane pass: each takes one unit of all, or none at all."""

    __slots__ = ("_gates", "counts_tokens")

    def __init__(self, gates: Iterable[Gate]) -> None:
        self._gates = tuple(gates)
        self.counts_tokens = any(gate.counts_tokens for gate in self._gates)

    def admit(
        self, now_s: float, n_tokens: int = 0, since_s: float | None = None
    ) -> Exceeded | None:
        """None with a place taken in every gate, or the gate shut the longest with nothing taken.

        A refused request does not count in any window, so that waiting as told always helps.

        Args:
            now_s: The time.
            n_tokens: Of prompt and completion; of use only where a gate counts them.
            since_s: When it came at the earliest, where that is not now: a window counts it from
                then on, so it refuses only what was too much whenever it came.
        """
        shut = [exceeded for gate in self._gates if (exceeded := gate.decide(now_s))]
        if shut:
            return max(shut, key=lambda exceeded: exceeded.retry_after_s)
        for gate in self._gates:
            gate.take(now_s if since_s is None else since_s, n_tokens)
        return None

    def free(self) -> None:
        """An admitted request has ended."""
        for gate in self._gates:
            gate.free()


def amounts_of(limit: Limit) -> dict[str, float]:
    """What the pool says of a limit, by its words."""
    return {kind.word: amount for kind, amount in limit.rows}


def amounts_at(
    base: Mapping[str, float], steps: Sequence[Capacity], elapsed_s: float
) -> Mapping[str, float]:
    """What a limit holds at a moment: the file's later entries go before earlier ones.

    Args:
        base: What it holds without any entry.
        steps: All entries about it.
        elapsed_s: Seconds since the script's beginning.
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
    """A gate that looks at the time before it judges."""

    __slots__ = ("_base", "_steps", "_timeline")

    def __init__(self, limit: Limit, steps: Sequence[Capacity], timeline: Timeline) -> None:
        super().__init__(limit)
        self._base = amounts_of(limit)
        self._steps = tuple(steps)
        self._timeline = timeline
        self.counts_tokens |= any(_counts_tokens(step.amounts) for step in self._steps)

    def decide(self, now_s: float) -> Exceeded | None:
        """Why one more request has no place here now; None when it has one."""
        self.hold(amounts_at(self._base, self._steps, self._timeline.elapsed_s(now_s)))
        return super().decide(now_s)


def _counts_tokens(words: Iterable[str]) -> bool:
    return any(LIMIT_KINDS[word].counts == "tokens" for word in words)
