"""The tables of a run: their columns, and the records that fill them.

A column is a field of a record, with its name and type. The fields come from `Attempt` for
`attempts`, from `TurnMessage` for `transcripts`, from `LimitChange` for `limits`, and from
`LanePause` for `pauses`. Each table also has a few columns that name the run and case of a row.
A row of `results` combines a case with its grade and its episode. A field added to `Attempt` adds a
column. The order of existing columns is part of the format and does not change.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import msgspec

from pytest_ultrapar.broker.adaptive.observation import LimitChange, LimitRecord
from pytest_ultrapar.broker.health import LanePause, PauseRecord
from pytest_ultrapar.pool.money import amount_of
from pytest_ultrapar.records import (
    ASYNC_TEST,
    LABEL,
    NO_COLUMN,
    Attempt,
    Case,
    EpisodeEnded,
    Grade,
    Long,
    Microseconds,
    NoColumn,
    Outcome,
    Replayed,
    TurnMessage,
)
from pytest_ultrapar.store.manifest import Manifest
from pytest_ultrapar.store.timing import NO_SERVICE, total_tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_ultrapar.records import Scalar


Kind = Literal["string", "int32", "int64", "double", "bool", "timestamp"]
"""`timestamp` is microseconds since the epoch, UTC."""
SIMULATED_KEY = "ultrapar.simulated"
"""The key, in a table's metadata, that tells whether the run was simulated (`true` or `false`)."""
TABLES = ("results", "attempts", "transcripts", "limits", "pauses")
_INT64_BOUND = 2**63
_KINDS: dict[object, Kind] = {
    str: "string",
    Outcome: "string",
    Replayed: "string",
    int: "int32",
    Long: "int64",
    float: "double",
    bool: "bool",
    Microseconds: "timestamp",
}


class Column(NamedTuple):
    """One column.

    Attributes:
        name: Its name.
        kind: The kind of its values.
        nullable: Whether a value may be missing.
        record: The record that has it as a field; None for a column that a suite names.
    """

    name: str
    kind: Kind
    nullable: bool = False
    record: type[msgspec.Struct] | None = None

    @property
    def field(self) -> str:
        """Name of the record's field."""
        return f"{self.name}_us" if self.kind == "timestamp" else self.name


def columns_of(record: type[msgspec.Struct], *names: str) -> tuple[Column, ...]:
    """The columns for the fields of a record.

    Args:
        record: A record whose fields are text, numbers, `Long` or `Microseconds`; each may also
            allow None.
        names: The wanted fields, in the order of the columns; by default all fields that are not
            marked `NoColumn`.
    """
    hints = {field.name: field.type for field in msgspec.structs.fields(record)}
    found = []
    for name in names or hints:
        hint = hints[name]
        if NO_COLUMN in getattr(hint, "__metadata__", ()):
            if not names:
                continue
            hint = hint.__origin__
        nullable = type(None) in get_args(hint)
        if nullable:
            (hint,) = set(get_args(hint)) - {type(None)}
        kind = _KINDS[hint]
        column = name.removesuffix("_us") if kind == "timestamp" else name
        found.append(Column(column, kind, nullable, record))
    return tuple(found)


