"""`ultrapar gate` on what `ultrapar bench` wrote: the measured speed-up, whole and by model."""

from __future__ import annotations

import json
import re
import shutil

import pytest

from pytest_ultrapar import cli
from pytest_ultrapar.bench.benching import finish, read_ended
from tests.unit.finished_run import NOW
from tests.unit.two_runs import run_of

N = 24


def one_by_one(n):
    """A second each, a quarter between them."""
    return [(1.25 * number, 1.25 * number + 1.0) for number in range(n)]


def four_at_once(n):
    """A second and a quarter each: what is busy answers slower."""
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
def gate(capsys, folder, monkeypatch):
    monkeypatch.chdir(folder)
    capsys.readouterr()

    def call(*words):
        try:
            code = cli.main(("gate", *words))
        except SystemExit as ended:
            code = ended.code
        said = capsys.readouterr()
        assert "Traceback" not in said.out + said.err
        return code, said.out, said.err

    return call


@pytest.fixture
def figure(gate):
    """The run's figure that the table shows for a rule."""

    def call(run, rule):
        code, said, err = gate(run, "--rule", rule)
        assert code in {0, 1}, err
        line = next(line for line in said.splitlines() if line.startswith(rule))
        return next(
            float(word[:-1]) for word in line.split() if word[:-1].replace(".", "").isdigit()
        )

    return call


WAYS = ("bench", "bench/benchmark.json", "bench/ultra")
# 29.75 s one after the other, 7.5 s four at once; an estimate by service times says 4x.
TRUTH = 29.75 / 7.5


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
def test_measured_speedup_decides(gate, way, rule, verdict):
    code, said, err = gate(way, "--rule", rule)
    assert err == ""
    line = next(line for line in said.splitlines() if line.startswith(rule))
    assert line.removeprefix(rule).split()[0] == verdict
    assert code == (verdict == "FAIL")
    assert "the speed-up of the run stands on a serial run of the same cases" in said
    assert "estimated" not in said


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("filters", "name"),
    [
        ("", "phase53[ultra]"),
        ("[model=m1]", "phase53[ultra-m1]"),
        ("[model=m2]", "phase53[ultra-m2]"),
    ],
)
def test_gate_judges_the_figure_of_the_file(folder, figure, way, filters, name):
    entries = json.loads((folder / "bench" / "benchmark.json").read_text())["benchmarks"]
    (extra,) = [entry["extra_info"] for entry in entries if entry["name"] == name]
    assert figure(way, f"speedup{filters}>=1") == pytest.approx(extra["speedup"], rel=0.02)
    if not filters:
        assert extra["speedup"] == pytest.approx(TRUTH)


def test_several_suites_are_judged_together_and_each(figure):
    assert figure("suites", "speedup>=1") == pytest.approx(TRUTH, rel=0.02)
    for suite in ("phase51", "phase53"):
        assert figure("suites", f"speedup[suite={suite}]>=1") == pytest.approx(TRUTH, rel=0.05)


def test_mode_with_the_most_under_way_is_judged_and_phase_where_ultra_is_not(gate):
    assert "pass" in gate("phases", "--rule", "speedup>=3.8")[1]
    code, said, _ = gate("bench/rotate", "--rule", "speedup>=3.8")
    assert (code, "FAIL" in said) == (1, True)


def test_other_rules_judge_the_same_run(gate):
    rules = ("speedup>=3.8", "solved_rate>=0.7", "throughput>=3", "makespan<=8s")
    words = [word for rule in rules for word in ("--rule", rule)]
    code, said, _ = gate("bench", *words)
    assert (code, ": 0 failed, 4 passed" in said) == (0, True)


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
    assert "the speed-up of the baseline stands on a serial run of the same cases" in said


@pytest.mark.parametrize("way", ["few", "few/benchmark.json", "few/ultra"])
def test_few_cases_decide_what_is_far_beyond_the_bound(gate, way):
    # 7.25 s against 2.5 s: 2.9x.
    assert gate(way, "--rule", "speedup>=100")[0] == 1
    code, said, _ = gate(way, "--rule", "speedup>=3.1")
    assert (code, "undecided" in said) == (0, True)
    assert gate(way, "--rule", "speedup>=3.1", "--undecided", "fail")[0] == 1
    code, said, _ = gate(way, "--rule", "speedup>=1.1")
    assert (code, ": 0 failed, 1 passed" in said) == (0, True)


