"""Where the time of a case went: in line before it began, and from then to its end; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_ultrapar.store.timing import NO_SERVICE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

COLUMNS = ("case_id", "t_ready_s", "t_lease_s", "t_send_s", "t_end_s", "outcome")
"""Of `attempts`."""
_DIGITS = 4


class Held(NamedTuple):
    """What kept a case's requests up, all of them together.

    Attributes:
        waited_s: For leases that it asked for after it had begun.
        refused_s: In requests that were refused for their rate.
    """

    waited_s: float = 0.0
    refused_s: float = 0.0


class CaseTimes(NamedTuple):
    """The two times of a case and the parts of the second.

    Attributes:
        line_s: In line for its first lease, before it began.
        parts: From its first lease to its end: seconds by what they were spent on, none of them 0;
            their sum is `duration_s` of `results`.
    """

    line_s: float
    parts: dict[str, float]


def held_up(attempts: Iterable[Mapping[str, Any]]) -> dict[str, Held]:
    """By case id, for cases that waited or were refused.

    Args:
        attempts: Rows with `COLUMNS`.
    """
    found: dict[str, Held] = {}
    for row in attempts:
        # The first lease is older than the request that uses it: nothing was waited for there.
        late_s = max(0.0, (row["t_lease_s"] or 0.0) - (row["t_ready_s"] or 0.0))
        refused_s = 0.0
        if row["outcome"] in NO_SERVICE and row["t_send_s"] is not None:
            refused_s = row["t_end_s"] - row["t_send_s"]
        if late_s or refused_s:
            held = found.get(row["case_id"], Held())
            found[row["case_id"]] = Held(held.waited_s + late_s, held.refused_s + refused_s)
    return found


def case_times(row: Mapping[str, Any], held: Held) -> CaseTimes:
    """The times of a case.

    `service_s` is its duration less everything else, so what is neither service nor back-off was
    waiting or refused. All that it waited, less what it waited then, it waited before.

    Args:
        row: Of `results`.
        held: Of its requests.
    """
    duration_s = row["duration_s"] or 0.0
    answers_s = min(row["service_s"] or 0.0, duration_s)
    backoff_s = min(row["backoff_s"] or 0.0, duration_s - answers_s)
    rest_s = duration_s - answers_s - backoff_s
    refused_s = min(held.refused_s, rest_s)
    waited_s = rest_s - refused_s
    parts = {
        "answers": answers_s,
        "waits for seats and rates": waited_s,
        "back-off": backoff_s,
        "refused requests": refused_s,
    }
    if not answers_s:
        # Requests that waited at the same time waited longer than the case took.
        waited_s = max(waited_s, held.waited_s)
    all_s = (row["queue_wait_s"] or 0.0) + (row["rate_wait_s"] or 0.0)
    return CaseTimes(
        round(max(0.0, all_s - waited_s), _DIGITS),
        {said: kept for said, seconds in parts.items() if (kept := round(seconds, _DIGITS))},
    )
