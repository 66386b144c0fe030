"""The plugin and scheduler in xdist's controller; `dispatch` and `crashes` make its decisions."""

from __future__ import annotations

import contextlib
import os
from operator import sub
from typing import TYPE_CHECKING, Any

import pytest

from pytest_ultrapar.broker.blocking_client import BlockingBrokerClient
from pytest_ultrapar.broker.protocol import TAKEN
from pytest_ultrapar.coordinator.crashes import Crashes
from pytest_ultrapar.coordinator.dispatch import (
    MANY_SEATS,
    Dispatch,
    DispatchItem,
    HomeShare,
    homes,
    in_order,
)
from pytest_ultrapar.errors import ResultsError
from pytest_ultrapar.records import EngineSpent
from pytest_ultrapar.report.text import counted
from pytest_ultrapar.session import garbage_collection, run_config, selection
from pytest_ultrapar.session.compatibility import n_workers
from pytest_ultrapar.session.no_pool import fault_path, raise_fault
from pytest_ultrapar.session.options import INPUT, usage_errors
from pytest_ultrapar.session.reports import N_READY, OUTCOME, outcome_of
from pytest_ultrapar.session.worker_messages import (
    event,
    handle_packed,
    note_of,
    noted_at,
    receive_packed,
    remove_notes,
)
from pytest_ultrapar.session.worker_test_lists import tests_differ
from pytest_ultrapar.store.cases_file import PLAN_NAMES, read_collected
from pytest_ultrapar.system.clock import boot_s, cpu_use

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from pytest_ultrapar.broker.protocol import BrokerStatus
    from pytest_ultrapar.coordinator.coordinator import Coordinator

_MOST_IN_A_ROW = 5
"""How many failed starts of workers in a row end the session. Without a limit, a worker that can
never start would be started again and again."""
_KEPT_TO_THE_END = 1
"""How many items a worker keeps until it is told to shut down. Before that, it starts an item only
if it also has the next one (`WorkerInteractor.run_one_test`)."""


