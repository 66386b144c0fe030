"""The engine: a thread whose event loop runs episodes before pytest reaches their tests.

pytest calls tests one after another in the main thread. A loop in that thread would stop while a
test is grading, and so would all requests in flight.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import threading
from asyncio import sleep  # a test may fake `asyncio.sleep`
from collections.abc import Awaitable, Callable, Sequence  # noqa: TC003 - for msgspec to read
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import msgspec

from pytest_ultrapar.broker import debug_log
from pytest_ultrapar.broker.interface import BrokerInterface  # noqa: TC001 - msgspec reads the field's type
from pytest_ultrapar.broker.protocol import TAKEN, Feedback, Lease, LeaseRequest
from pytest_ultrapar.engine.admission import Admission, Line
from pytest_ultrapar.engine.episode import CLEAN_UP_S, Work, run_episode
from pytest_ultrapar.engine.http import HttpClient
from pytest_ultrapar.engine.loop import EngineTask, engine_context, new_loop, run_to_end
from pytest_ultrapar.engine.sender import ClientSettings, EngineParts
from pytest_ultrapar.engine.stalls import watch_stalls
from pytest_ultrapar.errors import InfraError
from pytest_ultrapar.records import Ending, EngineSpent, EpisodeEnded, EpisodeStarted, JournalRecord
from pytest_ultrapar.system.clock import cpu_use, utc_now_us

HEARTBEAT_S = 0.005
"""The time between two heartbeats, in seconds. By default, a busy main thread holds the interpreter
lock for 5 ms at a time (`sys.getswitchinterval`). A shorter interval would only measure that."""


class LoopLag:
    """Counts the heartbeats of the engine's loop and measures their delay. Any thread may read it.

    The delay includes the time in which a busy main thread holds the interpreter lock.

    Args:
        now_s: Reads the engine's clock.
        cpu_use: Returns the CPU use of the process so far, like `cpu_use` in `system/clock.py`.
    """

    def __init__(
        self, now_s: Callable[[], float], cpu_use: Callable[[], tuple[float, float]]
    ) -> None:
        self._now_s = now_s
        self._cpu_use = cpu_use
        self._due_s = math.inf
        # While episodes were open: wall time, CPU time and the time waiting for a CPU, in seconds.
        self._spent = [0.0, 0.0, 0.0]
        self._n_beats = 0
        self._late_s = 0.0
        self._latest_s = 0.0

    @property
    def lag_s(self) -> float:
        """How long the next beat has been overdue, >= 0 seconds; 0 if no beat is due."""
        return max(0.0, self._now_s() - self._due_s)

    def overdue(self) -> tuple[float, float]:
        """Return when the next beat is due (infinity: never), and how many seconds late it is."""
        return self._due_s, self.lag_s

    def beat(self, *, busy: bool) -> None:
        """Count a beat; the next one is due after `HEARTBEAT_S`.

        Args:
            busy: Whether any episode is open now. If not, no further beat is due.
        """
        now_s = self._now_s()
        was_busy = self._due_s < math.inf
        if was_busy:
            late_s = max(0.0, now_s - self._due_s)
            self._n_beats += 1
            self._late_s += late_s
            self._latest_s = max(self._latest_s, late_s)
        if busy != was_busy:
            # When the first episode begins, subtract the current time; when the last one ends, add
            # it. The sum is the time with open episodes.
            sign = -1 if busy else 1
            for at, at_s in enumerate((now_s, *self._cpu_use())):
                self._spent[at] += sign * at_s
        self._due_s = now_s + HEARTBEAT_S if busy else math.inf

    def spent(self, worker: str) -> EngineSpent:
        """Return the engine's totals. Call this after the last episode of `worker` has ended."""
        self.beat(busy=False)
        wall_s, cpu_s, waited_s = self._spent
        lag = (self._n_beats, self._late_s, self._latest_s)
        return EngineSpent(worker, wall_s, cpu_s, *lag, waited_s=waited_s)


