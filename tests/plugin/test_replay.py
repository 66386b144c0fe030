"""Episodes on the answers of an earlier run: only requests without a stored answer are sent."""

from __future__ import annotations

import fcntl
import json
import shutil
from collections import Counter

import pytest

from pytest_ultrapar.store.manifest import read_manifest
from tests.plugin.conftest import CANARY, cases
from tests.simulated_pool import pool_text

BODY = """
@prefetch
async def talk(llm, case, prompt) -> list:
    said = [{"role": "user", "content": prompt}]
    first = await llm.chat(said, seed=case.seed)
    said += [first.message, {"role": "user", "content": f"say {first.text}!"}]
    return [first.text, (await llm.chat(said, seed=case.seed)).text]

@pytest.mark.parametrize("prompt", ["say a", "say b", "filter", "status 500 down", "say c"])
def test_it(talk, prompt, grade): grade(talk != ["b", "b!"])
"""


def first_run(project, *options):
    project.run("-n0", "--ultrapar-max-attempts=1", *options)
    return project.directory.resolve()


@pytest.fixture
def gone(project, monkeypatch):
    """A function that removes the keys and empties the server's log."""

    def take():
        for n in range(3):
            monkeypatch.delenv(f"TEST_KEY_{n}", raising=False)
        project.server.reset()

    return take


def graded(project):
    return {
        row["nodeid"].split("::")[-1]: (row["outcome"], row["kind"], row["seed"])
        for row in project.rows()
    }


def replay(project, run, *options):
    return project.run("-n0", f"--ultrapar-replay={run}", "--ultrapar-coverage=0", *options)


def test_replay_has_the_same_grades_and_sends_nothing(project, gone):
    project.suite(BODY)
    run = first_run(project)
    before, said = graded(project), project.rows("transcripts")
    assert Counter(outcome for outcome, _, _ in before.values()) == {
        "solved": 2,
        "unsolved": 2,
        "infra": 1,
    }
    gone()
    done = replay(project, run)
    assert "INTERNALERROR" not in done.stdout.str()
    assert project.server.prompts == []
    assert graded(project) == before
    done.stdout.fnmatch_lines(
        [
            f"*replaying the answers of run {run.name}: nothing is sent*",
            f"*replay of run {run.name}: 7 answers replayed, 0 requests sent*",
        ]
    )
    now = project.rows("transcripts")
    assert [row["content"] for row in now] == [row["content"] for row in said]
    assert {row["replayed"] for row in project.rows("attempts")} == {"match"}
    assert {row["n_attempts"] for row in project.rows()} == {0}
    manifest = read_manifest(project.directory)
    assert (manifest.replayed, manifest.bound, manifest.lanes) == (run.name, None, [])
    summary = json.loads((project.directory / "summary.json").read_text())
    assert (summary["n_requests"], summary["n_replayed"], summary["audit"]) == (0, 7, [])
    assert summary["statistics"]["makespan_s"] is None
    assert not (project.directory / "benchmark.json").exists()
    assert CANARY not in done.stdout.str()


@pytest.mark.slow
def test_moved_test_gets_the_answers_and_seeds_of_its_earlier_case(project, gone):
    project.suite(BODY)
    run = first_run(project)
    before = graded(project)
    ids = {row["case_id"] for row in project.rows()}
    folder = project.pytester.mkdir("elsewhere")
    (project.pytester.path / "test_suite.py").rename(folder / "test_moved.py")
    gone()
    replay(project, run)
    assert graded(project) == before
    assert ids.isdisjoint(row["case_id"] for row in project.rows())
    assert project.server.prompts == []


