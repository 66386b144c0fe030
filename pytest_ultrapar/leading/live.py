"""Progress while a run goes on: one line, redrawn on a terminal, every ten seconds elsewhere."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

from pytest_ultrapar.report.progress import ProgressState, observe, progress_line

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from pytest_ultrapar.lanes.protocol import BrokerStatus

_REDRAW_S = 0.5
_LINE_S = 10.0
_CLEAR = "\r\x1b[2K"


class LiveProgress:
    """Shows progress from its own thread: under xdist nothing calls us while workers are silent.

    It counts episodes, not reports: an xdist worker holds one finished, unreported item to the very
    end.
    """

    def __init__(
        self,
        reporter: pytest.TerminalReporter,
        planned: int,
        status: Callable[[], BrokerStatus | None],
    ) -> None:
        self._writer = reporter._tw  # noqa: SLF001 - pytest 9.2.0, terminal.py:405: the writer behind all lines
        self._status = status
        self._counts: Counter[str] = Counter()
        self._state = ProgressState(planned)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._tick, name="ultrapar-progress", daemon=True)
        self._on_terminal = bool(reporter.hasmarkup and reporter.isatty)

    @property
    def replaces_letters(self) -> bool:
        """Whether the line is redrawn in place, where letters would be drawn over."""
        return self._on_terminal

    def start(self) -> None:
        """Begin to show progress."""
        self._thread.start()

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
        if self._on_terminal:
            self._writer.write(_CLEAR, flush=True)

    def _tick(self) -> None:
        while not self._stopped.wait(_REDRAW_S if self._on_terminal else _LINE_S):
            status = self._status()
            if status is None:
                continue
            now_s = time.monotonic()
            self._state = observe(
                self._state,
                done=status.ended_episodes,
                counts=self._counts,
                in_flight=status.in_flight,
                now_s=now_s,
            )
            line = progress_line(self._state, now_s, self._writer.fullwidth - 1)
            if self._on_terminal:
                self._writer.write(_CLEAR + line, flush=True)
            else:
                # Not `ensure_newline`, which knows of files' lines only: xdist's letters have none.
                begun = "\n" if self._writer.width_of_current_line else ""
                self._writer.write(f"{begun}{line}\n", flush=True)
