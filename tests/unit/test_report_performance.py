from __future__ import annotations

import msgspec

from pytest_ultrapar.analysis.attribution import Attribution, Parts
from pytest_ultrapar.analysis.performance import client_bound
from pytest_ultrapar.analysis.requests import LimitAudit
from pytest_ultrapar.broker.protocol import EstimatedLimit
from pytest_ultrapar.records import EngineSpent
from pytest_ultrapar.report.summary import pace, performance_lines, waits_line
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


def test_bound_is_shown_with_the_parts_of_the_remaining_time():
    assert lines(MEASURED, lane()) == [
        "lower bound 6.00 s (p/k (qps)); efficiency 60.0 %",
        "where the time went: bound 6.00 s (60.0 %), client 3.00 s, uneven end 1.00 s",
    ]


def test_total_time_is_shown_in_parts():
    whole = msgspec.structs.replace(MEASURED, start_s=2.0, behind_s=7.5, tables_s=0.5)
    assert lines(whole, lane())[1] == (
        "total time 20.0 s: start 2.00 s, requests 10.0 s, after the last"
        " answer 7.50 s, tables 0.50 s; efficiency of the whole run 30.0 %"
    )


def test_long_work_after_the_last_answer_is_reported_with_a_remedy():
    whole = msgspec.structs.replace(MEASURED, start_s=2.0, behind_s=20.0, tables_s=4.5)
    said = [line for line in lines(whole, lane()) if line.startswith("CLIENT-BOUND")]
    assert [line.partition(":")[2].partition(":")[0] for line in said] == [
        " 'after the last answer' took 54.8 % of the run",
        " 'tables' took 12.3 % of the run",
    ]
    few = msgspec.structs.replace(MEASURED, start_s=2.0, behind_s=2.9, tables_s=2.9)
    small = msgspec.structs.replace(MEASURED, start_s=200.0, behind_s=20.0, tables_s=4.5)
    assert not any("CLIENT-BOUND" in line for one in (few, small) for line in lines(one, lane()))


def test_empty_seats_of_removed_lanes_are_not_blamed_on_the_client():
    assert "client or removed lanes 3.00 s" in lines(MEASURED, lane(), lane(state="out"))[1]


def test_waits_are_shown_with_the_kind_of_limit():
    waited = [{"p/k0 (qps)": 5.0, "pause": 90.0, "home": 0.0}, {"p/k0 (qps)": 7.0}]
    lanes = [lane(waited_s=one) for one in waited]
    said = "in total, requests waited longest for paused lanes (90.0 s), p/k0 (qps) (12.0 s)"
    assert waits_line(lanes) == said
    assert waits_line([lane(waited_s={"p/k0 (qps)": 0.004})]) == ""


def test_waits_group_equal_limits_like_the_bound():
    audited = [
        LimitAudit(limit=name, n=3, in_flight=2, workers=workers, sends_1s=3, qps=qps, passed=())
        for name, workers, qps in (
            ("p", 9, 9.0), ("p/k0", 5, 9.0), ("p/k1", 6, 9.0), ("p/k2", 5, 9.0), ("q/k", 5, 9.0),
        )
    ]  # fmt: skip
    waited = {"p/k2 (qps)": 30.0, "p/k0 (qps)": 20.0, "p/k1 (workers)": 4.0, "q/k (qps)": 1.0}
    assert waits_line([lane(waited_s=waited)], audit=audited) == (
        "in total, requests waited longest for p/k0 (qps) and 2 like it (50.0 s),"
        " p/k1 (workers) (4.00 s), q/k (qps) (1.00 s)"
    )


def test_run_that_estimated_limits_has_no_bound_and_names_the_provider():
    adaptive = msgspec.structs.replace(SUMMARY, rate_mode="adaptive")
    found = EstimatedLimit("ideallab/k", 5, None, 0)
    lanes = [lane("ideallab/a/k", estimated=found), lane("ideallab/b/k", estimated=found), lane()]
    said = "no lower bound, because the limits of ideallab were estimated"
    assert lines(adaptive, *lanes) == [said]
    assert lines(msgspec.structs.replace(MEASURED, rate_mode="mixed"), lane())[0].startswith(
        "lower"
    )
    assert lines(SUMMARY, lane()) == []


def fell(**more):
    return LimitAudit(
        limit="p/k", n=3, in_flight=2, workers=5, sends_1s=3, sends_60s=3, passed=(), **more
    )


def test_audit_shows_the_most_tokens_in_a_minute():
    limited = fell(tokens_60s=12_345, tpm=60_000)
    (line,) = lines(msgspec.structs.replace(SUMMARY, audit=(limited,)))
    assert line.endswith(
        "p/k 2 of 5 in flight, 3 in 1 s, 3 in 60 s, 12,345 of 60,000 tokens in 60 s"
    )


AUDITED = msgspec.structs.replace(
    SUMMARY,
    audit=(fell(),),
    peak_in_flight=2,
)


def test_audit_shows_the_highest_use_of_limits():
    (line,) = lines(AUDITED)
    assert line == (
        "at most 2 requests in flight; no request through llm exceeded a limit; highest use of"
        " limits in this run's records: p/k 2 of 5 in flight, 3 in 1 s, 3 in 60 s"
    )


def test_single_case_gets_no_efficiency_or_percentiles():
    statistics = msgspec.structs.replace(MEASURED.statistics, n_timed=1)
    one = msgspec.structs.replace(MEASURED, statistics=statistics, start_s=2.0, tables_s=0.5)
    assert lines(one, lane()) == ["total time 12.5 s: start 2.00 s, requests 10.0 s, tables 0.50 s"]
    alone = msgspec.structs.replace(statistics, latency=None)
    assert pace(msgspec.structs.replace(one, statistics=alone)) == "ultra: 1 case in 10.0 s"


def test_code_that_blocked_the_loop_is_named_with_its_time():
    places = {
        "fetched (evals/a.py:3)": 3.2,
        "b (b.py:4)": 0.5,
        "c (c.py:1)": 0.2,
        "d (d.py:1)": 0.1,
    }
    (line,) = [
        line for line in lines(msgspec.structs.replace(SUMMARY, stalls=places)) if "BLO" in line
    ]
    assert line.startswith(
        "BLOCKED: a call stopped all episodes in a process for 3.20 s in fetched (evals/a.py:3), "
        "0.50 s in b (b.py:4), 0.20 s in c (c.py:1)"
    )


def test_code_that_made_the_run_client_bound_is_named_once():
    places = {"fetched (evals/a.py:3)": 3.2, "b (b.py:4)": 0.5}
    said = client_bound(
        Attribution(10.0, PARTS, ()), [EngineSpent("w", 9, 1, 9, 0, 0, stalls=places)], 0.0
    )
    stood = msgspec.structs.replace(MEASURED, stalls=places, client_bound=said)
    (line,) = [one for one in lines(stood, lane()) if "fetched" in one]
    assert line.startswith(
        "CLIENT-BOUND: code in the suite blocked the event loop of a worker's episodes for 3"
    )
    busy = msgspec.structs.replace(stood, client_bound="cores are short")
    told = [one.partition(":")[0] for one in lines(busy, lane())]
    assert {"CLIENT-BOUND", "BLOCKED"} <= {*told}
