"""What an HTTP answer that is no reply means: one table for all APIs of OpenAI's error shape."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Literal

import msgspec

from pytest_ultrapar.apis.failure import Failure, beginning_of_bytes
from pytest_ultrapar.apis.outcome import Exceeded
from pytest_ultrapar.apis.retry_after import bounded, number_of, parse_should_retry
from pytest_ultrapar.apis.sanitise import UNREADABLE, part_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_ultrapar.apis.failure_classes import FailedOutcome


_LOOKED_AT = 16_384
_ADDRESS = re.compile(r"https?://\S+")
_QUOTED_INPUT = re.compile(r"""['"]input['"]: .*""", re.DOTALL)
"""From here on a validation error of pydantic, printed as a list of dicts, quotes the request."""
_NOT_THERE = msgspec.Raw()


@dataclass(frozen=True, slots=True)
class ErrorSaid:
    """An error in its own words, all in lower case.

    Attributes:
        codes: Its code, type and status, and those of the error within it.
        message: Its message, without addresses and without what it quotes of the request.
        back_s: After how many seconds to come back, as Google's `RetryInfo` says it; None: it does
            not.
    """

    codes: frozenset[str]
    message: str
    back_s: float | None = None

    @property
    def text(self) -> str:
        """The codes and the message, in one."""
        return " ".join([*sorted(self.codes), self.message])


class _Fields(msgspec.Struct):
    """Whatever else an error has is skipped: a quoted prompt may be as large as an answer."""

    error: msgspec.Raw = _NOT_THERE
    detail: msgspec.Raw = _NOT_THERE
    message: msgspec.Raw = _NOT_THERE
    code: msgspec.Raw = _NOT_THERE
    type: msgspec.Raw = _NOT_THERE
    status: msgspec.Raw = _NOT_THERE
    innererror: msgspec.Raw = _NOT_THERE
    inner_error: msgspec.Raw = _NOT_THERE
    details: msgspec.Raw = _NOT_THERE


class _Violation(msgspec.Struct, rename="camel"):
    quota_id: str = ""


class _Detail(msgspec.Struct, rename="camel"):
    """What google.rpc adds to an error: ErrorInfo, QuotaFailure or RetryInfo."""

    reason: str = ""
    violations: list[_Violation] = []
    retry_delay: str = ""


_body_decoder = msgspec.json.Decoder(_Fields | list[_Fields])
_word_decoder = msgspec.json.Decoder(str | int)


def read_error(body: bytes) -> ErrorSaid:
    """What the body of a response that is an error says.

    Of JSON only the error's own fields are read, under `error`, `detail` or at the top, as OpenAI,
    Azure, vLLM and FastAPI have them. What is no JSON is all message.

    Args:
        body: Of any content and size.
    """
    try:
        found = _body_decoder.decode(body)
    except UNREADABLE:
        return ErrorSaid(frozenset(), _plain(body[:_LOOKED_AT].decode("utf-8", "replace")))
    if isinstance(found, list):
        found = found[0] if found else _Fields()
    error = part_of(found.error, _Fields) or part_of(found.detail, _Fields) or found
    inner = part_of(error.innererror, _Fields) or part_of(error.inner_error, _Fields)
    words = [
        _word(raw)
        for source in (error, inner)
        if source is not None
        for raw in (source.code, source.type, source.status)
    ]
    details = part_of(error.details, list[_Detail]) or []
    for detail in details:
        words += [detail.reason, *(one.quota_id for one in detail.violations)]
    codes = frozenset(word.lower() for word in words if word)
    texts = (_word(raw) for raw in (error.message, error.detail, error.error))
    delays = (number_of(detail.retry_delay.removesuffix("s")) for detail in details)
    back_s = max((bounded(delay) or 0.0 for delay in delays if delay), default=0.0)
    message = " ".join(_plain(text) for text in texts if text)
    return ErrorSaid(codes, message, back_s or None)


def _word(raw: msgspec.Raw) -> str:
    try:
        return str(_word_decoder.decode(raw))[:_LOOKED_AT]
    except (*UNREADABLE, ValueError):  # an int of more digits than Python prints
        return ""


def _plain(text: str) -> str:
    return _ADDRESS.sub(" ", _QUOTED_INPUT.sub(" ", text.lower()))


