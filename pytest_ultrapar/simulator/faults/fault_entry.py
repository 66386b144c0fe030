"""One `[[fault]]` of the file, checked: which fields its kind takes, and what they may be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from pytest_ultrapar.pool.bounds import Bounds, check_word
from pytest_ultrapar.simulator.api_error import ApiError
from pytest_ultrapar.simulator.faults.header_text import check_headers
from pytest_ultrapar.simulator.faults.known_errors import KNOWN_ERRORS
from pytest_ultrapar.simulator.faults.place_entry import (
    read_label,
    read_span,
    read_where,
    refuse_unknown,
)
from pytest_ultrapar.simulator.faults.script import (
    At,
    Drop,
    Effect,
    Error,
    Fault,
    Finish,
    FinishReason,
    Hang,
    Malformed,
    MalformedForm,
    Slow,
    When,
)

if TYPE_CHECKING:
    from pytest_ultrapar.pool.model import Pool
    from pytest_ultrapar.pool.place import Place
    from pytest_ultrapar.simulator.faults.table import FaultTable

Kind = Literal["error", "hang", "drop", "slow", "malformed", "finish"]

STATUS = Bounds(at_least=300, at_most=599)
COUNT = Bounds(at_least=0, at_most=10**12)
SOME = Bounds(at_least=1, at_most=10**12)
SHARE = Bounds(above=0, at_most=1)
SECONDS = Bounds(at_least=0, at_most=3_600)
FACTOR = Bounds(above=0, at_most=1_000)
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


def read_fault(place: Place, table: FaultTable, index: int, pool: Pool) -> Fault:
    """The fault of an entry.

    Raises:
        ConfigError: A field is missing, of another kind, out of its bounds, or contradicts another.
    """
    kind = check_word(place.at("kind"), table.kind, _KINDS)
    for field, kinds in _KINDS_OF.items():
        if getattr(table, field) is not None and kind not in kinds:
            meant = " or ".join(f'"{one}"' for one in kinds)
            place.at(field).refuse(f'is for kind = {meant} (got kind = "{kind}")')
    return Fault(
        read_label(place, table.name, kind, index),
        read_where(place, table, pool),
        _when(place, table),
        _effect(place, table, kind),
    )


def _when(place: Place, table: FaultTable) -> When:
    return When(
        read_span(place, table),
        COUNT.check(place.at("after_requests"), table.after_requests or 0),
        None
        if table.for_requests is None
        else SOME.check(place.at("for_requests"), table.for_requests),
        COUNT.check(place.at("after_tokens"), table.after_tokens or 0),
        1.0 if table.share is None else float(SHARE.check(place.at("share"), table.share)),
    )


def _effect(place: Place, table: FaultTable, kind: Kind) -> Effect:
    if kind == "error":
        return _error(place, table)
    if kind == "hang":
        return Hang(_at(place, table))
    if kind == "drop":
        after_s = table.after_s
        if after_s is not None:
            after_s = float(SECONDS.check(place.at("after_s"), after_s))
        return Drop(_at(place, table), after_s)
    if kind == "slow":
        if table.factor is None and table.extra_s is None:
            place.refuse('needs factor or extra_s: kind = "slow" says how slow')
        factor = 1 if table.factor is None else FACTOR.check(place.at("factor"), table.factor)
        extra_s = 0 if table.extra_s is None else SECONDS.check(place.at("extra_s"), table.extra_s)
        return Slow(float(factor), float(extra_s))
    if kind == "malformed":
        if table.form is not None and table.body is not None:
            place.at("form").refuse("cannot be given together with body, which is the whole answer")
        form = table.form if table.form is not None else "truncated"
        return Malformed(check_word(place.at("form"), form, _FORMS), table.body)
    reason = table.finish_reason if table.finish_reason is not None else "content_filter"
    return Finish(check_word(place.at("finish_reason"), reason, _REASONS))


def _error(place: Place, table: FaultTable) -> Error:
    if table.error is None and table.status is None:
        place.refuse('needs error or status: kind = "error" says which answer')
    if table.body is not None and table.message is not None:
        place.at("message").refuse("cannot be given together with body, which is the whole answer")
    status = table.status
    if status is not None:
        STATUS.check(place.at("status"), status)
    message = table.message
    if table.error is not None:
        known = KNOWN_ERRORS.get(table.error)
        if known is None:
            refuse_unknown(place.at("error"), table.error, KNOWN_ERRORS, "known error")
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
        headers = check_headers(place.at("headers"), table.headers)
    after_s = 0 if table.after_s is None else SECONDS.check(place.at("after_s"), table.after_s)
    body = answer.body().decode() if table.body is None else table.body
    return Error(answer.status, body, headers, float(after_s))


def _at(place: Place, table: FaultTable) -> At:
    return "start" if table.at is None else check_word(place.at("at"), table.at, _ATS)
