"""The report and the files that `ultrapar bench` makes from runs of several modes."""

from __future__ import annotations

import dataclasses
import json

import msgspec
import pytest

from pytest_ultrapar.analysis.measures import Measures
from pytest_ultrapar.compare.bench.benching import finish, read_ended
from pytest_ultrapar.compare.bench.merged import merged_benchmark
from pytest_ultrapar.compare.bench.report import report_lines
from pytest_ultrapar.errors import ConfigError
from tests.unit.two_runs import N_CASES, run_of, serial_run, ultra_run


def entries_of(runs):
    found = merged_benchmark(runs)["benchmarks"]
    names = [entry["fullname"] for entry in found]
    assert len(set(names)) == len(names)
    return {entry["fullname"]: entry for entry in found}


def test_speedup_over_a_serial_run_is_the_ratio_of_the_makespans(tmp_path):
    runs = [serial_run(tmp_path / "serial"), ultra_run(tmp_path / "ultra")]
    entries = entries_of(runs)
    assert set(entries) == {
        *(f"phase53[serial{part}]" for part in ("", "-m1", "-m2")),
        *(f"phase53[ultra{part}]" for part in ("", "-m1", "-m2")),
        "phase53/latency[serial]",
        "phase53/latency[ultra]",
    }
    extra = entries["phase53[ultra]"]["extra_info"]
    # 11.5 s with the gaps between cases, and 2 s.
    assert entries["phase53[serial]"]["extra_info"]["makespan_s"] == pytest.approx(11.5)
    assert extra["serial_s"] == pytest.approx(11.5)
    assert extra["speedup"] == pytest.approx(11.5 / 2)
    assert extra["basis"] == "full"
    low, high = extra["speedup_interval"]
    assert 5 <= low <= extra["speedup"] <= high < 6.5
    assert entries["phase53[serial]"]["extra_info"]["speedup"] == 1.0
    # A model is compared with the time of its own cases in the serial run.
    of_model = entries["phase53[ultra-m2]"]["extra_info"]
    assert (of_model["serial_s"], of_model["basis"]) == (pytest.approx(6.0), "full")
    assert of_model["speedup"] == pytest.approx(3.0)


def test_estimate_names_its_mode_if_no_run_has_one_case_at_a_time(tmp_path):
    phase = run_of(tmp_path / "phase", "phase", [(n / 2, n / 2 + 0.5) for n in range(N_CASES)])
    entries = entries_of([ultra_run(tmp_path / "ultra"), phase])
    serial = entries["phase53[serial]"]["extra_info"]
    assert (serial["basis"], serial["estimated_from"]) == ("at_most", "phase")
    assert serial["makespan_s"] == pytest.approx(0.5 * N_CASES)
    extra = entries["phase53[ultra]"]["extra_info"]
    assert (extra["basis"], extra["speedup"]) == ("at_most", pytest.approx(4.0))


def rotate_run(path):
    """One case at a time over all lanes: half a second each, with pauses of half a second."""
    return run_of(path, "rotate", [(n, n + 0.5) for n in range(N_CASES)])


def test_without_a_serial_run_speedups_are_relative_to_rotate(tmp_path):
    runs = [rotate_run(tmp_path / "rotate"), ultra_run(tmp_path / "ultra")]
    entries = entries_of(runs)
    # 7.5 s and 2 s. Without a serial run there is no serial series.
    assert not [name for name in entries if "serial" in name]
    for name, speedup in (("phase53[ultra]", 7.5 / 2), ("phase53[rotate]", 1.0)):
        extra = entries[name]["extra_info"]
        assert (extra["basis"], extra["over"]) == ("full", "rotate")
        assert extra["speedup"] == pytest.approx(speedup)
        assert extra["serial_s"] == pytest.approx(7.5)
    assert entries["phase53[rotate]"]["extra_info"]["speedup_interval"] is None
    text = "\n".join(report_lines(runs, width=140))
    assert "3.75x" in text
    assert "over rotate, which runs one case at a time, like serial: measured" in text
    assert "estimated" not in text


