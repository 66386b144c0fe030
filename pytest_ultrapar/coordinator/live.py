"""The progress of a run: a live view on a terminal, otherwise a line from time to time."""

from __future__ import annotations

import math
import os
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pytest_ultrapar.analysis.plan.eta import EndEstimates, ToAsk, UseSamples, estimate
from pytest_ultrapar.broker.protocol import BrokerStatus
from pytest_ultrapar.coordinator.shared_terminal import SharedTerminal
from pytest_ultrapar.report import live_view, progress
from pytest_ultrapar.report.cluster_progress import ClusterProgress, share_words, waits_words
from pytest_ultrapar.session import internals
from pytest_ultrapar.system.clock import boot_s

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from pytest_ultrapar.pool.settings import Live
    from pytest_ultrapar.report.live_screen import LiveScreen


_LOOK_S = 0.5
"""Seconds between two reads of the broker's status. The status is read even if no line is printed,
because an estimate is based on statuses from the second half of the elapsed time."""
_WIDE = 160
"""The width of a progress line if there is no terminal. Such a line is never redrawn."""
_MOST_LINES = 24
_PYTESTS_LINES = 6
"""How many lines on a terminal stay free for pytest's output."""
_ESTIMATE_S = 1.0
_ESTIMATE_SHARE = 0.05
"""The maximum share of the progress thread's time that estimates may take. An estimate for 300
different lanes takes 0.5 s."""


