"""In sessions without a pool, skip evaluations, or exit with code 4 if there are no other tests."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pytest_ultrapar.session.options import INPUT, NEEDED, only_looks, pool_path
from pytest_ultrapar.session.prefetch import prefetched_of
from pytest_ultrapar.system.files import read_file

_REASON = f"sends requests to models and needs {NEEDED}"


class NoPoolReporting:
    """The plugin in the process with the terminal. It prints one line about skipped evaluations."""

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print how many evaluations were skipped and how to run them."""
        skipped = terminalreporter.stats.get("skipped", ())
        n = sum(_is_ours(report) for report in skipped)
        if n:
            was = "1 evaluation was" if n == 1 else f"{n:,} evaluations were"
            terminalreporter.write_line(
                f"ultrapar: {was} skipped because no model is given: add {NEEDED}"
            )


class NoPoolCollecting:
    """The plugin in a process that collects tests: pytest's own process, or an xdist worker.

    Args:
        given: This plugin's part of a worker's `workerinput`, with the path for an error message;
            None without xdist.
    """

    def __init__(self, given: dict[str, Any] | None) -> None:
        self._given = given

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Skip evaluations, or fail if there are no other tests.

        With `--collect-only` and similar options, this does nothing.
        """
        fault = None if only_looks(session.config) else skip_evaluations(session)
        if fault and self._given is not None:
            report_fault(self._given, fault)
        elif fault:
            raise pytest.UsageError(fault)


class NoPoolController:
    """The plugin in xdist's controller. It ends the session if a worker writes an error message."""

    def __init__(self) -> None:
        self._fault_path = fault_path()

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:  # noqa: ANN401
        """Give a worker the path for its error message. Called before each worker starts."""
        node.workerinput[INPUT] = {"fault": str(self._fault_path)}

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self) -> None:
        """End the session if there is an error message. Called when a worker's collection ends."""
        raise_fault(self._fault_path)

    def pytest_unconfigure(self) -> None:
        """Remove the file: another worker may have written a message since the first was read."""
        self._fault_path.unlink(missing_ok=True)


def skip_evaluations(session: pytest.Session) -> str | None:
    """Skip the collected evaluations, or return an error message if the session cannot run.

    A session with evaluations cannot run if the pool file that it names is missing, or if all items
    are evaluations. If all items are evaluations after an error during collection, they are only
    skipped: the file with the error may contain other tests, and pytest reports the error.
    """
    evaluations = [item for item in session.items if prefetched_of(item)]
    if evaluations and (path := pool_path(session.config)):
        return f"{path}: there is no such file"
    if evaluations and len(evaluations) == len(session.items) and not session.testsfailed:
        return f"{evaluations[0].nodeid} {_REASON}"
    for item in evaluations:
        item.add_marker(pytest.mark.skip(reason=_REASON))
    return None


def _is_ours(report: object) -> bool:
    longrepr = getattr(report, "longrepr", None)
    return isinstance(longrepr, tuple) and str(longrepr[-1]).endswith(_REASON)


def fault_path() -> Path:
    """A unique path for a worker's error message. The file does not exist yet."""
    import tempfile  # noqa: PLC0415 - faults are rare
    import uuid  # noqa: PLC0415

    return Path(tempfile.gettempdir()) / f"ultrapar-fault-{uuid.uuid4().hex}"


def report_fault(given: dict[str, Any], message: str) -> None:
    """Write an error message to the controller's path, unless another worker has written one.

    An error raised in a worker would be an internal error: exit code 3 and a traceback. The file
    gets its final name only when it is complete, because the controller may read it at any moment.
    """
    path = Path(given["fault"])
    own = path.with_name(f"{path.name}-{os.getpid()}")
    own.write_text(message, encoding="utf-8")
    try:
        os.link(own, path)
    except FileExistsError:
        pass
    finally:
        own.unlink()


def raise_fault(path: Path) -> None:
    """End the session with a worker's error message, if there is one.

    Raises:
        pytest.UsageError: A worker wrote an error message, which this exception contains.
    """
    try:
        message = read_file(path).decode()
    except FileNotFoundError:
        return
    path.unlink(missing_ok=True)
    raise pytest.UsageError(message)
