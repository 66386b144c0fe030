"""How a run compares with what its pool allowed, as lines of plain text; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.report.escape import visible
from pytest_ultrapar.report.numbers import counted, duration, percent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_ultrapar.lanes.protocol import LaneStatus
    from pytest_ultrapar.results.attribution import Parts
    from pytest_ultrapar.results.audit import LimitAudit
    from pytest_ultrapar.results.run_summary import RunSummary

MOST_LIMITS = 4
_LEAST_SHARE = 0.001
_PARTS = {
    "rate_wait_s": "waiting for rates",
    "seat_wait_s": "waiting for seats",
    "backoff_s": "back-off",
    "rules_s": "rules of mode or policy",
    "client_s": "client",
    "startup_s": "start-up",
    "tail_s": "uneven end",
    "detour_s": "other lanes than the best",
    "other_s": "other",
}


def performance_lines(summary: RunSummary, lanes: Sequence[LaneStatus]) -> Iterator[str]:
    """Bound and efficiency, the parts of the makespan, and whether limits were held.

    Args:
        summary: Of the run.
        lanes: What became of each lane.
    """
    if summary.bound_s is not None and summary.efficiency is not None:
        yield (
            f"no schedule{summary.session} takes less than {duration(summary.bound_s)}"
            f" ({visible(summary.binding or '')}): efficiency {percent(summary.efficiency)}"
        )
    elif summary.rate_mode != "fixed" and summary.statistics.makespan_s is not None:
        looked = dict.fromkeys(lane.lane.split("/")[0] for lane in lanes if lane.found is not None)
        of_whom = f" of {visible(', '.join(looked))}" if looked else ""
        yield f"no bound is known: limits{of_whom} were estimated"
    if summary.attribution is not None:
        idle = "client"
        if any(lane.state == "out" for lane in lanes):
            idle = "client or lanes that were out"
        elif any(lane.found is not None and lane.found.declared for lane in lanes):
            idle = "client or lowered limits"
        yield _parts(summary.attribution.run, summary.attribution.makespan_s, idle)
    if summary.client_bound:
        yield f"CLIENT-BOUND: {summary.client_bound}"
    if summary.audit:
        yield from _audit(summary)
    if summary.n_without_request:
        n_graded = counted(summary.statistics.n_graded, "graded case")
        yield (
            f"{summary.n_without_request:,} of {n_graded} sent no request through llm; what they"
            " may have sent by other means is under no limit and in no count"
        )


def _parts(parts: Parts, makespan_s: float, idle: str) -> str:
    # Empty seats of a lane that is out, or may not use them, look like those of a client that sends
    # nothing there.
    names = {**_PARTS, "client_s": idle}
    amounts = {name: getattr(parts, name) for name in names}
    shown = [
        f"{names[name]} {duration(seconds)}"
        for name, seconds in sorted(amounts.items(), key=lambda item: -item[1])
        if seconds >= _LEAST_SHARE * makespan_s
    ]
    more = f"; beyond the bound: {', '.join(shown)}" if shown else ""
    return f"of {duration(makespan_s)}, {percent(parts.used_s / makespan_s)} is the bound{more}"


def _audit(summary: RunSummary) -> Iterator[str]:
    audited = summary.audit
    passed = [one for one in audited if one.passed]
    for one in passed:
        yield f"LIMIT PASSED ({', '.join(one.passed)}): {_fall(one)}"
    fullest = sorted(audited, key=lambda one: -_use(one))[:MOST_LIMITS]
    n_more = len(audited) - len(fullest)
    more = f"; {n_more} more in summary.json" if n_more > 0 else ""
    held = "the limits" if passed else "no limit was passed by requests sent through llm"
    falls = "; ".join(map(_fall, fullest))
    yield (
        f"{counted(summary.peak_in_flight, 'request')}{summary.session} in flight at most; {held},"
        f" by our own records: {falls}{more}"
    )


def _fall(one: LimitAudit) -> str:
    counts = (
        (one.in_flight, one.workers, "in flight"),
        (one.sends_1s, one.qps, "in 1 s"),
        (one.sends_60s, one.rpm, "in 60 s"),
    )
    said = [
        f"{n:,}{f' of {most:g}' if most is not None else ''} {what}" for n, most, what in counts
    ]
    if one.tokens_60s is not None and one.tpm is not None:
        said.append(f"{one.tokens_60s:,} of {one.tpm:,.0f} tokens in 60 s")
    return f"{visible(one.limit)} {', '.join(said)}"


def _use(one: LimitAudit) -> float:
    pairs = (
        (one.in_flight, one.workers),
        (one.sends_1s, one.qps),
        (one.sends_60s, one.rpm),
        (one.tokens_60s or 0, one.tpm),
    )
    return max((n / most for n, most in pairs if most), default=0.0)
