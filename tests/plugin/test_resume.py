"""Runs that are finished later: from another directory, after a copy, with missing parts."""

from __future__ import annotations

import pytest

from pytest_ultrapar.analysis.compaction import compact
from pytest_ultrapar.analysis.measured_run import find_measured_run, read_rows
from pytest_ultrapar.store.journal import segments
from tests.plugin.conftest import cases, refused, said_by

SUITE = cases(6)


@pytest.mark.slow
def test_run_is_resumed_after_its_folder_was_moved_away(project):
    project.suite(SUITE)
    assert project.run("-n0").ret == 0
    kept = project.pytester.path / "kept"
    (project.pytester.path / ".ultrapar").rename(kept)
    n_sent = len(project.server.prompts)
    resumed = project.run("-n0", "--ultrapar-resume=kept/latest")
    said_by(resumed, 0)
    assert project.directory.resolve() == (kept / "latest").resolve()
    assert len(project.server.prompts) == n_sent
    # The earlier measurement stays the measurement, also for comparisons.
    run = find_measured_run(str(project.directory))
    assert all(row.timed for row in read_rows(run).values())
    assert run.manifest.measured_from is None


@pytest.mark.slow
def test_run_is_resumed_from_another_directory(project, monkeypatch, tmp_path):
    project.suite(SUITE)
    root = project.pytester.path
    root.joinpath("pytest.ini").write_text("[pytest]\n")
    assert project.run("-n0").ret == 0
    here = tmp_path / "elsewhere"
    here.mkdir()
    monkeypatch.chdir(here)
    resumed = project.pytester.runpytest_inprocess(
        "-p", "no:cacheprovider", "-c", str(root / "pytest.ini"), "--rootdir", str(root), str(root),
        f"--ultrapar-pool={root / 'pool.toml'}",
        f"--ultrapar-resume={project.directory}",
    )  # fmt: skip
    said_by(resumed, 0)
    assert (here / ".ultrapar" / "latest").resolve() == project.directory.resolve()


@pytest.mark.slow
def test_resume_explains_why_the_same_tests_have_other_names(project):
    project.suite(SUITE)
    assert project.run("-n0").ret == 0
    above = project.pytester.path.parent
    result = project.pytester.runpytest_inprocess(
        "-p", "no:cacheprovider", f"--rootdir={above}", "-n0",
        f"--ultrapar-pool={project.pytester.path / 'pool.toml'}",
        f"--ultrapar-resume={project.directory}",
    )  # fmt: skip
    assert "from the same directory or --rootdir" in refused(result)


@pytest.mark.slow
def test_run_with_another_directory_needs_no_folder_of_runs(project):
    project.suite(SUITE)
    blocked = project.pytester.path / ".ultrapar"
    blocked.write_text("no folder")
    done = project.run("-n0", "--ultrapar-out=out")
    assert "cannot point .ultrapar/latest at" in said_by(done, 0)
    resumed = project.run("-n0", "--ultrapar-resume=out")
    assert "cannot point .ultrapar/latest at" in said_by(resumed, 0)


def test_error_names_the_default_directory_that_cannot_be_written(project):
    project.suite(SUITE)
    (project.pytester.path / ".ultrapar").write_text("no folder")
    said = project.refusal(project.run("-n0"))
    assert ".ultrapar: " in said
    assert "--ultrapar-out" in said


@pytest.mark.slow
def test_resume_sends_cases_again_that_only_an_earlier_resume_could_read(project):
    project.suite(SUITE)
    assert project.run("-n0").ret == 0
    (first, *_) = segments(project.directory / "journal")
    assert project.run("-n0", "--ultrapar-resume=latest").ret == 0
    assert len(project.server.prompts) == 6
    first.unlink()
    healed = project.run("-n0", "--ultrapar-resume=latest")
    output = said_by(healed, 0)
    assert len(project.server.prompts) == 12
    assert "0 finished episodes resumed; 6 unreadable ones to be run again" in output
    assert [row["n_attempts"] for row in project.rows()] == [1] * 6
    again = project.run("-n0", "--ultrapar-resume=latest")
    assert "6 finished episodes resumed\n" in said_by(again, 0)
    assert len(project.server.prompts) == 12


@pytest.mark.slow
def test_segment_that_a_finished_run_lost_is_reported(project):
    project.suite(SUITE)
    assert project.run("-n0").ret == 0
    (segment,) = segments(project.directory / "journal")
    size = segment.stat().st_size
    segment.unlink()
    summary = compact(project.directory.resolve())
    assert [(one.segment, one.length) for one in summary.damage] == [(segment.name, size)]
    # In a new process: this one would give its segment the same name.
    resumed = project.run("--ultrapar-resume=latest")
    said = f"journal damaged: {segment.name}, {size:,} bytes from byte 0: the file is missing"
    assert said in project.report.str()
    assert resumed.ret == 0
    assert len(project.server.prompts) == 12
