"""Send one request, with retries, until it gets an answer or the run gives up on it.

For each attempt: take a lease, send, read the answer, and decide whether to try again. Every
request that an episode makes goes through this module. So each request is subject to the limits and
to the one retry layer, and every attempt is recorded.
"""

from __future__ import annotations

import asyncio
import math
import random
from asyncio import sleep  # a test may fake `asyncio.sleep`
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Any, NoReturn

import msgspec

from pytest_ultrapar.apis.failure import Failure
from pytest_ultrapar.apis.failure_classes import CLASSES, OWN, is_doubted
from pytest_ultrapar.apis.provider_state import state_made, state_named
from pytest_ultrapar.apis.reply import Messages, Reply
from pytest_ultrapar.apis.server_json import LEFT_OUT
from pytest_ultrapar.broker import debug_log
from pytest_ultrapar.broker.interface import (
    BrokerInterface,
    acquire_lease,
    may_send,
    report_late_send,
)
from pytest_ultrapar.broker.protocol import (
    GONE,
    NO_LANE,
    OF_REQUEST,
    Feedback,
    Lease,
    LeaseOutcome,
    LeaseRequest,
    TokenBounds,
)
from pytest_ultrapar.engine.answers import (
    Answer,
    ClientGoneError,
    Pieces,
    Request,
    TooLateError,
    as_awaited,
    feedback_from,
    read_answer,
)
from pytest_ultrapar.engine.conversation import Conversation
from pytest_ultrapar.engine.endpoints import Endpoint
from pytest_ultrapar.engine.gateway import Gateway
from pytest_ultrapar.engine.http import HttpClient
from pytest_ultrapar.engine.lane_check import send_check
from pytest_ultrapar.engine.replay import EpisodeReplay, ReplaySettings
from pytest_ultrapar.engine.retry import RetryPolicy, Tries
from pytest_ultrapar.engine.token_estimate import TokenEstimates
from pytest_ultrapar.errors import BadRequestError, InfraError, NoLaneError, PromptRefused, refuse
from pytest_ultrapar.pool.field_checks import did_you_mean
from pytest_ultrapar.pool.model import LaneId
from pytest_ultrapar.records import Attempt, JournalRecord
from pytest_ultrapar.system.clock import Clock