def _with(columns: Sequence[Column], *more: Column, after: str) -> tuple[Column, ...]:
    """Insert columns of another record after the column `after`, as earlier versions did."""
    at = [column.name for column in columns].index(after) + 1
    return (*columns[:at], *more, *columns[at:])


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a graded episode in `results`.

    Requests and tokens cover only the case's own model; times cover the whole episode, including
    roles. Except for the timestamps, the defaults are for a case without an episode. All values are
    None if the record of an episode is damaged.

    Attributes:
        n_attempts: How many requests were sent to the case's own model, including failed requests,
            but excluding replayed requests. For a resumed episode, the earlier requests whose
            answers it used are included.
        n_turns: How many requests the episode made to the case's own model: calls of `llm.chat`,
            and requests from SDKs. Further attempts at a request are not counted.
        tokens_in: The number of tokens in all prompts; null if the provider does not report them.
        tokens_out: The number of tokens in all answers; null if the provider does not report them.
        queue_wait_s: The total time spent waiting for seats, including the time before
            `started_at`.
        rate_wait_s: The total time spent waiting because of rate limits and pauses, including the
            time before `started_at`.
        backoff_s: The total time spent waiting before failed requests were tried again.
        service_s: `duration_s` minus the time for waiting, back-off and refused requests.
        duration_s: The time from the episode's first lease to its end. For a resumed episode, it is
            measured from the moment at which the episode continued. The latencies in the summary
            are these times.
        started_at_us: When the episode got its first lease, UTC; for a resumed episode, when its
            first try got its first lease. If there was no lease: when the case was given up or
            skipped.
        ended_at_us: When the episode ended, UTC.
        provider: The provider of the last request to the case's own model; may be empty.
        instance: The instance of the last request to the case's own model.
        key: The name of the key of the last request to the case's own model.
        first_send_s: When the episode sent its first request, in monotonic seconds of the host.
            Like `end_s`, None if it sent no request.
        sent_in: The prompt tokens of the requests that `n_attempts` counts; `tokens_in` includes
            them.
        value: The first 2,000 characters of the value that the episode returned, as JSON; null if
            there is no value, as for an async test.
    """

    n_attempts: int | None = 0
    n_turns: int | None = 0
    tokens_in: Long | None = None
    tokens_out: Long | None = None
    queue_wait_s: float | None = 0.0
    rate_wait_s: float | None = 0.0
    backoff_s: float | None = 0.0
    service_s: float | None = 0.0
    duration_s: float | None = 0.0
    started_at_us: Microseconds | None
    ended_at_us: Microseconds | None
    provider: str | None = ""
    instance: str | None = ""
    key: str | None = ""
    first_send_s: NoColumn[float | None] = None
    end_s: NoColumn[float | None] = None
    sent_in: NoColumn[Long | None] = None
    sent_out: NoColumn[Long | None] = None
    value: NoColumn[str | None] = None


class Charged(msgspec.Struct, frozen=True):
    """The cost of requests in `results` and `attempts`.

    Attributes:
        cost: The cost in the `currency` of `manifest.json`. It excludes requests that got no answer
            and, in `results`, requests to roles. Null if a price or the number of tokens in an
            answer is unknown.
        units: The same cost in units (`pool.money`).
    """

    cost: float | None = None
    units: NoColumn[Long | None] = None


class Placed(msgspec.Struct, frozen=True):
    """The host column of `results`, `attempts`, `limits` and `pauses`.

    Attributes:
        host: The name of the host, if the run has several hosts or shards; otherwise null.
    """

    host: str | None = None


def placed(manifest: Manifest, record: EpisodeEnded | Grade | LimitRecord | PauseRecord) -> Placed:
    """The host, from the record if the run was merged, otherwise from the manifest."""
    return Placed(record.host or manifest.host)


_NULL: dict[str, Any] = dict.fromkeys(Spent.__struct_fields__)
UNREADABLE = Spent(**_NULL)


def spent_by(episode: EpisodeEnded) -> Spent:
    """The figures of an episode."""
    waited_s = refused_s = queue_wait_s = rate_wait_s = 0.0
    for one in episode.attempts:
        # The wait for the first lease is not part of the duration.
        waited_s += max(0.0, one.t_lease_s - one.t_ready_s)
        queue_wait_s += one.seat_wait_s
        rate_wait_s += one.rate_wait_s
        if one.outcome in NO_SERVICE:
            refused_s += one.t_end_s - one.t_send_s
    own, sent = episode.own_attempts, episode.own_sent
    n_in_roles = 0
    if len(own) < len(episode.attempts):
        n_in_roles = len({one.turn for one in episode.attempts if one.role})
    tokens = _tokens(own)
    sent_in, sent_out = tokens if len(sent) == len(own) else _tokens(sent)
    first_send_s, end_s = _span(episode)
    last = own[-1] if own else None
    return Spent(
        n_attempts=len(sent),
        n_turns=episode.n_turns - n_in_roles,
        tokens_in=tokens[0],
        tokens_out=tokens[1],
        queue_wait_s=queue_wait_s,
        rate_wait_s=rate_wait_s,
        backoff_s=episode.backoff_s,
        service_s=max(0.0, episode.duration_s - waited_s - episode.backoff_s - refused_s),
        duration_s=episode.duration_s,
        started_at_us=episode.began_us or episode.started_at_us,
        ended_at_us=episode.ended_at_us,
        provider=last.provider if last else "",
        instance=last.instance if last else "",
        key=last.key if last else "",
        first_send_s=first_send_s,
        end_s=end_s,
        sent_in=sent_in,
        sent_out=sent_out,
        value=_shown(episode.value),
    )


LONGEST_VALUE = 2_000
_MOST_BYTES = 4 * LONGEST_VALUE
_OF_TEST = f'{{"type":"{ASYNC_TEST}"'.encode()


def _shown(value: msgspec.Raw) -> str | None:
    said = bytes(memoryview(value)[:_MOST_BYTES])
    if not said or said.startswith(_OF_TEST):
        return None
    return said.decode(errors="ignore")[:LONGEST_VALUE]


def _tokens(attempts: Sequence[Attempt]) -> tuple[int | None, int | None]:
    return (
        total_tokens([one.tokens_in for one in attempts]),
        total_tokens([one.tokens_out for one in attempts]),
    )


def _span(episode: EpisodeEnded) -> tuple[float | None, float | None]:
    attempts = episode.attempts
    if not attempts:
        return None, None
    end_s = max([one.t_end_s for one in attempts])
    first = attempts[0]
    # The duration begins with the first lease and includes the episode's work after the last
    # answer. An episode that prepared for a long time returned that lease and got another one for
    # its first request.
    if first.t_lease_s <= first.t_ready_s:
        end_s = max(end_s, first.t_lease_s + episode.duration_s)
    return min([one.t_send_s for one in attempts]), end_s


def charged(units: int | None) -> Charged:
    """The columns for an amount in units (`pool.money`)."""
    return UNKNOWN if units is None else Charged(amount_of(units), units)


UNKNOWN = Charged()


EPISODE_COLUMNS = columns_of(Spent)
"""The columns of `results` that come from the graded episode."""
KEPT_COLUMNS = (
    *EPISODE_COLUMNS,
    *columns_of(EpisodeEnded, "worker"),
    *columns_of(Charged, "cost", "units"),
    *columns_of(Placed),
    *columns_of(Spent, "first_send_s", "end_s", "sent_in", "sent_out", "value"),
)
"""The columns kept for each episode, in case it turns out to be the graded one."""
ATTEMPTS_COLUMNS = (
    _with(
        (
            *columns_of(Manifest, "run_id"),
            *columns_of(EpisodeEnded, "case_id"),
            *columns_of(Attempt),
        ),
        *columns_of(EpisodeEnded, "worker"),
        *columns_of(Manifest, "mode"),
        after="key",
    )
    + columns_of(Charged)
    + columns_of(Placed)
    + tuple(one._replace(nullable=True) for one in columns_of(Case, "model", "suite"))
)
"""The columns of `attempts`, one row per request. All `t_*_s` are on the monotonic clock of the
host; in a merged run, on the clock of its first host."""
TRANSCRIPTS_COLUMNS = (
    *columns_of(Manifest, "run_id"),
    *columns_of(EpisodeEnded, "case_id"),
    *columns_of(TurnMessage),
)
"""The columns of `transcripts`, one row per message of the graded episode."""
LIMITS_COLUMNS = _with(
    (*columns_of(Manifest, "run_id"), *columns_of(LimitChange)),
    *columns_of(LimitRecord, "at_us"),
    after="t_s",
) + columns_of(Placed)
"""The columns of `limits`, one row per change of an estimated limit; `t_s` is on the clock of
`attempts`."""
PAUSES_COLUMNS = _with(
    (*columns_of(Manifest, "run_id"), *columns_of(LanePause)),
    *columns_of(PauseRecord, "at_us"),
    after="t_s",
) + columns_of(Placed)
"""The columns of `pauses`, one row per pause of a lane; times are on the clock of `attempts`."""
_RESULTS_BEFORE = (
    *columns_of(Manifest, "run_id"),
    *columns_of(Case, "case_id", "nodeid", "suite", "model", "repeat"),
    *columns_of(Manifest, "mode", "rate_mode"),
    *columns_of(Grade, "outcome", "test", "kind"),
)
_RESULTS_AFTER = (
    *EPISODE_COLUMNS,
    *columns_of(Grade, "worker"),
    *columns_of(Case, "seed"),
    *columns_of(Grade, "error"),
    *columns_of(Charged),
    *columns_of(Placed),
    *columns_of(Grade, "reason"),
    *(Column(name, "string", record=Case) for name in ("file", "test_name", "param_id", "marks")),
    *columns_of(Spent, "value"),
)


def results_columns(params: Iterable[Column], said: Iterable[Column]) -> tuple[Column, ...]:
    """The columns of `results`, one row per case.

    Args:
        params: The result of `parameter_columns`.
        said: The result of `grade_columns`.
    """
    return (*_RESULTS_BEFORE, *params, *said, *_RESULTS_AFTER)


COLUMNS = {
    "results": results_columns((), ()),
    "attempts": ATTEMPTS_COLUMNS,
    "transcripts": TRANSCRIPTS_COLUMNS,
    "limits": LIMITS_COLUMNS,
    "pauses": PAUSES_COLUMNS,
}
"""The columns of each table, excluding the columns that a suite names."""


def parameter_columns(cases: Iterable[Case]) -> tuple[Column, ...]:
    """A column for each `meta.<name>` and `param.<name>` of the suite, sorted by name.

    A column's kind depends on all its values: `bool`, `int64`, `double` (also for a mixture
    of integers and floats) or `string`.
    """
    values: dict[str, set[Kind]] = defaultdict(set)
    for case in cases:
        for name, value in case_values(case).items():
            kinds = values[name]
            if value is not None:
                kinds.add(_kind_of(value))
    return tuple(Column(name, _common_kind(values[name]), nullable=True) for name in sorted(values))


def case_values(case: Case) -> dict[str, Scalar]:
    """The values of a case in the columns of `parameter_columns`, by the names of the columns."""
    return {f"param.{name}": value for name, value in case.params.items()} | case.said


def grade_columns(names: Iterable[str]) -> tuple[Column, ...]:
    """A column for each name that `grade_values` returns for any grade, sorted by name."""
    kinds: dict[str, Kind] = {"label": "string", "score": "double"}
    return tuple(
        Column(name, kinds[name.partition(".")[0]], nullable=True) for name in sorted({*names})
    )


def grade_values(grade: Grade) -> dict[str, str | float]:
    """The labels and scores in a grade, by their columns: `label.<name>` and `score.<name>`."""
    labels: dict[str, str | float] = {f"{LABEL}{name}": text for name, text in grade.labels.items()}
    return labels | {f"score.{name}": value for name, value in grade.scores.items()}


def fit(value: Scalar, kind: Kind) -> Scalar:
    """A parameter's value in the type of its column; in a `string` column it becomes text."""
    if value is None or kind in {"bool", "int64"}:
        return value
    if kind == "double":
        return float(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


_PLAIN: dict[type, Kind] = {bool: "bool", int: "int64", float: "double"}


def _kind_of(value: Scalar) -> Kind:
    if type(value) is int and not -_INT64_BOUND <= value < _INT64_BOUND:
        return "string"
    return _PLAIN.get(type(value), "string")


def _common_kind(kinds: set[Kind]) -> Kind:
    if len(kinds) == 1:
        return next(iter(kinds))
    return "double" if kinds == {"int64", "double"} else "string"
