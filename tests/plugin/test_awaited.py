"""Cases that wait for the answers of others: the answers they get, missing answers and errors."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import said_by

# The waiting tests come first: dispatched first, they would have to wait forever.
PAIRWISE = """
QUESTIONS = ["ant", "bee", "cow"]

@prefetch
async def reply(llm, model, question) -> str:
    assert question != "bee" or model != "m1", "its answer"
    down = question == "cow" and model == "m2"
    return (await llm.chat("status 500 down" if down else f"say {question}-{model}")).text

@prefetch(after=reply, across="model")
async def verdict(llm, model, question, answers) -> dict:
    others = sorted(name for name in answers if name != model)
    asked = await llm.chat("say " + "|".join(answers[name] for name in (model, *others)))
    return {"asked": asked.text, "others": others}

@pytest.mark.parametrize("question", QUESTIONS)
def test_better(verdict, question, grade):
    assert verdict["asked"].count(question) == 1 + len(verdict["others"])
    grade(True, wins=len(verdict["others"]))

@pytest.mark.parametrize("question", QUESTIONS)
def test_reply(reply, question): assert question in reply
"""
ONCE = ("--ultrapar-max-attempts=1", "--ultrapar-coverage=0")


def write(project, body=PAIRWISE):
    project.write_pool(models=["m0", "m1", "m2"])
    project.suite(body)


def wins(project):
    return {
        f"{row['model']}-{row['param.question']}": (row["outcome"], row["score.wins"], row["kind"])
        for row in project.rows()
        if "test_better" in row["nodeid"]
    }


@pytest.mark.cpu_s(3)
def test_pairwise_judge_gets_the_existing_answers(project, workers):
    write(project)
    assert project.run(workers, *ONCE).ret == 1
    found = wins(project)
    assert {name: found.pop(name) for name in ("m1-bee", "m2-cow")} == {
        "m1-bee": ("infra", None, "awaited"),
        "m2-cow": ("infra", None, "awaited"),
    }
    assert found == {
        **dict.fromkeys(("m0-ant", "m1-ant", "m2-ant"), ("solved", 2.0, None)),
        **dict.fromkeys(("m0-bee", "m2-bee"), ("solved", 1.0, None)),
        **dict.fromkeys(("m0-cow", "m1-cow"), ("solved", 1.0, None)),
    }
    project.server.reset()
    project.suite(PAIRWISE.replace("status 500 down", "say cow-m2"))
    assert project.run(workers, *ONCE, "--ultrapar-resume=latest").ret == 1
    # Cases with a stored answer send no request: neither replies nor verdicts of others.
    assert sorted(project.server.prompts) == ["say cow-m2", "say cow-m2|cow-m0|cow-m1"]
    assert wins(project)["m2-cow"] == ("solved", 2.0, None)


def test_case_waits_for_its_repetitions_and_for_others_that_wait(project, workers):
    project.suite(
        """
@prefetch
async def reply(llm, case) -> int:
    return int((await llm.chat(f"say {case.repeat}")).text)

@prefetch(after=reply, across="repeat")
async def total(llm, answers) -> int:
    return sum(answers.values())

@prefetch(after=total, across="repeat")
async def totals(llm, answers) -> dict:
    return answers

def test_totals(totals): assert totals == {"0": 3, "1": 3, "2": 3}
def test_total(total): assert total == 3
def test_reply(reply): assert reply < 3
"""
    )
    assert project.run(workers, "--ultrapar-repeats=3").ret == 0
    assert {row["outcome"] for row in project.rows()} == {"solved"}
    assert len(project.rows()) == 9


@pytest.mark.slow
def test_cases_do_not_wait_for_a_case_that_kills_its_workers(project):
    write(
        project,
        PAIRWISE.replace(
            'assert question != "bee" or model != "m1", "its answer"',
            """
    if question == "bee" and model == "m1":
        import os
        os._exit(1)