class LiveProgress:
    """Shows progress from its own thread, because xdist calls no hook while workers are silent.

    Each step of a run has its own line: collecting; sending and grading; writing tables. On a
    terminal, a live view of lanes, models and failures replaces the line for sending and grading.
    """

    def __init__(
        self, reporter: pytest.TerminalReporter, *, counts_items: bool, live: Live = "auto"
    ) -> None:
        """Prepare, but show nothing yet.

        Args:
            reporter: The terminal reporter of pytest.
            counts_items: Whether pytest collects in this process. If so, pytest itself shows the
                progress of the collection on a terminal.
            live: The value of `--ultrapar-live`.
        """
        self._terminal = SharedTerminal(reporter.config.get_terminal_writer())
        self._tally = CaseCounter()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._tick, name="ultrapar-progress", daemon=True)
        self._on_terminal = _can_draw(reporter)
        self._undo: Callable[[], None] = lambda: None
        if self._on_terminal:
            self._undo = internals.around_open_terminal(reporter.config, self._terminal.lent)
        self._has_view = self._on_terminal and live == "auto" and _has_room_for_a_view(reporter)
        self._colour = bool(reporter.hasmarkup)
        self._counts_items = counts_items
        self._began_s = boot_s()
        self._line: Callable[[float, int], str | None] = lambda _now_s, _width: None
        # Reads the status; returns whether to print a line immediately.
        self._look: Callable[[float], bool] = lambda _now_s: False
        self._view: Callable[[float], live_view.LiveView | None] | None = None
        self._screen: LiveScreen | None = None
        self._tables = (0, 0)

    @property
    def replaces_letters(self) -> bool:
        """Whether the progress is redrawn on a terminal and replaces pytest's letters."""
        return self._on_terminal and not self._stopped.is_set()

    def collecting(self, before: tuple[float, int] | None) -> None:
        """Start to show progress, beginning with the collection.

        Args:
            before: How many seconds the collection took in the previous run, and how many cases it
                found.
        """
        self._began_s = began_s = boot_s()
        if not (self._on_terminal and self._counts_items):
            self._line = lambda now_s, width: progress.collecting_line(
                now_s - began_s, before, width
            )
        self._thread.start()

    def asking(
        self,
        to_ask: ToAsk,
        planned: Mapping[str, int],
        status: Callable[[], BrokerStatus | None],
        *,
        is_simulated: bool,
        whole: Callable[[], ClusterProgress | None] = lambda: None,
    ) -> None:
        """Show the progress of the planned cases.

        Args:
            to_ask: The work of this session.
            planned: The number of cases by model, including cases that need no episode.
            status: Returns the broker's status; called on this object's thread.
            is_simulated: Whether any answer comes from the simulated provider.
            whole: Returns the state of a cluster run; called on this object's thread.
        """
        self._terminal.clear()
        asking = _Asking(to_ask, planned, status, self._tally, is_simulated, whole)
        # The thread may run between these assignments. That is safe: until it has read the status,
        # the line is empty.
        self._line, self._look = asking.line, asking.read_status
        if self._has_view:
            self._view = asking.view

    def writing_tables(self) -> None:
        """Show how many cases are in the tables."""
        began_s = boot_s()
        self._look, self._view = lambda _now_s: False, None
        self._line = lambda now_s, width: (
            progress.tables_line(*self._tables, now_s - began_s, width) if self._tables[1] else None
        )

    def tables_written(self, done: int, total: int) -> None:
        """Record how many cases are in the tables."""
        self._tables = (done, total)

    def count(self, outcome: str, report: pytest.TestReport) -> None:
        """Count a graded case. Call this on the main thread."""
        self._tally.count(outcome, report)

    def stop(self) -> None:
        """Stop, and give the terminal back to pytest. Idempotent."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
        self._undo()
        self._terminal.close()

    def _tick(self) -> None:
        while True:
            try:
                return self._show()
            except Exception as error:  # noqa: BLE001 - the run continues and shows less
                if self._view is None:
                    name = type(error).__name__
                    return self._terminal.line(f"ultrapar: progress is no longer shown ({name})")
                self._view, self._has_view = None, False

    def _show(self) -> None:
        next_s = 0.0 if self._on_terminal else boot_s() + progress.next_line_s(0.0)
        while not self._stopped.wait(min(_LOOK_S, max(0.0, next_s - boot_s()))):
            now_s = boot_s()
            if not self._look(now_s) and now_s < next_s:
                continue
            if self._on_terminal:
                next_s = now_s + _LOOK_S
                self._terminal.draw(self._drawn(now_s))
                continue
            next_s = now_s + progress.next_line_s(now_s - self._began_s)
            line = self._line(now_s, _WIDE)
            if line is not None:
                self._terminal.line(line)

    def _drawn(self, now_s: float) -> list[str]:
        columns, lines = self._terminal.size
        view = self._view(now_s) if self._view is not None else None
        n_lines = min(lines - _PYTESTS_LINES, _MOST_LINES)
        if view is not None and n_lines > 1:
            return self._draw_with().lines(view, columns - 1, n_lines)
        line = self._line(now_s, columns - 1)
        return [] if line is None else [line]

    def _draw_with(self) -> LiveScreen:
        if self._screen is None:
            from pytest_ultrapar.report.live_screen import LiveScreen  # noqa: PLC0415 - rich

            self._screen = LiveScreen(colour=self._colour, encoding=self._terminal.encoding)
        return self._screen


def _can_draw(reporter: pytest.TerminalReporter) -> bool:
    """Whether the terminal can redraw lines, and no other program writes between them."""
    return (
        bool(reporter.isatty)
        and os.environ.get("TERM", "dumb") != "dumb"
        # With any other value, the output of tests and of programs that they start goes to the
        # terminal.
        and reporter.config.getoption("capture", "fd") == "fd"
        # pytest-sugar redraws its own lines.
        and not reporter.config.pluginmanager.hasplugin("sugar")
    )


def _has_room_for_a_view(reporter: pytest.TerminalReporter) -> bool:
    """Whether `-q` was not given and rich is installed."""
    return reporter.config.get_verbosity() >= 0 and find_spec("rich") is not None


class CaseCounter:
    """Counts finished cases. The main thread updates it, and the progress thread reads it.

    Attributes:
        counts: The number of cases by outcome.
        by_model: The number of cases by model and outcome.
        failures: The most recent failures, newest first.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.by_model: Counter[tuple[str, str]] = Counter()
        self.failures: deque[live_view.Failure] = deque(maxlen=live_view.MOST_FAILURES)
        self._costs: defaultdict[str, float] = defaultdict(float)
        self._currency: str | None = None

    def count(self, outcome: str, report: pytest.TestReport) -> None:
        """Count a case, whose outcome this report determines."""
        own = dict(report.user_properties)
        model = str(own.get("ultrapar.model", ""))
        self.counts[outcome] += 1
        self.by_model[model, outcome] += 1
        cost = own.get("ultrapar.cost")
        if isinstance(cost, float):
            self._costs[model] += cost
            self._currency = str(own.get("ultrapar.currency", ""))
        if report.failed or outcome in {"infra", "error"}:
            shown = outcome if outcome in {"infra", "error"} else "failed"
            self.failures.appendleft(live_view.Failure(report.nodeid, shown, _reason(report)))

    def spent(self, planned: Mapping[str, int]) -> live_view.Spent | None:
        """The cost of the cases so far; None if no price is known."""
        if self._currency is None:
            return None
        costs = self._costs.copy()
        done: Counter[str] = Counter()
        for (model, _), n in self.by_model.copy().items():
            done[model] += n
        whole = live_view.projected(costs, done, planned)
        return live_view.Spent(sum(costs.values()), whole, self._currency)


