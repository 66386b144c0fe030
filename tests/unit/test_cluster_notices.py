"""News of one host reach all hosts of its run, also hosts that join later."""

from __future__ import annotations

import pytest

from pytest_ultrapar.broker.shares import rows_of
from pytest_ultrapar.pool.model import Limit
from tests.broker_play import Play
from tests.ledger_model import Ledger
from tests.played_cluster import Cluster
from tests.pools import lane, pool

HEARD_S = 2.0
POOL = pool(
    [lane(name, "k", "key", name, grace_s=1.0) for name in ("a", "b")],
    Limit("key", "key", workers=4),
    Limit("a", "instance"),
    Limit("b", "instance"),
)


def host(cluster: Cluster, run: str = "r") -> Play:
    play = Play(POOL, now_s=cluster.now_s, shared=rows_of(POOL))
    play.connect("gw0")
    cluster.join(play, POOL, run=run)
    cluster.wait(HEARD_S)
    return play


def answer(cluster: Cluster, play: Play, outcome: str, retry_after_s: float | None = None) -> None:
    request_id = play.ask(lane="p/a/k")
    assert request_id in play.leases
    play.back(request_id, outcome, retry_after_s)
    cluster.wait(HEARD_S)


def states(play: Play) -> tuple[str, ...]:
    return tuple(play.status(lane_id).state for lane_id in ("p/a/k", "p/b/k"))


UP, OUT = ("up", "up"), ("out", "out")


def test_refused_key_is_removed_on_all_hosts_of_the_run_including_later_ones():
    cluster = Cluster()
    first, second = host(cluster), host(cluster)
    other_run = host(cluster, run="other")
    answer(cluster, first, "auth")
    assert states(first) == states(second) == OUT
    assert states(other_run) == UP
    cluster.kill(first)
    cluster.wait(500.0)
    assert states(host(cluster)) == OUT


def test_run_that_is_joined_again_tries_a_refused_key_again():
    """The key was refused in an earlier session of the run and may be valid now."""
    cluster = Cluster()
    first = host(cluster)
    answer(cluster, first, "auth")
    cluster.kill(first)
    cluster.wait(60.0)
    assert states(host(cluster)) == UP


def test_server_that_lost_its_data_gets_the_news_again():
    cluster = Cluster()
    first = host(cluster)
    answer(cluster, first, "auth")
    cluster.ledger = Ledger()
    cluster.wait(30.0)
    assert states(host(cluster)) == OUT


@pytest.mark.parametrize("late_s", [0.0, 20.0])
def test_pause_ends_on_all_hosts_at_the_same_time(late_s):
    """The pause also holds on a host that joins after it began."""
    cluster = Cluster()
    first, second = host(cluster), host(cluster)
    answer(cluster, first, "rate", 60.0)
    paused_s = cluster.now_s
    cluster.wait(late_s)
    hosts = [first, second, host(cluster)]
    assert {states(one) for one in hosts} == {("paused", "up")}
    # A pause is up to a tenth longer than asked for.
    cluster.wait(paused_s + 60.0 - HEARD_S - cluster.now_s - 0.5)
    assert {states(one) for one in hosts} == {("paused", "up")}
    cluster.wait(6.0 + 2 * HEARD_S)
    assert {states(one) for one in hosts} == {UP}


def test_connection_failures_stay_on_their_host():
    cluster = Cluster()
    first, second = host(cluster), host(cluster)
    first.back(first.ask(lane="p/a/k"), "connect")
    assert states(first)[0] == "paused"
    assert not first.broker.has_news
    cluster.wait(HEARD_S)
    assert states(second) == UP
