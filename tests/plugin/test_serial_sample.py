"""--ultrapar-baseline: the sample runs first and alone, counts in results, but not in the speed."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from pytest_ultrapar.testing import read_server_log
from tests.plugin.conftest import cases
from tests.simulated_pool import pool_text

INSTANCES = 'instances = ["m-1", "m-2", "m-3", "m-4"]\nper_instance = { workers = 2 }'
CASES = cases(40, 'grade("solved", length=len(answer))')
SAMPLE = 8


@pytest.fixture
def simulated(project):
    project.pytester.path.joinpath("pool.toml").write_text(pool_text("", 0.02, model=INSTANCES))
    project.suite(CASES)
    return project


def read_json(project, name):
    return json.loads((project.directory / name).read_text())


def assert_sample_ran_first_and_alone(project, n=SAMPLE):
    log = sorted(
        read_server_log(project.directory / "simulator.jsonl").requests,
        key=lambda one: one.t_arrival_s,
    )
    assert len(log) == 40
    assert all(one.t_end_s <= following.t_arrival_s for one, following in pairwise(log[: n + 1]))
    assert len({one.instance for one in log[:n]}) == 1
    attempts = sorted(project.rows("attempts"), key=lambda row: row["t_send_s"])
    sample = {row["case_id"] for row in attempts[:n]}
    assert set(read_json(project, "manifest.json")["serial_sample"]) == sample
    return sample


@pytest.mark.slow
def test_sample_runs_first_and_alone_and_the_rest_is_measured(simulated, workers):
    result = simulated.run(workers, f"--ultrapar-baseline={SAMPLE}")
    assert result.ret == 0, result.stdout.str()
    assert_sample_ran_first_and_alone(simulated)
    result.stdout.fnmatch_lines(
        [
            "ultrapar: a serial sample of 8 cases runs first, one at a time; *of the other 32 is *",
            "*cases in 2 groups: --ultrapar-baseline (8), after --ultrapar-baseline (32)",
        ]
    )
    simulated.report.fnmatch_lines(
        [
            "40 cases: 40 solved; coverage 100.0 %",
            "serial sample: 8 cases one after another in *; not included in the times below",
            "ultra: 32 cases in *",
            "speed-up *x (interval of at * over a serial run (*, from the serial sample)",
        ]
    )
    entries = {one["name"]: one for one in read_json(simulated, "benchmark.json")["benchmarks"]}
    (suite,) = {row["suite"] for row in simulated.rows()}
    ultra, serial = entries[f"{suite}[ultra]"], entries[f"{suite}[serial]"]
    assert (serial["extra_info"]["n"], serial["extra_info"]["basis"]) == (SAMPLE, "sampled")
    assert serial["stats"]["min"] >= 0.02
    extra = ultra["extra_info"]
    assert (extra["n"], extra["n_graded"], extra["basis"]) == (32, 40, "sampled")
    assert extra["speedup"] == pytest.approx(serial["stats"]["mean"] / ultra["stats"]["mean"])
    low, high = extra["speedup_interval"]
    assert 0 < low <= extra["speedup"] <= high
    assert entries[f"{suite}/latency[ultra]"]["stats"]["rounds"] == 32
    assert [
        one
        for one in read_json(simulated, "manifest.json")["effective"]
        if one["name"] == "baseline"
    ] == [{"name": "baseline", "value": SAMPLE, "origin": "command line --ultrapar-baseline"}]


def test_sample_may_have_skipped_and_failed_cases(project):
    project.suite(
        """
@pytest.mark.parametrize(
    "prompt",
    ["say 0", "status 500 no", pytest.param("say no", marks=pytest.mark.skip(reason="no"))] * 6
)
def test_it(answer, grade):
    grade("solved")
