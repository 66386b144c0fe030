"""Runs of several hosts: each is a pytest session on this machine, with a real server."""

from __future__ import annotations

import math
import re
import signal
import threading
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import httpx
import pyarrow.parquet as pq
import pytest
import trustme

from pytest_ultrapar.cli import main
from pytest_ultrapar.cluster.server import RULES
from pytest_ultrapar.records import EpisodeStarted
from pytest_ultrapar.store.manifest import read_manifest
from pytest_ultrapar.system.clock import boot_s
from pytest_ultrapar.testing import read_server_log
from tests.family import family_of, signal_all
from tests.gateway_process import gateway
from tests.journals import scan_journal
from tests.key_value_server import KeyValueServer, free_port
from tests.plugin.cluster_stage import each_once, ended, rows_of
from tests.plugin.conftest import CANARY, cases, said_by
from tests.running import Running, wait_until
from tests.simulated_pool import pool_text, serving

N = 24
SUITE = cases(N, 'grade("solved")')
PASSWORD = "redis-canary-71c0"


@pytest.mark.slow
def test_two_hosts_run_each_case_once_and_a_host_with_another_suite_is_refused(project, hosts):
    project.suite(SUITE)
    one, two = hosts("one", "-n0"), hosts("two", "-n0")
    outputs = ended(one, two)
    rows = rows_of(one, two)
    assert {row["outcome"] for row in rows} == {"solved"}
    assert sorted(Counter(row["nodeid"] for row in rows).values()) == [1] * N
    assert sorted(project.server.prompts) == sorted(f"say {n}" for n in range(N))
    said = ["merge its hosts' directories with ultrapar merge" in output for output in outputs]
    assert sorted(said) == [False, True]
    # Its directories are on one disk, so the last host merged them into one run.
    (whole,) = project.pytester.path.glob("merged-night-*")
    assert f"run night is merged into {whole}" in outputs[said.index(True)]
    assert len(pq.read_table(whole / "results.parquet")) == N
    manifest = read_manifest(whole)
    assert {one.host for one in manifest.merged.parts} == {"one", "two"}
    # One machine has one clock, and the server's has the same time.
    assert manifest.merged.clock_error_s < 1, manifest.merged
    other = hosts("three", "-n0", "--ultrapar-seed=1")
    assert "the run seed (--ultrapar-seed): 1 here, 0 there" in other.end(4)
    assert len(project.server.prompts) == N


@pytest.mark.slow
def test_host_that_joins_later_runs_the_remaining_cases(project, hosts):
    project.suite(SUITE)
    first = hosts("one", "-n0", "-x", "--maxfail=1")
    assert "cases done" in first.end()
    assert len(first.rows()) == N
    output = hosts("two", "-n0").end()
    assert f"{N} of {N} cases done" in output
    assert f"run night: all {N} cases are done; this session ran 0 of them" in output
    assert f"host two ran none of the {N} cases in run night" in output
    assert "coverage" not in output
    assert len(project.server.prompts) == N


ENDS_EARLY = {
    "skipped by a mark": """
@pytest.mark.skip(reason="not now")
@pytest.mark.parametrize("prompt", [f"say {n}" for n in range(20)])
def test_not(answer, grade): grade("solved")
""",
    "skipped in a fixture": """
@pytest.fixture(scope="session")
def tools(): pytest.skip("no tools")

@prefetch
async def other(llm, prompt, tools) -> str: return (await llm.chat([])).text

@pytest.mark.parametrize("prompt", [f"say {n}" for n in range(20)])
def test_not(other, grade): grade("solved")
""",
    "failing fixture": """
@pytest.fixture(scope="session")
def tools(): raise ValueError("no tools")

@prefetch
async def other(llm, prompt, tools) -> str: return (await llm.chat([])).text

@pytest.mark.parametrize("prompt", [f"say {n}" for n in range(20)])
def test_not(other, grade): grade("solved")
""",
}


