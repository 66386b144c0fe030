"""Find out what a failed response means, for all APIs with error formats similar to OpenAI's."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, cast, get_args

import msgspec

from pytest_ultrapar.apis.failure import Failure, beginning_of_bytes
from pytest_ultrapar.apis.outcome import Exceeded
from pytest_ultrapar.apis.retry_after import bounded, duration_of, parse_should_retry, stated_s
from pytest_ultrapar.apis.server_json import UNREADABLE, has_too_many_objects, part_of
from pytest_ultrapar.apis.vocabulary import meanings, vocabulary

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_ultrapar.apis.failure_classes import FailedOutcome


_LOOKED_AT = 16_384
_MOST_CODES = 50
_LONGEST_CODE = 200
_ADDRESS = re.compile(r"https?://(?:(?!#token-limit)\S)+")
"""An address, without the ending `#token-limit` with which DashScope marks a rate limit."""
_QUOTED_INPUT = re.compile(r"""['"]input['"]: .*""", re.DOTALL)
"""The part of a printed pydantic validation error that quotes the request."""
_NOT_THERE = msgspec.Raw()


@dataclass(frozen=True, slots=True)
class ErrorSaid:
    """The text of an error, in lower case.

    Attributes:
        codes: The codes, types and statuses of the error and of its inner error.
        message: The message, without URLs and without quotes from the request.
        back_s: Seconds to wait before a retry, from Google's `RetryInfo`; None if the error does
            not contain it.
        param: The parameter that the error is about; empty if the error names none.
    """

    codes: frozenset[str]
    message: str
    back_s: float | None = None
    param: str = ""

    @property
    def text(self) -> str:
        """The message, followed by the codes."""
        return "\n".join([self.message, *sorted(self.codes)])


class _Fields(msgspec.Struct):
    """The fields that are read from errors. Others are skipped, because they may quote a prompt."""

    error: msgspec.Raw = _NOT_THERE
    detail: msgspec.Raw = _NOT_THERE
    message: msgspec.Raw = _NOT_THERE
    code: msgspec.Raw = _NOT_THERE
    type: msgspec.Raw = _NOT_THERE
    status: msgspec.Raw = _NOT_THERE
    innererror: msgspec.Raw = _NOT_THERE
    inner_error: msgspec.Raw = _NOT_THERE
    details: msgspec.Raw = _NOT_THERE
    metadata: msgspec.Raw = _NOT_THERE
    param: msgspec.Raw = _NOT_THERE
    aws_message: msgspec.Raw = msgspec.field(default=_NOT_THERE, name="Message")


class _Metadata(msgspec.Struct):
    """OpenRouter's additions: the provider's error, the limit's source, and the flagged input."""

    raw: str = ""
    provider_error_code: str | int = ""
    limit_source: str = ""
    flagged_input: str = ""


class _Violation(msgspec.Struct, rename="camel"):
    quota_id: str = ""


class _Detail(msgspec.Struct, rename="camel"):
    """Details of an error, from google.rpc (ErrorInfo, QuotaFailure, RetryInfo) or Anthropic."""

    reason: str = ""
    error_code: str = msgspec.field(default="", name="error_code")
    violations: list[_Violation] = []
    retry_delay: str = ""


_body_decoder = msgspec.json.Decoder(_Fields | list[_Fields])
_word_decoder = msgspec.json.Decoder(str | int)


def read_error(body: bytes) -> ErrorSaid:
    """Read the error in the body of a response.

    In JSON, only the error's own fields are read. Depending on the server (OpenAI, Azure, vLLM or
    FastAPI), they are in `error`, in `detail` or at the top level. A body that is not JSON, or
    contains too many objects, is treated as one message.

    Args:
        body: The body, with any content and of any size.
    """
    try:
        if has_too_many_objects(body):
            body = body[:_LOOKED_AT]
        found = _body_decoder.decode(body)
    except UNREADABLE:
        text = _plain(body[:_LOOKED_AT].decode("utf-8", "replace"))
        return ErrorSaid(frozenset(), text.strip('" \n'))
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
    of_one = [part_of(error.details, _Detail) or _Detail()]
    details = (part_of(error.details, list[_Detail]) or of_one)[:_MOST_CODES]
    for detail in details:
        words += [detail.reason, detail.error_code, *(one.quota_id for one in detail.violations)]
    texts = [_word(raw) for raw in (error.message, error.aws_message, error.detail, error.error)]
    if added := part_of(error.metadata, _Metadata):
        upstream = read_error(added.raw.encode()) if added.raw else ErrorSaid(frozenset(), "")
        words += [*upstream.codes, str(added.provider_error_code), added.limit_source]
        words += ["flagged_input"] if added.flagged_input else []
        texts.append(upstream.message)
    codes = frozenset(word[:_LONGEST_CODE].lower() for word in words[:_MOST_CODES] if word)
    delays = [duration_of(detail.retry_delay.lower()) for detail in details]
    back_s = max((bounded(delay) or 0.0 for delay in delays if delay), default=0.0)
    message = " ".join(_plain(text) for text in texts if text)
    return ErrorSaid(codes, message[:_LOOKED_AT], back_s or None, _word(error.param))