def _reason(report: pytest.TestReport) -> str:
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2]
    crash = getattr(getattr(report.longrepr, "reprcrash", None), "message", "")
    lines = (crash or report.longreprtext).strip().splitlines()
    return lines[0] if lines else ""


@dataclass(eq=False, repr=False)
class _Asking:
    """Reads the broker's status and estimates the remaining time. Use it on one thread only."""

    to_ask: ToAsk
    planned: Mapping[str, int]
    status: Callable[[], BrokerStatus | None]
    tally: CaseCounter
    is_simulated: bool
    whole: Callable[[], ClusterProgress | None] = lambda: None

    def __post_init__(self) -> None:
        self._limits = {limit.name: limit for limit in self.to_ask.limits}
        self._kept: Sequence[BrokerStatus] = ()
        self._n_to_answer = sum(self.to_ask.cases.values()) + self.to_ask.n_recovered
        self._state = progress.ProgressState(sum(self.planned.values()))
        self._looks = UseSamples.at(boot_s())
        self._seen: BrokerStatus | None = None
        self._ends = EndEstimates()
        self._interval: tuple[float, float] | None = None
        self._next_estimate_s = 0.0
        self._next_word_s = -math.inf

    def read_status(self, now_s: float) -> bool:
        """Read the broker's status; return whether to print at once what the run is waiting for."""
        self._seen = status = self.status()
        if status is None:
            return False
        before = self._state.waits
        waits = progress.awaited(status)
        self._looks = self._looks.then(status)
        self._kept = live_view.lately(self._kept, status)
        self._state = progress.observe(
            self._state,
            answered=status.ended_episodes,
            counts=self.tally.counts.copy(),
            in_flight=status.in_flight,
            now_s=now_s,
            all_answered=status.ended_episodes >= self._n_to_answer,
            waits=waits,
        )
        whole = self.whole()
        if whole is not None:
            self._state = progress.observe_whole(
                self._state,
                whole,
                share=share_words(status.shares, self._limits),
                waits=waits_words(whole, status, self.to_ask.lanes) or waits,
                now_s=now_s,
            )
        if not waits or waits == before or now_s < self._next_word_s:
            return False
        self._next_word_s = now_s + progress.LINE_S
        return True

    def line(self, now_s: float, width: int) -> str | None:
        """Return the progress line, with an estimate; None if the broker did not answer."""
        if self._seen is None:
            return None
        self._estimate(self._seen, now_s)
        return progress.progress_line(self._state, now_s, width)

    def view(self, now_s: float) -> live_view.LiveView | None:
        """Return the view of lanes, models and failures; None if the broker did not answer."""
        status = self._seen
        if status is None:
            return None
        self._estimate(status, now_s)
        return live_view.LiveView(
            self._state,
            self._interval,
            now_s,
            status.waiting,
            live_view.lane_rows(self.to_ask.lanes, self._limits, self._kept, status),
            live_view.model_rows(self.planned, self.tally.by_model.copy()),
            [*self.tally.failures],
            self.tally.spent(self.planned),
            self.is_simulated,
        )

    def _estimate(self, status: BrokerStatus, now_s: float) -> None:
        # In a cluster run, a host's remaining time depends on the other hosts, so do not estimate.
        is_stuck = bool(self._state.waits) and not status.in_flight
        if self._state.whole is not None or (now_s < self._next_estimate_s and not is_stuck):
            return
        eta = None if is_stuck else estimate(self.to_ask, status, self._looks.since)
        self._state = replace(self._state, eta=eta, eta_at_s=now_s)
        self._interval = None
        if eta is not None:
            self._ends.note(now_s, eta)
            n_ended = status.ended_episodes - self.to_ask.n_recovered
            self._interval = self._ends.interval(now_s, eta, n_ended)
        # At first there is too little data for an estimate, so try again at the next read.
        least_s = _ESTIMATE_S if eta is not None else 0.0
        took_s = boot_s() - now_s
        self._next_estimate_s = now_s + max(least_s, took_s / _ESTIMATE_SHARE)
