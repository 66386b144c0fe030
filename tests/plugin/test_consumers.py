"""Cases as other plugins and readers of files show them, by the table of the reference."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import junitparser
import pytest

from tests.plugin.conftest import CANARY

OUTCOMES = """
import os

@pytest.mark.parametrize("prompt", ["say right"])
def test_solved(answer, grade):
    grade("solved", exact=1.0)

@pytest.mark.parametrize("prompt", ["say half"])
def test_partial(answer, grade):
    grade("partial", exact=0.5, words=3)

@pytest.mark.parametrize("prompt", ["say wrong"])
def test_unsolved(answer, grade):
    grade("unsolved", exact=0.0)

@pytest.mark.parametrize("prompt", ["context"])
def test_refused(answer, grade):
    grade("solved")

@pytest.mark.parametrize("prompt", ["garbage"])
def test_infra(answer, grade):
    grade("solved")

@pytest.mark.parametrize("prompt", ["status 422"])
def test_error(answer, grade):
    grade("solved")

@pytest.mark.parametrize("prompt", ["say no"])
def test_asserted(answer):
    print(os.environ["TEST_KEY_0"])
    assert answer == "yes", os.environ["TEST_KEY_0"]

@pytest.mark.parametrize("prompt", ["say no"])
@pytest.mark.xfail(reason="known")
def test_expected(answer):
    assert answer == "yes"

@pytest.mark.parametrize("prompt", ["say never"])
@pytest.mark.skip(reason="by mark")
def test_skipped(answer): ...
"""
PRICED = "price_per_mtok_in = 1.0\nprice_per_mtok_out = 5.0\n"


@pytest.fixture
def run(project):
    """A function that runs the cases with these plugins; exit code 0 if only answers were wrong."""
    project.suite(OUTCOMES)
    project.write_pool(model=PRICED)

    def call(*args, expected=1):
        result = project.run_apart(*args)
        assert result.ret == expected, result.stdout.str()
        return result

    return call


def name_of(name):
    """The function's name without `test_`, of any form of an item's name."""
    return re.search(r"test_(\w+)\[", name)[1]


ALLURE = """
import os
import allure
SECRET = os.environ["TEST_KEY_0"]

@pytest.fixture
def prepared():
    with allure.step(f"prepared with {SECRET}"):
        yield

@pytest.mark.parametrize("prompt", ["say yes"])
@allure.link(f"http://127.0.0.1/?key={SECRET}", name=SECRET)
def test_told(answer, prepared):
    allure.dynamic.parameter("key", SECRET)
    allure.dynamic.tag(SECRET)
    allure.dynamic.description(SECRET)
    with allure.step("outer"), allure.step(f"asked with {SECRET}"):
        pass
