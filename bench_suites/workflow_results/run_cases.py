"""The cases of a run directory, from its results. Cases that never ran come from its plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from bench_suites.workflow.aggregate import CaseResult
from bench_suites.workflow_results.bench_case import NEVER_RAN, PHASES, BenchCase
from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.store.cases_file import Shared, read_cases, read_shared
from pytest_ultrapar.store.manifest import FILE_NAME as MANIFEST_NAME
from pytest_ultrapar.store.manifest import read_manifest
from pytest_ultrapar.store.run_directory import resolve_run
from pytest_ultrapar.store.table_rows import read_rows

_PARAMETERS = ("task_type", "prompt_type", "difficulty", "tool_success_rate")
_COLUMNS = ("case_id", "suite", "model", "outcome", "kind", "n_turns", "duration_s", "ended_at")


@dataclass(frozen=True, slots=True)
class RunCases:
    """All planned cases of a run that belong to a phase.

    Attributes:
        directory: The run directory.
        simulated: Whether any answer came from the simulated provider.
        cases: In the order of pytest's collection.
        taken: The cases that its suites took instead of running them, including suites that are
            not phases. If `cases` is empty, this is not empty.
        reused: Name of the directory of the run that it reused, or None.
    """

    directory: Path
    run_id: str
    simulated: bool
    cases: tuple[BenchCase, ...]
    taken: tuple[Shared, ...] = ()
    reused: str | None = None


def read_run(name: str) -> RunCases:
    """The cases of a run.

    Args:
        name: The directory of the run, its id below `.ultrapar`, or `latest`.

    Raises:
        ConfigError: The run does not exist, has no results, or has no case of a phase.
        ResultsError: A file of the run cannot be read.
    """
    directory = Path(name)
    if not (directory / MANIFEST_NAME).is_file():
        directory = resolve_run(name)
    manifest = read_manifest(directory)
    beginning: Any = ("param.", "score.")  # either
    found = read_rows(directory, "results", _COLUMNS, beginning=beginning)
    rows = {row["case_id"]: row for row in found}
    cases: list[BenchCase] = []
    suites: set[str] = set()
    for planned in read_cases(directory):
        suites.add(planned.suite)
        if planned.suite not in PHASES:
            continue
        row = rows.get(planned.case_id)
        if row is None:
            row = {
                "model": planned.model,
                "outcome": NEVER_RAN if planned.skipped is None else "skipped",
                **{f"param.{name}": value for name, value in planned.params.items()},
            }
        cases.append(
            BenchCase(
                manifest.run_id,
                planned.suite,
                planned.case_id,
                planned.repeat,
                row.get("param.flaw"),
                row.get("param.severity"),
                _result(row, planned.nodeid),
                manifest.seed,
            )
        )
    taken = tuple(read_shared(directory))
    if not cases and not any(each.suite in PHASES for each in taken):
        msg = (
            f"{directory} has no case of a workflow phase: its suites are"
            f" {', '.join(sorted(suites)) or 'none'}; allowed are {', '.join(PHASES)}"
        )
        raise ConfigError(msg)
    return RunCases(
        directory, manifest.run_id, manifest.simulated, tuple(cases), taken, manifest.reused
    )


def _result(row: Mapping[str, Any], nodeid: str) -> CaseResult:
    missing = [name for name in _PARAMETERS if row.get(f"param.{name}") is None]
    if missing:
        msg = (
            f"{nodeid} has no parameter {', '.join(missing)};"
            f" every case of a phase has {', '.join(_PARAMETERS)}"
        )
        raise ConfigError(msg)
    scores = {
        name.removeprefix("score."): value
        for name, value in row.items()
        if value is not None and name.startswith("score.")
    }
    # A refused prompt has turns, but no scores.
    scores.setdefault("turns", row.get("n_turns") or 0)
    ended_at = row.get("ended_at")
    return CaseResult(
        model=row["model"],
        prompt_type=row["param.prompt_type"],
        tool_success_rate=float(row["param.tool_success_rate"]),
        difficulty=row["param.difficulty"],
        task_type=row["param.task_type"],
        outcome=row["outcome"],
        duration_s=row.get("duration_s"),
        ended_at=datetime.fromisoformat(ended_at) if isinstance(ended_at, str) else ended_at,
        kind=row.get("kind"),
        scores=scores,
    )
