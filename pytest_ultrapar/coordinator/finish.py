"""The end of a run: tables, manifest, summary, and the check of coverage and gate."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.analysis.run_summary import RunSummary
from pytest_ultrapar.broker.protocol import DAILY_QUOTA
from pytest_ultrapar.coordinator.daily_limits_left import day_end_lines, days_left
from pytest_ultrapar.errors import ConfigError, ResultsError
from pytest_ultrapar.report.merged import missing_lines
from pytest_ultrapar.report.report_file import add_to_step_summary, write_report
from pytest_ultrapar.report.terminal_summary import brief_lines
from pytest_ultrapar.report.text import counted, visible
from pytest_ultrapar.session.suite_figures import add_figures
from pytest_ultrapar.store.journal import largest_sizes
from pytest_ultrapar.store.manifest import Manifest, write_manifest
from pytest_ultrapar.system.clock import MonotonicClock, utc_now

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pytest

    from pytest_ultrapar.coordinator.run import Run
    from pytest_ultrapar.coordinator.run_gate import Judgement, RunGate  # noqa: TC004 - no field is read


_GO_ON = "continue with"
_GOOD, _BAD = 0.8, 0.4
"""A share of solved cases is green from the first value on, and red below the second."""


def show(run: Run, finished: FinishedRun, reporter: pytest.TerminalReporter) -> None:
    """Write the summary. Called by pytest's terminal summary, controller, once."""
    reporter.section("ultrapar")
    if finished.summary is not None:
        for line in _summary_lines(run, finished, finished.summary, reporter):
            reporter.write_line(line)
        lines = [*left_after(run, finished.summary)]
        n = finished.summary.statistics.counts["infra"]
        # A stopped run, and cases without quota or money, have their own line about how to
        # continue.
        if n and run.source.sends and not (finished.stopped or any(_GO_ON in one for one in lines)):
            lines.append(
                f"{counted(n, 'case')} ended without an answer (infra): {_GO_ON} "
                f"{run.how_to_ask_again()}, once the cause is fixed"
            )
        for line in lines:
            reporter.write_line(line)
    for label in run.services.unused_faults():
        said = f'the simulated provider: fault "{label}" matched no request'
        reporter.write_line(visible(said), yellow=True)
    if finished.gate is not None:
        for line in finished.gate.lines:
            reporter.write_line(line)
    if finished.stopped is not None:
        reporter.write_line(visible(finished.stopped), yellow=True)
    show_failures(finished, reporter)
    for line in run.cluster.end_lines() if run.cluster is not None else ():
        reporter.write_line(line)


def _summary_lines(
    run: Run, finished: FinishedRun, summary: RunSummary, reporter: pytest.TerminalReporter
) -> Sequence[str]:
    writer = reporter.config.get_terminal_writer()
    return brief_lines(
        summary,
        finished.manifest.lanes,
        directory=str(finished.directory),
        width=writer.fullwidth,
        is_quiet=reporter.config.get_verbosity() < 0,
        has_page=finished.has_page,
        part=None if run.cluster is None else run.cluster.part,
        paint=lambda text, share: writer.markup(text, **{_colour(share): True}),
    )


def _colour(share: float) -> str:
    """The colour of a share of solved cases, as in pytest's results."""
    if share >= _GOOD:
        return "green"
    return "yellow" if share >= _BAD else "red"


