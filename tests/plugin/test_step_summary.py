"""What a run adds to the summary of the step that runs it."""

from __future__ import annotations

from tests.plugin.conftest import CANARY

SUITE = """
@pytest.mark.parametrize("prompt", ["a", "b", "@somebody <img src=x>"])
def test_it(answer, prompt): pass
"""


def test_report_follows_what_is_there(project, monkeypatch):
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


def test_summary_that_cannot_be_written_fails_nothing(project, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(project.pytester.path))
    project.suite(SUITE)
    result = project.run("-n0")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["ultrapar: GITHUB_STEP_SUMMARY cannot be written: *"])
