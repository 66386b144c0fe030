"""The same cases, run serially and concurrently, as run directories."""

from __future__ import annotations

import msgspec

from pytest_ultrapar.analysis.compaction import compact
from pytest_ultrapar.compare.bench.merged import ModeRun, read_mode_run
from tests.unit.finished_run import case, episode, grade, make_run, write_journal

N_CASES = 8


def run_of(
    path,
    mode,
    spans,
    outcomes=None,
    *,
    models=("m1", "m2"),
    suites=("phase53",),
    scores=None,
    **fields,
) -> ModeRun:
    """A run whose case `i` is in flight during `spans[i]`; None is a case that failed."""
    cases = [
        msgspec.structs.replace(
            case(n, model=models[n % len(models)]), suite=suites[n // len(models) % len(suites)]
        )
        for n in range(len(spans))
    ]
    run = make_run(path, cases, mode=mode, **fields)
    records = []
    for n, span in enumerate(spans):
        if span is None:
            records += [episode(n, 0.0, 0.5, "infra", kind="timeout"), grade(n, "infra")]
        else:
            outcome = (outcomes or {}).get(n, "solved")
            records += [episode(n, *span), grade(n, outcome, scores=scores or {})]
    write_journal(run, "gw0", *records)
    return read_mode_run(run.path, compact(run.path))


def serial_run(path, **fields) -> ModeRun:
    """One case at a time, a second each, with pauses of half a second."""
    return run_of(path, "serial", [(1.5 * n, 1.5 * n + 1) for n in range(N_CASES)], **fields)


def ultra_run(path, **fields) -> ModeRun:
    """Two batches of four cases, a second each."""
    spans = [(float(n // 4), n // 4 + 1.0) for n in range(N_CASES)]
    return run_of(path, "ultra", spans, **fields)
