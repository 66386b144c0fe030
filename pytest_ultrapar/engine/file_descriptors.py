"""Determine how many connections the operating system allows this process."""

from __future__ import annotations

import os
import resource

from pytest_ultrapar.errors import refuse

RESERVE = 32
"""File descriptors reserved for the journal, pytest and the suite's tests."""
_LEAST = 18
"""How many files a process must be able to open in addition to those already open, not counting the
pipes to its workers. With 14, no case got an answer; with 18, every case did."""
_PER_WORKER = 2
"""The number of file descriptors that the pipes to one worker need."""
_USUALLY_OPEN = 32
"""The number of open files to assume if the system does not report it."""


def connections_allowed(wanted: int) -> int:
    """Return how many connections this process may open, at least 1 and at most `wanted`.

    This raises the soft limit on open files if necessary, up to the hard limit. Without a maximum,
    idle connections would leave no descriptors for the run's files. In such a run, with 64
    descriptors and 200 seats, all 300 cases ended as errors.

    Args:
        wanted: How many connections would be useful, > 0.
    """
    _raise_soft_limit(wanted + _n_open() + RESERVE)
    return most_connections(wanted)


def check_descriptors(n_workers: int) -> None:
    """Make sure that a run can open its files, and the pipes to each worker.

    This raises the soft limit on open files if necessary, up to the hard limit. If the limit were
    too low, uvloop would abort the process, or no worker would start.

    Args:
        n_workers: The number of processes that run cases, >= 1.

    Raises:
        ConfigError: The hard limit is too low.
    """
    needed = _n_open() + _LEAST + _PER_WORKER * n_workers
    allowed = _raise_soft_limit(needed)
    if allowed < needed:
        workers = "1 process that runs" if n_workers == 1 else f"{n_workers} processes that run"
        refuse(
            f"the limit on open files (ulimit -n) is {allowed}; a run with {workers} cases needs "
            f"at least {needed}: raise the limit, for example with ulimit -n 1024"
        )


def _raise_soft_limit(needed: int) -> int:
    """Raise the soft limit to `needed`, or as far as the hard limit allows; return that number."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    possible = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft != resource.RLIM_INFINITY and soft < possible:
        resource.setrlimit(resource.RLIMIT_NOFILE, (possible, hard))
    return possible


def most_connections(wanted: int) -> int:
    """Return the same result as `connections_allowed`, but without changing a limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        return wanted
    return max(1, min(wanted, hard - _n_open() - RESERVE))


def _n_open() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - an iterator would open one more file
    except OSError:
        return _USUALLY_OPEN
