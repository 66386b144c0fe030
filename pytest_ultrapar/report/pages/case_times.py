"""Where the time of a case went: in line before it began, and from then to its end; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pytest_ultrapar.report.pages.columns import floats, mask, rounded
from pytest_ultrapar.store.timing import NO_SERVICE

if TYPE_CHECKING:
    from pytest_ultrapar.report.pages.columns import Floats, Numbers

_DIGITS = 4
Table = Any
"""Arrow's."""


class Held(NamedTuple):
    """What kept the requests of each case up, all of them together.

    Attributes:
        waited_s: For leases that it asked for after it had begun.
        refused_s: In requests that were refused for their rate.
    """

    waited_s: Floats
    refused_s: Floats


class CaseTimes(NamedTuple):
    """The two times of each case and the parts of the second.

    Attributes:
        line_s: In line for its first lease, before it began.
        parts: From its first lease to its end: seconds by what they were spent on; their sum is
            `duration_s` of `results`.
    """

    line_s: list[float]
    parts: dict[str, list[float]]


def held_up(attempts: Table, case_of: Numbers, n: int) -> Held:
    """What kept cases up.

    Args:
        attempts: Rows of the table.
        case_of: For each of them the number of its case, or -1.
        n: How many cases there are.
    """
    sent_s = floats(attempts["t_send_s"])
    # The first lease is older than the request that uses it: nothing was waited for there.
    late_s = np.nan_to_num(floats(attempts["t_lease_s"])) - np.nan_to_num(
        floats(attempts["t_ready_s"])
    )
    refused = mask(attempts["outcome"], NO_SERVICE) & ~np.isnan(sent_s)
    refused_s = np.where(refused, floats(attempts["t_end_s"]) - sent_s, 0.0)
    known = case_of >= 0
    sums: list[Any] = [
        np.bincount(case_of[known], each_s[known], n)
        for each_s in (np.maximum(0.0, late_s), refused_s)
    ]
    return Held(*sums)


def case_times(results: Table, held: Held) -> CaseTimes:
    """The times of cases.

    `service_s` is its duration less everything else, so what is neither service nor back-off was
    waiting or refused. All that it waited, less what it waited then, it waited before.

    Args:
        results: Rows of the table.
        held: Of the requests of each.
    """

    def seconds(name: str) -> Floats:
        return np.nan_to_num(floats(results[name]))

    duration_s = seconds("duration_s")
    answers_s = np.minimum(seconds("service_s"), duration_s)
    backoff_s = np.minimum(seconds("backoff_s"), duration_s - answers_s)
    rest_s = duration_s - answers_s - backoff_s
    refused_s = np.minimum(held.refused_s, rest_s)
    waited_s = rest_s - refused_s
    parts = {
        "answers": answers_s,
        "waits for seats and rates": waited_s,
        "back-off": backoff_s,
        "refused requests": refused_s,
    }
    # Requests that waited at the same time waited longer than the case took.
    waited_s = np.where(answers_s == 0, np.maximum(waited_s, held.waited_s), waited_s)
    all_s = seconds("queue_wait_s") + seconds("rate_wait_s")
    return CaseTimes(
        rounded(np.maximum(0.0, all_s - waited_s), _DIGITS),
        {said: rounded(kept_s, _DIGITS) for said, kept_s in parts.items()},
    )
