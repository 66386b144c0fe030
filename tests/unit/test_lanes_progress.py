"""The broker's counts of episodes and requests, for an estimate of the rest."""

from __future__ import annotations

import pytest

from pytest_ultrapar.broker.broker import LaneBroker
from pytest_ultrapar.broker.protocol import BIN, NO_FEEDBACK, LeaseRequest
from pytest_ultrapar.pool.model import Limit
from tests.pools import lane, pool


@pytest.fixture
def broker():
    broker = LaneBroker(pool([lane("m", "k", "k", model="m")], Limit("k", "key", 5)))
    broker.connect("gw0", 0.0)
    return broker


def ask(broker, number, case_id, now_s, *, opens=False):
    request = LeaseRequest(number, "m", opens=opens, case_id=case_id)
    (grant,) = broker.request("gw0", request, now_s)
    return grant.lease.lease_id


def test_progress_separates_ended_from_open_episodes(broker):
    first = ask(broker, 1, "a", 0.0, opens=True)
    ask(broker, 2, "b", 0.0, opens=True)
    broker.release("gw0", first, "ok", NO_FEEDBACK, 2.0)
    second = ask(broker, 3, "a", 2.0)
    broker.release("gw0", second, "ok", NO_FEEDBACK, 3.0)
    broker.episodes_ended("gw0", ["a", "silent"], 3.0)
    status = broker.status(4.0)
    (progress,) = status.models
    assert (progress.model, progress.ended, progress.open) == ("m", {2: 1}, {1: 1})
    assert sorted(BIN**n for n in progress.seconds) == pytest.approx([1.0, 2.0], rel=0.05)
    assert [BIN**n for n in progress.under_way] == pytest.approx([4.0], rel=0.05)
    assert status.lanes[0].busy_s == pytest.approx(2.0 + 1.0 + 4.0)


def test_progress_drops_the_episodes_of_a_dead_worker(broker):
    ask(broker, 1, "a", 0.0, opens=True)
    broker.disconnect("gw0", 1.0)
    broker.connect("gw1", 1.0)
    assert broker.status(2.0).models == []
    broker.episodes_ended("gw1", ["a"], 2.0)
    assert broker.status(2.0).models == []


def test_lease_that_is_returned_unsent_takes_no_time(broker):
    lease = ask(broker, 1, "a", 0.0, opens=True)
    broker.release("gw0", lease, "unsent", NO_FEEDBACK, 2.0)
    (progress,) = broker.status(2.0).models
    assert (progress.seconds, progress.under_way) == ({}, {})
