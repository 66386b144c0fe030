"""The provider's own limits, read from headers of all kinds."""

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_ultrapar.apis.outcome import Allowance
from pytest_ultrapar.apis.rate_headers import parse_allowance, parse_anthropic_allowance


def headers(requests=(None,) * 3, tokens=(None,) * 3) -> httpx.Headers:
    named = {
        f"X-RateLimit-{word}-{what}": value
        for what, values in (("Requests", requests), ("Tokens", tokens))
        for word, value in zip(("Limit", "Remaining", "Reset"), values, strict=True)
    }
    found = {name: value.encode() for name, value in named.items() if value is not None}
    return httpx.Headers({name.encode(): value for name, value in found.items()})


def test_openai_headers_are_read():
    found = parse_allowance(headers(("5000", "4999", "12ms"), ("150000", "149984", "6m0s")))
    assert found == Allowance(5000, 150000)


def test_azure_headers_are_read():
    assert parse_allowance(headers((None, "79", None), (None, "61353", None))) is None
    assert parse_allowance(headers(tokens=("30000", "0", "41"))) == Allowance(tokens=30000)


@pytest.mark.parametrize(
    "limit", ["-1", "0", None, "nan", "inf", "1e3", "1_000", "٣", "10, 20", "1" * 41, "9" * 13]
)
def test_missing_or_invalid_limit_is_unknown(limit):
    group = (limit, "5", "1s")
    assert parse_allowance(headers(group)) is None
    assert parse_allowance(headers(group, ("10", "5", "1s"))) == Allowance(tokens=10)


@pytest.mark.parametrize(
    ("reset", "is_slow"),
    [
        ("6m0s", True),
        ("1h2m3.5s", True),
        ("120.5s", True),
        ("2m", False),
        ("500µs", False),
        ("12", False),
        ("5 m", True),
        ("1h2", False),
        ("1m" * 21, False),
    ],
)
def test_limit_with_a_long_reset_is_not_per_minute(reset, is_slow):
    found = parse_allowance(headers(("100", "0", reset)))
    assert found == (None if is_slow else Allowance(requests=100))


@pytest.mark.parametrize(
    ("limit", "left", "reset"),
    [
        ("200", "199", "7m12s"),
        # Per hour, and per five minutes.
        ("100", "0", "1h"),
        ("300", "240", "1m0s"),
    ],
)
def test_limit_over_a_longer_period_is_not_used_per_minute(limit, left, reset):
    assert parse_allowance(headers((limit, left, reset))) is None


@pytest.mark.parametrize(
    ("limit", "left", "reset"),
    [
        ("500", "0", "1m0s"),
        # Rounded up to a millisecond and to a second.
        ("1000000", "999999", "1ms"),
        ("500", "499", "1s"),
        ("10", "10", "0s"),
    ],
)
def test_limit_per_minute_is_read_with_any_rounding_of_its_reset(limit, left, reset):
    assert parse_allowance(headers((limit, left, reset))).requests == float(limit)


def test_azures_reset_in_seconds_is_a_limit_per_minute():
    assert parse_allowance(headers(("10000", "9999", "60"))).requests == 10000


texts = st.one_of(st.none(), st.text(max_size=60), st.from_regex(r"-?[0-9.]{1,50}[hmsµ]{0,3}"))


def test_anthropic_headers_are_read():
    prefix = "anthropic-ratelimit"
    said = {f"{prefix}-requests-limit": "4000", f"{prefix}-tokens-limit": "80000"}
    assert parse_anthropic_allowance(said) == Allowance(4000, 80000)
    more = {"anthropic-ratelimit-input-tokens-limit": "5", "x-ratelimit-limit-requests": "5"}
    assert parse_anthropic_allowance(more) is None


@pytest.mark.parametrize(
    ("parse", "name"),
    [
        (parse_allowance, "x-ratelimit-{word}-{what}"),
        (parse_anthropic_allowance, "anthropic-ratelimit-{what}-{word}"),
    ],
)
@example(values=["0\x1f", None, None, None, None, None])
@given(values=st.lists(texts, min_size=6, max_size=6))
def test_any_headers_are_read_within_bounds(parse, name, values):
    names = [
        name.format(word=word, what=what)
        for what in ("requests", "tokens")
        for word in ("limit", "remaining", "reset")
    ]
    given_ = dict(zip(names, values, strict=True))
    found = parse({name: value for name, value in given_.items() if value is not None})
    if found is not None:
        for limit in (found.requests, found.tokens):
            assert limit is None or 0 < limit <= 1e12
