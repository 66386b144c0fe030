"""Read and report how much a run with budgets has spent, before and after a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.broker.budget import spent_by_limit
from pytest_ultrapar.broker.protocol import BUDGET
from pytest_ultrapar.broker.spending_file import SpendingFile, find_spending, read_spending
from pytest_ultrapar.errors import ResultsError, refuse, unusable
from pytest_ultrapar.pool.money import amount_of, money
from pytest_ultrapar.records import EpisodeEnded
from pytest_ultrapar.report.text import counted, duration, visible
from pytest_ultrapar.store.cost import Prices
from pytest_ultrapar.store.journal_history import GrowingJournal
from pytest_ultrapar.store.run_directory import SPENDING_FILE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pytest_ultrapar.analysis.run_summary import RunSummary
    from pytest_ultrapar.broker.protocol import LaneStatus
    from pytest_ultrapar.pool.model import Pool
    from pytest_ultrapar.store.manifest import Manifest

_WORTH_SAYING_S = 1.0


def begin_spending(directory: Path, manifest: Manifest, earlier: Manifest | None) -> str:
    """Open or create the spending file, before the manifest with the budget is written.

    If earlier sessions had no budget, their spending is computed from the journal and today's
    prices. Such sessions reserved no money, so if a request got no answer, its cost is unknown.

    Args:
        directory: Directory of a run that has a budget now.
        manifest: Manifest of this session.
        earlier: Manifest of the previous session, if there was one.

    Returns:
        A sentence about a problem or an unknown cost; usually empty.

    Raises:
        ConfigError: The spending cannot be read or written, or is unknown.
    """
    path = directory / SPENDING_FILE
    with unusable():
        found = find_spending(path)
        if found is not None and found.run_id not in {"", manifest.run_id}:
            refuse(
                f"{path} belongs to run {found.run_id}, but this is run {manifest.run_id}: put "
                "back the file of this run"
            )
        had_budget = earlier is not None and any(
            limit.budget is not None for limit in earlier.pool_limits
        )
        if earlier is None or (had_budget and found is not None):
            SpendingFile(path, run_id=manifest.run_id).close()
            return "" if found is None else found.trouble
        if had_budget and earlier.regraded is None and earlier.merged is None:
            refuse(
                f"{path} is missing, so the spending of this run is unknown; restore "
                "the file, or send the remaining requests in a new run "
                "(--ultrapar-replay and --ultrapar-replay-misses ask)"
            )
        spent, n_unknown = _by_journal(directory, Prices(manifest))
        for lane_id, units in ({} if found is None else found.spent).items():
            spent[lane_id] = max(units, spent.get(lane_id, 0))
        SpendingFile(path, spent, manifest.run_id).close()
    if not n_unknown:
        return "" if found is None else found.trouble
    return (
        "earlier sessions of this run had no budget: the cost of their answers counts as spent, "
        f"except for {counted(n_unknown, 'request')} of unknown cost"
    )


def _by_journal(directory: Path, prices: Prices) -> tuple[dict[str, int], int]:
    """The cost of all answers by lane, in units, and how many requests have an unknown cost."""
    spent: dict[str, int] = {}
    n_unknown = 0
    for _, record in GrowingJournal(directory / "journal").new():
        for attempt in record.attempts if isinstance(record, EpisodeEnded) else ():
            units = prices.of(attempt)
            n_unknown += units is None
            lane_id = f"{attempt.provider}/{attempt.instance}/{attempt.key}"
            spent[lane_id] = spent.get(lane_id, 0) + (units or 0)
    return spent, n_unknown


def budget_lines(pool: Pool, directory: Path) -> Iterator[str]:
    """A line for each of a run's budgets, which says how much of the budget is spent.

    Raises:
        ResultsError: The spending cannot be read.
    """
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
    """Lines about what a run spent, how long it waited for money, and how to finish its cases.

    Call it after `Run.close`.
    """
    try:
        lines = list(budget_lines(pool, directory))
    except ResultsError as error:
        lines = [visible(str(error))]
    if lines:
        lines[-1] += " (requests without an answer count at their full reserved cost)"
    yield from lines
    waited_s = sum(lane.waited_s.get(BUDGET, 0.0) for lane in lanes)
    if waited_s >= _WORTH_SAYING_S:
        yield (
            f"requests waited {duration(waited_s)} in total for money that other requests had "
            "reserved: limit answers with max_tokens, or raise the budget"
        )
    if n := summary.n_infra(BUDGET):
        yield (
            f"{counted(n, 'case')} ended for lack of money: raise the budget and continue with "
            f"{how_to_ask_again}"
        )
