"""Read a finished run from its files for a comparison, and refuse inconsistent files."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_ultrapar.analysis.repetitions import cells_of
from pytest_ultrapar.analysis.run_speeds import FILE_NAME as BENCHMARK_FILE
from pytest_ultrapar.analysis.run_speeds import RunSpeeds, judged_run, not_measured, read_speeds
from pytest_ultrapar.analysis.run_summary import RunSummary, read_summary
from pytest_ultrapar.errors import ConfigError, ResultsError, refuse, unusable
from pytest_ultrapar.records import GRADED, LABEL, RATED, Case
from pytest_ultrapar.store.cases_file import read_cases
from pytest_ultrapar.store.manifest import FILE_NAME as MANIFEST_NAME
from pytest_ultrapar.store.manifest import Manifest, read_manifest
from pytest_ultrapar.store.run_directory import DEFAULT_PARENT, SUMMARY_FILE, in_use, resolve_run
from pytest_ultrapar.store.table_rows import read_rows as read_table
from pytest_ultrapar.store.timing import MeasuredPart, is_completed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_ultrapar.analysis.statistics import Basis
    from pytest_ultrapar.records import Outcome


class CaseRow(NamedTuple):
    """A case with its final grade.

    Attributes:
        timed: Whether the case is included in the makespan and the latency: it was answered in the
            measured session, and is not in the serial sample. The times in other rows may be
            meaningless.
        started_at: When the case got its first lease, in UTC.
        scores: The case's scores by name; empty unless the case was graded.
        cost: The case's cost in the run's currency; None if unknown.
        cell: The cell's name from `cells_of`; empty if the case is alone in its cell.
        cluster: The case cluster, as in `Case.cluster`.
        labels: The case's labels by name.
    """

    case_id: str
    suite: str
    model: str
    outcome: Outcome
    timed: bool
    service_s: float
    duration_s: float
    started_at: datetime
    ended_at: datetime
    tokens_in: int | None
    tokens_out: int | None
    worker: str
    scores: Mapping[str, float]
    cost: float | None = None
    cell: str = ""
    cluster: str | None = None
    labels: Mapping[str, str] = MappingProxyType({})

    @property
    def graded(self) -> bool:
        """Whether the case is included in scores."""
        return self.outcome in GRADED

    @property
    def rated(self) -> bool:
        """Whether the case is included in solve rates."""
        return self.outcome in RATED


_TAKEN = ("case_id", "suite", "model", "outcome", "tokens_in", "tokens_out", "worker")
_COLUMNS = (*_TAKEN, *("run_id", "n_attempts", "service_s", "duration_s", "started_at", "ended_at"))
_SCORE = "score."


def labelled(cases: Iterable[Case], rows: Mapping[str, CaseRow]) -> tuple[Case, ...]:
    """Return the cases with the labels from their rows."""
    return tuple(
        case.labelled(rows[case.case_id].labels) if case.case_id in rows else case for case in cases
    )


@dataclass(frozen=True, slots=True)
class Bench:
    """A directory that `ultrapar bench` wrote.

    Attributes:
        name: The name that the user gave.
        run: The directory of the run that represents the bench: the run with the most requests in
            flight.
        unmeasured: Why the bench has no measured speed-up; empty if it has one.
    """

    name: str
    run: Path
    unmeasured: str


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """A finished run with at least one graded case.

    Attributes:
        directory: The run's directory, with links resolved.
        cases: All planned cases.
        speeds: The run's speeds, from the benchmark file of its bench or of the run itself. None if
            neither file can be read.
        bench: The bench, if the user named a bench; None if the user named the run.
    """

    directory: Path
    manifest: Manifest
    summary: RunSummary
    cases: tuple[Case, ...]
    speeds: RunSpeeds | None = None
    bench: Bench | None = None

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.manifest.run_id

    @property
    def over(self) -> str:
        """The mode of the run that measured the serial time; `serial` if none is recorded."""
        return self.speeds.over if self.speeds is not None else "serial"

    @property
    def basis(self) -> Basis:
        """The source of the serial time from which the run's speed-up is computed."""
        known = self.speeds.basis if self.speeds is not None else None
        return known or self.summary.statistics.basis


def find_measured_run(name: str) -> MeasuredRun:
    """Read a finished run, but not the rows of its tables.

    Args:
        name: The run's directory, the id of a run in `.ultrapar`, or `latest`; or the name of a
            bench. A bench is represented by its run with the most requests in flight.

    Raises:
        ConfigError: The run does not exist, is not finished or has no graded case; or a file is
            missing, damaged or from another version.
    """
    directory, bench = Path(name), None
    if directory.is_file():
        refuse(f"{name} is a file; pass the directory of a run or bench")
    if not (directory / MANIFEST_NAME).is_file():
        bench = _find_bench(name)
        directory = bench.run if bench is not None else resolve_run(name)
    directory = directory.resolve()
    with unusable():
        manifest = read_manifest(directory)
        run = MeasuredRun(
            directory,
            manifest,
            _read_summary(directory),
            tuple(read_cases(directory)),
            _speeds(directory, manifest.run_id),
            bench,
        )
    _check(run)
    return run


