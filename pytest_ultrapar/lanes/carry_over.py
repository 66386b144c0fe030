"""What one run's sends leave for the next run on the same limits: how long they keep it waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.lanes.headroom import HEADROOM, TOKEN_WINDOW_S
from pytest_ultrapar.lanes.lane_state import MAX_SEND_BY_S

if TYPE_CHECKING:
    from collections.abc import Collection

    from pytest_ultrapar.pool.model import Limit


def free_s(limits: Collection[Limit], over_s: float) -> float:
    """From when on nothing that a run sent counts against another run's first send.

    A run spaces its own sends, so that any window is within its limit (`rate.RateLimiter`). So do
    two runs together when their last and first send are as far apart: no window needs to pass, and
    nobody needs to know when the last send was, only that there was none later. Tokens are counted
    over the whole window, which has to pass.

    Args:
        limits: Those on which the run's sends fell.
        over_s: When the run's last lease may have been granted at the latest; it may have been used
            a little later.
    """
    waits_s = [TOKEN_WINDOW_S + MAX_SEND_BY_S for limit in limits if limit.tpm is not None]
    waits_s += [
        (1 + HEADROOM) * window_s / rate + min(MAX_SEND_BY_S, HEADROOM * window_s)
        for limit in limits
        for rate, window_s in ((limit.qps, 1.0), (limit.rpm, 60.0))
        if rate is not None
    ]
    return over_s + max(waits_s, default=0.0)
