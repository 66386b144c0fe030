"""The broker's rules with random pools, assignments and lives of workers, judged from outside."""

from __future__ import annotations

import math

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pytest_ultrapar.broker.assignment import Assignment, Group
from pytest_ultrapar.broker.protocol import Feedback, LeaseRequest
from pytest_ultrapar.pool.model import Limit, Pool
from tests.examples import examples
from tests.pools import lane, pool
from tests.property.broker_judge import Judge

WORKERS = ("gw0", "gw1", "gw2")
CAPS = st.sampled_from([None, 1, 2, 3])
QPS = st.sampled_from([None, None, 0.5, 1.5, 3.0, 10.0, 7.3])
RPM = st.sampled_from([None, None, None, 30.0, 90.0])
OUTCOMES = st.sampled_from(
    ["ok"] * 12
    + ["unsent", "rate", "rate", "connect", "connect", "transport", "timeout", "overload"]
    + ["refused", "bad_request", "cancelled", "malformed", "auth", "quota", "not_found"]
    + ["daily_quota", "forbidden", "tls", "too_large", *["overload"] * 6, *["congestion"] * 3]
)


@st.composite
def pools(draw: st.DrawFn) -> Pool:
    """Keys times instances of two models, with limits that nest and limits that cross."""
    n_keys, n_instances = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    models = ("m", "n")[: draw(st.integers(1, 2))]

    def limit(name: str, level: str) -> Limit:
        return Limit(name, level, draw(CAPS), draw(QPS), draw(RPM))

    limits = {"pool": Limit("pool", "pool", draw(st.sampled_from([None, 2, 5])), draw(QPS))}
    lanes = []
    for key in (f"k{n}" for n in range(n_keys)):
        limits[key] = limit(key, "key")
        for model in models:
            for n in range(n_instances):
                instance = f"{model}{n}"
                limits.setdefault(instance, limit(instance, "instance"))
                grace_s = draw(st.sampled_from([0.0, 0.0, 1.5]))
                path = ("pool", key, instance)
                request_s = draw(st.sampled_from([1e9, 1e9, 4.0]))
                terms = {"grace_s": grace_s, "request_s": request_s}
                lanes.append(lane(instance, key, *path, model=model, **terms))
    return pool(lanes, *limits.values())


@st.composite
def assignments(draw: st.DrawFn, of: Pool) -> Assignment:
    lane_ids = [one.lane_id for one in of.lanes]
    some = st.lists(st.sampled_from(lane_ids), unique=True, max_size=3).map(tuple)
    home = draw(st.dictionaries(st.sampled_from(WORKERS), some, max_size=3))
    groups: list[Group] = []
    for n in range(draw(st.integers(0, 3))):
        earlier = [group.name for group in groups]
        groups.append(
            Group(
                f"g{n}",
                cases=tuple(f"g{n}c{k}" for k in range(draw(st.integers(0, 3)))),
                lanes=draw(st.none() | some),
                after=tuple(
                    draw(st.lists(st.sampled_from(earlier), unique=True)) if earlier else ()
                ),
                start_after_s=draw(st.sampled_from([0.0, 0.0, 3.0])),
                exclusive=draw(st.sampled_from([None, None, "word"])),
                at_once=draw(st.sampled_from([None, 1, 2])),
            )
        )
    return Assignment(home, tuple(groups))