@pytest.mark.slow
@pytest.mark.parametrize(("why", "workers"), [*zip(ENDS_EARLY, ("-n0", "-n2", "-n0"), strict=True)])
def test_cases_that_end_without_a_request_keep_no_host_waiting(project, hosts, why, workers):
    project.suite(ENDS_EARLY[why] + SUITE)
    host = hosts("one", workers)
    host.end(1 if why == "failing fixture" else 0)
    assert Counter(row["outcome"] for row in host.rows())["solved"] == N
    assert len(host.rows()) == N + 20


@pytest.mark.slow
def test_a_failure_that_stops_one_host_leaves_its_cases_to_others(project, hosts):
    project.suite(SUITE.replace('grade("solved")', 'grade("solved"); assert "7" not in answer'))
    one = hosts("one", "-n0", "-x")
    one.end(1)
    two = hosts("two", "-n0")
    two.end(1)
    finished = {row["nodeid"] for host in (one, two) for row in host.rows()}
    assert len(finished) == N


def refusal(project, *args):
    """The message, without the password, of a run that is refused before anything is sent."""
    result = project.run("-n0", "--ultrapar-cluster-run=alone", *args)
    assert PASSWORD not in result.stdout.str() + result.stderr.str()
    return project.refusal(result)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--ultrapar-resume=latest"], "--ultrapar-resume cannot be used together with"),
        (["--ultrapar-check"], "the check sends requests outside the shared limits"),
        (["--ultrapar-baseline=3"], "--ultrapar-baseline cannot be used together with"),
        (["--ultrapar-gate=coverage>=0.5"], "ultrapar gate on the merged run"),
        (["--ultrapar-mode=serial"], "does not work with mode serial"),
        (["--ultrapar-cluster=nowhere"], "must begin with redis://"),
        (["--ultrapar-cluster-host=a b"], "--ultrapar-cluster-host must be 1 to 100 letters"),
    ],
)
def test_options_for_a_single_host_are_refused(project, kv, monkeypatch, args, said):
    monkeypatch.setenv("ULTRAPAR_CLUSTER", kv.url)
    project.suite(SUITE)
    assert said in refusal(project, *args)


def test_run_waits_for_a_missing_server_and_then_refuses(project, monkeypatch):
    monkeypatch.setenv("ULTRAPAR_CLUSTER", "redis://127.0.0.1:1")
    project.suite(SUITE)
    options = ("--ultrapar-cluster-run=alone", "--ultrapar-cluster-patience=1")
    result = project.run("-n0", *options)
    said = "redis://127.0.0.1:1/0 does not answer"
    assert f"waiting for the cluster server: {said}" in result.stdout.str()
    assert f"ERROR: {said}" in project.refusal(result)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://:wrong@127.0.0.1:{port}", "rejected the user name or password"),
        ("redis://:{password}@127.0.0.1:{port}/99", "DB index is out of range"),
        ("redis://reader:reader@127.0.0.1:{port}", "denies a required permission"),
    ],
)
def test_run_reports_why_the_server_refuses(project, monkeypatch, url, said):
    with KeyValueServer.start("--requirepass", PASSWORD) as kv:
        admin = kv.client(password=PASSWORD)
        admin.execute_command("ACL", "SETUSER", "reader", "on", ">reader", "~*", "+@read", "+ping")
        monkeypatch.setenv("ULTRAPAR_CLUSTER", url.format(port=kv.port, password=PASSWORD))
        project.suite(SUITE)
        assert said in refusal(project)


def spans(log, model):
    """The start of a model's first request and the end of its last one."""
    found = [one for one in log.requests if one.model == model]
    return min(one.t_arrival_s for one in found), max(one.t_end_s for one in found)


ASSIGN = """
from pytest_ultrapar import Assignment, Group

def pytest_ultrapar_policies(mode):
    return ["ours"] if mode == "phase" else None

def pytest_ultrapar_assign(workers, lanes, cases):
    by_model = {}
    for case in cases:
        by_model.setdefault(case.model, []).append(case.case_id)
    m, n = (tuple(by_model[model]) for model in ("m", "n"))
    return Assignment(
        home={worker: tuple(lane.lane_id for lane in lanes) for worker in workers},
        groups=(
            Group("few", m + n[:2], at_once=2),
            Group("later", n[2:], after=("few",), start_after_s=1.0),
        ),
    )
"""


