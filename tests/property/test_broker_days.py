"""Daily limits in the broker: they are never exceeded, and no request waits forever."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hypothesis import event, given
from hypothesis import strategies as st

from pytest_ultrapar.broker.daily_limits import counted_days, open_days
from pytest_ultrapar.pool.model import Limit, Pool
from tests.played_clock import PlayedDayClock
from tests.property.test_broker_tokens import Play, Sent, Wish, on_one_key, played

DAY_S = 86_400
MIDNIGHT_S = 1_700_006_400
TIMEOUT_S = 900.0
REQUEST_S = 50.0


def counted(what: Pool, wishes: list[Wish], start_s: int) -> tuple[Play, list[Sent]]:
    days = open_days(what, counted_days(what, what.lanes, {}, Path()), PlayedDayClock(start_s), 0.0)
    return played(what, wishes, days=days, episode_timeout_s=TIMEOUT_S)


def on_limit(sent: list[Sent], limit: Limit) -> list[Sent]:
    return [one for one in sent if limit.name in {"key", one.lane}]


def most_in_a_day(sent: list[Sent], start_s: int, day: str | None, what: str) -> float:
    size = {"rpd": lambda one: 1, "tpd": lambda one: one.used}[what]
    if day is not None:
        days: dict[int, int] = {}
        for one in sent:
            number = int(start_s + one.at_s) // DAY_S
            days[number] = days.get(number, 0) + size(one)
        return max(days.values(), default=0)
    return max(
        (
            sum(size(one) for one in sent if first.at_s <= one.at_s < first.at_s + DAY_S)
            for first in sent
        ),
        default=0,
    )


amounts = st.none() | st.integers(1, 12)
token_amounts = st.none() | st.integers(1000, 9000)
limits = st.tuples(amounts, token_amounts)
wishes = st.lists(
    st.builds(
        lambda at_s, tokens, share, takes_s, opens: Wish(
            at_s, tokens, int(tokens * share), takes_s, opens, "ok", None
        ),
        at_s=st.floats(0, 2.2 * DAY_S) | st.integers(0, 3).map(lambda n: n * 43_200.0),
        tokens=st.integers(1, 3000) | st.integers(1, 100),
        share=st.floats(0, 1),
        takes_s=st.floats(0, REQUEST_S),
        opens=st.booleans(),
    ),
    max_size=40,
)


@given(
    key=limits,
    own=st.lists(limits, min_size=1, max_size=3),
    asked=wishes,
    day=st.none() | st.just("UTC"),
    start_s=st.integers(0, DAY_S - 1).map(lambda n: MIDNIGHT_S + n),
)
def test_no_day_has_too_many_requests_and_every_request_ends(key, own, asked, day, start_s):
    what = on_one_key(None, [None] * len(own))
    for name, (rpd, tpd) in zip(what.limits, [key, *own], strict=True):
        is_daily = rpd is not None or tpd is not None
        what.limits[name] = replace(
            what.limits[name], rpd=rpd, tpd=tpd, day=day if is_daily else None
        )
    lanes = tuple(replace(lane, request_s=REQUEST_S) for lane in what.lanes)
    play, sent = counted(replace(what, lanes=lanes), asked, start_s)
    assert not play.waiting, "a request waits forever"
    for limit in what.limits.values():
        for word in ("rpd", "tpd"):
            amount = getattr(limit, word)
            if amount is not None:
                on_it = on_limit(sent, limit)
                assert most_in_a_day(on_it, start_s, day, word) <= amount, (limit.name, word)
    event(f"{'some' if play.refused else 'none'} refused")


@given(n=st.integers(20, 60), rpd=st.integers(1, 30))
def test_the_whole_limit_of_a_day_can_be_used(n, rpd):
    what = on_one_key(None, [None])
    what.limits["key"] = replace(what.limits["key"], rpd=rpd)
    asked = [Wish(0.0, 0, 0, 1.0, True, "ok", None)] * n
    play, sent = counted(what, asked, MIDNIGHT_S)
    assert len(sent) == min(n, rpd)
    assert len(play.refused) == n - len(sent)