SPARE_CONNECTIONS = 8
"""Connections in addition to one per episode: while one connection closes, another must be free."""
_SYNC_S = 1.0
"""The time between two syncs, in seconds. If the process is killed, no written data is lost. A
power failure loses at most the data written since the last sync."""
_STOP_S = CLEAN_UP_S + 1.0


class EngineSettings(ClientSettings, frozen=True, kw_only=True):
    """The settings of an engine. With `replay`, episodes begin without a lease.

    Attributes:
        worker: The name of the process in records and at the broker.
        connect: Connects to the broker and returns its interface. It is awaited once, on the
            engine's loop, and may take as long as necessary: the cases wait until it returns.
        episode_timeout_s: The time limit for one episode, > 0 seconds.
        most_open: The maximum number of open episodes. It also determines the maximum number of
            connections.
        unheard_s: See `HttpClient`.
    """

    worker: str
    connect: Callable[[], Awaitable[BrokerInterface]]
    episode_timeout_s: float
    most_open: int
    unheard_s: float | None = None


class Engine:
    """Runs episodes in a thread. Every public method may be called from any thread.

    The engine calls `record` to append to the journal, and `ended` to report finished episodes,
    both on its own thread. It reports an episode only after the episode's record is written.

    It calls `lost` with the error that ends the engine early, such as a full disk or the loss of
    the broker.
    """

    def __init__(
        self,
        settings: EngineSettings,
        *,
        record: Callable[[Sequence[JournalRecord]], Sequence[Any]],
        ended: Callable[[Sequence[tuple[Work, Any]]], None],
        sync: Callable[[], None],
        lost: Callable[[BaseException], None],
    ) -> None:
        """Make an engine that is not running yet.

        Args:
            settings: See `EngineSettings`.
            record: Writes records durably, in the given order, and returns the position of each
                record.
            ended: Called with the finished episodes and the positions that `record` returned.
            sync: Forces the records to disk; called every second.
            lost: Called with the exception that ended the engine.
        """
        self._settings = settings
        self._record = record
        self._announce = ended
        self._sync = sync
        self._lost = lost
        self._loop: asyncio.AbstractEventLoop | None = None
        self._runs = threading.Event()
        self._connected = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(
            target=engine_context().run, args=(self._main,), name="ultrapar-engine", daemon=True
        )
        self._syncing = ThreadPoolExecutor(1, "ultrapar-sync")
        self._request_ids = itertools.count(1)
        self._http: HttpClient | None = None
        self._port: BrokerInterface | None = None
        self._parts: EngineParts | None = None
        self._loop_lag = LoopLag(settings.clock.now_s, partial(cpu_use, os.getpid()))
        self._beats = False
        self._unwritten: list[tuple[JournalRecord, Work | None]] = []
        self._admission: Admission[Work] = Admission(settings.most_open)
        self._asking: set[asyncio.Future[Lease]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stop = asyncio.Event()
        self._stopping = False
        self._fault: BaseException | None = None

    def start(self) -> None:
        """Start the thread, and wait until its loop is running."""
        self._thread.start()
        self._runs.wait()

    def submit(self, works: list[Work]) -> None:
        """Queue cases. Each case is eventually reported to `ended`, unless the engine is stopped.

        This call waits until the engine is connected to the broker.
        """
        self._connected.wait()
        self._call(self._line_up, works)

    def note_skipped(self, case_id: str) -> None:
        """Tell the broker that a case needs no episode, so that waiting groups can start.

        This call waits until the engine is connected to the broker.
        """
        self._connected.wait()
        if self._port is not None:
            self._call(self._port.episode_ended, case_id)

    def _call(self, callback: Callable[..., object], *given: object) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback, *given, context=engine_context())

    @property
    def n_open(self) -> int:
        """How many episodes are open."""
        return len(self._tasks)

    @property
    def seen_mock(self) -> str | None:
        """See `HttpClient`."""
        return None if self._http is None else self._http.seen_mock

    @property
    def lag_s(self) -> float:
        """How long the loop's heartbeat has been overdue, in seconds."""
        return self._loop_lag.lag_s

    def stop(self) -> None:
        """Cancel all episodes, record them as interrupted, and end the thread. Idempotent."""
        self._call(self._stop.set)
        if self._thread.is_alive():
            self._thread.join(_STOP_S)

    # -- on the engine's thread --------------------------------------------------------------------

    def _main(self) -> None:
        try:
            with asyncio.Runner(loop_factory=new_loop) as runner:
                try:
                    run_to_end(runner.get_loop(), self._live())
                except BaseException as error:  # noqa: BLE001 - otherwise the run waits for it forever
                    self._lost(error)
                run_to_end(runner.get_loop(), self._end())
        except BaseException as error:  # noqa: BLE001 - as above
            self._lost(error)
        finally:
            self._runs.set()
            self._connected.set()

    async def _live(self) -> None:
        """Run the queued cases until the engine is stopped."""
        settings = self._settings
        self._loop = asyncio.get_running_loop()
        self._runs.set()
        self._http = HttpClient(
            settings.endpoints.values(),
            max_connections=settings.most_open + SPARE_CONNECTIONS,
            unheard_s=settings.unheard_s,
        )
        self._port = await self._connect()
        if self._port is None:
            return
        self._parts = EngineParts(
            port=self._port,
            exchange=self._http,
            next_request_id=self._request_ids.__next__,
            record=self._note,
            **{name: getattr(settings, name) for name in ClientSettings.__struct_fields__},
        )
        self._connected.set()
        stalls = watch_stalls(self._loop_lag.overdue, self._ended)
        own = [asyncio.ensure_future(one) for one in (self._sync_always(), self._stopped())]
        try:
            done, _ = await asyncio.wait(own, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._ended.set()
            for task in own:
                task.cancel()
        for task in done:
            task.result()
        spent = self._loop_lag.spent(settings.worker)
        self._record([msgspec.structs.replace(spent, stalls=dict(stalls))])

    async def _connect(self) -> BrokerInterface | None:
        """Return the broker's interface; None if the engine is stopped before it is connected."""
        connecting = asyncio.ensure_future(self._settings.connect())
        stopped = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait({connecting, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if connecting.done():
            return connecting.result()
        connecting.cancel()
        return None

    async def _stopped(self) -> None:
        await self._stop.wait()
        if self._fault is not None:
            raise self._fault

    async def _end(self) -> None:
        self._stopping = True
        for asking in list(self._asking):
            asking.cancel()
        # A task that is cancelled before its first step never runs. Therefore let each new task run
        # once: it then returns the lease that it has been granted.
        await sleep(0)
        for episode in list(self._tasks):
            episode.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_STOP_S)
        self._write()
        await self._settings.gateway.close()
        if self._port is not None:
            await self._port.close()
        if self._http is not None:
            await self._http.close()
        self._syncing.shutdown(wait=False)

    def _beat(self) -> None:
        """Beat only while an episode is open: an idle loop must not disturb a busy process."""
        self._beats = self.n_open > 0
        self._loop_lag.beat(busy=self._beats)
        if self._beats:
            asyncio.get_running_loop().call_later(HEARTBEAT_S, self._beat)

    async def _sync_always(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await sleep(_SYNC_S)
            # Use a thread, because requests must not wait for the disk, and a separate executor,
            # because episodes may use all threads of the loop's executor.
            await loop.run_in_executor(self._syncing, self._sync)

    def _line_up(self, works: list[Work]) -> None:
        for line in dict.fromkeys([self._admission.add(work) for work in works]):
            self._ask(line)

    def _ask(self, line: Line) -> None:
        while not self._stopping and (work := self._admission.next_to_ask(line)) is not None:
            if self._settings.replay is None:
                self._ask_for(work, line)
            else:
                self._open(work, line, None)

    def _ask_for(self, work: Work, line: Line) -> None:
        assert self._port is not None
        estimates = self._settings.tokens
        request = LeaseRequest(
            next(self._request_ids),
            work.model,
            work.group,
            opens=True,
            case_id=work.case_id,
            tokens=0 if estimates is None else estimates.of_first(work.model),
        )
        future = self._port.acquire(request)
        self._asking.add(future)
        future.add_done_callback(lambda done: self._answered(work, line, done))

    def _answered(self, work: Work, line: Line, future: asyncio.Future[Lease]) -> None:
        self._asking.discard(future)
        if future.cancelled():
            return
        error = future.exception()
        if error is not None:
            self._refused(work, line, error)
            return
        assert self._port is not None
        lease = future.result()
        if self._stopping:
            self._port.release(lease, "unsent")
        elif (now_s := self._settings.clock.now_s()) > lease.send_by_s:
            # This loop was blocked. If the request were sent now, it would be too close in time to
            # the next request on its lane.
            self._port.release(lease, "unsent", Feedback(late_s=now_s - lease.granted_s))
            self._ask_for(work, line)
        else:
            self._open(work, line, lease)
            self._ask(line)

    def _open(self, work: Work, line: Line, lease: Lease | None) -> None:
        self._admission.opened(line)
        self._note(EpisodeStarted(work.case_id, self._settings.worker, utc_now_us()))
        task = EngineTask(self._run(work, lease), loop=asyncio.get_running_loop())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if not self._beats:
            self._beat()

    def _refused(self, work: Work, line: Line, error: BaseException) -> None:
        self._admission.refused(line)
        if not isinstance(error, InfraError):
            # Only the loss of the broker causes this error, and without a broker no request may be
            # sent.
            self._end_early(error)
            return
        ending: Ending = "interrupted" if error.kind == TAKEN else "infra"
        own = (utc_now_us(), work.case_id, self._settings.worker, ending)
        self._note(EpisodeEnded.unasked(*own, kind=error.kind, detail=str(error)), work)
        self._ask(line)

    async def _run(self, work: Work, lease: Lease | None) -> None:
        assert self._parts is not None
        try:
            if self._stopping:
                if lease is not None:
                    self._parts.port.release(lease, "unsent")
                return
            if lease is not None and debug_log.is_on():
                debug_log.tell(
                    "episode began", case=work.case_id, model=work.model, lane=lease.lane
                )
            ended = await run_episode(
                work,
                lease,
                self._parts,
                timeout_s=self._settings.episode_timeout_s,
                worker=self._settings.worker,
            )
            self._note(ended, work)
        except BaseException as error:
            self._end_early(error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._admission.closed()
            for line in self._admission.lines():
                self._ask(line)

    def _end_early(self, error: BaseException) -> None:
        if not self._stopping:
            self._stopping = True
            self._fault = error
            self._stop.set()

    def _note(self, record: JournalRecord, work: Work | None = None) -> None:
        """Queue a record. In its next iteration, the loop writes all queued records together.

        Writing them one by one would take longer, because each write releases the interpreter lock.
        If the main thread is busy, the loop gets the lock back after 0.5 ms at the earliest.
        """
        if not self._unwritten:
            asyncio.get_running_loop().call_soon(self._write)
        self._unwritten.append((record, work))

    def _write(self) -> None:
        noted, self._unwritten = self._unwritten, []
        if not noted:
            return
        try:
            positions = self._record([record for record, _ in noted])
            ends = [
                (record, work, position)
                for (record, work), position in zip(noted, positions, strict=True)
                if isinstance(record, EpisodeEnded) and work is not None
            ]
            # Do not report cases that this engine interrupts: the run does not wait for them.
            told = [
                (work, position)
                for record, work, position in ends
                if record.ending != "interrupted" or record.kind == TAKEN
            ]
            if told:
                assert self._port is not None
                self._announce(told)
                self._port.episode_ended(*(work.case_id for work, _ in told))
            if debug_log.is_on():
                for record, _, _ in ends:
                    _tell_end(record)
        except Exception as error:  # noqa: BLE001 - the run would wait forever for a case that is not announced
            self._end_early(error)


def _tell_end(record: EpisodeEnded) -> None:
    debug_log.tell(
        "episode ended",
        case=record.case_id,
        ending=record.ending,
        kind=record.kind,
        turns=record.n_turns,
        attempts=len(record.attempts),
        duration_s=record.duration_s,
        seat_wait_s=sum((each.seat_wait_s for each in record.attempts), 0.0),
        backoff_s=record.backoff_s,
    )
