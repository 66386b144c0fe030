"""Judges and other roles: their requests at the server, and their part of the results."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from pytest_ultrapar.analysis.run_summary import read_summary
from tests.plugin.conftest import CANARY

POOL = """schema = 1
{top}
[role.judge]
model = "j"

[[provider]]
name = "p"
api = "openai"
base_url = "{url}"
keys = {keys}
per_key = {{ workers = {workers} }}
timeout_s = 5
[[provider.model]]
name = "m"
price_per_mtok_in = 1
price_per_mtok_out = 1
{m}
[[provider.model]]
name = "j"
price_per_mtok_in = 10
price_per_mtok_out = 10
{j}
"""
SUITE = """
import pytest
from pytest_ultrapar import prefetch

@prefetch
async def judged(llm, prompt) -> str:
    answer = (await llm.chat([{"role": "user", "content": prompt}])).text
    judge = llm.role("judge")
    return (await judge.chat([{"role": "user", "content": f"say judged {answer}"}])).text
"""
N = 50


def write(project, body, *, keys=("key0",), workers=1, top="", m="", j=""):
    listed = ", ".join(f'{{ name = "{key}", env = "TEST_KEY_{key[-1]}" }}' for key in keys)
    pool = POOL.format(
        url=project.server.base_url, keys=f"[{listed}]", workers=workers, top=top, m=m, j=j
    )
    project.pytester.path.joinpath("pool.toml").write_text(pool)
    project.pytester.path.joinpath("test_suite.py").write_text(SUITE + body)


def cases(n, prompt="say {n}"):
    return f"""
@pytest.mark.parametrize("prompt", [f"{prompt}" for n in range({n})])
def test_it(judged):
    assert judged.startswith("judged")
"""


def seen(project):
    return Counter(one.model for one in project.server.log.requests)


@pytest.mark.slow
def test_subject_and_judge_share_a_key_of_one_seat(project, workers):
    write(project, cases(N))
    assert project.run(workers).ret == 0
    assert set(project.outcomes().values()) == {"solved"}
    assert seen(project) == {"m": N, "j": N}
    assert project.server.work.most == 1


def test_judge_with_the_first_request_does_not_wait_for_the_case_s_unused_seat(project):
    write(
        project,
        """
@prefetch
async def first(llm, prompt) -> str:
    said = (await llm.role("judge").chat([{"role": "user", "content": f"say {prompt}"}])).text
    return (await llm.chat([{"role": "user", "content": f"say {said}"}])).text

@pytest.mark.parametrize("prompt", [str(n) for n in range(10)])
def test_it(first): pass
""",
    )
    assert project.run("-n0").ret == 0
    assert project.server.work.most == 1
    rows = project.rows("attempts")
    assert Counter((row["turn"], row["role"]) for row in rows) == {(0, "judge"): 10, (1, ""): 10}


def test_results_distinguish_subject_and_judge(project):
    write(project, cases(3, "use 100 10 {n}"), workers=4)
    assert project.run("-n0").ret == 0
    for row in project.rows():
        assert (row["n_attempts"], row["n_turns"], row["model"]) == (1, 1, "m")
        assert (row["tokens_in"], row["tokens_out"], row["instance"]) == (100, 10, "m")
        assert row["cost"] == pytest.approx(110e-6)
    attempts = project.rows("attempts")
    assert Counter((row["role"], row["instance"], row["turn"]) for row in attempts) == {
        ("", "m", 0): 3,
        ("judge", "j", 1): 3,
    }
    said = [row for row in project.rows("transcripts") if row["case_id"] == attempts[0]["case_id"]]
    assert [(one["turn"], one["pool_role"], one["role"]) for one in said] == [
        (0, "", "user"),
        (0, "", "assistant"),
        (1, "judge", "user"),
        (1, "judge", "assistant"),
    ]
    summary = read_summary(project.directory)
    assert summary.statistics.tokens_in == 300
    own = sum(row["cost"] for row in attempts if row["role"] == "judge")
    ((role, use),) = summary.roles.items()
    assert (role, use.n_attempts, use.cost) == ("judge", 3, pytest.approx(own))
    assert set(summary.cost.by_model) == {"m", "j"}


VERDICTS = """
async def by_sdk(llm, asked):
    import httpx
    said = {"model": llm.model, "messages": [{"role": "user", "content": asked}]}
    url = "https://pool.invalid/v1/chat/completions"
    return (await llm.httpx_client(httpx).post(url, json=said)).raise_for_status().text

