"""The tables of a run: their columns, their rows, and how they are put in place together."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from pytest_ultrapar.store.timing import service_s, total_tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from pytest_ultrapar.records import Case, EpisodeEnded, Grade, Scalar


Kind = Literal["string", "int32", "int64", "double", "bool", "timestamp"]
"""`timestamp` is microseconds since the epoch, UTC."""
SIMULATED_KEY = "ultrapar.simulated"
"""Key of the tables' own metadata that says `true` or `false`."""
TABLES = ("results", "attempts", "transcripts", "limits")
_INT64_BOUND = 2**63


class Column(NamedTuple):
    """One column: its name, the kind of its values, and whether a value may be missing."""

    name: str
    kind: Kind
    nullable: bool = False


EPISODE_COLUMNS = (
    Column("n_attempts", "int32", nullable=True),
    Column("n_turns", "int32", nullable=True),
    Column("tokens_in", "int64", nullable=True),
    Column("tokens_out", "int64", nullable=True),
    Column("queue_wait_s", "double", nullable=True),
    Column("rate_wait_s", "double", nullable=True),
    Column("backoff_s", "double", nullable=True),
    Column("service_s", "double", nullable=True),
    Column("duration_s", "double", nullable=True),
    Column("started_at", "timestamp", nullable=True),
    Column("ended_at", "timestamp", nullable=True),
    Column("provider", "string", nullable=True),
    Column("instance", "string", nullable=True),
    Column("key", "string", nullable=True),
)
"""Of `results`: what the graded episode says; null where its record cannot be read."""


def results_columns(params: Iterable[Column], scores: Iterable[Column]) -> tuple[Column, ...]:
    """The columns of `results`, a row per case.

    Args:
        params: What `parameter_columns` found.
        scores: What `score_columns` found.
    """
    return (
        Column("run_id", "string"),
        Column("case_id", "string"),
        Column("nodeid", "string"),
        Column("suite", "string"),
        Column("model", "string"),
        Column("repeat", "int32"),
        Column("mode", "string"),
        Column("rate_mode", "string"),
        Column("outcome", "string"),
        Column("test", "string"),
        Column("kind", "string", nullable=True),
        *params,
        *scores,
        *EPISODE_COLUMNS,
        Column("worker", "string"),
        Column("seed", "int64"),
        Column("error", "string", nullable=True),
    )


ATTEMPTS_COLUMNS = (
    Column("run_id", "string"),
    Column("case_id", "string"),
    Column("turn", "int32"),
    Column("attempt", "int32"),
    Column("provider", "string"),
    Column("instance", "string"),
    Column("key", "string"),
    Column("worker", "string"),
    Column("mode", "string"),
    Column("t_ready_s", "double"),
    Column("t_lease_s", "double"),
    Column("t_send_s", "double"),
    Column("t_first_byte_s", "double", nullable=True),
    Column("t_first_token_s", "double", nullable=True),
    Column("t_end_s", "double"),
    Column("status", "int32", nullable=True),
    Column("outcome", "string"),
    Column("retry_after_s", "double", nullable=True),
    Column("tokens_in", "int64", nullable=True),
    Column("tokens_out", "int64", nullable=True),
    Column("in_flight_at_send", "int32"),
    Column("maybe_billed", "bool"),
)
"""Of `attempts`, a row per request. All `t_*_s` are on the monotonic clock of the host."""
TRANSCRIPTS_COLUMNS = (
    Column("run_id", "string"),
    Column("case_id", "string"),
    Column("turn", "int32"),
    Column("role", "string"),
    Column("content", "string"),
    Column("tool_calls", "string", nullable=True),
)
"""Of `transcripts`, a row per message of the graded episode; `tool_calls` is JSON."""
LIMITS_COLUMNS = (
    Column("run_id", "string"),
    Column("limit", "string"),
    Column("t_s", "double"),
    Column("at", "timestamp"),
    Column("workers", "int32"),
    Column("qps", "double", nullable=True),
    Column("in_flight", "int32"),
    Column("reason", "string"),
)
"""Of `limits`, a row per change of a limit that was estimated; `t_s` is on the clock of
`attempts`."""


def parameter_columns(cases: Iterable[Case]) -> tuple[Column, ...]:
    """A `param.<name>` column for each parameter of the suite, sorted by name.

    All its values decide its kind: `bool`, `int64`, `double` (also of both numbers), else `string`.
    """
    values: dict[str, set[Kind]] = defaultdict(set)
    for case in cases:
        for name, value in case.params.items():
            kinds = values[name]
            kind = _kind_of(value)
            if kind is not None:
                kinds.add(kind)
    return tuple(
        Column(f"param.{name}", _common_kind(values[name]), nullable=True)
        for name in sorted(values)
    )


def score_columns(grades: Iterable[Grade]) -> tuple[Column, ...]:
    """A `score.<name>` column of doubles for each score of any case, sorted by name."""
    names = {name for grade in grades for name in grade.scores}
    return tuple(Column(f"score.{name}", "double", nullable=True) for name in sorted(names))


