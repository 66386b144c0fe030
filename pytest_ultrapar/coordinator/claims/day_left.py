"""Limits per day over runs: where they are remembered, and whether a run has enough left."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pytest_ultrapar.broker.daily_limits import DailyLimit, counted_days
from pytest_ultrapar.coordinator.claims.key_keeping import key_identities
from pytest_ultrapar.pool.model import LIMIT_KINDS
from pytest_ultrapar.report.text import visible
from pytest_ultrapar.system.clock import HostDayClock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_ultrapar.analysis.requests import LimitAudit
    from pytest_ultrapar.pool.model import Lane, Pool
    from pytest_ultrapar.system.clock import Clock


class DayLeft(NamedTuple):
    """What a day has left.

    Attributes:
        counted: Of what.
        amount: Units per day.
        left: Those that may still be sent now.
        more_at: When there are more, for people; empty where nothing was sent.
        begins_here: The directory, where nothing is remembered in it and the day begins at zero.
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
    """What counts days on these lanes; nothing where no limit does.

    Args:
        pool: The pool.
        lanes: Those that may be used.
        environ: The environment's variables, which hold the keys.
        simulator: URL of a simulated provider that already runs.
        label: What is counted apart: the part of the limits that the pool has (`2/4`), or what the
            server of a cluster knows; empty: all that is counted without.

    Raises:
        ConfigError: A key is not set, or there is no place for the memory.
    """
    names = {name for lane in lanes for name in lane.limits}
    if not any(kind.is_daily for name in names for kind, _ in pool.limits[name].rows):
        return ()
    from pytest_ultrapar.broker.day_file import state_directory  # noqa: PLC0415 - few pools count days

    identities = key_identities(pool, lanes, environ, simulator)
    # A run on nothing but its own simulated provider needs no place.
    directory = state_directory(environ) if identities else Path()
    return counted_days(pool, lanes, identities, directory, label)


def days_left(
    pool: Pool, counted: Iterable[DailyLimit], clock: Clock, *, claim: bool
) -> tuple[DayLeft, ...]:
    """What each day has left.

    Args:
        pool: For its limits.
        counted: Of what.
        clock: Of the host.
        claim: Whether a run is going to send, for which the memory must be writable.

    Raises:
        ConfigError: The memory cannot be read, trusted or, if that matters, written.
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
    """What is left of each limit per day."""
    for one in _fewest(days):
        simulated = "" if one.counted.name else " (simulated: counted for this run only)"
        more = f"; {one.more_at}" if one.more_at else ""
        yield f"{visible(one.counted.shown)}: {one.left:,} of {one.amount:,} left{simulated}{more}"


def begun_days(days: Sequence[DayLeft]) -> Iterator[str]:
    """A sentence for each place without a memory of the days: perhaps it was lost."""
    begins = dict.fromkeys(one.begins_here for one in days if one.begins_here)
    for directory in begins:
        yield (
            f"no saved count in {visible(directory)}: the count of these limits starts at 0; "
            "requests sent from other hosts or containers are not included"
        )


def day_end_lines(
    days: Sequence[DayLeft], audits: Iterable[LimitAudit], session: str
) -> Iterator[str]:
    """What each limit per day has left after a run, and how much of it was the run's.

    Args:
        days: What is left now; of a simulated provider that the run started, what it began with.
        audits: What fell on each limit.
        session: What the audits are of: `run`, `session`, `earlier session`.
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
    """For each counted thing that with the least left.

    A key on several servers has a count for each of them, and all must allow a send.
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
    """A sentence for each counted thing of which the days have less left than a run needs.

    Args:
        pool: For its limits.
        lanes: Those of the run.
        days: What is left.
        needed: By what is counted (`requests`, `tokens`), by model, how many are needed.
        how: How sure the numbers are: `about`, `at least`.
        again: What asks cases again that found no quota.
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
                f"{who} needs {how} {n:,.0f} {counts}, but limits per day leave only {most:,.0f} "
                "now: the other cases will end as infra (daily_quota); finish them with "
                f"{again} when units are free again"
            )
