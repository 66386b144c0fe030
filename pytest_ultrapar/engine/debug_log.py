"""One worker's debug log: a line per lease, request, retry and episode, written as it happens.

Prompts, replies and messages of errors are not in it, so it can be shown to others; whoever needs
them finds the case in the run's tables. Words that a suite or a provider could choose (names of
exceptions, models) pass through the redactor and lose what could steer a terminal.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NoReturn

from pytest_ultrapar.errors import ResultsError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_ultrapar.broker.protocol import Lease, LeaseOutcome, LeaseRequest
    from pytest_ultrapar.clock import Clock
    from pytest_ultrapar.engine.retry import Verdict
    from pytest_ultrapar.pool.model import LaneId
    from pytest_ultrapar.records import Attempt, EpisodeEnded

_PLAIN = re.compile(r"[!#-<>-\[\]-~]+")
"""Visible ASCII without `"`, `=` and the backslash: stands in a line without quotes."""

Value = str | int | float | None


def file_name(worker: str) -> str:
    """The log's name in the run's directory."""
    return f"debug-{worker}.log"


class LineFormatter(logging.Formatter):
    """UTC time, monotonic seconds, event, and `name=value` for each value not None.

    A record's message is what happened, in two words, its `values` are what is to be known of it
    (names ending in `_s` are seconds), and its `now_s` is the clock of `attempts.parquet`.
    """

    def __init__(self, redact: Callable[[str], str]) -> None:
        super().__init__()
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        """One line without its end; secrets are taken out."""
        facts = vars(record)
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        said = [f"{name}={_shown(value)}" for name, value in facts["values"] if value is not None]
        text = f"{at[:23]}Z {facts['now_s']:.6f} {record.msg:<15} {' '.join(said)}"
        return self._redact(text.rstrip())


class _File(logging.FileHandler):
    """Flushed after each record, so that what was told before a crash is there after it."""

    def handleError(self, record: logging.LogRecord) -> NoReturn:  # noqa: N802 - logging's name
        """Let `DebugLog` know; called by `emit` while it handles the exception."""
        del record
        error = sys.exception()
        assert error is not None
        raise error


class DebugLog:
    """Writes what it is told; a `Watch`, used on the engine's thread."""

    def __init__(
        self, directory: Path, worker: str, clock: Clock, redact: Callable[[str], str]
    ) -> None:
        """Open the log, at its end where an interrupted run left one.

        Args:
            directory: The run's.
            worker: `gw0`, ...; without xdist `main`.
            clock: Of the engine.
            redact: Takes secrets out of a line.

        Raises:
            ResultsError: It cannot be written.
        """
        path = directory / file_name(worker)
        try:
            path.touch(mode=0o600)
            handler = _File(path, encoding="ascii", errors="backslashreplace")
        except OSError as error:
            msg = f"cannot write {path}: {error.strerror}"
            raise ResultsError(msg) from error
        handler.setFormatter(LineFormatter(redact))
        self._handler: logging.Handler | None = handler
        self._clock = clock
        self._write("log begins", worker=worker)

    def close(self) -> None:
        """End the log. Idempotent."""
        handler, self._handler = self._handler, None
        if handler is not None:
            with contextlib.suppress(OSError):
                handler.close()

    def lease_asked(self, request: LeaseRequest) -> None:
        """See `Watch`."""
        self._write(
            "lease asked",
            request=request.request_id,
            case=request.case_id,
            model=request.model,
            group=request.group or None,
            opens="yes" if request.opens else "no",
            lane=request.lane,
        )

    def lease_granted(self, request: LeaseRequest, lease: Lease, waited_s: float) -> None:
        """See `Watch`."""
        self._write(
            "lease granted",
            request=request.request_id,
            case=request.case_id,
            lease=lease.lease_id,
            lane=lease.lane,
            waited_s=waited_s,
            seat_wait_s=lease.seat_wait_s,
            rate_wait_s=lease.rate_wait_s,
            in_flight=lease.in_flight,
        )

    def lease_denied(self, request: LeaseRequest, reason: str, waited_s: float) -> None:
        """See `Watch`."""
        self._write(
            "lease denied",
            request=request.request_id,
            case=request.case_id,
            reason=reason,
            waited_s=waited_s,
        )

    def lease_returned(
        self, lease: Lease, outcome: LeaseOutcome, retry_after_s: float | None, held_s: float
    ) -> None:
        """See `Watch`."""
        self._write(
            "lease returned",
            lease=lease.lease_id,
            lane=lease.lane,
            outcome=outcome,
            retry_after_s=retry_after_s,
            held_s=held_s,
        )

    def sent(self, case_id: str, turn: int, attempt: int, lease: Lease) -> None:
        """See `Watch`."""
        self._write(
            "request sent",
            case=case_id,
            turn=turn,
            attempt=attempt,
            lease=lease.lease_id,
            lane=lease.lane,
        )

    def answered(self, case_id: str, attempt: Attempt, lane: LaneId) -> None:
        """See `Watch`."""
        first_s, token_s = attempt.t_first_byte_s, attempt.t_first_token_s
        self._write(
            "request ended",
            case=case_id,
            turn=attempt.turn,
            attempt=attempt.attempt,
            lane=lane,
            outcome=attempt.outcome,
            status=attempt.status,
            took_s=attempt.t_end_s - attempt.t_send_s,
            first_byte_s=None if first_s is None else first_s - attempt.t_send_s,
            first_token_s=None if token_s is None else token_s - attempt.t_send_s,
            tokens_in=attempt.tokens_in,
            tokens_out=attempt.tokens_out,
        )

    def decided(
        self, case_id: str, turn: int, outcome: LeaseOutcome, verdict: Verdict, backoff_s: float
    ) -> None:
        """See `Watch`."""
        self._write(
            "retry decided",
            case=case_id,
            turn=turn,
            after=outcome,
            verdict=verdict,
            backoff_s=backoff_s,
        )

    def episode_began(self, case_id: str, model: str, first: Lease) -> None:
        """See `Watch`."""
        self._write("episode began", case=case_id, model=model, lane=first.lane)

    def episode_ended(self, ended: EpisodeEnded) -> None:
        """See `Watch`."""
        self._write(
            "episode ended",
            case=ended.case_id,
            ending=ended.ending,
            kind=ended.kind,
            turns=ended.n_turns,
            attempts=len(ended.attempts),
            duration_s=ended.duration_s,
            seat_wait_s=sum((each.seat_wait_s for each in ended.attempts), 0.0),
            backoff_s=ended.backoff_s,
        )

    def _write(self, event: str, **values: Value) -> None:
        if self._handler is None:
            return
        facts = {"msg": event, "values": values.items(), "now_s": self._clock.now_s()}
        # To our handler alone and by no logger: pytest's handlers would show records of the root to
        # whoever reads a report, and a suite's `logging.disable` would end the log.
        try:
            self._handler.handle(logging.makeLogRecord(facts))
        except OSError:
            # A full disk ends the log, not the run.
            self.close()


def _shown(value: str | float) -> str:
    if isinstance(value, float):
        return f"{value:.6f}"
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)