@pytest.mark.slow
def test_groups_of_a_suite_hold_over_all_hosts(project, hosts, lab):
    """Groups of several models, with a maximum at the same time, an order and a pause."""
    (project.pytester.path / "conftest.py").write_text(ASSIGN)
    server = lab("workers = 3", 0.1, models=("m", "n"))
    project.suite(cases(8))
    run = [hosts(f"host{n}", n, server.option, "--ultrapar-mode=phase") for n in ("-n2", "-n0")]
    ended(*run)
    each_once(16, *run)
    assert server.log.count(429) == 0
    ordered = sorted(server.log.requests, key=lambda one: one.t_arrival_s)
    assert len(ordered) == 16
    few, later = ordered[:10], ordered[10:]
    assert {one.model for one in later} == {"n"}
    few_ended_s = max(one.t_end_s for one in few)
    # The server of the cluster learns of an end a little later.
    assert later[0].t_arrival_s - few_ended_s > 0.99
    for one in few:
        at_once = [two for two in few if two.t_arrival_s <= one.t_arrival_s < two.t_end_s]
        assert len(at_once) <= 2


@pytest.mark.slow
def test_cases_of_a_killed_host_run_before_the_cases_that_wait_for_them(project, hosts, lab):
    project.suite(cases(40))
    server = lab("workers = 2", 0.5, models=("m", "n"))
    options = (server.option, "--ultrapar-policy=batch:1")
    one = hosts("one", "-n0", *options)
    server.wait_for(5)
    two = hosts("two", "-n0", *options)
    server.wait_for(32)
    one.process.send_signal(signal.SIGKILL)
    output = two.end()
    assert "run night: all 80 cases are done" in output
    log = server.log
    assert log.count(429) == 0
    assert spans(log, model="m")[1] <= spans(log, model="n")[0]


def merged(project, *hosts):
    """The directory and rows of the run merged from the hosts' directories."""
    whole = project.pytester.path / "whole"
    assert main(["merge", *(str(host.directory) for host in hosts), "--out", str(whole)]) == 0
    return whole, pq.read_table(whole / "results.parquet").to_pylist()


@pytest.mark.slow
def test_hosts_keep_the_limits_together_and_are_merged(project, hosts, lab):
    project.suite(cases(100))
    server = lab()
    run = [hosts(f"host{n}", one, server.option) for n, one in enumerate(("-n2", "-n0"))]
    ended(*run)
    server.judge(seats=5, per_s=10)
    each_once(100, *run)
    assert len(server.log.requests) == 100
    whole, rows = merged(project, *run)
    assert len(rows) == 100
    assert main(["gate", str(whole), "--rule", "solved_rate>=0.5"]) == 0
    for host in run:
        assert main(["gate", str(host.directory), "--rule", "solved_rate>=0.5"]) == 4
    of_host = {(host.name, row["nodeid"]) for host in run for row in host.rows()}
    assert {(row["host"], row["nodeid"]) for row in rows} == of_host


@pytest.mark.slow
def test_host_without_a_share_reports_why_it_waits(  # noqa: PLR0917
    project, hosts, kv, lab, monkeypatch, capsys
):
    project.suite(cases(50))
    server = lab("workers = 5, qps = 1")
    run = [hosts(f"host{n}", "-n0", server.option) for n in range(3)]
    server.wait_for(10)
    monkeypatch.setenv("ULTRAPAR_CLUSTER", kv.url)
    assert main(["cluster", "status", "night"]) == 0
    told = capsys.readouterr().out
    for word in ("workers = 5", "qps = 1"):
        assert re.search(rf"^  lab/key[01]'s {word}: host\d \d", told, re.MULTILINE), told
    outputs = ended(*run)
    lines = "\n".join(outputs).splitlines()
    progress = [line for line in lines if line.startswith("running on ")]
    assert any("running on 3 hosts: " in line for line in progress), outputs
    assert any("waits: other hosts have all of lab/key" in line for line in progress), progress
    assert any("/50 done, " in line and "share " in line for line in progress), progress
    assert not any(line.startswith("0 cases") for line in lines)


