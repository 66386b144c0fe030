"""The two halves of a process that runs cases: the engine prefetches, and pytest reports."""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter, deque
from contextlib import closing, suppress
from functools import partial
from itertools import chain
from time import sleep
from typing import TYPE_CHECKING, Any

import pytest

from pytest_ultrapar.engine.engine import Engine
from pytest_ultrapar.engine.episode import EpisodeSkipped, Work
from pytest_ultrapar.engine.replay import NoBroker, ReplaySettings, StoredCase
from pytest_ultrapar.errors import ResultsError
from pytest_ultrapar.pool.served_models import Wait
from pytest_ultrapar.records import Ending, EpisodeEnded
from pytest_ultrapar.session import garbage_collection, internals, prefetch, run_config
from pytest_ultrapar.session.body_result import BodyResult, run_body
from pytest_ultrapar.session.case_dependencies import POLL_S, CaseDependencies
from pytest_ultrapar.session.collection import (
    Collected,
    arguments_for,
    case_seed,
    parameter,
    repetition,
)
from pytest_ultrapar.session.engine_settings import engine_settings
from pytest_ultrapar.session.grading import Grader
from pytest_ultrapar.session.lane_endpoints import lane_endpoints, unsent_endpoints
from pytest_ultrapar.session.prefetch import ANSWERS, CaseInfo, CaseState
from pytest_ultrapar.session.runtime import Runtime
from pytest_ultrapar.store.journal import JournalReader
from pytest_ultrapar.store.replayed import ReplayedEpisodes
from pytest_ultrapar.store.run_directory import JOURNAL_NAME
from pytest_ultrapar.store.string_parts import read_part
from pytest_ultrapar.system.clock import utc_now_us

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping, Sequence
    from pathlib import Path

    from pytest_ultrapar.broker.interface import BrokerInterface
    from pytest_ultrapar.engine.engine import EngineSettings
    from pytest_ultrapar.engine.llm import Llm
    from pytest_ultrapar.pool.settings import Options
    from pytest_ultrapar.session.answer_source import Source
    from pytest_ultrapar.session.grader_pool import GraderPool
    from pytest_ultrapar.session.graders import GraderFunction
    from pytest_ultrapar.session.prefetch import Prefetched
    from pytest_ultrapar.store.journal import Position

_SWITCH_INTERVAL_S = 0.0005
_BURST_S = 0.008
"""Episodes that end within this time, in seconds, are reported together."""
_YIELD_LAG_S = 0.003
"""The engine's loop counts as lagging if it wakes at least this many seconds too late."""
_YIELD_S = 0.005
_MOST_YIELDS = 40
"""While the engine's loop lags, pytest waits up to 40 times 5 ms before each report."""
_AT_ONCE = 500
"""How many cases are prepared at a time before they are given to the engine. In a run with 50,000
cases, preparing all of them first would delay the first requests by more than a second."""
_GRADED_AT_ONCE = 64
"""The maximum number of cases that graders grade at the same time: enough to keep 64 processes
busy."""
_NOT_THERE: tuple[Ending, str, str] = (
    "infra",
    "not_in_run",
    "the regraded run has no episode for this case",
)


