"""Rows of the tables, made of a case, its grade and its episodes; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pytest_ultrapar.results.schema import EPISODE_COLUMNS, Column, fit
from pytest_ultrapar.results.service import service_s, total_tokens

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_ultrapar.records import Case, EpisodeEnded, Grade

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