def fit(value: Scalar, kind: Kind) -> Scalar:
    """A parameter's value as its column holds it; in a mixed column it becomes text."""
    if value is None or kind in {"bool", "int64"}:
        return value
    if kind == "double":
        return float(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _kind_of(value: Scalar) -> Kind | None:
    match value:
        case None:
            return None
        case bool():
            return "bool"
        case int():
            return "int64" if -_INT64_BOUND <= value < _INT64_BOUND else "string"
        case float():
            return "double"
        case _:
            return "string"


def _common_kind(kinds: set[Kind]) -> Kind:
    if len(kinds) == 1:
        return next(iter(kinds))
    return "double" if kinds == {"int64", "double"} else "string"


Row = tuple[object, ...]
"""Values in the order of the table's columns."""


class RunWords(NamedTuple):
    """What every row of a run has in common."""

    run_id: str
    mode: str
    rate_mode: str


def result_row(
    run: RunWords,
    case: Case,
    grade: Grade,
    episode: EpisodeEnded | None,
    *,
    had_episode: bool,
    params: Sequence[Column],
    scores: Sequence[Column],
) -> Row:
    """The row of `results` for one graded case.

    A case that had no episode (skipped by a mark) has zero times, both of its timestamps are those
    of its grade, and the names of its lane are empty. All of that is null where there was an
    episode and its record cannot be read any more.
    """
    if episode is not None:
        measured = _measured(episode)
    elif had_episode:
        measured = (None,) * len(EPISODE_COLUMNS)
    else:
        none_at_us = grade.at_us
        measured = (0, 0, None, None, 0.0, 0.0, 0.0, 0.0, 0.0, none_at_us, none_at_us, "", "", "")
    return (
        run.run_id,
        case.case_id,
        case.nodeid,
        case.suite,
        case.model,
        case.repeat,
        run.mode,
        run.rate_mode,
        grade.outcome,
        grade.test,
        grade.kind,
        *(fit(case.params.get(each.name.partition(".")[2]), each.kind) for each in params),
        *(grade.scores.get(each.name.partition(".")[2]) for each in scores),
        *measured,
        episode.worker if episode is not None else grade.worker,
        case.seed,
        grade.error,
    )


def _measured(episode: EpisodeEnded) -> Row:
    """The values of `EPISODE_COLUMNS`."""
    attempts = episode.attempts
    lane = attempts[-1] if attempts else None
    return (
        len(attempts),
        episode.n_turns,
        total_tokens(attempt.tokens_in for attempt in attempts),
        total_tokens(attempt.tokens_out for attempt in attempts),
        episode.queue_wait_s,
        sum(attempt.rate_wait_s for attempt in attempts),
        episode.backoff_s,
        service_s(episode),
        episode.duration_s,
        episode.started_at_us,
        episode.ended_at_us,
        lane.provider if lane is not None else "",
        lane.instance if lane is not None else "",
        lane.key if lane is not None else "",
    )


def attempt_rows(run: RunWords, episode: EpisodeEnded) -> Iterator[Row]:
    """The rows of `attempts` for one episode, in the order sent."""
    for attempt in episode.attempts:
        yield (
            run.run_id,
            episode.case_id,
            attempt.turn,
            attempt.attempt,
            attempt.provider,
            attempt.instance,
            attempt.key,
            episode.worker,
            run.mode,
            attempt.t_ready_s,
            attempt.t_lease_s,
            attempt.t_send_s,
            attempt.t_first_byte_s,
            attempt.t_first_token_s,
            attempt.t_end_s,
            attempt.status,
            attempt.outcome,
            attempt.retry_after_s,
            attempt.tokens_in,
            attempt.tokens_out,
            attempt.in_flight_at_send,
            attempt.maybe_billed,
        )


def transcript_rows(run: RunWords, episode: EpisodeEnded) -> Iterator[Row]:
    """The rows of `transcripts` for one episode, in the order of the conversation."""
    for message in episode.messages:
        yield (
            run.run_id,
            episode.case_id,
            message.turn,
            message.role,
            message.content,
            message.tool_calls,
        )


class TableWriter(Protocol):
    """One table on its way to disk: rows go to a temporary file, which `publish` puts in place.

    Attributes:
        path: Where the table will stand.
        n_rows: Rows added so far.
    """

    path: Path
    n_rows: int

    def add(self, row: Row) -> None:
        """Take one row; its values are in the order of the table's columns."""
        ...

    def flush(self) -> None:
        """Write the rows taken since the last call as one group, to keep memory bounded."""
        ...

    def finish(self) -> None:
        """Close the temporary file and read it back.

        Raises:
            ResultsError: It does not hold what was written.
        """
        ...

    def publish(self) -> None:
        """Let the finished file take the place of an earlier one; whole or not at all."""
        ...

    def discard(self) -> None:
        """Remove the temporary file; harmless after `publish`."""
        ...