def make_prefetcher(
    config: pytest.Config,
    *,
    items: Sequence[pytest.Item],
    collected: Collected,
    directory: Path,
    worker: str,
    base_urls: Mapping[str, str],
    connect: Callable[[], Awaitable[BrokerInterface]],
    alone: bool = False,
) -> Prefetcher:
    """Build the parts that run cases in this process; nothing is sent before the first `put`.

    Raises:
        ConfigError: A key's environment variable is not set.
        ResultsError: The journal cannot be written.
    """
    options, pool = run_config.settings(config)
    source = run_config.source(config)
    runtime = Runtime(
        config=config,
        options=options,
        directory=directory,
        worker=worker,
        redactor=run_config.redactor(pool),
    )
    is_finished = runtime.recovered.lookup
    asked = run_config.asked_pool(
        config,
        (one for one in collected.cases if one.skipped is None and not is_finished(one.case_id)),
    )
    # The cases are on disk by now.
    collected.cases.clear()
    garbage_collection.spare_items(config)
    internals.cache_session_lookups(items[0].session)
    # A source that sends nothing needs neither keys nor servers.
    if source.sends:
        run_config.check_keys(config, asked)
        found = lane_endpoints(asked, base_urls, Wait(options.wait_for_servers_s))
    else:
        found = unsent_endpoints(pool)
    settings = engine_settings(
        pool,
        runtime.redactor,
        runtime.parts,
        record=options.record,
        max_attempts=options.max_attempts,
        worker=worker,
        connect=connect if source.sends else _no_broker,
        endpoints=found,
        episode_timeout_s=options.episode_timeout_s,
        replay=_replay(collected, runtime, source),
        # A replay that sends nothing gets all answers from the replayed run, each of them once.
        begun=partial(_begun, runtime) if source.sends else lambda _: None,
        roles=pool.roles,
        unheard_s=_unheard_s(options),
    )
    return Prefetcher(items, collected, runtime, settings, source, alone=alone)


def _unheard_s(options: Options) -> float | None:
    """The maximum seconds for a request to reach the provider; None if hosts share no limits."""
    if options.cluster_run is None:
        return None
    from pytest_ultrapar.cluster.ledger import UNHEARD_S  # noqa: PLC0415 - only with a cluster

    return UNHEARD_S


async def _no_broker() -> BrokerInterface:
    return NoBroker()


def _replay(collected: Collected, runtime: Runtime, source: Source) -> ReplaySettings | None:
    """The settings for replaying an earlier run; None if the run is not a replay."""
    run = collected.replayed
    if run is None:
        return None
    episodes = runtime.replayed = ReplayedEpisodes(run)

    def part(name: str) -> bytes:
        return read_part(episodes.directory, name)

    def case(case_id: str) -> StoredCase:
        origin = collected.origins[case_id]
        found = origin if isinstance(origin, str) else episodes.read(origin)
        if isinstance(found, str):
            return StoredCase(None, part, found)
        return StoredCase(found, part)

    return ReplaySettings(run.run_id, source.sends, case, runtime.redactor.bytes)


def _begun(runtime: Runtime, case_id: str) -> ReplaySettings | None:
    """The stored answers of an interrupted episode in this run, if there are any."""
    position = runtime.recovered.lookup(case_id, "cut off")
    if position is None:
        return None
    with suppress(ResultsError), closing(JournalReader(runtime.directory / JOURNAL_NAME)) as reader:
        record = reader.read(position)
        assert isinstance(record, EpisodeEnded)
        stored = StoredCase(record, partial(read_part, runtime.directory))
        redact = runtime.redactor.bytes
        return ReplaySettings(runtime.directory.name, True, lambda _: stored, redact, is_own=True)
    return None


