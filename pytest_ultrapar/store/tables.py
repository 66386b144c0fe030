"""The tables of a run: which columns they have, and what in records they are made of.

A column is a field of a record, with its name and type: `attempts` has those of `Attempt`,
`transcripts` those of `TurnMessage`, `limits` those of `LimitChange`, `pauses` those of
`LanePause`, each with a few that say of which run and case a row is. `results` joins what the case,
its grade and its episode say. Whoever adds a field to `Attempt` has added a column; the order of
the columns there are is part of the format and stays.
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
"""Key of the tables' own metadata that says `true` or `false`."""
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
        record: The record that has it as a field; None for what a suite names.
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
    """The columns that the fields of a record are.

    Args:
        record: Its fields are text, numbers, `Long` or `Microseconds`, perhaps or None.
        names: Those wanted, in this order; without any, all that are not marked `NoColumn`.
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
    """Columns of another record where earlier versions have put them."""
    at = [column.name for column in columns].index(after) + 1
    return (*columns[:at], *more, *columns[at:])


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """What an episode took, as `results` has it of the graded one.

    Requests and tokens are those of the case's own model; times are the whole episode's, roles
    included. As it stands here it is that of a case without an episode, but for both timestamps.
    All is None where there was an episode whose record was damaged since.

    Attributes:
        n_attempts: Requests sent to the case's own model, those that failed included and replayed
            ones not. Of one that was cut off also those before whose answers it went on from.
        n_turns: Calls of `llm.chat`, or what SDKs asked in its place.
        tokens_in: Tokens of all prompts; null where the provider does not say.
        tokens_out: Tokens of all answers; null where the provider does not say.
        queue_wait_s: All waiting for seats, also for the first lease, which comes before
            `started_at`.
        rate_wait_s: All waiting for rates and pauses, likewise.
        backoff_s: All waiting before further attempts.
        service_s: What is left of `duration_s` without waiting, back-off and refused requests: what
            the episode would take alone.
        duration_s: From the episode's first lease to its end, of one that was cut off from where it
            went on; the summary's latencies are those of it.
        started_at_us: The first lease, UTC, of one that was cut off that of its first try; without
            one, when the case was given up or skipped.
        ended_at_us: The episode's end, UTC.
        provider: Of the last request to the case's own model; empty where none was sent.
        instance: Of the last request, likewise.
        key: Name of the last request's key, likewise.
        first_send_s: Monotonic seconds of the host; like its end None if it sent nothing.
        sent_in: Of `tokens_in` those of `n_attempts`.
        value: What the episode returned, as JSON, its first 2,000 characters; null where that is
            nothing, as of an async test.
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
    """What requests cost, as `results` and `attempts` have it.

    Attributes:
        cost: What it cost in the manifest's `currency`, without requests that got no answer and, in
            `results`, without those to roles; null where a price is not known or an answer does not
            say how many tokens it took.
        units: The same in units (`pool.money`).
    """

    cost: float | None = None
    units: NoColumn[Long | None] = None


class Placed(msgspec.Struct, frozen=True):
    """Where it ran, as `results`, `attempts`, `limits` and `pauses` have it.

    Attributes:
        host: Name of the host in a run of several hosts or shards; null where it has none, as in a
            run of its own.
    """

    host: str | None = None


def placed(manifest: Manifest, record: EpisodeEnded | Grade | LimitRecord | PauseRecord) -> Placed:
    """In a merged run each record says it, in the run of one host the manifest does."""
    return Placed(record.host or manifest.host)


_NULL: dict[str, Any] = dict.fromkeys(Spent.__struct_fields__)
UNREADABLE = Spent(**_NULL)


def spent_by(episode: EpisodeEnded) -> Spent:
    """What an episode took."""
    waited_s = refused_s = queue_wait_s = rate_wait_s = 0.0
    for one in episode.attempts:
        # The wait for the first lease is no part of the duration.
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
    # Its duration runs from the lease with which it began, and has what it does after its last
    # answer. One that prepared for long gave that lease back.
    if first.t_lease_s <= first.t_ready_s:
        end_s = max(end_s, first.t_lease_s + episode.duration_s)
    return min([one.t_send_s for one in attempts]), end_s


