"""Cases and run directories of the workflow's phases."""

from __future__ import annotations

import itertools
from datetime import timedelta

from msgspec.structs import replace

from bench_suites.workflow.aggregate import CaseResult
from bench_suites.workflow_results.bench_case import BenchCase
from pytest_ultrapar.analysis.compaction import compact
from pytest_ultrapar.records import Case
from tests.unit.finished_run import NOW, episode, grade, make_run, write_journal

_NAMES = ("reachable", "workflow", "workflow_sound", "phase2", "turns")
SCORES = {
    "solved": dict(zip(_NAMES, (1.0, 0.9, 0.9, 0.9, 5.0), strict=True)),
    "partial": dict(zip(_NAMES, (1.0, 0.9, 0.6, 0.5, 8.0), strict=True)),
    "unsolved": dict(zip(_NAMES, (1.0, 0.2, 0.1, 0.2, 10.0), strict=True)),
}
_numbers = itertools.count()


def bench_case(
    suite="phase51",
    outcome="solved",
    *,
    model="m",
    prompt_type="optimal",
    rate=0.8,
    difficulty="easy",
    task_type="basic_task",
    flaw=None,
    severity=None,
    run_id="first",
    case_id=None,
    repeat=0,
    scores=None,
    run_seed=0,
):
    """A case. With a flaw, it has the prompt type and the severity of flawed cases."""
    return BenchCase(
        run_id,
        suite,
        case_id or f"id{next(_numbers)}",
        repeat,
        flaw,
        severity or ("severe" if flaw else None),
        CaseResult(
            model,
            f"flawed_{flaw}" if flaw else prompt_type,
            rate,
            difficulty,
            task_type,
            outcome,
            2.0,
            NOW + timedelta(seconds=1),
            None if outcome == "solved" else "timeout",
            SCORES.get(outcome, {}) if scores is None else scores,
        ),
        run_seed,
    )


def some(suite, *, solved=0, partial=0, unsolved=0, infra=0, **fields):
    """The given numbers of cases of each outcome, as repetitions of one cell."""
    counts = {"solved": solved, "partial": partial, "unsolved": unsolved, "infra": infra}
    outcomes = [outcome for outcome, n in counts.items() for _ in range(n)]
    return [
        bench_case(suite, outcome, repeat=repeat, **fields)
        for repeat, outcome in enumerate(outcomes)
    ]


def write_run(path, cases, **manifest):
    """A run directory with tables from a journal. `never ran` cases are only planned."""
    planned = [_planned(index, case) for index, case in enumerate(cases)]
    run = make_run(path, planned, **manifest)
    records = []
    for index, case in enumerate(cases):
        if case.result.outcome == "never ran":
            continue
        is_infra = case.result.outcome == "infra"
        played = episode(
            index, 1.0, 1.0 + case.result.duration_s, "infra" if is_infra else "returned"
        )
        graded = grade(
            index,
            case.result.outcome,
            test="skipped" if is_infra else "passed",
            kind=case.result.kind,
            scores=dict(case.result.scores),
        )
        records += [replace(one, case_id=case.case_id) for one in (played, graded)]
    write_journal(run, "gw0", *records)
    compact(run.path)
    return run


def _planned(index, case):
    result = case.result
    params = {
        "task_type": result.task_type,
        "prompt_type": result.prompt_type,
        "difficulty": result.difficulty,
        "tool_success_rate": result.tool_success_rate,
    }
    if case.flaw is not None:
        params |= {"flaw": case.flaw, "flaw_group": "structure", "severity": case.severity}
    nodeid = f"bench_suites/{case.suite}/test_it.py::test_it[{index}]"
    return Case(index, case.case_id, nodeid, case.suite, result.model, case.repeat, params, index)
