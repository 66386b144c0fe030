"""A run with a serial sample: its speed-up and its benchmark file."""

from __future__ import annotations

import json
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.analysis.compaction import compact
from pytest_ultrapar.analysis.statistics import (
    keep_serial_times,
    run_statistics,
    serial_sample,
    serial_times,
)
from pytest_ultrapar.records import Case, EpisodeEnded, Grade
from pytest_ultrapar.store.tables import spent_by
from pytest_ultrapar.store.timing import MeasuredPart
from tests.unit.case_measures import measure_case, measures_of
from tests.unit.finished_run import attempt, case, episode, grade, make_run, write_journal


def measure(start_s, end_s, ending="returned", *, sampled):
    ran = attempt(start_s, end_s)
    ended = EpisodeEnded("c", "gw0", ending, 1, 2, end_s - start_s, attempts=[ran])
    return measure_case(
        Case(0, "c", "n", "phase51", "m", 0, {}, 1),
        Grade("c", "gw0", "solved" if ending == "returned" else "infra", "passed", 5),
        spent_by(ended),
        summary_by=("model",),
        part=MeasuredPart(serial_sample=frozenset({"c"} if sampled else ())),
    )


def with_serial_times(measures):
    found = measures_of(measures)
    keep_serial_times(found)
    return found


def test_speedup_is_measured_against_the_sample():
    sample = [(start_s, start_s + 1) for start_s in (0.0, 1.5, 3.0, 4.5, 6.0, 7.5, 9.0)]
    sample.append((10.5, 12.0))
    measured = [(20.0 + n, 21.0 + n) for n in (0, 1) for _ in range(6)]
    measures = with_serial_times(
        [measure(*span, sampled=True) for span in sample]
        + [measure(*span, sampled=False) for span in measured]
    )
    found = run_statistics(measures, n_planned=20, mode="ultra")
    assert found.sample == serial_sample(measures)
    assert (found.sample.n, found.sample.duration_s) == (8, 12.0)
    assert (found.n_timed, found.n_graded, found.makespan_s) == (12, 20, 2.0)
    assert (found.basis, found.serial_s) == ("sampled", 18.0)
    assert found.speedup == 9.0
    low, high = found.speedup_interval
    assert low < 9.0 < high
    assert found.latency.n == 12


def test_sample_without_measured_time_has_a_positive_duration():
    sample = serial_sample(with_serial_times([measure(1.0, 1.0, sampled=True)]))
    assert sample.duration_s > 0


def test_run_stopped_during_its_sample_has_no_speedup():
    measures = with_serial_times([measure(0.0, 1.0, sampled=True)])
    found = run_statistics(measures, n_planned=10, mode="ultra")
    assert (found.sample.n, found.n_timed) == (1, 0)
    assert found.makespan_s is found.speedup is found.speedup_interval is found.serial_s is None


@given(
    st.lists(
        st.tuples(st.floats(0, 100), st.floats(0, 100), st.booleans()), min_size=1, max_size=20
    )
)
def test_seconds_of_the_sample_add_up_to_its_duration(items):
    now_s, measures = 5.0, []
    first_s = now_s + items[0][0]
    for gap_s, length_s, completed in items:
        start_s, now_s = now_s + gap_s, now_s + gap_s + length_s
        ending = "returned" if completed else "infra"
        measures.append(measure(start_s, now_s, ending, sampled=True))
    times_s = serial_times(with_serial_times(measures))
    assert len(times_s) == sum(completed for *_, completed in items)
    assert all(time_s >= 0 for time_s in times_s)
    if times_s:
        assert math.fsum(times_s) == pytest.approx(now_s - first_s, abs=1e-6)


def test_suite_without_a_sampled_case_falls_back_to_the_estimate(tmp_path):
    cases = [case(n) for n in range(4)]
    cases += [msgspec.structs.replace(case(n), suite="phase51") for n in range(4, 6)]
    run = make_run(tmp_path / "out", cases, serial_sample=("case0", "case1"))
    spans = [(0.0, 1.0), (1.5, 3.0), (10.0, 11.0), (10.0, 11.0), (10.0, 12.0), (10.0, 12.0)]
    for n, span in enumerate(spans):
        write_journal(run, f"gw{n}", episode(n, *span), grade(n))
    summary = compact(run.path)
    assert (summary.statistics.basis, summary.statistics.sample.duration_s) == ("sampled", 3.0)
    found = json.loads((run.path / "benchmark.json").read_text())["benchmarks"]
    extra = {entry["name"]: entry["extra_info"] for entry in found}
    assert {name: (one["n"], one["basis"]) for name, one in extra.items() if "basis" in one} == {
        "phase51[ultra]": (2, "at_most"),
        "phase51[serial]": (2, "at_most"),
        "phase51[ultra-m1]": (2, "at_most"),
        "phase51[serial-m1]": (2, "at_most"),
        "phase53[ultra]": (2, "sampled"),
        "phase53[serial]": (2, "sampled"),
        "phase53[ultra-m1]": (2, "sampled"),
        "phase53[serial-m1]": (2, "sampled"),
    }
    assert extra["phase53[serial]"]["makespan_s"] == 3.0
    # 1.5 s a case, against two cases in half of the second that the suites share.
    assert extra["phase53[ultra]"]["speedup"] == 6.0


def test_benchmark_file_of_a_run_stopped_during_its_sample_has_the_sample(tmp_path):
    cases = [case(n) for n in range(4)]
    run = make_run(tmp_path / "out", cases, serial_sample=("case0", "case1"))
    write_journal(run, "gw0", episode(0, 0.0, 2.0), grade(0))
    summary = compact(run.path)
    assert summary.statistics.sample.n == 1
    entries = json.loads((run.path / "benchmark.json").read_text())["benchmarks"]
    means = {entry["name"]: entry["stats"]["mean"] for entry in entries}
    assert means == {"phase53[serial]": 2.0, "phase53[serial-m1]": 2.0}
