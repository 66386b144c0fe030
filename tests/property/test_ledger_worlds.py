"""Random worlds for the ledger of shares: no host ever has too much, and the script agrees."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.cluster.ledger import Renewal, RowUse
from pytest_ultrapar.cluster.ledger_script import answer_of, arguments_of, keys_of, script_text
from tests.examples import examples
from tests.ledger_servers import Scripted, binary, server
from tests.ledger_world import LANES, ROWS, World


@pytest.mark.cpu_s(3)
@examples(60)
@given(seed=st.integers(0, 2**31))
def test_no_limit_is_exceeded_under_any_fault(seed):
    World(seed).play(300)


@pytest.mark.cpu_s(3)
@examples(100)
@given(seed=st.integers(0, 2**31), hosts=st.integers(1, 6))
def test_hosts_that_want_the_same_settle_and_leave_no_lane_unused(seed, hosts):
    """Without faults, shares stop moving, and each lane has a row that is given out completely."""
    world = World(seed, faults=False)
    world.trouble = world.judge
    world.work = lambda host: None
    for number in range(hosts):
        host = world.join()
        host.run, host.name = "one", f"host{number}"
        for lane in LANES:
            wants = world.dice.choice([1, 5, 50])
            for at in lane[2:]:
                tokens = ROWS[at].amount > 1_000
                host.uses[at].want = wants * (8_000 if tokens else 1)
                host.uses[at].unit = 8_000 if tokens else 1
        for at in LANES[0][:2]:
            host.uses[at].want = sum(host.uses[lane[2]].want for lane in LANES)
    world.change_mind = lambda host, at: None
    while world.now < 1_000_000_000 + 30_000:
        world.step()
    before = [[use.cap for use in host.uses] for host in world.hosts]
    while world.now < 1_000_000_000 + 60_000:
        world.step()
    assert before == [[use.cap for use in host.uses] for host in world.hosts]
    for lane in LANES:
        lacks = [
            host
            for host in world.hosts
            if any(host.uses[at].cap < host.uses[at].want for at in lane[2:])
        ]
        left = [
            spec.amount - sum(h.uses[at].cap for h in world.hosts) for at, spec in enumerate(ROWS)
        ]
        if lacks:
            units = [max(host.uses[at].unit for host in lacks) for at in lane]
            assert any(left[at] < unit for at, unit in zip(lane, units, strict=True)), (
                left,
                before,
            )


def agrees(kind: str, seeds: range, operations: int) -> None:
    with server(kind) as client:
        for seed in seeds:
            scripted = Scripted(client)
            world = World(seed, scripted.serve)
            world.saves, world.loads = scripted.save, scripted.load
            world.play(operations)


@pytest.mark.cpu_s(3)
def test_the_script_answers_as_the_model_on_valkey():
    agrees("valkey", range(2), 300)


@pytest.mark.slow
def test_the_script_answers_as_the_model_on_redis():
    assert binary("redis"), "apt-get install redis-server"
    agrees("redis", range(50, 54), 1_000)


@pytest.mark.parametrize("kind", ["valkey", pytest.param("redis", marks=pytest.mark.slow)])
def test_the_shipped_script_reads_time_and_name_from_the_server(kind):
    with server(kind) as client:
        script = client.register_script(script_text("division.lua"))
        call = Renewal(
            host="a",
            incarnation="a",
            seq=1,
            run="run",
            server_run_id="",
            clock="boot",
            clock_ms=1,
            rows=ROWS,
            uses=tuple(RowUse(0, 5) for _ in ROWS),
            lanes=LANES,
            fresh=True,
        )
        answer = answer_of(script(keys_of("real", call), arguments_of(call)))
        seconds, _ = client.time()
        assert abs(answer.server_ms - seconds * 1000) < 60_000
        assert answer.shares[0].grant == 5
        name = client.info("server")["run_id"]
        assert client.hget("{ultrapar:real}:ledger", "run_id") == name.encode()


def test_every_key_of_the_script_is_declared_and_expires():
    with server("valkey") as client:
        scripted = Scripted(client)
        World(7, scripted.serve, faults=False).play(100)
        keys = client.keys()
        assert len(keys) > 10
        assert all(key.startswith(b"{ultrapar:test}:") for key in keys)
        assert all(0 < client.pttl(key) <= 7 * 86_400_000 for key in keys)