Excess = Literal[Exceeded, "quota", "daily_quota"]
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
        "billing_error",
    }
)
# In this order: a text that names the day's quota may also speak of the plan's, and one that names
# tokens per minute speaks of requests, too.
_WORDS: tuple[tuple[Excess, re.Pattern[str]], ...] = (
    (
        "quota",
        re.compile(
            r"billing hard limit|credit balance is too low|insufficient (?:balance|credit|funds)"
            r"|specified api usage limits"
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
            r"tokens?[ _-](?:per[ _-]|/ ?)(?:min|sec)|token rate limit|\btpm\b|tokens\w*perminute"
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


_BY_STATUS: dict[int, FailedOutcome] = {
    400: "bad_request",
    401: "auth",
    402: "quota",
    403: "forbidden",
    404: "not_found",
    408: "timeout",
    409: "overload",
    413: "bad_request",
    422: "bad_request",
    429: "rate",
    529: "rate",
}
_BY_HUNDREDS: dict[int, FailedOutcome] = {4: "bad_request", 5: "overload"}
_CONTEXT_WORDS = (
    "context_length_exceeded",
    "maximum context length",
    "context window",
    # Anthropic's two, and Gemini's.
    "prompt is too long",
    "exceed context limit",
    "exceeds the maximum number of tokens allowed",
)
_FILTER_WORDS = (
    "content_filter",
    "content management policy",
    "responsibleaipolicyviolation",
    "content_policy_violation",
    "flagged as potentially violating",
    "content filtering policy",
)
_NO_ACCESS_WORDS = ("do not have access", "does not have access", "no access to")
_KEY_CODES = frozenset({"api_key_invalid", "invalid_api_key"})
_KEY_WORDS = ("api key not valid", "api key expired")
_GATEWAY_TIMEOUTS = frozenset({504, 524})
_NO_HEADERS: dict[str, str] = {}


def classify_status(
    status: int,
    body: bytes,
    retry_after_s: float | None,
    headers: Mapping[str, str] = _NO_HEADERS,
) -> Failure:
    """The failure that a response other than 200 stands for.

    Args:
        status: HTTP status, not 200.
        body: The response's body. Its meaning is in the error's own code, type and message only: a
            prompt that it echoes says nothing. Its beginning is quoted.
        retry_after_s: From the headers, already validated.
        headers: The response's, with lower-case lookup.
    """
    error = read_error(body)
    words = error.text
    message = f"HTTP {status}: {beginning_of_bytes(body)}"
    if status in {400, 413, 422}:
        if any(word in words for word in _CONTEXT_WORDS):
            return Failure("refused", message, refused_kind="context_length")
        if any(word in words for word in _FILTER_WORDS):
            return Failure("refused", message, refused_kind="content_filter")
        if status == HTTPStatus.BAD_REQUEST and read_excess(body, _NO_HEADERS) == "quota":
            return Failure("quota", message)
        # Google's way to refuse a key. What stands further back may be quoted from a prompt.
        if error.codes & _KEY_CODES or error.message.startswith(_KEY_WORDS):
            return Failure("auth", message)
    # A redirect or another 2xx cannot be read; every other 4xx is our own fault.
    outcome = _BY_STATUS.get(status) or _BY_HUNDREDS.get(status // 100, "malformed")
    if status == HTTPStatus.SERVICE_UNAVAILABLE and retry_after_s is not None:
        outcome = "rate"
    if outcome == "not_found" and any(word in words for word in _NO_ACCESS_WORDS):
        outcome = "forbidden"
    failure = Failure(
        outcome,
        message,
        retry_after_s=retry_after_s,
        # Whoever stood between has stopped waiting, not the model.
        maybe_billed=status in _GATEWAY_TIMEOUTS,
        is_wordless=status == HTTPStatus.SERVICE_UNAVAILABLE and outcome == "overload",
    )
    if outcome == "rate":
        failure = _sort_out(failure, body, headers)
    return _as_asked(failure, headers)


def _sort_out(failure: Failure, body: bytes, headers: Mapping[str, str]) -> Failure:
    """A refusal for too much by its cure: less of something, or another key."""
    match read_excess(body, headers):
        case None:
            return failure
        case "quota" | "daily_quota" as outcome:
            return replace(failure, outcome=outcome)
        case exceeded:
            return replace(failure, exceeded=exceeded)


def _as_asked(failure: Failure, headers: Mapping[str, str]) -> Failure:
    """The failure as `x-should-retry` would have it; a lane that is out stays out."""
    should_retry = parse_should_retry(headers)
    if should_retry is False:
        return replace(failure, is_final=True)
    if should_retry and failure.outcome == "bad_request":
        return replace(failure, outcome="overload")
    return failure
