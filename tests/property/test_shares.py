"""Brokers of several hosts that share limits: by the sends of all of them no limit is exceeded."""

import math

from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.broker.protocol import Feedback
from pytest_ultrapar.broker.shares import whole
from pytest_ultrapar.pool.model import LIMIT_KINDS, Limit, Row
from tests.broker_play import Play
from tests.pools import lane, pool

N_HOSTS = 3
STOP_S = 2.0


class Divider:
    """What divides the limits: units that somebody may still use are never given to another."""

    def __init__(self, amounts):
        self.amounts = amounts
        self.granted = [dict.fromkeys(amounts, 0) for _ in range(N_HOSTS)]

    def renew(self, host, wishes, holdings):
        """A host says what it holds and is told what it may have, towards what the test wishes."""
        own = self.granted[host]
        shares = {}
        for row, amount in self.amounts.items():
            own[row] = holdings[row].held
            free = amount - sum(other[row] for other in self.granted)
            shares[row] = min(wishes, own[row] + free)
            # What was asked back is only free when the host says so.
            own[row] = max(own[row], shares[row])
        return shares


class World:
    def __init__(self, limits, latency_s):
        self.pool = pool([lane("i", "k", "p/k")], Limit("p/k", "key", **limits))
        self.hosts = [Play(self.pool, is_shared=True) for _ in range(N_HOSTS)]
        self.limit = next(iter(self.pool.limits.values()))
        self.rows = {(self.limit.name, row.kind.word): row for row in self.limit.rows}
        self.divider = Divider({name: whole(row)[0] for name, row in self.rows.items()})
        self.latency_s = latency_s
        self.now_s = 100.0
        self.sends = []
        self.out = []
        self.n_seen = [0] * N_HOSTS
        for host in self.hosts:
            host.connect("gw0")

    def renew(self, host, wishes):
        play = self.hosts[host]
        holdings = play.broker.holdings({"m": 5}, self.now_s)
        shares = self.divider.renew(host, wishes, holdings)
        play.book(play.broker.share(shares, self.now_s + STOP_S, self.now_s))
        self.look()

    def ask(self, host, tokens):
        self.hosts[host].ask(tokens=tokens)
        self.look()

    def pass_time(self, seconds):
        end_s = self.now_s + seconds
        while True:
            wakes = [play.broker.next_wake_s() for play in self.hosts]
            ends = [at for at, _, _ in self.out]
            at_s = min([end_s, *(wake for wake in wakes if wake is not None), *ends])
            self.now_s = max(self.now_s, at_s)
            for play in self.hosts:
                play.now_s = self.now_s
            for one in [one for one in self.out if one[0] <= self.now_s]:
                self.out.remove(one)
                _, host, request = one
                self.hosts[host].answer(request, "ok", Feedback())
            for play in self.hosts:
                play.book(play.broker.tick(self.now_s))
            self.look()
            if self.now_s >= end_s:
                return

    def look(self):
        for number, play in enumerate(self.hosts):
            granted = [*play.granted.items()]
            for request, _ in granted[self.n_seen[number] :]:
                self.sends.append((self.now_s, play.requests[request].tokens))
                self.out.append((self.now_s + self.latency_s, number, request))
            self.n_seen[number] = len(granted)
        for row in self.limit.rows:
            self.judge(row)

    def judge(self, row):
        """By the sends of all hosts, as a provider would count them."""
        if not row.kind.is_rate:
            assert len(self.out) <= row.amount
            return
        amount, window_s = whole(row)
        counts_tokens = row.kind.counts == "tokens"
        # Only windows that end now are new.
        recent = [tokens for at, tokens in self.sends if at > self.now_s - window_s]
        assert sum(recent if counts_tokens else [1] * len(recent)) <= amount


limits = st.fixed_dictionaries(
    {},
    optional={
        "workers": st.integers(1, 9),
        "qps": st.sampled_from([0.3, 1, 1.5, 4, 10]),
        "tpm": st.integers(20, 200),
    },
).filter(bool)
steps = st.one_of(
    st.tuples(st.just("renew"), st.integers(0, N_HOSTS - 1), st.integers(0, 200)),
    st.tuples(st.just("ask"), st.integers(0, N_HOSTS - 1), st.integers(1, 20)),
    st.tuples(st.just("pass_time"), st.sampled_from([0.01, 0.1, 0.4, 1.1, 5.0, 70.0])),
)


@given(limits, st.sampled_from([0.05, 0.7, 3.0]), st.lists(steps, max_size=60))
def test_all_hosts_together_keep_the_limit(limit, latency_s, plays):
    world = World(limit, latency_s)
    for step, *arguments in plays:
        getattr(world, step)(*arguments)


@given(limits, st.integers(0, N_HOSTS - 1))
def test_who_has_a_part_is_served(limit, host):
    world = World(limit, 0.1)
    world.ask(host, 1)
    assert not world.sends
    world.renew(host, 200)
    assert len(world.sends) == 1


def test_nothing_is_granted_without_a_part_and_nobody_is_refused():
    world = World({"workers": 5, "qps": 10}, 0.1)
    world.ask(0, 0)
    world.pass_time(4000.0)
    assert not world.sends
    assert not world.hosts[0].refused


def test_a_part_ends_by_itself():
    world = World({"workers": 5}, 0.1)
    world.renew(0, 5)
    world.ask(0, 0)
    assert len(world.sends) == 1
    world.pass_time(STOP_S)
    world.ask(0, 0)
    assert len(world.sends) == 1
    world.renew(0, 5)
    assert len(world.sends) == 2


def test_what_was_used_is_held_until_it_counts_no_more():
    world = World({"qps": 10}, 0.1)
    world.renew(0, 10)
    world.ask(0, 0)
    world.renew(0, 4)
    row = (world.limit.name, "qps")
    held = world.hosts[0].broker.holdings({"m": 5}, world.now_s)[row]
    assert (held.held, held.want) == (10, 10)
    world.pass_time(1.7)
    assert world.hosts[0].broker.holdings({"m": 5}, world.now_s)[row].held == 4


def test_seats_in_flight_are_held():
    world = World({"workers": 5}, 1.0)
    world.renew(0, 5)
    for _ in range(4):
        world.ask(0, 0)
    world.renew(0, 1)
    row = (world.limit.name, "workers")
    assert world.hosts[0].broker.holdings({}, world.now_s)[row].held == 4
    world.pass_time(1.5)
    held = world.hosts[0].broker.holdings({}, world.now_s)[row]
    assert (held.held, held.want) == (1, 0)


def test_the_smallest_useful_part_is_that_of_the_largest_request_that_waits():
    world = World({"tpm": 200}, 0.1)
    world.ask(0, 30)
    world.ask(0, 80)
    assert world.hosts[0].broker.holdings({}, world.now_s)[world.limit.name, "tpm"].unit == 80


def test_fractions_are_made_whole():
    qps = LIMIT_KINDS["qps"]
    found = [whole(Row(qps, amount)) for amount in (1.5, 0.2, 4, 10.25, 0.333)]
    assert found == [(3, 2.0), (1, 5.0), (4, 1.0), (41, 4.0), (333, 1000.0)]
    assert whole(Row(LIMIT_KINDS["tpm"], 1000.7)) == (1000, 60.0)


@given(st.floats(0.001, 1000))
def test_a_fraction_is_never_made_larger(amount):
    units, window_s = whole(Row(LIMIT_KINDS["qps"], amount))
    assert units / window_s <= amount
    assert units >= 1
    assert not math.isclose(window_s, 0)
