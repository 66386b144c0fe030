"""Turn pytest's reports of a case into a measurement, and decide how they are shown."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from pytest_ultrapar.broker.protocol import TAKEN
from pytest_ultrapar.errors import ResultsError
from pytest_ultrapar.records import Grade, Outcome
from pytest_ultrapar.report.text import harmless
from pytest_ultrapar.session import internals, own_imports, prefetch
from pytest_ultrapar.session.collection import parameter
from pytest_ultrapar.session.compatibility import is_of_subtest
from pytest_ultrapar.session.graders import GraderEnded
from pytest_ultrapar.session.grading import Grader
from pytest_ultrapar.session.masking import redact
from pytest_ultrapar.session.other_plugins import (
    CaseProperties,
    is_shown_as_expected,
    set_properties,
    show_as_expected,
)
from pytest_ultrapar.system.clock import utc_now_us

if TYPE_CHECKING:
    from collections.abc import Generator

    from pytest_ultrapar.session.prefetch import CaseState
    from pytest_ultrapar.session.prefetcher import Prefetcher


OUTCOME = "ultrapar_outcome"
"""Attribute of the report that decides a case's outcome: that outcome, or `TAKEN` if another host
has the case. It is a plain str, so that xdist can send it."""
N_READY = "ultrapar_n_ready"
"""Attribute of a case's last report: `Prefetcher.n_ready`, for the controller."""
SEEN_MOCK = "ultrapar_seen_mock"
"""Attribute of a case's last report: `Prefetcher.seen_mock`."""
_LONGEST_ERROR = 2000
"""The maximum number of characters of a case's error in the tables."""
_OUTCOMES = frozenset({"passed", "failed", "skipped"})
"""Only reports with these outcomes are used. Plugins that run a test again give other outcomes to
the test's earlier reports.
"""
ALLURE_LISTENER = "allure_listener"
"""Name of allure-pytest's plugin that writes results (`allure_pytest.plugin`, 2.16)."""


def register_reports(config: pytest.Config, prefetcher: Prefetcher) -> None:
    """Register `CaseReports`, and plugins for allure and telemetry. Called once in each process."""
    reports = CaseReports(prefetcher)
    config.pluginmanager.register(reports, "ultrapar-reports")
    if config.pluginmanager.hasplugin(ALLURE_LISTENER):
        from pytest_ultrapar.session.allure import AllureResults  # noqa: PLC0415 - with it only

        config.pluginmanager.register(AllureResults(config, reports.shown), "ultrapar-allure")
    runtime = prefetcher.runtime
    if runtime.options.otel:
        from pytest_ultrapar.session.telemetry import Telemetry  # noqa: PLC0415 - as above

        telemetry = Telemetry(runtime.directory, runtime.worker, runtime.redactor.text)
        config.pluginmanager.register(telemetry, "ultrapar-telemetry")