@pytest.mark.slow
def test_changed_prompt_misses_only_in_its_cases(project, gone):
    project.suite(BODY)
    run = first_run(project)
    before = graded(project)
    project.suite(
        BODY.replace(
            'f"say {first.text}!"', '"say more" if prompt == "say c" else f"say {first.text}!"'
        )
    )
    gone()
    done = replay(project, run)
    assert project.server.prompts == []
    now = graded(project)
    changed = {name for name in now if now[name] != before[name]}
    assert {name: now[name][:2] for name in changed} == {
        "test_it[m-say c-r0]": ("error", "replay_miss")
    }
    done.stdout.fnmatch_lines(
        [
            "*has no answer to this request; difference from the most similar stored request "
            "in this case:*",
            '- * "content": "say c!",',
            '+ * "content": "say more",',
        ]
    )
    project.report.fnmatch_lines(
        ["*6 answers replayed, 0 requests sent, 1 case lacked a stored answer*"]
    )


ROLES = """
@prefetch
async def judged(llm, prompt) -> str:
    text = (await llm.chat([{"role": "user", "content": prompt}])).text
    return (await llm.role("judge").chat([{"role": "user", "content": prompt}])).text + text

@pytest.mark.parametrize("prompt", ["say a", "say b"])
def test_it(judged): pass
"""


@pytest.mark.slow
def test_replay_distinguishes_roles_and_counts_only_sent_requests(project):
    """Both send the same prompt, and each gets the answer of its own model."""
    project.write_pool(models=("m", "grader"))
    with project.pytester.path.joinpath("pool.toml").open("a") as file:
        file.write('\n[role.judge]\nmodel = "grader"\n')
    project.suite(ROLES)
    run = first_run(project)
    project.server.reset()
    replay(project, run)
    assert project.server.prompts == []
    found = Counter((row["role"], row["instance"], row["turn"]) for row in project.rows("attempts"))
    assert found == {("", "m", 0): 2, ("judge", "grader", 1): 2}
    # Only the case's own model is sent requests again: the judge's answers are stored.
    changed = ROLES.replace(
        "await llm.chat([", "await llm.chat([{'role': 'system', 'content': 'x'}, "
    )
    project.suite(changed)
    done = replay(project, run, "--ultrapar-replay-misses=ask")
    assert len(project.server.prompts) == 2
    project.report.fnmatch_lines(["*2 answers replayed, 2 requests sent*", "2 requests, *"])
    done.stdout.no_fnmatch_line("role judge*")
    project.suite(ROLES.replace('"content": prompt}])).text + text', '"content": "z"}])).text'))
    done = replay(project, run, "--ultrapar-replay-misses=ask")
    project.report.fnmatch_lines(["0 requests, excluding roles", "role judge: 2 requests, *"])


@pytest.mark.slow
@pytest.mark.parametrize("is_resumed", [False, True])
def test_added_cases_are_sent_once_by_resume_or_by_replay(project, is_resumed):
    # UKGovernmentBEIS/inspect_ai#2424 and #2959
    project.suite(cases(6))
    run = first_run(project)
    project.suite(cases(8))
    if is_resumed:
        assert project.run("-n0", f"--ultrapar-resume={run}").ret == 0
    assert replay(project, run, "--ultrapar-replay-misses=ask").ret == 0
    assert sorted(project.server.prompts) == sorted(f"say {n}" for n in range(8))


@pytest.mark.slow
def test_replay_sends_only_requests_without_an_answer(project):
    project.suite(BODY)
    run = first_run(project)
    project.server.reset()
    replay(project, run, "--ultrapar-replay-misses=ask", "--ultrapar-max-attempts=1")
    assert project.server.prompts == ["status 500 down"]


SIMULATED = pool_text(model='instances = ["m-at-theirs"]')
STREAMED = """
import httpx

@prefetch
async def streamed(llm, prompt) -> list:
    client = llm.httpx_client(httpx)
    asked = {"model": "m", "messages": [{"role": "user", "content": prompt}], "stream": {stream}}
    if not prompt:
        asked["messages"] = []
    async with client.stream("POST", "https://pool.invalid/v1/chat/completions", json=asked) as r:
        kind = r.headers["content-type"].partition(";")[0]
        return [r.status_code, kind, (await r.aread()).decode()]

@pytest.mark.parametrize("prompt", ["one two", ""])
def test_it(streamed, prompt, grade):
    status, kind, body = streamed
    assert kind == ("text/event-stream" if {stream} and prompt else "application/json")
    assert status == (200 if prompt else 400)
    grade(bool(prompt) == ("error" not in body), length=len(body))
"""


