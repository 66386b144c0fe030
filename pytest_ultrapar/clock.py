"""The one place where time is read: pure code takes `now_s`, everything else a `Clock`."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of seconds that never goes backwards."""

    def now_s(self) -> float:
        """Seconds since an arbitrary, fixed start."""
        ...


class MonotonicClock:
    """The host's monotonic clock, the same for all processes of one boot."""

    __slots__ = ()

    def now_s(self) -> float:
        """Seconds since boot (`CLOCK_MONOTONIC`)."""
        return time.monotonic()


def utc_now_us() -> int:
    """Microseconds since the epoch, for timestamps people read; never for limits or durations."""
    return time.time_ns() // 1000
