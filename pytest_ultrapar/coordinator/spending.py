"""What a run with budgets has spent: before its session, and when that is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.broker.budget import SpendingFile, read_spending, spent_by_limit
from pytest_ultrapar.broker.protocol import BUDGET
from pytest_ultrapar.broker.settings import SPENDING_FILE
from pytest_ultrapar.errors import ConfigError, ResultsError
from pytest_ultrapar.pool.money import amount_of, money
from pytest_ultrapar.records import EpisodeEnded
from pytest_ultrapar.report.text import counted, duration, visible
from pytest_ultrapar.store.cost import Prices
from pytest_ultrapar.store.recovered import GrowingJournal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pytest_ultrapar.analysis.run_summary import RunSummary
    from pytest_ultrapar.broker.protocol import LaneStatus
    from pytest_ultrapar.pool.model import Pool
    from pytest_ultrapar.store.manifest import Manifest

_WORTH_SAYING_S = 1.0


def begin_spending(directory: Path, manifest: Manifest) -> str:
    """Count what sessions without a budget have spent, by their journal and today's prices.

    Nobody reserved anything then, so of their requests without an answer nothing is known.

    Args:
        directory: Of a run that is to be finished on a budget.
        manifest: Of this session.

    Returns:
        What to say of it; empty where earlier sessions had a budget, too.

    Raises:
        ConfigError: What was spent cannot be read or written.
    """
    path = directory / SPENDING_FILE
    if path.exists():
        return ""
    prices, spent = Prices(manifest), dict[str, int]()
    n_unknown = 0
    try:
        for _, record in GrowingJournal(directory / "journal").new():
            for attempt in record.attempts if isinstance(record, EpisodeEnded) else ():
                units = prices.of(attempt)
                n_unknown += units is None
                lane_id = f"{attempt.provider}/{attempt.instance}/{attempt.key}"
                spent[lane_id] = spent.get(lane_id, 0) + (units or 0)
        SpendingFile(path, spent).close()
    except ResultsError as error:
        raise ConfigError(str(error)) from error
    if not n_unknown:
        return ""
    return (
        "the run began without a budget: it counts what answers have cost since, and nothing for "
        f"{counted(n_unknown, 'request')} whose cost is not known"
    )


def budget_lines(pool: Pool, directory: Path) -> Iterator[str]:
    """What is spent of each budget of a run.

    Raises:
        ResultsError: It cannot be read.
    """
    if not pool.has_budget:
        return
    spent = spent_by_limit(pool, read_spending(directory / SPENDING_FILE))
    for name, limit in pool.limits.items():
        if limit.budget is not None:
            whole = money(limit.budget, pool.currency)
            yield visible(
                f"budget of {name}: {money(amount_of(spent.get(name, 0)), pool.currency)} of "
                f"{whole} spent"
            )


def spending_after(
    pool: Pool,
    directory: Path,
    summary: RunSummary,
    lanes: Sequence[LaneStatus],
    how_to_ask_again: str,
) -> Iterator[str]:
    """What a run has spent, how long it waited for money, and how to finish what found none.

    After `Run.close`.
    """
    try:
        lines = list(budget_lines(pool, directory))
    except ResultsError as error:
        lines = [visible(str(error))]
    if lines:
        lines[-1] += " (requests without an answer count in full)"
    yield from lines
    waited_s = sum(lane.waited_s.get(BUDGET, 0.0) for lane in lanes)
    if waited_s >= _WORTH_SAYING_S:
        yield (
            f"requests waited {duration(waited_s)} in all for the budget, until answers had freed "
            "what was reserved for them: bound answers with max_tokens, or raise the budget"
        )
    if n := summary.n_infra(BUDGET):
        yield (
            f"{counted(n, 'case')} ended without money: raise the budget and go on with "
            f"{how_to_ask_again}"
        )
