"""A process that a test forks ends where it comes back to pytest.

Plain pytest would go on in it as a second session. There the engine's thread is not, for whose
episodes the next item would wait for ever, and its grades would be written beside those of the run.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from pytest_ultrapar.engine.forks import exit_code

if TYPE_CHECKING:
    from collections.abc import Generator


class ForkedChildren:
    """Looks after each part of a test whether this is still the process that pytest started."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    # Outermost of all wrappers, so that nobody makes a report of it.
    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None]:
        """Called per item, on the main thread; as the next two."""
        yield from self._guarded(item)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None]:
        """The test's own body."""
        yield from self._guarded(item)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None]:
        """Fixtures after their `yield`."""
        yield from self._guarded(item)

    def _guarded(self, item: pytest.Item) -> Generator[None]:
        try:
            yield
        except BaseException as error:
            self._end_child(item, error)
            raise
        self._end_child(item, None)

    def _end_child(self, item: pytest.Item, error: BaseException | None) -> None:
        if os.getpid() == self._pid:
            return
        if error is not None and not isinstance(error, SystemExit):
            # Not its message, which may hold a secret that only reports are cleared of.
            said = f"ultrapar: a process that {item.nodeid} forked raised {type(error).__name__}"
            sys.stderr.write(f"{said} and ended; it is no part of the run\n")
        sys.stdout.flush()
        sys.stderr.flush()
        # What is to be done at the interpreter's exit is the run's, not its fork's.
        os._exit(exit_code(error))
