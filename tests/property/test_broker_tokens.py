"""Tokens on the broker's limits: no window exceeds them, and no request waits forever."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.pool.model import LIMIT_KINDS, Limit, Pool
from tests.broker_play import Play
from tests.pools import lane, pool

if TYPE_CHECKING:
    from pytest_ultrapar.broker.protocol import LeaseOutcome

TOKEN_WINDOW_S = LIMIT_KINDS["tpm"].window_s


def on_one_key(tpm_key: float | None, tpm_of: list[float | None], qps: float | None = None) -> Pool:
    """Lanes of one model on one key, each with its own limit."""
    own = [Limit(f"i{n}", "instance", workers=4, tpm=tpm) for n, tpm in enumerate(tpm_of)]
    lanes = [lane(limit.name, "k", "key", limit.name) for limit in own]
    return pool(lanes, Limit("key", "key", workers=6, qps=qps, tpm=tpm_key), *own)


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


def played(what: Pool, wishes: list[Wish], **settings: object) -> tuple[Play, list[Sent]]:
    """Play all wishes to their end; return the sends, in order."""
    sent: list[Sent] = []

    def ask(number: int, wish: Wish) -> None:
        request_id = play.ask(opens=wish.opens, case_id=str(number), tokens=wish.tokens)
        if wish.withdrawn_after_s is not None:
            play.later(wish.withdrawn_after_s, leave, request_id)

    def leave(request_id: int) -> None:
        if request_id in play.waiting:
            play.withdraw(play.whose[request_id], request_id)

    def granted(request_id: int) -> None:
        wish = wishes[int(play.requests[request_id].case_id)]
        used = {"ok": wish.used, "unsent": 0}.get(wish.outcome, wish.tokens)
        sent.append(Sent(play.now_s, play.leases[request_id].lane.split("/")[1], used))
        feedback = (None, None, wish.used) if wish.outcome == "ok" else ()
        play.later(wish.takes_s, play.back, request_id, wish.outcome, *feedback)

    play = Play(what, granted, now_s=0.0, **settings)
    for number, wish in enumerate(wishes):
        play.later(wish.at_s, ask, number, wish)
    # The ends of leases that are never returned come long after everything else.
    while play.next_s() < 1e8:
        play.step()
    return play, sent


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
    play, sent = played(on_one_key(tpm_key, tpm_of, qps), asked)
    assert play.waiting == set()
    assert play.broker.status(play.now_s).in_flight == 0
    if tpm_key is not None:
        assert most_in_window(sent) <= tpm_key
    for number, tpm in enumerate(tpm_of):
        if tpm is not None:
            assert most_in_window([one for one in sent if one.lane == f"i{number}"]) <= tpm
    smallest = [min(tpm_key or 1e9, tpm or 1e9) for tpm in tpm_of]
    too_large = sum(wish.tokens > max(smallest) for wish in asked)
    assert len(play.refused) == too_large


def wish(tokens: int, at_s: float = 0.0, used: int | None = None, takes_s: float = 1.0) -> Wish:
    used = tokens if used is None else used
    return Wish(at_s, tokens, used, takes_s, opens=False, outcome="ok", withdrawn_after_s=None)


def grants_s(what: Pool, *wishes: Wish) -> list[float]:
    return [one.at_s for one in played(what, list(wishes))[1]]


def test_small_requests_do_not_overtake_a_large_one_forever():
    asked = [wish(900), wish(1000, at_s=1.0), *(wish(10, at_s=2.0 + n) for n in range(100))]
    _, sent = played(on_one_key(1000, [None]), asked)
    large = [one for one in sent if one.used == 1000]
    assert large[0].at_s == pytest.approx(TOKEN_WINDOW_S)
    assert sent[1] is large[0]


def test_request_goes_to_the_lane_where_its_tokens_fit():
    asked = [wish(300, takes_s=100.0), wish(300), wish(300)]
    play, sent = played(on_one_key(None, [1000, 400, 200]), asked)
    assert [one.lane for one in sent[:2]] == ["i0", "i1"]
    assert play.refused == {}


def test_refund_makes_the_next_request_earlier_and_a_debt_later():
    distance_s = 500 * TOKEN_WINDOW_S / 1000
    plain = grants_s(on_one_key(1000, [None]), wish(500), wish(100))
    assert plain == pytest.approx([0.0, distance_s])
    less = grants_s(on_one_key(1000, [None]), wish(500, used=100), wish(100))
    assert less == pytest.approx([0.0, distance_s / 5])
    more = grants_s(on_one_key(1000, [None]), wish(500, used=700), wish(100))
    assert more == pytest.approx([0.0, distance_s * 1.4])


def test_unused_lease_does_not_count():
    unused = replace(wish(1000), outcome="unsent")
    assert grants_s(on_one_key(1000, [None]), unused, wish(1000)) == pytest.approx([0.0, 1.0])


def test_refusal_names_limit_and_sizes():
    play, _ = played(on_one_key(1000, [400, 600]), [wish(601)])
    assert list(play.refused.values()) == [
        "a request may use an estimated 601 tokens, but the limit i1 allows 600 per minute (tpm); "
        "lower max_tokens or raise tpm"
    ]
