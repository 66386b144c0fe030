"""What episodes print and log, kept apart from what the running test prints.

Many episodes run at once in a thread beside pytest's, so a print could land under any test. A
context variable says whose it is: `sys.stdout` is wrapped once per run, log records are taken by a
handler.
"""

from __future__ import annotations

import logging
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TextIO

from pytest_ultrapar.apis.failure import LARGEST_TEXT, beginning

if TYPE_CHECKING:
    from collections.abc import Iterable


class EpisodeOutput:
    """Prints and log text of one episode, of each what `beginning` keeps."""

    __slots__ = ("_log", "_stdout")

    def __init__(self) -> None:
        self._stdout = ""
        self._log = ""

    @property
    def stdout(self) -> str:
        """What was printed."""
        return beginning(self._stdout)

    @property
    def log(self) -> str:
        """What was logged, as text."""
        return beginning(self._log)

    def add_print(self, text: str) -> None:
        """Keep a printed text, up to the bound."""
        if len(self._stdout) <= LARGEST_TEXT:
            self._stdout += text[: LARGEST_TEXT + 1]

    def add_log(self, text: str) -> None:
        """Keep a formatted log record, up to the bound."""
        if len(self._log) <= LARGEST_TEXT:
            self._log += f"{text[: LARGEST_TEXT + 1]}\n"


current_output: ContextVar[EpisodeOutput | None] = ContextVar("current_output", default=None)
"""The episode that the running code belongs to; None outside episodes."""


class RoutedStream:
    """A text stream: episodes' writes go to their own record, all others to the wrapped stream.

    Not an `io` class on purpose: whatever is not said here (`buffer`, `encoding`, `getvalue`,
    `seek`) is the wrapped stream's own, and pytest's capture asks for much of it.
    """

    def __init__(self, wrapped: TextIO) -> None:
        self.wrapped = wrapped

    def write(self, text: str) -> int:
        """Write `text` where it belongs. Called on any thread."""
        output = current_output.get()
        if output is None:
            return self.wrapped.write(text)
        output.add_print(text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each line where it belongs."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the stream has
        return getattr(self.wrapped, name)

    @property  # type: ignore[misc] # typeshed has it settable
    def __class__(self) -> type:
        """The wrapped stream's class, since `SysCapture.snap` of pytest asserts it."""
        return type(self.wrapped)


class EpisodeLogHandler(logging.Handler):
    """Takes the log records of episodes; all others pass by."""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record. Called by `logging` on the thread that logs."""
        output = current_output.get()
        if output is not None:
            output.add_log(self.format(record))


def is_outside_episodes(_record: logging.LogRecord | None = None) -> bool:
    """Whether no episode runs this code; also a logging filter that keeps their records away."""
    return current_output.get() is None