def read_rows(run: MeasuredRun) -> dict[str, CaseRow]:
    """Read the rows of `results`, by case id.

    Raises:
        ConfigError: The table is missing, damaged or from another run.
    """
    part = run.manifest.measured_part
    try:
        # In runs of earlier versions, the prices and this column are missing.
        columns = (*_COLUMNS, *(["cost"] if run.manifest.prices else []))
        raw = read_table(run.directory, "results", columns, beginning=(_SCORE, LABEL))
        cells, clusters = cells_of(run.cases), {case.case_id: case.cluster for case in run.cases}
        rows = {
            key: _row(each, part)._replace(cell=cells.get(key, ""), cluster=clusters.get(key))
            for each in raw
            if (key := each["case_id"])
        }
        run_ids = {each["run_id"] for each in raw}
    except (ResultsError, TypeError, ValueError) as error:
        where = "" if isinstance(error, ResultsError) else f"the results of {run.directory}: "
        raise ConfigError(f"{where}{error}; {_compaction(run.directory)}") from error
    if len(rows) != run.summary.statistics.n_final or run_ids - {run.run_id}:
        refuse(
            f"the results of {run.directory} do not match {SUMMARY_FILE}: they contain "
            f"{len(rows)} cases, but {SUMMARY_FILE} describes {run.summary.statistics.n_final} "
            f"cases of run {run.run_id}; {_compaction(run.directory)}"
        )
    return rows


def _find_bench(name: str) -> Bench | None:
    """Return the bench with this name, if there is one.

    Raises:
        ConfigError: The benchmark file of the bench is damaged, or its run is missing.
    """
    for place in (Path(name), DEFAULT_PARENT / name):
        path = place / BENCHMARK_FILE
        if (place / MANIFEST_NAME).is_file() or not path.is_file():
            continue
        with unusable():
            runs = read_speeds(path)
        if not runs:
            continue
        directory = place / judged_run(runs).mode
        if not (directory / MANIFEST_NAME).is_file():
            refuse(f"the run in {directory} is missing: the results of the bench are read from it")
        return Bench(name, directory, not_measured(runs, where=place))
    return None


def _speeds(directory: Path, run_id: str) -> RunSpeeds | None:
    for path in (directory.parent / BENCHMARK_FILE, directory / BENCHMARK_FILE):
        # Ignore unreadable files: other programs may write files with this name next to a run.
        with suppress(ResultsError):
            found = next((one for one in read_speeds(path) if one.run_id == run_id), None)
            if found is not None:
                return found
    return None


def _read_summary(directory: Path) -> RunSummary:
    try:
        summary = read_summary(directory)
    except ResultsError as error:
        raise ResultsError(f"{error}; {_compaction(directory)}") from error
    if summary is not None:
        return summary
    if read_manifest(directory).ended_at is None:
        msg = _not_ended(directory)
    else:
        msg = f"{directory} has no {SUMMARY_FILE}; {_compaction(directory)}"
    raise ResultsError(msg)


def _check(run: MeasuredRun) -> None:
    if run.manifest.ended_at is None:
        raise ConfigError(_not_ended(run.directory))
    if run.summary.run_id != run.run_id or len(run.cases) != run.summary.statistics.n_planned:
        refuse(
            f"{run.directory} contains files from different runs: {MANIFEST_NAME} is from"
            f" {run.run_id}, {SUMMARY_FILE} from {run.summary.run_id}; {_compaction(run.directory)}"
        )
    if run.summary.n_without_grade:
        refuse(
            f"{_unfinished(run.directory)} ({run.summary.n_without_grade} of"
            f" {run.summary.statistics.n_planned} planned cases did not run or were not graded)"
        )
    if not run.summary.statistics.n_graded:
        refuse(
            f"no case in {run.directory} was graded"
            f" ({run.summary.statistics.n_planned} planned): there is nothing to compare"
        )


def _not_ended(directory: Path) -> str:
    if in_use(directory):
        return f"the run in {directory} is still running; compare it when it has finished"
    return _unfinished(directory)


def _unfinished(directory: Path) -> str:
    return f"the run in {directory} is not finished; finish it with --ultrapar-resume={directory}"


def _compaction(directory: Path) -> str:
    command = f"python -m pytest_ultrapar.analysis.compact {directory}"
    return f"to rebuild {SUMMARY_FILE} and the tables from the journal: {command}"


def _row(values: dict[str, Any], part: MeasuredPart) -> CaseRow:
    # If an episode's record was damaged, all times are null.
    started_at, ended_at = _time(values["started_at"]), _time(values["ended_at"])
    outcome = values["outcome"]
    return CaseRow(
        **{name: values[name] for name in _TAKEN},
        timed=is_completed(outcome, values["n_attempts"] or 0)
        and part.holds(values["case_id"], round(started_at.timestamp() * 1e6)),
        service_s=values["service_s"] or 0.0,
        duration_s=values["duration_s"] or 0.0,
        started_at=started_at,
        ended_at=ended_at,
        scores=_named(values, _SCORE) if outcome in GRADED else {},
        cost=values.get("cost"),
        labels=_named(values, LABEL),
    )


def _named(values: Mapping[str, Any], beginning: str) -> dict[str, Any]:
    return {
        name.removeprefix(beginning): value
        for name, value in values.items()
        if name.startswith(beginning) and value is not None
    }


def _time(value: str | datetime | None) -> datetime:
    if value is None:
        return datetime.fromtimestamp(0, UTC)
    return datetime.fromisoformat(value) if isinstance(value, str) else value
