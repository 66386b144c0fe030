"""Sessions without a pool: evaluations are skipped, or refused (exit 4) where they are all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pytest_ultrapar.session.options import INPUT, NEEDED, only_looks, pool_path
from pytest_ultrapar.session.prefetch import prefetched_of
from pytest_ultrapar.system.files import read_file

_REASON = f"asks models and needs {NEEDED}"


class PoollessReporting:
    """The plugin of the process with the terminal: one line for all evaluations left out."""

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say how many evaluations were skipped and how to run them."""
        skipped = terminalreporter.stats.get("skipped", ())
        n = sum(_is_ours(report) for report in skipped)
        if n:
            was = "1 evaluation was" if n == 1 else f"{n:,} evaluations were"
            terminalreporter.write_line(
                f"ultrapar: {was} skipped, as no model is given: add {NEEDED}"
            )


class PoollessCollecting:
    """The plugin of a process that collects: pytest's own, or an xdist worker.

    Args:
        given: Of a worker, which leaves the fault where the controller finds it.
    """

    def __init__(self, given: dict[str, Any] | None) -> None:
        self._given = given

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Skip evaluations; where there is nothing else, refuse them. Let them be listed."""
        fault = None if only_looks(session.config) else skip_evaluations(session)
        if fault and self._given is not None:
            report_fault(self._given, fault)
        elif fault:
            raise pytest.UsageError(fault)


class PoollessController:
    """The plugin of xdist's controller: ends with the fault that a worker left."""

    def __init__(self) -> None:
        self._fault_path = fault_path()

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:  # noqa: ANN401
        """Tell a worker where to leave a fault. Called before each worker starts."""
        node.workerinput[INPUT] = {"fault": str(self._fault_path)}

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self) -> None:
        """End with the fault, if there is one. Called when a worker has collected."""
        raise_fault(self._fault_path)

    def pytest_unconfigure(self) -> None:
        """Leave no file behind: a second worker may leave its fault after the first was read."""
        self._fault_path.unlink(missing_ok=True)


def skip_evaluations(session: pytest.Session) -> str | None:
    """Skip the collected items that ask models; why nothing can run if all do or a file is missing.

    What could not be collected is pytest's to report, and may have been something else.
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
    """A path for a worker's fault that nobody else uses; not yet a file."""
    import tempfile  # noqa: PLC0415 - faults are rare
    import uuid  # noqa: PLC0415

    return Path(tempfile.gettempdir()) / f"ultrapar-fault-{uuid.uuid4().hex}"


def report_fault(given: dict[str, Any], message: str) -> None:
    """Leave a fault where the controller finds it.

    Raised in a worker it would be an internal error there: exit code 3 and a traceback. The first
    worker's fault stands, whole: the controller may read at any moment.
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
    """End the session with what a worker left behind, if it left anything.

    Raises:
        pytest.UsageError: With the worker's message.
    """
    try:
        message = read_file(path).decode()
    except FileNotFoundError:
        return
    path.unlink(missing_ok=True)
    raise pytest.UsageError(message)
