"""The report of rounds: a line each, the violations, and a table by kind at the end."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from pytest_ultrapar.report.text import text_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.torture.rounds import Result

_WIDTH = 100


def round_lines(number: int, n_rounds: int, result: Result) -> Iterator[str]:
    """The result of a round; for a failed one, the command that repeats it and its folder."""
    plan = result.plan
    hits = "; ".join(hit.what for hit in result.hits) or "no hit"
    yield (
        f"[{number}/{n_rounds}] seed {plan.seed} {plan.kind.name}: -n {plan.workers}, "
        f"{plan.n_cases} cases, {result.n_sessions} sessions, {result.took_s:.0f} s; {hits}"
    )
    if not result.violations:
        return
    for violation in result.violations:
        yield f"    VIOLATION {violation}"
    yield f"    evidence: {result.folder}"
    yield (
        f"    again: python -m tests.torture --rounds 1 --seed {plan.seed} --kind {plan.kind.name}"
    )


def summary(results: Sequence[Result]) -> Iterator[str]:
    """The table by kind, and the sum."""
    by_kind: defaultdict[str, list[Result]] = defaultdict(list)
    for result in results:
        by_kind[result.plan.kind.name].append(result)
    counts = [(name, *_counts(of_kind)) for name, of_kind in by_kind.items()]
    yield from text_table(
        ("kind", "rounds", "faults that hit", "cases", "resumed", "violations"),
        [tuple(map(str, row)) for row in [*counts, ("all", *_counts(results))]],
        n_names=1,
        width=_WIDTH,
    )


def _counts(results: Sequence[Result]) -> tuple[int, ...]:
    return (
        len(results),
        sum(len(result.hits) for result in results),
        sum(result.plan.n_cases for result in results),
        sum(result.n_sessions - 1 for result in results),
        sum(len(result.violations) for result in results),
    )
