"""What a refusal for too much says there was too much of."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from pytest_ultrapar.engine.error_said import read_error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_ultrapar.lanes.protocol import Exceeded

Excess = Literal["rate", "tokens", "in_flight", "quota", "daily_quota"]
"""Of what: requests or tokens per time, requests at once, money, or what a day allows."""

_NO_MONEY_CODES = frozenset(
    {
        "insufficient_quota",
        "billing_hard_limit_reached",
        "billing_not_active",
        "insufficient_balance",
        "insufficient_credits",
        "account_deactivated",
        "arrearage",
    }
)
# In this order: a text that names the day's quota may also speak of the plan's, and one that names
# tokens per minute speaks of requests, too.
_WORDS: tuple[tuple[Excess, re.Pattern[str]], ...] = (
    (
        "quota",
        re.compile(
            r"billing hard limit|credit balance is too low|insufficient (?:balance|credit|funds)"
        ),
    ),
    (
        "daily_quota",
        re.compile(r"per[ _-]?day|\bdaily (?:limit|quota|request|token)|\b[rt]pd\b|perday"),
    ),
    ("in_flight", re.compile(r"concurren|too many simultaneous|in[- ]flight|parallel requests")),
    (
        "tokens",
        re.compile(
            r"tokens?[ _-](?:per[ _-]|/ ?)(?:min|sec)|token rate limit|\btpm\b|tokensperminute"
        ),
    ),
    (
        "rate",
        re.compile(
            r"requests?[ _-](?:per[ _-]|/ ?)(?:min|sec)|call rate limit|\brp[ms]\b|\bqp[ms]\b"
            r"|perminute|request rate|requests rate limit"
        ),
    ),
    ("quota", re.compile(r"exceeded your current quota|check your plan and billing")),
)
_LEFT: tuple[tuple[Exceeded, tuple[str, ...]], ...] = (
    (
        "tokens",
        (
            "x-ratelimit-remaining-tokens",
            "anthropic-ratelimit-tokens-remaining",
            "anthropic-ratelimit-input-tokens-remaining",
            "anthropic-ratelimit-output-tokens-remaining",
        ),
    ),
    ("rate", ("x-ratelimit-remaining-requests", "anthropic-ratelimit-requests-remaining")),
)
_COMES_BACK = re.compile(
    r"(?:try again|retry|come back|reset)s? (?:in|after) "
    r"((?:\d{1,7}(?:\.\d{1,6})? ?(?:ms|milliseconds?|hours?|h|minutes?|m|seconds?|s) ?)+)"
)
_PART = re.compile(r"(\d+(?:\.\d+)?) ?(ms|mil|h|m|s)")
_UNIT_S = {"ms": 0.001, "mil": 0.001, "h": 3600.0, "m": 60.0, "s": 1.0}


def read_excess(body: bytes, headers: Mapping[str, str]) -> Excess | None:
    """What there was too much of, by the error's code, type and message, then by the headers.

    Only the error's own fields are read where the body is JSON: a text of a model, quoted in
    another field, says nothing.

    Args:
        body: Of a response that is an error.
        headers: Its headers, with lower-case lookup.

    Returns:
        None when nothing says it.
    """
    said = read_error(body)
    if said.codes & _NO_MONEY_CODES:
        return "quota"
    for excess, pattern in _WORDS:
        if pattern.search(said.text):
            return excess
    for exceeded, names in _LEFT:
        if any(headers.get(name, "").strip() == "0" for name in names):
            return exceeded
    return None


def comes_back_in_s(body: bytes) -> float | None:
    """Seconds until what was used up is there again, as the error's message says it; else None.

    It is for people to read: what is waited for is what the headers say.
    """
    match = _COMES_BACK.search(read_error(body).message)
    if match is None:
        return None
    return sum(float(n) * _UNIT_S[unit] for n, unit in _PART.findall(match.group(1))) or None
