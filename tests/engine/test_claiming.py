"""The thread that claims cases, with a real server; offered cases end at its next poll."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager

import pytest

from pytest_ultrapar.broker.assignment import Assignment, Group
from pytest_ultrapar.broker.protocol import BrokerStatus, GroupProgress, ModelProgress
from pytest_ultrapar.cluster import claim_thread
from pytest_ultrapar.cluster.address import read_address
from pytest_ultrapar.cluster.claim_thread import HOLD_S, Claiming
from pytest_ultrapar.cluster.run_identity import NumberedCases, RunIdentity
from pytest_ultrapar.cluster.server import ClusterServer
from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.records import Case
from pytest_ultrapar.store.cases_file import claimed_of
from pytest_ultrapar.system.clock import boot_s
from tests.key_value_server import KeyValueServer
from tests.running import wait_until

N = 20


@pytest.fixture(autouse=True)
def nothing_of_other_tests(kv):
    kv.client().flushall()


def cases():
    return [
        Case(
            index=i, case_id=f"{i:016x}", nodeid=f"t::{i}", suite="s", model="ab"[i % 2],
            repeat=0, params={}, seed=0,
        )
        for i in range(N)
    ]  # fmt: skip


def identity(**changed):
    same = {
        "version": "1", "seed": 0, "mode": "phase", "rate_mode": "fixed", "policy": "p",
        "groups": "", "shard": "", "pool": "p", "models": ("a", "b"), "n_cases": N, "suite": "s",
        "order": "o", "numbers": "x",
    }  # fmt: skip
    return RunIdentity(**same | changed)


class World:
    """The actions of all hosts of a run, in order."""

    def __init__(self, kv, groups=()):
        self.kv, self.groups = kv, groups
        self.lock = threading.Lock()
        self.begun, self.ended = [], []
        self.most_open = 0


class Host:
    """A host whose episodes end when the broker is asked for its status after they began."""

    def __init__(self, world, name, directory, *, patience_s=5.0, **facts):
        directory.mkdir()
        self.directory = directory
        self.world, self.cases, self.facts = world, cases(), facts
        self.numbered = NumberedCases(self.cases, ["a", "b"], world.groups)
        self.over, self.lost, self.told = threading.Event(), [], []
        self.begun, self.ended, self.offered, self.taken = [], [], [], set()
        server = ClusterServer(read_address(world.kv.url, {}))
        server.read_facts()
        self.claiming = Claiming(
            server, "night", name, self.numbered, (), directory=directory,
            patience_s=patience_s, status=self.status,
        )  # fmt: skip

    def start(self):
        self.claiming.join(identity(), lambda *_: None)
        self.claiming.start(
            self.offer, self.over.set, self.lost.append, self.told.append, self.hold
        )

    def hold(self, until_s, taken, again):
        self.until_s = until_s
        self.taken = (self.taken | {*taken}) - {*again}

    def offer(self, positions):
        with self.world.lock:
            self.offered += positions
            self.begun += positions
            for position in positions:
                self.world.begun.append((position, len(self.world.ended)))
            n_open = len(self.world.begun) - len(self.world.ended)
            self.world.most_open = max(self.world.most_open, n_open)

    def status(self):
        with self.world.lock:
            for position in self.begun:
                self.claiming.finished(self.cases[position].case_id, "solved")
            self.ended += self.begun
            self.world.ended += self.begun
            self.begun = []
            return self._status()

    def _status(self):
        ended = {self.cases[position].case_id for position in self.ended}
        own = self.numbered.own_assignment(Assignment(groups=self.world.groups), ())
        groups = [
            GroupProgress(one.name, n := len(ended & {*one.cases}), n, room=9) for one in own.groups
        ]
        models = [
            ModelProgress(
                model,
                ended={1: sum(self.cases[one].model == model for one in self.ended)},
                open={}, seconds={}, under_way={},
            )
            for model in "ab"
        ]  # fmt: skip
        facts = {"in_flight": 0} | self.facts
        return BrokerStatus(
            now_s=0.0, peak_in_flight=0, open_episodes=0, ended_episodes=len(ended), lanes=[],
            models=models, room={"a": 9, "b": 9}, groups=groups, **facts,
        )  # fmt: skip


@contextmanager
def held_up(server):
    """A server whose calls wait until the `with` block ends."""
    claim, is_over = server.claim, threading.Event()

    def waits(run, call):
        is_over.wait()
        return claim(run, call)

    server.claim = waits
    yield
    is_over.set()
    server.claim = claim


def claimed_by(host):
    return {case.index for case in claimed_of(host.directory, host.cases)}


def play(world, directory, n_hosts=2):
    hosts = [Host(world, f"h{n}", directory / f"h{n}") for n in range(n_hosts)]
    for host in hosts:
        host.start()
    try:
        for host in hosts:
            assert host.over.wait(30), host.lost
    finally:
        for host in hosts:
            host.claiming.leave()
    assert [host.lost for host in hosts] == [[]] * n_hosts
    assert sorted(position for host in hosts for position in host.offered) == list(range(N))
    return hosts


def test_hosts_claim_each_case_once_and_learn_that_the_run_is_over(kv, tmp_path):
    hosts = play(World(kv), tmp_path)
    assert [host.claiming.n_lost for host in hosts] == [0, 0]


def test_a_group_is_offered_when_the_previous_one_has_ended_on_all_hosts(kv, tmp_path):
    first, second = cases()[: N // 2], cases()[N // 2 :]
    groups = (
        Group("first", tuple(one.case_id for one in first)),
        Group("second", tuple(one.case_id for one in second), after=("first",), at_once=2),
    )
    world = World(kv, groups)
    play(world, tmp_path)
    assert {position for position, _ in world.begun[: N // 2]} == {one.index for one in first}
    for n, (_, n_ended) in enumerate(world.begun[N // 2 :], start=N // 2):
        assert n_ended >= N // 2
        assert n + 1 - n_ended <= 2


def test_group_with_one_case_at_a_time_holds_over_all_hosts(kv, tmp_path):
    world = World(kv, (Group("all", tuple(one.case_id for one in cases()), at_once=1),))
    play(world, tmp_path)
    assert world.most_open == 1


@pytest.mark.slow
def test_a_server_that_forgot_the_run_learns_all_finished_cases(kv, tmp_path, monkeypatch):
    monkeypatch.setattr(claim_thread, "AT_ONCE", 8)
    world = World(kv)
    host = Host(world, "one", tmp_path / "one")
    host.start()
    assert host.over.wait(30), host.lost
    kv.client().flushall()
    wait_until(lambda: kv.client().bitcount("{ultrapar:default}:run:night:done") == N)
    host.claiming.leave()
    assert sorted(host.offered) == list(range(N))


def test_a_second_host_of_the_same_name_is_refused(kv, tmp_path):
    world = World(kv)
    one, two = Host(world, "same", tmp_path / "one"), Host(world, "same", tmp_path / "two")
    one.start()
    said = []
    with pytest.raises(ConfigError, match="give each host a different name"):
        two.claiming.join(identity(), lambda what, why: said.append(what))
    assert set(said) == {'the name "same" to become free'}
    one.claiming.leave()
    two.claiming.leave()


@pytest.mark.parametrize("field", ["lines", "cursors"])
def test_an_unknown_case_number_is_refused_in_one_sentence(kv, tmp_path, field):
    host = Host(World(kv), "one", tmp_path / "one", patience_s=0.3)
    host.claiming.join(identity(), lambda *_: None)
    prefix, client = "{ultrapar:default}:run:night:", kv.client()
    if field == "lines":
        client.hset(f"{prefix}run", "lines", "[[100, 900], [900, 1000]]")
    else:
        client.hset(f"{prefix}cursors", mapping={"0": "1e308", "1": "1e308"})
    host.claiming.start(host.offer, host.over.set, host.lost.append, host.told.append, host.hold)
    wait_until(lambda: host.lost)
    host.claiming.leave()
    assert "data that pytest-ultrapar did not write" in host.lost[0]
    assert not host.offered


class Slow(Host):
    """A host whose episodes end when the test ends them."""

    def status(self):
        return self._status()


def test_a_host_that_was_silent_drops_the_cases_of_others_until_it_claims_them_again(kv, tmp_path):
    world, client, seen = World(kv), kv.client(), "{ultrapar:default}:run:night:seen"
    one, two = (Slow(world, name, tmp_path / name, in_flight=1) for name in ("one", "two"))
    before_s = boot_s()
    one.start()
    wait_until(lambda: one.offered)
    assert before_s + HOLD_S <= one.until_s <= boot_s() + HOLD_S
    had = [*one.offered]
    # As after 15 s of silence: before the host wakes, the server gives its cases to the other one.
    with held_up(one.claiming.server):
        client.zadd(seen, {1: 0})
        two.start()
        wait_until(lambda: {*had} <= {*two.offered})
    wait_until(lambda: one.taken == {one.cases[position].case_id for position in had})
    for position in had[1:]:
        one.claiming.finished(one.cases[position].case_id, "taken")
    wait_until(lambda: {*had} & claimed_by(one) == {had[0]})
    assert one.claiming.n_done == 0
    # The other host dies, and one of these cases is not dropped yet.
    two.claiming.leave()
    solved = set()

    def is_given_back():
        # Cases offered since then count, too: the host claims no more while it has this many open.
        for position in {*one.offered} - {*had} - solved:
            one.claiming.finished(one.cases[position].case_id, "solved")
            solved.add(position)
        return one.cases[had[0]].case_id not in one.taken

    wait_until(is_given_back)
    one.claiming.finished(one.cases[had[0]].case_id, "taken")
    wait_until(lambda: one.offered.count(had[0]) == 2)
    one.claiming.leave()


@pytest.mark.slow
def test_a_run_continues_after_a_part_of_it_was_removed(tmp_path):
    with KeyValueServer.start() as kv:
        host = Host(World(kv), "one", tmp_path / "one")
        host.claiming.join(identity(), lambda *_: None)
        kv.client().delete("{ultrapar:default}:run:night:run")
        host.claiming.start(host.offer, host.over.set, host.lost.append, lambda _: None, host.hold)
        assert host.over.wait(40), host.lost
        host.claiming.leave()
    assert sorted(host.offered) == list(range(N))


def test_a_run_without_a_share_waits_no_longer_than_its_maximum(kv, tmp_path):
    host = Host(World(kv), "one", tmp_path / "one", patience_s=0.3, trouble="no shares")
    host.start()
    wait_until(lambda: host.lost)
    host.claiming.leave()
    assert host.lost == ["no shares; gave up after 0.3 s"]


def test_a_problem_of_some_limits_is_reported_once_and_ends_no_run_that_can_use_others(
    kv, tmp_path
):
    facts = {"trouble": "no shares of rates", "notes": ["a day is closed"], "in_flight": 1}
    host = Host(World(kv), "one", tmp_path / "one", patience_s=0.3, **facts)
    host.start()
    assert host.over.wait(30), host.lost
    time.sleep(0.5)
    host.claiming.leave()
    assert (host.lost, host.told) == ([], ["a day is closed"])
    assert sorted(host.offered) == list(range(N))
