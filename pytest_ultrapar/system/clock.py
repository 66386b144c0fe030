"""The one place where time is read: pure code takes `now_s`, everything else a `Clock`."""

from __future__ import annotations

import os
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Protocol


class Clock(Protocol):
    """A source of seconds that never goes backwards."""

    def now_s(self) -> float:
        """Seconds since an arbitrary, fixed start."""
        ...


def boot_s() -> float:
    """Seconds since boot, times of sleep included: what `MonotonicClock` says."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class MonotonicClock:
    """The host's monotonic clock, the same for all processes of one boot.

    The one that goes on while the host sleeps: what a run may do until a given time, such as send
    with its part of a limit, it may not do after it has slept.
    """

    __slots__ = ()

    def now_s(self) -> float:
        """Seconds since boot (`CLOCK_BOOTTIME`)."""
        return boot_s()


class CpuWaits:
    """How long the thread that makes it was ready to run and had no CPU.

    Source: proc(5), the second number of `schedstat`.
    """

    def __init__(self) -> None:
        self._fd: int | None = None
        # A kernel may be built without it.
        with suppress(OSError):
            self._fd = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)

    def total_s(self) -> float:
        """Seconds so far; 0 where the kernel does not say. Takes 3 us."""
        return 0.0 if self._fd is None else int(os.pread(self._fd, 64, 0).split()[1]) / 1e9


def utc_now_us() -> int:
    """Microseconds since the epoch, for timestamps people read; never for limits or durations."""
    return time.time_ns() // 1000


def boot_id() -> str:
    """Names the start of the host; `boot_s` compares within one only."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        # A sandbox without /proc: no other process compares with ours.
        return uuid.uuid4().hex


class DayClock(Protocol):
    """Says what a time of the broker is by the wall clock."""

    def wall_s(self, now_s: float) -> float:
        """Seconds since the epoch at the moment that the broker calls `now_s`, which is now."""
        ...


class HostDayClock:
    """The wall clock of this host; may jump."""

    __slots__ = ()

    def wall_s(self, now_s: float) -> float:
        """Read it."""
        return time.time()
