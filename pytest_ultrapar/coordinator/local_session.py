"""Without xdist: one process coordinates the run and runs its cases."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_ultrapar.session import run_config, selection
from pytest_ultrapar.session.options import usage_errors
from pytest_ultrapar.session.reports import register_reports
from pytest_ultrapar.system.clock import MonotonicClock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ultrapar.broker.interface import BrokerInterface
    from pytest_ultrapar.broker.local import LocalBroker
    from pytest_ultrapar.broker.protocol import BrokerStatus
    from pytest_ultrapar.coordinator.cluster_run import ClusterRun
    from pytest_ultrapar.coordinator.coordinator import Coordinator
    from pytest_ultrapar.records import Case
    from pytest_ultrapar.session.prefetcher import Prefetcher


WORKER = "main"
_STATUS_TIMEOUT_S = 1.0


class LocalSession:
    """The plugin that runs cases in pytest's own process."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._prefetcher: Prefetcher | None = None
        self._port: LocalBroker | None = None
        self._cases: list[Case] = []
        self._is_case: frozenset[int] = frozenset()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Find the cases and take the keys; if the suite has an error, end with exit code 4.

        This implementation runs last, after pytest has ended the line that counts collected items.
        """
        config = session.config
        if run_config.stops_at_collection(session):
            return
        run = self._coordinator.run
        with usage_errors():
            collected = selection.collect_run(config, session.items, run.directory.path)
        if not collected.case_ids:
            self._coordinator.plan_nothing()
            return
        with usage_errors():
            # Loading the HTTP client takes 0.1 s: do it while the simulated provider starts.
            from pytest_ultrapar.session.prefetcher import make_prefetcher  # noqa: PLC0415

            base_urls = run.services.base_urls
            self._coordinator.plan([WORKER], collected.cases)
            if run.cluster is not None:
                self._cases = list(collected.cases)
                self._is_case = frozenset(collected.case_ids)
            self._prefetcher = make_prefetcher(
                config,
                items=session.items,
                collected=collected,
                directory=run.directory.path,
                worker=WORKER,
                base_urls=base_urls,
                connect=self._connect,
            )
        register_reports(config, self._prefetcher)

    async def _connect(self) -> BrokerInterface:
        """Create the broker. Called once, on the engine's event loop."""
        import asyncio  # noqa: PLC0415 - loaded with the engine, like the next import

        from pytest_ultrapar.broker.local import LocalBroker  # noqa: PLC0415

        run = self._coordinator.run
        self._port = LocalBroker(
            run.broker_settings(), MonotonicClock(), asyncio.get_running_loop(), worker=WORKER
        )
        await self._port.assign(self._coordinator.run.assignment)
        return self._port

    def status(self) -> BrokerStatus | None:
        """Return the broker's current status, from any thread; None before the broker exists."""
        return self._port.status_from_thread(_STATUS_TIMEOUT_S) if self._port else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run items in the order in which their episodes end."""
        if self._prefetcher is None:
            return None  # pytest's own loop runs instead
        try:
            self._run_all(session, self._prefetcher)
        finally:
            self._coordinator.run.last_status = self.status()
            fault = self._prefetcher.stop()
        if fault:
            raise session.Interrupted(fault)
        return True

    def _run_all(self, session: pytest.Session, prefetcher: Prefetcher) -> None:
        # This is like `_pytest.main.pytest_runtestloop`, but items run in the order in which their
        # episodes end. After an item, pytest tears down fixtures that the next item does not use,
        # so choose the next item before this one runs.
        items = session.items
        cluster = self._coordinator.run.cluster
        if cluster is None:
            prefetcher.put(range(len(items)))
            prefetcher.close()
        else:
            self._claim(cluster, session, prefetcher)
        prefetcher.start_episodes()
        self._coordinator.prepare_end()
        upcoming = prefetcher.take()
        while upcoming is not None:
            item = items[upcoming]
            upcoming = prefetcher.take()
            following = items[upcoming] if upcoming is not None else None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)
        if session.shouldstop and cluster is not None:
            # The run may have been stopped before the first case.
            raise session.Interrupted(session.shouldstop)

    def _claim(self, cluster: ClusterRun, session: pytest.Session, prefetcher: Prefetcher) -> None:
        """Run only the cases that this host claims, because several hosts share the cases."""

        def lost(why: str) -> None:
            session.shouldstop = f"pytest-ultrapar: {why}"
            prefetcher.abandon()

        is_case = self._is_case
        prefetcher.put([index for index in range(len(session.items)) if index not in is_case])
        with usage_errors():
            self._coordinator.join_cluster(self._cases)
        # The broker decides when cases can be claimed.
        prefetcher.start()
        put, close, warn = prefetcher.put, prefetcher.close, self._coordinator.warn
        cluster.claiming.start(put, close, lost, warn, self._hold)

    def _hold(self, until_s: float, taken: Sequence[str], again: Sequence[str]) -> None:
        if self._port is not None:
            self._port.hold_claims_from_thread(until_s, taken, again)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Stop the engine if the test loop has not: it never ran, or was interrupted at its end."""
        if self._prefetcher is not None:
            self._prefetcher.stop()
