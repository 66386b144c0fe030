"""What a controller sees of its requests, and what it changed."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.apis.failure_classes import ANSWERED, CLASSES
from pytest_ultrapar.broker.protocol import NO_FEEDBACK, Feedback, LeaseOutcome
from pytest_ultrapar.publish import NOT_THAT_JSON
from pytest_ultrapar.records import Microseconds

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


SATURATED = 0.8
"""Share of a limit that must be in use for a success to say that more may be possible."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One lease that came back.

    Attributes:
        granted_s: When it was granted, monotonic seconds: what was sent before a cut says nothing
            about the limit after it.
        now_s: When it came back.
        in_flight: Seats taken when it came back, its own included.
        at_grant: Seats taken when it was granted, its own included.
        feedback: What the answer said.
    """

    outcome: LeaseOutcome
    granted_s: float
    now_s: float
    in_flight: int
    at_grant: int
    feedback: Feedback = NO_FEEDBACK

    @property
    def is_served(self) -> bool:
        """Whether the provider did its work, whatever it thought of the request."""
        return self.outcome in ANSWERED

    @property
    def is_limited(self) -> bool:
        """Whether the provider said that this was too much."""
        return self._says("cut")

    @property
    def is_troubled(self) -> bool:
        """Whether something else may be overloaded: no reason to cut, and none to grow."""
        return self._says("pause_growth")

    @property
    def is_lone(self) -> bool:
        """Whether nothing else was in flight: nobody has fewer seats than that."""
        return self.at_grant == 1

    def _says(self, word: str) -> bool:
        its_class = CLASSES.get(self.outcome)
        return its_class is not None and its_class.controller == word


FILE_NAME = "limit-history.jsonl"
"""Of the history, in the run's directory."""
WRITE_EVERY_S = 1.0


class LimitChange(msgspec.Struct, frozen=True):
    """One change of a limit.

    Attributes:
        limit: Its name: that of a limit of the pool, such as `lab/key0`, or a lane's.
        t_s: When, on the monotonic clock of the host, as in `attempts`.
        workers: Requests in flight allowed from then on.
        qps: Sends per second allowed from then on; without a value any number.
        in_flight: Requests in flight at that moment.
        reason: Why it changed, in a few words.
    """

    limit: str
    t_s: float
    workers: int
    qps: float | None
    in_flight: int
    reason: str


class LimitRecord(msgspec.Struct, frozen=True):
    """A change as the file holds it, with the time that people read.

    Attributes:
        at_us: When, UTC.
    """

    at_us: Microseconds
    change: LimitChange


class HistoryFile:
    """Appends changes to a file; a crash costs the changes of a second.

    There is no file without a change: most runs in fixed mode have none. One that cannot be written
    (any more) is let go: the history is worth no run.
    """

    def __init__(self, path: Path) -> None:
        """Make or continue the file with the first change."""
        self._path: Path | None = path
        self._fd: int | None = None
        self._epoch_s = time.time() - time.monotonic()

    def append(self, changes: Iterable[LimitChange]) -> None:
        """Add changes, the oldest first."""
        lines = [
            msgspec.json.encode(LimitRecord(round((self._epoch_s + each.t_s) * 1e6), each)) + b"\n"
            for each in changes
        ]
        left = b"".join(lines)
        try:
            if left and self._fd is None and self._path is not None:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                self._fd = os.open(self._path, flags, 0o600)
            while left and self._fd is not None:
                left = left[os.write(self._fd, left) :]
        except OSError as error:
            sys.stderr.write(f"ultrapar: the history of limits ends here: {error.strerror}\n")
            self.close()

    def close(self) -> None:
        """Let the file go. Idempotent."""
        self._path = None
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def read_changes(path: Path) -> list[LimitRecord]:
    """All whole records of a file; none if there is no such file."""
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    records = []
    for line in lines:
        try:
            records.append(msgspec.json.decode(line, type=LimitRecord))
        except NOT_THAT_JSON:
            # Torn by a crash: what was estimated then is not worth a table.
            continue
    return records
