"""The provider's own limits out of headers of all kinds."""

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


def test_openais_headers():
    found = parse_allowance(headers(("5000", "4999", "12ms"), ("150000", "149984", "6m0s")))
    assert found == Allowance(5000, 4999, 0.012, 150000, 149984, 360)


def test_azures_headers():
    assert parse_allowance(headers((None, "79", None), (None, "61353", None))) == Allowance(
        requests_left=79, tokens_left=61353
    )
    assert parse_allowance(headers(tokens=("30000", "0", "41"))) == Allowance(
        tokens=30000, tokens_left=0, tokens_reset_s=41
    )


@pytest.mark.parametrize(
    "group",
    [
        ("-1", "-1", "0"),
        ("-1", "5", "1s"),
        (None, None, "6m0s"),
        ("nan", "inf", "1e3"),
        ("1_000", "٣", "-5s"),
        ("10, 20", "1, 2", "1s, 2s"),
    ],
)
def test_what_is_not_said_is_not_known(group):
    assert parse_allowance(headers(group)) is None
    assert parse_allowance(headers(group, ("10", "5", "1s"))) == Allowance(
        tokens=10, tokens_left=5, tokens_reset_s=1
    )


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("6m0s", 360),
        ("1.5s", 1.5),
        ("1h2m3.5s", 3723.5),
        ("2m59.56s", 179.56),
        ("500µs", 0.0005),
        ("0", 0),
        ("12", 12),
        ("0.25", 0.25),
        ("5 s", None),
        ("1s2", None),
        ("99999999999", None),
    ],
)
def test_reset_is_a_duration_or_seconds(text, seconds):
    found = parse_allowance(headers(("100000000", "1", text)))
    assert found.requests_reset_s == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(
    ("limit", "left", "reset"),
    [
        ("200", "199", "7m12s"),
        # Per hour, two hours, three hours and five minutes.
        ("100", "0", "1h"),
        ("300", "240", "1m0s"),
    ],
)
def test_limit_per_longer_than_a_minute_is_none_per_minute(limit, left, reset):
    found = parse_allowance(headers((limit, left, reset)))
    assert found.requests is None
    assert found.requests_left == float(left)
    assert found.requests_reset_s is not None


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
def test_limit_per_minute_is_one_however_its_reset_is_rounded(limit, left, reset):
    assert parse_allowance(headers((limit, left, reset))).requests == float(limit)


def test_seconds_of_azure_do_not_tell_of_days():
    assert parse_allowance(headers(("10000", "9999", "60"))).requests == 10000


texts = st.one_of(st.none(), st.text(max_size=60), st.from_regex(r"-?[0-9.]{1,50}[hmsµ]{0,3}"))


DATE = "Thu, 01 Jan 2026 12:00:00 GMT"


def anthropic_headers(requests=(None,) * 3, tokens=(None,) * 3, date: str | None = DATE):
    named = {
        f"Anthropic-RateLimit-{what}-{word}": value
        for what, values in (("Requests", requests), ("Tokens", tokens))
        for word, value in zip(("Limit", "Remaining", "Reset"), values, strict=True)
    }
    return httpx.Headers(
        {name: value for name, value in {**named, "Date": date}.items() if value is not None}
    )


def test_anthropics_headers():
    found = parse_anthropic_allowance(
        anthropic_headers(
            ("4000", "3999", "2026-01-01T12:00:01Z"),
            ("80000", "78000", "2026-01-01T13:00:15+01:00"),
        )
    )
    assert found == Allowance(4000, 3999, 1, 80000, 78000, 15)
    more = {"anthropic-ratelimit-input-tokens-limit": "5", "x-ratelimit-limit-requests": "5"}
    assert parse_anthropic_allowance(more) is None


@pytest.mark.parametrize(
    ("moment", "date", "seconds"),
    [
        ("2026-01-01T12:00:00.25Z", DATE, 0.25),
        ("2026-01-01T11:59:59Z", DATE, 0),
        ("9999-12-31T23:59:59Z", DATE, 31 * 86_400),
        ("2026-01-01T12:00:05Z", None, None),
        ("2026-01-01T12:00:05Z" + " " * 40, DATE, None),
        (None, DATE, None),
    ],
)
def test_reset_of_anthropic_is_a_moment_counted_from_the_answers_date(moment, date, seconds):
    found = parse_anthropic_allowance(anthropic_headers(("10", "5", moment), date=date))
    assert (found.requests, found.requests_left) == (10, 5)
    assert found.requests_reset_s == seconds


@pytest.mark.parametrize(
    ("parse", "name"),
    [
        (parse_allowance, "x-ratelimit-{word}-{what}"),
        (parse_anthropic_allowance, "anthropic-ratelimit-{what}-{word}"),
    ],
)
@example(values=[None, None, None, None, "0\x1f", None, None])
@given(values=st.lists(texts | st.datetimes().map(str), min_size=7, max_size=7))
def test_any_headers_are_read_within_bounds(parse, name, values):
    names = [
        name.format(word=word, what=what)
        for what in ("requests", "tokens")
        for word in ("limit", "remaining", "reset")
    ]
    given_ = dict(zip([*names, "date"], values, strict=True))
    found = parse({name: value for name, value in given_.items() if value is not None})
    if found is not None:
        for limit in (found.requests, found.tokens):
            assert limit is None or 0 < limit <= 1e12
        for other in (found.requests_left, found.tokens_left, found.requests_reset_s):
            assert other is None or 0 <= other <= 1e12
