"""Claims of cases: the script on a real server compared with the model, and invariants."""

from importlib import resources

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.cluster.claim_protocol import (
    KEY_NAMES,
    SILENT_MS,
    ClaimCall,
    Claimed,
    GroupRule,
    JoinCall,
    LeaveCall,
    SameName,
    Unknown,
    read_answer,
)
from tests.claim_book import ClaimBook
from tests.key_value_server import KeyValueServer

LINES = [(0, 7), (7, 9), (9, 20)]
N = 20


@pytest.fixture(scope="module")
def server():
    with KeyValueServer.start() as server, server.client() as client:
        yield client


class Script:
    """The script with the test's clock."""

    def __init__(self, client, *, prefix="{t}:"):
        text = resources.files("pytest_ultrapar.cluster").joinpath("claims.lua").read_text()
        clock = "local time = redis.call('TIME')"
        assert clock in text
        timed = text.replace(clock, "local time = {tonumber(ARGV[2]), 0}")
        self._script = client.register_script(timed)
        self._keys = [prefix + name for name in KEY_NAMES]

    def call(self, call, now_s):
        return read_answer(self._script(keys=self._keys, args=[msgspec.json.encode(call), now_s]))


class World:
    """Hosts that join, claim, finish, die, return and repeat calls, on script and model."""

    def __init__(self, client, groups=()):
        client.flushall()
        self.groups = list(groups)
        self.script, self.book = Script(client), ClaimBook()
        self.now_s = 1_000_000
        self.hosts = {}  # name -> (number, life, seq, open cases)
        self.lives = 0
        self.last = {}
        self.answered = set()

    def play(self, plays, *, fails=True):
        """Take steps; with `fails` some cases end without an answer."""
        for step, *arguments in plays:
            if step == "time":
                self.now_s += arguments[0]
            elif step == "claim":
                *those, has_failed = arguments
                self.claim(*those, fails=fails and has_failed)
            else:
                getattr(self, step)(*arguments)

    def send(self, call):
        said = self.script.call(call, self.now_s)
        expected = self.book.call(call, self.now_s * 1000)
        assert said == expected, call
        self.check()
        return said

    def check(self):
        book = self.book
        assert not book.done & book.claims.keys()
        assert not book.back & book.claims.keys()
        assert self.answered <= book.done

    def open_of(self, cases):
        lines = [next(i for i, (_, last) in enumerate(LINES) if case < last) for case in cases]
        return sorted(
            (group, n)
            for group, rule in enumerate(self.groups)
            if (n := sum(line in range(*rule.lines) for line in lines))
        )

    def join(self, name, *, comes_back=False):
        known = self.hosts.get(name)
        if known is None:
            self.lives += 1
            life, mine = f"life{self.lives}", set()
        else:
            _, life, _, mine = known
        call = JoinCall(
            name=name,
            life=life,
            identity="{}",
            lines=LINES,
            groups=self.groups,
            open_of=self.open_of(mine),
            comes_back=comes_back and known is not None,
            holding=sorted(mine),
        )
        said = self.send(call)
        if isinstance(said, Claimed):
            self.hosts[name] = [said.host, life, 0, mine]
        else:
            assert isinstance(said, SameName)

    def claim(self, name, wants, n_done, *, fails=False):
        if name not in self.hosts:
            return
        host = self.hosts[name]
        number, life, seq, mine = host
        done = sorted(mine)[:n_done]
        mine.difference_update(done)
        call = ClaimCall(
            host=number,
            life=life,
            seq=seq,
            done=[] if fails else done,
            failed=done if fails else [],
            open=len(mine),
            open_of=self.open_of(mine),
            wants=wants,
        )
        said = self.send(call)
        if isinstance(said, Unknown):
            mine.update(done)
            self.join(name, comes_back=True)
            return
        if not fails:
            self.answered.update(done)
        host[2] += 1
        self.last[name] = call
        # If two hosts have a case at the same time, one of them lost it by its silence.
        mine.update(said.given)

    def repeat(self, name):
        if name in self.last and name in self.hosts:
            before = len(self.book.claims)
            self.send(self.last[name])
            assert len(self.book.claims) <= before

    def leave(self, name):
        if name in self.hosts:
            number, life, _, _ = self.hosts.pop(name)
            self.last.pop(name, None)
            self.send(LeaveCall(host=number, life=life))

    def die(self, name):
        self.hosts.pop(name, None)
        self.last.pop(name, None)


