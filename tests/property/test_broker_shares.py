"""Several hosts, each with a broker, share limits and never exceed them together.

The judge knows the undivided limits, the grants and the answers, but not the brokers' records. The
division is as simple as possible: a host gets units only from those that no host holds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.broker.assignment import Assignment, Group
from pytest_ultrapar.broker.day_ledger import DayLedger
from pytest_ultrapar.broker.headroom import first_late_s, never_late_s
from pytest_ultrapar.broker.protocol import NO_PART, GroupProgress
from pytest_ultrapar.broker.shares import HeldUnits, declared_row, rows_of, whole_row
from pytest_ultrapar.pool.model import LIMIT_KINDS, Limit, Pool
from tests.broker_play import Play
from tests.played_clock import PlayedDayClock
from tests.pools import lane, pool

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_ultrapar.broker.headroom import Promise
    from pytest_ultrapar.broker.shares import Row

GRACE_S = 3.0


@dataclass
class Seen:
    """The provider's view: starts, ends and tokens of all hosts' requests."""

    at_s: list[list] = field(default_factory=list)

    def most_sends(self, window_s: float) -> int:
        return max((len(list(self._from(t, window_s))) for t, _ in self.at_s), default=0)

    def most_tokens(self, window_s: float) -> int:
        return max((sum(self._from(t, window_s)) for t, _ in self.at_s), default=0)

    def _from(self, begin_s: float, window_s: float) -> Iterator[int]:
        return (tokens for t, tokens in self.at_s if begin_s <= t < begin_s + window_s)


@dataclass(frozen=True)
class Step:
    """A step of one host: requests, returned leases, and its new share in tenths.

    With no tenths it keeps its share; with -1 it gets no answer in time, and with -2 its worker
    dies.
    """

    host: int
    asks: int
    backs: int
    tenths: int | None
    wait_s: float
    holds_s: float = 1e6


class Hosts:
    """Brokers of some hosts on one clock, and the divider of shares."""

    def __init__(self, what: Pool, n: int, late_s: Promise = never_late_s) -> None:
        self.pool = what
        self.rows = rows_of(what)
        self.whole = {row: declared_row(what, row) for row in self.rows}
        self.seen = Seen()
        self.plays = [Play(what, now_s=0.0, shared=self.rows, late_s=late_s) for _ in range(n)]
        self.given: list[dict[Row, int]] = [dict.fromkeys(self.rows, 0) for _ in range(n)]
        self.orphans: list[float] = []
        for play in self.plays:
            play.on_grant = self._granted(play)
            play.seen = {}
        self.now_s = 0.0

    def _granted(self, play: Play):
        def granted(request_id: int) -> None:
            tokens = play.requests[request_id].tokens
            play.seen[request_id] = [play.now_s, tokens]
            self.seen.at_s.append(play.seen[request_id])
            self.check_seats()

        return granted

    def wait(self, seconds: float) -> None:
        """Wake all brokers in the order of time: units leave one host before another uses them."""
        until_s = self.now_s + seconds
        while (play := min(self.plays, key=lambda one: one.next_s())).next_s() <= until_s:
            self.now_s = max(self.now_s, play.next_s())
            play.step()
        for play in self.plays:
            play.now_s = until_s
        self.now_s = until_s

    def in_flight(self) -> int:
        self.orphans = [until_s for until_s in self.orphans if until_s > self.now_s]
        return sum(len(play.leases) for play in self.plays) + len(self.orphans)

    def check_seats(self) -> None:
        most = self.pool.limits["key"].workers
        assert most is None or self.in_flight() <= most

    def give(self, host: int, share: float, until_s: float) -> None:
        """Give a host that share of the units that no other host holds or was granted."""
        held = [play.broker.holdings(self.now_s) for play in self.plays]
        shares = {}
        for row in self.rows:
            others = sum(
                max(held[n][row].units, self.given[n][row])
                for n in range(len(self.plays))
                if n != host
            )
            free = self.whole[row].units - others
            shares[row] = max(0, min(free, math.ceil(share * self.whole[row].units)))
        self.given[host] = shares
        self.tell(host, shares, until_s)

    def tell(self, host: int, shares: dict[Row, int], until_s: float) -> None:
        play = self.plays[host]
        play.book(play.broker.share(shares, until_s, self.now_s))

    def leave(self, host: int) -> None:
        play = self.plays[host]
        self.orphans += [self.now_s + GRACE_S] * len(play.leases)
        play.leave("gw0")

    def judge(self) -> None:
        limit = self.pool.limits["key"]
        for kind, amount in limit.rows:
            if kind.window_s:
                row = whole_row(amount, kind.window_s)
                seen = self.seen
                most = seen.most_tokens if kind.counts == "tokens" else seen.most_sends
                assert most(row.window_s) <= row.units


def on_one_key(**limits: float | None) -> Pool:
    """Two lanes of one model on one shared key; one of them has its own limit, too."""
    lanes = [lane(name, "k", "key", name, grace_s=GRACE_S) for name in ("a", "b")]
    return pool(
        lanes, Limit("key", "key", **limits), Limit("a", "instance"), Limit("b", "instance")
    )


steps = st.builds(
    Step,
    host=st.integers(0, 2),
    asks=st.integers(0, 9),
    backs=st.integers(0, 9),
    tenths=st.none() | st.integers(0, 10) | st.sampled_from([0, 0, 10, -1, -2]),
    wait_s=st.sampled_from([0.0, 0.0, 0.02, 0.1, 0.3, 0.7, 1.0, 5.0, 30.0]),
    holds_s=st.sampled_from([1e6, 1e6, 0.2, 1.5]),
)
limits = st.fixed_dictionaries(
    {
        "workers": st.none() | st.integers(1, 8),
        "qps": st.none() | st.sampled_from([0.2, 1.5, 2.0, 7.0]),
        "rpm": st.none() | st.sampled_from([5.0, 30.0]),
        "tpm": st.none() | st.sampled_from([500.0, 2000.0]),
    }
)
promises = st.sampled_from([never_late_s, first_late_s])


def carry_out(hosts: Hosts, step: Step) -> None:
    play = hosts.plays[step.host]
    for n in range(step.asks):
        play.ask(tokens=50 * n, case_id=f"case{len(play.requests)}")
    for request_id in list(play.leases)[: step.backs]:
        tokens = play.requests[request_id].tokens
        used = tokens - tokens // 4
        play.seen[request_id][1] = used
        play.back(request_id, "ok", None, None, used)
        play.end(play.requests[request_id].case_id)
    if step.tenths == -2:
        hosts.leave(step.host)
    elif step.tenths == -1:
        # A share that arrives too late is void.
        hosts.tell(step.host, hosts.given[step.host], hosts.now_s)
    elif step.tenths is not None:
        hosts.give(step.host, step.tenths / 10, hosts.now_s + step.holds_s)


@given(amounts=limits, late_s=promises, done=st.lists(steps, min_size=8, max_size=40))
def test_hosts_together_never_exceed_the_undivided_limits(amounts, late_s, done):
    hosts = Hosts(on_one_key(**amounts), 3, late_s)
    for step in done:
        carry_out(hosts, step)
        hosts.check_seats()
        hosts.wait(step.wait_s)
        hosts.check_seats()
    hosts.judge()
    for play in hosts.plays:
        # A request is too large if the undivided limit has no room for it.
        most = amounts["tpm"] or 1e9
        assert all(play.requests[number].tokens > most for number in play.refused)
        lanes = play.broker.status(hosts.now_s).lanes
        assert all(one.state == "up" for one in lanes)


@given(amounts=limits, done=st.lists(steps, max_size=25), host=st.integers(0, 2))
def test_waiting_host_with_a_share_is_served(amounts, done, host):
    hosts = Hosts(on_one_key(**amounts), 3)
    for step in done:
        carry_out(hosts, step)
        hosts.wait(step.wait_s)
    for other, play in enumerate(hosts.plays):
        hosts.tell(other, {}, hosts.now_s + 1e9)
        hosts.given[other] = dict.fromkeys(hosts.rows, 0)
        for request_id in list(play.leases):
            play.back(request_id)
    hosts.wait(400.0)
    hosts.give(host, 1.0, hosts.now_s + 1e9)
    assert all(hosts.given[host][row] == hosts.whole[row].units for row in hosts.rows)
    play = hosts.plays[host]
    for _ in range(400):
        if not play.waiting:
            break
        for request_id in list(play.leases):
            play.back(request_id)
        hosts.wait(10.0)
    assert play.waiting == set()
    hosts.judge()


@given(
    word=st.sampled_from(["qps", "rpm", "tpm"]),
    moves=st.lists(
        st.tuples(st.integers(0, 4), st.sampled_from([0.0, 0.0, 0.01, 0.1, 0.5])),
        min_size=8,
        max_size=30,
    ),
)
def test_moving_shares_never_exceed_any_window(word, moves):
    """All hosts always have waiting requests, and each in turn gets the whole limit.

    A host that gets a share sends immediately, so each move that came too early would add a send.
    """
    amount = {"qps": 4.0, "rpm": 6.0, "tpm": 600.0}[word]
    hosts = Hosts(on_one_key(**{word: amount}), 5)
    for play in hosts.plays:
        for n in range(20):
            play.ask(tokens=100 + 30 * (n % 4))
    for host, windows in moves:
        for other in {0, 1, 2, 3, 4} - {host}:
            hosts.give(other, 0.0, hosts.now_s + 1e6)
        hosts.give(host, 1.0, hosts.now_s + 1e6)
        hosts.wait(windows * LIMIT_KINDS[word].window_s)
    hosts.judge()


def one_host(**amounts: float) -> Hosts:
    return Hosts(on_one_key(**amounts), 1)


def test_rows_start_closed_and_close_when_shares_expire():
    hosts = one_host(workers=4)
    (play,) = hosts.plays
    first, second, third = (play.ask() for _ in range(3))
    assert play.lane(first) is None
    hosts.tell(0, {("key", "workers"): 1}, 5.0)
    assert play.lane(first) is not None
    assert play.lane(second) is None
    hosts.wait(5.0)
    play.back(first)
    assert play.lane(second) is None
    hosts.tell(0, {("key", "workers"): 2}, 9.0)
    assert play.lane(second) is not None
    assert play.lane(third) is not None
    status = play.broker.status(hosts.now_s)
    assert play.refused == {}
    assert {label for one in status.lanes for label in one.waited_s} == {"share of key"}
    assert sum(one.waited_s.get("share of key", 0.0) for one in status.lanes) == pytest.approx(10.0)


def test_lowered_seats_are_held_until_their_requests_end():
    hosts = one_host(workers=4)
    (play,) = hosts.plays
    row = ("key", "workers")
    hosts.tell(0, {row: 4}, 1e6)
    asked = [play.ask() for _ in range(6)]
    hosts.tell(0, {row: 1}, 1e6)
    assert len(play.leases) == 4
    assert play.broker.holdings(0.0)[row].units == 4
    for request_id in asked[:3]:
        play.back(request_id)
    assert len(play.leases) == 1
    assert play.broker.holdings(0.0)[row].units == 1
    play.back(asked[3])
    assert len(play.leases) == 1


def test_pace_follows_the_share_and_sent_requests_stay_counted():
    hosts = one_host(qps=10.0)
    (play,) = hosts.plays
    row = ("key", "qps")
    hosts.tell(0, {row: 10}, 1e6)
    for _ in range(9):
        play.ask()
    hosts.wait(0.22)
    assert [t for t, _ in hosts.seen.at_s] == pytest.approx([0.0, 0.102, 0.204])
    assert play.broker.holdings(0.22)[row].units == 10
    hosts.tell(0, {row: 2}, 1e6)
    # The unsent part of the larger share is free immediately.
    assert play.broker.holdings(0.22)[row].units == 3
    hosts.wait(1.0)
    # A share of two allows two in a window: the next send waits until the second of three is out.
    assert [t for t, _ in hosts.seen.at_s][3:] == pytest.approx([0.102 + 1.02])
    assert play.broker.holdings(1.2)[row].units == 2
    hosts.tell(0, {}, 1e6)
    hosts.wait(5.0)
    assert len(hosts.seen.at_s) == 4
    hosts.tell(0, {row: 5}, 1e6)
    assert len(hosts.seen.at_s) == 5


def test_requests_with_more_tokens_than_the_share_wait_and_report_their_need():
    hosts = one_host(tpm=1000.0)
    (play,) = hosts.plays
    row = ("key", "tpm")
    hosts.tell(0, {row: 300}, 1e6)
    large = play.ask(tokens=800)
    too_large = play.ask(tokens=1001)
    assert play.lane(large) is None
    assert list(play.refused) == [too_large]
    want = play.broker.wants(0.0, {}).rows[row]
    assert want.unit == 800
    nothing = Hosts(hosts.pool, 1)
    assert nothing.plays[0].lane(nothing.plays[0].ask(tokens=0)) is None
    nothing.tell(0, {row: 5000}, 1e6)
    assert nothing.plays[0].broker.holdings(0.0)[row].units == 1000
    assert want.units == 1000
    hosts.wait(3.0)
    hosts.tell(0, {row: 800}, 1e6)
    assert play.lane(large) is not None
    hosts.tell(0, {row: 100}, 1e6)
    assert play.broker.holdings(3.0)[row].units == 800
    assert play.broker.holdings(3.0 + 63.1)[row].units == 100


def test_wants_include_unclaimed_cases():
    hosts = one_host(workers=8, qps=5.0)
    (play,) = hosts.plays
    play.connect("gw0")
    wants = play.broker.wants(0.0, {"m": 3})
    assert wants.rows["key", "workers"].units == 3
    assert wants.rows["key", "qps"].units == 5
    assert {one.requests for one in wants.lanes.values()} == {3}
    assert play.broker.wants(0.0, {}).rows["key", "qps"].units == 0
    bears = {one.lane_id: 1 for one in hosts.pool.lanes}
    assert play.broker.wants(0.0, {"m": 30}, bears).rows["key", "workers"].units == 2


def test_host_with_more_keys_than_cases_wants_only_rates_that_its_cases_can_use():
    names = [f"key{n}" for n in range(4)]
    limits = [Limit(name, "key", workers=8, qps=100.0) for name in names]
    what = pool([lane("i", name, name) for name in names], *limits)
    hosts = Hosts(what, 1)
    (play,) = hosts.plays
    qps = [(name, "qps") for name in names]
    hosts.tell(0, {**dict.fromkeys(qps, 50), **{(n, "workers"): 8 for n in names}}, 1e6)
    play.on_grant = lambda n: play.later(0.1, play.back, n)
    for _ in range(24):
        play.ask(case_id="only")
        hosts.wait(0.2)
    play.ask(case_id="only", opens=False)
    wants = play.broker.wants(play.now_s, {}).rows
    # One case of 0.1 s an answer makes 10 a second, and half as many more if it is faster.
    assert sum(wants[row].units for row in qps) <= 4 * math.ceil(15 / 4) + 4
    assert all(wants[row].units for row in qps)
    assert all(wants[name, "workers"].units == 1 for name in names)
    # Keys without a share do not help.
    hosts.tell(0, {qps[0]: 50, ("key0", "workers"): 8}, 1e6)
    assert play.broker.wants(play.now_s, {}).rows[qps[0]].units >= 15


def test_lane_without_a_share_does_not_count_as_silent():
    hosts = one_host(workers=4)
    (play,) = hosts.plays
    row = ("key", "workers")
    for _ in range(30):
        hosts.tell(0, {row: 1}, 1e6)
        request_id = play.ask(lane="p/a/k")
        hosts.wait(0.001)
        if request_id in play.leases:
            play.back(request_id, "server_error")
        else:
            play.withdraw("gw0", request_id)
        hosts.tell(0, {}, 1e6)
        hosts.wait(500.0)
    assert play.status("p/a/k").state != "out"


def test_estimate_is_neither_reset_nor_changed_by_a_share():
    lanes = [lane("a", "k", "key")]
    what = pool(lanes, Limit("key", "key", workers=40), rate_mode="adaptive")
    rows = rows_of(what)
    play = Play(what, shared=rows, now_s=0.0)
    row = ("key", "workers")
    play.book(play.broker.share({row: 40}, 1e6, 0.0))
    for _ in range(300):
        play.ask()
    for _ in range(5):
        play.wait(1.0)
        for request_id in list(play.leases):
            play.back(request_id)
    play.book(play.broker.share({row: 2}, 1e6, play.now_s))
    # Requests sent under the larger share still count as evidence.
    for request_id in list(play.leases):
        play.back(request_id)
    before = play.broker._table.limit("key").controller.cap()
    assert before > 10
    for _ in range(20):
        play.wait(1.0)
        for request_id in list(play.leases):
            play.back(request_id)
        assert len(play.leases) <= 2
    assert play.broker._table.limit("key").controller.cap() == before
    play.book(play.broker.share({row: 40}, 1e6, play.now_s))
    assert len(play.leases) == before


def test_shares_of_unshared_rows_are_refused():
    hosts = one_host(workers=4)
    with pytest.raises(ValueError, match="is not shared"):
        hosts.tell(0, {("key", "qps"): 1}, 1e6)
    with pytest.raises(ValueError, match="whole number"):
        hosts.tell(0, {("key", "workers"): 0.5}, 1e6)


def day_of(amount: int, clock: PlayedDayClock) -> dict:
    return {"key": ((LIMIT_KINDS["rpd"], DayLedger(amount, clock, 0.0)),)}


def test_host_spends_exactly_its_tranche_of_a_day():
    clock = PlayedDayClock(1e9)
    what = on_one_key(rpd=100.0)
    row = ("key", "rpd")
    play = Play(what, now_s=0.0, shared=rows_of(what), days=day_of(100, clock))
    asked = [play.ask() for _ in range(5)]
    assert play.leases == {}
    play.book(play.broker.share({row: 2}, 1e6, 0.0))
    assert len(play.leases) == 2
    assert play.broker.holdings(0.0)[row] == HeldUnits(0, 2, 2)
    # With nothing in flight, no request is refused for this: the day itself is not used up.
    play.back(asked[0])
    play.back(asked[1], "unsent")
    assert len(play.leases) == 1
    assert play.refused == {}
    assert play.broker.holdings(0.0)[row] == HeldUnits(0, 2, 1)
    play.back(asked[2])
    play.book(play.broker.share({}, 1e6, 0.0))
    play.book(play.broker.share({row: 1}, 5.0, 0.0))
    assert len(play.leases) == 1
    play.back(asked[3])
    play.wait(5.0)
    play.book(play.broker.share({row: 10}, 1e6, 5.0))
    assert len(play.leases) == 1
    assert play.broker.holdings(5.0)[row] == HeldUnits(9, 4, 1)
    assert play.broker.wants(5.0, {"m": 7}).rows[row].units >= 7
    play.book(play.broker.share({row: 3}, 6.0, 5.0))
    play.wait(1.0)
    closed = play.ask()
    assert play.lane(closed) is None
    assert play.broker.holdings(6.0)[row] == HeldUnits(3, 4, 1)


def test_used_up_shared_day_is_refused():
    clock = PlayedDayClock(1e9)
    what = on_one_key(rpd=2.0)
    play = Play(what, now_s=0.0, shared=rows_of(what), days=day_of(2, clock))
    for _ in range(3):
        play.ask()
    play.book(play.broker.share({("key", "rpd"): 2}, 1e6, 0.0))
    for request_id in list(play.leases):
        play.back(request_id)
    assert play.kinds == {"daily_quota"}


@given(
    amount=st.integers(5, 60),
    done=st.lists(
        st.tuples(
            st.integers(0, 2), st.sampled_from(["ask", "back", "unsent", "give"]), st.integers(0, 9)
        ),
        max_size=60,
    ),
)
def test_tranches_of_hosts_never_exceed_the_day(amount, done):
    """By the smaller of two counts: units sent and not returned, and units still held."""
    what = on_one_key(rpd=float(amount))
    row = ("key", "rpd")
    plays = [
        Play(what, now_s=0.0, shared=rows_of(what), days=day_of(amount, PlayedDayClock(1e9)))
        for _ in range(3)
    ]
    unsent = 0
    for host, do, n in done:
        play = plays[host]
        if do == "ask":
            for _ in range(n):
                play.ask()
        elif do == "give":
            held = [one.broker.holdings(0.0)[row] for one in plays]
            free = amount - sum(one.units + one.spent for one in held) + held[host].units
            play.book(play.broker.share({row: min(n, free)}, 1e6, 0.0))
        else:
            for request_id in list(play.leases)[:n]:
                unsent += do == "unsent"
                play.back(request_id, "ok" if do == "back" else "unsent")
        granted = sum(len(one.granted) for one in plays)
        assert granted - unsent <= amount
        assert sum(one.broker.holdings(0.0)[row].spent for one in plays) == granted - unsent


def test_other_hosts_learn_of_removals_and_pauses():
    what = on_one_key(workers=4)
    here, there = (Play(what, now_s=0.0, on_grant=lambda _: None) for _ in range(2))
    here.ask(lane="p/a/k")
    here.back(1, "rate", 30.0)
    here.ask(lane="p/b/k")
    here.back(2, "server_error")
    (pause,) = here.broker.take_notices(1.0)
    assert pause.lane_id == "p/a/k"
    assert 29.0 <= pause.for_s <= 32.0
    assert here.broker.take_notices(1.0) == []
    there.connect("gw0")
    there.now_s = 100.0
    for _ in range(2):
        there.book(there.broker.apply_notices([pause], 100.0))
        here.book(here.broker.apply_notices([pause], 1.0))
    assert there.status("p/a/k").state == "paused"
    assert there.status("p/b/k").state == "up"
    there.wait(pause.for_s)
    assert there.status("p/a/k").state == "up"
    there.book(there.broker.apply_notices([pause], there.now_s))
    assert there.status("p/a/k").state == "up"
    here.wait(60.0)
    here.ask(lane="p/a/k")
    here.back(3, "auth")
    waiting = there.ask(lane="p/b/k")
    also = [there.ask(lane="p/b/k") for _ in range(5)]
    there.book(there.broker.apply_notices(here.broker.take_notices(60.0), there.now_s))
    assert {one.state for one in there.broker.status(0.0).lanes} == {"out"}
    assert waiting in there.leases
    assert set(also[3:]) <= set(there.refused)
    assert there.broker.take_notices(there.now_s) == []


@pytest.mark.parametrize(
    ("amount", "window_s", "whole"),
    [(2, 1, (2, 1)), (1.5, 1, (3, 2)), (0.2, 1, (1, 5)), (0.05, 60, (1, 1200)), (7, 0, (7, 0))],
)
def test_fractions_are_rounded_to_whole_units(amount, window_s, whole):
    assert whole_row(amount, window_s) == pytest.approx(whole)


@given(amount=st.floats(0.001, 1e4), window_s=st.sampled_from([1.0, 60.0]))
def test_whole_rows_never_exceed_the_declared_limit(amount, window_s):
    row = whole_row(amount, window_s)
    assert 1 <= row.units <= amount * row.window_s / window_s * (1 + 1e-12)
    assert row.units * window_s / row.window_s >= 0.9 * amount


def grouped():
    """A host with two keys; each of two groups uses one of them alone."""
    limits = [Limit(name, "key", workers=4) for name in ("key0", "key1")]
    lanes = [lane("i", name, name) for name in ("key0", "key1")]
    what = pool(lanes, *limits)
    play = Play(what, now_s=0.0, shared=rows_of(what), late_s=never_late_s)
    groups = tuple(
        Group(name, (f"{name}-0", f"{name}-1"), (one.lane_id,))
        for name, one in zip(("x", "y"), lanes, strict=True)
    )
    play.assign(Assignment(groups=groups))
    play.connect("gw0")
    return play


def test_wants_of_a_group_are_for_its_own_lanes():
    play = grouped()
    wants = play.broker.wants(0.0, {}, in_groups={"x": 3, "y": 0})
    assert [wants.rows[name, "workers"].units for name in ("key0", "key1")] == [3, 0]
    play.ask(case_id="y-0", group="y")
    wants = play.broker.wants(0.0, {"m": 1}, in_groups={"x": 3})
    assert [wants.rows[name, "workers"].units for name in ("key0", "key1")] == [4, 2]


def test_progress_of_groups_is_known_if_hosts_share_limits():
    play = grouped()
    assert {(one.name, one.room) for one in play.broker.status(0.0).groups} == {
        ("x", NO_PART),
        ("y", NO_PART),
    }
    play.book(play.broker.share({("key0", "workers"): 2}, 1e6, 0.0))
    request = play.ask(case_id="x-0", group="x")
    assert play.lane(request) is not None
    assert play.broker.status(0.0).groups[0] == GroupProgress("x", begun=1, ended=0, room=1)
    play.back(request)
    play.end("x-0")
    play.end("x-1")
    assert play.broker.status(0.0).groups[0] == GroupProgress("x", begun=2, ended=2, room=2)


def test_cases_without_remaining_lanes_are_claimed_and_refused():
    """No other host can run them, and a run that skips them would never end."""
    play = grouped()
    play.book(play.broker.share({("key1", "workers"): 2}, 1e6, 0.0))
    play.back(play.ask(case_id="y-0", group="y"), "auth")
    probe = play.ask(case_id="y-0", group="y", opens=False, refused_by=("p/i/key1",))
    play.back(probe, "auth")
    status = play.broker.status(0.0)
    assert [one.room for one in status.groups] == [NO_PART, 0]


def test_day_used_up_by_all_hosts_is_refused_as_by_one_host():
    clock = PlayedDayClock(1e9)
    what = on_one_key(rpd=100.0)
    row = ("key", "rpd")
    play = Play(what, now_s=0.0, shared=rows_of(what), days=day_of(100, clock))
    play.ask()
    play.ask()
    play.book(play.broker.share({row: 1}, 1e6, 0.0, {row: 1}))
    assert len(play.leases) == 1
    play.book(play.broker.share({}, 1e6, 0.0, {row: 0}))
    assert play.refused == {}
    play.back(next(iter(play.leases)))
    assert play.kinds == {"daily_quota"}
    # Cases are still claimed, since no other host could send them either.
    assert play.broker.status(0.0).room["m"] > 0
