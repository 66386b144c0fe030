"""Read time, in this module only: pure code takes `now_s`, all other code takes a `Clock`.

A test that fakes the clock does not change a run's clocks. This module takes its functions when it
is imported and uses clocks that the libraries do not fake: freezegun does not know
`clock_gettime`, and time-machine fakes only `CLOCK_REALTIME`.
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
"""A clock of Linux: the time of day, up to 10 ms ago."""
_fine = _CLOCK_REALTIME_COARSE
"""Exact if the system has `CLOCK_TAI`, and then a whole number of seconds away from `REALTIME`."""
with suppress(OSError):
    clock_gettime(CLOCK_TAI)
    _fine = CLOCK_TAI
_at = datetime.fromtimestamp


class Clock(Protocol):
    """A source of seconds that never goes backwards."""

    def now_s(self) -> float:
        """Seconds since an arbitrary, fixed start."""


def boot_s() -> float:
    """Seconds since boot, including sleep: the time of `MonotonicClock`."""
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

    It also counts while the host sleeps: after a sleep, a run must not use permissions that have
    expired, such as its part of a limit.
    """

    __slots__ = ()

    def now_s(self) -> float:
        """Seconds since boot (`CLOCK_BOOTTIME`)."""
        return boot_s()


class CpuWaits:
    """How long the thread that creates it was ready to run but had no CPU.

    Source: proc(5), the second number of `schedstat`.
    """

    def __init__(self) -> None:
        self._fd: int | None = None
        # Some kernels are built without it.
        with suppress(OSError):
            self._fd = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)

    def total_s(self) -> float:
        """Seconds so far; 0 if the kernel does not report them. Takes 3 us."""
        return 0.0 if self._fd is None else int(Disk.pread(self._fd, 64, 0).split()[1]) / 1e9

    def close(self) -> None:
        """Close the file; called once, at the end."""
        if self._fd is not None:
            os.close(self._fd)


def cpu_use(pid: int) -> tuple[float, float]:
    """CPU seconds that a process has used so far, and the seconds its threads waited for a CPU.

    The waiting time covers threads that are alive, and is 0 if the kernel does not report it.
    Source: clock_getcpuclockid(3) of the GNU C library (`MAKE_PROCESS_CPUCLOCK`); `CpuWaits`.

    Raises:
        OSError: The process does not exist.
    """
    waited_ns = 0
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with suppress(OSError):  # the thread has just ended
            waited_ns += int(path.read_bytes().split()[1])
    return clock_gettime(~pid << 3 | 2), waited_ns / 1e9


def utc_now_us() -> int:
    """Microseconds since the epoch, for timestamps people read; never for limits or durations."""
    return int(wall_s() * 1e6)


def boot_id() -> str:
    """An id of this boot of the host; times of `boot_s` compare only within one boot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        # A sandbox without /proc: no other process compares its times with these.
        return uuid.uuid4().hex


class DayClock(Protocol):
    """Converts a time of the broker to the wall clock."""

    def wall_s(self, now_s: float) -> float:
        """Seconds since the epoch at the broker's current time, `now_s`."""


class HostDayClock:
    """The wall clock of this host; it may jump."""

    __slots__ = ()

    def wall_s(self, now_s: float) -> float:
        """Seconds since the epoch."""
        return wall_s()