class CaseReports:
    """Turns pytest's reports of cases into grades, and masks secrets in the reports."""

    def __init__(self, prefetcher: Prefetcher) -> None:
        self._prefetcher = prefetcher
        self._runtime = prefetcher.runtime
        self._properties = CaseProperties(prefetcher.runtime.directory)
        self._shows_fixtures = internals.shows_fixtures(prefetcher.runtime.config)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        """Make pytest also show warnings that were raised in episodes."""
        with internals.recorded_warnings(self._runtime.config):
            return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Give the item its episode before fixtures are set up.

        Called on the main thread, for each item.
        """
        own_imports.keep_from_fakes()
        try:
            state = self._prefetcher.begin_item(item)
        except ResultsError as error:
            # The journal cannot be read, so further results cannot be stored either.
            item.session.shouldstop = f"pytest-ultrapar: {error}"
            pytest.fail(str(error), pytrace=False)
        ended = state.ended if state is not None and not state.is_again else None
        if state is not None and ended is not None:
            # Print the output now, while pytest captures it or shows it (`-s`).
            if ended.stdout and not state.prefetched.is_test:
                sys.stdout.write(harmless(ended.stdout))
            if ended.log:
                when = "call" if state.prefetched.is_test else "setup"
                item.add_report_section(when, "log", ended.log)
        if not self._shows_fixtures:
            internals.hand_over(item, {} if state is None else _ready_values(item, state))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        """End the episodes if pytest is about to tear down the session.

        Called on the main thread, for each item. With `-x`, pytest tears down the session together
        with the item that failed.
        """
        if nextitem is None:
            self._prefetcher.end_episodes(item.session)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Mark the report that decides the case's outcome, and write the grade after teardown.

        Called on the main thread, three times per item.
        """
        # Do this before the report is made, because plugins read a test's output from the item.
        text = self.shown if self._prefetcher.state_of(item) else self._runtime.redactor.text
        internals.mask_sections(item, text)
        report = yield
        state = self._prefetcher.state_of(item)
        if state is not None and state.calling:
            _note_subtest(state, call, report)
        elif state is not None:
            self._judge(item, state, call, report)
        redact(report, self._runtime.config, text)
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None]:
        """Mark that a test's body is running: until the body ends, reports belong to subtests."""
        state = self._prefetcher.state_of(item)
        if state is None:
            return (yield)
        state.calling = True
        try:
            return (yield)
        except BaseException as error:
            state.raised = error
            raise
        finally:
            state.calling = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Mask the reports that were still incomplete when pytest made them.

        The output of a subtest is added after the subtest's report was made. A plugin that runs a
        test again may do so while the report is being made. It may then log the first report with
        an outcome that the plugin defines.
        """
        if is_of_subtest(report) or report.outcome not in _OUTCOMES:
            text = self.shown if prefetch.state else self._runtime.redactor.text
            redact(report, self._runtime.config, text)

    def shown(self, text: str) -> str:
        """A case's text for display, without control characters that a model may have written."""
        return harmless(self._runtime.redactor.text(text))

    def _first_line(self, report: pytest.TestReport) -> str:
        text = report.longreprtext.strip()
        crash = getattr(getattr(report.longrepr, "reprcrash", None), "message", None)
        # The report of an unknown fixture ends with a place instead of the error
        # (`FixtureLookupErrorRepr`).
        unknown = getattr(report.longrepr, "errorstring", "").split("\n", 1)[0]
        # A message about an episode begins with the error, and a traceback ends with it.
        lines = text.splitlines() or ["failed"]
        said = crash or unknown or lines[0 if isinstance(report.longrepr, str) else -1]
        return self.shown(said)[:_LONGEST_ERROR]

    def _judge(
        self,
        item: pytest.Item,
        state: CaseState,
        call: pytest.CallInfo[None],
        report: pytest.TestReport,
    ) -> None:
        error = call.excinfo.value if call.excinfo is not None else None
        if report.when == "call" and state.is_again:
            # `call` may belong to an earlier run of the test.
            error = state.raised or error
        if report.passed:
            error = None
        if isinstance(error, prefetch.EpisodeError):
            report.longrepr = str(error)
        if state.n_subtests_failed and report.when == "call":
            error = error or state.subtest_error
            if report.passed:
                # `_pytest.subtests.pytest_report_teststatus` does the same, but later, when it
                # shows the report.
                plural = "s" if state.n_subtests_failed > 1 else ""
                report.outcome = "failed"
                report.longrepr = f"contains {state.n_subtests_failed} failed subtest{plural}"
        if report.when == "call" or (report.when == "setup" and not report.passed):
            if _is_taken(state):
                setattr(report, OUTCOME, TAKEN)
                return
            state.outcome = _outcome(state, report, error)
            failed_before = isinstance(error, prefetch.EpisodeError)
            state.test = _test_word(report, failed_before=failed_before)
            state.error = self._first_line(report) if report.failed else None
            setattr(report, OUTCOME, state.outcome)
            self._show(item, state, report)
        if report.when == "teardown":
            if report.failed:
                state.test, state.error = "error", self._first_line(report)
            self._write(item, state)
            setattr(report, N_READY, self._prefetcher.n_ready())
            setattr(report, SEEN_MOCK, self._prefetcher.seen_mock)

    def _show(self, item: pytest.Item, state: CaseState, report: pytest.TestReport) -> None:
        """Show the outcome of a case to pytest and other plugins."""
        ended = state.ended
        # Set the episode's duration for `--durations` and junit files: the item itself takes almost
        # no time.
        if ended is not None:
            report.duration += ended.duration_s
        outcome, kind, scores = state.outcome or "error", _kind(state), state.graded.scores
        labels = self._labels(state)
        show_as_expected(report, outcome, kind, scores)
        found = self._properties.of(
            case_id=state.case_id,
            model=str(parameter(item, "model")),
            outcome=outcome,
            kind=kind,
            scores=scores,
            labels=labels,
            attempts=ended.own_attempts if ended is not None else (),
        )
        # junit files use the teardown's report, whose properties come from the item.
        for properties in (item.user_properties, report.user_properties):
            set_properties(properties, found)

    def _reason(self, state: CaseState) -> str | None:
        reason = state.graded.reason
        return self._runtime.redactor.text(reason)[:_LONGEST_ERROR] if reason else None

    def _labels(self, state: CaseState) -> dict[str, str]:
        plain, labels = self._runtime.redactor.text, state.graded.labels
        return {plain(name): plain(text)[:_LONGEST_ERROR] for name, text in labels.items()}

    def _write(self, item: pytest.Item, state: CaseState) -> None:
        if _is_taken(state):
            # The other host writes the row of the case.
            prefetch.state = None
            return
        ended = state.ended
        grade = Grade(
            case_id=state.case_id,
            worker=self._runtime.worker,
            outcome=state.outcome or "error",
            test=state.test or "error",
            at_us=utc_now_us(),
            kind=_kind(state),
            scores=state.graded.scores,
            error=state.error or (ended.detail if ended else None),
            reason=self._reason(state),
            labels=self._labels(state),
        )
        try:
            self._runtime.journal.append(grade)
        except ResultsError as error:
            # Send no further cases: their results cost money, but cannot be stored.
            item.session.shouldstop = f"pytest-ultrapar: {error}"
            return
        hook = item.ihook
        # If a test ran again, the second run sent no requests.
        for attempt in ended.attempts if ended is not None and not state.is_again else ():
            hook.pytest_ultrapar_attempt(record=attempt)
        hook.pytest_ultrapar_case(record=grade)
        prefetch.state = None