""",
        ),
    )
    said_by(project.run_apart("-n2", "--max-worker-restart=8", *ONCE), 0)
    found = wins(project)
    assert found["m1-bee"] == ("infra", None, "awaited")
    assert found["m0-bee"] == ("solved", 1.0, None)


@pytest.mark.parametrize(
    ("changes", "options", "said"),
    [
        (
            (),
            ["-k", "test_better"],
            "test_better[m0-ant-r0] waits for 'reply'. Exactly one selected case of 'reply' with "
            "the same parameters (found 0) must have model 'm0'. Give this test and the test of "
            "'reply' the same parameters",
        ),
        ((), ["--ultrapar-shard=1/2"], "leave out --ultrapar-shard"),
        (
            ('["ant", "bee", "cow"])\ndef test_reply', '["ant", "bee", "dog"])\ndef test_reply'),
            ["--ultrapar-sample=12"],
            "and select both (use -k; --ultrapar-sample selects single cases)",
        ),
        ((), ["--ultrapar-policy=batch:1"], "use a policy whose groups do not wait for each other"),
        (("question, answers", "question"), [], 'after=answer, across="model"'),
        (('across="model"', 'across="question"'), [], 'across is "model" or "repeat"'),
        (("after=reply", "after=len"), [], "where answer is a prefetched function"),
        (
            ("(reply, question): assert", "(reply, question, style): assert"),
            [],
            "Give this test and the test of 'reply' the same parameters",
        ),
    ],
)
def test_impossible_wait_is_refused_in_one_sentence(project, changes, options, said):
    body = PAIRWISE.replace("QUESTIONS)", '["ant", "bee", "cow"])')
    body = body.replace(*changes) if changes else body
    style = '@pytest.mark.parametrize("style", ["a", "b"])\n'
    if "style" in body:
        head, at, rest = body.rpartition("@pytest.mark.parametrize")
        body = head + style + at + rest
    write(project, body)
    assert said in project.refusal(project.run("-n0", *options))


@pytest.mark.cpu_s(3)
def test_serial_modes_and_samples_do_not_wait_forever(project):
    write(project, PAIRWISE.replace("status 500 down", "say cow-m2"))
    for options in (["--ultrapar-mode=serial"], ["--ultrapar-baseline=4"]):
        assert project.run("-n0", *options, "--ultrapar-coverage=0").ret == 1
        assert sum(one[0] == "solved" for one in wins(project).values()) == 8


def test_only_does_not_select_cases_without_the_cases_that_they_wait_for(project):
    write(project, PAIRWISE.replace("status 500 down", "say cow-m2"))
    body = 'grade(False, wins=len(verdict["others"]))'
    project.suite(PAIRWISE.replace('grade(True, wins=len(verdict["others"]))', body))
    assert project.run("-n0", *ONCE).ret == 1
    project.server.reset()
    text = project.refusal(project.run("-n0", "--ultrapar-only=unsolved"))
    assert "and select both (use -k; --ultrapar-only selects single cases)" in text


@pytest.mark.parametrize("n", range(1, 9))
def test_sample_includes_the_cases_that_its_cases_wait_for(project, n):
    write(project)
    done = project.run_here("-n0", f"--ultrapar-sample={n}", "--collect-only", "-q")
    found = [line.partition("::")[2] for line in done.outlines if "::" in line]
    assert len(found) == n
    replies = {one.replace("reply", "better") for one in found if "reply" in one}
    assert replies >= {one for one in found if "better" in one}


def test_waiting_episode_needs_only_the_parameters_that_it_uses(project, workers):
    write(
        project,
        """
@prefetch
async def reply(llm, question) -> str:
    return (await llm.chat(f"say {question}")).text

@prefetch(after=reply)
async def both(answers) -> list:
    return sorted(answers.items())

@pytest.mark.parametrize("question", ["ant", "bee"])
def test_both(both, question): assert both == [[f"m{n}", question] for n in range(3)]

@pytest.mark.parametrize("question", ["ant", "bee"])
def test_told(both, grade): grade(len(both) == 3)

@pytest.mark.parametrize("question", ["ant", "bee"])
def test_reply(reply, question): assert reply == question
""",
    )
    said_by(project.run(workers), 0)
    assert [row["outcome"] for row in project.rows()] == ["solved"] * 18
