"""Tells people that a run waits before it begins, and goes on telling, without filling a log."""

from __future__ import annotations

from typing import Protocol, Self

from pytest_ultrapar.report.text import duration

_AGAIN_S = 10.0
_CLEAR = "\r\x1b[2K"


class Screen(Protocol):
    """Where the lines go; pytest's terminal reporter is one."""

    @property
    def hasmarkup(self) -> bool:
        """Whether control sequences are understood."""

    @property
    def isatty(self) -> bool:
        """Whether it is a terminal."""

    def write_line(self, line: str, /) -> None:
        """Write a line, after the end of the one that was begun."""

    def write(self, content: str, /, *, flush: bool = False) -> None:
        """Write a part of a line."""

    def flush(self) -> None:
        """Have it shown."""


class WaitingLine:
    """One line when it begins and then, on a terminal, one that is redrawn every ten seconds.

    Elsewhere further lines come at twice the distance each time: 13 in a day of waiting. Used as a
    context, it is cleared at the end, and Ctrl-C is said to have ended the wait.
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
            # The terminal has written ^C.
            self._reporter.write_line("")
            self._reporter.write_line(
                f"ultrapar: gave up waiting for {self._what}; nothing was sent"
            )

    def say(self, what: str, more: str, waited_s: float) -> None:
        """Tell what is waited for; to be called often.

        Args:
            what: In a few words; all that is said again.
            more: What is said once, at the beginning.
            waited_s: Seconds waited so far.
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
        """Leave no half a line. Idempotent."""
        if self._is_drawn and self._reporter is not None:
            self._reporter.write(_CLEAR, flush=True)
        self._is_drawn = False
