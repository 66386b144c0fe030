"""Daily limits across runs: where their counts are stored, and whether enough is left for a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pytest_ultrapar.broker.daily_limits import DailyLimit, counted_days
from pytest_ultrapar.coordinator.keys.acquire_keys import key_identities
from pytest_ultrapar.pool.model import LIMIT_KINDS
from pytest_ultrapar.report.text import visible
from pytest_ultrapar.system.clock import HostDayClock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_ultrapar.analysis.requests import LimitAudit
    from pytest_ultrapar.pool.model import Lane, Pool
    from pytest_ultrapar.system.clock import Clock


class DayLeft(NamedTuple):
    """The units that remain of a daily limit.

    Attributes:
        counted: The daily limit.
        amount: Units per day.
        left: Units that may still be used now.
        more_at: A phrase that says when more units become available; empty if no unit has been
            used.
        begins_here: The directory for the count, if it contains no count yet and counting starts at
            zero; otherwise empty.
    """

    counted: DailyLimit
    amount: int
    left: int
    more_at: str = ""
    begins_here: str = ""


def run_days(
    pool: Pool,
    lanes: Sequence[Lane],
    environ: Mapping[str, str],
    simulator: str | None,
    label: str = "",
) -> tuple[DailyLimit, ...]:
    """Return the daily limits that apply to these lanes.

    Args:
        pool: The pool.
        lanes: The lanes that may be used.
        environ: The environment variables, which contain the keys.
        simulator: URL of a running simulated provider.
        label: Label of a separate count: the shard (`2/4`) that has its own part of the limits, or
            the server of a cluster. If empty, use the count that all runs without a label share.

    Raises:
        ConfigError: A key is not set, or there is no directory to store counts in.
    """
    names = {name for lane in lanes for name in lane.limits}
    if not any(kind.is_daily for name in names for kind, _ in pool.limits[name].rows):
        return ()
    from pytest_ultrapar.broker.day_file import state_directory  # noqa: PLC0415 - few pools count days

    identities = key_identities(pool, lanes, environ, simulator)
    # A run that uses only its own simulated provider stores no counts.
    directory = state_directory(environ) if identities else Path()
    return counted_days(pool, lanes, identities, directory, label)


def days_left(
    pool: Pool, counted: Iterable[DailyLimit], clock: Clock, *, claim: bool
) -> tuple[DayLeft, ...]:
    """Return what remains of each daily limit.

    Args:
        pool: The pool, for its limits.
        counted: The daily limits.
        clock: The machine's clock.
        claim: Whether a run is about to send requests. The stored counts must then be writable.

    Raises:
        ConfigError: A stored count cannot be read or trusted, or it cannot be written and `claim`
            is true.
    """
    found = []
    day_clock, now_s = HostDayClock(), clock.now_s()
    for one in counted:
        is_new = bool(one.name) and not one.memory.exists
        ledger = one.ledger(pool.limits[one.limit], day_clock, now_s)
        if claim:
            ledger.claim(now_s)
        directory = one.directory if is_new else ""
        left = ledger.left(now_s)
        more_at = ledger.free_at(left + 1, now_s) if left < ledger.amount else ""
        found.append(DayLeft(one, ledger.amount, left, more_at, directory))
    return tuple(found)


def day_lines(days: Sequence[DayLeft]) -> Iterator[str]:
    """A line for each daily limit: how many units are left."""
    for one in _fewest(days):
        simulated = "" if one.counted.name else " (simulated: counted for this run only)"
        more = f"; {one.more_at}" if one.more_at else ""
        yield f"{visible(one.counted.shown)}: {one.left:,} of {one.amount:,} left{simulated}{more}"


def begun_days(days: Sequence[DayLeft]) -> Iterator[str]:
    """A warning for each directory without a stored count: an earlier count may have been lost."""
    begins = dict.fromkeys(one.begins_here for one in days if one.begins_here)
    for directory in begins:
        yield (
            f"some daily limits have no saved count in {visible(directory)} yet, so they count "
            "from 0; requests sent from other hosts or containers are not included"
        )


def day_end_lines(
    days: Sequence[DayLeft], audits: Iterable[LimitAudit], session: str
) -> Iterator[str]:
    """A line for each daily limit after a run: how many units remain, and how many the run used.

    Args:
        days: The units that remain now; for a simulated provider that the run started, the units
            that remained at the start.
        audits: The audited use of each limit.
        session: The period that the audits cover: `run`, `session`, or `earlier session`.
    """
    fell = {one.limit: one for one in audits}
    for one in _fewest(days):
        audit, kind = fell.get(one.counted.limit), LIMIT_KINDS[one.counted.word]
        n: int | None = 0
        if audit is not None:
            n = audit.n if kind.counts == "requests" else audit.of(kind)[0]
        by = "" if n is None else f"{n:,} {'sent' if kind.counts == 'requests' else 'used'}"
        shown = visible(one.counted.shown)
        if one.counted.name:
            own = f" ({by} by this {session})" if by else ""
            more = f"; {one.more_at}" if one.more_at else ""
            yield f"{shown}: {one.left:,} of {one.amount:,} left{own}{more}"
        elif by:
            yield f"{shown}: {by} of {one.amount:,} (simulated: counted for this run only)"


def _fewest(days: Sequence[DayLeft]) -> Iterable[DayLeft]:
    """For each daily limit, the count with the fewest units left.

    A key that is used on several servers has a separate count for each server, and a request needs
    room in all of these counts.
    """
    fewest: dict[str, DayLeft] = {}
    for one in days:
        shown = one.counted.shown
        fewest[shown] = min(one, fewest.get(shown, one), key=lambda each: each.left)
    return fewest.values()


def too_few(
    pool: Pool,
    lanes: Sequence[Lane],
    days: Sequence[DayLeft],
    needed: Mapping[str, Mapping[str, float]],
    *,
    how: str,
    again: str = "--ultrapar-resume",
) -> Iterator[str]:
    """A warning for each model that needs more units than its daily limits have left.

    If there is enough for each model but not for all models together, warn about the whole run.

    Args:
        pool: The pool, for its limits.
        lanes: The lanes of the run.
        days: The units that remain of each daily limit.
        needed: The required units, by `requests` or `tokens`, then by model.
        how: How certain the numbers are: `about` or `at least`.
        again: The command or option that reruns the cases that got no quota.
    """
    for counts, by_model in needed.items():
        left: dict[str, float] = {}
        for one in days:
            if LIMIT_KINDS[one.counted.word].counts == counts:
                left[one.counted.limit] = min(one.left, left.get(one.counted.limit, one.left))
        asked = [lane for lane in lanes if by_model.get(lane.model)]
        short = [
            (model, by_model[model], most)
            for model in dict.fromkeys(lane.model for lane in asked)
            if (most := pool.most([one for one in asked if one.model == model], left))
            < by_model[model]
        ]
        whole = sum(by_model.values())
        if not short and (most := pool.most(asked, left)) < whole:
            short = [("the run", whole, most)]
        for who, n, most in short:
            yield (
                f"{who} needs {how} {n:,.0f} {counts}, but daily limits leave only {most:,.0f} "
                f"now: the remaining cases will end as infra (daily_quota); finish these cases "
                f"with {again} when the limits allow more"
            )
