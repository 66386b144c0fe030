"""Results of a case besides its outcome: labels, scores alone, metadata, the episode's value."""

from __future__ import annotations

import json
import re

import pyarrow.parquet as pq
import pytest

from pytest_ultrapar import cli
from pytest_ultrapar.report.pages.figures import read_figures
from pytest_ultrapar.store.manifest import read_manifest
from pytest_ultrapar.store.run_directory import SUMMARY_FILE
from tests.plugin.conftest import CANARY, refused, said_by

PROMPTS = [f"say {word}" for word in ("ant", "bee", "cow", "dog", "eel", "fox")]
SUITE = """
import os
import pytest
from pytest_ultrapar import prefetch

@prefetch
async def answer(llm, prompt) -> dict:
    return {"said": (await llm.chat(prompt)).text}

def about(prompt):
    return {"letters": len(prompt) - 4, "kind": "legs"}

PROMPTS = [f"say {word}" for word in ("ant", "bee", "cow", "dog", "eel", "fox")]
PROMPTS[1] = pytest.param(PROMPTS[1], marks=pytest.mark.ultrapar(meta={"kind": "wings"}))

@pytest.mark.ultrapar(meta=about, summary=("model", "label.first"))
@pytest.mark.parametrize("prompt", PROMPTS)
def test_animal(answer, prompt, grade):
    place = ord(answer["said"][0]) - ord("a")
    step = float(os.environ.get("STEP", "1"))
    grade(None, labels={"first": "early" if place < 3 else "late", "n": place}, rank=place * step)
"""


def rows(directory, table="results"):
    return pq.read_table(directory / f"{table}.parquet").to_pylist()


def recorded_values(directory):
    """These columns' values, by prompt and model."""
    names = ("outcome", "test", "meta.kind", "meta.letters", "label.first", "label.n", "score.rank")
    return {
        (row["param.prompt"], row["model"]): (*(row[name] for name in names), row["value"])
        for row in rows(directory)
    }


def expected(step=1.0):
    found = {}
    for prompt in PROMPTS:
        word = prompt.removeprefix("say ")
        place = ord(word[0]) - ord("a")
        kind, first = "wings" if word == "bee" else "legs", "early" if place < 3 else "late"
        value = json.dumps({"said": word}, separators=(",", ":"))
        said = ("scored", "passed", kind, 3, first, str(place), place * step, value)
        found.update({(prompt, model): said for model in ("m", "m2")})
    return found


@pytest.fixture
def run(project):
    """Run the suite; return the run's directory."""

    def of(*options, step="1"):
        project.pytester.path.joinpath("test_suite.py").write_text(SUITE)
        project.write_pool(models=("m", "m2"))
        project.pytester._monkeypatch.setenv("STEP", step)
        screen = said_by(project.run(*(options or ("-n0",))), 0)
        project.pytester.path.joinpath("screen").write_text(screen)
        return project.directory.resolve()

    return of


def gate(capsys, directory, *options):
    capsys.readouterr()
    code = cli.main(("gate", str(directory), *options))
    said = capsys.readouterr().out
    return code, dict(
        re.findall(r"^(\S+(?:\[.*?\])?\S*)  +(pass|FAIL|undecided|no figure)", said, re.MULTILINE)
    )


@pytest.mark.slow
@pytest.mark.cpu_s(20)
def test_scores_labels_metadata_and_values_are_in_all_results(project, run, capsys, workers):
    directory = run(workers, "--ultrapar-gate=score.rank[label.first=late,meta.letters=3]>=2")
    assert recorded_values(directory) == expected()
    names = pq.read_schema(directory / "results.parquet").names
    first = names.index("kind") + 1
    assert names[first : first + 6] == [
        *("meta.kind", "meta.letters", "param.prompt", "label.first", "label.n", "score.rank"),
    ]
    assert names[-1] == "value"

    # Summary and reports have means with intervals, and no solved rate.
    summary = json.loads((directory / SUMMARY_FILE).read_text())
    assert (summary["statistics"]["counts"]["scored"], summary["statistics"]["coverage"]) == (12, 1)
    cells = {tuple(cell["names"]): cell["scores"]["rank"] for cell in summary["cells"]}
    assert {names: (one["n"], one["mean"]) for names, one in cells.items()} == {
        (model, first): (3, mean)
        for model in ("m", "m2")
        for first, mean in (("early", 1.0), ("late", 4.0))
    }
    assert all(one["interval"][0] < one["mean"] < one["interval"][1] for one in cells.values())
    report = (directory / "report.md").read_text()
    assert "12 cases: 12 scored; coverage 100" in report
    assert "solved" not in report.partition("- n: graded")[0]
    assert re.search(r"\| m +\| early +\| +3 \| 1\.000 \(0\.000 to 3\.\d+\) \| +0 \|", report)
    screen = project.pytester.path.joinpath("screen").read_text()
    assert re.search(r"^model +n +rank +early +late$", screen, re.MULTILINE)
    assert re.search(r"^m +6  2\.50 \(0\.5\d to 4\.4\d\) +1\.00 +4\.00$", screen, re.MULTILINE)
    assert "solved" not in screen
    assert "1 passed" in screen.partition("gate: run")[2]
    page = project.pytester.path / "page.html"
    assert cli.main(("report", str(directory), "--out", str(page))) == 0
    text = page.read_text()
    assert "Mean of rank, with the 95" in text
    assert ">2.50</b><span>0.54 to 4.46, n = 6</span>" in text
    assert "12 of 12 cases graded" in text
    # One case, all runs, and the remaining cases.
    capsys.readouterr()
    assert cli.main(("show", str(directory), "test_animal[m-say bee-r0]")) == 0
    said = capsys.readouterr().out
    assert "parameters  prompt=say bee, meta.letters=3, meta.kind=wings" in said
    assert "labels      first=early, n=1" in said
    assert cli.main(("runs", ".ultrapar", "--json")) == 0
    (counts,) = (json.loads(line)["cases"] for line in capsys.readouterr().out.splitlines())
    assert counts == {"planned": 12, "final": 12, "graded": 12, "solved": 0, "scored": 12}


