"""Read the clocks. No other module reads it: pure code gets `now_s`, and all other code a `Clock`.

A test that fakes the time does not affect the clocks of the run. This module looks up its functions
when it is imported. Libraries for fake time do not replace its clocks: freezegun does not know
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
"""A Linux clock that shows the time of day. It may lag by up to 10 ms."""
_fine = _CLOCK_REALTIME_COARSE
"""`CLOCK_TAI` if the system has it. It is exact, and differs from `REALTIME` by whole seconds."""
with suppress(OSError):
    clock_gettime(CLOCK_TAI)
    _fine = CLOCK_TAI
_at = datetime.fromtimestamp


class Clock(Protocol):
    """A source of seconds that never go backwards."""

    def now_s(self) -> float:
        """Return the seconds since an arbitrary, fixed moment."""


def boot_s() -> float:
    """Return the seconds since boot, including sleep: the time on `MonotonicClock`."""
    return clock_gettime(CLOCK_BOOTTIME)


def wall_s() -> float:
    """Return the seconds since the epoch on the host's wall clock, which may jump."""
    fine_s = clock_gettime(_fine)
    return fine_s - round(fine_s - clock_gettime(_CLOCK_REALTIME_COARSE))


def utc_now() -> datetime:
    """Return the time of day, for display."""
    return _at(wall_s(), UTC)


class MonotonicClock:
    """The host's monotonic clock, which is the same for all processes until the next boot.

    It also counts while the host sleeps: after a sleep, a run must not use permissions that have
    expired, such as its part of a limit.
    """

    __slots__ = ()

    def now_s(self) -> float:
        """Return the seconds since boot (`CLOCK_BOOTTIME`)."""
        return boot_s()


class CpuWaits:
    """Measures how long the thread that creates it was ready to run but had no CPU.

    Source: proc(5), the second number of `schedstat`.
    """

    def __init__(self) -> None:
        self._fd: int | None = None
        # Some kernels are built without this file.
        with suppress(OSError):
            self._fd = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)

    def total_s(self) -> float:
        """Return the seconds waited so far; 0 if the kernel does not report them. Takes 3 us."""
        return 0.0 if self._fd is None else int(Disk.pread(self._fd, 64, 0).split()[1]) / 1e9

    def close(self) -> None:
        """Close `schedstat`. Call this once, at the end."""
        if self._fd is not None:
            os.close(self._fd)


def cpu_use(pid: int) -> tuple[float, float]:
    """Return the CPU seconds of a process so far, and the seconds its threads waited for a CPU.

    The waiting time covers only threads that are alive; it is 0 if the kernel does not report it.
    Source: clock_getcpuclockid(3) in the GNU C library (`MAKE_PROCESS_CPUCLOCK`); `CpuWaits`.

    Raises:
        OSError: The process does not exist.
    """
    waited_ns = 0
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with suppress(OSError):  # the thread has just ended
            waited_ns += int(path.read_bytes().split()[1])
    return clock_gettime(~pid << 3 | 2), waited_ns / 1e9


def utc_now_us() -> int:
    """Return microseconds since the epoch, for display only, not for limits or durations."""
    return int(wall_s() * 1e6)


def boot_id() -> str:
    """Return an id for this boot of the host; times of `boot_s` are comparable within one boot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        # In a sandbox without /proc, no other process compares its times with these times.
        return uuid.uuid4().hex


class DayClock(Protocol):
    """Converts the broker's time to wall-clock time."""

    def wall_s(self, now_s: float) -> float:
        """Return the seconds since the epoch at `now_s`, the broker's current time."""


class HostDayClock:
    """The wall clock of this host, which may jump."""

    __slots__ = ()

    def wall_s(self, now_s: float) -> float:
        """Return the seconds since the epoch."""
        return wall_s()