@pytest.mark.parametrize("way", ["fewer", "fewer/benchmark.json", "fewer/ultra"])
def test_too_few_cases_for_an_interval_are_said_to_be_the_reason(gate, way):
    code, said, _ = gate(way, "--rule", "speedup>=100")
    assert code == 0
    assert "speedup>=100: no interval: 2 cases, needs 3" in said
    assert "the interval holds the bound" not in said
    assert "no n" not in said.replace("no interval", "")


def test_side_that_is_too_small_is_named(folder, gate, tmp_path):
    known = json.loads((folder / "bench" / "benchmark.json").read_text())
    for change, says in (
        ({"n": 17, "n_serial": 2}, "no interval: 2 cases in the serial sample, needs 3"),
        ({"n": 1, "n_serial": 8}, "no interval: 1 case besides the serial sample, needs 3"),
        # As an earlier version wrote it.
        ({"n": 7, "n_serial": None}, "no interval: the file has none"),
    ):
        for part in known["ultrapar"]["runs"][-1]["parts"]:
            part |= {"basis": "sampled", "speedup_interval": None, **change}
        (tmp_path / "sampled.json").write_text(json.dumps(known))
        assert says in gate(str(tmp_path / "sampled.json"), "--rule", "speedup>=3")[1]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ("unmeasured", "--rule", "speedup>=3"),
            "none of its modes (phase, ultra) has one case under way at a time",
        ),
        (
            ("unmeasured/benchmark.json", "--rule", "speedup>=3"),
            "none of its modes (phase, ultra) has one case under way at a time",
        ),
        (("alone", "--rule", "speedup>=3"), "because serial is its only mode"),
        (("alone/benchmark.json", "--rule", "speedup>=3"), "because serial is its only mode"),
        (("rotate-alone", "--rule", "speedup>=3"), "because rotate is its only mode"),
        (("bench", "--rule", "speedup[model=m3]>=3"), "no case has model 'm3'; did you mean m2?"),
        (
            ("bench/benchmark.json", "--rule", "speedup[model=m3]>=3"),
            "has no model 'm3'; did you mean m2?",
        ),
        (
            ("bench", "--rule", "speedup[flaw=order]>=3"),
            "speedup takes the filters model and suite",
        ),
        (
            ("bench/benchmark.json", "--rule", "solved_rate>=0.7"),
            "a benchmark file holds only speed-ups; name the directory of the run or of the",
        ),
        (
            ("bench/benchmark.json", "--baseline", "bench", "--rule", "speedup>=-10%"),
            "a benchmark file is judged without --baseline",
        ),
        (("bench", "--baseline", "bench/benchmark.json", "--rule", "speedup>=-10%"), "is a file"),
        (
            ("bench", "--baseline", "unmeasured", "--rule", "speedup>=-10%"),
            "has one case under way at a time",
        ),
        (
            ("run/benchmark.json", "--rule", "speedup>=3"),
            "because ultra is its only mode",
        ),
        (
            ("run/summary.json", "--rule", "speedup>=3"),
            "holds no speed-ups in the format of",
        ),
        (("bench/report.txt", "--rule", "speedup>=3"), "is not a benchmark file of this version"),
    ],
)
def test_what_has_no_measured_speedup_is_refused_in_one_sentence(gate, words, says):
    code, out, err = gate(*words)
    assert (code, out) == (4, "")
    assert says in err
    assert len(err.strip().splitlines()) == 1


def test_mode_of_an_unmeasured_bench_is_judged_by_its_estimate_where_it_is_named(gate):
    code, said, _ = gate("unmeasured/ultra", "--rule", "speedup>=3")
    assert code == 0
    assert "stands on serial times estimated from its own service times" in said
    assert gate("unmeasured", "--rule", "solved_rate>=0.7")[0] == 0


@pytest.mark.parametrize("way", ["rotated", "rotated/benchmark.json", "rotated/ultra"])
def test_rotate_is_measured_against_where_no_serial_run_is(gate, way):
    assert gate(way, "--rule", "speedup>=3.8")[0] == 0
    code, said, _ = gate(way, "--rule", "speedup[model=m2]>=2.2")
    assert code == 1
    assert "the speed-up of the run stands on a rotate run of the same cases" in said
    assert "estimated" not in said


