"""The leases that the client of an episode requests, and their outcomes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from pytest_ultrapar.apis.openai import API, OpenAi
from pytest_ultrapar.broker.protocol import NO_FEEDBACK, Lease, LeaseRequest
from pytest_ultrapar.broker.wire import SentLate
from pytest_ultrapar.engine.answers import Answer, TooLateError
from pytest_ultrapar.engine.endpoints import Endpoint
from pytest_ultrapar.engine.llm import Llm
from pytest_ultrapar.engine.retry import RetryPolicy
from pytest_ultrapar.engine.sender import EngineParts, Sender
from pytest_ultrapar.errors import BadRequestError
from pytest_ultrapar.pool.model import LaneId
from pytest_ultrapar.records import Attempt

LANE = LaneId("p/a/k0")
MESSAGES = [{"role": "user", "content": "Hi"}]


class HandClock:
    def __init__(self) -> None:
        self.time_s = 100.0

    def now_s(self) -> float:
        return self.time_s


class Ledger:
    """A broker that grants immediately and notes requests and returned leases."""

    def __init__(
        self, clock: HandClock, *, too_old: tuple[int, ...] = (), ends_s: float = math.inf
    ) -> None:
        self._clock, self._ends_s = clock, ends_s
        self._too_old = too_old
        self.asked: list[LeaseRequest] = []
        self.given_back: list[str] = []
        self.late_s: list[float | None] = []
        self.said_late_s: list[float] = []

    def lease(self, number: int) -> Lease:
        now_s = self._clock.now_s()
        send_by_s = now_s - 1 if number in self._too_old else now_s + 60
        late_after_s, ends_s = now_s + 30, now_s + self._ends_s
        times = now_s, send_by_s, 0.0, 0.0, 1, 0, False, late_after_s, ends_s
        # The lane has answered before, so a bad request is the fault of the request.
        return Lease(number, LANE, *times, n_served=1)

    def acquire(self, request: LeaseRequest) -> asyncio.Future[Lease]:
        self.asked.append(request)
        future = asyncio.get_running_loop().create_future()
        future.set_result(self.lease(len(self.asked)))
        return future

    def release(self, lease: Lease, outcome: str, feedback=NO_FEEDBACK) -> None:
        del lease
        self.given_back.append(outcome)
        self.late_s.append(feedback.late_s)

    def tell(self, message: SentLate) -> None:
        self.said_late_s.append(message.late_s)


class Answers:
    """An HTTP client that gets these answers in turn, and then waits forever.

    Attributes:
        bodies: The bodies of sent requests.
    """

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)
        self.bodies: list[bytes] = []
        self.is_silent = asyncio.Event()

    async def exchange(self, endpoint: Endpoint, body: bytes, **_: object) -> Answer:
        del endpoint
        self.bodies.append(body)
        await asyncio.sleep(0)
        if not self._answers:
            self.is_silent.set()
            await asyncio.Event().wait()
        return self._answers.pop(0)


def fine(status: int = 200, text: str = "fine") -> Answer:
    body = {"choices": [{"message": {"content": text}, "finish_reason": "stop"}]}
    return Answer(status, httpx.Headers(), json.dumps(body).encode(), 0.0)


def client(
    ledger: Ledger,
    server: Answers,
    clock: HandClock,
    *,
    until_s: float,
    api: OpenAi = API,
    group: str = "",
) -> Llm:
    endpoint = Endpoint(LANE, "p", "a", "k0", "http://127.0.0.1:1", "sk-secret", "m", 60.0, api)
    parts = EngineParts(
        port=ledger,
        exchange=server,
        endpoints={LANE: endpoint},
        retry=RetryPolicy(3),
        clock=clock,
        next_request_id=iter(range(2, 100)).__next__,
        shown=str,
        masked=bytes,
        roles={"judge": "j"},
    )
    first = ledger.lease(0)
    return Llm(
        Sender(parts, model="m", group=group, case_id="c1", seed=1, first=first, until_s=until_s)
    )


class Stage:
    """An episode's client between a broker and a server, for one story."""

    def __init__(self, *answers: Answer, server: Answers | None = None, **broker: Any) -> None:
        self.clock = HandClock()
        self.ledger = Ledger(self.clock, **broker)
        self.server = server or Answers(*answers)
        self.llm: Llm

    def play(self, story: Callable[[Llm], Awaitable[None]], until_s: float = 1e6, **how) -> None:
        async def begin_and_end() -> None:
            self.llm = client(self.ledger, self.server, self.clock, until_s=until_s, **how)
            await story(self.llm)
            await self.llm.close()

        asyncio.run(begin_and_end())

    @property
    def attempts(self) -> list[Attempt]:
        return self.llm.conversation.attempts


