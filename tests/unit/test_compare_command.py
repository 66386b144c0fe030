"""`ultrapar compare` and `ultrapar gate` on finished runs, as users call them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pytest_ultrapar.pool.model import Limit
from pytest_ultrapar.store.manifest import Machine
from pytest_ultrapar.store.run_directory import RunDirectory
from tests.unit.compared_runs import outcomes_of, same_cases, write_run

N = 40
SOLVED = "solved_rate"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    worse = {"alpha": outcomes_of(N, solved=0.9), "beta": outcomes_of(N, solved=0.2)}
    common = {"scores": True, "data": {"task library": "one"}}
    write_run(folder / "base", same_cases(), **common)
    write_run(folder / "again", same_cases(), **common)
    write_run(folder / "slow", same_cases(), factor=1.2, **common)
    write_run(
        folder / "worse",
        worse,
        storage_format="json",
        simulated=False,
        data={"task library": "two"},
        scores=True,
        machine=Machine(64, "Other"),
        versions={"httpx": "9"},
        pool_limits=(Limit("lab/key0", "key", workers=9),),
        mode="rotate",
        faults="0123456789abcdef",
    )
    write_run(folder / "few", same_cases(4))
    write_run(folder / "few-slow", same_cases(4), factor=1.2)
    write_run(folder / "more", same_cases(60), **common)
    write_run(folder / "other", same_cases(4), suite="phase51", pool_lanes=())
    write_run(folder / "seeded", same_cases(4), seed=6)
    write_run(folder / "later", same_cases(4), first=100)
    write_run(folder / "failed", {"alpha": ["infra"] * 4, "beta": ["infra"] * 4})
    write_run(folder / "killed", same_cases(4), ended=False)
    write_run(folder / "stopped", {"alpha": ["solved", None], "beta": ["solved"] * 2})
    return folder


@pytest.fixture(autouse=True)
def _among_runs(runs, monkeypatch):
    monkeypatch.chdir(runs)


def row(output: str, *names: str) -> list[str]:
    """The cells of the one line that starts with these names."""
    found = [
        line
        for line in output.splitlines()
        if line.replace("|", " ").split()[: len(names)] == list(names)
    ]
    assert len(found) == 1, output
    return found[0].replace("|", " ").split()


def test_compare_shows_changes_with_the_most_certain_first(ultrapar):
    code, said, _ = ultrapar("compare", "base", "slow", "worse", "--full")
    assert code == 0
    assert row(said, "service")[2:8] == ["1.10", "s", "1.32", "s", "+20.0", "%"]
    assert "the answers are DIFFERENT: 28 of 80 cases have different grades" in said
    cells = said.split("changed cells")[2].splitlines()
    listed = [line.split()[:2] for line in cells if line.startswith(("alpha", "beta"))]
    assert listed == [["beta", "drop"], ["beta", "order"]]
    assert " ".join(row(said, "beta", "drop")[2:]) == "20 0.900 0.200 -0.700 14 0 < 0.001"


def test_compare_lists_differences_between_the_runs(ultrapar):
    _, said, _ = ultrapar("compare", "base", "worse", "--full")
    for sentence in (
        "the task library was one and is two, so the same case may send a different prompt",
        "the answers were simulated and are real",
        "the mode was ultra and is rotate",
        "the limit of lab/key0 was none and is ",
        "httpx was none and is 9",
        "the fault script of the simulated provider was none and is the file with digest 01234567",
    ):
        assert f"different: {sentence}" in said


def test_compare_lists_changed_files_of_the_suite_without_git(ultrapar, tmp_path):
    """It lists four names at most, and no file if a run has no record of its files."""
    files = {"test_a.py": "1", "data/words.jsonl": "2", "conftest.py": "3"}
    now = {**files, "test_a.py": "9", "helper.py": "4"}
    del now["data/words.jsonl"]
    many = files | {f"prompt{n}.txt": str(n) for n in range(9)}
    for name, own in (("then", files), ("now", now), ("many", many), ("unknown", {})):
        write_run(tmp_path / name, same_cases(4), files=own)
    base = str(tmp_path / "then")
    _, said, _ = ultrapar("compare", base, str(tmp_path / "now"), "--full")
    for what, name in (
        ("removed", "data/words.jsonl"),
        ("new", "helper.py"),
        ("changed", "test_a.py"),
    ):
        sentence = f"different: {what} file in the suite: {name}; the same case may send a"
        assert sentence in said
    assert "conftest.py" not in said
    _, said, _ = ultrapar("compare", base, str(tmp_path / "many"), "--full")
    names = ", ".join(f"prompt{n}.txt" for n in range(4))
    assert f"different: new files in the suite: {names} and 5 more; the same case" in said
    _, said, _ = ultrapar("compare", base, str(tmp_path / "unknown"), "--full")
    assert "the same case may send" not in said


def test_compare_leaves_out_cases_of_only_one_run_and_counts_them(ultrapar):
    _, said, _ = ultrapar("compare", "more", "base", "--full")
    assert "left out: 40 cases only in the baseline run (40 from phase53)" in said
    assert (
        "throughput is not compared, because only 67 % of the timed cases are in both runs" in said
    )
    assert row(said, "latency.p50")[1] == "80"
    assert row(said, "all", "solved_rate")[2] == "80"


def test_compare_prints_markdown(ultrapar):
    code, said, _ = ultrapar("compare", "base", "worse", "--markdown")
    assert code == 0
    lines = said.splitlines()
    assert "### runs" in lines
    tables = [line for line in lines if line.startswith("|")]
    assert all(line.endswith("|") for line in tables)
    assert row(said, "beta", "solved_rate")[5] == "-0.700"
    assert any(line == "- different: the mode was ultra and is rotate" for line in lines)


def test_gate_passes_a_run_of_the_same_code(ultrapar):
    code, said, _ = ultrapar("gate", "again", "--baseline", "base")
    assert code == 0
    assert ": 0 failed, 7 passed" in said.splitlines()[0]
    assert [line.split()[0] for line in said.splitlines()[2:9]] == [
        "throughput>=-7%",
        "service<=+7%",
        "kept>=0.98",
        "coverage>=-0.02",
        "same_answers",
        "solved_rate[model=alpha]>=-0.02",
        "solved_rate[model=beta]>=-0.02",
    ]


def test_gate_catches_a_slower_server(ultrapar):
    code, said, _ = ultrapar("gate", "slow", "--baseline", "base")
    assert code == 1
    assert ": 2 failed, 5 passed" in said
    assert row(said, "throughput>=-7%")[1:2] == ["FAIL"]
    assert row(said, "service<=+7%")[6:10] == ["+20.0", "%", "+7.0", "%"]
    assert row(said, "same_answers")[1] == "pass"


def test_gate_catches_a_worse_model_and_other_answers_in_either_direction(ultrapar):
    code, said, _ = ultrapar("gate", "worse", "--baseline", "base")
    assert code == 1
    assert row(said, "solved_rate[model=beta]>=-0.02")[1] == "FAIL"
    assert row(said, "solved_rate[model=alpha]>=-0.02")[1] == "pass"
    assert row(said, "same_answers")[1] == "FAIL"
    better = ultrapar("gate", "base", "--baseline", "worse")
    assert better[0] == 1
    assert ": 1 failed, 6 passed" in better[1]
    assert row(better[1], "same_answers")[1] == "FAIL"


@pytest.mark.parametrize(
    ("rule", "verdict"),
    [
        ("solved_rate>=0.7", "pass"),
        ("solved_rate>=0.93", "undecided"),
        ("solved_rate>=0.99", "FAIL"),
        ("solved_rate[model=beta,flaw=order]>=0.96", "undecided"),
        ("solved_rate[deep=True]>=0.4", "pass"),
        ("score.workflow>=0.95", "FAIL"),
        ("latency.p95<=2s", "undecided"),
        ("latency.p99<=1100ms", "FAIL"),
        ("makespan<=1min", "pass"),
        ("throughput>=4", "FAIL"),
        ("speedup>=3", "undecided"),
        ("speedup>=100", "FAIL"),
        ("coverage>=1", "pass"),
        ("tokens_out<=1", "FAIL"),
    ],
)
def test_gate_judges_a_single_run(ultrapar, rule, verdict):
    code, said, _ = ultrapar("gate", "base", "--rule", rule)
    line = next(line for line in said.splitlines() if line.startswith(rule))
    assert line.removeprefix(rule).strip().startswith(verdict)
    assert ("undecided" in line) is ("undecided" in verdict)
    assert code == (verdict == "FAIL")


@pytest.mark.parametrize(
    ("rule", "failed"),
    [
        ("solved_rate[model=beta]>=-0.3", True),
        ("solved_rate[model=beta]>=-30%", True),
        ("solved_rate[model=beta]>=-0.8", False),
        ("score.workflow[suite=phase53]>=-0.05", True),
        ("score.workflow[model=alpha]>=-0.05", False),
        ("changed<=0.2", True),
        ("changed[model=alpha]<=0.2", False),
        ("same_answers[model=alpha]", False),
        ("same_answers[model=beta]", True),
        ("latency.p95<=+5%", False),
        ("latency.mean<=+0.1s", False),
        ("tokens_in<=+1%", False),
        ("speedup>=-10%", False),
    ],
)
def test_gate_judges_a_change(ultrapar, rule, failed):
    code, said, _ = ultrapar("gate", "worse", "--baseline", "base", "--rule", rule)
    assert code == failed, said


def test_rule_without_a_figure_does_not_pass(ultrapar):
    code, said, _ = ultrapar("gate", "other", "--rule", "efficiency>=0.5")
    assert code == 1
    assert "efficiency>=0.5: the run has no lower bound for its makespan" in said


def test_gate_does_not_compare_the_speed_of_different_work(ultrapar):
    code, said, _ = ultrapar("gate", "more", "--baseline", "base")
    assert code == 1
    assert row(said, "throughput>=-7%")[1:3] == ["no", "figure"]
    assert "Use the same cases, repetitions and --ultrapar-baseline in both runs" in said
    assert "only 67 % of the timed cases are in both runs" in said
    assert row(said, "service<=+7%")[1] == "pass"


BAD_RUNS = {
    "itself": (("base", "base"), "are the same run; compare two different runs"),
    "no run": (("base", "nowhere"), "no run found at nowhere"),
    "killed": (("base", "killed"), "is not finished; finish it with --ultrapar-resume="),
    "stopped": (("base", "stopped"), "1 of 4 planned cases did not run"),
    "nothing finished": (("base", "failed"), "was graded (8 planned): there is nothing to compare"),
    "no name": (("base", ""), "the name of a run is empty"),
    "control characters": (("base", "no\x1b[2Jwhere"), "no run found at no\\x1b[2Jwhere"),
    "other suite": (("base", "other"), "the suite was phase53 and is phase51"),
    "other seed": (("base", "seeded"), "run again with --ultrapar-seed=5"),
    "other cases": (("base", "later"), "the models, tests or parameters differ"),
}


@pytest.mark.parametrize("name", BAD_RUNS)
@pytest.mark.parametrize("turned", [False, True])
def test_runs_that_cannot_be_compared_are_refused(refused, name, turned):
    (base, new), says = BAD_RUNS[name]
    if turned:
        base, new = new, base
        says = says.replace("phase53 and is phase51", "phase51 and is phase53")
        says = says.replace("seed=5", "seed=6")
    for words in (("compare", base, new), ("gate", new, "--baseline", base)):
        err = refused(*words)
        assert err.startswith(f"ultrapar {words[0]}: error: ")
        assert says in err


def test_refusal_of_a_running_run_does_not_advise_to_resume_it(refused, runs):
    going_on = RunDirectory.open_existing(runs / "killed")
    try:
        err = refused("compare", "base", "killed")
    finally:
        going_on.close()
    assert "killed is still running; compare it when it has finished" in err
    assert "resume" not in err


def test_run_that_is_named_twice_is_refused(refused):
    assert refused("compare", "base", "again", "again")


def test_help_lists_every_metric_and_default_rule(ultrapar):
    from pytest_ultrapar.compare.rules import DEFAULT_RULES, METRICS

    code, said, _ = ultrapar("gate", "--help")
    assert code == 0
    assert [metric.name for metric in METRICS if f"    {metric.name} " not in said] == []
    assert all(rule in said for rule in DEFAULT_RULES)


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        (
            "summary.json",
            None,
            "has no summary.json; to rebuild summary.json and the tables from the journal: "
            "python -m pytest_ultrapar.analysis.compact",
        ),
        ("summary.json", b"{}", "summary.json is not a summary of this version"),
        ("summary.json", "slow", "contains files from different runs"),
        (
            "manifest.json",
            b'{"schema": 2}',
            "manifest.json comes from a newer version: its schema is 2",
        ),
        ("manifest.json", b'{"schema": 1', "manifest.json is not a manifest of this version"),
        ("results.parquet", None, "base has no results"),
        ("results.parquet", b"PAR1", "cannot read the results of"),
        ("results.parquet", "slow", "does not match the digest in summary.json"),
        ("cases.json", None, "cannot read the planned cases"),
    ],
)
def test_damaged_run_is_refused(refused, tmp_path, file, content, says):
    """A file is missing, belongs to another run, or has this content."""
    for name in ("base", "again"):
        shutil.copytree(name, tmp_path / name)
    path = tmp_path / "base" / file
    if content is None:
        path.unlink()
    else:
        path.write_bytes(Path(content, file).read_bytes() if content == "slow" else content)
    assert says in refused("compare", str(tmp_path / "again"), str(tmp_path / "base"))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "no rule is given: add --rule RULE, or --baseline RUN"),
        (("--rule", "speed>=3"), "speed is not a metric; did you mean speedup?"),
        (("--rule", "throughput>=-10%"), "it needs a baseline: specify one"),
        (("--rule", "same_answers"), "it needs a baseline: specify one"),
        (("--rule", f"{SOLVED}[model=alfa]>=0"), "no case has model 'alfa'; did you mean alpha"),
        (("--rule", f"{SOLVED}[model=alph*]>=0"), "(filters take no wildcards); did you mean"),
        (("--rule", f"{SOLVED}[suite=phase35]>=0"), "did you mean phase53?"),
        (("--rule", f"{SOLVED}[flaws=order]>=0"), "flaws is not a parameter of any case; did you"),
        (("--rule", f"{SOLVED}[flaw=odrer]>=0"), "no case has flaw 'odrer'; did you mean order"),
        (("--rule", f"{SOLVED}[level=7]>=0"), "no case has level '7'"),
        (("--rule", "score.workflw>=0.5"), "has no score workflw; did you mean workflow?"),
        (("--rul", "x"), "unrecognized arguments"),
    ],
)
def test_gate_refuses_rules_that_cannot_be_judged(refused, words, says):
    assert says in refused("gate", "base", *words)


def test_gate_prints_markdown(ultrapar):
    code, said, _ = ultrapar("gate", "slow", "--baseline", "base", "--markdown")
    assert code == 1
    assert row(said, "service<=+7%")[1] == "FAIL"
