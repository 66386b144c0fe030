"""Helpers for runs of several hosts: the hosts, and a provider that checks them."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack

import pyarrow.parquet as pq
import pytest

from pytest_ultrapar.testing import read_server_log
from tests.running import Running, wait_until
from tests.simulated_pool import asking, pool_text, serving


class Host:
    """One host of a run: a pytest process with its own directory."""

    def __init__(self, project, name, *args, url, run="night"):
        self.name = name
        self.directory = project.pytester.path / name
        own = (f"--ultrapar-cluster-run={run}", f"--ultrapar-cluster-host={name}")
        self.run = Running(
            project.pytester.path, *args, *own, f"--ultrapar-out={self.directory}",
            name=f"{name}.log", ULTRAPAR_CLUSTER=url,
        )  # fmt: skip
        self.process = self.run.process

    def end(self, code=0):
        """Wait for its end with this exit code (None for any); return its output."""
        self.code = self.process.wait(120)
        assert code in {self.code, None}, self.output
        return self.output

    @property
    def output(self):
        text = self.run.output
        assert "INTERNALERROR" not in text, text
        assert "Traceback" not in text, text
        return text

    def rows(self):
        return pq.read_table(self.directory / "results.parquet").to_pylist()


@pytest.fixture
def hosts(project, kv):
    """A function that starts hosts on an empty server; they end with the test."""
    kv.client().flushall()
    with ExitStack() as stack:

        def start(name, *args, url=kv.url, **options):
            host = Host(project, name, *args, url=url, **options)
            stack.enter_context(host.run)
            return host

        yield start


def rows_of(*hosts):
    return [row for host in hosts for row in host.rows()]


def ended(*hosts):
    """Wait until all hosts have ended successfully; return their outputs."""
    outputs = [host.end(None) for host in hosts]
    assert {host.code for host in hosts} == {0}, outputs
    return outputs


class Lab:
    """The provider of all hosts, which checks the limits and writes its own log."""

    def __init__(self, project, limits, latency_s, models):
        self._log_path = project.pytester.path / "server.jsonl"
        text = pool_text(
            limits, latency_s, name="lab", keys=2, provider="timeout_s = 3", models=models
        )
        project.pytester.path.joinpath("pool.toml").write_text(text)
        self._process = serving(text, self._log_path)
        self.option = asking(self._process)

    @property
    def log(self):
        return read_server_log(self._log_path)

    def wait_for(self, n):
        """Wait until this many requests have come."""
        wait_until(lambda: len(self.log.requests) >= n)

    def judge(self, *, seats, per_s):
        """Check that no request exceeded a limit of any key."""
        log = self.log
        assert log.count(429) == 0
        for key in ("key0", "key1"):
            assert log.max_in_flight(key=key) <= seats
            # One more arrives when a busy machine sends one late; providers allow for it.
            assert log.max_in_window(1.0, key=key) <= per_s + 1

    def stop(self):
        self._process.stop()


@pytest.fixture
def lab(project):
    """A function that starts a provider, which ends with the test."""
    with ExitStack() as stack:

        def start(limits="workers = 5, qps = 10", latency_s=0.3, models=("m",)):
            one = Lab(project, limits, latency_s, models)
            stack.callback(one.stop)
            return one

        yield start


def each_once(n, *hosts, at_most=1):
    """Check that every case has a result, and that no case has too many."""
    found = Counter(row["nodeid"] for row in rows_of(*hosts))
    assert len(found) == n
    assert max(found.values()) <= at_most
    return found