async def by_chat(llm, asked):
    return (await llm.chat([{"role": "user", "content": asked}])).text

@prefetch
async def verdict(llm, asked) -> str:
    await llm.chat([{"role": "user", "content": "say x"}])
    return await WAY(llm.role("judge"), asked)

@pytest.mark.parametrize("asked", ["status 500 a", "filter", "status 400 b", "say fine"])
def test_it(verdict): pass
"""


@pytest.mark.slow
@pytest.mark.parametrize("way", ["by_chat", "by_sdk"])
def test_permanent_failure_of_a_judge_is_named_live_and_in_a_replay(project, way):
    write(project, VERDICTS.replace("WAY", way), workers=4)
    project.run("-n0", "--ultrapar-max-attempts", "2")
    kinds = {row["param.asked"]: (row["outcome"], row["kind"]) for row in project.rows()}
    assert kinds == {
        "status 500 a": ("infra", "judge: overload"),
        "filter": ("infra", "judge: content_filter"),
        "status 400 b": ("error", "bad_request"),
        "say fine": ("solved", None),
    }
    named = {row["param.asked"]: "role judge: " in (row["error"] or "") for row in project.rows()}
    run = project.directory.resolve()
    project.run("-n0", f"--ultrapar-replay={run}", "--ultrapar-coverage=0")
    rows = project.rows()
    assert {row["param.asked"]: (row["outcome"], row["kind"]) for row in rows} == kinds
    assert {row["param.asked"]: "role judge: " in (row["error"] or "") for row in rows} == named


@pytest.mark.slow
def test_header_counts_models_that_only_have_roles(project):
    write(project, cases(1))
    result = project.run_here("-n0")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["ultrapar: 1 model and 1 in roles only, 2 lanes, *"])


LOST = """
@prefetch
async def lost(llm) -> str:
    return (await llm.role("{role}").chat([{{"role": "user", "content": "say x"}}])).text

def test_it(lost): pass
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("role", "meant"), [("critic", ""), ("jugde", "; did you mean judge?")], ids=["none", "near"]
)
def test_missing_role_is_an_error_of_the_suite_in_one_sentence(project, role, meant):
    write(project, LOST.format(role=role))
    result = project.run("-n0")
    assert result.ret == 1
    said = f"llm.role('{role}'): the pool has no such role; it has judge{meant}"
    shown = result.stdout.str()
    assert said + "\n" in shown
    assert "test_suite.py" in shown, "the traceback shows the suite's line"
    assert "sender.py" not in shown
    assert "llm.py" not in shown
    assert project.server.prompts == []
    assert [row["outcome"] for row in project.rows()] == ["error"]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["serial", "rotate", "phase", "ultra"])
def test_groups_and_modes_apply_only_to_the_case_s_own_model(project, mode):
    project.pytester.makeconftest(
        """
from pytest_ultrapar import Assignment, Group

def pytest_ultrapar_policies(mode):
    return ["mine"]

def pytest_ultrapar_assign(workers, lanes, cases, mode):
    assert {lane.model for lane in lanes} == {"m"}
    half = len(cases) // 2
    ids = [case.case_id for case in cases]
    own = (lanes[0].lane_id,)
    return Assignment(groups=(
        Group("first", tuple(ids[:half]), own, exclusive="k", at_once=1),
        Group("then", tuple(ids[half:]), own, exclusive="k", after=("first",)),
    ))
"""
    )
    write(project, cases(6), keys=("key0", "key1"), j='keys = ["key1"]')
    policy = () if mode in {"serial", "rotate"} else ("--ultrapar-policy", "mine")
    assert project.run("-n0", "--ultrapar-mode", mode, *policy).ret == 0
    assert len(project.outcomes()) == 6
    by_model = {(one.model, one.key) for one in project.server.log.requests}
    assert ("j", f"{CANARY}-1") in by_model
    if mode != "rotate":
        assert by_model == {("m", f"{CANARY}-0"), ("j", f"{CANARY}-1")}


