"""Logs of requests for tests of audit, bound and attribution."""

from __future__ import annotations

from pytest_ultrapar.analysis.requests import RequestLog
from pytest_ultrapar.records import Attempt, EpisodeEnded


def request(sent_s, ended_s, *, on=0, turn=0, number=0, waited_s=0.0, for_rate_s=0.0, **fields):
    """One attempt on lane `on`, after `waited_s` for a seat and `for_rate_s` for a rate.

    It is sent `held_s` seconds after its lease.
    """
    granted_s = sent_s - fields.pop("held_s", 0.0)
    return Attempt(
        turn=turn,
        attempt=number,
        provider="p",
        instance=f"i{on}",
        key="k",
        t_ready_s=granted_s - waited_s - for_rate_s,
        t_lease_s=granted_s,
        t_send_s=sent_s,
        t_end_s=ended_s,
        outcome=fields.pop("outcome", "ok"),
        in_flight_at_send=1,
        seat_wait_s=waited_s,
        rate_wait_s=for_rate_s,
        **fields,
    )


def episode(*attempts, at_us=0):
    return EpisodeEnded("c", "w", "returned", at_us, at_us, 1.0, attempts=list(attempts))


def log_of(lanes, *episodes, measured=True):
    log = RequestLog(lanes)
    for one in episodes:
        log.add(one, measured=measured)
    return log
