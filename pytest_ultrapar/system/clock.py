"""The one place where time is read: pure code takes `now_s`, everything else a `Clock`.

A test that fakes the clock fakes no clock of a run: what is called here was taken when this was
imported, and of clocks that are not faked. freezegun knows no `clock_gettime`, and time-machine
only that of `CLOCK_REALTIME`.
"""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from time import CLOCK_BOOTTIME, CLOCK_TAI, clock_gettime
from typing import Protocol

from pytest_ultrapar.system.disk import Disk

_CLOCK_REALTIME_COARSE = 5
"""Of Linux; the time of day, up to 10 ms ago."""
_fine = _CLOCK_REALTIME_COARSE
"""Whole seconds away from it, and exact where the system has such a clock."""
with suppress(OSError):
    clock_gettime(CLOCK_TAI)
    _fine = CLOCK_TAI
_at = datetime.fromtimestamp


class Clock(Protocol):
    """A source of seconds that never goes backwards."""

    def now_s(self) -> float:
        """Seconds since an arbitrary, fixed start."""


def boot_s() -> float:
    """Seconds since boot, times of sleep included: what `MonotonicClock` says."""
    return clock_gettime(CLOCK_BOOTTIME)


def wall_s() -> float:
    """Seconds since the epoch, of the host's wall clock; it may jump."""
    fine_s = clock_gettime(_fine)
    return fine_s - round(fine_s - clock_gettime(_CLOCK_REALTIME_COARSE))


def utc_now() -> datetime:
    """The time of day, for people."""
    return _at(wall_s(), UTC)


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
        return 0.0 if self._fd is None else int(Disk.pread(self._fd, 64, 0).split()[1]) / 1e9

    def close(self) -> None:
        """Let go of it; called once, at last."""
        if self._fd is not None:
            os.close(self._fd)


def cpu_use(pid: int) -> tuple[float, float]:
    """CPU seconds that a process has taken so far, and those that its threads were ready to run.

    The latter are of threads that live, and 0 where the kernel does not say.

    Source: clock_getcpuclockid(3) of the GNU C library (`MAKE_PROCESS_CPUCLOCK`); `CpuWaits`.

    Raises:
        OSError: There is no such process.
    """
    waited_ns = 0
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with suppress(OSError):  # of a thread that has just ended
            waited_ns += int(path.read_bytes().split()[1])
    return clock_gettime(~pid << 3 | 2), waited_ns / 1e9


def utc_now_us() -> int:
    """Microseconds since the epoch, for timestamps people read; never for limits or durations."""
    return int(wall_s() * 1e6)


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


class HostDayClock:
    """The wall clock of this host; may jump."""

    __slots__ = ()

    def wall_s(self, now_s: float) -> float:
        """Read it."""
        return wall_s()
