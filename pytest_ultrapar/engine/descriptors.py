"""How many connections the operating system lets this process have."""

from __future__ import annotations

import os
import resource

from pytest_ultrapar.errors import refuse

RESERVE = 32
"""Descriptors left to the journal, to pytest and to the suite's own tests."""
_LEAST = 18
"""What a process opens besides: with 14 to spare no case was answered, with 18 all were."""
_PER_WORKER = 2
"""The pipes to it."""
_USUALLY_OPEN = 32
"""Where nobody says how many are open now."""


def connections_allowed(wanted: int) -> int:
    """How many connections this process may open, at most `wanted`, at least 1.

    Raises the soft limit on open files as far as that needs and the hard one lets. Without this
    bound the connections that are kept alive leave nothing for the files of the run: with 64
    descriptors and 200 seats, all of 300 cases ended as errors.

    Args:
        wanted: How many would be of use, > 0.
    """
    _raise_soft_limit(wanted + _n_open() + RESERVE)
    return most_connections(wanted)


def check_descriptors(n_workers: int) -> None:
    """Make sure that a run can open its files at all, with one connection for each worker.

    Raises the soft limit on open files as far as that needs and the hard one lets. Below it uvloop
    aborts the process, or no worker starts.

    Args:
        n_workers: Processes that run cases, >= 1.

    Raises:
        ConfigError: The hard limit is too low.
    """
    needed = _n_open() + _LEAST + _PER_WORKER * n_workers
    allowed = _raise_soft_limit(needed)
    if allowed < needed:
        workers = "1 process that runs" if n_workers == 1 else f"{n_workers} processes that run"
        refuse(
            f"the limit on open files (ulimit -n) is {allowed}; a run with {workers} cases needs "
            f"{needed} at least: raise it, for example with ulimit -n 1024"
        )


def _raise_soft_limit(needed: int) -> int:
    """Have the soft limit be as large as needed, if it may; returns how much of that is allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    possible = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft != resource.RLIM_INFINITY and soft < possible:
        resource.setrlimit(resource.RLIMIT_NOFILE, (possible, hard))
    return possible


def most_connections(wanted: int) -> int:
    """What `connections_allowed` would say, without changing anything."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        return wanted
    return max(1, min(wanted, hard - _n_open() - RESERVE))


def _n_open() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names alone, and no iterator's own
    except OSError:
        return _USUALLY_OPEN
