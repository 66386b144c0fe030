"""The step summary of GitHub Actions that a run writes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.plugin.conftest import CANARY, cases

SUITE = cases(["a", "b", "@somebody <img src=x>"])


@pytest.mark.slow
def test_report_is_appended_to_the_existing_summary(project, monkeypatch):
    step = project.pytester.path / "step.md"
    step.write_text("# before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(step))
    project.suite(SUITE)
    assert project.run("-n0").ret == 0
    text = step.read_text()
    assert text.startswith("# before\n### Run 2")
    assert "- 3 cases: 3 solved" in text
    assert CANARY not in text
    project.run("-n0")
    assert step.read_text().count("### Run 2") == 2


def test_summary_that_cannot_be_written_does_not_fail_the_run(project, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(project.pytester.path))
    project.suite(SUITE)
    result = project.run("-n0")
    assert result.ret == 0
    said = "ultrapar: cannot write the step summary (GITHUB_STEP_SUMMARY): *"
    result.stdout.fnmatch_lines([said])


GH = """#!/bin/sh
# `gh api`, with a directory for a server.
case "$*" in
*--jq*) ls comments ;;
*PATCH*) cp comment.md "comments/${4##*/}" ;;
*) cp comment.md "comments/$(ls comments | wc -l)7" ;;
esac
"""


@pytest.mark.slow
def test_documented_workflow_comments_once_and_updates_it(project, monkeypatch):
    path = project.pytester.path
    page = Path(__file__).parents[2] / "docs" / "how-to" / "pull-requests.md"
    (text,) = re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    steps = {one.get("name"): one for one in yaml.safe_load(text)["jobs"]["compare"]["steps"]}
    (path / "bin").mkdir()
    (path / "comments").mkdir()
    (path / "bin" / "gh").write_text(GH)
    (path / "bin" / "gh").chmod(0o755)
    here = Path(sys.executable).parent
    monkeypatch.setenv("PATH", f"{path / 'bin'}:{here}:{os.environ['PATH']}")
    for name in ("COMMENTS", "COMMENT"):
        monkeypatch.setenv(name, steps["Comment"]["env"][name].replace("${{ github.", "").strip())
    (path / "evals").mkdir()
    project.suite(SUITE, "evals/test_suite.py")
    assert project.run("-n0", "--ultrapar-out=evals/recorded-run").ret == 0
    for n in range(2):
        project.suite(SUITE + "#" * n, "evals/test_suite.py")
        for step in ("Run", "Compare", "Comment"):
            command = steps[step]["run"].replace("-n auto", "-n0")
            subprocess.run(["bash", "-euo", "pipefail", "-c", command], cwd=path, check=True)
    (comment,) = (path / "comments").iterdir()
    assert comment.read_text().startswith("<!-- ultrapar -->\n### ")