names = st.sampled_from(["a", "b", "c"])
wants = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4)), max_size=3)
steps = st.one_of(
    st.tuples(st.just("join"), names),
    st.tuples(st.just("claim"), names, wants, st.integers(0, 3), st.booleans()),
    st.tuples(st.just("repeat"), names),
    st.tuples(st.just("leave"), names),
    st.tuples(st.just("die"), names),
    st.tuples(st.just("time"), st.integers(1, SILENT_MS // 1000 + 2)),
)


@given(st.lists(steps, max_size=40))
def test_script_and_model_agree(server, plays):
    World(server).play(plays)


@given(st.lists(steps, max_size=30))
def test_all_cases_are_finished_after_any_deaths_of_hosts(server, plays):
    world = World(server)
    world.play(plays, fails=False)
    for name in ("a", "b", "c"):
        world.die(name)
    world.now_s += SILENT_MS // 1000 + 1
    world.join("d")
    for _ in range(N):
        world.claim("d", [(0, 2), (1, 2), (2, 2)], 10)
        world.claim("d", [], 10)
    assert world.book.done == set(range(N))
    number, life, seq, _ = world.hosts["d"]
    said = world.send(ClaimCall(host=number, life=life, seq=seq))
    assert said.is_over
    assert said.elected


def test_host_on_a_server_that_forgot_the_run_claims_nothing_before_others_reported(server):
    world = World(server)
    world.join("a")
    world.join("b")
    world.claim("a", [(0, 3)], 0)
    world.claim("b", [(0, 3)], 0)
    server.flushall()
    world.book = ClaimBook()
    world.claim("a", [(0, 2)], 1)
    held = {case for host in world.hosts.values() for case in host[3]}
    world.claim("a", [(0, 2)], 0)
    world.claim("b", [], 0)
    for _ in range(3):
        world.now_s += SILENT_MS // 3000
        world.claim("a", [], 0)
        world.claim("b", [], 0)
    world.claim("a", [(0, 7)], 0)
    assert len(world.hosts["b"][3]) == 3
    assert not world.hosts["a"][3] & world.hosts["b"][3]
    assert held <= world.hosts["a"][3] | world.hosts["b"][3]


def test_host_that_joins_later_runs_failed_cases_again(server):
    world = World(server)
    world.join("a")
    for _ in range(N):
        world.claim("a", [(0, 9), (1, 9), (2, 9)], 20, fails=True)
    assert world.book.failed == set(range(N))
    world.leave("a")
    world.join("b")
    assert world.book.back == set(range(N))
    assert not world.book.failed


def rules(*ones):
    """Groups of the lines in their order; each has its number of lines and its rules."""
    found, at = [], 0
    for n_lines, changed in ones:
        found.append(GroupRule(lines=(at, at + n_lines), **changed))
        at += n_lines
    return found


RULES = {
    "one after another": rules((1, {}), (1, {"after": (0,)}), (1, {"after": (1,)})),
    "one lock": rules((1, {"lock": 0}), (1, {"lock": 0}), (1, {"lock": 0})),
    "one at a time": rules((3, {"at_once": 1})),
    "a lock in a chain": rules(
        (1, {"lock": 0}), (1, {"after": (0,), "lock": 1, "at_once": 2}), (1, {"lock": 0})
    ),
    "a group has the lock of the group that it waits for": rules(
        (1, {"after": (2,), "lock": 0}), (1, {}), (1, {"lock": 0, "start_after_ms": 3000})
    ),
    "some are free": rules((1, {"start_after_ms": 5000}), (1, {"after": (0,)})),
    "a pause": rules((1, {}), (2, {"after": (0,), "start_after_ms": 20_000, "at_once": 3})),
}
groupings = st.sampled_from(sorted(RULES))


@given(groupings, st.lists(steps, max_size=40))
def test_script_and_model_agree_on_groups(server, grouping, plays):
    World(server, RULES[grouping]).play(plays)


class Judge(World):
    """Check for every claimed case that the rules allow it; track which cases hosts have begun."""

    def send(self, call):
        is_new = isinstance(call, ClaimCall) and call not in self.last.values()
        said = super().send(call)
        if is_new and isinstance(said, Claimed):
            self.judge(said.given)
        return said

    def judge(self, given):
        book = self.book
        for case in given:
            line = next(i for i, (_, last) in enumerate(LINES) if case < last)
            group = book.group_of(line)
            if group is None:
                continue
            rule = self.groups[group]
            if rule.at_once:
                # No live host has more cases of the group open than allowed, including these.
                assert book.open(group) <= rule.at_once
            for other in rule.after:
                own = {n for at in range(*self.groups[other].lines) for n in range(*LINES[at])}
                assert not own - book.done - {n for n in own if n in book.claims}
                assert not book.open(other)
            for other, its in enumerate(self.groups):
                if other != group and rule.lock >= 0 and its.lock == rule.lock:
                    assert not book.open(other)


@given(groupings, st.lists(steps, max_size=40))
def test_order_locks_and_numbers_hold_over_all_hosts(server, grouping, plays):
    Judge(server, RULES[grouping]).play(plays)


@given(groupings, st.lists(steps, max_size=30))
def test_no_group_waits_forever(server, grouping, plays):
    world = Judge(server, RULES[grouping])
    world.play(plays, fails=False)
    for name in ("a", "b", "c"):
        world.die(name)
    world.now_s += SILENT_MS // 1000 + 1
    world.join("d")
    for _ in range(4 * N):
        n_before = len(world.book.done)
        world.claim("d", [(2, 2), (1, 2), (0, 2)], 10)
        world.claim("d", [], 10)
        if len(world.book.done) == N:
            break
        world.now_s += 0 if len(world.book.done) > n_before else 6
    assert world.book.done == set(range(N))
