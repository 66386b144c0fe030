"""Sessions without a pool: a suite that needs one is refused (exit 4), all else is left alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_ultrapar.options import only_looks
from pytest_ultrapar.suite.prefetched import ATTRIBUTE
from pytest_ultrapar.worker_input import INPUT

if TYPE_CHECKING:
    from collections.abc import Sequence


class PoollessSession:
    """The plugin of a process without workers."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Refuse prefetched items, but let them be listed."""
        if only_looks(session.config):
            return
        fault = needs_pool(session.items)
        if fault:
            raise pytest.UsageError(fault)


class PoollessWorker:
    """The plugin of an xdist worker: leaves the fault where the controller finds it."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._given = given

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Refuse prefetched items."""
        fault = None if only_looks(session.config) else needs_pool(session.items)
        if fault:
            report_fault(self._given, fault)


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


def needs_pool(items: Sequence[pytest.Item]) -> str | None:
    """Why these items cannot run without a pool, or None when they can."""
    for item in items:
        info = getattr(item, "_fixtureinfo", None)
        for definitions in info.name2fixturedefs.values() if info is not None else ():
            if definitions and hasattr(definitions[-1].func, ATTRIBUTE):
                return (
                    f"{item.nodeid} runs on a pool of models and needs --ultrapar-pool FILE "
                    "(or ini ultrapar_pool)"
                )
    return None


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
        message = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    path.unlink(missing_ok=True)
    raise pytest.UsageError(message)
