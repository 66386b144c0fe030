"""The HTML report that a run writes at its end."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import CANARY, cases

SUITE = cases(["a", "b", "@somebody <img src=x>"])
PAGE = "--ultrapar-report=html"


def test_run_ends_with_a_report(project):
    project.suite(SUITE)
    result = project.run("-n0", PAGE)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["results in *: open report.html, or read report.md"])
    page = (project.directory / "report.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "&lt;img" in page or r"\u003cimg" in page
    assert CANARY not in page


@pytest.mark.slow
def test_resumed_run_makes_its_report_again(project):
    project.suite(SUITE)
    project.run("-n0", PAGE)
    page = project.directory / "report.html"
    page.write_text("earlier")
    project.run("-n0", PAGE, "--ultrapar-resume=latest")
    assert page.read_text().startswith("<!doctype html>")


@pytest.mark.slow
def test_report_that_cannot_be_written_does_not_fail_the_run(project):
    project.suite(SUITE)
    # A folder cannot be replaced by a file.
    (project.pytester.path / "out").mkdir()
    project.pytester.makeconftest(
        """
        import pytest
        @pytest.hookimpl(tryfirst=True)
        def pytest_sessionfinish(session):
            (session.config.invocation_params.dir / "out" / "report.html").mkdir()
        """
    )
    result = project.run_apart("-n0", PAGE, "--ultrapar-out=out")
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "ultrapar: the run has no report.html: cannot write */report.html: Is a directory;"
            " make it with ultrapar report",
            "results in *: read report.md, or run ultrapar report",
        ]
    )


def test_quiet_run_prints_its_verdict_and_the_place_of_its_results(project):
    project.suite(SUITE)
    said = project.run("-n0", "-q").stdout.lines
    at = next(number for number, line in enumerate(said) if "3 cases: 3 solved" in line)
    assert said[at + 1].startswith("results in ")
    assert not any("lower bound" in line for line in said)
