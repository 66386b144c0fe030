"""Every exception of the package, as one tree by cause.

Messages follow one form: what was found, where, and what is allowed. No message ever holds a
secret.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator

EXIT_UNUSABLE = 4
"""The exit code where input, results or files cannot be used, as pytest has it for wrong usage:
never 1, which says that a test, a rule or a lane failed."""


class UltraparError(Exception):
    """Base of everything this package raises on purpose."""


class ConfigError(UltraparError):
    """The user's pool, options, environment or suite cannot be used as they are.

    The plugin turns it into `pytest.UsageError` (exit code 4, no traceback).
    """


def refuse(message: str) -> NoReturn:
    """Say why what the user gave cannot be used.

    Raises:
        ConfigError: Always.
    """
    __tracebackhide__ = True
    # From None: what led here is the user's text, which a chained traceback would show.
    raise ConfigError(message) from None


class BrokerGoneError(UltraparError, ConnectionError):
    """The broker's process has ended or does not answer."""


class InfraError(UltraparError):
    """A request could not be answered for a reason that says nothing about the model.

    Attributes:
        kind: One word, such as `rate`, `timeout`, `transport`.
        role: Whose request it was; empty: the case's own model's.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.role = ""

    @property
    def told_kind(self) -> str:
        """What the results' `kind` column has of it: the kind, behind the role if there is one."""
        return f"{self.role}: {self.kind}" if self.role else self.kind


def bare_kind(told: str) -> str:
    """The kind of an `InfraError` by what the results have of it."""
    return told.rpartition(": ")[2]


class NoLaneError(InfraError):
    """The broker refuses a request: every lane of its model is out, or its day is used up."""

    def __init__(self, message: str, kind: str = "no_lane") -> None:
        super().__init__(kind, message)


class PromptRefused(UltraparError):  # noqa: N818 - the model's answer, no fault of ours
    """The provider refused this prompt for good: a result of the case, not a failure of the run.

    Attributes:
        kind: `context_length` or `content_filter`.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class BadRequestError(UltraparError):
    """The API calls the request malformed (400, 422): a fault of the suite, reported as `error`.

    Attributes:
        kind: One word for the results' `kind` column.
    """

    kind = "bad_request"


class ReplayMissError(BadRequestError):
    """A replay has no stored answer to a request, and may not send it."""

    kind = "replay_miss"


class ResultsError(UltraparError):
    """A journal, table or manifest cannot be read, written or trusted."""


@contextmanager
def unusable(where: str = "") -> Iterator[None]:
    """Refuse what the user named where it cannot be read.

    Args:
        where: What named it, to stand before the message.

    Raises:
        ConfigError: The block raised it, or `ResultsError`.
    """
    try:
        yield
    except (ConfigError, ResultsError) as error:
        refuse(f"{where}{error}")