@pytest.mark.slow
@pytest.mark.parametrize("stream", ["True", "False"])
def test_answers_to_sdks_are_replayed_unchanged(project, stream):
    project.pytester.path.joinpath("pool.toml").write_text(SIMULATED)
    project.suite(STREAMED.replace("{stream}", stream))
    run = first_run(project)
    before = [(row["outcome"], row["score.length"]) for row in project.rows()]
    assert [outcome for outcome, _ in before] == ["solved", "solved"]
    replay(project, run)
    assert [(row["outcome"], row["score.length"]) for row in project.rows()] == before
    # No simulated provider was started.
    assert (run / "simulator.jsonl").exists()
    assert not (project.directory / "simulator.jsonl").exists()
    project.suite(STREAMED.replace("{stream}", str(stream != "True")))
    replay(project, run)
    assert [row["kind"] for row in project.rows()] == ["replay_miss", None]


NO_SENSE = {
    "--ultrapar-regrade=latest": "leave out --ultrapar-replay",
    "--ultrapar-baseline=5": "leave one of them out",
    "--ultrapar-check": "leave out --ultrapar-check",
    "--ultrapar-plan": "leave out --ultrapar-plan",
    "--ultrapar-gate=throughput>=1": "a replayed run (--ultrapar-replay) does not measure speed",
    "--ultrapar-seed=8": "says 8",
    "--ultrapar-out={run}": "name the same run",
}


@pytest.mark.slow
def test_option_that_does_not_fit_a_replay_is_refused(project):
    project.suite(BODY)
    run = first_run(project)
    project.server.reset()
    for option, said in NO_SENSE.items():
        done = replay(project, run, option.replace("{run}", str(run)))
        assert said in project.refusal(done)


def test_misses_without_a_run_are_refused(project):
    project.suite(BODY)
    said = project.refusal(project.run("-n0", "--ultrapar-replay-misses=ask"))
    assert "needs a run to replay" in said


@pytest.mark.slow
@pytest.mark.parametrize("misses", ["fail", "ask"])
def test_run_that_cannot_be_replayed_is_refused(project, misses):
    how = f"--ultrapar-replay-misses={misses}"
    project.suite(BODY)
    run = first_run(project, "--ultrapar-record=text")
    project.server.reset()
    done = replay(project, run, how)
    project.refusal(done)
    done.stderr.fnmatch_lines(
        [
            "*does not contain whole requests and answers (recorded with --ultrapar-record text, "
            "not full), so it cannot be replayed*"
        ]
    )
    run = first_run(project)
    project.server.reset()
    with (run / "run.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert f"{run} is in use" in project.refusal(replay(project, run, how))
    project.suite(BODY.replace("test_it", "test_other"))
    said = project.refusal(replay(project, run, how))
    assert f"run {run.name} has no episode of these 5 cases" in said
    shutil.rmtree(run / "journal")
    project.refusal(replay(project, run, how))


@pytest.mark.slow
def test_stopped_replay_is_resumed_as_a_replay(project):
    project.suite(BODY.replace("grade(talk != ", "assert (talk != "))
    run = first_run(project)
    project.server.reset()
    replay(project, run, "-x")
    stopped = project.directory.resolve()
    done = project.run("-n0", f"--ultrapar-resume={stopped}")
    said = f"the replayed run was {run.name} and is none now"
    assert said in project.refusal(done)
    replay(project, run, f"--ultrapar-resume={stopped}")
    assert len(project.rows()) == 5
    assert project.server.prompts == []