class Prefetcher:
    """Takes item positions, and returns them when their episodes have ended.

    Any thread may call `put`, `close` and `abandon`. All other methods belong to pytest's main
    thread, the only thread that evaluates marks and sets up session fixtures.

    Attributes:
        runtime: The run's files and settings.
    """

    def __init__(
        self,
        items: Sequence[pytest.Item],
        collected: Collected,
        runtime: Runtime,
        settings: EngineSettings,
        source: Source,
        *,
        alone: bool = False,
    ) -> None:
        """Create both halves; the engine starts with the first case.

        Args:
            items: pytest's collection.
            collected: The cases among the items.
            runtime: The run's files and settings.
            settings: The settings of the engine.
            source: The source of answers.
            alone: Whether to run only one episode at a time, and only while pytest waits for it. A
                case that kills the process is then identified with certainty.
        """
        self._items = items
        self._collected = collected
        self.runtime = runtime
        self._settings = settings
        self._source = source
        self._alone = alone
        # Guarded by `_changed`: messages from other threads to the main thread.
        self._changed = threading.Condition()
        self._inbox: deque[int] = deque()
        self._finished: deque[tuple[int, Position]] = deque()
        self._graded: deque[tuple[int, str, bytes]] = deque()
        self._lost: BaseException | None = None
        self._closing = False
        self._abandoned = False
        # Main thread only.
        self._engine_error: BaseException | None = None
        self._backlog: deque[int] = deque()
        self._awaited = CaseDependencies(runtime.recovered, collected.peers)
        self._ready = ReadyQueue()
        self._n_ready: Counter[str] = Counter()
        self._running: set[int] = set()
        self._ended: dict[int, EpisodeEnded | Position] = {}
        self._ungraded: deque[int] = deque()
        self._grading: dict[int, int] = {}  # the number of unfinished graders of each case
        self._results: dict[int, dict[str, bytes]] = {}
        self._handed_out: deque[int] = deque()
        self._places: dict[int, tuple[str, int | None]] = {}
        self._thrown: dict[int, BaseException] = {}
        self._current: tuple[pytest.Item, CaseState | None] | None = None
        self._surroundings: internals.EpisodeSurroundings | None = None
        self._engine: Engine | None = None
        self._has_asked = False
        used = dict.fromkeys(chain.from_iterable(collected.graders.values()))
        self._graders = {grader: self._pool_of(grader) for grader in used}

    # -- any thread --------------------------------------------------------------------------------

    def put(self, indices: Sequence[int]) -> None:
        """Queue items by their positions in pytest's collection."""
        with self._changed:
            self._inbox.extend(indices)
            self._changed.notify()

    def close(self) -> None:
        """Announce that there are no more items: `take` returns those that are left, then None."""
        with self._changed:
            self._closing = True
            self._changed.notify()

    def abandon(self) -> None:
        """Drop everything: `take` returns None from now on."""
        with self._changed:
            self._abandoned = True
            self._changed.notify()

    # -- the main thread, before any item ---------------------------------------------------------

    def start(self) -> None:
        """Start the engine before the first case.

        With 15 engines, this saves 0.3 s of 2 s.
        """
        if self._source.runs_episodes:
            self._start_engine()

    # -- the main thread ---------------------------------------------------------------------------

    def start_episodes(self) -> None:
        """Start the episodes of all items that have been put so far. Unlike `take`, do not wait."""
        with self._changed:
            arrived, self._inbox = self._inbox, deque()
        self._accept(arrived)

    def take(self) -> int | None:
        """Wait for the next item whose episode has ended; None if there are no more."""
        while True:
            self._wait_for_news()
            with self._changed:
                arrived, self._inbox = self._inbox, deque()
                finished, self._finished = self._finished, deque()
                graded, self._graded = self._graded, deque()
                lost, self._lost = self._lost, None
                if self._abandoned:
                    return None
            for index, stored in finished:
                # The case may already have been given up: while a failed engine stops, episodes
                # still end.
                if index in self._running:
                    self._running.remove(index)
                    self._make_ready(index, stored)
            for index, name, result in graded:
                self._results.setdefault(index, {})[name] = result
                self._grading[index] -= 1
                if not self._grading[index]:
                    del self._grading[index]
                    self._hand_on(index)
            self._let_grade()
            self._accept(arrived)
            self._put(self._awaited.take_ready())
            if lost is not None:
                self._engine_error = lost
                self._give_all_up(lost)
            ready = self._ready.pop()
            if ready is not None:
                if ready in self._collected.case_ids:
                    self._n_ready[self._group_of(ready)] -= 1
                self._let_engine_run()
                self._handed_out.append(ready)
                internals.locate(self._items[ready], self._places)
                return ready
            if self._running or self._grading:
                continue
            if self._backlog:
                self._submit([self._backlog.popleft()])
            elif self._closing and not (self._inbox or self._awaited.waiting):
                return None

    @property
    def has_ready(self) -> bool:
        """Whether `take` can return without waiting for an episode to end."""
        return bool(self._ready)

    def n_ready(self) -> dict[str, int]:
        """For each group, how many cases have an ended episode and are now waiting for pytest."""
        return {group: n for group, n in self._n_ready.items() if n}

    @property
    def seen_mock(self) -> str | None:
        """See `HttpClient`."""
        return None if self._engine is None else self._engine.seen_mock

    def _group_of(self, index: int) -> str:
        return self.runtime.group_of(self._collected.case_ids[index])

    def _wait_for_news(self) -> None:
        with self._changed:
            was_waiting = not self._has_news()
            while not self._has_news():
                self._changed.wait(POLL_S if self._awaited.waiting else None)
            ended = bool(self._finished)
        if was_waiting and ended and self._engine is not None and self._engine.n_open:
            # Episodes end in bursts, and each frees a seat. Let the engine refill the seats before
            # reporting.
            sleep(_BURST_S)

    def _has_news(self) -> bool:
        news = (self._inbox, self._finished, self._graded, self._lost, self._abandoned, self._ready)
        if any(news):
            return True
        is_idle = not self._running and not self._grading
        if self._awaited.waiting and not (is_idle and self._backlog):
            return self._awaited.has_ready()
        return is_idle and (bool(self._backlog) or self._closing)

    def state_of(self, item: pytest.Item) -> CaseState | None:
        """The state of the item that is running; None if the item is not a case."""
        return self._current[1] if self._current is not None and self._current[0] is item else None

    def begin_item(self, item: pytest.Item) -> CaseState | None:
        """The state of the case whose item pytest is about to run; None if the item is not a case.

        If a plugin runs an item again, the item gets the same episode and graders' results, but
        everything else is reset.
        """
        if self._current is None or self._current[0] is not item:
            state = self._new_state(self._position_of(item))
        elif (state := self.state_of(item)) is not None:
            known = (state.prefetched, state.case_id, state.ended)
            state = CaseState(*known, is_again=True, thrown=state.thrown, results=state.results)
        prefetch.state = state
        self._current = (item, state)
        return state

    def _new_state(self, index: int) -> CaseState | None:
        case_id = self._collected.case_ids.get(index)
        if case_id is None:
            return None
        ended = self._ended.pop(index, None)
        if ended is not None and not isinstance(ended, EpisodeEnded):
            ended = self.runtime.read_episode(ended)
        prefetched = self._collected.prefetched[index]
        return CaseState(
            prefetched,
            case_id,
            ended,
            thrown=self._thrown.pop(index, None),
            results=self._results.pop(index, {}),
        )

    def _position_of(self, item: pytest.Item) -> int:
        """The position of an item that `take` has returned; -1 for any other item.

        Another plugin's wrapper may have skipped earlier items, so that they were never set up. If
        this method simply took the first position in the queue, the item would then get another
        item's episode.
        """
        if not any(self._items[index] is item for index in self._handed_out):
            return -1
        while self._items[index := self._handed_out.popleft()] is not item:
            for kept in (self._ended, self._thrown, self._results):
                kept.pop(index, None)
        return index

    def end_episodes(self, session: pytest.Session) -> None:
        """If no further item runs, end the engine before the episodes' fixtures are torn down.

        If a session fixture were torn down while an episode still used it, the episode would fail.
        A resumed run would then use this failure as the episode's result.

        Args:
            session: The session that is about to be torn down.
        """
        ends = session.shouldfail or session.shouldstop or self._abandoned
        if ends and self._engine is not None:
            self._engine.stop()

    def stop(self) -> str:
        """End the engine and close the run's files. Idempotent.

        Episodes that are still running are recorded as interrupted.

        Returns:
            The reason why the journal may lack its last records; empty if it is complete.
        """
        if self._engine is not None:
            self._engine.stop()
        for pool in self._graders.values():
            pool.stop()
        if self._surroundings is not None:
            self._surroundings.leave()
            self._surroundings = None
        try:
            self.runtime.close()
        except ResultsError as error:
            return f"pytest-ultrapar: {error}"
        return ""

    def _accept(self, arrived: Sequence[int]) -> None:
        work: list[int] = []
        for index in arrived:
            if index not in self._collected.case_ids:
                self._make_ready(index, None)
                continue
            if index in self._collected.not_run:
                self._skip(index, counts=False)
                continue
            stored = self.runtime.recovered.lookup(self._collected.case_ids[index])
            if stored is not None:
                self._skip(index, stored, counts=True)
                continue
            if not self._source.runs_episodes:
                self._make_ready(index, self._ended_early(index, *_NOT_THERE))
                continue
            if index in self._collected.peers:
                self._awaited.wait(index)
                continue
            work.append(index)
            if len(work) == _AT_ONCE and not self._alone:
                self._submit(work)
                work = []
                self._let_engine_run()
        self._put(work)

    def _put(self, work: Sequence[int]) -> None:
        if self._alone:
            self._backlog.extend(work)
        elif work:
            self._submit(work)

    def _skip(
        self, index: int, ended: EpisodeEnded | Position | None = None, *, counts: bool
    ) -> None:
        """Pass on a case that runs no episode, because it is skipped, has ended, or cannot start.

        Args:
            index: The case's position.
            ended: How the case ended; None if it is skipped.
            counts: Whether the broker counts the case as an ended episode.
        """
        if self._source.runs_episodes and (counts or self._group_of(index)):
            self._start_engine().note_skipped(self._collected.case_ids[index])
        self._make_ready(index, ended)

    def _make_ready(self, index: int, stored: EpisodeEnded | Position | None) -> None:
        if stored is not None:
            self._ended[index] = stored
        if index in self._collected.case_ids:
            self._n_ready[self._group_of(index)] += 1
            position = None if isinstance(stored, EpisodeEnded) else stored
            self._awaited.note(self._collected.case_ids[index], position)
        if stored is not None and index in self._collected.graders:
            self._ungraded.append(index)
            self._let_grade()
        else:
            self._hand_on(index)

    def _hand_on(self, index: int) -> None:
        self._ready.add(index, internals.higher_scopes(self._items[index]))

    def _let_grade(self) -> None:
        """Pass ended cases to their graders, but keep only a few values in memory at a time."""
        while self._ungraded and len(self._grading) < _GRADED_AT_ONCE:
            index = self._ungraded.popleft()
            ended, prefetched = self._ended[index], self._collected.prefetched[index]
            try:
                if not isinstance(ended, EpisodeEnded):
                    ended = self.runtime.read_episode(ended)
                value = prefetch.decoded(prefetched, ended)
            except (ResultsError, prefetch.EpisodeError):  # its item reports the error
                self._hand_on(index)
                continue
            given = {**internals.parameters(self._items[index]), prefetched.name: value}
            graders = self._collected.graders[index]
            self._grading[index] = len(graders)
            for one in graders:
                arguments = {name: given[name] for name in one.arguments}
                self._graders[one].submit(index, arguments)

    def _pool_of(self, grader: GraderFunction) -> GraderPool:
        """Start a grader's processes, which import the grader's module while the run starts."""
        from pytest_ultrapar.session.grader_pool import GraderPool  # noqa: PLC0415 - rarely used

        hides, run_dir = self.runtime.redactor.text, self.runtime.directory
        environ = {name: value for name, value in os.environ.items() if hides(value) == value}
        return GraderPool(grader, run_dir=run_dir, environ=environ, graded=self._on_graded)

    def _submit(self, indices: Sequence[int]) -> None:
        if self._engine_error is not None:
            for index in indices:
                self._give_up(index, self._engine_error)
            return
        works: list[Work] = []
        # If several hosts share a run, the run ends when the episodes of all cases have ended.
        counts = self.runtime.options.cluster_run is not None
        for index in indices:
            try:
                works.append(self._work(index))
            except _UnansweredError as error:
                ended = self._ended_early(index, "infra", "awaited", str(error))
                self._skip(index, ended, counts=counts)
            except (KeyboardInterrupt, pytest.exit.Exception):
                raise
            except pytest.skip.Exception:
                self._skip(index, counts=counts)
            except BaseException as error:  # noqa: BLE001 - otherwise the run would wait for the case forever
                # pytest repeats and reports a session fixture's failure when it sets the item up.
                ended = self._ended_early(index, "error", type(error).__name__, str(error))
                self._skip(index, ended, counts=counts)
        self._running.update(work.index for work in works)
        if not works:
            return
        self._start_engine().submit(works)
        if not self._has_asked:
            self._has_asked = True
            # Wait here: if this thread went straight to its next work, such as other cases or
            # imports, this would delay the first requests by 30 ms.
            self._let_engine_run(begins=True)

    def _work(self, index: int) -> Work:
        item = self._items[index]
        prefetched = self._collected.prefetched[index]
        case_id = self._collected.case_ids[index]
        seed = self._collected.seed_of(case_id, case_seed(case_id, self.runtime.options.seed))
        model = parameter(item, "model")
        assert isinstance(model, str)
        info = CaseInfo(
            case_id=case_id,
            seed=seed,
            run_seed=self.runtime.options.seed,
            repeat=repetition(item, self.runtime.options.repeats.n),
            model=model,
            params=internals.parameters(item),
            markers=tuple(mark.name for mark in item.iter_markers()),
        )
        result = BodyResult()
        arguments = arguments_for(item, prefetched, info, Grader(result))

        if prefetched.after is not None:
            answers = self._awaited.answers(index, prefetched.after, self.runtime.read_episode)
            own = model if prefetched.across == "model" else info.repeat
            if own not in answers:
                raise _UnansweredError(
                    f"{prefetched.after.name!r} has no answer for {prefetched.across} {own!r}"
                )
            arguments[ANSWERS] = answers

        def keep(error: BaseException) -> None:
            self._thrown[index] = error

        return Work(
            index=index,
            case_id=case_id,
            model=model,
            group=self.runtime.group_of(case_id),
            seed=seed,
            start=_starter(prefetched, arguments, partial(run_body, result=result, keep=keep)),
        )

    def _start_engine(self) -> Engine:
        if self._engine is None:
            # With CPython's default interval of 5 ms, a busy main thread makes the engine wake 5 ms
            # late (p99 10 ms). With 0.5 ms, the engine wakes 0.7 ms late (p99 1.3 ms).
            sys.setswitchinterval(_SWITCH_INTERVAL_S)
            self._surroundings = internals.EpisodeSurroundings(self._items[0])
            self._surroundings.enter()
            self._engine = Engine(
                self._settings,
                record=self.runtime.journal.append_all,
                ended=self._on_ended,
                sync=self.runtime.sync,
                lost=self._on_lost,
            )
            self._engine.start()
        return self._engine

    def _let_engine_run(self, *, begins: bool = False) -> None:
        """Wait at most 0.2 s while the engine's loop lags: answers have priority over reports.

        Otherwise pytest's thread would hold the interpreter lock for whole items while answers are
        waiting. With 300 requests in flight on one core, the time from the first request to the
        last answer was 2.95 s without this wait and 2.70 s with it.

        Args:
            begins: Whether also to wait until the first episodes have started.
        """
        engine = self._engine
        if engine is None:
            return
        for _ in range(_MOST_YIELDS):
            lags = engine.lag_s >= _YIELD_LAG_S if engine.n_open else begins
            if not lags:
                return
            # Do not wait for the condition that ended episodes notify, because each of them would
            # wake this thread.
            sleep(_YIELD_S)

    def _give_all_up(self, lost: BaseException) -> None:
        for index in [*self._running, *self._backlog, *self._awaited.waiting]:
            self._give_up(index, lost)
        self._running.clear()
        self._backlog.clear()
        self._awaited.waiting.clear()

    def _give_up(self, index: int, lost: BaseException) -> None:
        detail = f"the engine ended early: {type(lost).__name__}: {lost}"
        self._make_ready(index, self._ended_early(index, "infra", "engine", detail))

    def _ended_early(self, index: int, ending: Ending, kind: str, detail: str) -> EpisodeEnded:
        own = (utc_now_us(), self._collected.case_ids[index], self._settings.worker, ending)
        return EpisodeEnded.unasked(*own, kind=kind, detail=detail)

    # -- the engine's thread -----------------------------------------------------------------------

    def _on_ended(self, ended: Sequence[tuple[Work, Position]]) -> None:
        with self._changed:
            self._finished.extend((work.index, stored) for work, stored in ended)
            self._changed.notify()

    def _on_graded(self, *graded: *tuple[int, str, bytes]) -> None:
        with self._changed:
            self._graded.append(graded)
            self._changed.notify()

    def _on_lost(self, error: BaseException) -> None:
        with self._changed:
            self._lost = error
            self._changed.notify()


