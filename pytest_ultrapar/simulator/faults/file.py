"""From a faults file to a `FaultScript`: every check is made here, before anything is served."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal, NoReturn, get_args

import msgspec

from pytest_ultrapar.pool.fields import RATE, SEED, Bounds, Location, check_name, check_word, shown
from pytest_ultrapar.pool.file import FileTable, Number, decode_as, parse_toml, read_pool_file
from pytest_ultrapar.pool.model import LIMIT_KINDS
from pytest_ultrapar.simulator.api_error import ApiError
from pytest_ultrapar.simulator.faults.script import (
    At,
    Capacity,
    Drop,
    Effect,
    Error,
    Fault,
    FaultScript,
    Finish,
    FinishReason,
    Hang,
    Malformed,
    MalformedForm,
    RateHeaders,
    Since,
    Slow,
    Span,
    When,
    Where,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from pytest_ultrapar.pool.model import Pool


class PlaceTable(FileTable, kw_only=True):
    """Where and when: what all entries have in common."""

    name: str | None = None
    provider: str | None = None
    instance: str | None = None
    key: str | None = None
    model: str | None = None
    from_s: Number | None = None
    for_s: Number | None = None


class FaultTable(PlaceTable, kw_only=True):
    """`[[fault]]`."""

    kind: str
    after_requests: int | None = None
    for_requests: int | None = None
    after_tokens: int | None = None
    share: Number | None = None
    error: str | None = None
    status: int | None = None
    message: str | None = None
    body: str | None = None
    headers: dict[str, str | list[str]] | None = None
    after_s: Number | None = None
    at: str | None = None
    extra_s: Number | None = None
    factor: Number | None = None
    form: str | None = None
    finish_reason: str | None = None


class CapacityTable(PlaceTable, kw_only=True):
    """`[[capacity]]`."""

    limit: str | None = None
    workers: int | None = None
    qps: Number | None = None
    rpm: Number | None = None
    tpm: Number | None = None
    factor: Number | None = None
    burst: int | None = None
    burst_tokens: int | None = None


class RateHeadersTable(PlaceTable, kw_only=True):
    """`[[rate_headers]]`."""

    values: dict[str, str] | None = None


class FaultsFile(FileTable, kw_only=True):
    """The whole file."""

    schema: int = 1
    since: str | None = None
    seed: int | None = None
    fault: list[FaultTable] = msgspec.field(default_factory=list)
    capacity: list[CapacityTable] = msgspec.field(default_factory=list)
    rate_headers: list[RateHeadersTable] = msgspec.field(default_factory=list)


_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_FRAMING = frozenset({"content-length", "transfer-encoding", "connection"})
_CHARACTERS = 200_000


def check_headers(
    location: Location, headers: Mapping[str, str | Sequence[str]]
) -> tuple[tuple[str, str], ...]:
    """Names, small, and values in the order given; a list is one header per value.

    Raises:
        ConfigError: A name or value cannot be sent, or would break the answer's framing, which is
            the server's own business.

    Source: RFC 9110, sections 5.1 and 5.5 (tokens; visible characters, blanks and obs-text).
    """
    found = []
    for name, values in headers.items():
        where = location.at(name)
        if not _NAME.fullmatch(name):
            where.refuse("is no name of a header")
        if name.lower() in _FRAMING:
            where.refuse("cannot be set: it says how the answer is framed")
        for value in [values] if isinstance(values, str) else values:
            if len(value) > _CHARACTERS:
                where.refuse(f"must have at most {_CHARACTERS} characters (got {len(value)})")
            if any(not (" " <= c <= "\xff" and c != "\x7f") and c != "\t" for c in value):
                where.refuse("must be of characters up to U+00FF, without line breaks")
            found.append((name.lower(), value))
    return tuple(found)


KNOWN_ERRORS: dict[str, ApiError] = {
    "rate_limit_exceeded": ApiError(
        429, "Rate limit reached: too many requests", "rate_limit_exceeded", retry_after_s=1.0
    ),
    "tokens_per_minute": ApiError(
        429,
        "Rate limit reached on tokens per min (TPM)",
        "rate_limit_exceeded",
        retry_after_s=1.0,
        kind="tokens",
    ),
    "requests_per_day": ApiError(
        429,
        "Rate limit reached on requests per day (RPD)",
        "rate_limit_exceeded",
        retry_after_s=3600.0,
    ),
    "tokens_per_day": ApiError(
        429,
        "Rate limit reached on tokens per day (TPD)",
        "rate_limit_exceeded",
        retry_after_s=3600.0,
        kind="tokens",
    ),
    "insufficient_quota": ApiError(
        429,
        "The quota of this key is used up; see its plan and billing",
        "insufficient_quota",
        kind="insufficient_quota",
    ),
    "payment_required": ApiError(402, "This account has no credit left", "insufficient_quota"),
    "invalid_api_key": ApiError(401, "Incorrect API key provided", "invalid_api_key"),
    "permission_denied": ApiError(403, "This key may not use this model", "permission_denied"),
    "model_not_found": ApiError(404, "The model does not exist", "model_not_found"),
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
    "unsupported_parameter": ApiError(
        400,
        "'max_tokens' is not supported with this model; use 'max_completion_tokens' instead",
        "unsupported_parameter",
        param="max_tokens",
    ),
    "server_error": ApiError(500, "The server had an error", "server_error"),
    "bad_gateway": ApiError(502, "Bad gateway"),
    "overloaded": ApiError(503, "The engine is overloaded", "overloaded"),
    "gateway_timeout": ApiError(504, "The server did not answer in time"),
}


FROM_S = Bounds(at_least=0, at_most=1_000_000)
FOR_S = Bounds(above=0, at_most=1_000_000)
_NAMES = ("provider", "instance", "key", "model")


def read_label(location: Location, name: str | None, kind: str, index: int) -> str:
    """What the log calls an entry: its name, else its kind and number, from 1.

    Raises:
        ConfigError: The name cannot stand in a log.
    """
    return f"{kind} {index + 1}" if name is None else check_name(location.at("name"), name)


def read_where(location: Location, table: PlaceTable, pool: Pool) -> Where:
    """The lanes that an entry names.

    Raises:
        ConfigError: A name is not in the pool, or no lane has all of them.
    """
    where = Where(table.provider, table.instance, table.key, table.model)
    for field in _NAMES:
        known = dict.fromkeys(str(getattr(lane, field)) for lane in pool.lanes)
        name = getattr(where, field)
        if name is not None and name not in known:
            refuse_unknown(location.at(field), name, known, f"{field} of {pool.path}")
    if not any(where.holds(lane) for lane in pool.lanes):
        said = ", ".join(f"{f} = {shown(name)}" for f in _NAMES if (name := getattr(where, f)))
        location.refuse(f"names no lane of {pool.path}: none has {said}")
    return where


def read_span(location: Location, table: PlaceTable) -> Span:
    """When an entry holds.

    Raises:
        ConfigError: A time is out of its bounds.
    """
    from_s = (
        0.0 if table.from_s is None else float(FROM_S.check(location.at("from_s"), table.from_s))
    )
    for_s = None if table.for_s is None else float(FOR_S.check(location.at("for_s"), table.for_s))
    return Span(from_s, for_s)


def refuse_unknown(location: Location, name: str, known: Collection[str], what: str) -> NoReturn:
    """Refuse a name that is not there, with the nearest one.

    Raises:
        ConfigError: Always.
    """
    import difflib  # noqa: PLC0415 - 8 ms, needed only for this message

    near = difflib.get_close_matches(name, known, n=1)
    meant = f"; did you mean {near[0]}?" if near else ""
    location.refuse(
        f"is no {what}{meant} (got {shown(name)}; there is {', '.join(known) or 'none'})"
    )


_BOUNDS = {
    "in flight": Bounds(at_least=0, at_most=100_000),
    "requests": RATE,
    "tokens": Bounds(above=0, at_least=1e-6, at_most=1e12),
}
BURST = Bounds(at_least=1, at_most=1_000_000_000)
FACTOR = Bounds(above=0, at_most=1_000)
_AMOUNTS = [word for word in LIMIT_KINDS if word in CapacityTable.__struct_fields__]
_NUMBERS = {word: _BOUNDS[LIMIT_KINDS[word].counts] for word in _AMOUNTS} | {
    "factor": FACTOR,
    "burst": BURST,
    "burst_tokens": BURST,
}
_WHERE = ("provider", "instance", "key", "model")


def read_capacity(location: Location, table: CapacityTable, index: int, pool: Pool) -> Capacity:
    """What a limit holds for a while.

    Raises:
        ConfigError: A limit or lane is not there, no number is given, one is out of its bounds, or
            fields contradict each other.
    """
    given = {field for field in _NUMBERS if getattr(table, field) is not None}
    for field in given:
        _NUMBERS[field].check(location.at(field), getattr(table, field))
    if not given:
        location.refuse(f"changes nothing: it needs one of {', '.join(_NUMBERS)}")
    limits: tuple[str, ...] = ()
    where = Where()
    if table.limit is not None:
        for field in _WHERE:
            if getattr(table, field) is not None:
                location.at(field).refuse("cannot be given together with limit, which says where")
        held = pool.held or pool.limits
        limits = tuple(name for name in held if fnmatchcase(name, table.limit))
        if not limits:
            refuse_unknown(location.at("limit"), table.limit, tuple(held), f"limit of {pool.path}")
    else:
        if "factor" in given:
            location.at("factor").refuse("needs limit: a new limit has no numbers to multiply")
        where = read_where(location, table, pool)
    for burst, counts in (("burst", "requests"), ("burst_tokens", "tokens")):
        rates = [word for word in _AMOUNTS if LIMIT_KINDS[word].counts == counts]
        if burst in given and not limits and given.isdisjoint(rates):
            location.at(burst).refuse(f"needs {' or '.join(rates)}: a bucket fills at a rate")
    return Capacity(
        read_label(location, table.name, "capacity", index),
        limits,
        where,
        read_span(location, table),
        1.0 if table.factor is None else table.factor,
        {word: getattr(table, word) for word in _AMOUNTS if word in given},
        table.burst,
        table.burst_tokens,
    )


Kind = Literal["error", "hang", "drop", "slow", "malformed", "finish"]
STATUS = Bounds(at_least=300, at_most=599)
COUNT = Bounds(at_least=0, at_most=10**12)
SOME = Bounds(at_least=1, at_most=10**12)
SHARE = Bounds(above=0, at_most=1)
SECONDS = Bounds(at_least=0, at_most=3_600)
SLOWER = Bounds(above=0, at_most=1_000)
_KINDS: tuple[Kind, ...] = get_args(Kind)
_ATS: tuple[At, ...] = get_args(At)
_FORMS: tuple[MalformedForm, ...] = get_args(MalformedForm)
_REASONS: tuple[FinishReason, ...] = get_args(FinishReason)
_KINDS_OF: dict[str, tuple[Kind, ...]] = {
    "error": ("error",),
    "status": ("error",),
    "message": ("error",),
    "body": ("error", "malformed"),
    "headers": ("error",),
    "after_s": ("error", "drop"),
    "at": ("hang", "drop"),
    "extra_s": ("slow",),
    "factor": ("slow",),
    "form": ("malformed",),
    "finish_reason": ("finish",),
}


def read_fault(location: Location, table: FaultTable, index: int, pool: Pool) -> Fault:
    """The fault of an entry.

    Raises:
        ConfigError: A field is missing, of another kind, out of its bounds, or contradicts another.
    """
    kind = check_word(location.at("kind"), table.kind, _KINDS)
    for field, kinds in _KINDS_OF.items():
        if getattr(table, field) is not None and kind not in kinds:
            meant = " or ".join(f'"{one}"' for one in kinds)
            location.at(field).refuse(f'is for kind = {meant} (got kind = "{kind}")')
    return Fault(
        read_label(location, table.name, kind, index),
        read_where(location, table, pool),
        _when(location, table),
        _effect(location, table, kind),
    )


def _when(location: Location, table: FaultTable) -> When:
    return When(
        read_span(location, table),
        COUNT.check(location.at("after_requests"), table.after_requests or 0),
        None
        if table.for_requests is None
        else SOME.check(location.at("for_requests"), table.for_requests),
        COUNT.check(location.at("after_tokens"), table.after_tokens or 0),
        1.0 if table.share is None else float(SHARE.check(location.at("share"), table.share)),
    )


def _effect(location: Location, table: FaultTable, kind: Kind) -> Effect:
    if kind == "error":
        return _error(location, table)
    if kind == "hang":
        return Hang(_at(location, table))
    if kind == "drop":
        after_s = table.after_s
        if after_s is not None:
            after_s = float(SECONDS.check(location.at("after_s"), after_s))
        return Drop(_at(location, table), after_s)
    if kind == "slow":
        if table.factor is None and table.extra_s is None:
            location.refuse('needs factor or extra_s: kind = "slow" says how slow')
        factor = 1 if table.factor is None else SLOWER.check(location.at("factor"), table.factor)
        extra_s = (
            0 if table.extra_s is None else SECONDS.check(location.at("extra_s"), table.extra_s)
        )
        return Slow(float(factor), float(extra_s))
    if kind == "malformed":
        if table.form is not None and table.body is not None:
            location.at("form").refuse(
                "cannot be given together with body, which is the whole answer"
            )
        form = table.form if table.form is not None else "truncated"
        return Malformed(check_word(location.at("form"), form, _FORMS), table.body)
    reason = table.finish_reason if table.finish_reason is not None else "content_filter"
    return Finish(check_word(location.at("finish_reason"), reason, _REASONS))


def _error(location: Location, table: FaultTable) -> Error:
    if table.error is None and table.status is None:
        location.refuse('needs error or status: kind = "error" says which answer')
    if table.body is not None and table.message is not None:
        location.at("message").refuse(
            "cannot be given together with body, which is the whole answer"
        )
    status = table.status
    if status is not None:
        STATUS.check(location.at("status"), status)
    message = table.message
    if table.error is not None:
        known = KNOWN_ERRORS.get(table.error)
        if known is None:
            refuse_unknown(location.at("error"), table.error, KNOWN_ERRORS, "known error")
    else:
        assert status is not None
        known = ApiError.of_status(status, f"Answered with {status} as the faults file asks for")
    answer = ApiError(
        known.status if status is None else status,
        known.message if message is None else message,
        known.code,
        known.param,
        known.retry_after_s,
        known.kind,
    )
    headers = tuple((name.decode(), value.decode()) for name, value in answer.headers())
    if table.headers is not None:
        headers = check_headers(location.at("headers"), table.headers)
    after_s = 0 if table.after_s is None else SECONDS.check(location.at("after_s"), table.after_s)
    body = answer.body().decode() if table.body is None else table.body
    return Error(answer.status, body, headers, float(after_s))


def _at(location: Location, table: FaultTable) -> At:
    return "start" if table.at is None else check_word(location.at("at"), table.at, _ATS)


def read_rate_headers(location: Location, table: RateHeadersTable, pool: Pool) -> RateHeaders:
    """Who is told what is left of the limits.

    Raises:
        ConfigError: No such lane, or a header that cannot be sent.
    """
    if table.name is not None:
        location.at("name").refuse("is of no use: headers are not marked in the log")
    values = check_headers(location.at("values"), table.values or {})
    return RateHeaders(read_where(location, table, pool), read_span(location, table), values)


_SINCE: tuple[Since, ...] = ("first-request", "start")


def load_faults(path: Path, pool: Pool) -> FaultScript:
    """The script of a file, checked against the pool that is going to be served.

    Raises:
        ConfigError: The file cannot be read, or holds what is not allowed; one message that names
            file, field, what was found and what is allowed.
    """
    location = Location(str(path))
    content = read_pool_file(path, location)
    file = decode_as(FaultsFile, parse_toml(content.text, location), location)
    if not (file.fault or file.capacity or file.rate_headers):
        location.refuse("says nothing: it needs [[fault]], [[capacity]] or [[rate_headers]]")
    since = _SINCE[0]
    if file.since is not None:
        since = check_word(location.at("since"), file.since, _SINCE)
    seed = 0 if file.seed is None else SEED.check(location.at("seed"), file.seed)
    faults = tuple(
        read_fault(location.at("fault").item(n), table, n, pool)
        for n, table in enumerate(file.fault)
    )
    capacities = tuple(
        read_capacity(location.at("capacity").item(n), table, n, pool)
        for n, table in enumerate(file.capacity)
    )
    headers = tuple(
        read_rate_headers(location.at("rate_headers").item(n), table, pool)
        for n, table in enumerate(file.rate_headers)
    )
    return FaultScript(str(path), content.digest, since, seed, faults, capacities, headers)