"""


@pytest.mark.slow
def test_secret_in_a_tests_allure_data_is_masked(project):
    project.suite(ALLURE)
    project.run_apart("-n0", "-pallure_pytest.plugin", "--alluredir=allure")
    written = [path.read_text() for path in project.pytester.path.glob("allure/*.json")]
    assert len(written) > 1
    text = "\n".join(written)
    assert CANARY not in text
    for words in ("prepared with ***", "asked with ***", "?key=***", '"value": "***"', "say yes"):
        assert words in text


def of_junit(path):
    """A case as a reader of the file understands it, with its message; and its properties."""
    shown, properties = {}, {}
    for suite in junitparser.JUnitXml.fromfile(str(path)):
        # For an item whose worker died before its end, pytest writes a case without a name.
        for case in (one for one in suite if one.name):
            name = name_of(case.name)
            (result,) = case.result or [None]
            kind = "passed" if result is None else type(result).__name__.lower()
            shown[name] = kind if result is None else f"{kind}: {result.message}"
            properties[name] = {
                one.name: one.value for one in case.child(junitparser.Properties) or ()
            }
    return shown, properties


def of_html(path):
    blob = re.search(r'data-jsonblob="([^"]*)"', path.read_text())[1]
    tests = json.loads(html.unescape(blob))["tests"]
    return {name_of(name): results[-1]["result"] for name, results in tests.items()}


def of_ctrf(path):
    tests = json.loads(path.read_text())["results"]["tests"]
    return {name_of(one["name"]): one["status"] for one in tests}


def of_json_report(path):
    report = json.loads(path.read_text())
    assert sum(n for word, n in report["summary"].items() if word in KNOWN_TO_PYTEST) == 9
    return {name_of(one["nodeid"]): one["outcome"] for one in report["tests"]}


def of_allure(folder):
    results = [json.loads(path.read_text()) for path in folder.glob("*-result.json")]
    return {
        name_of(one["name"]): (one["status"], one.get("statusDetails", {}).get("message", ""))
        for one in results
    }


KNOWN_TO_PYTEST = {"passed", "failed", "skipped", "xfailed", "xpassed", "error"}
UNSOLVED_REFUSED = "unsolved/context_length"
"""The expected values of each case: for junit files with the message, for others the word."""
SHOWN = {
    "solved": ("passed", "Passed", "passed", "passed", "passed"),
    "partial": (
        "skipped: partial (exact 0.5, words 3)",
        "XFailed",
        "xfailed",
        "skipped",
        "skipped",
    ),
    "unsolved": ("skipped: unsolved (exact 0)", "XFailed", "xfailed", "skipped", "skipped"),
    "refused": (f"skipped: {UNSOLVED_REFUSED}", "XFailed", "xfailed", "skipped", "skipped"),
    "infra": ("skipped: infra: ", "Skipped", "skipped", "skipped", "skipped"),
    "error": ("error: failed on setup", "Error", "error", "failed", "broken"),
    "asserted": ("failure: AssertionError: ", "Failed", "failed", "failed", "failed"),
    "expected": ("skipped: known", "XFailed", "xfailed", "skipped", "skipped"),
    "skipped": ("skipped: by mark", "Skipped", "skipped", "skipped", "skipped"),
}


ROWS = {
    "solved": "solved",
    "partial": "`partial`, `unsolved`",
    "unsolved": "`partial`, `unsolved`",
    "infra": "infra",
    "error": "error",
    "asserted": "a failed assert",
    "skipped": "skipped",
}
"""The row of the reference for each case."""


def test_reference_has_the_values_that_are_shown():
    page = Path(__file__).parents[2] / "docs" / "reference" / "suites.md"
    section = page.read_text(encoding="utf-8").split("## What other plugins and files show")[1]
    table = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| ")]
    found = {cells[0].strip(): [cell.strip() for cell in cells[1:6]] for cells in table}
    for name, row in ROWS.items():
        junit, *words = SHOWN[name]
        own = row if row in found else f"`{row}`"
        assert found[own] == [junit.partition(":")[0], *words], name


@pytest.mark.slow
def test_files_of_other_plugins_show_the_result_of_each_case(run, project, workers):
    root = project.pytester.path
    options = ["--junitxml=j.xml", "--html=h.html", "--json-report", "--json-report-file=r.json"]
    plugins = ["pytest_html.plugin", "pytest_html.fixtures", "pytest_metadata.plugin"]
    plugins += ["pytest_jsonreport.plugin", "ctrf.main", "allure_pytest.plugin"]
    named = [f"-p{name}" for name in plugins]
    run(workers, *named, *options, "--ctrf=c.json", "--alluredir=allure")
    junit, properties = of_junit(root / "j.xml")
    allure = of_allure(root / "allure")
    found = {
        "html": of_html(root / "h.html"),
        "json-report": of_json_report(root / "r.json"),
        "ctrf": of_ctrf(root / "c.json"),
        "allure": {name: status for name, (status, _) in allure.items()},
    }
    for name, (message, *words) in SHOWN.items():
        assert junit[name].startswith(message), name
        assert [shown[name] for shown in found.values()] == words, name
    assert allure["unsolved"][1] == "unsolved (exact 0)"
    for path in [root / "j.xml", root / "h.html", *root.glob("*.json"), *root.glob("allure/*")]:
        assert CANARY not in path.read_text(), path
    (row,) = [one for one in project.rows() if one["outcome"] == "partial"]
    assert float(properties["partial"].pop("ultrapar.cost")) == row["cost"] > 0
    assert properties["partial"] == {
        "ultrapar.run": row["run_id"],
        "ultrapar.case": row["case_id"],
        "ultrapar.model": "m",
        "ultrapar.outcome": "partial",
        "ultrapar.currency": "USD",
        "ultrapar.score.exact": "0.5",
        "ultrapar.score.words": "3.0",
    }
    assert properties["refused"]["ultrapar.kind"] == "context_length"
    outcomes = {name: one["ultrapar.outcome"] for name, one in properties.items()}
    rows = {name_of(row["nodeid"]): row for row in project.rows()}
    assert outcomes == {name: row["outcome"] for name, row in rows.items()}
    # The tables have pytest's own result, even if other plugins need another word.
    assert {rows[name]["test"] for name in ("solved", "partial", "unsolved")} == {"passed"}
    assert rows["refused"]["test"] == "skipped"


@pytest.mark.slow
def test_pytest_sugar_marks_cases_that_were_not_solved(run, project):
    result = run("-ppytest_sugar", "--force-sugar", "-v", "-rN", "-n0")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", result.stdout.str())
    signs = {name_of(line): line for line in re.findall(r".*::test_.*\] . +\d+%.*", plain)}
    assert "✓" in signs["solved"]
    for name in ("partial", "unsolved", "refused", "expected"):
        assert re.search(r"\] x +\d+%", signs[name]), name
    for name in ("infra", "skipped"):
        assert re.search(r"\] s +\d+%", signs[name]), name


@pytest.mark.slow
def test_run_with_only_wrong_answers_exits_with_0_and_shows_outcomes(run):
    only = "solved or partial or refused"
    result = run("-v", "-k", only, "-n0", "-x", expected=0)
    counts = result.parseoutcomes()
    assert [counts[name] for name in ("solved", "partial", "unsolved")] == [1, 1, 2]
    words = {
        name_of(line): re.search(r"\b[A-Z]{6,}\b", line)[0]
        for line in result.outlines
        if re.match(r"(\[gw|test_suite).*[A-Z]{6}", line)
    }
    assert words == {
        "solved": "SOLVED",
        "partial": "PARTIAL",
        "unsolved": "UNSOLVED",
        "refused": "UNSOLVED",
    }


def test_respx_answers_the_calls_of_a_test_but_not_the_runs_calls(project):
    project.suite(
        """
