"""The debug log: one line for each lease, request, retry and episode, written with a logger.

It contains no prompts, answers or error messages, so you can share it. Callers check `is_on` first,
so in a run without the log, this check is the only cost.
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

# Keep this logger out of the hierarchy: otherwise pytest would show its records, and a suite could
# disable it.
LOG = logging.Logger("pytest_ultrapar.debug")

_PLAIN = re.compile(r"[!#-<>-\[\]-~]+")
"""A value in a line needs no quotes if it consists of visible ASCII characters other than `"`, `=`
and the backslash."""


def is_on() -> bool:
    """Whether this process writes the log."""
    return bool(LOG.handlers)


def tell(event: str, **values: str | float | None) -> None:
    """Write a line to the log.

    Args:
        event: The event, in two words.
        values: Details. Values that are None are left out. Values whose names end in `_s` are in
            seconds.
    """
    told = " ".join(f"{name}={_shown(one)}" for name, one in values.items() if one is not None)
    LOG.handle(logging.LogRecord(LOG.name, logging.DEBUG, "", 0, f"{event:<15} {told}", None, None))


def tell_lease(request: LeaseRequest, future: asyncio.Future[Lease]) -> None:
    """Log a request for a lease now, and the result as soon as the future is done."""
    asked_s = boot_s()
    tell_own = partial(tell, request=request.request_id, case=request.case_id)
    opens, group = "yes" if request.opens else "no", request.group or None
    tell_own("lease requested", model=request.model, group=group, opens=opens, lane=request.lane)

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

    # Log the grant before the lease is used. If the lease is already there, log it now, because the
    # await then returns without another iteration of the event loop. Otherwise, log it in the
    # future's first callback.
    if future.done():
        over(future)
    else:
        future.add_done_callback(over)


def tell_return(lease: Lease, outcome: LeaseOutcome, retry_after_s: float | None) -> None:
    """Log that a lease was given back."""
    tell(
        "lease returned",
        lease=lease.lease_id,
        lane=lease.lane,
        outcome=outcome,
        retry_after_s=retry_after_s,
        held_s=boot_s() - lease.granted_s,
    )


class DebugLog(logging.FileHandler):
    """Writes log records to `debug-<worker>.log` until `close`, and flushes each line."""

    def __init__(self, directory: Path, worker: str, redact: Callable[[str], str]) -> None:
        """Open the log. If an interrupted run left a log, append to that file.

        Args:
            directory: The run's directory.
            worker: The worker's name: `gw0`, `gw1`, ...; `main` without xdist.
            redact: Removes secrets from a line.

        Raises:
            ResultsError: The file cannot be written.
        """
        path = directory / f"debug-{worker}.log"
        with cannot(f"write {path}"):
            path.touch(mode=0o600)
            super().__init__(path, encoding="ascii", errors="backslashreplace")
        self._redact = redact
        LOG.addHandler(self)
        tell("log begins", worker=worker)

    def format(self, record: logging.LogRecord) -> str:
        """Return a line without secrets.

        The line contains the UTC time, the monotonic time as in the table `attempts`, the event and
        its values.
        """
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        return self._redact(f"{at[:23]}Z {boot_s():.6f} {record.getMessage()}".rstrip())

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Close the log, so that a full disk ends the log but not the run."""
        self.close()

    def close(self) -> None:
        """Close the log. Idempotent."""
        LOG.removeHandler(self)
        with contextlib.suppress(OSError):
            super().close()


def _shown(value: str | float) -> str:
    if isinstance(value, float):
        return f"{value:.6f}"
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)
