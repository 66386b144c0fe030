"""A host of a large run with a real server: it claims few cases at a time."""

from __future__ import annotations

import pytest

from pytest_ultrapar.broker.protocol import BrokerStatus, ModelProgress
from pytest_ultrapar.cluster.address import read_address
from pytest_ultrapar.cluster.claim_thread import MOST_UNGRADED, Claiming
from pytest_ultrapar.cluster.run_identity import NumberedCases, RunIdentity
from pytest_ultrapar.cluster.server import ClusterServer
from pytest_ultrapar.records import Case
from tests.key_value_server import KeyValueServer
from tests.running import wait_until

pytestmark = pytest.mark.slow

N = 10 * MOST_UNGRADED


class Counting(ClusterServer):
    """Count the calls about cases."""

    n_calls = 0

    def claim(self, run, call):
        self.n_calls += 1
        return super().claim(run, call)


def _identity(numbered):
    """The identity of a unique run; its names do not matter."""
    fields = dict.fromkeys(RunIdentity.__struct_fields__, "")
    fields |= {"seed": 0, "models": numbered.models, "n_cases": len(numbered), "data": {}}
    return RunIdentity(**fields)


class Answering:
    """A host whose cases are answered immediately, and graded when the test says."""

    def __init__(self, cases) -> None:
        self.cases = cases
        self.offered: list[int] = []

    def status(self):
        n = len(self.offered)
        progress = ModelProgress("m", ended={1: n}, open={}, seconds={}, under_way={})
        return BrokerStatus(0.0, 0, 0, 0, n, [], models=[progress], room={"m": 10_000})

    def grade(self, claiming, count) -> None:
        for position in self.offered[:count]:
            claiming.finished(self.cases[position].case_id, "solved")


def test_a_host_with_ungraded_cases_leaves_cases_to_others(tmp_path):
    cases = [Case(i, f"{i:016x}", f"t::{i}", "s", "m", 0, {}, 0) for i in range(N)]
    numbered = NumberedCases(cases, ["m"])
    host = Answering(cases)
    with KeyValueServer.start() as kv:
        server = Counting(read_address(kv.url, {}))
        server.read_facts()
        claiming = Claiming(
            server,
            "r",
            "h",
            numbered,
            (),
            directory=tmp_path,
            patience_s=60,
            status=host.status,
        )
        claiming.join(_identity(numbered), lambda *_: None)
        claiming.start(host.offered.extend, *(lambda *_: None,) * 4)
        try:
            wait_until(lambda: len(host.offered) > MOST_UNGRADED)
            n_calls = server.n_calls
            wait_until(lambda: server.n_calls > n_calls + 5)
            n_claimed = len(host.offered)
            assert n_claimed < 4 * MOST_UNGRADED
            assert claiming.said.unclaimed == [N - n_claimed]
            host.grade(claiming, n_claimed)
            wait_until(lambda: len(host.offered) > n_claimed + MOST_UNGRADED)
        finally:
            claiming.leave()
