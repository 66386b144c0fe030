import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.apis.classify import classify_status
from pytest_ultrapar.apis.failure import Failure
from pytest_ultrapar.apis.failure_classes import CLASSES, backoff_s
from pytest_ultrapar.apis.retry_after import LONGEST_S, parse_retry_after
from pytest_ultrapar.broker.protocol import Lease
from pytest_ultrapar.engine.retry import MOST_OWN, RetryPolicy, Tries


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"retry-after": "2"}, 2.0),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:00 GMT"}, 60.0),
        ({"retry-after": "8000000"}, LONGEST_S),
        ({"retry-after": "Wed, 01 Apr 1970 00:00:00 GMT"}, LONGEST_S),
        ({"retry-after": "1000000000"}, None),
        ({"retry-after": "Fri, 31 Dec 9999 23:59:59 GMT"}, None),
        ({"retry-after": "2s"}, 2.0),
        ({"retry-after": "1m30S"}, 90.0),
        ({"retry-after": "1 minute, 20 seconds"}, 60.0),
        ({"retry-after-ms": "0", "retry-after": "9"}, 9.0),
        ({"retry-after-ms": "-1", "retry-after": "Thu, 01 Jan 1970 00:01:00 GMT"}, 60.0),
        ({"retry-after": "2, 5"}, 5.0),
        ({"retry-after": "2, soon"}, 2.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:00 GMT, Thu, 01 Jan 1970 00:02:00 GMT"}, 60.0),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "1_0"}, None),
        ({"retry-after": "Wed, 31 Dec 1969 00:00:00 GMT"}, None),
        ({"retry-after": "0"}, None),
        ({"retry-after": "1e999"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "\u0664"}, None),
        ({}, None),
    ],
)
def test_retry_after_accepts_only_usable_values(headers, expected):
    assert parse_retry_after(headers, epoch_s=0.0) == expected


@pytest.mark.parametrize(
    ("name", "unit"), [("retry-after", 1), ("retry-after", 1000), ("retry-after-ms", 1000)]
)
@pytest.mark.parametrize(("left_s", "expected"), [(3, 3.0), (-3, None), (10**9, None)])
def test_retry_after_may_be_a_timestamp(name, unit, left_s, expected):
    now_s = 1_764_000_000
    asked = {name: str((now_s + left_s) * unit)}
    assert parse_retry_after(asked, epoch_s=now_s) == expected


@pytest.mark.parametrize(
    ("status", "body", "retry_after_s", "outcome"),
    [
        (401, b"", None, "auth"),
        (403, b"", None, "forbidden"),
        (404, b'{"error":{"message":"You do not have access to m"}}', None, "forbidden"),
        (529, b"", None, "rate"),
        (402, b"", None, "quota"),
        (400, b'{"error":{"message":"Your credit balance is too low"}}', None, "quota"),
        (409, b"", None, "overload"),
        (408, b"", None, "timeout"),
        (429, b"", 2.0, "rate"),
        (429, b'{"error":{"code":"insufficient_quota"}}', None, "quota"),
        (503, b"", 1.0, "rate"),
        (503, b"", None, "overload"),
        (400, b'{"error":{"code":"context_length_exceeded"}}', None, "refused"),
        (400, b'{"error":{"code":"content_filter"}}', None, "refused"),
        (400, b'{"error":{"message":"bad temperature"}}', None, "bad_request"),
        (302, b"", None, "malformed"),
    ],
)
def test_classify_status_follows_the_table(status, body, retry_after_s, outcome):
    assert classify_status(status, body, retry_after_s).outcome == outcome


@pytest.mark.parametrize(
    ("status", "body", "should_retry", "outcome", "is_final"),
    [
        (503, b"", "false", "overload", True),
        (429, b"", "FALSE", "rate", True),
        (400, b"", "true", "overload", False),
        (400, b'{"error":{"code":"context_length_exceeded"}}', "true", "refused", False),
        (500, b"", "true", "overload", False),
        (500, b"", "perhaps", "overload", False),
    ],
)
def test_classify_status_obeys_x_should_retry(status, body, should_retry, outcome, is_final):
    failure = classify_status(status, body, None, {"x-should-retry": should_retry})
    assert (failure.outcome, failure.is_final) == (outcome, is_final)