_HOLD_FIRST_LEASE_S = 1.0
_HOLD_SEAT_S = 0.05
"""How many seconds an episode may hold its lease before its first request, if the lease reserves a
seat but counts towards no rate limit."""
_CLOSE_S = 1.0
"""A cancelled send should end immediately. If it takes longer than this many seconds, its episode
ends without waiting for it."""
_CLOCK_STEP_S = 0.05
"""The tolerance for comparisons of times, in seconds. The loop's clock advances in steps of 1 ms,
and may be a few steps behind the engine's clock."""


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings for the clients of all episodes of an engine.

    Attributes:
        endpoints: The endpoint of each lane.
        retry: The policy of the retry layer.
        shown: Shortens the text of a failure to one line without secrets.
        masked: Removes secrets from the answers that SDKs get.
        tokens: Estimates the tokens of requests; None if no limit counts tokens.
        conversation: Makes the record of an episode's conversation, with as much content as the run
            stores.
        replay: The stored answers to search before a request is sent; None if all requests are
            sent.
        roles: The model of each role in the pool.
        gateway: The server through which other processes send requests. It starts when an episode
            first needs its address.
        begun: Takes a case id, and returns the stored answers of the case's episode if that was
            interrupted; otherwise None. It is called on the engine's thread and must not raise.
    """

    endpoints: Mapping[LaneId, Endpoint]
    retry: RetryPolicy
    clock: Clock
    shown: Callable[[str], str]
    masked: Callable[[bytes], bytes]
    tokens: TokenEstimates | None = None
    conversation: Callable[[], Conversation] = Conversation
    replay: ReplaySettings | None = None
    roles: Mapping[str, str] = {}
    gateway: Gateway = msgspec.field(default_factory=Gateway)
    begun: Callable[[str], ReplaySettings | None] = lambda _: None


class EngineParts(ClientSettings, frozen=True, kw_only=True):
    """The settings and parts of an engine that the clients of all its episodes share."""

    port: BrokerInterface
    exchange: HttpClient
    next_request_id: Callable[[], int]
    record: Callable[[JournalRecord], None] = lambda _: None


class Sends:
    """The requests of an episode that are in progress, to any model. They end with the episode.

    Attributes:
        replays: The sources of stored answers for these requests.
    """

    def __init__(self) -> None:
        self.is_closed = False
        self.replays: list[EpisodeReplay] = []
        self._under_way: dict[asyncio.Task[Any], Request] = {}
        self._idle = asyncio.Event()

    def begin(self, task: asyncio.Task[Any], request: Request) -> None:
        """Register a task that is going to send a request."""
        self._under_way[task] = request

    def end(self, task: asyncio.Task[Any]) -> None:
        """Remove the task, because its request has ended."""
        del self._under_way[task]
        if not self._under_way:
            self._idle.set()

    def __bool__(self) -> bool:
        return bool(self._under_way)

    async def close(self) -> None:
        """End all requests that the episode left unfinished, so that its record includes them.

        This waits up to `_CLOSE_S` seconds for the requests to end. It does not wait for the tasks
        that sent them, which may still have work to do.
        """
        self.is_closed = True
        for task, request in self._under_way.items():
            # After the last piece, let the task run: it only has to return the connection.
            if request.pieces is None or not request.pieces.is_whole:
                task.cancel()
        if self._under_way:
            self._idle.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), _CLOSE_S)


@dataclass(eq=False, repr=False)
class Sender:
    """Sends the requests of one episode to one model; used on the engine's loop.

    Attributes:
        parts: The parts that the clients of all episodes share.
        model: The model of all requests.
        group: The case's group in the assignment; empty if it is in no group.
        case_id: The id of the case.
        seed: The seed for the jitter in back-offs.
        first: The episode's first lease, until a request takes it; None after that. It is also None
            for a sender that never got a first lease, such as a role's.
        until_s: The episode's deadline, in seconds on the monotonic clock.
        role: The role of the model; empty for the case's own model.
        case: The sender for the episode's own model, if this sender is for a role.
        begun: The stored answers of the episode, if it was interrupted; None otherwise.
        keep: Writes the conversation so far to the journal.
        conversation: Records requests and their answers.
        sends: The episode's requests that are in progress.
        since_s: When the episode began, in seconds on the monotonic clock.
    """

    parts: EngineParts
    _: KW_ONLY
    model: str
    group: str
    case_id: str
    seed: int
    first: Lease | None
    until_s: float = math.inf
    role: str = ""
    case: Sender | None = None
    begun: ReplaySettings | None = None
    keep: Callable[[Conversation], None] = lambda _: None

    def __post_init__(self) -> None:
        """Prepare the sender, and hold the first lease for the first request of the episode."""
        parts, case, first = self.parts, self.case, self.first
        self.conversation: Conversation = (
            parts.conversation() if case is None else case.conversation
        )
        self.sends: Sends = Sends() if case is None else case.sends
        self.since_s: float = parts.clock.now_s() if case is None else case.since_s
        self._lane: LaneId | None = None
        self._replays: list[EpisodeReplay] = []
        for source in (self.begun, parts.replay):
            if source is not None:
                lanes = [one for one in parts.endpoints.values() if one.model == self.model]
                now_s, shown = parts.clock.now_s, parts.shown
                self._replays.append(
                    EpisodeReplay(
                        source, self.case_id, lanes, role=self.role, now_s=now_s, shown=shown
                    )
                )
        self.sends.replays += self._replays
        self.loop: asyncio.AbstractEventLoop = (
            asyncio.get_running_loop() if case is None else case.loop
        )
        self._made: dict[str, LaneId] = {}
        self._first_timer: asyncio.TimerHandle | None = None
        if first is not None:
            self._lane = first.lane
            # Seats are scarce, so an episode that prepares for long before its first request
            # returns its seat. A send that has been counted against a rate cannot be returned.
            is_paced = first.late_after_s < math.inf
            self._hold_first(_HOLD_FIRST_LEASE_S if is_paced else _HOLD_SEAT_S)

    def _hold_first(self, hold_s: float) -> None:
        # If the timer is late because the loop is busy, the first request may be about to start.
        busy_s = self.loop.time() + 2 * hold_s

        def look() -> None:
            held_s = self.parts.clock.now_s() - self.since_s
            if self.loop.time() > busy_s and held_s < _HOLD_FIRST_LEASE_S:
                self._hold_first(hold_s)
            else:
                self.return_unused()

        self._first_timer = self.loop.call_later(hold_s, look)

    @cached_property
    def _rng(self) -> random.Random:
        return random.Random(f"{self.seed} {self.role}" if self.role else self.seed)

    def in_role(self, role: str) -> Sender:
        """Make a sender for requests to the model of a role. Called once for each role.

        The requests belong to the same case, and their turns are numbered together with the case's
        own turns. But no first lease is held for them, and they may use all lanes of their model,
        regardless of the case's group. They also have their own lane and back-offs.

        Raises:
            ConfigError: The pool has no such role.
        """
        __tracebackhide__ = True
        models = self.parts.roles
        if role not in models:
            how = "add this to the pool file (ultrapar init creates one):"
            how += f'\n    [role.{role}]\n    model = "NAME"'
            has = f"it has {', '.join(models)}" if models else how
            meant = did_you_mean(role, models)
            refuse(f"llm.role({role!r}): the pool has no such role; {has}{meant}")
        return Sender(
            self.parts,
            model=models[role],
            group="",
            case_id=self.case_id,
            seed=self.seed,
            first=None,
            until_s=self.until_s,
            role=role,
            case=self,
            begun=self.begun,
            keep=self.keep,
        )

    def next_turn(self, messages: Messages) -> int:
        """Record a request's messages, and return the request's number in the episode, from 0.

        Args:
            messages: The whole conversation so far.

        Raises:
            RuntimeError: The episode has ended.
        """
        if self.sends.is_closed:
            raise RuntimeError("llm or a client made with it was used after its episode had ended")
        turn = self.conversation.n_turns
        self.conversation.n_turns += 1
        self.conversation.note(turn, messages, self.role)
        return turn

    async def close(self) -> None:
        """End the episode's unfinished requests, and return the first lease if it is unused."""
        await self.sends.close()
        self.return_unused()

    async def answer(
        self, turn: int, request: Request
    ) -> tuple[Reply | PromptRefused | BadRequestError, Answer | Failure]:
        """Send a request and return the final answer: a reply, or an error in the request itself.

        Args:
            turn: The number of the request in the episode, from 0.
            request: The request to send.

        Raises:
            InfraError: The request got no answer. The case becomes `infra`.
        """
        task = asyncio.current_task()
        assert task is not None
        self.sends.begin(task, request)
        try:
            stored = await self._stored(turn, request)
            if stored is None:
                self.keep(self.conversation)
            found = stored or await self._asked(turn, request)
            if not isinstance(found[0], Reply):
                self.conversation.is_wrong(turn)
        finally:
            self.sends.end(task)
        # If other requests of the episode are still running, write the answer now, because they may
        # take a long time.
        if self.sends:
            self.keep(self.conversation)
        return found

    async def _stored(
        self, turn: int, request: Request
    ) -> tuple[Reply | PromptRefused | BadRequestError, Answer] | None:
        """Return the stored answer to a request; None if no answer is stored."""
        found = None
        for replay in self._replays:
            try:
                found = found or await replay.answer(turn, request, self.conversation)
            except InfraError as error:
                self._fail(error, None)
            except PromptRefused as refused:
                wrong = self._wrong(refused)
                self.conversation.fail(wrong)
                raise wrong from None
        if found is None:
            return None
        result, answer, lane = found
        if lane in self.parts.endpoints:
            self._made |= dict.fromkeys(state_made(answer.body), lane)
        return result if isinstance(result, Reply) else self._wrong(result), answer

    async def _asked(
        self, turn: int, request: Request
    ) -> tuple[Reply | PromptRefused | BadRequestError, Answer | Failure]:
        # The body for each lane, because names of models and parameters differ. It is encoded only
        # once, even if it is sent several times.
        on: dict[LaneId, tuple[Endpoint, bytes]] = {}
        bound = self._bound(request, on)
        tries = Tries()
        after: LaneId | None = None
        was_late = False
        # Retries after a refusal because of too many requests are not counted: the deadline ends
        # them.
        while True:
            t_ready_s = self.parts.clock.now_s()
            try:
                lease = await self._lease(request, tries, after, bound)
            except BadRequestError:
                if tries.wrong is None:
                    raise
                return tries.wrong
            # The retry budget has paid for this lease. If the lease is too old to send on, do not
            # pay again.
            after = None
            if lease.is_check:
                await self._check_lane(lease)
                continue
            if lease.lane in tries.refused_by:
                # While this request waited for the lane, a check found that the lane works.
                self.parts.port.release(lease, "unsent")
                # A broker in this process grants immediately, so let the loop run other tasks.
                await sleep(0)
                continue
            if not request.begin():
                self.parts.port.release(lease, "unsent")
                raise ClientGoneError
            if lease.lane not in on:
                try:
                    on[lease.lane] = request.on(self.parts.endpoints[lease.lane])
                except BaseException:
                    self.parts.port.release(lease, "unsent")
                    raise
            endpoint, body = on[lease.lane]
            try:
                result, answer = await self._send(
                    turn,
                    tries,
                    lease=lease,
                    endpoint=endpoint,
                    body=body,
                    pieces=request.pieces,
                    t_ready_s=t_ready_s,
                    is_patient=was_late,
                )
            except TooLateError:
                # The next attempt may use that connection, or wait for a new connection without a
                # time limit.
                was_late = True
                continue
            if isinstance(result, Reply):
                self.conversation.troubles.pop(self.role, None)
                # Chat completions, the most common requests, store no conversation at the provider.
                if isinstance(answer, Answer) and getattr(endpoint.reader, "has_state", False):
                    self._made |= dict.fromkeys(state_made(answer.body), lease.lane)
                return result, answer
            result = replace(result, message=self.parts.shown(result.message))
            wrong, wait_s = self._failed(turn, request, tries, lease, result)
            if wrong is not None and not tries.doubts(wrong, answer, lease, request.pieces):
                return wrong, answer
            after = lease.lane if CLASSES[result.outcome].budget else None
            await self._back_off(wait_s)

    def _failed(
        self, turn: int, request: Request, tries: Tries, lease: Lease, failure: Failure
    ) -> tuple[PromptRefused | BadRequestError | None, float]:
        """Handle a failed attempt.

        Returns:
            The error in the request if the attempt failed because of one (otherwise None), and the
            back-off in seconds.

        Raises:
            InfraError: The request is not sent again.
        """
        retry = self.parts.retry
        self.conversation.troubles[self.role] = failure.message
        tries.failed.append(failure.outcome)
        patience_s = self.until_s - self.since_s
        doubted = is_doubted(failure.outcome, failure.retry_after_s, patience_s)
        if doubted:
            tries.refused_by.append(lease.lane)
        verdict = retry.decide(failure, tries.failed, is_doubted=doubted)
        if verdict == "again" and (
            tries.is_hopeless or (request.pieces is not None and request.pieces.has_begun)
        ):
            verdict = "give_up"
        wait_s = retry.wait_s(failure, tries, self._rng) if verdict == "again" else 0.0
        if debug_log.is_on():
            debug_log.tell(
                "retry decided",
                case=self.case_id,
                turn=turn,
                after=failure.outcome,
                verdict=verdict,
                backoff_s=wait_s,
            )
        if verdict == "refused":
            refused = PromptRefused(failure.refused_kind or "refused", failure.message)
            return self._wrong(refused), 0.0
        if verdict == "bad_request":
            return self._wrong(BadRequestError(failure.message)), 0.0
        if verdict == "give_up":
            kind: str = failure.outcome
            said = failure.message
            if tries.is_hopeless:
                n = sum(outcome in OWN for outcome in tries.failed)
                kind = OF_REQUEST
                said = f"this request was refused {n} times while others were served: {said}"
            self._fail(InfraError(kind, said), None)
        return None, wait_s

    def _bound(self, request: Request, on: dict[LaneId, tuple[Endpoint, bytes]]) -> LaneId | None:
        """Return the only lane that can answer the request; None if any lane can answer it.

        If a request continues a conversation that the provider stores, only the lane of that
        conversation can answer it. The sender knows only conversations that this episode created.
        """
        if not self._made:
            return None
        lane = self._lane or next(iter(self._made.values()))
        on[lane] = request.on(self.parts.endpoints[lane])
        named = state_named(on[lane][1]) & self._made.keys()
        lanes = sorted({self._made[name] for name in named})
        if len(lanes) > 1:
            where = " and ".join(lanes)
            reason = f"the request refers to data stored at {where}: no lane has all of it"
            self._fail(NoLaneError(reason), None)
        return lanes[0] if lanes else None

    async def _check_lane(self, lease: Lease) -> None:
        """Check a lane that refused requests, so that the broker learns whether the lane works."""
        parts = self.parts
        with suppress(TooLateError):
            endpoint = parts.endpoints[lease.lane]
            await send_check(parts.port, parts.exchange, parts.clock, endpoint, lease)

    async def _lease(
        self, asked: Request, tries: Tries, after: LaneId | None, bound: LaneId | None
    ) -> Lease:
        """Return a request's next lease. If the episode has already failed, raise its failure.

        After such a failure, the result of the case is lost, and sending this request would be a
        waste.
        """
        self.conversation.check()
        lease = await self._next_lease(asked, tries, after, bound)
        try:
            self.conversation.check()
        except Exception:
            self.parts.port.release(lease, "unsent")
            raise
        return lease

    async def _next_lease(
        self, asked: Request, tries: Tries, after: LaneId | None, bound: LaneId | None
    ) -> Lease:
        tokens, most = asked.tokens, asked.most
        if self.case is not None:
            # The case itself may occupy the seat that this request needs.
            self.case.return_unused()
        first = self._take_first()
        if first is not None:
            # The episode asked for this lease before the tokens of its first request were known.
            if (tokens <= first.tokens or not first.tokens) and await self._paid(first, most):
                return first
            self.parts.port.release(first, "unsent")
        wish = LeaseRequest(
            self.parts.next_request_id(),
            self.model,
            self.group,
            opens=False,
            lane=bound or self._lane,
            case_id=self.case_id,
            tokens=tokens,
            after=after,
            is_bound=bound is not None,
            most=most,
            refused_by=tuple(tries.refused_by),
            stays=tries.stays,
        )
        try:
            lease = await self._acquire(wish)
        except InfraError as error:
            if tries.wrong is not None and error.kind != NO_LANE:
                raise tries.wrong[0] from None
            if bound is not None:
                why = f"{error}; the request refers to data that is stored only at {bound}"
                error = NoLaneError(why, error.kind)
            self._fail(self._with_trouble(error), error)
        except ConnectionError as error:
            self._fail(InfraError(GONE, f"the broker is gone: {error}"), error)
        self._lane = lease.lane
        return lease

    async def _acquire(self, wish: LeaseRequest) -> Lease:
        """Get a lease.

        If a lane is removed while the request is waiting for a check of that lane, ask again.
        """
        said = ""
        while True:
            try:
                return await acquire_lease(self.parts.port, wish)
            except NoLaneError as error:
                if not wish.refused_by or error.kind != NO_LANE or str(error) == said:
                    raise
                # Other lanes may be left. If there are no others, the next attempt raises the same
                # error.
                said = str(error)
                wish = msgspec.structs.replace(wish, request_id=self.parts.next_request_id())

    async def _paid(self, first: Lease, most: TokenBounds | None) -> bool:
        """Reserve the cost of the episode's first request, if a budget applies to it.

        Returns:
            Whether the cost has been reserved, or needs no reservation.
        """
        if most is None:
            return True
        try:
            return await self.parts.port.pay(first, most)
        except ConnectionError as error:
            self._fail(InfraError(GONE, f"the broker is gone: {error}"), error)
        except asyncio.CancelledError:
            self.parts.port.release(first, "unsent")
            raise

    async def _send(
        self,
        turn: int,
        tries: Tries,
        *,
        lease: Lease,
        endpoint: Endpoint,
        body: bytes,
        pieces: Pieces | None,
        t_ready_s: float,
        is_patient: bool,
    ) -> tuple[Reply | Failure, Answer | Failure]:
        """Send one attempt; `tries` contains the earlier attempts in this turn.

        Raises:
            TooLateError: The lease was too old, and nothing was sent. If `is_patient` is true, the
                connection may take longer than the lease allows, provided that this host's share is
                still valid.
        """
        parts = self.parts
        t_send_s = parts.clock.now_s()
        if not may_send(parts.port, lease, t_send_s):
            raise TooLateError
        if debug_log.is_on():
            debug_log.tell(
                "request sent",
                case=self.case_id,
                turn=turn,
                attempt=len(tries.failed),
                lease=lease.lease_id,
                lane=lease.lane,
            )
        outcome: LeaseOutcome = "cancelled"
        answer: Answer | Failure | None = None
        result: Reply | Failure | None = None
        feedback: Feedback | None = None
        late_s = t_send_s - lease.granted_s
        LEFT_OUT.set(set())

        def is_in_time() -> bool:
            nonlocal late_s
            now_s = parts.clock.now_s()
            late_s = now_s - lease.granted_s
            if now_s > (lease.ends_s if is_patient else lease.send_by_s):
                return False
            report_late_send(parts.port, lease, now_s)
            return True

        try:
            answer = await parts.exchange.exchange(
                endpoint,
                body,
                timeout_s=endpoint.timeout_s,
                pieces=pieces,
                may_send=is_in_time,
                is_fresh="closed" in tries.failed,
            )
            result = read_answer(answer, endpoint, parts.clock.now_s() - t_send_s)
            is_chat = endpoint.url == parts.endpoints[lease.lane].url
            result = _as_counted(result, lease, is_chat=is_chat)
            outcome = "ok" if isinstance(result, Reply) else result.outcome
            feedback = feedback_from(result, endpoint, answer, late_s)
            # A refused connection has nothing to do with this request.
            if (
                outcome in OWN
                and isinstance(answer, Answer)
                and tries.is_own(lease, of_tokens=feedback.exceeded == "tokens")
            ):
                feedback = msgspec.structs.replace(feedback, is_own=True)
        except TooLateError:
            outcome = "unsent"
            raise
        finally:
            # Read the time before the release, so that records never show two requests on one seat.
            t_end_s = parts.clock.now_s()
            is_sent = outcome != "unsent"
            if (
                is_sent
                and result is None
                and self._is_overdue(t_send_s, t_end_s, endpoint.timeout_s)
            ):
                outcome = "timeout"
            retry_after_s = result.retry_after_s if isinstance(result, Failure) else None
            if feedback is None:
                feedback = Feedback(late_s=late_s)
            parts.port.release(lease, outcome, feedback)
            if is_sent:
                reply = result if isinstance(result, Reply) else None
                stream = answer.stream if isinstance(answer, Answer) else None
                record = Attempt(
                    turn=turn,
                    attempt=len(tries.failed),
                    provider=endpoint.provider,
                    instance=endpoint.instance,
                    key=endpoint.key,
                    t_ready_s=t_ready_s,
                    t_lease_s=lease.granted_s,
                    t_send_s=t_send_s,
                    t_end_s=t_end_s,
                    outcome=outcome,
                    in_flight_at_send=lease.in_flight,
                    t_first_byte_s=answer.t_first_byte_s if isinstance(answer, Answer) else None,
                    status=answer.status if isinstance(answer, Answer) else None,
                    retry_after_s=retry_after_s,
                    tokens_in=reply.tokens_in if reply else None,
                    tokens_out=reply.tokens_out if reply else None,
                    cached_tokens=reply.cached_tokens if reply else None,
                    cache_write_tokens=reply.cache_write_tokens if reply else None,
                    maybe_billed=(
                        result.maybe_billed if isinstance(result, Failure) else result is None
                    ),
                    seat_wait_s=lease.seat_wait_s,
                    rate_wait_s=lease.rate_wait_s,
                    t_first_token_s=stream.t_first_token_s if stream is not None else None,
                    role=self.role,
                )
                self.conversation.attempts.append(record)
                self.conversation.tried(turn, endpoint, body, answer, result)
                if debug_log.is_on():
                    _tell_attempt(self.case_id, record, lease.lane)
        return result, answer

    def _is_overdue(self, t_send_s: float, t_end_s: float, timeout_s: float) -> bool:
        """Whether a request that the episode's deadline cut off proves that its lane hangs.

        Without this rule, a hanging server would go unnoticed if episodes have a shorter time limit
        than requests. A request that was sent shortly before the deadline proves nothing.
        """
        if t_end_s <= self.until_s - _CLOCK_STEP_S:
            return False
        enough_s = min(timeout_s, self.until_s - self.since_s) / 2
        return t_end_s - t_send_s >= enough_s - _CLOCK_STEP_S

    def _with_trouble(self, error: InfraError) -> InfraError:
        trouble = self.conversation.troubles.get(self.role)
        if not trouble:
            return error
        if isinstance(error, NoLaneError):
            return NoLaneError(f"{error}; the last try: {trouble}", error.kind)
        return InfraError(error.kind, f"{error}; the last try failed with: {trouble}")

    async def _back_off(self, seconds: float) -> None:
        if seconds > 0:
            self.conversation.backoff_s += seconds
            await sleep(seconds)

    def _wrong(self, wrong: PromptRefused | BadRequestError) -> PromptRefused | BadRequestError:
        """Return an error in a request in the form in which the client gets it.

        Raises:
            InfraError: A role's model refused the prompt. Such a refusal does not count as an
                answer from the case's own model.
        """
        if not self.role:
            return wrong
        if isinstance(wrong, PromptRefused):
            self._fail(InfraError(wrong.kind, str(wrong)), None)
        return BadRequestError(f"role {self.role}: {wrong}")

    def _fail(self, error: InfraError, cause: BaseException | None) -> NoReturn:
        if self.role:
            error = InfraError(error.kind, f"role {self.role}: {error}")
            error.role = self.role
        self.conversation.fail(error)
        raise error from cause

    def return_unused(self) -> None:
        """Return the first lease if no request has used it. Otherwise this does nothing."""
        first = self._take_first()
        if first is not None:
            self.parts.port.release(first, "unsent")

    def _take_first(self) -> Lease | None:
        first, self.first = self.first, None
        if self._first_timer is not None:
            self._first_timer.cancel()
        return first


def _as_counted(result: Reply | Failure, lease: Lease, *, is_chat: bool) -> Reply | Failure:
    """Reclassify a failure if the state of the lane or the requested resource requires this."""
    if not isinstance(result, Failure):
        return result
    if result.is_wordless and lease.is_answering:
        return replace(result, outcome="congestion")
    # For `llm.chat()`, a 404 is about the model. Any other resource may simply not exist.
    if result.outcome == "not_found" and not is_chat:
        return replace(result, outcome="bad_request")
    return as_awaited(result, lease)


def _tell_attempt(case_id: str, attempt: Attempt, lane: LaneId) -> None:
    first_s, token_s = attempt.t_first_byte_s, attempt.t_first_token_s
    debug_log.tell(
        "request ended",
        case=case_id,
        turn=attempt.turn,
        attempt=attempt.attempt,
        lane=lane,
        outcome=attempt.outcome,
        status=attempt.status,
        took_s=attempt.t_end_s - attempt.t_send_s,
        first_byte_s=None if first_s is None else first_s - attempt.t_send_s,
        first_token_s=None if token_s is None else token_s - attempt.t_send_s,
        tokens_in=attempt.tokens_in,
        tokens_out=attempt.tokens_out,
    )