def test_incomplete_cases_of_a_run_affect_only_its_own_rate(tmp_path):
    spans = [(float(n // 4), n // 4 + 1.0) if n else None for n in range(N_CASES)]
    runs = [serial_run(tmp_path / "serial"), run_of(tmp_path / "ultra", "ultra", spans)]
    extra = entries_of(runs)["phase53[ultra]"]["extra_info"]
    assert extra["n"] == 7
    assert extra["speedup"] == pytest.approx((7 / 2) / (8 / 11.5))


def test_report_shows_each_mode_and_the_basis_of_its_speedup(tmp_path):
    runs = [serial_run(tmp_path / "serial"), ultra_run(tmp_path / "ultra")]
    lines = report_lines(runs, width=140)
    text = "\n".join(lines)
    assert lines[0].startswith("SIMULATED: ")
    assert lines[1] == "8 cases, serial, ultra; seed 5, pool pool.toml"
    header, serial, ultra = (line.split() for line in lines[3:6])
    assert header[:3] == ["mode", "cases", "makespan"]
    assert " ".join(serial) == "serial 8 11.5 s 41.7/min 1.00x - 1 100.0 % 1.00 s 8.7 %"
    assert ultra[:6] == ["ultra", "8", "2.00", "s", "4.0/s", "5.75x"]
    assert ultra[-7:] == ["4", "100.0", "%", "1.00", "s", "50.0", "%"]
    assert "\nserial: bound by running one case at a time\n" in text
    assert "\nultra: bound by longest episode" in text
    assert "measured on the same cases" in text
    assert "answers: ultra and serial: the same: all 8 cases have the same grades" in text


def test_report_says_if_the_same_answers_took_longer(tmp_path):
    serial = run_of(tmp_path / "serial", "serial", [(2.0 * n, 2.0 * n + 1) for n in range(N_CASES)])
    spans = [(float(n // 4) * 3, n // 4 * 3 + 2.3) for n in range(N_CASES)]
    ultra = run_of(tmp_path / "ultra", "ultra", spans)
    said = ("-p", "own", "a suite", "-p", "no:x", "--ultrapar-mode=ultra", "--ultrapar-out=o")
    manifest = msgspec.structs.replace(ultra.manifest, arguments=said)
    ultra = dataclasses.replace(ultra, manifest=manifest)
    text = "\n".join(report_lines([serial, ultra], width=140))
    assert (
        "\nultra: the same answers took 2.3x as long as in serial: the servers share a resource,"
        " or slow down under load\n  to find the best load: pytest 'a suite'"
        " -p no:x --ultrapar-rate-mode=adaptive\n"
    ) in text
    assert "took" not in "\n".join(report_lines([ultra, ultra], width=140))


def test_report_shows_bound_and_efficiency_if_they_are_known(tmp_path):
    run = ultra_run(tmp_path / "ultra")
    known = msgspec.structs.replace(
        run.summary, bound_s=1.5, efficiency=0.75, binding="azure/key0 (qps)", client_bound="slow"
    )
    text = "\n".join(report_lines([dataclasses.replace(run, summary=known)], width=140))
    assert "1.50 s      75.0 %" in text
    assert "\nultra: bound by azure/key0 (qps)\nultra: slow" in text


def test_report_says_if_runs_have_no_graded_case_in_common(tmp_path):
    serial = serial_run(tmp_path / "serial")
    ultra = ultra_run(tmp_path / "ultra")
    without = dataclasses.replace(ultra, measures={}, columns=Measures())
    text = "\n".join(report_lines([without, serial], width=140))
    assert "answers: ultra and serial: no case was graded in both runs" in text


def end(path, mode, code=0):
    return read_ended(mode, path / mode, code)


def test_exit_code_is_the_worst_and_files_are_written(tmp_path, capsys):
    serial_run(tmp_path / "serial")
    ultra_run(tmp_path / "ultra")
    code = finish(tmp_path, [end(tmp_path, "serial"), end(tmp_path, "ultra", 1)], [])
    said = capsys.readouterr().out
    assert code == 1
    assert "ultra ended with exit code 1" in said
    assert "5.75x" in (tmp_path / "report.txt").read_text()
    assert (tmp_path / "report.txt").read_text() in said

    def refuse(constant):
        raise AssertionError(constant)

    json.loads((tmp_path / "benchmark.json").read_text(), parse_constant=refuse)


def test_interrupted_run_is_left_out_and_missing_modes_are_named(tmp_path, capsys):
    serial_run(tmp_path / "serial")
    run_of(tmp_path / "rotate", "rotate", [(n, n + 1.0) for n in range(N_CASES)])
    cut = tmp_path / "rotate" / "summary.json"
    summary = json.loads(cut.read_text())
    summary["statistics"]["n_final"] = 5
    cut.write_text(json.dumps(summary))
    code = finish(tmp_path, [end(tmp_path, "serial"), end(tmp_path, "rotate", 2)], ["ultra"])
    said = capsys.readouterr().out
    assert code == 2
    assert "rotate stopped early (exit code 2): 5 of 8 cases have a result in" in said
    assert "\nultra did not run\n" in said
    assert "8 cases, serial; seed 5" in said


def test_bench_without_a_completed_case_ends_with_exit_code_4(tmp_path, capsys):
    for mode in ("serial", "ultra"):
        run_of(tmp_path / mode, mode, [None] * 3)
    code = finish(tmp_path, [end(tmp_path, "serial", 1), end(tmp_path, "ultra", 1)], [])
    assert code == 4
    assert "no finished mode completed a case" in capsys.readouterr().out
    assert not (tmp_path / "benchmark.json").exists()


def test_runs_of_different_cases_are_not_compared(tmp_path):
    serial_run(tmp_path / "serial")
    run_of(tmp_path / "ultra", "ultra", [(0.0, 1.0)] * 3)
    with pytest.raises(ConfigError, match=r"serial ran 8 cases and ultra ran different ones \(3\)"):
        finish(tmp_path, [end(tmp_path, "serial"), end(tmp_path, "ultra")], [])
