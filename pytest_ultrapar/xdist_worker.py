"""Inside an xdist worker: items are taken in the order in which their episodes end.

Reliance on xdist's worker, read in 3.8.0: the interactor takes positions of items from its `torun`
queue (remote.py:126, 203, 211) and puts them there from execnet's receiver thread (remote.py:164);
a marker in the queue says "shutdown". The queue is replaced before the main loop starts reading
from it. `sendevent` (remote.py:124) is what it sends reports with, as `testreport` (remote.py:289).
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_ultrapar import ahead_start, process
from pytest_ultrapar.ctrl_c import CtrlC
from pytest_ultrapar.errors import ConfigError, ResultsError, UltraparError
from pytest_ultrapar.lanes.broker_client import connect_broker
from pytest_ultrapar.packed_reports import pack
from pytest_ultrapar.poolless import report_fault
from pytest_ultrapar.results.cases_file import write_cases
from pytest_ultrapar.results.taken_file import write_taken
from pytest_ultrapar.runtime import Runtime, write_tables
from pytest_ultrapar.suite import garbage
from pytest_ultrapar.suite.case_reports import CaseReports

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ultrapar.lanes.protocol import BrokerPort
    from pytest_ultrapar.suite.ahead import RunAhead

_NOT_DRAINED = 2


class AheadQueue:
    """Stands in for xdist's queue of positions; hands them out in the order of completion.

    `put` is called by execnet's receiver thread, `get` by the main thread.
    """

    def __init__(self, ahead: RunAhead, fed: Future[None]) -> None:
        """Make a queue.

        Args:
            ahead: Runs what is put.
            fed: Is done with the first position.
        """
        self._ahead = ahead
        self._fed = fed
        self._n_put = 0
        self._n_given = 0
        self._marker: object = None

    def put(self, item: object) -> None:
        """Take a position, or xdist's marker for shutdown."""
        if isinstance(item, int):
            self._n_put += 1
            self._ahead.put([item])
            if not self._fed.done():
                self._fed.set_result(None)
            return
        # The class of the marker lives in execnet's own namespace here, so only "no int" tells it
        # (remote.py:70).
        self._marker = item
        n_waiting = self._n_put - self._n_given
        held = 1 if self._n_given else 0
        # xdist says "drain" and "stop now" with the same word. It drains only workers with fewer
        # than two items.
        if n_waiting + held >= _NOT_DRAINED:
            self._ahead.abandon()
        else:
            self._ahead.close()

    def get(self) -> object:
        """The next position to run; blocks. The marker when there is no more."""
        index = self._ahead.take()
        if index is None:
            return self._marker
        self._n_given += 1
        return index


class WorkerSession:
    """The plugin of a worker that runs cases."""

    def __init__(self, config: pytest.Config, given: dict[str, Any]) -> None:
        self._config = config
        self._given = given
        self._ahead: RunAhead | None = None
        self._runtime: Runtime | None = None
        # To the process's end: what it then still does is little and ends by itself.
        self._ctrl_c = CtrlC(lambda: None)
        self._ctrl_c.install()

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self) -> None:
        """From now on a further Ctrl-C must not interrupt the end of the session."""
        self._ctrl_c.note_ending()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Find the cases and put our queue in place. Worker, main thread, once."""
        try:
            self._prepare(session.items)
        except UltraparError as error:
            # Raised here it would be an internal error of the worker; the controller reads it and
            # ends with 4.
            report_fault(self._given, str(error))
            session.shouldstop = "pytest-ultrapar: the suite cannot be run"

    def _prepare(self, items: Sequence[pytest.Item]) -> None:
        config, given = self._config, self._given
        _, pool = process.settings(config)
        if pool.digest != given["pool_digest"]:
            msg = f"{pool.path} changed while the run was starting; start it again"
            raise ConfigError(msg)
        collected = process.collect(config, items)
        if collected.faults:
            raise ConfigError(process.faults_message(collected.faults))
        directory = Path(given["directory"])
        if not collected.case_ids:
            return
        write_cases(directory, collected.cases)
        write_tables(directory, collected.tables)
        write_taken(directory, process.taken(config))
        collected.cases.clear()
        garbage.spare_items(config)
        worker = given["worker"]

        fed: Future[None] = Future()

        async def connect() -> BrokerPort:
            # There is no broker before the controller has the keys; then it feeds us.
            await asyncio.shield(asyncio.wrap_future(fed))
            return await connect_broker(given["socket"], given["token"], worker)

        self._runtime, self._ahead = ahead_start.start(
            config,
            items=items,
            collected=collected,
            directory=directory,
            worker=worker,
            base_urls=given["base_urls"],
            connect=connect,
            alone=given["alone"],
        )
        config.pluginmanager.register(CaseReports(self._runtime, self._ahead), "ultrapar-reports")
        interactor = _interactor(config)
        interactor.torun = AheadQueue(self._ahead, fed)
        _pack_reports(interactor)
        self._ahead.start()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """End the engine before the worker says that it has finished. Worker, main thread."""
        if self._ahead is not None:
            self._ahead.stop()
        try:
            if self._runtime is not None:
                self._runtime.close()
        except ResultsError as error:
            session.shouldstop = f"pytest-ultrapar: {error}"


def _pack_reports(interactor: Any) -> None:  # noqa: ANN401 - xdist ships no types
    send = interactor.sendevent

    def sendevent(name: str, **kwargs: Any) -> None:  # noqa: ANN401
        if name == "testreport":
            kwargs["data"] = pack(kwargs["data"])
        send(name, **kwargs)

    interactor.sendevent = sendevent


def _interactor(config: pytest.Config) -> Any:  # noqa: ANN401 - xdist ships no types
    for plugin in config.pluginmanager.get_plugins():
        if hasattr(plugin, "torun") and hasattr(plugin, "handle_command"):
            return plugin
    msg = (
        "this release of pytest-xdist has no queue that pytest-ultrapar knows; "
        "known to work: pytest-xdist 3.8"
    )
    raise ConfigError(msg)
