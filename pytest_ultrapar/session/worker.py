"""The plugin in an xdist worker: items run in the order in which their episodes end."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_ultrapar.broker.client import connect_broker
from pytest_ultrapar.errors import UltraparError, refuse
from pytest_ultrapar.session import garbage_collection, run_config, selection
from pytest_ultrapar.session.ctrl_c import CtrlC
from pytest_ultrapar.session.no_pool import report_fault
from pytest_ultrapar.session.prefetcher import Prefetcher, make_prefetcher
from pytest_ultrapar.session.reports import register_reports
from pytest_ultrapar.session.worker_messages import Outbox, note_at, note_of

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from pytest_ultrapar.broker.interface import BrokerInterface

_NOT_DRAINED = 2


class WorkerSession:
    """The plugin of a worker that runs cases."""

    def __init__(self, config: pytest.Config, given: dict[str, Any]) -> None:
        self._config = config
        self._given = given
        self._prefetcher: Prefetcher | None = None
        self._outbox: Outbox | None = None
        # The handler stays until the process ends: the remaining work is short and ends by itself.
        self._ctrl_c = CtrlC(lambda: None)
        self._ctrl_c.install()

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self) -> None:
        """Prevent another Ctrl-C from interrupting the end of the session."""
        self._ctrl_c.note_ending()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Find the cases and replace xdist's queue. Called once, in the worker's main thread."""
        # This runs before the hook of `WorkerInteractor`, which reports the collection to the
        # controller. After that report, the controller checks for an error message and sends
        # positions.
        try:
            self._prepare(session.items)
        except UltraparError as error:
            # An error raised here would be an internal error of the worker. Instead, the controller
            # reads the message and ends with exit code 4.
            report_fault(self._given, str(error))
            session.shouldstop = "pytest-ultrapar: the suite cannot be run"

    def _prepare(self, items: Sequence[pytest.Item]) -> None:
        config, given = self._config, self._given
        _, pool = run_config.settings(config)
        if pool.digest != given["pool_digest"]:
            refuse(f"{pool.path} changed while the run was starting; start the run again")
        directory = Path(given["directory"])
        collected = selection.collect_run(config, items, directory)
        interactor = _interactor(config)
        note = note_at(note_of(directory, given["worker"]))
        self._outbox = Outbox(interactor.sendevent, lambda: note(interactor.item_index))
        interactor.sendevent = self._outbox.sendevent
        if not collected.case_ids:
            # xdist's own queue waits for the next test. Send the held messages before it does.
            get, outbox = interactor.torun.get, self._outbox

            def get_next() -> object:
                outbox.flush()
                return get()

            interactor.torun.get = get_next
            return
        worker = given["worker"]

        dispatched: Future[None] = Future()

        async def connect() -> BrokerInterface:
            # The broker starts when the controller holds the keys, and this worker gets its first
            # item after that. So wait for that item.
            await asyncio.shield(asyncio.wrap_future(dispatched))
            return await connect_broker(given["socket"], given["token"], worker)

        self._prefetcher = make_prefetcher(
            config,
            items=items,
            collected=collected,
            directory=directory,
            worker=worker,
            base_urls=given["base_urls"],
            connect=connect,
            alone=given["alone"],
        )
        register_reports(config, self._prefetcher)
        interactor.torun = PrefetchQueue(self._prefetcher, dispatched, self._outbox)
        self._prefetcher.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        """Send held messages at the end of the loop, where pytest can still report an error.

        Called in the worker's main thread.
        """
        done = yield
        if self._outbox is not None:
            self._outbox.flush()
        return done

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """End the engine before the worker reports that it has finished.

        Called in the worker's main thread.
        """
        try:
            if self._outbox is not None:
                # The loop may have ended early, and ending the engine takes seconds, so send
                # messages first.
                self._outbox.flush()
        finally:
            if self._prefetcher is not None and (fault := self._prefetcher.stop()):
                # By now, xdist has already copied `session.shouldstop`: in the wrapper of
                # `WorkerInteractor`, the code before the `yield` runs before any other plugin.
                # xdist sends `workeroutput` after these hooks.
                session.config.workeroutput["shouldstop"] = fault  # type: ignore[attr-defined]

    @pytest.hookimpl(trylast=True, specname="pytest_sessionfinish")
    def pytest_ultrapar_spare_reports(self, session: pytest.Session) -> None:
        """Collect garbage before pytest does, after the session's fixtures are torn down."""
        garbage_collection.spare_reports(session.config)


class PrefetchQueue:
    """Replaces xdist's queue of positions; returns positions in the order in which episodes end.

    execnet's receiver thread calls `put`, and the main thread calls `get`.
    """

    def __init__(self, prefetcher: Prefetcher, dispatched: Future[None], outbox: Outbox) -> None:
        """Make a queue.

        Args:
            prefetcher: Runs the items.
            dispatched: A future that is done when the first position has arrived.
            outbox: Holds messages; it is flushed when there may be nothing to run for a while.
        """
        self._prefetcher = prefetcher
        self._dispatched = dispatched
        self._outbox = outbox
        self._n_put = 0
        self._n_given = 0
        self._marker: object = None

    def put(self, item: object) -> None:
        """Accept a position, or xdist's marker for shutdown."""
        if isinstance(item, int):
            self._n_put += 1
            self._prefetcher.put([item])
            if not self._dispatched.done():
                self._dispatched.set_result(None)
            return
        # The marker's class (`xdist.remote.Marker`) is in execnet's own namespace here, so the
        # marker can be recognised only because it is not an int.
        self._marker = item
        n_waiting = self._n_put - self._n_given
        held = 1 if self._n_given else 0
        # xdist sends the same marker for "drain" and for "stop now". It drains only workers that
        # have fewer than two items.
        if n_waiting + held >= _NOT_DRAINED:
            self._prefetcher.abandon()
        else:
            self._prefetcher.close()

    def get(self) -> object:
        """Wait for the next position to run; return the marker if there are no more."""
        if not self._prefetcher.has_ready:
            self._outbox.flush()
        index = self._prefetcher.take()
        if index is None:
            return self._marker
        self._n_given += 1
        return index


def _interactor(config: pytest.Config) -> Any:  # noqa: ANN401 - xdist ships no types
    # Find it by its attributes: xdist makes the class in the module `__channelexec__` (the end of
    # `xdist/remote.py`), and an import of `xdist.remote` would make another.
    plugins = config.pluginmanager.get_plugins()
    found = [one for one in plugins if hasattr(one, "torun") and hasattr(one, "handle_command")]
    if not found:
        refuse(
            "pytest-ultrapar cannot find the test queue in this release of pytest-xdist; "
            "tested with pytest-xdist 3.8"
        )
    return found[0]
