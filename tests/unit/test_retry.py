import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.engine.failure import classify_status
from pytest_ultrapar.engine.retry import RetryPolicy
from pytest_ultrapar.engine.retry_after import LONGEST_S, parse_retry_after


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "0.25"}, 0.25),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:00 GMT"}, 60.0),
        ({"retry-after": "1000000000"}, LONGEST_S),
        ({"retry-after": "Wed, 31 Dec 1969 00:00:00 GMT"}, None),
        ({"retry-after": "0"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "1e999"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "\u0664"}, None),
        ({"retry-after": "soon"}, None),
        ({}, None),
    ],
)
def test_retry_after_takes_only_usable_values(headers, expected):
    assert parse_retry_after(headers, epoch_s=0.0) == expected


@given(st.text(), st.floats(0, 2e9))
def test_retry_after_never_fails_and_stays_bounded(value, epoch_s):
    seconds = parse_retry_after({"retry-after": value}, epoch_s=epoch_s)
    assert seconds is None or 0 < seconds <= LONGEST_S


@pytest.mark.parametrize(
    ("status", "body", "retry_after_s", "outcome"),
    [
        (401, b"", None, "auth"),
        (403, b"", None, "auth"),
        (402, b"", None, "quota"),
        (404, b"", None, "not_found"),
        (429, b"", 2.0, "rate"),
        (429, b'{"error":{"code":"insufficient_quota"}}', None, "quota"),
        (503, b"", 1.0, "rate"),
        (503, b"", None, "overload"),
        (500, b"", None, "overload"),
        (400, b'{"error":{"code":"context_length_exceeded"}}', None, "refused"),
        (400, b'{"error":{"code":"content_filter"}}', None, "refused"),
        (400, b'{"error":{"message":"bad temperature"}}', None, "bad_request"),
        (422, b"", None, "bad_request"),
        (418, b"", None, "bad_request"),
        (302, b"", None, "malformed"),
    ],
)
def test_classify_status_follows_the_table(status, body, retry_after_s, outcome):
    assert classify_status(status, body, retry_after_s).outcome == outcome


def test_retry_gives_up_after_max_attempts_of_the_requests_own_failures():
    policy = RetryPolicy(max_attempts=3)
    assert [policy.decide("overload", n) for n in (1, 2, 3)] == ["again", "again", "give_up"]


def test_retry_does_not_count_what_the_lane_is_to_blame_for():
    policy = RetryPolicy(max_attempts=3)
    for outcome in ("rate", "quota", "auth", "not_found", "connect"):
        assert not policy.counts(outcome)
        assert policy.decide(outcome, 0) == "again"


def test_retry_with_one_attempt_never_tries_again():
    policy = RetryPolicy(max_attempts=1)
    for outcome in ("rate", "overload", "timeout", "connect"):
        assert policy.decide(outcome, 1) == "give_up"


@given(st.integers(1, 200), st.integers())
def test_retry_backoff_is_bounded(n_failed, seed):
    seconds = RetryPolicy().backoff_s(n_failed, random.Random(seed))
    assert 0 <= seconds <= min(30, 2 ** (n_failed - 1))
