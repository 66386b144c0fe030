"""The coordinating process before and after the tests run, with or without xdist."""

from __future__ import annotations

import os
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from pytest_ultrapar.broker.protocol import TAKEN
from pytest_ultrapar.coordinator import header
from pytest_ultrapar.coordinator.live import LiveProgress
from pytest_ultrapar.coordinator.run import Run
from pytest_ultrapar.report.wait_notice import WaitingLine
from pytest_ultrapar.session import garbage_collection, internals, reports, selection
from pytest_ultrapar.session.ctrl_c import CtrlC
from pytest_ultrapar.session.options import usage_errors
from pytest_ultrapar.session.other_plugins import note_last_failed, use_words_of_pytest
from pytest_ultrapar.system.clock import boot_s

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    from pytest_ultrapar.broker.protocol import BrokerStatus
    from pytest_ultrapar.coordinator.finish import FinishedRun
    from pytest_ultrapar.coordinator.run_gate import RunGate
    from pytest_ultrapar.records import Case


_STDERR_FD = 2
_SILENT = -2
"""The verbosity with `-qq`: at this level, only pytest's own dots are shown."""


class Coordinator:
    """The plugin that starts a run, shows its progress and finishes it."""

    def __init__(self, config: pytest.Config, gate: RunGate | None = None) -> None:
        self.config = config
        self._gate = gate
        self._run: Run | None = None
        self._live: LiveProgress | None = None
        self._has_seen_mock = False
        self._finished: FinishedRun | None = None
        self._ctrl_c = CtrlC(self._end_at_once)
        self.status_source: Callable[[], BrokerStatus | None] = lambda: None

    @property
    def _reporter(self) -> Any:  # noqa: ANN401 - pytest's is also a `Screen`
        """The terminal reporter of pytest; None if pytest shows nothing."""
        return self.config.pluginmanager.getplugin("terminalreporter")

    @property
    def run(self) -> Run:
        """The run; it exists once the session has started."""
        assert self._run is not None
        return self._run

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """Show that pytest or xdist's workers are collecting."""
        # This implementation runs first, because the controller's `DSession.pytest_collection`
        # returns a result, so pytest calls no implementation after it.
        reporter = self._reporter
        if reporter is None or self.config.option.verbose <= _SILENT:
            return
        self.run.collecting_since_s = boot_s()
        collects_here = not self.config.pluginmanager.hasplugin("dsession")
        if self.run.options.live == "off":
            return
        self._live = LiveProgress(reporter, counts_items=collects_here, live=self.run.options.live)
        self._live.collecting(self.run.collected_before())

    def plan_nothing(self) -> None:
        """Hide the progress, because no selected test is a case."""
        if self._live is not None:
            self._live.stop()
        if (again := selection.again(self.config)) is not None:
            self.warn(f"no selected case ended as {self.run.options.only} in run {again.run_id}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Create the run's directory and start the simulator before xdist starts workers."""
        self._ctrl_c.install()
        with usage_errors():
            self._run = Run(self.config)
            try:
                self._look_at_cluster()
                # Start the compactor now, so that it loads pyarrow and scipy while pytest collects.
                options = self.run.options
                if options.otel:
                    from pytest_ultrapar.session.telemetry import check_installed  # noqa: PLC0415 - rare

                    check_installed()
                self.run.services.start_compactor(
                    self.config.invocation_params.dir, page=options.report == "html"
                )
                if self.run.source.sends:
                    self.run.services.start_simulator(options.simulator, options.faults)
            except BaseException:
                self.run.close()
                raise

    def _look_at_cluster(self) -> None:
        """Check the server of a cluster run first, before any slow step."""
        if self.run.options.cluster_run is None:
            return
        from pytest_ultrapar.coordinator.cluster_run import ClusterRun  # noqa: PLC0415 - rare

        self.run.cluster = ClusterRun(self.run.options)
        self.run.cluster.check_server(WaitingLine(self._reporter))
        self.run.notes += self.run.cluster.warnings

    def join_cluster(self, cases: Sequence[Case]) -> None:
        """Join the other hosts after the broker has started and before any case is dispatched.

        Raises:
            ConfigError: The other hosts run a different suite or use different settings.
        """
        if self.run.cluster is None:
            return
        assert self.run.manifest is not None
        said = self.run.cluster.join(
            self.run.manifest,
            self.run.directory.path,
            cases,
            line=WaitingLine(self._reporter),
            status=lambda: self.status_source(),  # noqa: PLW0108 - it may be set later
        )
        self._say(said)

    def pytest_report_header(self) -> list[str]:
        """The lines that describe the run."""
        if self._run is None:
            return []
        return [f"ultrapar: {line}" for line in header.lines(self._run)]

    def plan(self, workers: Sequence[str], cases: Sequence[Case]) -> None:
        """Plan the run: assign cases, take the keys, check lanes if requested, and print the plan.

        After that, show the progress. Called once, when the cases are known. Errors in the suite
        are reported before the run waits for keys.
        """
        if self._gate is not None:
            self._gate.check_cases(cases)
        assignment = self.run.assign(workers, cases)
        self.run.keep_keys(cases, WaitingLine(self._reporter))
        self._say(self.run.check_lanes(cases, WaitingLine(self._reporter)))
        self.run.write_plan(cases)
        if self._reporter is None:
            return
        if self.config.option.verbose >= 0:
            self._say(header.assignment_lines(self.run, assignment, workers, cases))
        # `-q` hides the assignment, as it hides pytest's header, but not the warnings.
        self._say(f"WARNING: {line}" for line in header.warnings(self.run, workers, cases))
        if self._live is not None:
            assert self.run.manifest is not None
            self._live.asking(
                self.run.to_ask(cases),
                Counter(case.model for case in cases),
                lambda: self.status_source(),  # noqa: PLW0108 - it is set later
                is_simulated=self.run.manifest.simulated,
                whole=lambda: None if self.run.cluster is None else self.run.cluster.whole,
            )

    def _say(self, lines: Iterable[str]) -> None:
        """Print each line as soon as it exists, except with `-qq`."""
        for line in lines:
            if self._reporter is not None and self.config.option.verbose > _SILENT:
                self._reporter.write_line(f"ultrapar: {line}")

    def prepare_end(self) -> None:
        """Load the modules that end the run. Called when the first requests are in flight."""
        from pytest_ultrapar.coordinator import finish  # noqa: F401, PLC0415

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a case's outcome. Warn once if a mock was active while requests were sent."""
        if not self._has_seen_mock and (mock := getattr(report, reports.SEEN_MOCK, None)):
            self._has_seen_mock = True
            self.warn(
                f"{mock}: requests did not use that mock but went to the pool's servers; if the "
                "mock should answer an episode's requests, see docs/how-to/mocks.md"
            )
        outcome = reports.outcome_of(report)
        if outcome not in {None, TAKEN} and self._live is not None:
            self._live.count(outcome, report)
        if outcome is not None and self.run.cluster is not None:
            self.run.cluster.finished(report.nodeid, outcome)

    @pytest.hookimpl(specname="pytest_runtest_logreport", trylast=True)
    def pytest_ultrapar_last_failed(self, report: pytest.TestReport) -> None:
        """Record cases that did not succeed, for --lf and --ff. Called after pytest's own hook."""
        note_last_failed(self.config, report, reports.outcome_of(report))

    def pytest_enter_pdb(self) -> None:
        """Leave the terminal to the debugger."""
        if self._live is not None:
            self._live.stop()

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(
        self, report: pytest.TestReport
    ) -> tuple[str, str, str | tuple[str, dict[str, bool]]] | None:
        """Show a case's outcome.

        While the progress replaces pytest's letters, only failed cases get one, unless `-v` is set.
        """
        status = reports.status_of(report)
        if status is not None and self._live is not None and self._live.replaces_letters:
            category, _, word = status
            if not report.failed and self.config.option.verbose < 1:
                return category, "", ""
            return category, status[1], word
        return status

    @pytest.hookimpl(optionalhook=True)
    def pytest_json_modifyreport(self, json_report: dict[str, Any]) -> None:
        """Use pytest's words for outcomes. Called before pytest-json-report writes its file."""
        use_words_of_pytest(json_report)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self) -> Generator[None, bool | None, bool | None]:
        """After the last test, protect the end of the run from any Ctrl-C, even the first one."""
        try:
            return (yield)
        finally:
            self._ctrl_c.note_ending()

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Protect the end of the run from another Ctrl-C."""
        self._ctrl_c.note_ending()
        internals.drop_frames_without_line(excinfo)

    def _end_at_once(self) -> None:
        """End without writing the remaining results. The run's other processes then end as well."""
        if self._run is not None and self._run.services.leave_page():
            return
        if self._run is not None:
            if self._run.services.compaction is not None:
                self._run.services.compaction.kill()
            said = (
                "ultrapar: ended before all results were written; no finished episode is lost; "
                f"continue with {self._run.how_to_resume()}"
            )
            # Do not use `sys.stderr`, which may be in the middle of a line.
            os.write(_STDERR_FD, f"\n{said}\n".encode())
        os._exit(pytest.ExitCode.INTERRUPTED)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """After the workers have ended, write the results and check the rules of the gate."""
        # This implementation runs last: `DSession.pytest_sessionfinish` has then ended the workers,
        # so no process appends to the journal. pytest's summary comes afterwards, because
        # `TerminalReporter.pytest_sessionfinish` is a wrapper.
        if self._run is None:
            return
        if self.run.cluster is not None:
            self.run.cluster.leave()
        try:
            if self.run.manifest is not None and self.run.is_part:
                from pytest_ultrapar.coordinator import finish  # noqa: PLC0415 - see `prepare_end`

                if self._live is not None:
                    self._live.writing_tables()
                stopped = session.exitstatus == pytest.ExitCode.INTERRUPTED or bool(
                    session.shouldfail or session.shouldstop
                )
                self._finished = finish.finish(
                    self.run,
                    self._gate,
                    stopped=stopped,
                    at_failure=0 < (self.config.option.maxfail or 0) <= session.testsfailed,
                    written=self._tables_written,
                    meanwhile=partial(garbage_collection.spare_reports, self.config),
                    tell=self.warn,
                )
                self._tell_of(self._finished, session)
                # `_pytest.main.wrap_session` reads the exit code after this hook.
                if session.exitstatus == pytest.ExitCode.OK and self._finished.failures:
                    session.exitstatus = pytest.ExitCode.TESTS_FAILED
        finally:
            if self._live is not None:
                self._live.stop()
            self.run.close()

    def _tell_of(self, finished: FinishedRun, session: pytest.Session) -> None:
        try:
            self.config.hook.pytest_ultrapar_finish(run=finished)
        except Exception:  # noqa: BLE001 - any error of a plugin; the results are already written
            # pytest would end the process with a traceback in which secrets are not masked.
            self.config.notify_exception(pytest.ExceptionInfo.from_current(), self.config.option)
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR

    def _tables_written(self, done: int, total: int) -> None:
        if self._live is not None:
            self._live.tables_written(done, total)

    def warn(self, sentence: str) -> None:
        """Print a sentence during the run, on a line of its own."""
        if self._reporter is not None:
            self._reporter.ensure_newline()
            self._reporter.write_line(f"ultrapar: {sentence}", yellow=True)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show the results."""
        if self._finished is None:
            return
        from pytest_ultrapar.coordinator import finish  # noqa: PLC0415 - as above

        if self.config.option.verbose > _SILENT:
            reports.list_cases(terminalreporter)
            finish.show(self.run, self._finished, terminalreporter)
        else:
            finish.show_failures(self._finished, terminalreporter)

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """Stop all processes of the run, no matter how the session ended."""
        if self._live is not None:
            self._live.stop()
        if self._run is not None:
            self._run.close()
        self._ctrl_c.remove()
        self._merge_hosts()

    def _merge_hosts(self) -> None:
        """On the last host, merge the directories of all hosts, if all of them are on this machine.

        Do not merge a shard: the run is incomplete until the other shards end, which may be much
        later.
        """
        cluster = None if self._run is None else self._run.cluster
        if self._run is None or cluster is None or cluster.shard or not cluster.is_elected:
            return
        if self._finished is None or self._finished.summary is None:
            return
        from pytest_ultrapar.coordinator.host_merge import merge_hosts  # noqa: PLC0415 - rare

        directory = self._run.directory
        merge_hosts(
            cluster.address,
            cluster.name,
            directory.path,
            directory.runs_beside(),
            self._reporter.write_line if self._reporter is not None else lambda _: None,
        )