@pytest.mark.slow
def test_drained_host_ends_after_its_own_cases(project, hosts, kv, lab, monkeypatch):
    project.suite(cases(100))
    server = lab()
    host = hosts("one", "-n0", server.option)
    server.wait_for(20)
    monkeypatch.setenv("ULTRAPAR_CLUSTER", kv.url)
    assert main(["cluster", "drain", "night", "one"]) == 0
    output = host.end()
    assert len(host.rows()) < 100
    assert output.count("draining this host: it finishes its cases in progress") == 1
    assert "of 100 cases are done; join it again to continue" in output
    assert f"{len(host.rows())} of 100 cases on host one: " in output


@pytest.mark.slow
def test_cases_of_a_lost_disk_are_reopened_and_run_again(project, hosts, kv, monkeypatch):
    project.suite(SUITE)
    one = hosts("one", "-n0", "--maxfail=1")
    one.end()
    whole, _ = merged(project, one)
    next((whole / "journal").iterdir()).unlink()
    monkeypatch.setenv("ULTRAPAR_CLUSTER", kv.url)
    assert main(["cluster", "reopen", "night", str(whole)]) == 0
    two = hosts("two", "-n0")
    two.end()
    assert len(two.rows()) == N


@pytest.mark.slow
def test_cases_of_a_killed_host_run_on_other_hosts(project, hosts, lab):
    project.suite(cases(100))
    server = lab()
    one = hosts("one", "-n2", server.option)
    server.wait_for(5)
    two = hosts("two", "-n0", server.option)
    server.wait_for(30)
    one.process.send_signal(signal.SIGKILL)
    output = two.end()
    server.judge(seats=5, per_s=10)
    assert "run night: all 100 cases are done" in output
    silent = "ultrapar: host one has been silent for 15 s"
    said = f"{silent}; other hosts are taking over its unfinished cases"
    assert output.count(said) == 1
    _, rows = merged(project, one, two)
    assert sorted(Counter(row["nodeid"] for row in rows).values()) == [1] * 100


@pytest.mark.slow
@pytest.mark.parametrize("forgets", [False, True])
def test_run_continues_when_a_killed_server_comes_back(project, hosts, lab, forgets):
    project.suite(cases(100))
    server = lab()
    options = () if forgets else ("--appendonly", "yes")
    with KeyValueServer.start(*options) as kv:
        run = [hosts(f"host{n}", "-n0", server.option, url=kv.url) for n in range(2)]
        server.wait_for(30)
        kv.kill()
        time.sleep(1.0)
        kv.run()
        ended(*run)
    server.judge(seats=5, per_s=10)
    each_once(100, *run, at_most=2)


@pytest.mark.slow
def test_suspended_host_takes_no_seat_that_others_have_meanwhile(project, hosts, lab):
    """Its requests are in flight while it is suspended, so it still holds their seats."""
    project.suite(cases(44))
    server = lab("workers = 2", 2.5)
    one, two = hosts("one", "-n0", server.option), hosts("two", "-n0", server.option)
    # Four seats: the second round of requests is in flight, and no request is being written.
    server.wait_for(8)
    one.process.send_signal(signal.SIGSTOP)
    time.sleep(20)
    one.process.send_signal(signal.SIGCONT)
    ended(one, two)
    server.judge(seats=2, per_s=4)
    each_once(44, one, two, at_most=2)


def talks(n):
    return f"""
import time

@prefetch
async def talk(llm, prompt) -> str:
    for turn in range(4):
        time.sleep(0.05)  # leases wait for the loop
        await llm.chat([{{"role": "user", "content": f"{{prompt}}: {{turn}}"}}])
    return "done"

@pytest.mark.parametrize("prompt", [f"say {{n}}" for n in range({n})])
def test_it(talk, grade): grade("solved")
"""


def asked(host, from_s, to_s):
    """The cases for which a host sent a request within a period."""
    rows = pq.read_table(host.directory / "attempts.parquet").to_pylist()
    return {row["case_id"] for row in rows if from_s < row["t_send_s"] < to_s}


