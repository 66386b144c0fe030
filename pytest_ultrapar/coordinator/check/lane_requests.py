"""Send one request to each lane of a pool, in parallel as far as the pool's limits allow."""

from __future__ import annotations

import asyncio
import itertools
import queue
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from pytest_ultrapar.apis.failure import Failure
from pytest_ultrapar.apis.failure_classes import AWAITED
from pytest_ultrapar.apis.outcome import Allowance
from pytest_ultrapar.apis.request import asked_of
from pytest_ultrapar.broker.daily_limits import DailyLimit
from pytest_ultrapar.broker.interface import acquire_lease
from pytest_ultrapar.broker.local import LocalBroker
from pytest_ultrapar.broker.protocol import LeaseRequest
from pytest_ultrapar.broker.settings import BrokerSettings
from pytest_ultrapar.engine.answers import TooLateError
from pytest_ultrapar.engine.endpoints import Endpoint
from pytest_ultrapar.engine.file_descriptors import connections_allowed
from pytest_ultrapar.engine.http import HttpClient
from pytest_ultrapar.engine.lane_check import MESSAGES, send_check, smallest
from pytest_ultrapar.engine.token_estimate import TokenEstimates
from pytest_ultrapar.errors import InfraError
from pytest_ultrapar.pool.model import Lane, LaneId, Pool
from pytest_ultrapar.system.clock import MonotonicClock

if TYPE_CHECKING:
    from collections.abc import Coroutine


_LARGEST_BYTES = 2 * 1024 * 1024
"""The maximum size of an answer, in bytes, which is more than a check needs. All lanes are checked
at the same time. With the usual maximum, 300 servers that never stop sending could fill 5 GB of
memory."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The result of the request to one lane.

    Attributes:
        failure: The failure; None if the lane answered.
        latency_s: Seconds from sending the request to the end of the answer; None if nothing was
            sent.
        at_s: The time of the result, in seconds on the host's monotonic clock.
        unsent: The error that prevented the request; None if a request was sent.
        allowance: The provider's own limits, read from the answer's headers.
    """

    lane: Lane
    failure: Failure | None
    latency_s: float | None
    at_s: float
    unsent: InfraError | None = None
    allowance: Allowance | None = None


@dataclass(eq=False, repr=False)
class LaneRequests:
    """Sends requests on its own thread. Leaving its `with` block cancels unfinished requests.

    Ctrl-C raises an exception on the main thread. If the event loop ran on that thread, the
    exception could interrupt any step, such as closing a connection.

    Attributes:
        pool: The pool. Each of its lanes gets one request, within the pool's limits.
        endpoints: The endpoint of each lane.
        days: The daily limits.
        wait_s: How long to wait for servers that are unavailable, in seconds.
        away: For each lane that is waiting for an unavailable server, the server's last error.
    """

    pool: Pool
    endpoints: Mapping[LaneId, Endpoint]
    days: Sequence[DailyLimit]
    wait_s: float

    def __post_init__(self) -> None:
        """Prepare, but send nothing yet."""
        self.away: dict[LaneId, str] = {}
        self._clock = MonotonicClock()
        self._request_ids = itertools.count(1)
        self._loop = asyncio.new_event_loop()
        self._tasks: list[asyncio.Task[Seen]] = []
        self._ended: queue.SimpleQueue[asyncio.Task[Seen]] = queue.SimpleQueue()

    def __enter__(self) -> Self:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _serve(self) -> None:
        self._loop.run_forever()
        self._loop.close()

    def next(self, timeout_s: float) -> Seen | None:
        """Return the next result, in the order in which answers arrive.

        Args:
            timeout_s: If no result arrives within this time, return None.
        """
        if not self._tasks:
            # Do not send anything earlier: after a Ctrl-C just before the `with` block, no code
            # would cancel the requests.
            self._run(self._begin())
        try:
            return self._ended.get(timeout=timeout_s).result()
        except queue.Empty:
            return None

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _begin(self) -> None:
        alone = _each_lane_alone(self.pool)
        settings = BrokerSettings(alone, wait_for_servers_s=self.wait_s, days=tuple(self.days))
        self._port = LocalBroker(settings, self._clock, asyncio.get_running_loop())
        n_connections = connections_allowed(len(self.pool.lanes))
        self._http = HttpClient(
            self.endpoints.values(), max_connections=n_connections, largest_bytes=_LARGEST_BYTES
        )
        self._estimates = TokenEstimates.of(alone)
        self._at_once = asyncio.Semaphore(n_connections)
        self._tasks = [asyncio.create_task(self._ask(lane)) for lane in self.pool.lanes]
        for task in self._tasks:
            task.add_done_callback(self._ended.put)

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._tasks:
            await self._port.close()
            await self._http.close()

    async def _ask(self, lane: Lane) -> Seen:
        async with self._at_once:
            return await self._ask_now(lane)

    async def _ask_now(self, lane: Lane) -> Seen:
        endpoint = self.endpoints[lane.lane_id]
        tokens = 0
        if self._estimates is not None:
            asked = asked_of({**smallest(endpoint.api), "messages": MESSAGES})
            tokens = self._estimates.of_request(lane.lane_id, asked)
        until_s = self._clock.now_s() + self.wait_s
        seen: Seen | None = None
        # The broker tries an unavailable server again every second or two.
        while seen is None or (
            seen.failure and seen.failure.outcome in AWAITED and seen.at_s < until_s
        ):
            name = lane.lane_id
            wish = LeaseRequest(
                next(self._request_ids), name, opens=True, case_id=name, tokens=tokens
            )
            try:
                lease = await acquire_lease(self._port, wish)
            except InfraError as error:
                return seen or Seen(lane, None, None, self._clock.now_s(), unsent=error)
            sent_s = self._clock.now_s()
            told: list[Allowance | None] = [None]
            try:
                failure = await send_check(
                    self._port, self._http, self._clock, endpoint, lease, told.append
                )
            except TooLateError:
                continue
            finally:
                self._port.episode_ended(lane.lane_id)
            at_s = self._clock.now_s()
            seen = Seen(lane, failure, at_s - sent_s, at_s, allowance=told[-1])
            if failure and failure.outcome in AWAITED:
                self.away[name] = failure.message
        return seen


def _each_lane_alone(pool: Pool) -> Pool:
    """Return a copy of a pool in which lanes do not affect each other. All limits still apply.

    In a run, the failure of one lane affects other lanes: for example, the key that they share may
    be removed. In a check this must not happen, because the results would depend on the order of
    answers. A request must not move to another lane either. Limits keep their names, so they still
    apply to all lanes together.
    """
    lanes = tuple(
        replace(lane, model=lane.lane_id, instance=lane.lane_id, key=lane.lane_id)
        for lane in pool.lanes
    )
    # Remove the models, so that the broker does not ask servers how busy they are.
    providers = tuple(replace(provider, models=()) for provider in pool.providers)
    return replace(pool, lanes=lanes, providers=providers)