def charged(units: int | None) -> Charged:
    """What so many units (`pool.money`) are in `results` and `attempts`."""
    return UNKNOWN if units is None else Charged(amount_of(units), units)


UNKNOWN = Charged()


EPISODE_COLUMNS = columns_of(Spent)
"""Of `results`: what the graded episode says."""
KEPT_COLUMNS = (
    *EPISODE_COLUMNS,
    *columns_of(EpisodeEnded, "worker"),
    *columns_of(Charged, "cost", "units"),
    *columns_of(Placed),
    *columns_of(Spent, "first_send_s", "end_s", "sent_in", "sent_out", "value"),
)
"""What is kept of an episode, in case that it is the graded one."""
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
"""Of `attempts`, a row per request. All `t_*_s` are on the monotonic clock of the host; of a merged
run on that of its first host."""
TRANSCRIPTS_COLUMNS = (
    *columns_of(Manifest, "run_id"),
    *columns_of(EpisodeEnded, "case_id"),
    *columns_of(TurnMessage),
)
"""Of `transcripts`, a row per message of the graded episode."""
LIMITS_COLUMNS = _with(
    (*columns_of(Manifest, "run_id"), *columns_of(LimitChange)),
    *columns_of(LimitRecord, "at_us"),
    after="t_s",
) + columns_of(Placed)
"""Of `limits`, a row per change of a limit that was estimated; `t_s` is on the clock of
`attempts`."""
PAUSES_COLUMNS = _with(
    (*columns_of(Manifest, "run_id"), *columns_of(LanePause)),
    *columns_of(PauseRecord, "at_us"),
    after="t_s",
) + columns_of(Placed)
"""Of `pauses`, a row per pause of a lane; times are on the clock of `attempts`."""
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
    """The columns of `results`, a row per case.

    Args:
        params: What `parameter_columns` found.
        said: What `grade_columns` has.
    """
    return (*_RESULTS_BEFORE, *params, *said, *_RESULTS_AFTER)


COLUMNS = {
    "results": results_columns((), ()),
    "attempts": ATTEMPTS_COLUMNS,
    "transcripts": TRANSCRIPTS_COLUMNS,
    "limits": LIMITS_COLUMNS,
    "pauses": PAUSES_COLUMNS,
}
"""Of each table, without what a suite names."""


def parameter_columns(cases: Iterable[Case]) -> tuple[Column, ...]:
    """A column for each `meta.<name>` and `param.<name>` of the suite, sorted by name.

    All its values decide its kind: `bool`, `int64`, `double` (also of both numbers), else `string`.
    """
    values: dict[str, set[Kind]] = defaultdict(set)
    for case in cases:
        for name, value in case_values(case).items():
            kinds = values[name]
            if value is not None:
                kinds.add(_kind_of(value))
    return tuple(Column(name, _common_kind(values[name]), nullable=True) for name in sorted(values))


def case_values(case: Case) -> dict[str, Scalar]:
    """What a case has in the columns of `parameter_columns`, by their names."""
    return {f"param.{name}": value for name, value in case.params.items()} | case.said


def grade_columns(names: Iterable[str]) -> tuple[Column, ...]:
    """A column for each name that `grade_values` has of any grade, sorted by name."""
    kinds: dict[str, Kind] = {"label": "string", "score": "double"}
    return tuple(
        Column(name, kinds[name.partition(".")[0]], nullable=True) for name in sorted({*names})
    )


def grade_values(grade: Grade) -> dict[str, str | float]:
    """`label.<name>` and `score.<name>` of a grade."""
    labels: dict[str, str | float] = {f"{LABEL}{name}": text for name, text in grade.labels.items()}
    return labels | {f"score.{name}": value for name, value in grade.scores.items()}


def fit(value: Scalar, kind: Kind) -> Scalar:
    """A parameter's value as its column holds it; in a mixed column it becomes text."""
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
