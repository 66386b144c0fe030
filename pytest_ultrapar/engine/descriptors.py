"""How many connections the operating system lets this process have."""

from __future__ import annotations

import os
import resource

RESERVE = 32
"""Descriptors left to the journal, to pytest and to the suite's own tests."""
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
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + _n_open() + RESERVE
    if soft != resource.RLIM_INFINITY and soft < needed:
        raised = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, raised), hard))
    return most_connections(wanted)


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
