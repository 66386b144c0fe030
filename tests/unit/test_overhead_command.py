"""What measured commands are, what they find around them, and what is said about them."""

from __future__ import annotations

import sys
import time

import msgspec
import pytest

from bench_suites.overhead import tables
from bench_suites.overhead.command import CommandError, pytest_command, run_timed
from bench_suites.overhead.comparison import Measured, raw_command, slots
from bench_suites.overhead.environment import foreign_plugins, measured_environment
from bench_suites.overhead.growth import GrowthRow
from bench_suites.overhead.ideal import ideal_of
from bench_suites.overhead.lease import LeaseCost
from bench_suites.overhead.memory import Growth
from bench_suites.overhead.plugin_cost import PluginCost
from bench_suites.overhead.workload import EPISODES, LONG_TAIL, SMALL, WIDE, Target

BURN = "import time\nwhile time.process_time() < 0.2: pass"


def test_run_timed_counts_the_cpu_of_grandchildren():
    inner = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BURN!r}])"
    started_s = time.monotonic()
    cost = run_timed([sys.executable, "-c", inner], {})
    assert cost.cpu_s >= 0.2
    assert 0.0 < cost.wall_s <= time.monotonic() - started_s


def test_run_timed_refuses_a_failed_command_with_what_it_said():
    with pytest.raises(CommandError, match=r"(?s)exit code 1.*ValueError: of course"):
        run_timed([sys.executable, "-c", "raise ValueError('of course')"], {})


def test_run_timed_takes_the_expected_exit_code_for_success():
    assert run_timed([sys.executable, "-c", "raise SystemExit(5)"], {}, expected=5).wall_s > 0


def test_environment_holds_nothing_that_changes_a_run(monkeypatch):
    changing = ("MAX_WORKERS", "PYTEST_ADDOPTS", "PYTHONDONTWRITEBYTECODE", "RATE_MODE")
    for name in changing:
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("PYTHONPATH", "here")
    with measured_environment() as environment:
        assert not environment.keys() & set(changing)
        assert environment["PYTHONPATH"] == "here"
        assert environment["PYTHONPYCACHEPREFIX"]


def test_foreign_plugins_are_not_those_that_come_along():
    found = foreign_plugins()
    assert not {"ultrapar", "xdist", "xdist.looponfail", "benchmark"} & set(found)
    assert "hypothesispytest" in found


def test_pytest_command_runs_the_workload_on_the_given_server(tmp_path):
    command = pytest_command(WIDE, url="http://127.0.0.1:1", n_processes=2, directory=tmp_path)
    assert "-n2" in command
    assert "--overhead-cases=3000" in command
    assert f"--ultrapar-pool={WIDE.pool_path}" in command
    assert "--ultrapar-simulator=http://127.0.0.1:1" in command


@pytest.mark.parametrize(
    ("workload", "n_slots"),
    [(SMALL, [5] * 3), (WIDE, [100] * 3), (LONG_TAIL, [100] * 3), (EPISODES, [20] * 3)],
)
def test_slots_of_the_raw_client_are_the_seats_of_the_pool(workload, n_slots):
    lanes = slots(workload.pool(), "http://127.0.0.1:1")
    assert [lane["n_slots"] for lane in lanes] == n_slots
    assert len({(lane["token"], lane["api_name"]) for lane in lanes}) == len(lanes)
    orders = msgspec.json.decode(raw_command(workload.pool(), workload, "http://127.0.0.1:1")[-1])
    assert orders == {"lanes": lanes, "n_cases": workload.n_cases, "n_turns": workload.n_turns}


@pytest.mark.parametrize(
    ("target", "kept", "broken"),
    [
        (Target("efficiency", at_least=0.9), 0.9, 0.89),
        (Target("ratio", at_most=2.5), 2.5, 2.51),
    ],
)
def test_target_is_met_up_to_its_bound(target, kept, broken):
    assert target.is_met(kept)
    assert not target.is_met(broken)


def measured(client, round_no, **figures):
    values = {
        "efficiency": 0.9,
        "of_bound": 0.9,
        "of_greedy": 1.1,
        "phase_s": 2.2,
        "peak_in_flight": 300,
        "wall_s": 4.0,
        "ratio": 2.0,
        "cpu_ms_per_case": 1.0,
        "n_429": 0,
    }
    return Measured(workload="wide", client=client, round_no=round_no, n=3000, **(values | figures))