"""
    )
    project.write_pool(keys=1)
    options = ("--ultrapar-baseline=9", "--ultrapar-coverage=0", "--ultrapar-max-attempts=1")
    result = project.run("-n0", *options)
    assert result.ret == 0, result.stdout.str()
    sample = set(read_json(project, "manifest.json")["serial_sample"])
    outcomes = [row["outcome"] for row in project.rows() if row["case_id"] in sample]
    assert set(outcomes) == {"solved", "infra", "skipped"}
    n = outcomes.count("solved")
    project.report.fnmatch_lines([f"serial sample: {n} cases one after another in *"])
    extra = read_json(project, "benchmark.json")["benchmarks"][0]["extra_info"]
    assert (extra["n"], extra["basis"]) == (6 - n, "sampled")


@pytest.mark.slow
def test_interrupted_sample_stays_separate_when_the_run_is_finished(project):
    project.suite(
        """
import pathlib
STOP = pathlib.Path("stop")

@pytest.mark.parametrize("prompt", [f"slow 0.1 {n}" for n in range(20)])
def test_it(answer, request, grade):
    if STOP.exists() and answer in STOP.read_text().split(","):
        STOP.unlink()
        request.session.shouldstop = "enough"
    grade("solved")
"""
    )
    # The first reported case of the sample stops the run.
    project.pytester.path.joinpath("stop").write_text(",".join(map(str, range(20))))
    first = project.run("-n0", "--ultrapar-baseline=10")
    assert first.ret == 2, first.stdout.str()
    first.stdout.fnmatch_lines(["*stopped early: * of 20 cases have a result*"])
    planned = read_json(project, "manifest.json")["serial_sample"]
    assert len(planned) == 10
    asked = list(project.server.prompts)
    assert len(asked) < 10
    finished = project.run("-n0", "--ultrapar-resume=latest")
    assert finished.ret == 0, finished.stdout.str()
    kept = read_json(project, "manifest.json")["serial_sample"]
    assert set(kept) <= set(planned)
    assert 1 <= len(kept) <= len(asked)
    project.report.fnmatch_lines(
        [
            f"serial sample: {len(kept)} case* one after another in *",
            "ultra: 1? cases (this session) in *",
            "speed-up *x over a serial run (*, from the serial sample)",
        ]
    )
    assert {row["outcome"] for row in project.rows()} == {"solved"}
    assert project.run_here("-n0", "--ultrapar-resume=latest", "--ultrapar-baseline=3").ret == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--ultrapar-baseline=99"], "--ultrapar-baseline 99: this run has only 40 cases. The"),
        (
            ["--ultrapar-baseline=3", "--ultrapar-mode=serial"],
            "makes no sense in mode serial (command line --ultrapar-mode), which runs all cases",
        ),
        (
            ["--ultrapar-baseline=3", "--ultrapar-resume=latest"],
            "cannot be used together with --ultrapar-resume",
        ),
    ],
)
def test_invalid_serial_sample_is_refused_before_any_request(project, options, message):
    project.suite(CASES)
    assert message in project.refusal(project.run_here("-n0", *options))


@pytest.mark.slow
def test_worker_that_dies_during_the_sample_loses_no_case(project):
    project.pytester.path.joinpath("test_suite.py").write_text(
        """
import os, pathlib, pytest
from pytest_ultrapar import prefetch

BOMB = pathlib.Path(__file__).with_name("bomb")

@prefetch
async def answer(llm, number) -> str:
    text = (await llm.chat([{"role": "user", "content": f"say {number}"}])).text
    if BOMB.exists():
        BOMB.unlink()
        os._exit(1)
    return text

@pytest.mark.parametrize("number", range(30))
def test_it(answer, number):
    assert answer == str(number)
"""
    )
    project.pytester.path.joinpath("bomb").write_text("")
    result = project.run("-n2", "--ultrapar-baseline=6")
    assert result.ret == 0, result.stdout.str()
    sample = set(read_json(project, "manifest.json")["serial_sample"])
    sent = sorted(project.rows("attempts"), key=lambda row: row["t_send_s"])
    assert {row["case_id"] for row in sent[:6]} == sample
    assert {row["outcome"] for row in project.rows()} == {"solved"}
    project.report.fnmatch_lines(
        ["serial sample: 6 cases one after another in *", "ultra: 24 cases*"]
    )
