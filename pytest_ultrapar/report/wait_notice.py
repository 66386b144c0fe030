"""Show that a run is waiting before it starts, without flooding the log."""

from __future__ import annotations

from typing import Protocol, Self

from pytest_ultrapar.report.text import duration

_AGAIN_S = 10.0
_CLEAR = "\r\x1b[2K"


class Screen(Protocol):
    """Something to which lines can be written, such as pytest's terminal reporter."""

    @property
    def hasmarkup(self) -> bool:
        """Whether the output understands control sequences."""

    @property
    def isatty(self) -> bool:
        """Whether the output is a terminal."""

    def write_line(self, line: str, /) -> None:
        """End the current line, and write a complete line."""

    def write(self, content: str, /, *, flush: bool = False) -> None:
        """Write a part of a line."""

    def flush(self) -> None:
        """Flush the output."""


class WaitingLine:
    """Prints a line at the start of a wait and, on a terminal, redraws it every ten seconds.

    In a log, new lines are printed instead. The time between them doubles each time, so there are
    13 of them in a day. Use it as a context manager: it clears the line at the end, and reports a
    Ctrl-C.
    """

    def __init__(self, reporter: Screen | None) -> None:
        self._reporter = reporter
        self._on_terminal = bool(reporter and reporter.hasmarkup and reporter.isatty)
        self._said = self._what = ""
        self._is_drawn = False
        self._next_s = self._step_s = _AGAIN_S

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.end()
        gave_up = kind is not None and issubclass(kind, KeyboardInterrupt)
        if gave_up and self._reporter is not None and self._said:
            # Begin a new line, because the terminal has written ^C on this one.
            self._reporter.write_line("")
            self._reporter.write_line(
                f"ultrapar: stopped waiting for {self._what}; no request was sent"
            )

    def say(self, what: str, more: str, waited_s: float) -> None:
        """Report that the wait continues. Call this often.

        Args:
            what: A few words that name what the run is waiting for. They are repeated in each line.
            more: More words, which are printed only in the first line.
            waited_s: How long the wait has lasted, in seconds.
        """
        if self._reporter is None:
            return
        text = f"waiting for {what}{more}"
        self._what = what
        if text != self._said:
            self.end()
            self._said = text
            self._step_s = _AGAIN_S
            self._next_s = waited_s + _AGAIN_S
            self._reporter.write_line(f"ultrapar: {text}")
            self._reporter.flush()
        elif waited_s >= self._next_s:
            again = f"ultrapar: still waiting for {what}: {duration(waited_s)}"
            if self._on_terminal:
                self._reporter.write(_CLEAR + again, flush=True)
                self._is_drawn = True
            else:
                self._reporter.write_line(again)
                self._reporter.flush()
                self._step_s *= 2
            self._next_s = waited_s + self._step_s

    def end(self) -> None:
        """Clear the line. Idempotent."""
        if self._is_drawn and self._reporter is not None:
            self._reporter.write(_CLEAR, flush=True)
        self._is_drawn = False