def _word(raw: msgspec.Raw) -> str:
    try:
        return str(_word_decoder.decode(raw))[:_LOOKED_AT]
    except (*UNREADABLE, ValueError):  # an int with too many digits for Python to print
        return ""


def _plain(text: str) -> str:
    return _ADDRESS.sub(" ", _QUOTED_INPUT.sub(" ", text.lower()))


_BY_STATUS: dict[int, FailedOutcome] = {
    401: "auth",
    402: "quota",
    403: "forbidden",
    404: "not_found",
    408: "timeout",
    409: "overload",
    413: "too_large",
    429: "rate",
    501: "bad_request",
    505: "bad_request",
    529: "rate",
}
_BY_HUNDREDS: dict[int, FailedOutcome] = {4: "bad_request", 5: "overload"}
_NO_HEADERS: dict[str, str] = {}
_SOON_S = 900.0
"""A limit that recovers within 15 minutes is treated as a rate limit, even if the error says that
the quota is exhausted. By default an episode may last that long, and lanes may pause that long."""
_LIMIT = re.compile(r"\blimit(?:ed to| is| of)?\W{0,3}([0-9][0-9,_]*)")
_REQUESTED = re.compile(r"\brequested(?: tokens)?\W{0,3}([0-9][0-9,_]*)")
_TEACH = (
    "; if this is a context overflow or a content filter, add a pattern for the error's text to "
    "the provider's `patterns` in the pool"
)
_RENAME = "; to rename or omit the parameter, set the model's `parameters` in the pool"
_TAUGHT_ON = (400, 413, 422)
_PROMPT = frozenset(("", "messages", "prompt", "input", "contents"))
_NAMED = re.compile(
    r"\b(?:parameter|field|argument|propert(?:y|ies))|\b(?:unknown|invalid|unsupported) model\b"
    r"|\bmodel\b(?!')[^.]{0,80}(?:['\"`]|\bnot\b)"
)
"""Matches errors about a parameter or model, which no context overflow or content filter caused."""
_NO_PARAMETER = re.compile(
    r"(?:unsupported|unknown|unrecogni[sz]ed|unexpected|extra)[ _](?:request )?"
    r"(?:parameter|argument|field)"
    r"|(?:parameter|argument|field)\b[^.]{0,60}\bnot (?:supported|permitted|allowed)"
)


