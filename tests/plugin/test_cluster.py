"""Runs of several hosts: each a pytest of its own, all on one machine, with a real server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter

import pyarrow.parquet as pq
import pytest

from tests.key_value_server import KeyValueServer
from tests.light import LIGHT
from tests.plugin.conftest import CANARY, OPTIONS

N = 24
SUITE = f"""
@pytest.mark.parametrize("prompt", [f"say {{n}}" for n in range({N})])
def test_it(answer, grade): grade("solved")
"""
PASSWORD = "redis-canary-71c0"


@pytest.fixture(scope="module")
def kv():
    with KeyValueServer.start() as server:
        yield server


class Host:
    """One host of a run: a process of pytest with a directory of its own."""

    def __init__(self, project, kv, name, *args, run="night", url=None):
        self.name = name
        self.directory = project.pytester.path / name
        environ = dict(os.environ, ULTRAPAR_CLUSTER=url or kv.url)
        self._log = (project.pytester.path / f"{name}.log").open("w+b")
        self.process = subprocess.Popen(
            [
                sys.executable, "-m", "pytest", *LIGHT, *OPTIONS, *args,
                f"--ultrapar-cluster-run={run}", f"--ultrapar-cluster-host={name}",
                f"--ultrapar-out={self.directory}",
            ],
            cwd=project.pytester.path, env=environ, stdin=subprocess.DEVNULL,
            stdout=self._log, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def end(self, timeout_s=120):
        self.code = self.process.wait(timeout_s)
        return self.output

    @property
    def output(self):
        self._log.seek(0)
        text = self._log.read().decode(errors="replace")
        assert "INTERNALERROR" not in text, text
        assert "Traceback" not in text, text
        return text

    def rows(self):
        return pq.read_table(self.directory / "results.parquet").to_pylist()


@pytest.fixture
def hosts(project, kv):
    kv.client().flushall()
    started = []

    def start(name, *args, **options):
        host = Host(project, kv, name, *args, **options)
        started.append(host)
        return host

    yield start
    for host in started:
        host.process.kill()
        host.process.wait()


def rows_of(*hosts):
    return [row for host in hosts for row in host.rows()]


def test_two_hosts_run_each_case_once(project, hosts):
    project.suite(SUITE)
    one, two = hosts("one", "-n0"), hosts("two", "-n2")
    outputs = [host.end() for host in (one, two)]
    assert [one.code, two.code] == [0, 0], outputs
    rows = rows_of(one, two)
    assert {row["outcome"] for row in rows} == {"solved"}
    assert sorted(Counter(row["nodeid"] for row in rows).values()) == [1] * N
    assert sorted(project.server.prompts) == sorted(f"say {n}" for n in range(N))
    said = [f"run night: all {N} cases are done" in output for output in outputs]
    assert sorted(said) == [False, True]


def test_joining_a_run_later_finishes_what_is_left(project, hosts):
    project.suite(SUITE)
    first = hosts("one", "-n0", "-x", "--maxfail=1")
    assert "cases done" in first.end()
    assert len(first.rows()) == N
    again = hosts("two", "-n0")
    output = again.end()
    assert again.code == 0, output
    assert f"{N} of {N} cases done" in output
    assert f"run night: all {N} cases were done before" in output
    assert len(project.server.prompts) == N


def test_another_suite_under_the_same_name_is_refused_and_sends_nothing(project, hosts):
    project.suite(SUITE)
    hosts("one", "-n0").end()
    n_sent = len(project.server.prompts)
    other = hosts("two", "-n0", "--ultrapar-seed=1")
    output = other.end()
    assert other.code == 4
    assert "the run seed (--ultrapar-seed): 1 here, 0 there" in output
    assert len(project.server.prompts) == n_sent


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--ultrapar-resume=latest"], "--ultrapar-resume cannot be used together with"),
        (["--ultrapar-baseline=3"], "--ultrapar-baseline cannot be used together with"),
        (["--ultrapar-gate=coverage>=0.5"], "gate what ultrapar merge makes of all hosts"),
        (["--ultrapar-mode=serial"], "makes no sense in mode serial"),
        (["--ultrapar-policy=exclusive"], "choose even, by-key, by-model or round-robin"),
        (["--ultrapar-cluster=nowhere"], "must begin with redis://"),
        (["--ultrapar-cluster-host=a b"], "--ultrapar-cluster-host must be 1 to 100 letters"),
    ],
)
def test_what_one_host_alone_can_do_is_refused(project, kv, monkeypatch, args, said):
    monkeypatch.setenv("ULTRAPAR_CLUSTER", kv.url)
    project.suite(SUITE)
    result = project.run("-n0", "--ultrapar-cluster-run=alone", *args)
    output = result.stdout.str() + result.stderr.str()
    assert result.ret == 4, output
    assert said in output
    assert "Traceback" not in output
    assert not project.server.prompts


def test_a_server_that_is_needed_and_not_named(project, monkeypatch):
    monkeypatch.delenv("ULTRAPAR_CLUSTER", raising=False)
    project.suite(SUITE)
    result = project.run("-n0", "--ultrapar-cluster-run=alone")
    assert result.ret == 4
    assert "set the environment variable ULTRAPAR_CLUSTER" in result.stderr.str()


def test_a_server_that_is_gone_is_waited_for_and_then_refused(project, monkeypatch):
    monkeypatch.setenv("ULTRAPAR_CLUSTER", "redis://127.0.0.1:1")
    project.suite(SUITE)
    result = project.run("-n0", "--ultrapar-cluster-run=alone", "--ultrapar-cluster-patience=1")
    output = result.stdout.str() + result.stderr.str()
    assert result.ret == 4, output
    assert "waiting for the server of the cluster: redis://127.0.0.1:1/0 does not" in output
    assert not project.server.prompts


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://:wrong@{host}", "refuses user and password"),
        ("redis://{host}/99", "there is no such database"),
        ("redis://reader:reader@{host}", "does not let this user do what is needed"),
    ],
)
def test_a_server_that_refuses(project, monkeypatch, url, said):
    with KeyValueServer.start("--requirepass", PASSWORD) as kv:
        admin = kv.client(password=PASSWORD)
        admin.execute_command("ACL", "SETUSER", "reader", "on", ">reader", "~*", "+@read", "+ping")
        url = url.format(host=f"127.0.0.1:{kv.port}").replace("{host}", "")
        if "99" in url:
            url = url.replace("//", f"//:{PASSWORD}@")
        monkeypatch.setenv("ULTRAPAR_CLUSTER", url)
        project.suite(SUITE)
        result = project.run("-n0", "--ultrapar-cluster-run=alone")
    output = result.stdout.str() + result.stderr.str()
    assert result.ret == 4, output
    assert said in output
    assert PASSWORD not in output
    assert CANARY not in output


@pytest.mark.slow
def test_cases_of_a_host_that_is_killed_run_elsewhere(project, hosts):
    project.suite(SUITE.replace("say", "after 0.3"))
    one, two = hosts("one", "-n2"), hosts("two", "-n0")
    while len(project.server.prompts) < 6:
        assert one.process.poll() is None
        time.sleep(0.01)
    one.process.send_signal(signal.SIGKILL)
    output = two.end()
    assert two.code == 0, output
    done = {row["nodeid"] for row in two.rows()}
    answered = {row["nodeid"] for row in two.rows()}
    assert done == answered
    assert f"run night: all {N} cases are done" in output