import httpx, respx

@pytest.mark.parametrize("prompt", ["say a", "say b"])
def test_it(answer, grade):
    with respx.mock as router:
        router.get("https://tool.example/").respond(json={"tool": "works"})
        assert httpx.get("https://tool.example/").json() == {"tool": "works"}
    grade("solved")
"""
    )
    project.run("-n0")
    assert [row["outcome"] for row in project.rows()] == ["solved"] * 2
    assert len(project.server.requests) == 2


@pytest.mark.slow
def test_case_that_kills_its_worker_has_its_properties_in_the_file(project):
    project.suite(
        """
import os

@pytest.mark.parametrize("prompt", ["say a", "say b", "say c"])
def test_it(answer, grade):
    grade("solved")

@pytest.mark.parametrize("prompt", ["say kill"])
def test_deadly(answer):
    os._exit(3)
"""
    )
    project.run_apart("-n2", "--junitxml=j.xml")
    _, properties = of_junit(project.pytester.path / "j.xml")
    (row,) = [one for one in project.rows() if one["outcome"] == "infra"]
    assert properties["deadly"] == {
        "ultrapar.run": row["run_id"],
        "ultrapar.case": row["case_id"],
        "ultrapar.model": "m",
        "ultrapar.outcome": "infra",
        "ultrapar.kind": "worker_lost",
    }
