"""The judge itself: figures of a proxy's log."""

from __future__ import annotations

import pytest

from tests.proxies.access_log import (
    Seen,
    after_first_round_trip,
    in_order,
    n_refused,
    per_window,
    refused_share,
    span_s,
)
from tests.proxies.fronts import parse_line

SERVED = [Seen(10.0, 10.2, 200), Seen(10.0, 10.3, 200), Seen(10.25, 10.45, 200)]
REFUSED = [Seen(10.01, 10.02, 503), Seen(10.1, 10.1, 429), Seen(10.26, 10.26, 503)]


def test_requests_are_told_in_the_order_in_which_they_came():
    assert [seen.start_s for seen in in_order(REFUSED + SERVED)] == [
        *(10.0, 10.0, 10.01, 10.1, 10.25, 10.26)
    ]


def test_time_is_from_the_first_request_to_the_last_answer():
    assert span_s(REFUSED + SERVED) == pytest.approx(0.45)
    assert span_s([]) == 0


def test_refusals_after_the_first_round_trip_are_a_share_of_all_requests():
    requests = in_order(SERVED + REFUSED)
    assert n_refused(requests) == 3
    assert [seen.start_s for seen in after_first_round_trip(requests)] == [10.25, 10.26]
    assert refused_share(requests) == pytest.approx(1 / 6)


def test_a_refusal_is_no_round_trip():
    assert after_first_round_trip(REFUSED) == ()
    assert refused_share(REFUSED) == 0
    assert refused_share([]) == 0


def test_windows_count_requests_and_refusals():
    assert per_window([*SERVED, Seen(11.1, 11.2, 503)], 0.5) == [(3, 0), (0, 0), (1, 1)]
    assert per_window([], 1.0) == []


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        (
            '{"end_s":1795313352.500,"took_s":0.250,"status":503,"why":"PASSED/REJECTED"}',
            Seen(1795313352.25, 1795313352.5, 503, "PASSED/REJECTED"),
        ),
        (
            '{"end_ms":1795313352500,"took_ms":250,"status":503,"why":"sQ"}',
            Seen(1795313352.25, 1795313352.5, 503, "sQ"),
        ),
        ('{"end_ms":1795313352500,"took_ms":-1,"status":-1,"why":"CR"}', None),
        ("[NOTICE]   (7) : haproxy version is 2.6.12", None),
        ("17", None),
        ('{"end_s":', None),
    ],
)
def test_lines_of_both_proxies_are_read(line, seen):
    assert parse_line(line) == seen
