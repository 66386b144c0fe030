"""The meaning of a 429, from error bodies and headers of several providers."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.apis.classify import classify_status


def error(message: str = "", **fields: object) -> bytes:
    return json.dumps({"error": {"message": message, **fields}}).encode()


def excess_in(body: bytes, headers: Mapping[str, str] = {}) -> str | None:
    found = classify_status(429, body, None, headers)
    return found.exceeded if found.outcome == "rate" else found.outcome


@pytest.mark.parametrize(
    ("body", "excess"),
    [
        (error("You exceeded your current quota.", code="insufficient_quota"), "quota"),
        (error("Limit on tokens per day (TPD): 100000", type="tokens"), "daily_quota"),
        (error("You exceeded your current quota: generate_requests_per_minute, limit: 15"), "rate"),
        (error("slow down"), None),
        (b"", None),
        (b'{"error": null}', None),
        (b"\xff\xfe", None),
        (b"[" * 5000, None),
    ],
)
def test_excess_is_read_from_code_type_and_message(body, excess):
    assert excess_in(body) == excess


def test_excess_ignores_urls_and_other_fields():
    assert excess_in(error("See https://example.com/daily-quota/requests-per-day.")) is None
    quoted = json.dumps({"error": {"message": "no"}, "prompt": "requests per day, insufficient"})
    assert excess_in(quoted.encode()) is None


@pytest.mark.parametrize(
    ("headers", "excess"),
    [
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-remaining-requests": "9"}, "tokens"),
        ({"x-ratelimit-remaining-tokens": "5", "x-ratelimit-remaining-requests": "0"}, "rate"),
        ({"anthropic-ratelimit-input-tokens-remaining": "0"}, "tokens"),
        ({"anthropic-ratelimit-requests-remaining": "0"}, "rate"),
        ({"x-ratelimit-remaining-requests": "-1"}, None),
        ({}, None),
    ],
)
def test_excess_is_read_from_headers_if_the_body_names_none(headers, excess):
    assert excess_in(error("slow down"), headers) == excess


def test_excess_in_the_body_overrides_the_headers():
    headers = {"x-ratelimit-remaining-requests": "0"}
    assert excess_in(error("tokens per min"), headers) == "tokens"


def test_each_excess_has_its_own_failure_class():
    too_fast = classify_status(429, error("requests per min"), 2.0)
    assert (too_fast.outcome, too_fast.exceeded, too_fast.retry_after_s) == ("rate", "rate", 2.0)
    at_once = classify_status(429, error("too many concurrent requests"), None)
    assert (at_once.outcome, at_once.exceeded) == ("rate", "in_flight")
    day = classify_status(429, error("requests per day"), 7200.0)
    assert (day.outcome, day.exceeded, day.retry_after_s) == ("daily_quota", None, 7200.0)
    gone = classify_status(429, error(code="insufficient_quota"), None)
    assert (gone.outcome, gone.exceeded) == ("quota", None)
    busy = classify_status(503, error("max concurrency reached"), 1.0)
    assert (busy.outcome, busy.exceeded) == ("rate", "in_flight")


@given(st.binary(max_size=300), st.integers(100, 599))
def test_any_body_is_classified(body, status):
    failure = classify_status(status, body, None)
    assert failure.message.startswith(f"HTTP {status}")
    assert failure.maybe_billed is (status in {504, 524})