class _UnansweredError(Exception):
    """This case needs the answer of another case, but that answer is missing."""


_FAILURES = (pytest.fail.Exception, pytest.exit.Exception)


def _starter(
    prefetched: Prefetched,
    arguments: dict[str, Any],
    run: Callable[..., Coroutine[Any, Any, BodyResult]],
) -> Callable[[Llm], Coroutine[Any, Any, Any]]:
    async def start(llm: Llm) -> Any:  # noqa: ANN401 - the suite returns any value
        if "llm" in prefetched.arguments:
            arguments["llm"] = llm
        try:
            if prefetched.is_test:
                return await run(prefetched.function, arguments, llm)
            return await prefetched.function(**arguments)
        except (pytest.skip.Exception, *_FAILURES, BaseExceptionGroup) as error:
            # pytest's outcomes do not derive from `Exception`, so they would look like a cancelled
            # task. If an outcome is raised in a task group, it arrives in an exception group.
            is_group = isinstance(error, BaseExceptionGroup)
            group: Any = error if is_group else BaseExceptionGroup("", [error])
            skips, others = group.split(pytest.skip.Exception)
            if skips is not None and others is None:
                raise EpisodeSkipped(str(_first(skips))) from None
            failures, _ = group.split(_FAILURES)
            if failures is not None:
                raise AssertionError(str(_first(failures))) from error
            raise

    return start


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class ReadyQueue:
    """Ended items in order of completion, except that ready items of the same place stay together.

    An item's place is its module and its higher-scoped parameters. If any ready items have the same
    place as the item that ran last, they come first. Fixtures of that place are then set up only
    once, instead of once per item.
    """

    def __init__(self) -> None:
        self._by_place: dict[Hashable, deque[int]] = {}
        self._last: Hashable = None

    def __bool__(self) -> bool:
        return bool(self._by_place)

    def add(self, index: int, place: Hashable) -> None:
        """Put an ended item at the end of the queue for its place."""
        self._by_place.setdefault(place, deque()).append(index)

    def pop(self) -> int | None:
        """The next item to run, or None if no item is ready."""
        line = self._by_place.get(self._last)
        if not line:
            # The places are in the order in which their oldest ready items ended.
            self._last = next(iter(self._by_place), None)
            line = self._by_place.get(self._last)
            if not line:
                return None
        index = line.popleft()
        if not line:
            del self._by_place[self._last]
        return index
