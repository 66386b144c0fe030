"""Tokens on the broker's limits: never too many in a window, and nobody waits for ever."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.broker.broker import LaneBroker
from pytest_ultrapar.broker.limits import counted_over_s
from pytest_ultrapar.broker.protocol import (
    NO_FEEDBACK,
    Action,
    Feedback,
    Grant,
    LeaseOutcome,
    LeaseRequest,
    Refusal,
)
from pytest_ultrapar.pool.model import LIMIT_KINDS, Lane, LaneId, Limit, Pool
from pytest_ultrapar.testing import BrokerPlay

WORKER = "w"
TOKEN_WINDOW_S = counted_over_s(LIMIT_KINDS["tpm"])


def pool(tpm_key: float | None, tpm_of: list[float | None], qps: float | None = None) -> Pool:
    """Lanes of one model on one key, each with a limit of its own."""
    limits = {"key": Limit("key", "key", workers=6, qps=qps, tpm=tpm_key)}
    lanes = []
    for number, tpm in enumerate(tpm_of):
        name = f"i{number}"
        limits[name] = Limit(name, "instance", workers=4, tpm=tpm)
        lane_id = LaneId(f"p/{name}/k")
        lanes.append(Lane(lane_id, "p", "m", name, "k", ("key", name), 0.0, 1e9))
    return Pool("pool.toml", "", (), tuple(lanes), limits)


@dataclass(frozen=True)
class Wish:
    at_s: float
    tokens: int
    used: int
    takes_s: float
    opens: bool
    outcome: LeaseOutcome
    withdrawn_after_s: float | None


@dataclass
class Sent:
    at_s: float
    lane: str
    used: int


class Play(BrokerPlay):
    """Requests as they come, answers as they come, in virtual time."""

    def __init__(self, what: Pool, wishes: list[Wish]) -> None:
        super().__init__(LaneBroker(what))
        self.connect(WORKER)
        self.wishes = wishes
        self.sent: list[Sent] = []
        self.refused: list[str] = []
        self.waiting: set[int] = set()
        self.end_s = 0.0

    def run(self) -> None:
        for number, wish in enumerate(self.wishes):
            self.later(wish.at_s, self._ask, number, wish)
        # Ends of leases that nobody gives back lie far behind all else.
        while self.next_s() < 1e8:
            self.step()
            self.end_s = self.now_s

    def _ask(self, number: int, wish: Wish) -> None:
        request = LeaseRequest(
            number, "m", opens=wish.opens, case_id=str(number), tokens=wish.tokens
        )
        self.waiting.add(number)
        self.request(WORKER, request)
        if wish.withdrawn_after_s is not None:
            self.later(wish.withdrawn_after_s, self._leave, number)

    def _leave(self, number: int) -> None:
        if number in self.waiting:
            self.waiting.discard(number)
            self.withdraw(WORKER, number)

    def _answered(self, wish: Wish, lease_id: int) -> None:
        feedback = Feedback(tokens=wish.used) if wish.outcome == "ok" else NO_FEEDBACK
        self.release(WORKER, lease_id, wish.outcome, feedback)

    def book(self, actions: list[Action]) -> None:
        for action in actions:
            number = action.request_id
            self.waiting.discard(number)
            if isinstance(action, Refusal):
                self.refused.append(action.reason)
                continue
            assert isinstance(action, Grant)
            wish, lease = self.wishes[number], action.lease
            used = {"ok": wish.used, "unsent": 0}.get(wish.outcome, wish.tokens)
            self.sent.append(Sent(self.now_s, str(lease.lane).split("/")[1], used))
            self.later(wish.takes_s, self._answered, wish, lease.lease_id)


def most_in_window(sent: list[Sent]) -> int:
    return max(
        (
            sum(one.used for one in sent if first.at_s <= one.at_s < first.at_s + TOKEN_WINDOW_S)
            for first in sent
        ),
        default=0,
    )


seconds = st.floats(0, 100) | st.just(0.0) | st.floats(0, 2)
sizes = st.tuples(st.integers(1, 3000) | st.integers(1, 100), st.floats(0, 1))
wishes = st.builds(
    lambda at_s, size, takes_s, opens, outcome, leaves: Wish(
        at_s, size[0], int(size[0] * size[1]), takes_s, opens, outcome, leaves
    ),
    at_s=st.floats(0, 300) | st.just(0.0),
    size=sizes,
    takes_s=seconds,
    opens=st.booleans(),
    outcome=st.sampled_from(["ok", "ok", "ok", "unsent", "cancelled"]),
    leaves=st.none() | st.none() | seconds,
)
tpms = st.none() | st.integers(100, 4000).map(float)


@given(
    tpm_key=tpms,
    tpm_of=st.lists(tpms, min_size=1, max_size=3),
    qps=st.none() | st.just(5.0),
    asked=st.lists(wishes, max_size=30),
)
def test_tokens_hold_on_every_limit_and_every_request_ends(tpm_key, tpm_of, qps, asked):
    play = Play(pool(tpm_key, tpm_of, qps), asked)
    play.run()
    assert play.waiting == set()
    assert play.broker.status(play.end_s).in_flight == 0
    if tpm_key is not None:
        assert most_in_window(play.sent) <= tpm_key
    for number, tpm in enumerate(tpm_of):
        if tpm is not None:
            assert most_in_window([one for one in play.sent if one.lane == f"i{number}"]) <= tpm
    smallest = [min(tpm_key or 1e9, tpm or 1e9) for tpm in tpm_of]
    too_large = sum(wish.tokens > max(smallest) for wish in asked)
    assert len(play.refused) == too_large


def wish(tokens: int, at_s: float = 0.0, used: int | None = None, takes_s: float = 1.0) -> Wish:
    used = tokens if used is None else used
    return Wish(at_s, tokens, used, takes_s, opens=False, outcome="ok", withdrawn_after_s=None)


def grants_s(play: Play) -> list[float]:
    play.run()
    return [one.at_s for one in play.sent]


def test_small_request_does_not_overtake_a_large_one_for_ever():
    asked = [wish(900), wish(1000, at_s=1.0), *(wish(10, at_s=2.0 + n) for n in range(100))]
    play = Play(pool(1000, [None]), asked)
    play.run()
    large = [one for one in play.sent if one.used == 1000]
    assert large[0].at_s == pytest.approx(TOKEN_WINDOW_S)
    assert play.sent[1] is large[0]


def test_request_goes_to_the_lane_where_its_tokens_fit():
    asked = [wish(300, takes_s=100.0), wish(300), wish(300)]
    play = Play(pool(None, [1000, 400, 200]), asked)
    play.run()
    assert [one.lane for one in play.sent[:2]] == ["i0", "i1"]
    assert play.refused == []


def test_refund_lets_the_next_go_earlier_and_a_debt_later():
    distance_s = 500 * TOKEN_WINDOW_S / 1000
    plain = grants_s(Play(pool(1000, [None]), [wish(500), wish(100)]))
    assert plain == pytest.approx([0.0, distance_s])
    less = grants_s(Play(pool(1000, [None]), [wish(500, used=100), wish(100)]))
    assert less == pytest.approx([0.0, distance_s / 5])
    more = grants_s(Play(pool(1000, [None]), [wish(500, used=700), wish(100)]))
    assert more == pytest.approx([0.0, distance_s * 1.4])


def test_lease_that_was_not_used_counts_for_nothing():
    unused = replace(wish(1000), outcome="unsent")
    assert grants_s(Play(pool(1000, [None]), [unused, wish(1000)])) == pytest.approx([0.0, 1.0])


def test_refusal_names_limit_and_sizes():
    play = Play(pool(1000, [400, 600]), [wish(601)])
    play.run()
    assert play.refused == [
        "a request may take 601 tokens by estimate, and the limit i1 allows 600 per minute (tpm); "
        "ask for less (max_tokens) or raise tpm"
    ]