@pytest.mark.slow
@pytest.mark.cpu_s(20)
def test_resume_regrade_and_merge_keep_labels_scores_and_metadata(project, run):
    directory = run("-n0", "-k", "ant or bee")
    n_sent = len(project.server.prompts)
    assert run("-n0", "--ultrapar-resume=latest") == directory
    assert len(project.server.prompts) - n_sent == 8
    assert recorded_values(directory) == expected()
    n_sent = len(project.server.prompts)
    graded = run("-n0", f"--ultrapar-regrade={directory}", step="2")
    assert len(project.server.prompts) == n_sent
    assert recorded_values(graded) == expected(step=2.0)
    parts = [str(run("-n0", "-k", keys)) for keys in ("ant or bee", "not ant and not bee")]
    out = project.pytester.path / "merged"
    assert cli.main(["merge", *parts, "--out", str(out)]) == 0
    assert recorded_values(out) == expected()


@pytest.mark.slow
@pytest.mark.cpu_s(20)
def test_labels_and_metadata_filter_rules_and_are_dimensions_of_comparisons(
    project, run, capsys, tmp_path
):
    base, new = run(), run(step="1.5")
    rules = {
        "score.rank>=1": "pass",
        "score.rank[label.first=late]>=2": "pass",
        "score.rank[meta.kind=legs,label.first=early]<=1.5": "undecided",
        "score.rank[label.first=never]>=0": "no figure",
        "solved_rate>=0": "no figure",
        "coverage>=1": "pass",
    }
    given = [word for rule in rules for word in ("--rule", rule)]
    code, verdicts = gate(capsys, base, *given)
    assert (code, verdicts) == (1, rules)
    wrong = ("score.rank[label.first=lat]>=0", "score.rank[label.frist=late]>=0")
    assert cli.main(("gate", str(base), "--rule", wrong[0], "--rule", wrong[1])) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "no case has label.first 'lat'; did you mean late? allowed: early, late" in said
    assert "label.frist is not a label of any case; did you mean label.first? allowed:" in said
    assert cli.main(("gate", str(base), "--rule", "score.rank[meta.kind=fins]>=0")) == 4
    said = capsys.readouterr().err
    assert "no case has meta.kind 'fins'; did you mean wings? allowed: legs, wings" in said
    code, verdicts = gate(capsys, new, "--baseline", str(base), "--rule", "score.rank>=+0.01")
    assert verdicts == {"score.rank>=+0.01": "pass"}
    # Without --rule, the default rules fit the scores that exist.
    code, verdicts = gate(capsys, base, "--baseline", str(new))
    assert not any(rule.startswith("solved_rate") for rule in verdicts), verdicts
    assert verdicts["same_answers"] == "FAIL"
    assert cli.main(("compare", str(base), str(new))) == 0
    said = capsys.readouterr().out
    assert "score.rank" in said
    assert "solved_rate" not in said
    page = tmp_path / "page.html"
    assert cli.main(("compare", str(base), str(new), "--html", str(page))) == 0
    for where in (page, tmp_path / "own.html"):
        if not where.exists():
            assert cli.main(("report", str(base), "--out", str(where))) == 0
        text = where.read_text()
        assert all(f">{name}<" in text for name in ("meta.kind", "label.first")), where
    assert "late" in text