def verdicts(policy: RetryPolicy, *outcomes: str) -> list[str]:
    """The policy's decision after each of these attempts."""
    return [
        policy.decide(Failure(outcome, "why"), outcomes[: n + 1])
        for n, outcome in enumerate(outcomes)
    ]


def test_retry_gives_up_after_max_attempts_of_counted_failures():
    assert verdicts(RetryPolicy(3), "overload", "transport", "overload") == [
        "again",
        "again",
        "give_up",
    ]


@pytest.mark.parametrize("outcome", ["timeout", "malformed"])
def test_retry_repeats_a_possibly_served_request_only_once(outcome):
    assert verdicts(RetryPolicy(10), outcome, "overload", outcome) == ["again", "again", "give_up"]


def test_retry_does_not_count_failures_of_the_lane():
    free = [outcome for outcome, its in CLASSES.items() if its.again == "free"]
    assert set(free) >= {"rate", "quota", "daily_quota", "auth", "not_found", "connect", "tls"}
    policy = RetryPolicy(2)
    assert set(verdicts(policy, *free, *free)) == {"again"}
    assert policy.n_counted(free) == 0


def test_retry_gives_up_immediately_if_no_retry_can_succeed():
    assert verdicts(RetryPolicy(9), "too_large") == ["give_up"]


def test_retry_with_one_attempt_never_retries():
    policy = RetryPolicy(max_attempts=1)
    retried = [outcome for outcome, its in CLASSES.items() if its.again != "never"]
    assert {policy.decide(Failure(outcome, "why"), [outcome]) for outcome in retried} == {"give_up"}
    # A failure that the key may have caused is retried on another key, and a check decides.
    assert policy.decide(Failure("auth", "why"), ["auth"], is_doubted=True) == "again"


def test_retry_obeys_a_server_that_forbids_retries():
    policy = RetryPolicy()
    for outcome, its_class in CLASSES.items():
        if its_class.again == "never":
            continue
        # A removed key does not affect the other keys.
        expected = "again" if its_class.removes else "give_up"
        assert policy.decide(Failure(outcome, "why", is_final=True), [outcome]) == expected


@given(st.integers(1, 200), st.integers())
def test_retry_backoff_is_bounded(n_failed, seed):
    seconds = backoff_s(n_failed, random.Random(seed))
    assert 0 <= seconds <= min(30, 2 ** (n_failed - 1))


@pytest.mark.parametrize(
    ("of_tokens", "served", "refused", "is_own"),
    [(False, 3, 3, True), (False, 3, 4, False), (True, 3, 0, True), (True, 99, 1, False)],
)
def test_request_refused_while_others_are_served_is_itself_the_cause(
    of_tokens, served, refused, is_own
):
    # FoundationAgents/OpenManus#746, lobehub/lobehub#4239: a prompt larger than tpm
    tries = Tries()
    n_refused = 0
    for n in range(MOST_OWN + 1):
        assert tries.is_own(leased(n * served, n_refused), of_tokens=of_tokens) == (
            is_own and n > 0
        )
        # The broker does not count refusals that the request caused itself.
        n_refused += refused + (not tries.was_own)
    assert tries.is_hopeless == is_own


def test_hopeless_requests_do_not_excuse_each_other():
    hopeless = [Tries() for _ in range(5)]
    n_served = n_refused = n_rounds = 0
    while not all(tries.is_hopeless for tries in hopeless):
        for tries in hopeless:
            n_refused += not tries.is_own(leased(n_served, n_refused))
        n_rounds += 1
        # After three rounds all other requests are done.
        n_served += 5 if n_rounds < 3 else 0
        assert n_rounds <= MOST_OWN + 3


def leased(n_served, n_refused):
    return Lease(0, "p/m/k", 0.0, 1.0, 0.0, 0.0, 1, n_served=n_served, n_refused=n_refused)