def classify_status(
    status: int, body: bytes, retry_after_s: float | None, headers: Mapping[str, str] = _NO_HEADERS
) -> Failure:
    """Return the failure for a response with a status other than 200.

    Args:
        status: HTTP status, not 200.
        body: The response's body. Only the error's own fields are interpreted, never a prompt that
            the body repeats. The failure's message quotes the beginning of the body.
        retry_after_s: The wait that the headers ask for, already validated, in seconds.
        headers: The response's headers, which can be looked up by lower-case names.
    """
    error = read_error(body)
    message = f"HTTP {status}: {beginning_of_bytes(body)}"
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        return Failure("malformed", f"HTTP {status}: {_led(headers)}", is_final=True)
    asked_s = retry_after_s or error.back_s
    # Other 2xx responses cannot be read; other 4xx responses mean that the request is wrong.
    outcome = _BY_STATUS.get(status) or _BY_HUNDREDS.get(status // 100, "malformed")
    if status == HTTPStatus.SERVICE_UNAVAILABLE and asked_s is not None:
        outcome = "rate"
    heard = HTTPStatus.TOO_MANY_REQUESTS if outcome == "rate" else status
    is_soon = False
    if outcome in {"rate", "quota"}:
        asked_s = asked_s or stated_s(error.message)
        is_soon = asked_s is not None and asked_s <= _SOON_S
        outcome = "rate" if is_soon else outcome
    failure = Failure(
        outcome,
        message,
        retry_after_s=asked_s,
        # A proxy has timed out, but the model may still answer.
        maybe_billed=status in {504, 524},
        is_wordless=status == HTTPStatus.SERVICE_UNAVAILABLE and outcome == "overload",
        said=error.text,
    )
    meaning = _meaning(error, heard, is_soon=is_soon)
    if meaning is not None:
        failure = as_meant(failure, meaning)
    elif outcome == "rate":
        failure = replace(failure, exceeded=_used_up(headers))
    elif status in _TAUGHT_ON:
        failure = replace(failure, message=message + _hint(error))
    return _as_asked(failure, headers)


def _hint(error: ErrorSaid) -> str:
    """Advice to append to the message of an error whose wording is unknown; may be empty."""
    if _NO_PARAMETER.search(error.text):
        return _RENAME
    is_named = error.param not in _PROMPT or _NAMED.search(error.text)
    return "" if is_named or not error.text else _TEACH


def _meaning(error: ErrorSaid, heard: int, *, is_soon: bool) -> str | None:
    """The meaning of an error with this status; None if unknown.

    Numbers in the error take precedence over its words: a request above the stated limit can never
    succeed, but one within the limit can. A short wait also takes precedence over words that report
    an exhausted quota.
    """
    asked, limits = (
        [int(re.sub("[,_]", "", number)[:20]) for number in pattern.findall(error.message)]
        for pattern in (_REQUESTED, _LIMIT)
    )
    is_named = bool(asked and limits) and heard in {413, 429}
    if is_named and max(asked) > max(limits):
        return "too_large"
    for meaning, is_code in meanings(error.codes, error.text, heard):
        is_over = meaning in {"quota", "daily_quota"} and not is_code
        if not (is_named and meaning == "too_large") and not (is_soon and is_over):
            return meaning
    return None


def as_meant(failure: Failure, meaning: str) -> Failure:
    """Return the failure with the outcome that a meaning implies.

    Args:
        failure: The failure as classified so far.
        meaning: A meaning in `vocabulary.toml`.
    """
    outcome: FailedOutcome = vocabulary()["meanings"][meaning]["outcome"]
    if outcome in {"overload", "loading"} and failure.outcome == "rate":
        # The server failed and asked clients to wait.
        outcome = "rate"
    return replace(
        failure,
        outcome=outcome,
        message=failure.message.removesuffix(_TEACH).removesuffix(_RENAME),
        refused_kind=meaning if outcome == "refused" else None,
        exceeded=cast("Exceeded", meaning) if meaning in get_args(Exceeded) else None,
        is_wordless=failure.is_wordless and outcome == "overload",
        meaning=meaning,
    )


def as_taught(failure: Failure, patterns: Mapping[str, Iterable[str]]) -> Failure:
    """Return the failure, changed by `as_meant` if one of the pool's patterns matches its error.

    Args:
        failure: The failure according to the plugin's vocabulary.
        patterns: Regular expressions by meaning; the first match counts.
    """
    for meaning, texts in patterns.items():
        if any(re.search(text, failure.said, re.IGNORECASE) for text in texts):
            return as_meant(failure, meaning)
    return failure


def _led(headers: Mapping[str, str]) -> str:
    """Describe a redirect: its target without possible secrets, and how to fix the problem."""
    place = re.sub(r"//[^/@]*@", "//", headers.get("location", ""))
    to = re.sub("[?#].+", "?...", f" to {place}" if place else "", flags=re.DOTALL)
    return (
        f"the server redirects{to}, but redirects are not followed: set base_url in the pool to "
        "the server's own address"
    )


def _used_up(headers: Mapping[str, str]) -> Exceeded | None:
    """The limit that is exhausted according to the headers; None if they name no such limit."""
    counted: dict[Exceeded, list[str]] = vocabulary()["used_up"]
    for exceeded, names in counted.items():
        if any(headers.get(name, "").strip() == "0" for name in names):
            return exceeded
    return None


def _as_asked(failure: Failure, headers: Mapping[str, str]) -> Failure:
    """Apply the header `x-should-retry`. It does not stop a failure from removing a lane."""
    should_retry = parse_should_retry(headers)
    if should_retry is False:
        return replace(failure, is_final=True)
    if should_retry and failure.outcome == "bad_request":
        return replace(failure, outcome="overload")
    return failure
