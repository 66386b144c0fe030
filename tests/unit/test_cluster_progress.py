"""Lines of a host about the whole cluster run, its share, and the reason for waiting."""

import msgspec
import pytest

from pytest_ultrapar.broker.protocol import BrokerStatus, LaneStatus, ShareStatus
from pytest_ultrapar.pool.model import Limit
from pytest_ultrapar.report.cluster_progress import (
    ClusterProgress,
    HostPart,
    closed_words,
    joined_words,
    share_words,
    waits_words,
)
from tests.pools import lane

LIMITS = {
    one.name: one
    for one in (
        Limit("pool", "pool", workers=100),
        Limit("p/key0", "key", workers=5, qps=1.5, rpd=500),
        Limit("p/key1", "key", workers=5, qps=2),
    )
}
LANES = [lane("i", f"key{n}", "pool", f"p/key{n}") for n in range(2)]
WHOLE = ClusterProgress(3, 600, 120, 4, {"m": 476})


def shares(*, key0=(0, 0), key1=(0, 0)):
    """Shares, with each key's `qps`: the share now, and the share that the host should have."""
    return [
        ShareStatus("pool", "workers", 20, 100, 20),
        ShareStatus("p/key0", "workers", 2, 5, 2),
        ShareStatus("p/key0", "qps", key0[0], 1.5, key0[1]),
        ShareStatus("p/key0", "rpd", 7, 500, 7),
        ShareStatus("p/key1", "workers", 1, 5, 1),
        ShareStatus("p/key1", "qps", key1[0], 2, key1[1]),
    ]


def told(own, in_flight=0, *, state="up", **more):
    lanes = [LaneStatus(one.lane_id, state, "", 0, 0, 0, 0, 0, 0, {}) for one in LANES]
    return BrokerStatus(1.0, in_flight, 0, 0, 0, lanes, room={"m": 0}, shares=own, **more)


def test_share_adds_up_the_limits_of_the_binding_level():
    assert share_words(shares(key0=(1.5, 0)), LIMITS) == "share 3 of 10 workers, 1.5 of 3.5 qps"
    assert not share_words([], LIMITS)
    assert not share_words([ShareStatus("unknown", "qps", 1, 2, 1)], LIMITS)


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (shares(key0=(1, 1)), ""),
        (
            shares(),
            "waits: other hosts have all of p/key0's qps = 1.5 and of 1 more limit",
        ),
        (
            shares(key0=(0, 1), key1=(0, 1)),
            "waits: this host's share of p/key0's qps = 1.5 is on its way",
        ),
        ([], "waits: this host has no share of the limits yet"),
    ],
)
def test_host_without_a_share_names_the_limit_that_it_waits_for(own, said):
    assert waits_words(WHOLE, told(own), LANES) == said


def test_limit_of_all_lanes_is_named_alone():
    closed = [ShareStatus("pool", "workers", 0, 1, 0), *shares(key0=(1, 1), key1=(1, 1))[1:]]
    assert waits_words(WHOLE, told(closed), LANES) == (
        "waits: other hosts have all of pool's workers = 1"
    )


def test_closed_limits_are_named_if_all_lanes_have_one():
    free = [one for one in shares(key0=(1, 1), key1=(1, 1)) if one.word != "rpd"]
    days = [ShareStatus(f"p/key{n}", "rpd", 0, 0, 0, closed=True) for n in range(2)]
    both = told([*free, *days])
    assert closed_words(WHOLE, both, LANES) == "p/key0's rpd and 1 more limit are closed"
    assert waits_words(WHOLE, both, LANES) == (
        "waits: p/key0's rpd and 1 more limit are closed; to reopen, run ultrapar cluster reset-day"
    )
    assert closed_words(WHOLE, both, LANES[:1]) == "p/key0's rpd is closed"
    # One key is open, or other hosts have its limit; a request is in flight; no case is left.
    elsewhere = [*shares(key0=(1, 1)), *days[:1]]
    assert waits_words(WHOLE, told(elsewhere), LANES) == (
        "waits: other hosts have all of p/key1's qps = 2"
    )
    for whole, status in (
        (WHOLE, told([*free, *days[:1]])),
        (WHOLE, told(elsewhere)),
        (WHOLE, told([*free, *days], in_flight=1)),
        (ClusterProgress(2, 9, 9, 0, {"m": 0}), both),
        (ClusterProgress(2, 9, 3, 6, {"m": 0}), both),
    ):
        assert not closed_words(whole, status, LANES)


def test_host_with_requests_in_flight_does_not_wait():
    assert not waits_words(WHOLE, told(shares(), in_flight=1), LANES)


def test_removed_lanes_wait_for_nothing():
    assert not waits_words(WHOLE, told(shares(), state="out"), LANES)


@pytest.mark.parametrize(
    ("whole", "status", "said"),
    [
        (WHOLE, told(shares(), trouble="the server does not answer"), "waits: the server does not"),
        (
            ClusterProgress(1, 9, 0, 0, {"m": 9}, hears_first=True),
            told([]),
            "waits: the server lost the run's data",
        ),
        (
            ClusterProgress(2, 9, 3, 6, {"m": 0}),
            told(shares()),
            "waits: no cases are left to start; in progress on other hosts: 6",
        ),
        (ClusterProgress(2, 9, 9, 0, {"m": 0}), told(shares()), ""),
        (
            ClusterProgress(2, 9, 3, 0, {"m": 6}, drained=True),
            told(shares()),
            "drained: this host starts",
        ),
    ],
)
def test_other_reasons_for_waiting_are_named(whole, status, said):
    words = waits_words(whole, status, LANES)
    assert words.startswith(said)
    assert bool(words) == bool(said)


def test_joining_host_shows_the_number_of_hosts_and_its_share():
    part = HostPart("ci-3", "nightly", 600)
    assert joined_words(WHOLE, part, "redis://db/0", shares(key1=(2, 2)), LIMITS) == [
        "host ci-3 of run nightly on redis://db/0, with 2 other hosts: 120 of 600 cases done",
        "limits apply to all hosts together; this host: share 3 of 10 workers, 2 of 3.5 qps",
    ]
    alone = ClusterProgress(1, 600, 0, 0, {"m": 600})
    first, second = joined_words(alone, part, "redis://db/0", [], LIMITS)
    assert first.endswith(", the only host so far: 0 of 600 cases done")
    assert second.endswith("this host gets its share in a few seconds")
    nothing = [msgspec.structs.replace(one, share=0) for one in shares()]
    _, second = joined_words(alone, part, "redis://db/0", nothing, LIMITS)
    assert second.endswith("this host has no share yet")