def show_failures(finished: FinishedRun, reporter: pytest.TerminalReporter) -> None:
    """Print why the run as a whole failed, at every verbosity: an exit code needs its reason."""
    for failure in finished.failures:
        reporter.write_line(f"FAILED: {visible(failure)}", red=True)


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A finished run.

    Attributes:
        directory: The run's directory.
        manifest: The manifest as written, with the final state of each lane.
        summary: The summary of the tables; None if they could not be written.
        failures: Why the run as a whole failed, one sentence each; empty if it did not fail or
            was stopped.
        gate: The result of --ultrapar-gate; None without a gate or if it could not be judged.
        has_page: Whether `report.html` was written.
        stopped: How to continue after Ctrl-C, `-x` or `--maxfail`; None if it was not stopped.
    """

    directory: Path
    manifest: Manifest
    summary: RunSummary | None
    failures: tuple[str, ...]
    stopped: str | None = None
    gate: Judgement | None = None
    has_page: bool = False


def finish(
    run: Run,
    gate: RunGate | None,
    *,
    stopped: bool,
    at_failure: bool,
    written: Callable[[int, int], None],
    meanwhile: Callable[[], None],
    tell: Callable[[str], None],
) -> FinishedRun:
    """Write manifest, results and page, and judge them. Controller, once, after the workers' end.

    Args:
        run: The run.
        gate: The rules that judge the run besides coverage.
        stopped: Whether the user ended it early. Then cases may be missing.
        at_failure: Whether `-x` or `--maxfail` ended it.
        written: Called from time to time with the number of cases in the tables and in total.
        meanwhile: Called once, while another process makes the tables.
        tell: Called with a sentence if that process fails or has ended.
    """
    with contextlib.ExitStack() as stack:
        judge = None
        if gate is not None:
            # It loads its modules while the tables are made.
            judge = gate.start_judge()
            stack.callback(judge.stop)
        assert run.manifest is not None
        manifest = msgspec.structs.replace(
            run.manifest,
            lanes=run.last_status.lanes if run.last_status is not None else [],
            ended_at=utc_now(),
        )
        path = run.directory.path
        try:
            segments = largest_sizes(run.directory.journal, manifest.segments)
            manifest = msgspec.structs.replace(manifest, segments=segments)
            write_manifest(path, manifest)
            summary = run.services.compact(written, meanwhile, tell)
            if summary.measured_earlier and run.resumed is not None:
                # This session had nothing to do: keep the measurements of the earlier session.
                since = run.resumed.measured_from
                manifest = msgspec.structs.replace(manifest, measured_from=since)
                write_manifest(path, manifest)
            summary, found = add_figures(run.config, path, summary)
            run.services.begin_page()
            write_report(path, summary, manifest)
            _show_in_step(path, summary, manifest, tell)
        except ResultsError as error:
            return FinishedRun(path, manifest, None, (str(error),))
        said, judged = None, None
        if stopped and summary.n_without_grade:
            how = run.how_to_resume(at_failure=at_failure)
            said = f"{stopped_early(summary)}; {_GO_ON} {how}"
        else:
            found += failures(summary, run.options.coverage)
            if gate is not None and judge is not None:
                try:
                    judged = gate.judge(path, judge)
                    found += judged.failures
                except ResultsError as error:
                    found += (f"the gate cannot be judged: {error}",)
        # The process that made the tables also writes the page.
        has_page = run.services.wait_for_page(tell)
        return FinishedRun(path, manifest, summary, found, said, judged, has_page)


def _show_in_step(
    path: Path, summary: RunSummary, manifest: Manifest, tell: Callable[[str], None]
) -> None:
    """Add the run to the step summary on GitHub. An error here is a warning, not a failure."""
    step = os.environ.get("GITHUB_STEP_SUMMARY")
    if not step:
        return
    try:
        add_to_step_summary(Path(step), summary, manifest, path)
    except OSError as error:
        tell(f"cannot write the step summary (GITHUB_STEP_SUMMARY): {error}")


def left_after(run: Run, summary: RunSummary) -> Iterator[str]:
    """Lines about the rest of daily limits and budgets after a run; after `Run.close`."""
    yield from days_after(run, summary)
    if run.pool.has_budget:
        from pytest_ultrapar.coordinator.spending import spending_after  # noqa: PLC0415 - few runs have a budget

        path, how = run.directory.path, run.how_to_ask_again()
        lanes = run.last_status.lanes if run.last_status is not None else []
        yield from spending_after(run.pool, path, summary, lanes, how)


def days_after(run: Run, summary: RunSummary) -> Iterator[str]:
    """Lines about the rest of daily limits after a run, and how to run cases without quota again.

    Call it after `Run.close`: until then the broker holds units that no request uses.
    """
    kept = [one.counted for one in run.days if one.counted.name]
    try:
        left = days_left(run.pool, kept, MonotonicClock(), claim=False)
    except ConfigError as error:
        yield visible(f"cannot read the rest of the daily limits: {error}")
        return
    days = [*left, *(one for one in run.days if not one.counted.name)]
    audits = () if summary.measured_earlier else summary.audit
    yield from day_end_lines(days, audits, "session" if summary.resumed else "run")
    n = summary.n_infra(DAILY_QUOTA)
    if n and days:
        later = (
            ", which becomes available later than a case may wait (--ultrapar-episode-timeout "
            f"{run.options.episode_timeout_s:g} s); then"
        )
        how = f"{_GO_ON} {run.how_to_ask_again()}"
        yield f"{counted(n, 'case')} ended without quota{later if kept else ':'} {how}"


def stopped_early(summary: RunSummary) -> str:
    """The results of a run that was stopped, and the work that a resume does."""
    statistics = summary.statistics
    said = [
        f"stopped early: {statistics.n_answered} of {counted(statistics.n_planned, 'case')} have a "
        "result"
    ]
    if summary.n_ungraded:
        said.append(
            f"{counted(summary.n_ungraded, 'episode')} finished and will be graded on resume"
        )
    if summary.n_interrupted:
        said.append(f"{summary.n_interrupted:,} interrupted and will be sent again")
    return "; ".join(said)


def failures(
    summary: RunSummary, least_coverage: float, option: str = "--ultrapar-coverage"
) -> tuple[str, ...]:
    """Why a run failed although no test failed: cases that never ran, or too few graded cases.

    Args:
        summary: Summary of the run.
        least_coverage: Share of planned cases that must be graded, 0 to 1.
        option: Name of the option for the share.

    Returns:
        One sentence each; empty for a good run.
    """
    found: list[str] = []
    statistics = summary.statistics
    if summary.merged is not None:
        found += missing_lines(summary.merged)
    if summary.n_without_grade:
        such = f", such as {summary.never_ran[0]}" if summary.never_ran else ""
        found.append(
            f"{summary.n_without_grade} of {counted(statistics.n_planned, 'planned case')} never "
            f"ran or were not graded{such}"
        )
    if statistics.coverage < least_coverage:
        found.append(
            f"coverage {statistics.coverage:.1%} is below {least_coverage:.1%} "
            f"({option}): {statistics.n_graded} of "
            f"{counted(statistics.n_planned - statistics.counts['skipped'], 'case')} graded"
        )
    return tuple(found)
