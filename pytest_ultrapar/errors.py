"""All exceptions of the package, in one class tree, grouped by cause.

A message says what happened, where, and what to do. No message contains a secret.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator

EXIT_UNUSABLE = 4
"""The exit code for input, results or files that cannot be used, as in pytest. Exit code 1 is
different: it means that a test, a rule or a lane failed."""


class UltraparError(Exception):
    """Base class of all exceptions that this package raises on purpose."""


class ConfigError(UltraparError):
    """The user's pool, options, environment or suite cannot be used.

    The plugin turns this error into `pytest.UsageError` (exit code 4, no traceback).
    """


def refuse(message: str) -> NoReturn:
    """Refuse the user's input with a message.

    Raises:
        ConfigError: Always.
    """
    __tracebackhide__ = True
    # "from None" is needed: a chained traceback would show the user's text, which may contain a
    # secret.
    raise ConfigError(message) from None


class BrokerGoneError(UltraparError, ConnectionError):
    """The broker's process has ended or does not answer."""


class InfraError(UltraparError):
    """A request got no answer, and the model is not the reason.

    Attributes:
        kind: The kind of failure in one word, such as `rate`, `timeout` or `transport`.
        role: The role to which the request was sent; empty for the case's own model.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.role = ""

    @property
    def told_kind(self) -> str:
        """The text for the column `kind` in `results`: the role, if any, and then the kind."""
        return f"{self.role}: {self.kind}" if self.role else self.kind


def bare_kind(told: str) -> str:
    """Return the kind of an `InfraError`, given the text in the column `kind` of `results`."""
    return told.rpartition(": ")[2]


class NoLaneError(InfraError):
    """A request is refused, for example because no lane is left or a daily quota is exhausted."""

    def __init__(self, message: str, kind: str = "no_lane") -> None:
        super().__init__(kind, message)


class PromptRefused(UltraparError):  # noqa: N818 - an answer of the model, not an error
    """The provider refuses this prompt. This is a result of the case, not a failure of the run.

    Attributes:
        kind: `context_length` or `content_filter`.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class BadRequestError(UltraparError):
    """The API rejects the request as malformed (400, 422), so the case has the outcome `error`.

    Attributes:
        kind: One word for the column `kind` in the results.
    """

    kind = "bad_request"


class ReplayMissError(BadRequestError):
    """A replay has no stored answer for a request, and is not allowed to send it."""

    kind = "replay_miss"


class ResultsError(UltraparError):
    """A journal, table or manifest cannot be read, written or trusted."""


@contextmanager
def unusable(where: str = "") -> Iterator[None]:
    """Report errors in a `with` block as errors in the user's input.

    Args:
        where: The option or place that named the input. The message begins with this.

    Raises:
        ConfigError: The block raised `ConfigError` or `ResultsError`.
    """
    try:
        yield
    except (ConfigError, ResultsError) as error:
        refuse(f"{where}{error}")
