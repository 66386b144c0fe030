"""What an HTTP answer that is no reply means: one table for all APIs of OpenAI's error shape."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, cast, get_args

import msgspec

from pytest_ultrapar.apis.failure import Failure, beginning_of_bytes
from pytest_ultrapar.apis.outcome import Exceeded
from pytest_ultrapar.apis.retry_after import bounded, duration_of, parse_should_retry, stated_s
from pytest_ultrapar.apis.sanitise import UNREADABLE, has_too_many_objects, part_of
from pytest_ultrapar.apis.vocabulary import meanings, vocabulary

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_ultrapar.apis.failure_classes import FailedOutcome


_LOOKED_AT = 16_384
_MOST_CODES = 50
_LONGEST_CODE = 200
_ADDRESS = re.compile(r"https?://(?:(?!#token-limit)\S)+")
"""But for the one word of an address by which DashScope tells a rate from a dead key."""
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
        param: Which parameter is wrong; empty: none.
    """

    codes: frozenset[str]
    message: str
    back_s: float | None = None
    param: str = ""

    @property
    def text(self) -> str:
        """The message, and behind it the codes."""
        return "\n".join([self.message, *sorted(self.codes)])


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
    metadata: msgspec.Raw = _NOT_THERE
    param: msgspec.Raw = _NOT_THERE
    aws_message: msgspec.Raw = msgspec.field(default=_NOT_THERE, name="Message")


class _Metadata(msgspec.Struct):
    """What OpenRouter adds: the provider's own error as text, whose limit it was, what it flags."""

    raw: str = ""
    provider_error_code: str | int = ""
    limit_source: str = ""
    flagged_input: str = ""


class _Violation(msgspec.Struct, rename="camel"):
    quota_id: str = ""


class _Detail(msgspec.Struct, rename="camel"):
    """What google.rpc adds to an error: ErrorInfo, QuotaFailure or RetryInfo; and Anthropic."""

    reason: str = ""
    error_code: str = msgspec.field(default="", name="error_code")
    violations: list[_Violation] = []
    retry_delay: str = ""


_body_decoder = msgspec.json.Decoder(_Fields | list[_Fields])
_word_decoder = msgspec.json.Decoder(str | int)


def read_error(body: bytes) -> ErrorSaid:
    """What the body of a response that is an error says.

    Of JSON only the error's own fields are read, under `error`, `detail` or at the top, as OpenAI,
    Azure, vLLM and FastAPI have them. What is no JSON, or more of it than an error needs, is all
    message.

    Args:
        body: Of any content and size.
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
    except (*UNREADABLE, ValueError):  # an int of more digits than Python prints
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
"""What is back within a quarter of an hour has not run out, whatever words it is called by. An
episode may last as long, unless said otherwise, and its lanes pause for it."""
_LIMIT = re.compile(r"\blimit(?:ed to| is| of)?\W{0,3}([0-9][0-9,_]*)")
_REQUESTED = re.compile(r"\brequested(?: tokens)?\W{0,3}([0-9][0-9,_]*)")
_TEACH = "; if this is an overflow or a filter, say so in the pool (patterns of the provider)"
_RENAME = "; parameters of the model in the pool can rename what a suite sends, or leave it out"
_TAUGHT_ON = (400, 413, 422)
_PROMPT = frozenset(("", "messages", "prompt", "input", "contents"))
_NAMED = re.compile(
    r"\b(?:parameter|field|argument|propert(?:y|ies))|\b(?:unknown|invalid|unsupported) model\b"
    r"|\bmodel\b(?!')[^.]{0,80}(?:['\"`]|\bnot\b)"
)
"""A parameter, or a model: what is wrong with it is neither the prompt's length nor a filter's."""
_NO_PARAMETER = re.compile(
    r"(?:unsupported|unknown|unrecogni[sz]ed|unexpected|extra)[ _](?:request )?"
    r"(?:parameter|argument|field)"
    r"|(?:parameter|argument|field)\b[^.]{0,60}\bnot (?:supported|permitted|allowed)"
)


def classify_status(
    status: int, body: bytes, retry_after_s: float | None, headers: Mapping[str, str] = _NO_HEADERS
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
    message = f"HTTP {status}: {beginning_of_bytes(body)}"
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        return Failure("malformed", f"HTTP {status}: {_led(headers)}", is_final=True)
    asked_s = retry_after_s or error.back_s
    # Another 2xx cannot be read; every other 4xx is our own fault, and what no server here can do.
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
        # Whoever stood between has stopped waiting, not the model.
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
    """What can be done about words that are not known."""
    if _NO_PARAMETER.search(error.text):
        return _RENAME
    is_named = error.param not in _PROMPT or _NAMED.search(error.text)
    return "" if is_named or not error.text else _TEACH


def _meaning(error: ErrorSaid, heard: int, *, is_soon: bool) -> str | None:
    """What an error means, on a status as which it is heard; None: not known.

    Numbers go before words: a request above the limit that its refusal names can never pass, one
    below can. So does a time that is soon over, before words that the quota or the day is used up.
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
    """A failure by its cure: less of something, another key, another request.

    Args:
        failure: By its status.
        meaning: One of those in `vocabulary.toml`.
    """
    outcome: FailedOutcome = vocabulary()["meanings"][meaning]["outcome"]
    if outcome in {"overload", "loading"} and failure.outcome == "rate":
        # The server's own trouble, and it asks to be left alone.
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
    """A failure by what a pool says that its provider's words mean, if it says so.

    Args:
        failure: By our own vocabulary.
        patterns: Regular expressions by meaning; the first that is found in the error holds.
    """
    for meaning, texts in patterns.items():
        if any(re.search(text, failure.said, re.IGNORECASE) for text in texts):
            return as_meant(failure, meaning)
    return failure


def _led(headers: Mapping[str, str]) -> str:
    """Where a redirect leads, without what may be a secret, and what to do about it."""
    place = re.sub(r"//[^/@]*@", "//", headers.get("location", ""))
    to = re.sub("[?#].+", "?...", f" to {place}" if place else "", flags=re.DOTALL)
    return (
        f"a redirect{to}, which is not followed: set base_url in the pool to the address under "
        "which the server itself answers"
    )


def _used_up(headers: Mapping[str, str]) -> Exceeded | None:
    """Of what nothing is left, by the headers."""
    counted: dict[Exceeded, list[str]] = vocabulary()["used_up"]
    for exceeded, names in counted.items():
        if any(headers.get(name, "").strip() == "0" for name in names):
            return exceeded
    return None


def _as_asked(failure: Failure, headers: Mapping[str, str]) -> Failure:
    """The failure as `x-should-retry` would have it; a lane that is out stays out."""
    should_retry = parse_should_retry(headers)
    if should_retry is False:
        return replace(failure, is_final=True)
    if should_retry and failure.outcome == "bad_request":
        return replace(failure, outcome="overload")
    return failure