def _ready_values(item: pytest.Item, state: CaseState) -> dict[str, object]:
    """The values of this plugin's fixtures.

    If getting a value raises an error, the value is left out, and pytest sets up that fixture.
    """
    values: dict[str, object] = {}
    grade = internals.fixture_definition(item, "grade")
    if prefetch.is_ours(grade, "grade"):
        values["grade"] = Grader(state)
    if state.prefetched.is_test:
        values["llm"] = None  # only the body uses it
    elif state.ended is not None and state.ended.ending == "returned":
        with suppress(prefetch.EpisodeError):
            values[state.prefetched.name] = prefetch.take_value(state.prefetched)
    return values


def _note_subtest(state: CaseState, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
    if not report.failed or call.excinfo is None:
        return
    state.n_subtests_failed += 1
    error = call.excinfo.value
    if state.subtest_error is None or isinstance(state.subtest_error, prefetch.WRONG_ANSWERS):
        state.subtest_error = error


def _is_taken(state: CaseState) -> bool:
    """Whether the case was interrupted here because another host has it.

    Cases that were interrupted for another reason get no report.
    """
    return state.ended is not None and state.ended.ending == "interrupted"


def _outcome(state: CaseState, report: pytest.TestReport, error: BaseException | None) -> Outcome:
    ending = None if state.ended is None else state.ended.ending
    if ending == "infra":
        return "infra"
    if ending == "refused" or isinstance(error, GraderEnded):
        return "unsolved"
    if report.when == "setup":
        by_mark = isinstance(error, pytest.skip.Exception | pytest.xfail.Exception)
        return "skipped" if by_mark else "error"
    if report.skipped and not hasattr(report, "wasxfail"):
        return "skipped"
    is_wrong = isinstance(error, prefetch.WRONG_ANSWERS) and not internals.could_not_run(error)
    if error is not None and not is_wrong:
        return "error"
    return state.graded.outcome or ("unsolved" if error is not None else "solved")


def _kind(state: CaseState) -> str | None:
    if state.ended is not None and state.ended.ending != "returned":
        return state.ended.kind
    return state.graded.kind


def _test_word(report: pytest.TestReport, *, failed_before: bool) -> str:
    """The result of a test in pytest's words; `error` if its episode had failed before."""
    if hasattr(report, "wasxfail"):
        return "xpassed" if report.passed else "xfailed"
    if report.failed and (failed_before or report.when == "setup"):
        return "error"
    return report.outcome


def outcome_of(report: pytest.TestReport) -> str | None:
    """The case's outcome, or `TAKEN`, if this report decides it; otherwise None."""
    outcome: str | None = getattr(report, OUTCOME, None)
    return outcome if report.outcome in _OUTCOMES else None


def status_of(
    report: pytest.TestReport,
) -> tuple[str, str, str | tuple[str, dict[str, bool]]] | None:
    """The category, letter and word for a case's report; None means pytest's own.

    Called in the controller (or the only process) for every report.
    """
    outcome = outcome_of(report)
    if outcome is None or (hasattr(report, "wasxfail") and not is_shown_as_expected(report)):
        return None
    if report.failed:
        # Any exception except a failed assertion is an error in the suite, even in the body of a
        # test.
        return ("error", "E", "ERROR") if outcome == "error" else None
    if outcome in {"skipped", TAKEN}:
        return None
    letter, markup = _SHOWN[outcome]
    return outcome, letter, (outcome.upper(), markup)


_SHOWN: dict[str, tuple[str, dict[str, bool]]] = {
    "solved": (".", {"green": True}),
    "partial": ("p", {"yellow": True}),
    "unsolved": ("u", {"yellow": True}),
    "scored": (".", {"green": True}),
    "infra": ("i", {"red": True}),
    "error": ("E", {"red": True}),
}


_MOST_LISTED = 20
_LISTED = {"f": ("unsolved", "partial", "infra"), "p": ("solved",)}


def list_cases(reporter: pytest.TerminalReporter) -> None:
    """List cases by outcome, if `-rf`, `-ra`, `-rA` or `-rp` requests such a list."""
    # By default, pytest would list too many cases of an evaluation.
    if reporter.config.option.reportchars != "fE":
        for word in (word for char in reporter.reportchars for word in _LISTED.get(char, ())):
            reports = reporter.stats.get(word, [])
            for report in reports[:_MOST_LISTED]:
                reporter.write_line(f"{word.upper()} {report.nodeid}")
            if n_more := len(reports[_MOST_LISTED:]):
                reporter.write_line(f"{word.upper()} {n_more:,} more: see ultrapar show latest")