async def is_answered(llm: Llm) -> None:
    assert (await llm.chat(MESSAGES)).text == "fine"


def test_retry_whose_lease_expired_uses_the_budget_once():
    stage = Stage(fine(500), fine(), too_old=(1,))
    stage.play(is_answered)
    ledger = stage.ledger
    assert [request.after for request in ledger.asked] == [LANE, None]
    assert ledger.given_back == ["overload", "unsent", "ok"]


class Connecting(Answers):
    """Gets answers over connections that take these seconds in turn."""

    def __init__(self, clock: HandClock, seconds: list[float], *answers: Answer) -> None:
        super().__init__(*answers)
        self._clock, self._seconds = clock, seconds

    async def exchange(self, endpoint: Endpoint, body: bytes, **how: object) -> Answer:
        self._clock.time_s += self._seconds.pop(0)
        if not how["may_send"]():
            raise TooLateError
        return await super().exchange(endpoint, body)


@pytest.mark.parametrize(
    ("connect_s", "ends_s", "given_back", "said_s"),
    [
        ([10.0], math.inf, ["ok"], []),
        ([40.0], math.inf, ["ok"], [40.0]),
        ([70.0, 0.0], math.inf, ["unsent", "ok"], []),
        # If each connection takes too long, wait for the second, or no request is ever sent.
        ([70.0, 80.0], math.inf, ["unsent", "ok"], [80.0]),
        # But do not wait for longer than the host's share of a limit holds.
        ([70.0, 80.0, 79.0], 79.0, ["unsent", "unsent", "ok"], [79.0]),
    ],
)
def test_request_is_as_late_as_its_connection(connect_s, ends_s, given_back, said_s):
    stage = Stage(ends_s=ends_s)
    stage.server = Connecting(stage.clock, [*connect_s], fine())
    stage.play(is_answered)
    assert stage.ledger.given_back == given_back
    assert stage.ledger.late_s == connect_s
    assert stage.ledger.said_late_s == said_s
    assert len(stage.server.bodies) == 1
    assert [one.outcome for one in stage.attempts] == ["ok"]


@pytest.mark.parametrize(
    ("sent_s", "until_s", "outcome"),
    [
        # A saturated pool's last turn, sent 0.3 s before the episode's deadline.
        (199.7, 200.0, "cancelled"),
        (171.0, 200.0, "cancelled"),
        # Half of the episode, half of the request's own deadline.
        (150.0, 200.0, "timeout"),
        (969.0, 1000.0, "timeout"),
        (971.0, 1000.0, "cancelled"),
    ],
)
def test_deadline_of_an_episode_is_a_timeout_if_the_lane_had_time_to_answer(
    sent_s, until_s, outcome
):
    stage = Stage(fine())

    async def story(llm: Llm) -> None:
        await llm.chat(MESSAGES)
        stage.clock.time_s = sent_s
        task = asyncio.create_task(llm.chat(MESSAGES))
        await stage.server.is_silent.wait()
        stage.clock.time_s = until_s
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert stage.attempts[-1].outcome == outcome

    stage.play(story, until_s)
    assert stage.ledger.given_back == ["ok", outcome]