def begun(host):
    """The cases that a host has begun so far, by its journal."""
    journal = host.directory / "journal"
    records = (record for _, record in (scan_journal(journal) if journal.exists() else ()))
    return {record.case_id for record in records if isinstance(record, EpisodeStarted)}


@pytest.mark.slow
def test_suspended_host_sends_nothing_for_cases_that_others_have_meanwhile(project, hosts, lab):
    """Neither cases that it had claimed, nor the next turn of begun ones; and it has no row."""
    project.suite(talks(60))
    server = lab("workers = 5")
    one = hosts("one", "-n0", server.option)
    server.wait_for(5)
    two = hosts("two", "-n0", server.option)
    server.wait_for(60)
    family = family_of(one.process.pid)
    signal_all(family, signal.SIGSTOP)
    # However late the other host has joined and got its share: it has sent all cases that it has
    # begun once all its seats have been used twice.
    wait_until(lambda: begun(one) & begun(two))
    server.wait_for(len(server.log.requests) + 20)
    woke_s = boot_s()
    signal_all(family, signal.SIGCONT)
    outputs = ended(one, two)
    assert " from this host while it was silent. They finish the cases" in outputs[0]
    taken = asked(two, 0.0, woke_s)
    assert taken & asked(one, 0.0, woke_s)
    assert not taken & asked(one, woke_s, math.inf)
    assert {row["outcome"] for row in rows_of(one, two)} == {"solved"}
    # A conversation whose last answer arrived in spite of this has a row on both hosts.
    each_once(60, one, two, at_most=2)


@pytest.mark.slow
def test_run_waits_for_a_server_that_refuses_for_a_while(project, hosts, kv, lab):
    project.suite(cases(80))
    server = lab()
    run = [hosts(f"host{n}", "-n0", server.option) for n in range(2)]
    server.wait_for(20)
    client = kv.client()
    client.config_set("maxmemory", "1mb")
    time.sleep(6)
    client.config_set("maxmemory", "0")
    outputs = ended(*run)
    server.judge(seats=5, per_s=10)
    each_once(80, *run)
    said = "this host may send no requests until the problem is resolved"
    assert any(said in output for output in outputs)


@pytest.mark.slow
@pytest.mark.parametrize("key", ["clocks", "run:night:claims"])
def test_foreign_data_on_the_server_ends_the_run_with_one_sentence(project, hosts, kv, lab, key):
    project.suite(cases(80))
    server = lab()
    host = hosts("one", "-n0", server.option, "--ultrapar-cluster-patience=2")
    server.wait_for(10)
    name = f"{{ultrapar:default}}:{key}"
    client = kv.client()
    client.delete(name)
    client.set(name, "nothing")
    output = host.end(2)
    assert "rejected a command: " in output
    assert "WRONGTYPE" in output
    server.judge(seats=5, per_s=10)


@pytest.mark.slow
def test_ctrl_c_while_a_host_waits_for_a_key_leaves_no_run(project, hosts, lab):
    project.suite(cases(200))
    server = lab()
    with Running(project.pytester.path, "-n0", server.option):
        server.wait_for(5)
        host = hosts("one", "-n0", server.option)
        wait_until(lambda: "waiting for key lab/key" in host.output)
        host.process.send_signal(signal.SIGINT)
        output = host.end(2)
    assert "stopped waiting for key lab/key" in output
    assert "; no request was sent" in output
    assert not host.directory.exists()


@pytest.mark.slow
def test_permanent_loss_of_the_server_ends_the_run_and_loses_nothing(project, hosts, lab):
    project.suite(cases(100))
    server = lab()
    with KeyValueServer.start() as kv:
        host = hosts("one", "-n2", server.option, "--ultrapar-cluster-patience=3", url=kv.url)
        server.wait_for(30)
        kv.kill()
        output = host.end(2)
    assert "does not answer" in output
    server.judge(seats=5, per_s=10)
    assert len(host.rows()) >= 25


