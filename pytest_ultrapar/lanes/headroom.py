"""How much slower than its rate a lane is driven, lest the receiver counts one too many."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_ultrapar.pool.model import Limit, Pool

HEADROOM = 0.05
"""Share by which sends are spaced wider than the declared rate asks.

Sends that are spaced exactly reach a server spaced less exactly. Fifteen workers that opened their
first connections at once on two cores sent their first requests up to 70 ms late, and 3 of 3,634
requests at 18 per second were then one call too many in the server's own window of a second; with
5 % none was.
"""

TOKEN_WINDOW_S = 60.0 * (1 + HEADROOM)
"""Over which tokens are counted in place of a minute: the same headroom, and a request that is as
large as the limit still fits."""


def with_headroom(pool: Pool) -> Pool:
    """The pool as a run's broker is given it: rates lowered by `HEADROOM`, all else as declared."""
    return replace(pool, limits={name: _lowered(limit) for name, limit in pool.limits.items()})


def _lowered(limit: Limit) -> Limit:
    share = 1 / (1 + HEADROOM)
    return replace(
        limit,
        qps=limit.qps * share if limit.qps is not None else None,
        rpm=limit.rpm * share if limit.rpm is not None else None,
    )