class BrokerMachine(RuleBasedStateMachine):
    """Workers join, send, hold, fail, end and die; the judge checks after every call."""

    @initialize(data=st.data(), seed=st.integers(0, 3))
    def start(self, data: st.DataObject, seed: int) -> None:
        of = data.draw(pools())
        self.judge = Judge(of, data.draw(assignments(of)), seed=seed)
        self.models = [model.name for model in of.providers[0].models]
        self.n_requests = 0
        self.opened: list[tuple[str, str, str]] = []

    @rule(worker=st.sampled_from(WORKERS))
    def connect(self, worker: str) -> None:
        if worker not in self.judge.workers:
            self.judge.connect(worker)

    @rule(data=st.data(), n=st.integers(1, 4))
    def open_episodes(self, data: st.DataObject, n: int) -> None:
        for _ in range(n):
            if not self.judge.workers:
                return
            worker = data.draw(st.sampled_from(sorted(self.judge.workers)))
            group = data.draw(st.sampled_from(["", *self.judge.groups]))
            cases = self.judge.groups[group].cases if group else ()
            asked = {one.request.case_id for one in self.judge.waiting.values()}
            fresh = [case for case in cases if case not in self.judge.ended | asked]
            fresh = [case for case in fresh if (worker, group, case) not in self.opened]
            if group and not fresh:
                continue
            self.n_requests += 1
            case = fresh[0] if fresh else f"free{self.n_requests}"
            self.opened.append((worker, group, case))
            model = data.draw(st.sampled_from(self.models))
            request = LeaseRequest(self.n_requests, model, group, opens=True, case_id=case)
            self.judge.request(worker, request)

    @precondition(lambda self: self.judge.workers)
    @rule(data=st.data())
    def next_turn(self, data: st.DataObject) -> None:
        worker = data.draw(st.sampled_from(sorted(self.judge.workers)))
        model = data.draw(st.sampled_from(self.models))
        lanes = [one.lane_id for one in self.judge.pool.lanes if one.model == model]
        group = data.draw(st.sampled_from(["", *self.judge.groups]))
        wanted = data.draw(st.none() | st.sampled_from(lanes))
        self.n_requests += 1
        after = data.draw(st.none() | st.sampled_from(lanes))
        request = LeaseRequest(self.n_requests, model, group, lane=wanted, after=after)
        self.judge.request(worker, request)

    @precondition(lambda self: self.judge.held)
    @rule(data=st.data(), outcome=OUTCOMES, retry_after_s=st.sampled_from([None, 0.5, 200.0]))
    def release(self, data: st.DataObject, outcome: str, retry_after_s: float | None) -> None:
        lease_id = data.draw(st.sampled_from(sorted(self.judge.held)))
        may_be_wordless = outcome in {"overload", "connect"}
        feedback = Feedback(retry_after_s, is_wordless=may_be_wordless and data.draw(st.booleans()))
        self.judge.give_back(lease_id, outcome, feedback)

    @precondition(lambda self: self.judge.held)
    @rule()
    def release_everything(self) -> None:
        for lease_id in sorted(self.judge.held):
            self.judge.give_back(lease_id, "ok")

    @precondition(lambda self: self.judge.waiting)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        self.judge.withdraw(*data.draw(st.sampled_from(sorted(self.judge.waiting))))

    @precondition(lambda self: self.opened)
    @rule(data=st.data())
    def end_episode(self, data: st.DataObject) -> None:
        worker, group, case = data.draw(st.sampled_from(self.opened))
        asked = {key for key, one in self.judge.waiting.items() if one.request.case_id == case}
        for key in asked:
            self.judge.withdraw(*key)
        self.judge.end(worker, case, group)

    @rule(worker=st.sampled_from(WORKERS))
    def disconnect(self, worker: str) -> None:
        if worker in self.judge.workers:
            self.judge.disconnect(worker)
            self.opened = [one for one in self.opened if one[0] != worker]

    @rule(by_s=st.sampled_from([0.0, 0.01, 0.1, 0.35, 1.0, 5.0, 60.0, 1000.0]))
    def let_time_pass(self, by_s: float) -> None:
        self.judge.wait(by_s)

    @rule(by_s=st.sampled_from([7.0, 3600.0]))
    def clock_jumps_ahead(self, by_s: float) -> None:
        self.judge.jump(by_s)

    @rule(by_s=st.sampled_from([0.001, 1.0, 3600.0]))
    def clock_goes_backwards(self, by_s: float) -> None:
        true_s = self.judge.now_s
        late = self.judge.broker.tick(true_s - by_s)
        assert late == []

    @invariant()
    def nothing_is_broken(self) -> None:
        if hasattr(self, "judge"):
            self.judge.check()

    def teardown(self) -> None:
        if not hasattr(self, "judge"):
            return
        judge = self.judge
        for worker in sorted(judge.workers):
            judge.disconnect(worker)
        judge.wait(10.0)
        status = judge.broker.status(judge.now_s)
        assert status.in_flight == status.open_episodes == status.waiting == 0
        assert all(one.in_flight == one.orphans == 0 for one in status.lanes)
        assert all(one.seats.in_flight == 0 for one in judge.broker._table._limits.values())
        assert all(model.n_waiting == 0 for model in judge.broker._table.models.values())
        wake_s = judge.broker.next_wake_s()
        assert wake_s is None or math.isfinite(wake_s)


class TestRules(BrokerMachine.TestCase):
    settings = settings(
        examples(150),
        stateful_step_count=40,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


@pytest.mark.slow
class TestRulesAtLength(BrokerMachine.TestCase):
    settings = settings(
        examples(400),
        stateful_step_count=80,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


def test_limit_of_a_key_estimated_after_a_refusal_applies_to_all_its_models() -> None:
    """Even if the model's own instance counts its requests."""
    of = pool(
        [lane(f"{model}0", "k0", "k0", f"{model}0", model=model) for model in ("m", "n")],
        Limit("k0", "key", qps=0.5),
        Limit("m0", "instance"),
        Limit("n0", "instance", workers=1),
    )
    judge = Judge(of, Assignment())
    judge.connect("gw0")
    judge.request("gw0", LeaseRequest(1, "m"))
    judge.give_back(*judge.held, "congestion")
    judge.wait(7.0)
    judge.request("gw0", LeaseRequest(2, "m"))
    judge.wait(7.0)
    judge.request("gw0", LeaseRequest(3, "n"))
    assert [wish.request.model for wish in judge.waiting.values()] == ["n"]
    judge.give_back(*judge.held, "ok")
    assert [held.lane.model for held in judge.held.values()] == ["n"]