def test_labels_and_metadata_are_masked_and_are_properties_of_junit_files(project):
    project.suite(
        """
import os
key = os.environ["TEST_KEY_0"]

@pytest.mark.ultrapar(meta={"key": f"a {key}", f"m {key}": 1})
@pytest.mark.parametrize("prompt", ["say a"])
def test_it(answer, prompt, grade):
    grade(None, labels={"key": f"b {key}", f"l {key}": "x", "said": answer}, style=7)
"""
    )
    said_by(project.run("-n0", "--junitxml=junit.xml"), 0)
    (row,) = project.rows()
    assert (row["meta.key"], row["label.key"]) == ("a ***", "b ***")
    junit = project.pytester.path.joinpath("junit.xml").read_text()
    assert '<property name="ultrapar.label.said" value="a"' in junit
    assert '<property name="ultrapar.outcome" value="scored"' in junit
    written = [one for one in project.directory.resolve().rglob("*") if one.is_file()]
    assert not any(CANARY in one.read_bytes().decode(errors="replace") for one in written)
    assert CANARY not in junit


BAD = """
@pytest.mark.parametrize("prompt", ["say a"])
def test_it(answer, prompt, grade): grade({arguments})
"""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            'True, labels={"parts": ["a"]}',
            "grade() got the label 'parts': ['a']; its name must be a string, and its value a "
            "string or a number",
        ),
        ('True, labels={3: "a"}', "grade() got the label 3: 'a'; its name must be a string"),
        (
            'True, labels="B"',
            "grade() got labels='B'; labels must be a dict such as {'answer': 'B'}",
        ),
        ("None", "grade() got neither an outcome nor a score; pass at least one of them"),
    ],
)
def test_invalid_label_is_an_error_of_the_case_and_its_answer_is_stored(project, arguments, said):
    project.suite(BAD.format(arguments=arguments))
    result = project.run("-n0", "--ultrapar-coverage=0")
    assert said in result.stdout.str()
    (row,) = project.rows()
    assert (row["outcome"], row["value"]) == ("error", '"a"')


META = """
@pytest.mark.ultrapar(meta={meta})
@pytest.mark.parametrize("prompt", ["say a"])
def test_it(answer, prompt): pass
"""


@pytest.mark.parametrize(
    ("meta", "said"),
    [
        ('{"prompt": 1}', "sets 'prompt'; use a string that is not the name of a column"),
        ('{"model": "x"}', "sets 'model'; use a string that is not the name of a column"),
        ("{1: 2}", "sets 1; use a string that is not the name of a column or parameter"),
        ("7", "must be a dict, or a function of parameters that returns one (AttributeError("),
        ("lambda other: {}", "must be a dict, or a function of parameters that returns one (Key"),
    ],
)
def test_invalid_metadata_is_refused_before_the_first_request(project, meta, said):
    project.suite(META.format(meta=meta))
    text = project.refusal(project.run_here("-n0"))
    assert f"test_suite.py::test_it[m-say a-r0]: mark ultrapar(meta=...) {said}" in text
    assert refused(project.run_here("--collect-only"))


def test_columns_of_a_file_can_be_metadata_and_async_tests_can_have_labels(project, capsys):
    project.pytester.path.joinpath("words.jsonl").write_text(
        '{"word": "blue", "topic": "sky", "level": 2}\n{"word": "deep", "topic": "sea", "level": 1}'
    )
    project.pytester.path.joinpath("test_suite.py").write_text(
        """
import pytest
from pytest_ultrapar import cases

@pytest.mark.parametrize("word", cases("words.jsonl", "word", id="word", meta=("topic", "level")))
async def test_word(llm, word, grade):
    reply = await llm.chat(f"say {word}")
    grade(word == "blue", labels={"said": reply.text})
"""
    )
    said_by(project.run("-n0"), 0)
    names = ("outcome", "meta.topic", "meta.level", "label.said", "value")
    found = {row["param.word"]: [row[name] for name in names] for row in project.rows()}
    assert found == {
        "blue": ["solved", "sky", 2, "blue", None],
        "deep": ["unsolved", "sea", 1, "deep", None],
    }
    assert cli.main(("show", str(project.directory), "blue")) == 0
    said = capsys.readouterr().out
    assert "parameters  word=blue, meta.topic=sky, meta.level=2" in said
    assert "labels      said=blue" in said


PARAMETER = """
import pytest
from pytest_ultrapar import prefetch

@prefetch
async def answer(llm, value) -> str:
    return (await llm.chat(f"say {value}")).text

@pytest.mark.parametrize("value", ["ant", "bee"])
def test_it(answer, value, grade): grade(answer == value)
"""


def test_report_shows_a_parameter_with_the_name_value(project):
    project.pytester.path.joinpath("test_suite.py").write_text(PARAMETER)
    said_by(project.run("-n0"), 0)
    directory = project.directory.resolve()
    shown = read_figures(directory, read_manifest(directory)).params["value"]
    assert sorted(shown.texts) == ["ant", "bee"]