@pytest.mark.slow
def test_plan_counts_the_requests_of_roles(project):
    j = "latency_hint_s = 0.2"
    write(project, cases(4, "use 100 10 {n}"), workers=4, m="latency_hint_s = 0.2", j=j)
    plan = project.run("-n0", "--ultrapar-plan").stdout
    plan.fnmatch_lines(
        [
            "*one request to role judge (j) is assumed for each case without measurements*",
            "m * 4 * 4 *",
            "j (judge) * 4 * 4 *",
            "all * 4 * 8 *",
        ]
    )
    assert project.server.prompts == []
    assert project.run("-n0").ret == 0
    plan = project.run("-n0", "--ultrapar-plan").stdout
    plan.no_fnmatch_line("*request to role judge (j) is assumed*")
    plan.fnmatch_lines(["*the same case in the earlier run (for 4 cases)*", "j (judge) * 4 * 4 *"])
    assert seen(project) == {"m": 4, "j": 4}


@pytest.mark.slow
def test_sdk_of_a_role_sends_requests_only_to_its_model(project):
    write(
        project,
        """
@prefetch
async def graded(llm, model_of) -> str:
    await llm.chat([{"role": "user", "content": "say x"}])
    judge = llm.role("judge")
    async with judge.openai() as client:
        said = await client.chat.completions.create(
            model=judge.model if model_of == "judge" else llm.model,
            messages=[{"role": "user", "content": "say y"}],
        )
    return said.choices[0].message.content

@pytest.mark.parametrize("model_of", ["judge", "case"])
def test_it(graded):
    assert graded == "y"
""",
        workers=4,
    )
    result = project.run("-n0")
    result.stdout.fnmatch_lines(["*a request asks for the model 'm', but *'j'*"])
    assert sorted(row["outcome"] for row in project.rows()) == ["error", "solved"]
    assert seen(project) == {"m": 2, "j": 1}
    assert {row["role"] for row in project.rows("attempts") if row["instance"] == "j"} == {"judge"}


@pytest.mark.cpu_s(3)
def test_blocks_of_the_documentation_run_unchanged(project):
    page = Path(__file__).parents[2] / "docs" / "how-to" / "judges.md"
    text = page.read_text(encoding="utf-8")
    (pool,), (judged, side_by_side) = (
        re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL) for kind in ("toml", "python")
    )
    project.pytester.path.joinpath("pool.toml").write_text(pool, encoding="utf-8")
    project.pytester.path.joinpath("test_judged.py").write_text(judged, encoding="utf-8")
    assert project.run("-n0").ret == 0
    project.report.fnmatch_lines(["role judge: 2 requests*"])
    pool = pool.replace("[role.judge]", '[[provider.model]]\nname = "other"\n\n[role.judge]')
    project.pytester.path.joinpath("pool.toml").write_text(pool, encoding="utf-8")
    project.pytester.path.joinpath("test_judged.py").write_text(side_by_side, encoding="utf-8")
    assert project.run("-n0").ret == 0
    # Each of two models judges the other, for two questions.
    project.report.fnmatch_lines(["role judge: 4 requests*"])


def test_cases_with_only_requests_of_a_judge_count_as_sent(project):
    """Cases without any request are counted separately."""
    body = """
@prefetch
async def judged_alone(llm, n) -> str:
    return (await llm.role("judge").chat(f"say {n}")).text if n else "nothing"

@pytest.mark.parametrize("n", range(3))
def test_judged(judged_alone): assert judged_alone
"""
    write(project, body)
    assert project.run("-n0").ret == 0
    project.report.fnmatch_lines(["1 of 3 graded cases sent no request through llm; *"])
