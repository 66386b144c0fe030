"""The warning about a client that cannot keep up, and the lag that it is based on."""

from __future__ import annotations

import os
import threading

import msgspec
import pytest

from pytest_ultrapar.analysis.attribution import Attribution, Parts
from pytest_ultrapar.analysis.performance import client_bound, dispatch_p95_s
from pytest_ultrapar.engine.engine import HEARTBEAT_S, LoopLag
from pytest_ultrapar.records import EngineSpent
from pytest_ultrapar.system.clock import cpu_use
from tests.pools import lane
from tests.unit.request_logs import episode, log_of, request


class Time:
    """A clock and a CPU meter that the test advances."""

    now = cpu = waited = 100.0

    def pass_by(self, now_s, cpu_s=0.0, waited_s=0.0):
        self.now += now_s
        self.cpu += cpu_s
        self.waited += waited_s


@pytest.fixture
def time():
    return Time()


@pytest.fixture
def loop_lag(time):
    return LoopLag(lambda: time.now, lambda: (time.cpu, time.waited))


def test_lag_and_cpu_count_only_while_episodes_are_open(loop_lag, time):
    assert loop_lag.lag_s == 0.0
    loop_lag.beat(busy=False)
    time.pass_by(5.0, 1.0, 2.0)
    assert loop_lag.lag_s == 0.0
    loop_lag.beat(busy=True)
    assert loop_lag.lag_s == 0.0
    for _ in range(4):
        time.pass_by(HEARTBEAT_S + 0.01, 0.012, 0.001)
        loop_lag.beat(busy=True)
    time.pass_by(HEARTBEAT_S + 0.05, 0.0)
    assert loop_lag.lag_s == pytest.approx(0.05)
    loop_lag.beat(busy=False)
    time.pass_by(9.0, 9.0, 9.0)
    loop_lag.beat(busy=False)
    spent = loop_lag.spent("gw3")
    assert (spent.worker, spent.n_beats) == ("gw3", 5)
    assert spent.late_s == pytest.approx(0.09)
    assert spent.latest_s == pytest.approx(0.05)
    assert spent.wall_s == pytest.approx(0.09 + 5 * HEARTBEAT_S)
    assert spent.cpu_s == pytest.approx(0.048)
    assert spent.waited_s == pytest.approx(0.004)


def test_measurement_ends_with_the_engine_even_with_open_episodes(loop_lag, time):
    loop_lag.beat(busy=True)
    time.pass_by(2.0, 1.0)
    spent = loop_lag.spent("gw3")
    assert (spent.wall_s, spent.cpu_s) == (pytest.approx(2.0), pytest.approx(1.0))


def with_client(client_s):
    parts = Parts(10.0 - client_s, 0, 0, 0, 0, client_s, 0, 0)
    return Attribution(10.0, parts, ())


def engine(*, late_s=0.0001, cpu=0.5, waited=0.0, name="gw0"):
    return EngineSpent(name, 10.0, 10.0 * cpu, 1000, 1000 * late_s, 0.2, 10.0 * waited)


def test_slow_client_that_costs_time_is_reported_as_the_bound():
    said = client_bound(with_client(3.0), [engine(), engine(late_s=0.02, cpu=0.97)], 0.07)
    assert said.startswith("30% of the makespan was spent in the client")
    assert "20.0 ms late" in said
    assert "70 ms after their lease was granted" in said
    assert said.endswith("(gw0) used 97% CPU; add workers (-n) to share its work")


@pytest.mark.parametrize(
    ("cpu", "waited", "said"),
    [(0.97, 0.0, "97% CPU; "), (0.3, 0.7, "30% CPU and waited for a CPU 70% of the time; ")],
)
@pytest.mark.parametrize("name", ["controller", "broker"])
def test_busy_process_that_serves_all_workers_is_named_with_a_remedy(name, cpu, waited, said):
    # If cores are short, the workers wait, too.
    idle = engine(cpu=0.2, waited=0.9 * waited)
    spent = [idle, engine(name=name, cpu=cpu, waited=waited), engine(cpu=0.1, name="gw1")]
    bound = client_bound(with_client(3.0), spent, 0.001)
    assert f"The busiest process ({name}) used {said}all workers share it: " in bound
    assert "--ultrapar-shard" in bound


def test_more_workers_are_not_suggested_if_cores_are_short():
    spent = [engine(cpu=0.2, waited=0.9, name="gw1"), engine(cpu=0.4, waited=0.5)]
    said = client_bound(with_client(3.0), spent, 0.001)
    assert (
        "(gw0) used 40% CPU and waited for a CPU 50% of the time; there are too few cores" in said
    )
    assert "share its work" not in said


def test_process_with_a_decreasing_wait_is_not_blamed():
    # The waits of ended threads are unknown, so the total can decrease.
    controller = EngineSpent("controller", 20.0, 10.0, 0, 0.0, 0.0, -9.0)
    said = client_bound(with_client(3.0), [controller, engine(cpu=0.97, waited=3.0)], 0.001)
    assert "(gw0) used 97% CPU; add workers" in said


def test_late_client_without_a_busy_process_gets_no_remedy():
    said = client_bound(with_client(3.0), [engine(late_s=0.02)], 0.001)
    assert said.endswith("(gw0) used 50% CPU")


@pytest.mark.parametrize(
    ("client_s", "one", "dispatch_s"),
    [
        pytest.param(0.5, engine(late_s=0.1, cpu=1.0), 1.0, id="client time is short"),
        pytest.param(5.0, engine(), 0.001, id="the suite's own code waits between turns"),
    ],
)
def test_client_that_is_not_the_bound_is_not_reported(client_s, one, dispatch_s):
    assert client_bound(with_client(client_s), [one], dispatch_s) == ""


def test_client_is_judged_without_engines_too():
    assert client_bound(with_client(5.0), [], 0.2)
    assert client_bound(with_client(5.0), [], 0.0) == ""


def test_suite_code_that_blocks_the_loop_is_reported_as_the_bound():
    stood = msgspec.structs.replace(
        engine(name="gw1"), stalls={"f (a.py:1)": 0.3, "g (b.py:2)": 0.8}
    )
    said = client_bound(with_client(0.0), [engine(), stood], 0.001)
    assert said == (
        "code in the suite blocked the event loop of a worker's episodes for 1.1 s, "
        "mostly in g (b.py:2): "
        "use await llm.run(function) there"
    )
    little = msgspec.structs.replace(stood, stalls={"f (a.py:1)": 0.9})
    assert client_bound(with_client(0.0), [engine(), little], 0.001) == ""


def test_dispatch_counts_measured_requests():
    slow = [episode(request(5.0, 6.0, held_s=0.5)) for _ in range(20)]
    assert dispatch_p95_s(log_of([lane("i0", "k")], *slow)) == pytest.approx(0.5)
    assert dispatch_p95_s(log_of([lane("i0", "k")], *slow, measured=False)) == 0.0


def test_cpu_use_covers_all_threads_of_a_process():
    cpu_s, waited_s = cpu_use(os.getpid())
    burning = threading.Thread(target=sum, args=(range(1_000_000),))
    burning.start()
    burning.join()
    after_s, waited_after_s = cpu_use(os.getpid())
    assert after_s - cpu_s >= 0.001
    assert min(waited_s, waited_after_s) >= 0.0
    with pytest.raises(OSError, match="Invalid argument"):
        cpu_use(2**22 + 1)  # above the highest
