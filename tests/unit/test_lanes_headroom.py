from pytest_ultrapar.broker.throttles import HEADROOM, with_headroom
from pytest_ultrapar.pool.model import Limit
from tests.pools import lane, pool


def test_headroom_lowers_rates_and_nothing_else():
    declared = pool([lane("a", "k0", "k0")], Limit("k0", "key", 5, qps=10, rpm=300))
    given = with_headroom(declared)
    assert given.limits["k0"] == Limit(
        "k0", "key", 5, qps=10 / (1 + HEADROOM), rpm=300 / (1 + HEADROOM)
    )
    assert given.lanes == declared.lanes
    assert declared.limits["k0"].qps == 10


def test_headroom_leaves_an_unlimited_rate_unlimited():
    given = with_headroom(pool([lane("a", "k0", "k0")], Limit("k0", "key", 5)))
    assert given.limits["k0"] == Limit("k0", "key", 5)
