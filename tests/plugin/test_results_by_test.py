"""The results of each case have its test, id, marks and parameters, and its reason."""

from __future__ import annotations

import json
import re

import pytest

SUITE = """
import dataclasses, pytest

@dataclasses.dataclass
class Task:
    name: str
    words: list
    right: str = dataclasses.field(default="", repr=False)

class TestWords:
    pytestmark = pytest.mark.words

    @pytest.mark.parametrize("level", ["easy", "hard"])
    @pytest.mark.parametrize("task", [
        pytest.param(Task("first", ["a", "b"], "x"), id="one-m-two", marks=pytest.mark.hard),
        pytest.param(Task("second", []), id="-r0-", marks=[pytest.mark.skip(reason="not now")]),
        Task("third", ["c"]),
    ])
    async def test_task(self, llm, task, level, grade):
        reply = await llm.chat("say yes")
        grade(level == "easy", f"{task.name} is {level}", share=0.5)

@pytest.mark.usefixtures("case")
async def test_plain(llm):
    assert (await llm.chat("say yes")).text == "no"
"""


def write(project):
    project.pytester.path.joinpath("test_suite.py").write_text(SUITE)
    project.pytester.path.joinpath("pytest.ini").write_text("[pytest]\nmarkers =\n words\n hard\n")
    project.write_pool(models=("m", "m2"))


def columns(project):
    names = ("file", "test_name", "param_id", "marks", "param.task", "reason")
    return {
        (row["model"], row["param.level"], row["param_id"]): [row[name] for name in names]
        for row in project.rows()
    }


def table_of(result):
    """The lines of the summary's tables."""
    text = result.stdout.str()
    found = re.search(r"coverage .*\n\n((?:.*\n)*?)n: graded", text)
    assert found, text
    return found[1].rstrip("\n").split("\n")


@pytest.mark.cpu_s(4)
def test_results_have_test_and_parameters_and_each_test_has_a_table(project, workers):
    write(project)
    options = ("--ultrapar-coverage=0.1", workers)
    result = project.run(*options)
    found = columns(project)
    task = {"name": "first", "words": ["a", "b"]}
    first = ["test_suite.py", "TestWords::test_task", "one-m-two-easy", "hard,words"]
    for model in ("m", "m2"):
        *own, params, reason = found[model, "easy", "one-m-two-easy"]
        assert (own, json.loads(params), reason) == (first, task, "first is easy")
        assert found[model, "hard", "-r0--hard"][3] == "skip,words"
        assert found[model, "hard", "task2-hard"][-1] == "third is hard"
        plain = ["test_suite.py", "test_plain", "", "", None, None]
        assert found[model, None, ""] == plain
    (said,) = {row["error"] for row in project.rows() if row["test_name"] == "test_plain"}
    assert said.startswith("AssertionError")
    assert {row["error"] for row in project.rows() if row["reason"]} == {None}
    assert table_of(result) == [
        "all cases   n  solved  share",
        "m           5     40%   0.50",
        "m2          5     40%   0.50",
        "all        10     40%   0.50",
        "",
        "TestWords::test_task  n  solved  share  easy  hard",
        "m                     4     50%   0.50  100%    0%",
        "m2                    4     50%   0.50  100%    0%",
        "",
        "test_plain  n  solved",
        "m           1      0%",
        "m2          1      0%",
    ]
    assert not any(line.endswith("...") for line in result.stdout.lines[-30:])
    n_sent = len(project.server.prompts)
    project.run(*options, "--ultrapar-resume=latest")
    assert len(project.server.prompts) == n_sent
    assert columns(project) == found
    said = (project.directory / "report.md").read_text()
    assert re.findall("^### (Results.*)", said, re.MULTILINE) == [
        "Results",
        "Results of TestWords::test_task",
        "Results of test_plain",
    ]