class Overlooked(OpenAi):
    """An API of another package, with a bug in reading headers."""

    def allowance(self, headers):
        return 1 // 0


def test_bug_of_an_api_keeps_no_seat():
    stage = Stage(fine(404))

    async def story(llm: Llm) -> None:
        with pytest.raises(ZeroDivisionError):
            await llm.chat(MESSAGES)

    stage.play(story, api=Overlooked())
    assert len(stage.ledger.given_back) == len(stage.attempts) == 1


def test_parallel_requests_are_not_sent_again_after_a_permanent_failure():
    stage = Stage(fine(500), fine(400), fine(), fine())

    async def story(llm: Llm) -> None:
        chats = (llm.chat(MESSAGES), llm.chat(MESSAGES))
        ended = await asyncio.gather(*chats, return_exceptions=True)
        assert [type(one) for one in ended] == [BadRequestError, BadRequestError]

    stage.play(story)
    assert len(stage.server.bodies) == 2
    assert len(stage.ledger.given_back) == 1 + len(stage.ledger.asked)


def test_end_of_an_episode_waits_for_its_requests_and_not_for_the_tasks_that_sent_them():
    stage = Stage()

    async def story(llm: Llm) -> None:
        is_over = asyncio.Event()

        async def stubborn() -> None:
            with contextlib.suppress(asyncio.CancelledError):
                await llm.chat(MESSAGES)
            await is_over.wait()
            with pytest.raises(RuntimeError, match="had ended"):
                await llm.chat(MESSAGES)

        task = asyncio.create_task(stubborn())
        await stage.server.is_silent.wait()
        await asyncio.wait_for(llm.close(), 60)
        is_over.set()
        await task

    stage.play(story)
    assert stage.ledger.given_back == ["cancelled"]
    assert [one.outcome for one in stage.attempts] == ["cancelled"]


def test_unused_seat_is_returned_before_a_role_waits_for_the_first_request():
    stage = Stage(*[fine()] * 3)
    ledger = stage.ledger
    acquire, when = ledger.acquire, []

    def noted(request):
        when.append(list(ledger.given_back))
        return acquire(request)

    ledger.acquire = noted

    async def story(llm: Llm) -> None:
        judge = llm.role("judge")
        assert (judge.model, llm.role("judge")) == ("j", judge)
        await judge.chat(MESSAGES)
        await llm.chat(MESSAGES)
        await judge.chat([*MESSAGES, {"role": "assistant", "content": "fine"}, *MESSAGES])

    stage.play(story, group="g")
    assert when == [["unsent"], ["unsent", "ok"], ["unsent", "ok", "ok"]]
    asked = [(one.model, one.group, one.opens, one.lane) for one in ledger.asked]
    assert asked == [("j", "", False, None), ("m", "g", False, LANE), ("j", "", False, LANE)]
    turns = [(one.turn, one.role) for one in stage.attempts]
    assert turns == [(0, "judge"), (1, ""), (2, "judge")]
    # The judge's second request repeats only its own first one.
    messages = [(one.pool_role, one.role) for one in stage.llm.conversation.messages]
    who = [role for role in ("judge", "", "judge") for _ in range(2)]
    assert messages == list(zip(who, ["user", "assistant"] * 3, strict=True))


def test_roles_end_with_their_episode():
    stage = Stage()

    async def story(llm: Llm) -> None:
        judge = llm.role("judge")
        waiting = asyncio.ensure_future(judge.chat(MESSAGES))
        await stage.server.is_silent.wait()
        await llm.close()
        assert waiting.cancelled() or waiting.done()
        assert stage.ledger.given_back == ["unsent", "cancelled"]
        with pytest.raises(RuntimeError, match="after its episode had ended"):
            await judge.chat(MESSAGES)

    stage.play(story)
