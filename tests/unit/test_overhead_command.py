"""What measured commands are, what they find around them, and what is said about them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

import bench_suites.adaptive.__main__ as adaptive
import bench_suites.overhead.__main__ as overhead
from bench_suites.overhead import end
from bench_suites.overhead.command import (
    ROOT,
    Checkout,
    CommandError,
    Cost,
    foreign_plugins,
    measured_environment,
    peak_kib,
    processes_of,
)
from bench_suites.overhead.command_line import Options
from bench_suites.overhead.comparison import pytest_command, raw_client, slots, workload_lines
from bench_suites.overhead.end import end_lines, last_report_s
from bench_suites.overhead.growth import growth_lines, memory_lines, memory_of_processes
from bench_suites.overhead.lease import FIGURES, lease_lines
from bench_suites.overhead.rounds import Measurement, compare, pair_lines
from bench_suites.overhead.start import collection_lines, imports_lines
from bench_suites.overhead.workload import EPISODES, LONG_TAIL, MANY, SMALL, WIDE, Target
from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.records import EpisodeStarted, Grade
from pytest_ultrapar.store.journal import JournalWriter
from tests.unit.goal_table import goals

HERE = Checkout({})
BURN = "import time\nwhile time.process_time() < 0.2: pass"


def test_run_counts_the_cpu_of_grandchildren():
    inner = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BURN!r}])"
    started_s = time.monotonic()
    cost = HERE.run([sys.executable, "-c", inner])
    assert cost.cpu_s >= 0.2
    assert 0.0 < cost.wall_s <= time.monotonic() - started_s


def test_run_refuses_a_failed_command_with_what_it_said():
    with pytest.raises(CommandError, match=r"(?s)exit code 1.*ValueError: of course"):
        HERE.run([sys.executable, "-c", "raise ValueError('of course')"])


def test_run_takes_the_expected_exit_code_for_success():
    assert HERE.run([sys.executable, "-c", "raise SystemExit(5)"], expected=5).wall_s > 0


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
    command = pytest_command(
        WIDE, url="http://127.0.0.1:1", n_processes=2, directory=tmp_path, checkout=HERE
    )
    assert "-n2" in command
    assert "--overhead-cases=3000" in command
    assert f"--ultrapar-pool={WIDE.pool_path}" in command
    assert "--ultrapar-simulator=http://127.0.0.1:1" in command


@pytest.mark.parametrize(
    ("workload", "n_slots"),
    [
        (SMALL, [5] * 3),
        (WIDE, [100] * 3),
        (LONG_TAIL, [100] * 3),
        (EPISODES, [20] * 3),
        (MANY, [100] * 4),
    ],
)
def test_slots_of_the_raw_client_are_the_seats_of_the_pool(workload, n_slots, tmp_path):
    lanes = slots(workload.pool(), "http://127.0.0.1:1")
    assert [lane["n_slots"] for lane in lanes] == n_slots
    assert len({(lane["token"], lane["api_name"]) for lane in lanes}) == len(lanes)
    command = raw_client(workload)(url="http://127.0.0.1:1", directory=tmp_path)
    orders = msgspec.json.decode(command[-1])
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


def measured(**figures):
    return {
        "efficiency": 0.9,
        "peak_in_flight": 300,
        "ratio": 2.0,
        "of_n0": 1.0,
        "cpu_ms_per_case": 1.0,
        "n_429": 0,
    } | figures


def test_comparison_shows_medians_ranges_and_verdicts():
    rounds = [
        {"-n 0": measured(efficiency=0.5), "raw": measured()},
        {"-n 0": measured(efficiency=0.7), "raw": measured()},
        {"-n 0": measured(efficiency=0.6), "raw": measured()},
    ]
    text = "\n".join(workload_lines(WIDE, rounds, Options(HERE, pinned=True)))
    assert "n = 3000" in text
    assert "0.600 [0.500-0.700]" in text
    assert goals(text)["-n 0: efficiency"] == ["0.6", ">= 0.8", "NOT met"]
    assert goals(text)["-n 0: cpu_ms_per_case"] == ["1", "<= 1.35", "met"]
    assert "-n 2" not in text


def test_comparison_without_pinning_judges_no_pinned_target():
    text = "\n".join(workload_lines(WIDE, [{"-n 0": measured()}], Options(HERE)))
    assert list(goals(text)) == ["-n 0: peak_in_flight"]


def test_comparison_with_a_plain_session_shows_and_judges_it():
    rounds = [{"-n 15": measured(of_plain=0.8), "raw": measured()}]
    text = "\n".join(workload_lines(SMALL, rounds, Options(HERE)))
    assert goals(text)["-n 15: of_plain"] == ["0.8", "<= 1.15", "met"]
    raw = next(line for line in text.splitlines() if line.startswith("| raw"))
    assert "| - " in raw


@pytest.mark.slow
def test_workers_are_judged_only_where_they_have_cores():
    rounds = [{"-n 0": measured(), "-n 2": measured(of_n0=0.7), "raw": measured()}]
    assert goals(*workload_lines(MANY, rounds, Options(HERE))) == {
        "-n 2: of_n0": ["0.7", "<= 0.6", "NOT met"]
    }
    assert goals(*workload_lines(MANY, rounds, Options(HERE, pinned=True))) == {}


def test_end_is_judged_at_both_sizes():
    rows = {"small: 300 cases, -n 0": {"rest_s": 0.16}, "many: 50,000 cases, -n 0": {"rest_s": 0.9}}
    assert goals(*end_lines([rows], Options(HERE))) == {
        "small: 300 cases, -n 0: rest_s": ["0.16", "<= 0.15", "NOT met"],
        "many: 50,000 cases, -n 0: rest_s": ["0.9", "<= 1", "met"],
    }


def test_end_of_another_size_or_with_workers_is_shown_and_not_judged(monkeypatch):
    sent = []

    def run(workload, n, _options, *, directory):
        sent.append((workload.name, workload.n_cases, n))
        return Cost(1.0, 2.0, 3.0, ""), None

    monkeypatch.setattr(end, "run_workload", run)
    monkeypatch.setattr(end, "last_report_s", lambda _directory: 2.5)
    trial = Options(HERE, cases=70)
    rows = end.end_round(trial)
    assert list(rows) == ["small: 70 cases, -n 0", "many: 70 cases, -n 0"]
    assert goals(*end_lines([rows], trial)) == {}
    both = Options(HERE, n=(0, 2))
    rows = end.end_round(both)
    assert len(rows) == 4
    assert set(goals(*end_lines([rows], both))) == {
        "small: 300 cases, -n 0: rest_s",
        "many: 50,000 cases, -n 0: rest_s",
    }
    assert sent[:2] == [("small", 70, 0), ("many", 70, 0)]


def test_end_begins_with_the_last_grade_of_any_process(tmp_path):
    (tmp_path / "run" / "journal").mkdir(parents=True)
    now_us = time.time_ns() // 1000
    for worker, ago_us in {"gw0": 9_000_000, "gw1": 2_000_000}.items():
        writer = JournalWriter(tmp_path / "run" / "journal", worker, lambda text: text)
        writer.append(Grade("0" * 16, worker, "solved", "passed", now_us - ago_us))
        writer.append(EpisodeStarted("1" * 16, worker, now_us))
        writer.close()
    assert time.monotonic() - last_report_s(tmp_path) == pytest.approx(2.0, abs=0.5)


def test_collecting_is_judged_by_whole_commands_too():
    beyond = {"cases": {"cpu_s": 3.0, "mib": 20.0}, "empty tests": {"cpu_s": 2.0, "mib": 10.0}}
    whole = {"wall_s": 1.0, "without_s": 0.5, "ratio": 2.0, "cpu_ratio": 1.4}
    lines = list(collection_lines([beyond | {"300 of one turn": whole}], Options(HERE)))
    assert goals(*lines) == {
        "CPU of a case / that of an empty test": ["1.5", "<= 2", "met"],
        "more memory of a case, KiB": ["0.8393", "<= 2", "met"],
        "300 of one turn: ratio": ["2", "<= 1.5", "NOT met"],
        "300 of one turn: cpu_ratio": ["1.4", "<= 1.5", "met"],
    }


def test_memory_is_judged_by_the_process_that_grew_most():
    rows = {"-n 0, pytest": {"more_mib": 5.0}, "-n 2, gw0": {"more_mib": 40.0}}
    assert goals(*memory_lines([rows], Options(HERE))) == {
        "every process: more MiB": ["40", "<= 15", "NOT met"]
    }
    del rows["-n 2, gw0"]
    assert goals(*memory_lines([rows], Options(HERE))) == {
        "every process: more MiB": ["5", "<= 15", "met"]
    }


def test_memory_is_what_cases_add_to_empty_tests():
    rows = memory_of_processes(
        {"pytest": 60.0, "gw0": 70.0, "broker": 30.0},
        {"pytest": 110.0, "gw0": 150.0, "broker": 34.0},
        {"pytest": 40.0, "gw0": 40.0},
        {"pytest": 85.0, "gw0": 110.0},
    )
    assert {process: row["more_mib"] for process, row in rows.items()} == {
        "pytest": 5.0,
        "gw0": 10.0,
        "broker": 4.0,
    }


def test_growth_is_judged_by_the_costliest_size():
    rows = {
        "n = 3,000": {"cpu_ms": 1.0, "more_bytes": 1500.0},
        "n = 20,000": {"cpu_ms": 1.2, "more_bytes": 2500.0},
        "n = 100,000": {"cpu_ms": 1.1, "more_bytes": 1000.0},
    }
    assert goals(*growth_lines([rows], Options(HERE))) == {
        "CPU per case, most / that of 3,000": ["1.2", "<= 1.1", "NOT met"],
        "memory of a case beyond an empty test, bytes": ["2500", "<= 2000", "NOT met"],
    }


def test_leases_are_judged_by_their_medians():
    rounds = [
        {"lease": dict(zip(FIGURES, (10.0, 21.0, 100.0 * n, 900.0, 50.0, 2000.0), strict=True))}
        for n in (1, 2, 1)
    ]
    lines = goals(*lease_lines(rounds, Options(HERE)))
    verdicts = {what: cells[-1] for what, cells in lines.items()}
    assert verdicts == {
        "in the process, seats free: us of CPU": "met",
        "in the process, others waiting: us of CPU": "NOT met",
        "over the socket: us to the grant, mean": "met",
        "broker's process: us of CPU": "met",
    }


def test_plugin_cost_is_judged_by_the_difference_of_neighbours():
    row = {"without_ms": 250.0, "with_ms": 300.0, "more_ms": 4.0, "more_cpu_ms": 3.0}
    assert goals(*imports_lines([{"empty folder": row}], Options(HERE))) == {
        "difference of neighbours, ms": ["4", "<= 10", "met"]
    }


def test_checkouts_are_compared_in_turn_and_each_begins_as_often():
    before = Checkout({}, python="before")
    asked = []

    def one_round(options):
        asked.append((options.checkout.python, options.cases))
        n = 1.0 if options.checkout is before else 2.0
        return {"-n 0": {"wall_s": n + len(asked) / 1000, "only": n}, options.checkout.python: {}}

    options = Options(Checkout({}, python="after"), runs=4, before=before)
    lines, rounds = compare(Measurement(one_round, lambda *_: []), options)
    assert [python for python, cases in asked if cases is None] == [
        *("before", "after", "after", "before"),
        *("before", "after", "after", "before"),
    ]
    assert [python for python, cases in asked[:2]] == ["before", "after"]
    assert len(rounds) == 4
    assert [line.split("|")[-2].strip() for line in list(lines)[-2:]] == ["more", "more"]


def test_comparison_of_checkouts_has_an_interval_and_leaves_out_what_one_side_lacks():
    pairs = [
        {"before": {"-n 0": {"a": 1.0 + n / 10, "gone": 1.0}}, "after": {"-n 0": {"a": 1.15}}}
        for n in range(4)
    ]
    *_, row = pair_lines(pairs)
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[:3] == ["-n 0: a", "1.15", "1.15"]
    low, high = map(float, cells[4].split(" to "))
    assert low < 1 < high
    assert cells[5] == "no difference seen"


def test_processes_are_the_command_and_its_children_by_role():
    script = "import sys; held = bytearray(32 << 20); print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        child.stdout.readline()
        found = dict(processes_of(os.getpid()))
        peak = peak_kib(child.pid)
        child.communicate()
    assert found[os.getpid()] == "pytest"
    assert found[child.pid] == "worker"
    assert 32 * 1024 < peak < 96 * 1024
    assert peak_kib(child.pid) == 0


def test_peaks_of_a_failed_command_are_no_figures():
    with pytest.raises(CommandError, match=r"(?s)exit code 3.*broken"):
        HERE.run([sys.executable, "-c", "import sys; print('broken'); sys.exit(3)"], watched=True)


@pytest.mark.parametrize("python", ["/nowhere/python", "/bin/false"])
def test_checkout_without_the_tool_is_no_use(python):
    with pytest.raises(ConfigError, match=f"--before: {python} is no Python that has"):
        HERE.of_python(Path(python))


def test_commands_that_documents_name_exist():
    known = {
        "overhead": {*overhead.MEASURED, "compare", "peers", "--help"},
        "adaptive": {*adaptive.MEASUREMENTS},
    }
    files = [ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"), *ROOT.glob("pools/*.toml")]
    named = [
        match.groups()
        for file in files
        for match in re.finditer(
            r"python -m bench_suites\.(overhead|adaptive) ([\w-]+)", file.read_text()
        )
    ]
    assert len(named) > len(known["overhead"])
    for package, name in named:
        assert name in known[package], f"python -m bench_suites.{package} {name}"
