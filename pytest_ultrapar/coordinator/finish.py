"""The end of a run: write tables, manifest and summary; check coverage and the gate's rules."""

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
"""A share of solved cases is green if it is at least `_GOOD`, and red if it is below `_BAD`."""


def show(run: Run, finished: FinishedRun, reporter: pytest.TerminalReporter) -> None:
    """Print the summary. Called once, in the controller, from pytest's terminal summary."""
    reporter.section("ultrapar")
    if finished.summary is not None:
        for line in _summary_lines(run, finished, finished.summary, reporter):
            reporter.write_line(line)
        lines = [*left_after(run, finished.summary)]
        n = finished.summary.statistics.counts["infra"]
        # If the run was stopped, or cases ended without quota or money, another line says how to
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
    """The colour for a share of solved cases; pytest's results use the same colours."""
    if share >= _GOOD:
        return "green"
    return "yellow" if share >= _BAD else "red"


def show_failures(finished: FinishedRun, reporter: pytest.TerminalReporter) -> None:
    """Print why the run as a whole failed, even with `-qq`, to explain the exit code."""
    for failure in finished.failures:
        reporter.write_line(f"FAILED: {visible(failure)}", red=True)


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A finished run.

    Attributes:
        directory: The run's directory.
        manifest: The manifest as written, including the final state of each lane.
        summary: The summary of the tables; None if the tables could not be written.
        failures: The reasons why the run as a whole failed, one sentence each; empty if it did not
            fail or was stopped.
        gate: The result of --ultrapar-gate; None if there is no gate or it could not be evaluated.
        has_page: Whether `report.html` was written.
        stopped: How to continue after Ctrl-C, `-x` or `--maxfail`; None if the run was not stopped.
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
    """Write the manifest, the results and the HTML report, and decide whether the run failed.

    Call it once, in the controller, after the workers have ended.

    Args:
        run: The run.
        gate: The rules that judge the run in addition to coverage.
        stopped: Whether the run was ended early, for example by Ctrl-C or `-x`. Cases may then be
            missing.
        at_failure: Whether `-x` or `--maxfail` ended the run.
        written: Called from time to time with the number of cases in the tables and the total
            number of cases.
        meanwhile: Called once, while another process makes the tables.
        tell: Called with a warning, for example if the process that makes the tables was killed or
            the step summary cannot be written.
    """
    with contextlib.ExitStack() as stack:
        judge = None
        if gate is not None:
            # The new process loads its modules while the tables are made.
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
                # This session sent nothing, so keep the measurements of the earlier session.
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
                    found += (f"cannot check the rules of the gate: {error}",)
        # The process that made the tables also writes the HTML report.
        has_page = run.services.wait_for_page(tell)
        return FinishedRun(path, manifest, summary, found, said, judged, has_page)


def _show_in_step(
    path: Path, summary: RunSummary, manifest: Manifest, tell: Callable[[str], None]
) -> None:
    """Add the run to GitHub's step summary. If that fails, warn, but do not fail the run."""
    step = os.environ.get("GITHUB_STEP_SUMMARY")
    if not step:
        return
    try:
        add_to_step_summary(Path(step), summary, manifest, path)
    except OSError as error:
        tell(f"cannot write the step summary (GITHUB_STEP_SUMMARY): {error}")


def left_after(run: Run, summary: RunSummary) -> Iterator[str]:
    """Lines about what remains of daily limits and budgets; call it after `Run.close`."""
    yield from days_after(run, summary)
    if run.pool.has_budget:
        from pytest_ultrapar.coordinator.spending import spending_after  # noqa: PLC0415 - few runs have a budget

        path, how = run.directory.path, run.how_to_ask_again()
        lanes = run.last_status.lanes if run.last_status is not None else []
        yield from spending_after(run.pool, path, summary, lanes, how)


def days_after(run: Run, summary: RunSummary) -> Iterator[str]:
    """Lines about what remains of daily limits, and how to rerun cases that got no quota.

    Call it after `Run.close`: until then, the broker reserves units that no request uses.
    """
    kept = [one.counted for one in run.days if one.counted.name]
    try:
        left = days_left(run.pool, kept, MonotonicClock(), claim=False)
    except ConfigError as error:
        yield visible(f"cannot read how much of the daily limits is left: {error}")
        return
    days = [*left, *(one for one in run.days if not one.counted.name)]
    audits = () if summary.measured_earlier else summary.audit
    yield from day_end_lines(days, audits, "session" if summary.resumed else "run")
    n = summary.n_infra(DAILY_QUOTA)
    if n and days:
        later = (
            ": no more quota would have become available within the "
            f"{run.options.episode_timeout_s:g} s that a case may wait "
            "(--ultrapar-episode-timeout); once there is more,"
        )
        how = f"{_GO_ON} {run.how_to_ask_again()}"
        yield f"{counted(n, 'case')} ended for lack of quota{later if kept else ':'} {how}"


def stopped_early(summary: RunSummary) -> str:
    """Say how many cases of a stopped run have a result, and what a resumed run still has to do."""
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
        said.append(f"{counted(summary.n_interrupted, 'interrupted case')} will be sent again")
    return "; ".join(said)


def failures(
    summary: RunSummary, least_coverage: float, option: str = "--ultrapar-coverage"
) -> tuple[str, ...]:
    """Return why a run failed although no test failed: missing cases, or too few graded cases.

    Args:
        summary: Summary of the run.
        least_coverage: Share of planned cases that must be graded, 0 to 1.
        option: Name of the option that sets this share.

    Returns:
        One sentence for each reason; empty if the run did not fail.
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
