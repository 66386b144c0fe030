"""What a run's coordinating process does around pytest's session, with and without xdist."""

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
from pytest_ultrapar.session import garbage, internals, reports, selection
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
"""`-qq`: nothing but pytest's own dots."""


class Coordinator:
    """The plugin that starts a run, shows it and finishes it."""

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
        """pytest's; None where nothing is shown."""
        return self.config.pluginmanager.getplugin("terminalreporter")

    @property
    def run(self) -> Run:
        """The run; there is one from the session's start on."""
        assert self._run is not None
        return self._run

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """Show that pytest collects, here or in xdist's workers."""
        # First of all: `DSession.pytest_collection` of the controller answers, which ends the call.
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
        """Show no progress, as no selected test is a case."""
        if self._live is not None:
            self._live.stop()
        if (again := selection.again(self.config)) is not None:
            self.warn(f"no selected case ended {self.run.options.only} in run {again.run_id}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Make the run's directory, start the simulated provider. Before xdist starts workers."""
        self._ctrl_c.install()
        with usage_errors():
            self._run = Run(self.config)
            try:
                self._look_at_cluster()
                # It loads pyarrow and scipy while pytest collects.
                options = self.run.options
                if options.otel:
                    from pytest_ultrapar.session.telemetry import check_installed  # noqa: PLC0415 - seldom

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
        """Find the server of a run of several hosts, before anything else takes time."""
        if self.run.options.cluster_run is None:
            return
        from pytest_ultrapar.coordinator.cluster_run import ClusterRun  # noqa: PLC0415 - seldom

        self.run.cluster = ClusterRun(self.run.options)
        self.run.cluster.look(WaitingLine(self._reporter))
        self.run.notes += self.run.cluster.warnings

    def join_cluster(self, cases: Sequence[Case]) -> None:
        """Join the other hosts, when the broker runs and before any case is dispatched.

        Raises:
            ConfigError: They run something else.
        """
        if self.run.cluster is None:
            return
        assert self.run.manifest is not None
        said = self.run.cluster.join(
            self.run.manifest,
            self.run.directory.path,
            cases,
            line=WaitingLine(self._reporter),
            status=lambda: self.status_source(),  # noqa: PLW0108 - it may be set after this
        )
        self._say(said)

    def pytest_report_header(self) -> list[str]:
        """Say what is going to happen."""
        if self._run is None:
            return []
        return [f"ultrapar: {line}" for line in header.lines(self._run)]

    def plan(self, workers: Sequence[str], cases: Sequence[Case]) -> None:
        """Make the assignment, wait for the keys, perhaps check lanes, show it, start counting.

        Called once, when the cases are known: what is wrong with a suite is said before the wait.
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
        # `-q` leaves out what pytest's header leaves out; who did not ask for silence is warned.
        self._say(f"WARNING: {line}" for line in header.warnings(self.run, workers, cases))
        if self._live is not None:
            assert self.run.manifest is not None
            self._live.asking(
                self.run.to_ask(cases),
                Counter(case.model for case in cases),
                lambda: self.status_source(),  # noqa: PLW0108 - it is set after this
                is_simulated=self.run.manifest.simulated,
                whole=lambda: None if self.run.cluster is None else self.run.cluster.whole,
            )

    def _say(self, lines: Iterable[str]) -> None:
        """Write lines as they come, unless it was asked for silence."""
        for line in lines:
            if self._reporter is not None and self.config.option.verbose > _SILENT:
                self._reporter.write_line(f"ultrapar: {line}")

    def prepare_end(self) -> None:
        """Load what only the end needs. Called when the first requests are on their way."""
        from pytest_ultrapar.coordinator import finish  # noqa: F401, PLC0415

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a case's outcome; say once that a mock was active beside requests."""
        if not self._has_seen_mock and (mock := getattr(report, reports.SEEN_MOCK, None)):
            self._has_seen_mock = True
            self.warn(
                f"{mock}: requests went past that mock, to the pool's servers; if it was to answer "
                "an episode, see docs/how-to/mocks.md"
            )
        outcome = reports.outcome_of(report)
        if outcome not in {None, TAKEN} and self._live is not None:
            self._live.count(outcome, report)
        if outcome is not None and self.run.cluster is not None:
            self.run.cluster.finished(report.nodeid, outcome)

    @pytest.hookimpl(specname="pytest_runtest_logreport", trylast=True)
    def pytest_ultrapar_last_failed(self, report: pytest.TestReport) -> None:
        """Have --lf and --ff know a case without a good end; called after pytest's own plugin."""
        note_last_failed(self.config, report, reports.outcome_of(report))

    def pytest_enter_pdb(self) -> None:
        """Leave the terminal to whoever debugs."""
        if self._live is not None:
            self._live.stop()

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(
        self, report: pytest.TestReport
    ) -> tuple[str, str, str | tuple[str, dict[str, bool]]] | None:
        """Show a case by its outcome; while the progress line is redrawn it needs no letters."""
        status = reports.status_of(report)
        if status is not None and self._live is not None and self._live.replaces_letters:
            category, _, word = status
            if not report.failed and self.config.option.verbose < 1:
                return category, "", ""
            return category, status[1], word
        return status

    @pytest.hookimpl(optionalhook=True)
    def pytest_json_modifyreport(self, json_report: dict[str, Any]) -> None:
        """Called by pytest-json-report before it writes its file."""
        use_words_of_pytest(json_report)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self) -> Generator[None, bool | None, bool | None]:
        """From the last test on, not even a first Ctrl-C must interrupt the end of the run."""
        try:
            return (yield)
        finally:
            self._ctrl_c.note_ending()

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """From now on a further Ctrl-C must not interrupt the end of the run."""
        self._ctrl_c.note_ending()
        internals.leave_out_unplaced(excinfo)

    def _end_at_once(self) -> None:
        """Leave without what is not yet written. The other processes end when this one is gone."""
        if self._run is not None and self._run.services.leave_page():
            return
        if self._run is not None:
            if self._run.services.compaction is not None:
                self._run.services.compaction.kill()
            said = (
                "ultrapar: ended before all was written; no finished episode is lost, go on with "
                f"{self._run.how_to_resume()}"
            )
            # Not through `sys.stderr`: it may be in the middle of a line.
            os.write(_STDERR_FD, f"\n{said}\n".encode())
        os._exit(pytest.ExitCode.INTERRUPTED)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the results, judge them; when workers are gone, before pytest's summary."""
        # Last of all: `DSession.pytest_sessionfinish` has ended the workers by then, and nobody
        # appends to the journal any more. `TerminalReporter.pytest_sessionfinish`, a wrapper, shows
        # pytest's summary after us.
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
                    meanwhile=partial(garbage.spare_reports, self.config),
                    tell=self.warn,
                )
                self._tell_of(self._finished, session)
                # `_pytest.main.wrap_session` reads what pytest ends with after this hook.
                if session.exitstatus == pytest.ExitCode.OK and self._finished.failures:
                    session.exitstatus = pytest.ExitCode.TESTS_FAILED
        finally:
            if self._live is not None:
                self._live.stop()
            self.run.close()

    def _tell_of(self, finished: FinishedRun, session: pytest.Session) -> None:
        try:
            self.config.hook.pytest_ultrapar_finish(run=finished)
        except Exception:  # noqa: BLE001 - whatever a plugin raises; the results are there
            # pytest itself would let it end the process, with a traceback that nobody masks.
            self.config.notify_exception(pytest.ExceptionInfo.from_current(), self.config.option)
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR

    def _tables_written(self, done: int, total: int) -> None:
        if self._live is not None:
            self._live.tables_written(done, total)

    def warn(self, sentence: str) -> None:
        """Say something while the run goes on, on a line of its own."""
        if self._reporter is not None:
            self._reporter.ensure_newline()
            self._reporter.write_line(f"ultrapar: {sentence}", yellow=True)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what has happened."""
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
        """Leave no process behind, however the session ended."""
        if self._live is not None:
            self._live.stop()
        if self._run is not None:
            self._run.close()
        self._ctrl_c.remove()
        self._merge_hosts()

    def _merge_hosts(self) -> None:
        """Where this is the last host of a run, and all are here, make one run of them.

        Of a shard the hosts are not all: nobody knows when the other shards will be done.
        """
        cluster = None if self._run is None else self._run.cluster
        if self._run is None or cluster is None or cluster.shard or not cluster.is_elected:
            return
        if self._finished is None or self._finished.summary is None:
            return
        from pytest_ultrapar.coordinator.joint_merge import merge_hosts  # noqa: PLC0415 - seldom

        directory = self._run.directory
        merge_hosts(
            cluster.address,
            cluster.name,
            directory.path,
            directory.runs_beside(),
            self._reporter.write_line if self._reporter is not None else lambda _: None,
        )
