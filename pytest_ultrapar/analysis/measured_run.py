"""A finished run, read back to be compared; what cannot be trusted is refused."""

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
        timed: Whether it counts in makespan and latency: it was answered, in the session that is
            measured, and is not of the serial sample. The times of other rows may mean nothing.
        started_at: First lease, UTC.
        scores: Those that it has, by name; empty unless it was graded.
        cost: In the currency of its run, as far as known.
        cell: As `cells_of` calls it; empty where it shares it with no other case.
        cluster: `Case.cluster`.
        labels: Those that it was graded with, by name.
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
        """Whether it counts in scores."""
        return self.outcome in GRADED

    @property
    def rated(self) -> bool:
        """Whether it counts in solved rates."""
        return self.outcome in RATED


_TAKEN = ("case_id", "suite", "model", "outcome", "tokens_in", "tokens_out", "worker")
_COLUMNS = (*_TAKEN, *("run_id", "n_attempts", "service_s", "duration_s", "started_at", "ended_at"))
_SCORE = "score."


def labelled(cases: Iterable[Case], rows: Mapping[str, CaseRow]) -> tuple[Case, ...]:
    """Cases with the labels that their rows have."""
    return tuple(
        case.labelled(rows[case.case_id].labels) if case.case_id in rows else case for case in cases
    )


@dataclass(frozen=True, slots=True)
class Bench:
    """A directory that `ultrapar bench` wrote.

    Attributes:
        name: As it was given.
        run: Directory of its run with most under way, which stands for it.
        unmeasured: Why it has no measured speed-up; empty if it has one.
    """

    name: str
    run: Path
    unmeasured: str


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """A run that came to its end with at least one graded case.

    Attributes:
        directory: Resolved.
        cases: All planned cases.
        speeds: What the benchmark file says of it: that of the bench which it is a part of, else
            its own; None where neither can be read.
        bench: The bench by which the run was named; None where its own name was given.
    """

    directory: Path
    manifest: Manifest
    summary: RunSummary
    cases: tuple[Case, ...]
    speeds: RunSpeeds | None = None
    bench: Bench | None = None

    @property
    def run_id(self) -> str:
        """Its id."""
        return self.manifest.run_id

    @property
    def over(self) -> str:
        """Mode of the run that took the serial time, where one did."""
        return self.speeds.over if self.speeds is not None else "serial"

    @property
    def basis(self) -> Basis:
        """Where the serial time of its speed-up comes from."""
        known = self.speeds.basis if self.speeds is not None else None
        return known or self.summary.statistics.basis


def find_measured_run(name: str) -> MeasuredRun:
    """A finished run, without its rows.

    Args:
        name: Its directory, its id below `.ultrapar`, or `latest`; the same of a bench means its
            run with most under way.

    Raises:
        ConfigError: There is no such run, it is not finished or graded nothing, or a file
            of it is missing, damaged or of another version.
    """
    directory, bench = Path(name), None
    if directory.is_file():
        refuse(f"{name} is a file; name the directory of a run or of a bench")
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
    """The rows of `results` by case id.

    Raises:
        ConfigError: The table is missing, damaged or not of this run.
    """
    part = run.manifest.measured_part
    try:
        # Runs of earlier versions have no such column, and no prices.
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
            f"the results of {run.directory} are not of the run in {SUMMARY_FILE}: they have"
            f" {len(rows)} cases where {run.summary.statistics.n_final} of run {run.run_id} are"
            f" named there; {_compaction(run.directory)}"
        )
    return rows


def _find_bench(name: str) -> Bench | None:
    """The bench of that name, if there is one.

    Raises:
        ConfigError: The benchmark file of the bench is damaged, or that run is gone.
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
            refuse(f"{directory}, the run that stands for the bench, is no longer there")
        return Bench(name, directory, not_measured(runs, where=place))
    return None


def _speeds(directory: Path, run_id: str) -> RunSpeeds | None:
    for path in (directory.parent / BENCHMARK_FILE, directory / BENCHMARK_FILE):
        # Beside a run there may be files of that name that are not ours.
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
            f"{run.directory} holds files of different runs: {MANIFEST_NAME} is of {run.run_id},"
            f" {SUMMARY_FILE} of {run.summary.run_id}; {_compaction(run.directory)}"
        )
    if run.summary.n_without_grade:
        refuse(
            f"{_unfinished(run.directory)}: {run.summary.n_without_grade} of"
            f" {run.summary.statistics.n_planned} planned cases never ran or were not graded"
        )
    if not run.summary.statistics.n_graded:
        refuse(
            f"no case of {run.directory} was graded"
            f" ({run.summary.statistics.n_planned} planned): there is nothing to compare"
        )


def _not_ended(directory: Path) -> str:
    if in_use(directory):
        return f"the run in {directory} goes on; compare it when it has ended"
    return _unfinished(directory)


def _unfinished(directory: Path) -> str:
    return f"the run in {directory} is not finished; finish it with --ultrapar-resume={directory}"


def _compaction(directory: Path) -> str:
    return f"python -m pytest_ultrapar.analysis.compact {directory} makes it of the journal"


def _row(values: dict[str, Any], part: MeasuredPart) -> CaseRow:
    # All times of an episode whose record was damaged are null.
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