class ControllerSession:
    """The plugin in xdist's controller, which is also the scheduler for runs that use a pool.

    All methods are called on the main thread, between two messages from workers. If a docstring
    ends with a method in parentheses, that method of `DSession` is the caller.

    Attributes:
        config: pytest's configuration. xdist's own schedulers have this attribute, too, and
            pytest-rerunfailures reads it after a worker has died.
    """

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self.config = coordinator.config
        self._client: BlockingBrokerClient | None = None
        self._fault_path = fault_path()
        self._n_workers = 0
        self._nodes: dict[str, Any] = {}
        self._collections: dict[str, list[str]] = {}
        self._collection: list[str] = []
        self._case_ids: dict[int, str] = {}
        # Created when all workers have collected.
        self._dispatch: Dispatch | None = None
        self._crashes: Crashes | None = None
        # For the controller and the broker: the process id. Also, as measured before the first
        # case: the clock, the CPU time used, and the time spent waiting for a CPU.
        self._before: dict[str, tuple[int, float, float, float]] = {}
        # Workers that run one episode at a time.
        self._alone: set[str] = set()
        self._vacant: list[HomeShare] = []
        self._homes: dict[str, HomeShare] = {}
        self._unclaimed: dict[int, DispatchItem] = {}
        self._claims = self._is_broken = False
        # Workers that have reported an item since they last got a new one.
        self._hungry: set[str] = set()
        self._reported: set[int] = set()

    # -- hooks -------------------------------------------------------------------------------------

    @pytest.hookimpl(tryfirst=True)
    def pytest_xdist_setupnodes(self, config: pytest.Config) -> None:
        """Make xdist restart workers that die during startup, and unpack workers' packed messages.

        Called once, at the session's start.
        """
        dsession = config.pluginmanager.getplugin("dsession")
        handle_packed(dsession)
        # `NodeManager.setup_nodes` does not handle these errors: if a worker is killed during
        # startup, the session ends with an internal error.
        start_again(dsession.nodemanager)

    def pytest_configure_node(self, node: Any) -> None:  # noqa: ANN401
        """Send a worker its settings before it starts. Also called for replacements."""
        run, worker = self._coordinator.run, node.gateway.id
        receive_packed(node)
        alone = self._dispatch is not None and self._dispatch.wants_alone_worker
        if alone:
            self._alone.add(worker)
        with usage_errors():
            broker = run.services.broker_directory
            base_urls = dict(run.services.base_urls)
        again = selection.again(run.config)
        node.workerinput[INPUT] = {
            "again": again and tuple(again),
            "worker": worker,
            "directory": str(run.directory.path),
            "pool_digest": run.pool.digest,
            "socket": str(broker.socket),
            "token": broker.token,
            "base_urls": base_urls,
            "alone": alone,
            "fault": str(self._fault_path),
        }

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config) -> ControllerSession:
        """Return this object as the scheduler. Called once."""
        # Take the number of workers from the options, as xdist's `LoadScheduling.__init__` does:
        # `nodes` may contain a replacement while one of the first workers has not started yet.
        self._n_workers = n_workers(config)
        return self

    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """End with exit code 4 if a worker found an error in the suite."""
        # `DSession.worker_collectionfinish` calls this before it registers that the worker has
        # collected, so the first workers have no items yet. A replacement may report an error in
        # cases that this run does not have. In that case, `add_node_collection` decides whether the
        # run continues.
        if self._is_other_than_dispatched(ids):
            self._fault_path.unlink(missing_ok=True)
        raise_fault(self._fault_path)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record which items have their last report.

        Also record how many ended episodes the worker has not reported yet.
        """
        # xdist adds the position and the worker (`WorkerController.process_from_remote`,
        # `DSession.worker_testreport`). The plugin's own reports on lost cases have neither.
        dispatch = self._dispatch
        if dispatch is None or not hasattr(report, "item_index"):
            return
        index = report.item_index
        if outcome_of(report) == TAKEN:
            # Another host has the case; this host may claim it again.
            self._unclaimed[index] = dispatch.item(index)
        if report.when == "teardown":
            self._reported.add(index)
            n_ready = getattr(report, N_READY, None)
            if n_ready is not None:
                dispatch.ended(report.node.gateway.id, n_ready)

    def pytest_internalerror(self) -> None:
        """Record an internal error: xdist prints a worker's error, but ends with exit code 0."""
        self._is_broken = True

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Read the broker's status before it ends; record how much CPU it and this process used."""
        if self._is_broken:
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
        self._coordinator.run.last_status = self.status()
        remove_notes(self._coordinator.run.directory.path)
        if self._crashes is None:
            return
        # These numbers are only informative: the run must not fail if they are missing.
        with contextlib.suppress(OSError, ResultsError):
            for name, (pid, *before) in self._before.items():
                wall_s, cpu_s, waited_s = map(sub, (boot_s(), *cpu_use(pid)), before)
                self._crashes.note(EngineSpent(name, wall_s, cpu_s, 0, 0.0, 0.0, waited_s))

    def pytest_unconfigure(self) -> None:
        """Close the connection to the broker; delete an error file that a worker wrote too late."""
        self._fault_path.unlink(missing_ok=True)
        if self._client is not None:
            self._client.close()
        if self._crashes is not None:
            with contextlib.suppress(ResultsError):
                self._crashes.close()

    def status(self) -> BrokerStatus | None:
        """Return the broker's current status, from any thread; None if it does not answer."""
        if self._client is None:
            return None
        try:
            return self._client.status()
        except (OSError, ValueError):
            return None

    # -- the methods that xdist requires of a scheduler --------------------------------------------

    @property
    def nodes(self) -> list[Any]:
        """All live workers."""
        return list(self._nodes.values())

    @property
    def collection_is_completed(self) -> bool:
        """Whether all of the first workers have reported which tests they collected."""
        return bool(self._collection) or len(self._collections) >= self._n_workers

    @property
    def tests_finished(self) -> bool:
        """Whether workers can be told to shut down, which makes them run their last item.

        Called after every message (`loop_once`). One message may report many items, so workers also
        get new items here. The value is true if no item is left to dispatch and each worker has at
        most its last item.
        """
        if not self.collection_is_completed:
            return False
        if self._dispatch is None:
            return True
        while self._hungry:
            worker = self._hungry.pop()
            self._send(worker, self._dispatch.hand_out(worker))
        if self._dispatch.n_unsent or self._claims:
            return False
        return all(
            len(self._dispatch.pending(worker)) <= _KEPT_TO_THE_END
            for worker in self._dispatch.workers
        )

    @property
    def has_pending(self) -> bool:
        """Whether at least one item has not been reported yet."""
        dispatch = self._dispatch
        if dispatch is None:
            return False
        return bool(
            self._claims or dispatch.n_unsent or any(dispatch.pending(w) for w in dispatch.workers)
        )

    def add_node(self, node: Any) -> None:  # noqa: ANN401 - xdist ships no types
        """Record that a worker has started and is about to collect (`worker_workerready`)."""
        self._nodes[node.gateway.id] = node

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:  # noqa: ANN401
        """Record what a worker has collected (`worker_collectionfinish`).

        A replacement gets the home of a worker that died. If the replacement has collected
        different tests, it gets no case and stays idle until the run ends. In that case, the run
        ends immediately if no other worker can run the remaining items.
        """
        worker = node.gateway.id
        self._collections[worker] = list(collection)
        if self._dispatch is None:
            return
        alone = worker in self._alone
        if self._is_other_than_dispatched(collection):
            may_come = self._nodes.keys() - self._collections.keys()
            if alone or not (self._dispatch.workers or may_come):
                self._stop(
                    f"{worker} replaces a worker that died, but collected different tests: no "
                    "worker can run the remaining tests; make test ids the same in every process"
                )
            return
        home = self._vacant.pop() if self._vacant else None
        self._dispatch.add_worker(worker, home, alone=alone)
        if home is not None:
            self._homes[worker] = home

    def schedule(self) -> None:
        """Start dispatching once all workers have collected; later, dispatch to each replacement.

        Called after `add_node_collection` (`worker_collectionfinish`).
        """
        if self._dispatch is None:
            self._dispatch = self._begun()
        if self._dispatch is not None:
            self._send_to_all(self._dispatch)
            self._coordinator.prepare_end()

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:  # noqa: ANN401
        """Record that a worker has reported an item (`worker_runtest_protocol_complete`)."""
        assert self._dispatch is not None
        self._dispatch.reported(node.gateway.id, item_index)
        self._hungry.add(node.gateway.id)

    def mark_test_pending(self, item: str) -> None:
        """Run an item again. Other plugins call this from `pytest_handlecrashitem`."""
        assert self._dispatch is not None
        self._dispatch.give_back([self._collection.index(item)])
        self.schedule()

    def remove_pending_tests_from_node(self, node: Any, indices: Sequence[int]) -> None:  # noqa: ANN401
        """Not used: items are never taken away from a worker."""
        raise NotImplementedError

    def remove_node(self, node: Any) -> str | None:  # noqa: ANN401
        """Remove a worker that ended (`worker_workerfinished`) or crashed (`worker_errordown`).

        Returns:
            The test that the worker was running, which xdist then reports as failed. None if that
            test was a case, because the plugin itself reports cases.
        """
        worker = node.gateway.id
        del self._nodes[worker]  # a KeyError if the worker never started, as xdist expects
        self._hungry.discard(worker)
        if self._dispatch is None:
            return None
        alone = self._dispatch.is_alone(worker)
        pending = self._dispatch.remove_worker(worker)
        # The worker ended normally (`WorkerController.process_from_remote`): no item runs again,
        # and `worker_workerfinished` asserts that the result is None.
        if hasattr(node, "workeroutput"):
            return None
        if worker in self._homes:
            self._vacant.append(self._homes.pop(worker))
        assert self._crashes is not None
        # If an item's teardown report has arrived, the item is done, and only xdist's own
        # "complete" message was lost.
        pending = [index for index in pending if index not in self._reported]
        running = {noted_at(note_of(self._coordinator.run.directory.path, worker))}
        with _stopping_on_lost_journal():
            crash = self._crashes.worker_died(worker, pending, running=running, was_alone=alone)
        again = {*crash.again, *crash.alone, *crash.lost}
        self._forget(self._collection[index] for index in again)
        self._dispatch.give_back_alone(crash.alone)
        self._dispatch.give_back(crash.again)
        for index in crash.lost:
            self._report_lost(index, worker)
        for other in self._dispatch.workers:
            self._send(other, self._dispatch.hand_out(other))
        return self._collection[crash.plain] if crash.plain is not None else None

    # -- helpers of these methods ------------------------------------------------------------------

    def _is_other_than_dispatched(self, collection: Sequence[str]) -> bool:
        """Whether this collection differs from the tests that are being dispatched."""
        return self._dispatch is not None and list(collection) != self._collection

    def _stop(self, why: str) -> None:
        """Stop all workers, with exit code 2, as `DSession._handlefailures` does for `-x`."""
        dsession = self.config.pluginmanager.getplugin("dsession")
        dsession.shouldstop = f"pytest-ultrapar: {why}"

    def _begun(self) -> Dispatch | None:
        """Create the dispatch when all workers have collected; None if they collected no test."""
        collection, *others = self._collections.values()
        for other in others:
            # xdist's own schedulers would report this as a failed test.
            if said := tests_differ(collection, other):
                raise pytest.UsageError(said)
        self._collection = collection
        if not collection:
            self._coordinator.plan_nothing()
            return None
        session = self.config.pluginmanager.getplugin("session")
        if run_config.stops_at_collection(session):
            # `_pytest.main.pytest_runtestloop` also stops here. xdist would run the other tests,
            # whose requests cost money although the run fails anyway.
            raise session.Interrupted(f"{counted(session.testsfailed, 'error')} during collection")
        items = self._items()
        garbage_collection.spare_items(self.config)
        run = self._coordinator.run
        self._homes = homes(run.pool, run.lanes, run.assignment)
        models = {lane.model for lane in run.lanes}
        if self._claim():
            self._unclaimed = {item.index: item for item in items if item.model is not None}
            items = [item for item in items if item.model is None]
        dispatch = Dispatch(
            items,
            seats_of={m: run.pool.seats(run.pool.lanes_of(m)) or MANY_SEATS for m in models},
            home_of=self._homes,
        )
        self._crashes = Crashes(run, self._case_ids)
        pids = {"controller": os.getpid()}
        if run.services.broker is not None:
            pids["broker"] = run.services.broker.pid
        # These numbers are only informative, as at the end.
        with contextlib.suppress(OSError):
            self._before = {name: (pid, boot_s(), *cpu_use(pid)) for name, pid in pids.items()}
        for worker in self._nodes:
            # The replacement of a dead worker may have started but not collected yet.
            if worker in self._collections:
                dispatch.add_worker(worker)
        return dispatch

    def _items(self) -> list[DispatchItem]:
        """Make the assignment, take the keys, start the broker; return the items to dispatch."""
        run = self._coordinator.run
        # Only workers collect. Workers that found cases have written these files.
        if not any((run.directory.path / name).exists() for name in PLAN_NAMES):
            self._coordinator.plan_nothing()
            return [DispatchItem(index, None) for index in range(len(self._collection))]
        # gw2 comes before gw10.
        workers = sorted(self._nodes, key=lambda worker: (len(worker), worker))
        with usage_errors():
            of_nodeid = {case.nodeid: case for case in read_collected(run.directory.path)}
            planned = [of_nodeid[nodeid] for nodeid in self._collection if nodeid in of_nodeid]
            self._coordinator.plan(workers, planned)
            if run.source.sends:
                broker = run.services.start_broker(run.broker_settings())
                self._client = BlockingBrokerClient(broker.path, broker.token)
                self._coordinator.status_source = self.status
                self._client.assign(run.assignment)
            self._coordinator.join_cluster(planned)
        place = {
            case_id: (position, group.name)
            for position, group in enumerate(in_order(run.assignment.groups))
            for case_id in group.cases
        }
        items: list[DispatchItem] = []
        for index, nodeid in enumerate(self._collection):
            case = of_nodeid.get(nodeid)
            if case is None:
                items.append(DispatchItem(index, None))
            else:
                self._case_ids[index] = case.case_id
                rank, group = place.get(case.case_id, (-1, ""))
                # Dispatch a case after the cases that it needs. Otherwise workers could have only
                # cases that wait for others.
                rank += case.stage * (1 + len(place))
                items.append(DispatchItem(index, case.model, rank, group))
        return items

    def _send_to_all(self, dispatch: Dispatch) -> None:
        for worker, indices in dispatch.hand_out_to_all().items():
            self._send(worker, indices)

    def _send(self, worker: str, indices: list[int]) -> None:
        node = self._nodes[worker]
        if not indices:
            return
        # A worker that was told to shut down may end without reading new items.
        if node.shutting_down:
            assert self._dispatch is not None
            for index in indices:
                self._dispatch.reported(worker, index)
            self._dispatch.give_back(indices)
            return
        # A worker may have died and closed its connection before xdist reports that it is dead.
        # Then `remove_node` puts its items back in the queue.
        with contextlib.suppress(OSError):
            node.send_runtest_some(indices)

    def _forget(self, nodeids: Iterable[str]) -> None:
        """Remove a dead worker's reports on items that run again, so that no item counts twice.

        The worker may have died after it reported an item's call and before it reported the item's
        teardown.
        """
        reporter = self.config.pluginmanager.getplugin("terminalreporter")
        if reporter is None:
            return
        # pytest builds its last line and the output of `-rA` from these lists
        # (`TerminalReporter.stats`). Keep warnings: they were raised, no matter how the item ended.
        again = set(nodeids)
        for category, reports in reporter.stats.items():
            if category != "warnings":
                reports[:] = [one for one in reports if getattr(one, "nodeid", None) not in again]

    def _report_lost(self, index: int, worker: str) -> None:
        """Report a case that has killed every worker on which it ran."""
        assert self._dispatch is not None
        assert self._crashes is not None
        item, case_id = self._dispatch.item(index), self._case_ids[index]
        with _stopping_on_lost_journal():
            reports = self._crashes.give_up(self._collection[index], case_id, item.model, worker)
        setattr(reports[0], OUTCOME, "infra")
        for report in reports:
            self.config.hook.pytest_runtest_logreport(report=report)
        if self._client is not None:
            self._client.episode_ended(case_id)

    # -- cases of a cluster run --------------------------------------------------------------------

    def _claim(self) -> bool:
        """Start to claim cases if this is a cluster run; return whether it is one.

        Messages from the claiming thread reach the main thread as events in xdist's queue.
        """
        cluster = self._coordinator.run.cluster
        if cluster is None or not self._case_ids:
            return False
        self._claims = True
        dsession = self.config.pluginmanager.getplugin("dsession")
        cluster.claiming.start(
            event(dsession, "claimed", self._claimed),
            event(dsession, "claims_over", self._claims_over),
            event(dsession, "claims_lost", self._claims_lost),
            event(dsession, "claims_troubled", self._coordinator.warn),
            self._hold,
        )
        return True

    def _hold(self, until_s: float, taken: Sequence[str], again: Sequence[str]) -> None:
        """Tell the broker when this host's claims on cases end; called from any thread.

        A stopped broker need not be told, because it grants no more leases.
        """
        if self._client is not None:
            with contextlib.suppress(OSError):
                self._client.hold_claims(until_s, taken, again)

    def _claimed(self, indices: Sequence[int]) -> None:
        """Queue the claimed cases on this host."""
        assert self._dispatch is not None
        # If the server lost a claim, this host may claim a case again that is already queued.
        found = [self._unclaimed.pop(index, None) for index in indices]
        # Forget the reports from an earlier claim that this host lost.
        self._reported.difference_update(indices)
        self._dispatch.append_items(item for item in found if item is not None)
        self._send_to_all(self._dispatch)

    def _claims_over(self) -> None:
        """Let workers run their last item and end, because no host can start another case."""
        self._claims = False

    def _claims_lost(self, why: str) -> None:
        """Stop all workers and end with exit code 2: the cluster's server was silent too long."""
        self._claims = False
        self._stop(why)


@contextlib.contextmanager
def _stopping_on_lost_journal() -> Generator[None]:
    """End the session if the journal cannot be read or written: results could not be stored."""
    try:
        yield
    except ResultsError as error:
        raise pytest.Session.Interrupted(f"pytest-ultrapar: {error}") from error


def start_again(node_manager: Any) -> None:  # noqa: ANN401 - xdist ships no types
    """Make a node manager restart workers that die during startup.

    Args:
        node_manager: xdist's node manager, which has not started a worker yet.
    """
    setup_node = node_manager.setup_node

    def setup(spec: Any, putevent: Any) -> Any:  # noqa: ANN401
        for _ in range(_MOST_IN_A_ROW):
            try:
                return setup_node(spec, putevent)
            except (OSError, EOFError) as error:
                said = error
                # If execnet registered the gateway before the process died, the name is taken:
                # execnet accepts no name twice (`Group._register`).
                spec.id = None
                node_manager.group.allocate_id(spec)
        raise pytest.UsageError(
            f"{_MOST_IN_A_ROW} worker processes in a row ended during startup; last error: {said!r}"
        )

    node_manager.setup_node = setup
