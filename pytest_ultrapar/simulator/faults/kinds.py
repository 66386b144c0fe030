"""The kinds of `[[fault]]`: their fields in the file, and their effects on answers.

Each kind is one class. Its fields are in `FaultTable`, its `read` checks them, and the server calls
its `of_answer` for each answer that a fault affects.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, NoReturn, Self, get_args

import msgspec
from msgspec import Meta

from pytest_ultrapar.pool.field_checks import Location, did_you_mean, shown
from pytest_ultrapar.pool.file import FileTable
from pytest_ultrapar.simulator.answer import NEVER, Answer, Pieces, Whole, broken_off
from pytest_ultrapar.simulator.api_error import ApiError
from pytest_ultrapar.simulator.stream import as_event

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pytest_ultrapar.simulator.wire.resource import Resource


class PlaceTable(FileTable, kw_only=True):
    """The fields that all entries have in common: a name, the lanes and the time span."""

    name: str | None = None
    provider: str | None = None
    instance: str | None = None
    key: str | None = None
    model: str | None = None
    from_s: Annotated[float, Meta(ge=0, le=1_000_000)] = 0.0
    for_s: Annotated[float, Meta(gt=0, le=1_000_000)] | None = None


class FaultTable(PlaceTable, kw_only=True):
    """`[[fault]]`."""

    kind: str
    after_requests: Annotated[int, Meta(ge=0, le=10**12)] = 0
    for_requests: Annotated[int, Meta(ge=1, le=10**12)] | None = None
    share: Annotated[float, Meta(gt=0, le=1)] = 1.0
    error: str | None = None
    status: Annotated[int, Meta(ge=300, le=599)] | None = None
    message: str | None = None
    body: str | None = None
    headers: dict[str, str | list[str]] | None = None
    after_s: Annotated[float, Meta(ge=0, le=3_600)] | None = None
    at: At | None = None


Timed = tuple[Answer, float]
"""An answer and its latency in seconds."""


class Effect(msgspec.Struct, frozen=True):
    """The effect of a fault on a request.

    Attributes:
        fields: The fields of `FaultTable` that this kind uses, except those that all kinds use.
    """

    fields: ClassVar[tuple[str, ...]]

    @classmethod
    def read(cls, location: Location, table: FaultTable) -> Self:
        """Return the effect that an entry of this kind describes.

        Raises:
            ConfigError: A field is missing, or contradicts another field.
        """
        given = {field: getattr(table, field) for field in cls.fields}
        return cls(**{field: value for field, value in given.items() if value is not None})

    def of_answer(self, answer: Answer, latency_s: float, api: Resource) -> Timed:
        """Return the answer to send instead, and its latency.

        Args:
            answer: The answer without the fault.
            latency_s: The latency of that answer, in seconds.
            api: The wire format of the request.
        """
        raise NotImplementedError


At = Literal["start", "body"]


class Error(Effect, frozen=True, tag="error"):
    """Answers with another status.

    Attributes:
        said: The error, with its status.
        has_status: Whether the file sets the status; otherwise an API may use its own status.
        body: The whole body; None means the API's usual body for this error.
        headers: Headers besides content-type and content-length; names may be repeated. None means
            the API's usual headers for this error.
        after_s: How many seconds to hold a seat before the answer; with 0, the server answers
            before it checks any limit.
    """

    fields = ("error", "status", "message", "body", "headers", "after_s")

    said: ApiError
    has_status: bool = True
    body: str | None = None
    headers: tuple[tuple[str, str], ...] | None = None
    after_s: float = 0.0

    @classmethod
    def read(cls, location: Location, table: FaultTable) -> Self:  # noqa: D102 - as in Effect
        if table.body is not None and table.message is not None:
            location.at("message").refuse(
                "cannot be combined with body, which is the whole answer; leave one of them out"
            )
        status = table.status
        if table.error is not None:
            known = KNOWN_ERRORS.get(table.error)
            if known is None:
                refuse_unknown(location.at("error"), table.error, KNOWN_ERRORS, "error")
        elif status is not None:
            text = f"Answered with {status} as requested in the faults file"
            known = ApiError.of_status(status, text)
        else:
            location.refuse('requires error or status, because kind = "error"')
        message = known.message if table.message is None else table.message
        said = replace(known, status=status or known.status, message=message)
        headers = None
        if table.headers is not None:
            headers = check_headers(location.at("headers"), table.headers)
        return cls(said, status is not None, table.body, headers, table.after_s or 0.0)

    def answer(self, api: Resource) -> Whole:
        """Return the error in the format of the requested API."""
        said = self.said
        if not self.has_status and said.code == OVERLOADED:
            said = replace(said, status=api.overloaded)
        whole = api.refusal(said)
        headers = whole.headers
        if self.headers is not None:
            headers = tuple(
                (name.encode("latin-1"), v.encode("latin-1")) for name, v in self.headers
            )
        body = whole.body if self.body is None else self.body.encode()
        return Whole(body, said.status, headers)

    def of_answer(self, answer: Answer, latency_s: float, api: Resource) -> Timed:  # noqa: D102
        return self.answer(api), self.after_s


class Hang(Effect, frozen=True, tag="hang"):
    """Holds a seat and never answers; with `at = "body"`, begins an answer but never ends it."""

    fields = ("at",)

    at: At = "start"

    def of_answer(self, answer: Answer, latency_s: float, api: Resource) -> Timed:  # noqa: D102
        return (NEVER if self.at == "start" else broken_off(answer, "silence")), latency_s


class Drop(Effect, frozen=True, tag="drop"):
    """Closes the connection without an answer, or during the answer (`at = "body"`).

    Attributes:
        after_s: Seconds until the connection closes; None means that it closes when the
            answer would have been due.
    """

    fields = ("at", "after_s")

    at: At = "start"
    after_s: float | None = None

    def of_answer(self, answer: Answer, latency_s: float, api: Resource) -> Timed:  # noqa: D102
        in_body = self.at == "body"
        dropped = broken_off(answer, "close") if in_body else Pieces(None, (), (), "close")
        return dropped, latency_s if self.after_s is None else self.after_s


class Malformed(Effect, frozen=True, tag="malformed"):
    """Answers with 200 and half of the body, or with a body that is not a completion.

    Attributes:
        body: The whole body to send; None means half of the real body.
    """

    fields = ("body",)

    body: str | None = None

    def of_answer(self, answer: Answer, latency_s: float, api: Resource) -> Timed:  # noqa: D102
        if isinstance(answer, Pieces):
            if self.body is None:
                return broken_off(answer, "complete"), latency_s
            event = as_event(self.body.encode()) if self.body else b""
            return msgspec.structs.replace(answer, pieces=((1.0, event),)), latency_s
        half = answer.body[: len(answer.body) // 2]
        body = half if self.body is None else self.body.encode()
        return msgspec.structs.replace(answer, body=body), latency_s


AnyEffect = Error | Hang | Drop | Malformed
KINDS: dict[str, type[AnyEffect]] = {
    str(kind.__struct_config__.tag): kind for kind in get_args(AnyEffect)
}
"""The classes of the kinds, by the names of the kinds in the file."""


OVERLOADED = "overloaded"
"""The error whose status differs between APIs."""
KNOWN_ERRORS: dict[str, ApiError] = {
    "rate_limit_exceeded": ApiError(
        429, "Rate limit reached: too many requests", "rate_limit_exceeded", retry_after_s=1.0
    ),
    "insufficient_quota": ApiError(
        429,
        "The quota of this key is used up; see the key's plan and billing",
        "insufficient_quota",
        kind="insufficient_quota",
    ),
    "invalid_api_key": ApiError(401, "Incorrect API key provided", "invalid_api_key"),
    "DeploymentNotFound": ApiError(
        404, "The API deployment for this resource does not exist", "DeploymentNotFound"
    ),
    "context_length_exceeded": ApiError(
        400,
        "The messages are longer than this model's context",
        "context_length_exceeded",
        param="messages",
    ),
    "content_filter": ApiError(
        400, "The prompt was stopped by the content filter", "content_filter", param="prompt"
    ),
    "server_error": ApiError(500, "The server had an error", "server_error"),
    OVERLOADED: ApiError(503, "The engine is overloaded", OVERLOADED),
}


_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_FRAMING = frozenset({"content-length", "transfer-encoding", "connection"})
_VALUE = re.compile(r"[\t \x21-\x7e\x80-\xff]{0,200000}")


def check_headers(
    location: Location, headers: Mapping[str, str | Sequence[str]]
) -> tuple[tuple[str, str], ...]:
    """Return lower-case names with their values, in the same order; a list becomes several headers.

    Raises:
        ConfigError: A name or value cannot be sent, or affects the framing of the answer, which the
            server sets itself.

    Source: RFC 9110, sections 5.1 and 5.5 (tokens; visible characters, blanks and obs-text).
    """
    found = []
    for name, values in headers.items():
        where = location.at(name)
        if not _NAME.fullmatch(name):
            where.refuse("is not a header name")
        if name.lower() in _FRAMING:
            where.refuse("cannot be set: the server itself sets the framing of the answer")
        for value in [values] if isinstance(values, str) else values:
            if not _VALUE.fullmatch(value):
                where.refuse("must be one line of at most 200,000 characters, none above U+00FF")
            found.append((name.lower(), value))
    return tuple(found)


def refuse_unknown(location: Location, name: str, known: Collection[str], what: str) -> NoReturn:
    """Refuse an unknown name, and suggest the most similar one.

    Raises:
        ConfigError: Always.
    """
    location.refuse(
        f"is an unknown {what}{did_you_mean(name, known)} "
        f"(got {shown(name)}; allowed: {', '.join(known) or 'none'})"
    )