@pytest.mark.slow
def test_shards_share_the_whole_limits(project, hosts, kv, lab, capsys, monkeypatch):  # noqa: PLR0917
    """Three seats a key: if they were divided, no shard could have more than two of them."""
    monkeypatch.setenv("ULTRAPAR_CLUSTER", kv.url)
    project.suite(cases(40))
    server = lab("workers = 3", 0.3)
    shards = [f"{k}/2" for k in (1, 2)]
    run = [
        hosts(f"host{n}", "-n0", server.option, f"--ultrapar-shard={shard}")
        for n, shard in enumerate(shards)
    ]
    ended(*run)
    server.judge(seats=3, per_s=20)
    assert max(server.log.max_in_flight(key=key) for key in ("key0", "key1")) == 3
    assert len(server.log.requests) == 40
    of_host = [len(host.rows()) for host in run]
    for n, (host, shard) in enumerate(zip(run, shards, strict=True)):
        named = f"host{n}-shard-{shard[0]}-of-2"
        assert f"shard {shard}: {of_host[n]} of 40 cases, limits shared by all hosts" in host.output
        assert f"host {named} of run night, shard {shard} on" in host.output
        assert f"run night, shard {shard}: all {of_host[n]} cases are done" in host.output
        manifest = read_manifest(host.directory)
        assert (manifest.shard, manifest.host, manifest.cluster_run) == (shard, named, "night")
        assert [limit.workers for limit in manifest.pool_limits] == [3, 3]
    capsys.readouterr()
    assert main(["cluster", "status", "night"]) == 0
    said = capsys.readouterr().out
    assert "run night, began" in said
    assert "40 of 40 cases done, 0 in progress" in said
    assert f"{of_host[1]} of {of_host[1]} cases done" in said.partition("run night:2/2")[2]
    whole, rows = merged(project, *run)
    assert len({row["nodeid"] for row in rows}) == len(rows) == 40
    assert {row["host"] for row in rows} == {read_manifest(host.directory).host for host in run}
    assert main(["gate", str(whole), "--rule", "solved_rate>=1"]) == 0
    assert main(["cluster", "reopen", "night:2/2", str(whole)]) == 0
    assert main(["cluster", "forget", "night"]) == 0
    assert main(["cluster", "status"]) == 0
    assert "0 runs" in capsys.readouterr().out


@pytest.mark.slow
def test_two_hosts_of_one_shard_share_its_cases(project, hosts):
    project.suite(SUITE)
    shards = {"one": "1/2", "two": "1/2", "three": "2/2"}
    run = [hosts(name, "-n0", f"--ultrapar-shard={shard}") for name, shard in shards.items()]
    ended(*run)
    assert sorted(project.server.prompts) == sorted(f"say {n}" for n in range(N))
    assert len(merged(project, *run)[1]) == N


KEYED = """
schema = 1
[[provider]]
name = "{name}"
api = "openai"
base_url = "{url}"
keys = [{{ name = "k", env = "LAB_KEY" }}]
per_key = {{ workers = 4, qps = 10 }}
[[provider.model]]
name = "m"
"""


@contextmanager
def provider_of_both(project):
    """A provider with one key, in the pool of runs and in a gateway's; the path of its log."""
    folder = project.pytester.path
    log_path = folder / "server.jsonl"
    served = pool_text("workers = 4, qps = 10", 0.3, name="lab")
    provider = serving(served, log_path, tokens={"lab/key0": CANARY})
    try:
        url = provider.base_url("lab")
        # The two pools may give the provider different names.
        for file, name in (("pool.toml", "run"), ("gateway.toml", "theirs")):
            text = KEYED.format(name=name, url=url)
            folder.joinpath(file).write_text(text)
        yield log_path
    finally:
        provider.stop()


@contextmanager
def share(kv, pool):
    """Start a gateway of a pool, on the cluster's server; it ends in order after the block."""
    variables = {"ULTRAPAR_CLUSTER": kv.url, "GATEWAY_TOKEN": CANARY, "LAB_KEY": CANARY}
    with gateway(pool, "--cluster", **variables) as served:
        assert "limits shared with all runs and gateways that use " in served.said
        yield served
        served.end()


