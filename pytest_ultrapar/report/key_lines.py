"""Keys on which several processes of the documents meet, as text; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.plan.key_load import QPS_PER_PROCESS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ultrapar.plan.key_load import KeyLoad

_NAMED = 4


def key_lines(loads: Sequence[KeyLoad]) -> list[str]:
    """The documents' sum for each key: how many processes meet there, and what they would send.

    Returns:
        A line each, in the pool's order, below one that says what they are; none when no key has a
        process.
    """
    found = []
    for load in loads:
        if not load.processes:
            continue
        named = ", ".join(load.processes[:_NAMED])
        more = len(load.processes) - _NAMED
        limit = "" if load.qps_limit is None else f" of {load.qps_limit:g}"
        found.append(
            f"load: {load.name}: {load.most_at_once} at once, {load.qps:g}{limit} "
            f"QPS: {named}" + (f" and {more} more" if more > 0 else "")
        )
    if found:
        found.insert(
            0,
            "load: processes of the documents that meet on a key, at 1 QPS for each of their "
            f"workers and {QPS_PER_PROCESS} at most (the limits hold over all of them)",
        )
    return found