def goals(*lines):
    """The last table: by figure its value, goal and verdict."""
    rows = [line.strip("| ").split("|") for line in "\n".join(lines).splitlines()]
    head = max(n for n, cells in enumerate(rows) if cells[0].strip() == "figure")
    return {cells[0].strip(): [one.strip() for one in cells[1:]] for cells in rows[head + 2 :]}


def test_comparison_shows_medians_ranges_and_verdicts():
    runs = [
        measured("-n 0", 0, efficiency=0.5),
        measured("-n 0", 1, efficiency=0.7),
        measured("-n 0", 2, efficiency=0.6),
        measured("raw", 0),
    ]
    text = "\n".join(tables.comparison_lines(WIDE, ideal_of(WIDE), runs, pinned=True))
    assert "n = 3000" in text
    assert "0.600 [0.500-0.700]" in text
    assert goals(text)["-n 0: efficiency"] == ["0.6", ">= 0.8", "NOT met"]
    assert goals(text)["-n 0: cpu_ms_per_case"] == ["1", "<= 1.35", "met"]
    assert "-n 2" not in text


def test_comparison_without_pinning_judges_no_pinned_target():
    text = "\n".join(
        tables.comparison_lines(WIDE, ideal_of(WIDE), [measured("-n 0", 0)], pinned=False)
    )
    assert list(goals(text)) == ["-n 0: peak_in_flight"]


def test_comparison_with_a_plain_session_shows_and_judges_it():
    runs = [measured("-n 15", 0, plain_s=5.0), measured("raw", 0)]
    text = "\n".join(tables.comparison_lines(SMALL, ideal_of(SMALL), runs, pinned=False))
    assert goals(text)["-n 15: of_plain"] == ["0.8", "<= 1.15", "met"]
    raw = next(line for line in text.splitlines() if line.startswith("| raw"))
    assert "| - " in raw


def test_memory_is_judged_by_the_process_that_grew_most():
    rows = [
        Growth("-n 0", "pytest", 20_000, 60.0, 110.0, 40.0, 85.0, 5.0),
        Growth("-n 2", "gw0", 20_000, 60.0, 170.0, 40.0, 110.0, 40.0),
    ]
    assert goals(*tables.memory_lines(rows)) == {
        "every process: more MiB": ["40", "<= 15", "NOT met"]
    }
    assert goals(*tables.memory_lines(rows[:1])) == {
        "every process: more MiB": ["5", "<= 15", "met"]
    }


def test_growth_is_judged_by_the_costliest_size():
    rows = [
        GrowthRow(3_000, 1.0, 0.4, 1500.0, 0.7, 0.4, 4.0),
        GrowthRow(20_000, 1.2, 0.4, 2500.0, 2.0, 1.0, 24.0),
        GrowthRow(100_000, 1.1, 0.4, 1000.0, 9.0, 5.0, 120.0),
    ]
    assert goals(*tables.growth_lines(rows)) == {
        "CPU per case, most / that of 3,000": ["1.2", "<= 1.1", "NOT met"],
        "memory of a case beyond an empty test, bytes": ["2500", "<= 2000", "NOT met"],
    }


def test_leases_are_judged_by_their_medians():
    rounds = [LeaseCost(10.0, 21.0, 100.0 * n, 900.0, 50.0, 2000.0) for n in (1, 2, 1)]
    verdicts = {what: cells[-1] for what, cells in goals(*tables.lease_lines(rounds)).items()}
    assert verdicts == {
        "in the process, seats free: us of CPU": "met",
        "in the process, others waiting: us of CPU": "NOT met",
        "over the socket: us to the grant, mean": "met",
        "broker's process: us of CPU": "met",
    }


def test_plugin_cost_is_judged_by_the_difference_of_neighbours():
    cost = PluginCost(20, 250.0, 300.0, 4.0, 3.0, ["pytest_ultrapar.plugin"])
    assert goals(*tables.plugin_cost_lines(cost)) == {
        "difference of neighbours, ms": ["4", "<= 10", "met"]
    }
