"""The limits stay safe when another client removes or damages the ledger's keys on the server."""

import struct
import time

import pytest

from pytest_ultrapar.cluster.address import read_address
from pytest_ultrapar.cluster.ledger import Renewal, RowSpec, RowUse
from pytest_ultrapar.cluster.server import ClusterServer
from pytest_ultrapar.errors import ConfigError

PREFIX = "{ultrapar:default}:"
SEATS = RowSpec(name="key:abc:workers", kind="seats", amount=12, longest_ms=2000, group="key:abc")
DAY = RowSpec(name="key:abc:rpd", kind="counted", amount=500, window_ms=86_400_000, group="key:abc")


@pytest.fixture
def server(kv):
    kv.client().flushall()
    server = ClusterServer(read_address(kv.url, {}))
    server.read_facts()
    yield server
    server.close()


class Host:
    """A host that uses all its grants; its clock stands still."""

    def __init__(self, server, name, spec=SEATS):
        self.server, self.name, self.spec = server, name, spec
        self.seq = self.held = self.epoch = 0

    def renew(self, **facts):
        self.seq += 1
        answer = self.server.renew(
            Renewal(
                host=self.name, incarnation=f"life-{self.name}", seq=self.seq, run="r",
                server_run_id=self.server.facts.run_id, clock=self.name, clock_ms=0,
                rows=(self.spec,), uses=(RowUse(self.held, self.spec.amount, 1),), lanes=((0,),),
                epoch=self.epoch, fresh=True, **facts,
            )
        )  # fmt: skip
        (share,) = answer.shares
        self.held, self.epoch = share.grant, answer.epoch
        return share


def rob_of_rows(client):
    client.delete(f"{PREFIX}rows")


def rob_of_a_row(client):
    client.hdel(f"{PREFIX}rows", SEATS.name)


def rob_of_all(client):
    client.delete(f"{PREFIX}rows", f"{PREFIX}row:{SEATS.name}")


def rob_of_shares(client):
    client.delete(f"{PREFIX}row:{SEATS.name}")


def rob_of_the_epoch(client):
    client.hincrby(f"{PREFIX}ledger", "epoch", 5)


ROBBERS = [rob_of_rows, rob_of_a_row, rob_of_all, rob_of_shares, rob_of_the_epoch]


@pytest.mark.parametrize("rob", ROBBERS)
def test_a_host_s_share_is_never_given_twice(server, kv, rob):
    one = Host(server, "one")
    while one.held < SEATS.amount:
        one.renew()
    before = one.epoch
    rob(kv.client())
    others = [Host(server, f"other{n}") for n in range(3)]
    for other in others * 3:
        assert other.renew().grant == 0
    deadline_s = time.monotonic() + 20
    while one.epoch == before and time.monotonic() < deadline_s:
        one.renew()
        for other in others:
            assert other.renew().grant == 0
    assert one.epoch > before


def test_rows_of_a_forgotten_run_are_not_missing(server, kv):
    one = Host(server, "one", RowSpec(name="run:r:pool:workers", kind="seats", amount=2))
    two = Host(server, "two")
    for host in (one, two, one, two):
        host.renew()
    before = two.epoch
    server.forget("r")
    two.renew()
    assert two.epoch == before
    assert two.held == SEATS.amount


@pytest.mark.parametrize("at", range(6))
def test_invalid_numbers_are_refused(server, kv, at):
    one = Host(server, "one")
    while one.held < SEATS.amount:
        one.renew()
    client = kv.client()
    none = struct.pack("<d", float("nan"))
    for key, place in ((f"{PREFIX}rows", 32), (f"{PREFIX}row:{SEATS.name}", 8 * at)):
        for field, text in client.hgetall(key).items():
            client.hset(key, field, text[:place] + none + text[place + 8 :])
        with pytest.raises(ConfigError, match=r"rejected a command: .*a row that no script wrote"):
            Host(server, f"other{key}").renew()


@pytest.mark.parametrize("number", ["9" * 18, "nan", "inf", "x"])
@pytest.mark.parametrize("field", ["epoch", "now", "kept"])
def test_invalid_numbers_of_the_ledger_are_refused(server, kv, field, number):
    one = Host(server, "one")
    one.renew()
    kv.client().hset(f"{PREFIX}ledger", field, number)
    with pytest.raises(ConfigError, match=r"rejected a command: .*a number that no script wrote"):
        one.renew()


@pytest.mark.slow
def test_hosts_that_have_left_a_counted_row_leave_nothing_there(server, kv):
    for n in range(20):
        host = Host(server, f"host{n}", DAY)
        while not host.held:
            host.renew()
        host.held = 0
        host.renew(leaving=True)
    assert kv.client().hlen(f"{PREFIX}row:{DAY.name}") == 0
