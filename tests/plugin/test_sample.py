"""Runs of a sample of their cases: the draw, the messages, and the way to finish them."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest

from pytest_ultrapar.cli import main
from pytest_ultrapar.store.manifest import read_manifest
from tests.plugin.conftest import refused, said_by

SUITE = """
@pytest.mark.parametrize("word", [f"w{n}" for n in range(12)])
async def test_one(llm, word, grade):
    reply = await llm.chat(f"say {word}")
    grade(word in reply.text)

@pytest.mark.parametrize("word", [f"w{n}" for n in range(8)])
async def test_two(llm, word):
    await llm.chat(f"say {word}")

@pytest.mark.parametrize("n", range(3))
def test_plain(n): pass
"""


def collected(project, *args: str) -> list[str]:
    result = project.run_here("--collect-only", "-q", *args)
    assert result.ret == 0, result.stdout.str()
    return [line.partition("::")[2] for line in result.outlines if "::" in line]


def words(names: list[str], test: str, model: str = "m") -> list[str]:
    return re.findall(rf"{test}\[{model}-(w\d+)-r0\]", "\n".join(names))


def test_sample_is_drawn_evenly_from_every_test_and_model_and_by_the_seed(project):
    project.suite(SUITE)
    project.write_pool(models=("m", "o"))
    whole = collected(project)
    assert len(whole) == 2 * (12 + 8) + 3

    ten = collected(project, "--ultrapar-sample=10")

    assert Counter(re.sub(r"-.*", "", name) for name in ten) == {
        "test_one[m": 3,
        "test_one[o": 3,
        "test_two[m": 2,
        "test_two[o": 2,
        "test_plain[0]": 1,
        "test_plain[1]": 1,
        "test_plain[2]": 1,
    }
    # In pytest's order, the same words for each model; a larger sample contains a smaller one.
    assert [name for name in whole if name in ten] == ten
    assert words(ten, "test_one") == words(ten, "test_one", "o")
    assert {*ten} < {*collected(project, "--ultrapar-sample=20")} < {*whole}
    assert collected(project, "--ultrapar-sample=10") == ten
    assert collected(project, "--ultrapar-sample=10", "--ultrapar-seed=1") != ten
    # Cases excluded by other options are not drawn, and a sample larger than a suite is the suite.
    some = collected(project, "--ultrapar-sample=10", "-k", "test_two")
    assert len(some) == len(words(some, "test_two")) + len(words(some, "test_two", "o")) == 10
    assert collected(project, "--ultrapar-sample=900") == whole


def test_sample_does_not_depend_on_the_order_of_collection(project):
    project.suite(SUITE)
    project.write_pool(models=("m", "o"))
    found = collected(project, "--ultrapar-sample=7")
    (project.pytester.path / "conftest.py").write_text(
        "def pytest_collection_modifyitems(items): items.reverse()\n"
    )
    turned = collected(project, "--ultrapar-sample=7")
    assert turned != found
    assert {*turned} == {*found}


def test_percentage_applies_to_each_test_and_model_and_cells_keep_their_repetitions(project):
    project.suite(SUITE)
    found = collected(project, "--ultrapar-sample=10%", "--ultrapar-repeats=3")
    assert Counter(re.sub(r"\[.*", "", name) for name in found) == {
        "test_one": 2 * 3,
        "test_two": 1 * 3,
        "test_plain": 3,
    }
    assert len({*words(found, "test_one")}) == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--ultrapar-sample=0",), "--ultrapar-sample must be >= 1 (got 0)"),
        (
            ("--ultrapar-sample=few",),
            '--ultrapar-sample must be a number such as "100" or "5%" (got "few")',
        ),
        (("--ultrapar-sample=5%%",), "--ultrapar-sample must be a number such as"),
        (("--ultrapar-sample=0%",), "--ultrapar-sample must be >= 0.0001 (got 0.0)"),
        (("--ultrapar-sample=101%",), "--ultrapar-sample must be <= 100 (got 101.0)"),
        (
            ("--ultrapar-sample=5%", "--ultrapar-shard=1/2"),
            "--ultrapar-sample 5% cannot be used with shard 1/2 (command line --ultrapar-shard): a "
            "sample is drawn from all cases",
        ),
    ],
)
def test_invalid_sample_is_refused(project, options, said):
    project.suite(SUITE)
    assert said in project.refusal(project.run("-n0", *options))


def test_sample_is_marked_everywhere_and_can_be_finished_as_the_whole_run(project, workers, capsys):
    project.suite(SUITE)
    # Writing reports twice is slow.
    page = "html" if workers == "-n2" else "off"
    first = project.run(workers, "--ultrapar-sample=5", f"--ultrapar-report={page}")
    said = said_by(first, 0)
    assert "fixed limits, seed 0, sample 5\n" in said
    assert "ultrapar: sample 5: 5 of 20 cases\n" in said
    assert "5 cases, a sample of 20: 5 solved; coverage 100.0 %" in said
    manifest = read_manifest(project.directory)
    assert (manifest.n_planned, manifest.drawn_from) == (5, 20)
    assert [(one.value, one.origin) for one in manifest.effective if one.name == "sample"] == [
        ("5", "command line --ultrapar-sample")
    ]
    assert json.loads((project.directory / "summary.json").read_text())["drawn_from"] == 20
    if page == "html":
        assert "5 cases, a sample of 20: " in (project.directory / "report.html").read_text()
    assert main(["show", "latest"]) in {0, 1}
    assert "a sample of 20" in capsys.readouterr().out
    assert main(["runs"]) == 0
    assert "5/5, sample of 20" in capsys.readouterr().out
    assert len(project.server.prompts) == 5
    sample = project.directory.resolve()

    again = ("--ultrapar-resume=latest", f"--ultrapar-report={page}")
    resumed = said_by(project.run(workers, *again), 0)
    assert project.directory.resolve() == sample
    assert (
        "the run was a sample drawn from 20 cases; without --ultrapar-sample, it now covers them"
        in resumed
    )
    assert "20 cases: 20 solved" in resumed
    assert len(project.server.prompts) == 20
    assert len({*project.server.prompts}) == 12
    assert read_manifest(project.directory).drawn_from == 0
    if page == "html":
        assert "a sample of" not in (project.directory / "report.html").read_text()


def test_sample_is_compared_on_common_cases_and_never_treated_as_the_whole_run(project, capsys):
    project.suite(SUITE)
    said_by(project.run("-n0", "--ultrapar-out=whole"), 0)
    said_by(project.run("-n0", "--ultrapar-out=sample", "--ultrapar-sample=5"), 0)
    capsys.readouterr()

    assert main(["compare", "--full", "whole", "sample"]) == 0
    said = capsys.readouterr().out
    assert "left out: the new run is a sample: 5 of 20 cases" in said
    assert "left out: 15 cases only in the baseline run" in said
    assert "5 of 5 baseline cases in the sample retained" in said


@pytest.mark.slow
def test_gate_applies_the_rule_kept_to_drawn_cases_and_reports_the_sample(project, capsys):
    project.suite(SUITE)
    said_by(project.run("-n0", "--ultrapar-out=whole"), 0)
    said_by(project.run("-n0", "--ultrapar-out=sample", "--ultrapar-sample=5"), 0)
    said_by(project.run("-n0", "--ultrapar-out=more", "--ultrapar-sample=10"), 0)
    capsys.readouterr()
    kept = ["--rule", "kept>=1", "--rule", "same_answers"]
    for run, base in (("sample", "whole"), ("whole", "sample"), ("sample", "more")):
        main(["gate", run, "--baseline", base, *kept])
        said = capsys.readouterr().out
        assert re.search(r"kept>=1 +100.*pass|pass +kept>=1|kept>=1.*pass", said), said
        assert "is a sample: " in said
    main(["gate", "sample", "--rule", "solved_rate>=0.1"])
    assert "the run is a sample: 5 of 20 cases" in capsys.readouterr().out


def test_replay_of_a_sample_has_the_same_sample(project):
    project.suite(SUITE)
    said_by(project.run("-n0", "--ultrapar-out=sample", "--ultrapar-sample=5"), 0)
    n_sent = len(project.server.prompts)

    said = said_by(project.run("-n0", "--ultrapar-replay=sample"), 0)

    assert "5 cases, a sample of 20: 5 solved" in said
    assert "fixed limits, seed 0, sample 5" in said
    assert len(project.server.prompts) == n_sent
    other = project.run("-n0", "--ultrapar-replay=sample", "--ultrapar-sample=7")
    assert "has sample 5, but command line --ultrapar-sample says 7" in refused(other)


def test_suites_that_share_answers_draw_the_same_cases(project):
    base, other = (project.pytester.path / name for name in ("base", "other"))
    body = """
import pytest
{mark}
@pytest.mark.parametrize("word", [f"w{{n}}" for n in range(12)])
async def test_it(llm, word):
    await llm.chat(f"say {{word}}")
"""
    for folder, mark in ((base, ""), (other, '@pytest.mark.ultrapar(taken_from="base")')):
        folder.mkdir()
        (folder / f"test_{folder.name}.py").write_text(body.format(mark=mark))
    (project.pytester.path / "pytest.ini").write_text("[pytest]\n")
    found = collected(project, "--ultrapar-sample=8")
    assert len(found) == 4
