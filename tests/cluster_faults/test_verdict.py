"""The judge of rounds finds what it is there to find."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_ultrapar.testing import ServerLog, ServerRequest
from tests.cluster_faults.faults import FAULTS
from tests.cluster_faults.plan import draw
from tests.cluster_faults.verdict import Evidence, Session, violations


def _request(number, at_s, *, took_s=0.5, status=200, tokens=10):
    return ServerRequest(
        request_id=number, t_arrival_s=at_s, t_end_s=at_s + took_s, status=status, provider="lab",
        key="key0", model="m", instance="m", disconnected=False, admitted=status == 200,
        tokens_in=tokens, tokens_out=0,
    )  # fmt: skip


def _log(*requests):
    return ServerLog(requests)


WELL = Evidence(
    log=_log(_request(1, 0.0), _request(2, 0.5), _request(3, 1.1)),
    keys=("key0",),
    seats=2,
    qps=2,
    tpm=25,
    n_cases=2,
    rows=[("a", "solved"), ("b", "solved")],
    graded=(frozenset({"1", "2"}), frozenset({"2"})),
    n_said_twice=1,
    merge="",
    sessions=(
        Session("h0", 0, frozenset(), "all is well"),
        Session("h1", -9, frozenset({-9}), "killed"),
    ),
    sends_s={},
    left=(),
)


def test_a_round_that_went_well():
    assert violations(WELL) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"log": _log(_request(1, 0), _request(2, 0.1, status=429))}, "refused with 429"),
        ({"log": _log(*(_request(n, 0.1 * n) for n in range(3)))}, "3 requests in flight"),
        (
            {"log": _log(*(_request(n, 0.2 * n, took_s=0.1) for n in range(4)))},
            "4 requests in a second",
        ),
        ({"log": _log(*(_request(n, n, tokens=12) for n in range(4)))}, "48 tokens in a minute"),
        ({"rows": None}, "no merged run"),
        ({"rows": [("a", "solved")]}, "1 of 2 cases have a row"),
        ({"rows": [*WELL.rows, ("a", "solved")]}, "1 cases have several rows"),
        ({"rows": [("a", "solved"), ("b", "infra")]}, "not all cases are solved"),
        ({"n_said_twice": 0}, "1 cases have a result in several parts, the merge said 0"),
        ({"sessions": (Session("h0", None, frozenset(), ""),)}, "h0 hung"),
        ({"sessions": (Session("h0", -9, frozenset(), ""),)}, "ended by signal 9"),
        ({"sessions": (Session("h0", 3, frozenset(), ""),)}, "h0 ended with 3"),
        ({"sessions": (Session("h0", 0, frozenset(), "INTERNALERROR"),)}, "INTERNALERROR"),
        ({"left": ("worker of h0",)}, "processes were left"),
    ],
)
def test_what_does_not_hold_is_said(change, said):
    assert any(said in sentence for sentence in violations(replace(WELL, **change)))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_round_is_the_same_whenever_it_is_drawn(fault):
    assert draw(fault, 5) == draw(fault, 5)
    assert draw(fault, 5) != draw(fault, 6)
