from __future__ import annotations

import msgspec

from pytest_ultrapar.analysis.attribution import Attribution, Parts
from pytest_ultrapar.analysis.requests import LimitAudit
from pytest_ultrapar.broker.protocol import EstimatedLimit
from pytest_ultrapar.report.summary import performance_lines, waits_line
from tests.unit.test_report_lanes import lane
from tests.unit.test_report_summary import SUMMARY

PARTS = Parts(6.0, 0, 0, 0, 0, 3.0, 0, 1.0)
MEASURED = msgspec.structs.replace(
    SUMMARY,
    bound_s=6.0,
    binding="p/k (qps)",
    efficiency=0.6,
    attribution=Attribution(10.0, PARTS, ()),
)


def lines(summary, *lanes):
    return list(performance_lines(summary, lanes))


def test_bound_is_shown_with_the_parts_beyond_it():
    assert lines(MEASURED, lane()) == [
        "lower bound 6.00 s (p/k (qps)); efficiency 60.0 %",
        "where the time went: bound 6.00 s (60.0 %), client 3.00 s, uneven end 1.00 s",
    ]


def test_what_requests_waited_for_is_said_with_the_kind_of_its_limit():
    waited = [{"p/k0 (qps)": 5.0, "pause": 90.0, "home": 0.0}, {"p/k0 (qps)": 7.0}]
    lanes = [lane(waited_s=one) for one in waited]
    said = "all requests together waited longest for pauses of lanes (90.0 s), p/k0 (qps) (12.0 s)"
    assert waits_line(lanes) == said
    assert waits_line(lanes, 1) == said.partition(",")[0]
    assert waits_line([lane(waited_s={"p/k0 (qps)": 0.004})]) == ""


def test_run_that_looked_for_limits_has_no_bound_and_says_whose():
    adaptive = msgspec.structs.replace(SUMMARY, rate_mode="adaptive")
    found = EstimatedLimit("ideallab/k", 5, None, 0)
    lanes = [lane("ideallab/a/k", estimated=found), lane("ideallab/b/k", estimated=found), lane()]
    said = "no lower bound: limits of ideallab were estimated"
    assert lines(adaptive, *lanes) == [said]
    assert lines(msgspec.structs.replace(MEASURED, rate_mode="mixed"), lane())[0].startswith(
        "lower"
    )
    assert lines(SUMMARY, lane()) == []


def fell(**more):
    return LimitAudit(
        limit="p/k", n=3, in_flight=2, workers=5, sends_1s=3, sends_60s=3, passed=(), **more
    )


AUDITED = msgspec.structs.replace(
    SUMMARY,
    audit=(fell(),),
    peak_in_flight=2,
)


def test_audit_speaks_of_what_was_seen():
    (line,) = lines(AUDITED)
    assert line == (
        "2 requests in flight at most; no limit was exceeded by requests sent through llm, by our"
        " own records: p/k 2 of 5 in flight, 3 in 1 s, 3 in 60 s"
    )
