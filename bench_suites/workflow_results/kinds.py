"""The number of cases of each phase by outcome and kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bench_suites.workflow_results.counted import Counted
from bench_suites.workflow_results.phase import ALL_PHASES
from pytest_ultrapar.report.text import markdown_table


def kinds(counted: Counted, suites: Sequence[str]) -> list[str]:
    """The lines of a table: a row for each outcome and kind, the most frequent first.

    The counts of a phase include the cases that it took. Rows have names such as
    `unsolved/no_call`.

    Args:
        counted: The cases.
        suites: The wanted phases; phases without a case are omitted.
    """
    found: dict[str, Counter[tuple[str, str]]] = {}
    for phase in ALL_PHASES:
        own = (case for case in counted.cases if case.suite == phase.suite)
        every = [case.result for case in (*own, *counted.taken.get(phase.suite, ()))]
        if every and phase.suite in suites:
            found[phase.number] = Counter((each.outcome, each.kind or "") for each in every)
    total = sum(found.values(), Counter[tuple[str, str]]())
    rows = [
        ["/".join(filter(None, each)), *(str(n[each]) for n in found.values())]
        for each in sorted(total, key=lambda each: (-total[each], each))
    ]
    table = markdown_table(["outcome/kind", *found], rows, n_names=1)
    return ["## Cases by outcome, kind and phase", "", *table]