def test_run_that_others_are_measured_against_is_judged_without_an_interval(gate):
    for way in ("rotated/rotate", "bench/serial"):
        assert gate(way, "--rule", "speedup>=1.1")[0] == 1


def test_run_alone_has_its_speedup_by_model_too(figure):
    assert figure("run", "speedup[model=m1]>=1") == pytest.approx(2.0, rel=0.02)


def test_file_is_judged_wherever_it_lies(gate, folder, tmp_path):
    copy = shutil.copy(folder / "bench" / "benchmark.json", tmp_path / "stored.json")
    assert gate(str(copy), "--rule", "speedup>=3.8")[0] == 0
    assert gate(str(copy), "--rule", "speedup>=4.2")[0] == 1


def test_model_that_the_serial_run_never_answered_has_no_figure(gate, tmp_path):
    spans = [None if n % 2 else span for n, span in enumerate(one_by_one(N))]
    run_of(tmp_path / "serial", "serial", spans, ended_at=NOW)
    run_of(tmp_path / "ultra", "ultra", four_at_once(N), ended_at=NOW)
    finish(tmp_path, [read_ended(mode, tmp_path / mode, 0) for mode in ("serial", "ultra")], [])
    for way in (tmp_path, tmp_path / "benchmark.json"):
        code, said, _ = gate(str(way), "--rule", "speedup[model=m2]>=0.1")
        assert (code, "no figure" in said) == (1, True)
        assert "none of its cases ran serially" in said
        assert gate(str(way), "--rule", "speedup[model=m1]>=0.1")[0] == 0


def test_bench_of_which_the_judged_run_is_gone_is_refused(gate, folder, tmp_path):
    shutil.copytree(folder / "bench", tmp_path / "bench", ignore=lambda *_: ["ultra"])
    code, _, err = gate(str(tmp_path / "bench"), "--rule", "speedup>=3.8")
    assert code == 4
    assert "is no longer a run directory; name" in err
    assert gate(str(tmp_path / "bench" / "benchmark.json"), "--rule", "speedup>=3.8")[0] == 0


def test_table_is_headed_by_what_was_named(gate):
    for way in ("bench", "bench/benchmark.json"):
        said = gate(way, "--rule", "speedup>=1")[1]
        assert re.match(rf"gate: {way}, run \S+: 0 failed, 1 passed\n", said)
    assert gate("bench/ultra", "--rule", "speedup>=1")[1].startswith("gate: run ")


def test_table_says_which_mode_is_judged(gate):
    for way in ("bench", "bench/benchmark.json"):
        assert "mode ultra of the bench is judged" in gate(way, "--rule", "speedup>=1")[1]
    assert "of the modes of the bench" not in gate("bench/rotate", "--rule", "coverage>=1")[1]


def test_compare_shows_the_measured_speedups_of_two_benches(gate, capsys):
    assert cli.main(("compare", "bench", "phases")) == 0
    said = capsys.readouterr().out
    (line,) = [line.split() for line in said.splitlines() if line.startswith("speedup")]
    assert line[2:4] == ["4.0x", "4.0x"]
    assert "the speed-up of the baseline stands on a serial run of the same cases" in said


def test_bench_is_named_by_its_id_below_ultrapar(gate, folder, tmp_path, monkeypatch):
    shutil.copytree(folder / "bench", tmp_path / ".ultrapar" / "bench-1")
    monkeypatch.chdir(tmp_path)
    assert gate("bench-1", "--rule", "speedup>=3.8")[0] == 0


def test_client_at_its_limit_leaves_the_measured_speedup_undecided(gate, folder, tmp_path):
    content = json.loads((folder / "bench" / "benchmark.json").read_text())
    for run in content["ultrapar"]["runs"]:
        run["client_bound"] = "the process was busy" if run["mode"] == "ultra" else ""
    (tmp_path / "busy.json").write_text(json.dumps(content))
    code, said, _ = gate(str(tmp_path / "busy.json"), "--rule", "speedup>=4.2")
    assert (code, "undecided" in said) == (0, True)
    assert "the client itself was the limit of the run: the process was busy" in said
