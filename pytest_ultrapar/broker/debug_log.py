"""The debug log: a line per lease, request, retry and episode, as records of a logger.

Prompts, replies and messages of errors are not in it, so it can be shown to others. Whoever tells
asks `is_on` first, so a run without the log pays for that alone.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from pytest_ultrapar.system.clock import boot_s
from pytest_ultrapar.system.files import cannot

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from pathlib import Path

    from pytest_ultrapar.broker.protocol import Lease, LeaseOutcome, LeaseRequest

# Of no tree: pytest shows what loggers of its tree say, and a suite may disable them.
LOG = logging.Logger("pytest_ultrapar.debug")

_PLAIN = re.compile(r"[!#-<>-\[\]-~]+")
"""Visible ASCII without `"`, `=` and the backslash: stands in a line without quotes."""


def is_on() -> bool:
    """Whether this process writes the log."""
    return bool(LOG.handlers)


def tell(event: str, **values: str | float | None) -> None:
    """Write a line.

    Args:
        event: What happened, in two words.
        values: What is to be known of it, without those that are None; names ending in `_s` are
            seconds.
    """
    told = " ".join(f"{name}={_shown(one)}" for name, one in values.items() if one is not None)
    LOG.handle(logging.LogRecord(LOG.name, logging.DEBUG, "", 0, f"{event:<15} {told}", None, None))


def tell_lease(request: LeaseRequest, future: asyncio.Future[Lease]) -> None:
    """Tell of a request for a lease, and when its future is done of what became of it."""
    asked_s = boot_s()
    tell_own = partial(tell, request=request.request_id, case=request.case_id)
    opens, group = "yes" if request.opens else "no", request.group or None
    tell_own("lease asked", model=request.model, group=group, opens=opens, lane=request.lane)

    def over(done: asyncio.Future[Lease]) -> None:
        waited_s = boot_s() - asked_s
        if done.cancelled():
            tell_own("lease denied", reason="withdrawn", waited_s=waited_s)
        elif (error := done.exception()) is not None:
            tell_own("lease denied", reason=type(error).__name__, waited_s=waited_s)
        else:
            lease = done.result()
            tell_own(
                "lease granted",
                lease=lease.lease_id,
                lane=lease.lane,
                waited_s=waited_s,
                seat_wait_s=lease.seat_wait_s,
                rate_wait_s=lease.rate_wait_s,
                in_flight=lease.in_flight,
            )

    # The grant is told before what is done with it: at once, since a lease that is there already
    # is awaited without a pass of the loop, or as the future's first callback.
    if future.done():
        over(future)
    else:
        future.add_done_callback(over)


def tell_return(lease: Lease, outcome: LeaseOutcome, retry_after_s: float | None) -> None:
    """Tell of a lease that goes back."""
    tell(
        "lease returned",
        lease=lease.lease_id,
        lane=lease.lane,
        outcome=outcome,
        retry_after_s=retry_after_s,
        held_s=boot_s() - lease.granted_s,
    )


class DebugLog(logging.FileHandler):
    """Writes what is told to `debug-<worker>.log`, flushed line by line, until it is closed."""

    def __init__(self, directory: Path, worker: str, redact: Callable[[str], str]) -> None:
        """Begin, at the end of the file where an interrupted run left one.

        Args:
            directory: The run's.
            worker: `gw0`, ...; without xdist `main`.
            redact: Takes secrets out of a line.

        Raises:
            ResultsError: It cannot be written.
        """
        path = directory / f"debug-{worker}.log"
        with cannot(f"write {path}"):
            path.touch(mode=0o600)
            super().__init__(path, encoding="ascii", errors="backslashreplace")
        self._redact = redact
        LOG.addHandler(self)
        tell("log begins", worker=worker)

    def format(self, record: logging.LogRecord) -> str:
        """UTC time, the clock of `attempts.parquet`, event and values; secrets are taken out."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        return self._redact(f"{at[:23]}Z {boot_s():.6f} {record.getMessage()}".rstrip())

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """A full disk ends the log, not the run."""
        self.close()

    def close(self) -> None:
        """End the log. Idempotent."""
        LOG.removeHandler(self)
        with contextlib.suppress(OSError):
            super().close()


def _shown(value: str | float) -> str:
    if isinstance(value, float):
        return f"{value:.6f}"
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)
