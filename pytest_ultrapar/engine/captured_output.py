"""Collect the output and log of episodes, separately from the output of the running test.

Many episodes run at the same time, and not in pytest's thread, so what they print could appear
under any test. A context variable holds the output of the current episode. `sys.stdout` is wrapped
once per run, and a logging handler collects the log records.
"""

from __future__ import annotations

import logging
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TextIO

from pytest_ultrapar.apis.failure import LARGEST_TEXT, beginning

if TYPE_CHECKING:
    from collections.abc import Iterable


class EpisodeOutput:
    """The output and the log of one episode; `beginning` limits the length of each."""

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
        """Append printed text, up to the maximum length."""
        if len(self._stdout) <= LARGEST_TEXT:
            self._stdout += text[: LARGEST_TEXT + 1]

    def add_log(self, text: str) -> None:
        """Append a formatted log record, up to the maximum length."""
        if len(self._log) <= LARGEST_TEXT:
            self._log += f"{text[: LARGEST_TEXT + 1]}\n"


current_output: ContextVar[EpisodeOutput | None] = ContextVar("current_output", default=None)
"""The output of the episode whose code is running; None outside episodes."""


class RoutedStream:
    """A text stream that records the text that episodes write, and passes the rest to `wrapped`.

    It deliberately has no base class from `io`. So attributes that it does not define (`buffer`,
    `encoding`, `getvalue`, `seek`) come from the wrapped stream. pytest's capture uses many of
    them.
    """

    def __init__(self, wrapped: TextIO) -> None:
        self.wrapped = wrapped

    def write(self, text: str) -> int:
        """Write `text` to the episode's record or the wrapped stream. Any thread may call this."""
        output = current_output.get()
        if output is None:
            return self.wrapped.write(text)
        output.add_print(text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each line as `write` does."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any attribute of the stream
        return getattr(self.wrapped, name)

    @property  # type: ignore[misc] # typeshed has it settable
    def __class__(self) -> type:
        """The wrapped stream's class, because pytest's `SysCapture.snap` checks for `CaptureIO`."""
        return type(self.wrapped)


class EpisodeLogHandler(logging.Handler):
    """Collects the log records of episodes and ignores all others."""

    def emit(self, record: logging.LogRecord) -> None:
        """Add a record to its episode. `logging` calls this on the thread that logs."""
        output = current_output.get()
        if output is not None:
            output.add_log(self.format(record))


def is_outside_episodes(_record: logging.LogRecord | None = None) -> bool:
    """Whether the caller is outside episodes. As a logging filter, this drops episodes' records."""
    return current_output.get() is None
