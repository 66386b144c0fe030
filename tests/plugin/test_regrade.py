"""An earlier run is regraded: nothing is sent, and only grades may change."""

from __future__ import annotations

import fcntl
import shutil

import pytest

from pytest_ultrapar.store.manifest import read_manifest
from pytest_ultrapar.store.regraded import take_episodes
from tests.plugin.conftest import refused

BODY = """
@pytest.mark.parametrize("prompt", ["say a", "say b", "filter", "status 500 down", "say c"])
def test_it(answer, prompt, grade): grade(answer {rule})

@prefetch
async def breaking(llm) -> str:
    raise ValueError("broken")

def test_breaks(breaking): pass

@pytest.mark.skip(reason="not now")
@pytest.mark.parametrize("prompt", ["say no"])
def test_marked(answer): pass
"""


def write(project, rule, body=BODY):
    project.suite(body.replace("{rule}", rule))


def first_run(project, *options):
    project.run("-n0", "--ultrapar-max-attempts=1", *options)
    return project.directory.resolve()


def regrade(project, run, *options):
    n_sent = len(project.server.prompts)
    done = project.run("-n0", f"--ultrapar-regrade={run}", *options)
    assert len(project.server.prompts) == n_sent
    return done


def without_run(rows, *more):
    drop = {"run_id", "worker", *more}
    return [{name: value for name, value in row.items() if name not in drop} for row in rows]


@pytest.fixture
def no_keys(monkeypatch):
    def unset():
        for n in range(3):
            monkeypatch.delenv(f"TEST_KEY_{n}", raising=False)

    return unset


def test_regrade_with_an_edited_test_changes_only_its_grades(project, no_keys):
    write(project, '!= "b"')
    run = first_run(project)
    before = {table: project.rows(table) for table in ("results", "attempts", "transcripts")}
    write(project, '!= "c"')
    no_keys()
    done = regrade(project, run)
    assert "INTERNALERROR" not in done.stdout.str()
    done.stdout.fnmatch_lines([f"*grading 6 episodes of run {run.name} again: nothing is sent*"])
    assert project.directory.resolve() != run
    now = {table: project.rows(table) for table in before}
    assert without_run(now["attempts"]) == without_run(before["attempts"])
    assert without_run(now["transcripts"]) == without_run(before["transcripts"])
    changed = {
        row["nodeid"].split("::")[1]: row["outcome"]
        for row, old in zip(now["results"], before["results"], strict=True)
        if row["outcome"] != old["outcome"]
    }
    assert changed == {"test_it[m-say b-r0]": "solved", "test_it[m-say c-r0]": "unsolved"}
    same = ("outcome", "kind", "error", "started_at", "ended_at")
    assert [
        {k: v for k, v in row.items() if k not in same} for row in without_run(now["results"])
    ] == [{k: v for k, v in row.items() if k not in same} for row in without_run(before["results"])]
    manifest = read_manifest(project.directory)
    assert (manifest.regraded, manifest.mode) == (run.name, read_manifest(run).mode)


@pytest.mark.slow
def test_seed_and_repetitions_are_taken_from_the_run(project):
    write(project, '!= "b"')
    run = first_run(project, "--ultrapar-seed=7", "--ultrapar-repeats=2")
    assert len(project.rows()) == 14
    assert regrade(project, run, "--ultrapar-coverage=0.5").ret == 1
    assert len(project.rows()) == 14
    assert read_manifest(project.directory).seed == 7
    said = refused(regrade(project, run, "--ultrapar-seed=8"))
    assert "has seed 7, but command line --ultrapar-seed says 8" in said


@pytest.mark.slow
def test_cases_that_the_run_does_not_have_are_listed_and_skipped(project):
    write(project, '!= "b"')
    run = first_run(project)
    write(
        project,
        '!= "b"',
        BODY + '\n@pytest.mark.parametrize("prompt", ["say new"])\ndef test_new(answer): pass\n',
    )
    regrade(project, run)
    assert project.outcomes()["test_new[m-say new-r0]"] == "infra"
    project.report.fnmatch_lines(["*infra/not_in_run*", "*test_new*has no episode for this case*"])


@pytest.mark.slow
def test_value_that_no_longer_fits_is_an_error(project):
    write(project, '!= "b"')
    run = first_run(project)
    suite = project.pytester.path / "test_suite.py"
    suite.write_text(suite.read_text().replace("prompt) -> str", "prompt) -> int"))
    regrade(project, run)
    assert project.outcomes()["test_it[m-say a-r0]"] == "error"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ("--ultrapar-resume=latest",),
            "takes all answers from one run; leave out --ultrapar-resume",
        ),
        (("--ultrapar-baseline=5",), "leave one of them out"),
        (("--ultrapar-check",), "leave out --ultrapar-check"),
        (
            ("--ultrapar-gate=throughput>=1",),
            "a regraded run (--ultrapar-regrade) does not measure",
        ),
        (("-k", "nothing_at_all"), None),
    ],
)
def test_option_that_does_not_fit_a_regrade_is_refused(project, options, said):
    write(project, '!= "b"')
    run = first_run(project)
    done = regrade(project, run, *options)
    if said is None:
        assert done.ret == 5
    else:
        assert said in refused(done)


@pytest.mark.slow
def test_run_of_another_suite_or_in_use_is_refused(project):
    write(project, '!= "b"')
    run = first_run(project)
    (project.pytester.path / "test_suite.py").rename(project.pytester.path / "test_other.py")
    assert f"run {run.name} has no episode of these 7 cases" in refused(regrade(project, run))
    with (run / "run.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert f"{run} is in use" in refused(regrade(project, run))
    shutil.rmtree(run / "journal")
    assert "cannot read the journal" in refused(regrade(project, run))
    assert "no run found at nowhere" in refused(regrade(project, "nowhere"))


@pytest.mark.slow
def test_unreadable_records_are_reported(project):
    write(project, '!= "b"')
    run = first_run(project)
    (segment,) = (run / "journal").iterdir()
    lines = segment.read_bytes().splitlines(keepends=True)
    at = next(at for at, line in enumerate(lines) if b'"ended"' in line and b"say a" in line)
    lines[at] = lines[at].replace(b"say a", b"say A")
    segment.write_bytes(b"".join(lines))
    done = regrade(project, run)
    done.stdout.fnmatch_lines(
        [f"*the journal of {run} has 1 gap, which this run skips; the first is in *"]
    )
    assert project.outcomes()["test_it[m-say a-r0]"] == "infra"


@pytest.mark.slow
def test_run_is_locked_while_its_episodes_are_copied(project, monkeypatch):
    write(project, '!= "b"')
    run = first_run(project)
    tried = []

    def copied(path, directory):
        with (run / "run.lock").open() as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        tried.append(path)
        return take_episodes(path, directory)

    monkeypatch.setattr("pytest_ultrapar.coordinator.run.take_episodes", copied)
    regrade(project, run)
    assert tried == [run]


@pytest.mark.slow
def test_stopped_regrade_starts_again_and_is_not_resumed(project):
    write(project, '!= "b"')
    run = first_run(project)
    done = regrade(project, run, "-x")
    done.stdout.fnmatch_lines(["*continue with the same command (without -x or --maxfail)"])
