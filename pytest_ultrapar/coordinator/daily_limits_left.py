"""Daily limits over several runs: where they are stored, and whether a run has enough left."""

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
    """The rest of a daily limit.

    Attributes:
        counted: The daily limit.
        amount: Units per day.
        left: Units that may still be used now.
        more_at: The time of more units, for people; empty if nothing was sent.
        begins_here: The directory, if it has no stored count and the day begins at zero.
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
    """The daily limits on these lanes.

    Args:
        pool: The pool.
        lanes: The lanes that may be used.
        environ: The environment's variables, which hold the keys.
        simulator: URL of a running simulated provider.
        label: Label of a separate count: the part of the limits that the pool has (`2/4`), or
            the server of a cluster; empty: the count of all runs without one.

    Raises:
        ConfigError: A key is not set, or there is no place to store counts.
    """
    names = {name for lane in lanes for name in lane.limits}
    if not any(kind.is_daily for name in names for kind, _ in pool.limits[name].rows):
        return ()
    from pytest_ultrapar.broker.day_file import state_directory  # noqa: PLC0415 - few pools count days

    identities = key_identities(pool, lanes, environ, simulator)
    # A run that only uses its own simulated provider needs no place.
    directory = state_directory(environ) if identities else Path()
    return counted_days(pool, lanes, identities, directory, label)


def days_left(
    pool: Pool, counted: Iterable[DailyLimit], clock: Clock, *, claim: bool
) -> tuple[DayLeft, ...]:
    """The rest of each daily limit.

    Args:
        pool: The pool, for its limits.
        counted: The daily limits.
        clock: The machine's clock.
        claim: Whether a run is about to send, for which the stored count must be writable.

    Raises:
        ConfigError: A stored count cannot be read, trusted or, with `claim`, written.
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
    """A line for each daily limit: the units that are left."""
    for one in _fewest(days):
        simulated = "" if one.counted.name else " (simulated: counted for this run only)"
        more = f"; {one.more_at}" if one.more_at else ""
        yield f"{visible(one.counted.shown)}: {one.left:,} of {one.amount:,} left{simulated}{more}"


def begun_days(days: Sequence[DayLeft]) -> Iterator[str]:
    """A sentence for each directory without a stored count, which may have been lost."""
    begins = dict.fromkeys(one.begins_here for one in days if one.begins_here)
    for directory in begins:
        yield (
            f"no saved count in {visible(directory)}: the count of these limits starts at 0; "
            "requests sent from other hosts or containers are not included"
        )


def day_end_lines(
    days: Sequence[DayLeft], audits: Iterable[LimitAudit], session: str
) -> Iterator[str]:
    """A line for each daily limit after a run: the rest, and the part that the run used.

    Args:
        days: The rest now; for a simulated provider that the run started, the rest at its start.
        audits: The audited use of each limit.
        session: The period of the audits: `run`, `session`, `earlier session`.
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
    """For each counted key the daily limit with the least left.

    A key on several servers has a count for each of them, and all must allow a request.
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
    """A sentence for each model, or the run, that needs more units than daily limits have left.

    Args:
        pool: The pool, for its limits.
        lanes: The lanes of the run.
        days: The rest of each daily limit.
        needed: The units needed, by `requests` or `tokens` and by model.
        how: How certain the numbers are: `about`, `at least`.
        again: The command or option that runs cases without quota again.
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
                f"{again} when more units are available"
            )