@pytest.mark.slow
def test_gateway_reports_that_others_declare_less(project, hosts, kv, monkeypatch):
    monkeypatch.setenv("LAB_KEY", CANARY)
    with provider_of_both(project):
        folder = project.pytester.path
        less = folder / "less.toml"
        less.write_text(folder.joinpath("gateway.toml").read_text().replace("qps = 10", "qps = 4"))
        with share(kv, folder / "gateway.toml") as first, share(kv, less) as second:
            ask(second.url)
            timer = threading.Timer(30.0, first.process.kill)
            timer.start()
            said = "qps = 10 in this pool, but 4 on other hosts"
            assert any(said in line for line in first.process.stdout)
            timer.cancel()


@pytest.mark.slow
def test_gateway_and_run_share_a_key(project, hosts, kv, monkeypatch):
    """Its clients get answers while the run has the whole limit; when idle, it has no share."""
    monkeypatch.setenv("LAB_KEY", CANARY)
    with provider_of_both(project) as log_path:
        project.suite(cases(100))
        with share(kv, project.pytester.path / "gateway.toml") as served:
            host = hosts("one", "-n0")
            while len(read_server_log(log_path).requests) < 30:
                assert host.process.poll() is None, host.output
                time.sleep(0.05)
            took_s = [ask(served.url) for _ in range(6)]
            host.end()
    log = read_server_log(log_path)
    assert log.count(429) == 0
    assert len(log.requests) == 106
    assert log.max_in_flight(key="key0") <= 4
    assert log.max_in_window(1.0, key="key0") <= 10 + 1
    # The first request waits for the next renewals, the others for their turn.
    assert took_s[0] < 6
    assert sum(took_s) < 15


def ask(address):
    """Send one request to a gateway; return the seconds until its answer."""
    body = {"model": "m", "messages": [{"role": "user", "content": "from a client"}]}
    headers = {"authorization": f"Bearer {CANARY}"}
    began_s = time.monotonic()
    answer = httpx.post(f"{address}/chat/completions", json=body, headers=headers, timeout=60)
    assert answer.status_code == 200, answer.text
    return time.monotonic() - began_s


@contextmanager
def tls_server(folder, authority, name="127.0.0.1"):
    """Debian's Redis with TLS only, with a certificate for a name; its port."""
    certificate, port = authority.issue_cert(name), free_port()
    certificate.private_key_pem.write_to_path(folder / "key.pem")
    certificate.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    options = (
        "--port", "0", "--tls-port", str(port), "--tls-auth-clients", "no",
        "--tls-cert-file", str(folder / "cert.pem"), "--tls-key-file", str(folder / "key.pem"),
        "--tls-ca-cert-file", str(folder / "ca.pem"), "--requirepass", PASSWORD,
    )  # fmt: skip
    with KeyValueServer.start(*options, program="redis", port=port):
        yield port


@pytest.mark.slow
def test_hosts_share_a_run_over_tls_with_a_private_authority(
    project, hosts, lab, monkeypatch, capsys
):
    project.suite(cases(40))
    server = lab()
    folder = project.pytester.path
    with tls_server(folder, trustme.CA()) as port:
        url = f"rediss://:{PASSWORD}@127.0.0.1:{port}?ca_file={folder / 'ca.pem'}"
        run = [hosts(f"host{n}", "-n0", server.option, url=url) for n in range(2)]
        outputs = ended(*run)
        monkeypatch.setenv("ULTRAPAR_CLUSTER", url)
        assert main(["cluster", "status"]) == 0
    server.judge(seats=5, per_s=10)
    each_once(40, *run)
    said = capsys.readouterr().out + "".join(outputs)
    assert f"on rediss://127.0.0.1:{port}/0" in outputs[0]
    assert PASSWORD not in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheme", "name", "query", "said"),
    [
        ("rediss", "127.0.0.1", "", "its certificate is not trusted"),
        ("rediss", "127.0.0.1", "?ca_file={other}", "its certificate is not trusted"),
        (
            "rediss",
            "127.0.0.1",
            "?ca_file={folder}/none.pem",
            "names a ca_file that does not exist",
        ),
        ("rediss", "127.0.0.1", "?ca_file={folder}/pool.toml", "is not a certificate"),
        ("rediss", "db.example", "?ca_file={folder}/ca.pem", "is for another name"),
        ("redis", "127.0.0.1", "", "does not answer"),
    ],
)
def test_server_with_an_untrusted_certificate_gets_no_password(  # noqa: PLR0917
    project, monkeypatch, scheme, name, query, said
):
    project.suite(SUITE)
    folder = project.pytester.path
    trustme.CA().cert_pem.write_to_path(folder / "other.pem")
    query = query.format(folder=folder, other=folder / "other.pem")
    with tls_server(folder, trustme.CA(), name) as port:
        url = f"{scheme}://:{PASSWORD}@127.0.0.1:{port}{query}"
        monkeypatch.setenv("ULTRAPAR_CLUSTER", url)
        assert said in refusal(project, "--ultrapar-cluster-patience=1")


