"""Compute two times for each case: the time in the queue, and the time from start to end.

All functions are pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_ultrapar.report.pages.columns import floats, mask, rounded
from pytest_ultrapar.store.timing import NO_SERVICE

if TYPE_CHECKING:
    from pytest_ultrapar.report.pages.columns import Floats, Numbers

_DIGITS = 4
Table = Any
"""An Arrow table."""


def case_times(
    results: Table, attempts: Table, case_of: Numbers
) -> tuple[list[float], dict[str, list[float]]]:
    """Return each case's time in the queue, and its time from start to end, split into parts.

    `service_s` is the part of the duration that is spent on answers. The rest of the duration,
    minus the back-off, is spent on waits and refused requests. The time in the queue is the total
    wait minus the waits after the start.

    Args:
        results: Rows of `results`.
        attempts: Rows of `attempts`.
        case_of: For each row of `attempts`, the row number of its case in `results`; -1 if the
            case is not there.

    Returns:
        Two results. The first is how many seconds each case spent in the queue, until it got its
        first lease. The second is how many seconds each case took from then to its end, by part.
        These parts add up to `duration_s` in `results`.
    """
    sent_s = floats(attempts["t_send_s"])
    asked_s, leased_s = (
        np.nan_to_num(floats(attempts[f"t_{one}_s"])) for one in ("ready", "lease")
    )
    refused = mask(attempts["outcome"], NO_SERVICE) & ~np.isnan(sent_s)
    known = case_of >= 0

    def of_cases(each_s: Floats) -> Floats:
        return np.bincount(case_of[known], each_s[known], len(results)).astype(float)

    # A case gets its first lease before it makes the request that uses the lease, so this request
    # does not wait.
    held_s = of_cases(np.maximum(0.0, leased_s - asked_s))

    def seconds(name: str) -> Floats:
        return np.nan_to_num(floats(results[name]))

    duration_s = seconds("duration_s")
    answers_s = np.minimum(seconds("service_s"), duration_s)
    backoff_s = np.minimum(seconds("backoff_s"), duration_s - answers_s)
    rest_s = duration_s - answers_s - backoff_s
    took_s = np.where(refused, floats(attempts["t_end_s"]) - sent_s, 0.0)
    refused_s = np.minimum(of_cases(took_s), rest_s)
    waited_s = rest_s - refused_s
    parts = {
        "answers": answers_s,
        "waits for seats and rates": waited_s,
        "back-off": backoff_s,
        "refused requests": refused_s,
    }
    # If requests waited at the same time, the sum of their waits may be longer than the case took.
    waited_s = np.where(answers_s == 0, np.maximum(waited_s, held_s), waited_s)
    all_s = seconds("queue_wait_s") + seconds("rate_wait_s")
    return (
        rounded(np.maximum(0.0, all_s - waited_s), _DIGITS),
        {said: rounded(kept_s, _DIGITS) for said, kept_s in parts.items()},
    )
