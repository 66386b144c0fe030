"""Progress while a run goes on: one line, redrawn on a terminal, now and then elsewhere."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_ultrapar.plan.eta import Looks, estimate
from pytest_ultrapar.report.progress import (
    ProgressState,
    collecting_line,
    next_line_s,
    observe,
    progress_line,
    tables_line,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from pytest_ultrapar.broker.protocol import BrokerStatus
    from pytest_ultrapar.plan.eta import ToAsk


_LOOK_S = 0.5
"""Also between lines that stay: an estimate goes by how the second half of a run went."""
_WIDE = 160
"""Characters of a line without a terminal, where nothing is drawn over."""
_ESTIMATE_S = 1.0
_ESTIMATE_SHARE = 0.05
"""Of this thread's time: an estimate for 300 lanes that all differ takes 0.5 s."""
_CLEAR = "\r\x1b[2K"


class LiveProgress:
    """Shows progress from its own thread: under xdist nothing calls us while workers are silent.

    Each step of a run has its line: collecting, asking and grading, writing tables.
    """

    def __init__(self, reporter: pytest.TerminalReporter, *, counts_items: bool) -> None:
        """Nothing is shown before the first step.

        Args:
            reporter: Pytest's.
            counts_items: Whether pytest collects in this process; on a terminal it then shows so
                itself.
        """
        self._writer = reporter.config.get_terminal_writer()
        self._counts: Counter[str] = Counter()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._tick, name="ultrapar-progress", daemon=True)
        self._on_terminal = bool(reporter.hasmarkup and reporter.isatty)
        self._counts_items = counts_items
        self._began_s = time.monotonic()
        self._line: Callable[[float, int], str | None] = lambda _now_s, _width: None
        self._look: Callable[[float], None] = lambda _now_s: None
        self._tables = (0, 0)

    @property
    def replaces_letters(self) -> bool:
        """Whether the line is redrawn in place, where letters would be drawn over."""
        return self._on_terminal

    def collecting(self, before: tuple[float, int] | None) -> None:
        """Begin to show progress, of the collection first.

        Args:
            before: Seconds that it took in the run before, and how many cases it found.
        """
        self._began_s = began_s = time.monotonic()
        if not (self._on_terminal and self._counts_items):
            self._line = lambda now_s, width: collecting_line(now_s - began_s, before, width)
        self._thread.start()

    def asking(
        self, to_ask: ToAsk, n_planned: int, status: Callable[[], BrokerStatus | None]
    ) -> None:
        """Cases are known and about to be asked and graded.

        Args:
            to_ask: What there is to ask.
            n_planned: All cases, those that need no episode among them.
            status: The broker's words; called in this object's thread.
        """
        self._clear()
        asking = _Asking(to_ask, n_planned, status, self._counts)
        # The thread may come in between: before its first look the new line says nothing.
        self._line, self._look = asking.line, asking.look

    def writing_tables(self) -> None:
        """All is over but the tables."""
        began_s = time.monotonic()
        self._look = lambda _now_s: None
        self._line = lambda now_s, width: (
            tables_line(*self._tables, now_s - began_s, width) if self._tables[1] else None
        )

    def tables_written(self, done: int, total: int) -> None:
        """So many cases are in the tables."""
        self._tables = (done, total)

    def count(self, outcome: str) -> None:
        """Count a graded case. Main thread."""
        self._counts[outcome] += 1

    def stop(self) -> None:
        """End, with a last clean line. Idempotent."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
        self._clear()

    def _clear(self) -> None:
        if self._on_terminal:
            self._writer.write(_CLEAR, flush=True)

    def _tick(self) -> None:
        next_s = 0.0 if self._on_terminal else time.monotonic() + next_line_s(0.0)
        while not self._stopped.wait(min(_LOOK_S, max(0.0, next_s - time.monotonic()))):
            now_s = time.monotonic()
            self._look(now_s)
            if now_s < next_s:
                continue
            next_s = now_s + (_LOOK_S if self._on_terminal else next_line_s(now_s - self._began_s))
            line = self._line(now_s, self._writer.fullwidth - 1 if self._on_terminal else _WIDE)
            if line is None:
                continue
            if self._on_terminal:
                self._writer.write(_CLEAR + line, flush=True)
            else:
                # Not `ensure_newline`, which knows of files' lines only: xdist's letters have none.
                begun = "\n" if self._writer.width_of_current_line else ""
                self._writer.write(f"{begun}{line}\n", flush=True)


class _Asking:
    """Looks at the broker and estimates what is left. One thread."""

    def __init__(
        self,
        to_ask: ToAsk,
        n_planned: int,
        status: Callable[[], BrokerStatus | None],
        counts: Counter[str],
    ) -> None:
        self._to_ask = to_ask
        self._n_to_answer = sum(to_ask.cases.values()) + to_ask.n_recovered
        self._status = status
        self._counts = counts
        self._state = ProgressState(n_planned)
        self._looks = Looks.at(time.monotonic())
        self._seen: BrokerStatus | None = None
        self._next_estimate_s = 0.0

    def look(self, now_s: float) -> None:
        """See how far the run is, if the broker answers."""
        self._seen = status = self._status()
        if status is None:
            return
        self._looks = self._looks.then(status)
        self._state = observe(
            self._state,
            answered=status.ended_episodes,
            counts=self._counts.copy(),
            in_flight=status.in_flight,
            now_s=now_s,
            all_answered=status.ended_episodes >= self._n_to_answer,
        )

    def line(self, now_s: float, width: int) -> str | None:
        """The line of the last look, with an estimate; None when the broker did not answer."""
        if self._seen is None:
            return None
        if now_s >= self._next_estimate_s:
            eta = estimate(self._to_ask, self._seen, self._looks.since)
            self._state = replace(self._state, eta=eta, eta_at_s=now_s)
            if eta is not None:
                took_s = time.monotonic() - now_s
                self._next_estimate_s = now_s + max(_ESTIMATE_S, took_s / _ESTIMATE_SHARE)
        return progress_line(self._state, now_s, width)