@pytest.mark.slow
def test_the_password_of_the_server_is_masked(project, monkeypatch):
    with KeyValueServer.start("--requirepass", PASSWORD) as kv:
        url = f"redis://:{PASSWORD}@127.0.0.1:{kv.port}"
        monkeypatch.setenv("ULTRAPAR_CLUSTER", url)
        project.suite(
            cases(3, "show(grade)")
            + """
def show(grade):
    import os
    grade("solved")
    assert os.environ["ULTRAPAR_CLUSTER"] == "nothing"
"""
        )
        result = project.run_apart(
            "-n2", "--ultrapar-cluster-run=night", "--ultrapar-debug-log=all", "-v"
        )
    output = result.stdout.str() + result.stderr.str()
    assert result.ret == 1, output
    assert "AssertionError" in output
    assert PASSWORD not in output
    for path in project.directory.resolve().rglob("*"):
        assert path.is_dir() or PASSWORD.encode() not in path.read_bytes(), path


@pytest.mark.slow
def test_the_documented_user_has_all_needed_permissions(project, monkeypatch):
    page = Path(__file__).parents[2] / "docs" / "how-to" / "cluster.md"
    (line,) = re.findall(r"^ +(ACL SETUSER .*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert line.endswith(f" nocommands {RULES}")
    with KeyValueServer.start() as kv:
        kv.client().execute_command(*line.replace("PASSWORD", PASSWORD).split())
        for command in ("FLUSHALL", "SWAPDB 0 1", "KEYS *", "CLIENT KILL TYPE normal", "GET other"):
            said = kv.client().execute_command("ACL", "DRYRUN", "ultrapar", *command.split())
            assert b"no permissions" in said, command
        kv.client().execute_command("ACL", "SETUSER", "default", "off")
        url = f"redis://ultrapar:{PASSWORD}@127.0.0.1:{kv.port}"
        monkeypatch.setenv("ULTRAPAR_CLUSTER", url)
        project.suite(SUITE)
        result = project.run_apart("-n0", "--ultrapar-cluster-run=night")
        assert main(["cluster", "status"]) == 0
        assert main(["cluster", "forget", "night"]) == 0
    said_by(result, 0)
    assert len(project.rows()) == N


@pytest.mark.slow
def test_cases_of_a_refused_key_end_without_an_answer(project, hosts):
    """No host has a share of any limit then, and yet a host must end the cases."""
    project.suite(cases([f"status 401 {n}" for n in range(N)]))
    host = hosts("one", "-n0")
    host.end(1)
    assert Counter(row["outcome"] for row in host.rows()) == {"infra": N}


@pytest.mark.slow
def test_a_refused_host_leaves_no_directory_behind(project, hosts):
    """It is not part of the run, and `ultrapar merge hosts/*` reads all directories there."""
    project.suite(SUITE)
    one = hosts("one", "-n0")
    one.end()
    project.write_pool(key=", qps = 9")
    two = hosts("two", "-n1")
    output = two.end(4)
    assert "the content of the pool file differs" in output
    assert "ran none of" not in output
    assert not two.directory.exists()
