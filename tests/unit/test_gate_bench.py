"""`ultrapar gate` on a directory of `ultrapar bench`: the speed-up, whole and by model."""

from __future__ import annotations

import functools
import json
import shutil

import pytest

from pytest_ultrapar.compare.bench.benching import finish, read_ended
from tests.unit.finished_run import NOW
from tests.unit.two_runs import run_of

N = 24


def one_by_one(n):
    """Spans of a second, a quarter of a second apart."""
    return [(1.25 * number, 1.25 * number + 1.0) for number in range(n)]


def four_at_once(n):
    """Spans of 1.25 s, four at a time: a busy server answers slower."""
    return [(1.25 * (number // 4), 1.25 * (number // 4 + 1)) for number in range(n)]


def write_bench(folder, modes, n=N, **fields):
    for mode in modes:
        spans = four_at_once(n) if mode in {"ultra", "phase"} else one_by_one(n)
        run_of(folder / mode, mode, spans, ended_at=NOW, **fields)
    finish(folder, [read_ended(mode, folder / mode, 0) for mode in modes], [])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("benches")
    write_bench(path / "bench", ("serial", "rotate", "ultra"))
    write_bench(path / "suites", ("serial", "ultra"), suites=("phase51", "phase53"))
    write_bench(path / "phases", ("phase", "serial"))
    write_bench(path / "few", ("serial", "ultra"), n=6)
    write_bench(path / "fewer", ("serial", "ultra"), n=2)
    write_bench(path / "unmeasured", ("phase", "ultra"))
    write_bench(path / "rotated", ("rotate", "ultra"))
    write_bench(path / "rotate-alone", ("rotate",))
    write_bench(path / "alone", ("serial",))
    run_of(path / "run", "ultra", four_at_once(N), ended_at=NOW)
    return path


@pytest.fixture
def benches(folder, monkeypatch):
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def gate(ultrapar, benches):
    return functools.partial(ultrapar, "gate")


RULE = "--rule=speedup>=3"
WAYS = ("bench", "bench/ultra")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("rule", "verdict"),
    [
        ("speedup>=3.8", "pass"),
        ("speedup>=3.98", "undecided"),
        ("speedup>=4.2", "FAIL"),
        ("speedup.point>=3.98", "FAIL"),
        ("speedup.point>=3.96", "pass"),
        ("speedup[model=m1]>=1.7", "pass"),
        ("speedup[model=m2]>=2.2", "FAIL"),
        ("speedup[suite=phase53]>=3.8", "pass"),
        ("speedup[suite=phase53,model=m2]>=2.2", "FAIL"),
    ],
)
def test_gate_judges_the_measured_speedup(gate, way, rule, verdict):
    code, said, err = gate(way, "--rule", rule)
    assert err == ""
    line = next(line for line in said.splitlines() if line.startswith(rule))
    assert line.removeprefix(rule).split()[0] == verdict
    assert code == (verdict == "FAIL")
    assert "the speed-up of the run is based on a serial run of the same cases" in said
    assert "estimated" not in said


def test_gate_judges_ultra_or_else_phase_unless_a_mode_is_named(gate):
    assert "pass" in gate("phases", "--rule", "speedup>=3.8")[1]
    code, said, _ = gate("bench/rotate", "--rule", "speedup>=3.8")
    assert (code, "FAIL" in said) == (1, True)


def test_bench_is_compared_with_another_bench(gate):
    code, said, _ = gate(
        "bench",
        "--baseline",
        "phases",
        "--rule",
        "speedup>=-10%",
        "--rule",
        "speedup[model=m1]>=-10%",
    )
    assert (code, ": 0 failed, 2 passed" in said) == (0, True)
    assert "the speed-up of the baseline is based on a serial run of the same cases" in said


def test_note_names_the_sample_that_is_too_small(folder, gate, tmp_path):
    shutil.copytree(folder / "bench", tmp_path / "bench")
    file = tmp_path / "bench" / "benchmark.json"
    known = json.loads(file.read_text())
    for change, says in (
        ({"n": 17, "n_serial": 2}, "no interval: only 2 cases in the serial sample (minimum 3)"),
        ({"n": 1, "n_serial": 8}, "no interval: only 1 case besides the serial sample (minimum 3)"),
        # The file of an earlier version.
        ({"n": 7, "n_serial": None}, "no interval: the run's files contain none"),
    ):
        for part in known["ultrapar"]["runs"][-1]["parts"]:
            part |= {"basis": "sampled", "speedup_interval": None, **change}
        file.write_text(json.dumps(known))
        assert says in gate(str(file.parent), "--rule", "speedup>=3")[1]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("unmeasured", RULE), "runs one case at a time, but the modes are phase, ultra"),
        (("alone", RULE), "but the modes are serial. Run ultrapar bench"),
        (("bench", "--rule=speedup[model=m3]>=3"), "no case has model 'm3'; did you mean m2?"),
        (
            ("bench", "--rule=speedup[flaw=order]>=3"),
            "speedup takes only the filters model and suite",
        ),
        (("bench/benchmark.json", RULE), "is a file; pass the directory of a"),
        (("bench", "--baseline=unmeasured", "--rule=speedup>=-10%"), "runs one case at a"),
    ],
)
def test_bench_without_the_measured_speedup_is_refused_in_one_sentence(
    refused, benches, words, says
):
    err = refused("gate", *words)
    assert says in err
    assert len(err.strip().splitlines()) == 1


def test_mode_of_an_unmeasured_bench_is_judged_by_its_estimate_if_it_is_named(gate):
    code, said, _ = gate("unmeasured/ultra", "--rule", "speedup>=3")
    assert code == 0
    assert "is based on the sum of that run's service times and is therefore an upper bound" in said
    assert gate("unmeasured", "--rule", "solved_rate>=0.7")[0] == 0


def test_bench_whose_judged_run_is_missing_is_refused(refused, folder, tmp_path):
    shutil.copytree(folder / "bench", tmp_path / "bench", ignore=lambda *_: ["ultra"])
    said = refused("gate", str(tmp_path / "bench"), "--rule", "speedup>=3.8")
    assert "ultra is missing: the results of the bench are read from it" in said


def test_compare_shows_the_measured_speedups_of_two_benches(ultrapar, benches):
    code, said, _ = ultrapar("compare", "bench", "phases", "--full")
    assert code == 0
    (line,) = [line.split() for line in said.splitlines() if line.startswith("speedup")]
    assert line[2:4] == ["4.0x", "4.0x"]
    assert "the speed-up of the baseline is based on a serial run of the same cases" in said


def test_model_without_a_serial_answer_has_no_figure(gate, tmp_path):
    spans = [None if n % 2 else span for n, span in enumerate(one_by_one(N))]
    run_of(tmp_path / "serial", "serial", spans, ended_at=NOW)
    run_of(tmp_path / "ultra", "ultra", four_at_once(N), ended_at=NOW)
    finish(tmp_path, [read_ended(mode, tmp_path / mode, 0) for mode in ("serial", "ultra")], [])
    code, said, _ = gate(str(tmp_path), "--rule", "speedup[model=m2]>=0.1")
    assert (code, "no figure" in said) == (1, True)
    assert "no selected case ran serially" in said
    assert gate(str(tmp_path), "--rule", "speedup[model=m1]>=0.1")[0] == 0
