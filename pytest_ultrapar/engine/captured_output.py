"""The output and log of episodes, kept separate from the output of the running test.

Many episodes run at the same time in another thread than pytest, so a print could appear under any
test. A context variable names the episode. `sys.stdout` is wrapped once per run, and a handler
takes the log records.
"""

from __future__ import annotations

import logging
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TextIO

from pytest_ultrapar.apis.failure import LARGEST_TEXT, beginning

if TYPE_CHECKING:
    from collections.abc import Iterable


class EpisodeOutput:
    """The output and log text of one episode; `beginning` bounds each."""

    __slots__ = ("_log", "_stdout")

    def __init__(self) -> None:
        self._stdout = ""
        self._log = ""

    @property
    def stdout(self) -> str:
        """The printed text."""
        return beginning(self._stdout)

    @property
    def log(self) -> str:
        """The log as text."""
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
"""The episode of the running code; None outside episodes."""


class RoutedStream:
    """A text stream that writes an episode's text to its record, and all other text to `wrapped`.

    It is not an `io` class on purpose: all other attributes (`buffer`, `encoding`, `getvalue`,
    `seek`) come from the wrapped stream, and pytest's capture uses many of them.
    """

    def __init__(self, wrapped: TextIO) -> None:
        self.wrapped = wrapped

    def write(self, text: str) -> int:
        """Write `text` to its episode's record, or to the wrapped stream. Any thread may call."""
        output = current_output.get()
        if output is None:
            return self.wrapped.write(text)
        output.add_print(text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each line like `write`."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any attribute of the stream
        return getattr(self.wrapped, name)

    @property  # type: ignore[misc] # typeshed has it settable
    def __class__(self) -> type:
        """The wrapped stream's class, since `SysCapture.snap` of pytest asserts it."""
        return type(self.wrapped)


class EpisodeLogHandler(logging.Handler):
    """Takes the log records of episodes and ignores all others."""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record. Called by `logging` on the thread that logs."""
        output = current_output.get()
        if output is not None:
            output.add_log(self.format(record))


def is_outside_episodes(_record: logging.LogRecord | None = None) -> bool:
    """Whether this code runs in no episode; also a logging filter against episodes' records."""
    return current_output.get() is None
