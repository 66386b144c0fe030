"""Every row of the outcome table, without and with xdist."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import CANARY, cases

ALL = """
PROMPTS = {
    "graded": "say yes",
    "asserted": "say no",
    "context": "context",
    "filter": "filter",
    "overload": "status 500",
    "malformed": "garbage",
    "bad": "status 400",
    "once429": "once 429 yes",
    "once500": "once 500 yes",
    "dropped": "drop",
}

@pytest.mark.parametrize("name", list(PROMPTS))
def test_row(reply, name):
    assert reply == "yes"

@prefetch
async def reply(llm, name) -> str:
    return (await llm.chat([{"role": "user", "content": PROMPTS[name]}])).text

@prefetch
async def raising(llm) -> str:
    raise LookupError("the suite's own fault")

def test_raising(raising): pass

@prefetch
async def skipping(llm) -> str:
    pytest.skip("no need")

def test_skipping(skipping): pass

@pytest.mark.parametrize("prompt", ["say one"])
def test_partial(answer, grade):
    grade("partial", share=0.5, exact=False)

@pytest.mark.parametrize("prompt", ["say two"])
def test_graded_then_failed(answer, grade):
    grade("solved")
    assert answer == "three"

@pytest.mark.parametrize("prompt", ["say three"])
def test_body_raises(answer):
    {}["missing"]

@pytest.mark.parametrize("prompt", ["say never sent"])
@pytest.mark.skip(reason="by mark")
def test_skipped(answer): pass

@pytest.mark.parametrize("prompt", ["say never sent"])
@pytest.mark.xfail(run=False, reason="not now")
def test_not_run(answer): pass

@pytest.mark.parametrize("prompt", ["say four"])
@pytest.mark.xfail(reason="known")
def test_expected_failure(answer):
    assert answer == "five"

@pytest.mark.parametrize("prompt", ["say five"])
@pytest.mark.xfail(reason="known")
def test_unexpected_success(answer):
    assert answer == "five"

@pytest.mark.parametrize("prompt", ["say six"])
@pytest.mark.xfail(reason="known")
def test_expected_failure_graded(answer, grade):
    grade("partial")
    assert answer == "five"

@pytest.mark.parametrize("prompt", ["say seven"])
@pytest.mark.xfail(reason="known")
def test_expected_failure_raises(answer):
    {}["missing"]

@pytest.mark.parametrize("prompt", ["say eight"])
def test_expected_failure_inside(answer):
    pytest.xfail("known")

@pytest.mark.parametrize("prompt", ["say nine"])
async def test_async(answer):
    assert answer == "ten"

@pytest.mark.parametrize("prompt", ["say nine"])
def test_async_behind(answer):
    return Later()

class Later:
    def __await__(self): ...

@pytest.mark.parametrize("prompt", ["say ten"])
def test_failed_by_hand(answer):
    pytest.fail("wrong")

@pytest.mark.parametrize("prompt", ["say ten"])
def test_raised_nothing(answer):
    with pytest.raises(LookupError):
        pass

@prefetch
async def catching(llm) -> str:
    try:
        await llm.chat([{"role": "user", "content": "status 502"}])
    except Exception:
        pass
    return "not an answer"

def test_catching(catching): pass

@prefetch
async def wrong_type(llm) -> int:
    return "no number"

def test_wrong_type(wrong_type): pass
"""


UNSUPPORTED = (
    ("error", "failed", None) if pytest.version_tuple >= (8, 4) else ("skipped", "skipped", None)
)
"""The outcome of an async test that no plugin runs: pytest 8.3 skips it."""


@pytest.mark.cpu_s(3)
def test_outcome_table_holds_in_every_row(project, workers):
    project.suite(ALL)
    # Two tries, not three: a permanent failure would only wait for more seconds.
    result = project.run(workers, "--ultrapar-coverage", "0.1", "--ultrapar-max-attempts", "2")
    rows = {
        row["nodeid"]
        .split("::")[-1]
        .replace("m-", "")
        .replace("-r0", "")
        .replace("[r0]", "[m]"): row
        for row in project.rows()
    }
    found = {name: (row["outcome"], row["test"], row["kind"]) for name, row in rows.items()}
    assert found == {
        "test_row[graded]": ("solved", "passed", None),
        "test_row[asserted]": ("unsolved", "failed", None),
        "test_row[context]": ("unsolved", "skipped", "context_length"),
        "test_row[filter]": ("unsolved", "skipped", "content_filter"),
        "test_row[overload]": ("infra", "skipped", "overload"),
        "test_row[malformed]": ("infra", "skipped", "malformed"),
        "test_row[bad]": ("error", "error", "bad_request"),
        "test_row[once429]": ("solved", "passed", None),
        "test_row[once500]": ("solved", "passed", None),
        "test_row[dropped]": ("infra", "skipped", "transport"),
        "test_raising[m]": ("error", "error", "LookupError"),
        "test_skipping[m]": ("skipped", "skipped", None),
        "test_partial[say one]": ("partial", "passed", None),
        "test_graded_then_failed[say two]": ("solved", "failed", None),
        "test_body_raises[say three]": ("error", "failed", None),
        "test_skipped[say never sent]": ("skipped", "skipped", None),
        "test_not_run[say never sent]": ("skipped", "xfailed", None),
        "test_expected_failure[say four]": ("unsolved", "xfailed", None),
        "test_unexpected_success[say five]": ("solved", "xpassed", None),
        "test_expected_failure_graded[say six]": ("partial", "xfailed", None),
        "test_expected_failure_raises[say seven]": ("error", "xfailed", None),
        "test_expected_failure_inside[say eight]": ("unsolved", "xfailed", None),
        "test_async[say nine]": UNSUPPORTED,
        "test_async_behind[say nine]": UNSUPPORTED,
        "test_failed_by_hand[say ten]": ("unsolved", "failed", None),
        "test_raised_nothing[say ten]": ("unsolved", "failed", None),
        "test_catching[m]": ("infra", "skipped", "overload"),
        "test_wrong_type[m]": ("error", "error", None),
    }
    assert rows["test_partial[say one]"]["score.share"] == 0.5
    assert rows["test_partial[say one]"]["score.exact"] == 0.0
    assert "say never sent" not in project.server.prompts
    assert result.ret == 1
    output = result.stdout.str()
    assert "LookupError: the suite's own fault" in output
    assert "4 infra" in output


def test_grade_takes_a_condition(project):
    project.suite(cases(["say yes", "say no"], 'grade(answer == "yes", length=len(answer))'))
    assert project.run("-n0").ret == 0
    outcomes = {
        row["param.prompt"]: (row["outcome"], row["score.length"]) for row in project.rows()
    }
    assert outcomes == {"say yes": ("solved", 3.0), "say no": ("unsolved", 2.0)}


def test_nan_returned_by_an_episode_is_an_error_with_a_reason(project):
    project.suite(
        """
@prefetch
async def share(llm) -> float:
    return float("nan")

def test_it(share): pass
"""
    )
    result = project.run("-n0")
    assert result.ret == 1
    assert set(project.outcomes().values()) == {"error"}
    result.stdout.fnmatch_lines(["*'share' returned does not fit*(NaN and infinity are stored*"])


def test_reason_of_a_failed_run_is_printed_at_every_verbosity(project):
    project.suite(cases(["say a", "garbage"]))
    result = project.run("-n0", "-qq", "--ultrapar-max-attempts", "1")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["FAILED: coverage 50.0% is below 98.0%*"])
    result.stdout.no_fnmatch_line("*results in*")


def test_calls_with_invalid_arguments_are_errors_that_list_allowed_values(project):
    project.suite(
        """
@prefetch
async def heated(llm, t) -> str:
    return (await llm.chat([{"role": "user", "content": "say a"}], temperature=t)).text

@prefetch
async def plain(llm) -> str:
    return (await llm.chat(3)).text

@prefetch
async def fine(llm) -> str:
    return (await llm.chat([{"role": "user", "content": "say c"}])).text

@pytest.mark.parametrize("t", [float("nan")])
def test_heat(heated): pass
def test_text(plain): pass
def test_grade(fine, grade): grade(3)
"""
    )
    result = project.run("-n0")
    assert result.ret == 1
    assert set(project.outcomes().values()) == {"error"}
    assert project.server.prompts == ["say c"]
    for words in (
        "*llm.chat() got temperature=nan; a number must be finite*",
        "*llm.chat() takes a string, or a list of messages such as*(got int)*",
        "*grade() got 3; it takes 'solved', 'partial', 'unsolved', 'scored', True, False, None,*",
    ):
        result.stdout.fnmatch_lines([words])
    # The traceback shows the suite's line, not the plugin's.
    result.stdout.fnmatch_lines(["> *grade(3)"])


@pytest.mark.slow
def test_reason_of_a_grade_is_stored_without_secrets(project):
    project.suite(f"""
class Verdict:
    outcome, scores, reason = "partial", {{}}, "half of it"

@pytest.mark.parametrize("prompt", ["one", "two", "three", "four", "five"])
def test_it(answer, grade, prompt):
    if prompt == "one":
        grade("unsolved", reason="it told {CANARY}", length=3)
    elif prompt == "two":
        grade(Verdict())
    elif prompt == "three":
        grade(Verdict(), reason="less than half")
    elif prompt == "four":
        grade("unsolved", reason="wrong")
        assert answer == "nothing"
    else:
        grade("unsolved", reason=3)
""")
    project.run_apart("-n0")
    rows = {row["param.prompt"]: row for row in project.rows()}
    told = {prompt: row["reason"] for prompt, row in rows.items()}
    assert CANARY not in told["one"]
    assert told["one"].startswith("it told ")
    assert told["two"] == "half of it"
    assert told["three"] == "less than half"
    assert told["four"] == "wrong"
    assert "assert" in rows["four"]["error"]
    assert rows["five"]["error"].endswith("grade() got reason=3; a reason must be a string")
    assert {row["score.length"] for row in rows.values()} == {3.0, None}


LISTED = """
@pytest.mark.parametrize("prompt, outcome", [
    ("say 1", "solved"), ("say 2", "partial"), ("say 3", "unsolved"), ("status 500", "infra")
])
def test_row(answer, grade, outcome):
    grade(outcome)
"""


@pytest.mark.parametrize(("letters", "words"), [("A", 4), ("a", 3), ("f", 3), ("E", 0), ("fE", 0)])
def test_short_summary_lists_cases_if_requested(project, letters, words):
    project.suite(LISTED)
    result = project.run_here("-n0", f"-r{letters}")
    shown = [line for line in result.outlines if "::test_row[" in line and line[0].isupper()]
    named = {line.split()[0] for line in shown}
    assert len(named) == len(shown) == words
    assert named <= {"SOLVED", "PARTIAL", "UNSOLVED", "INFRA"}
    # The last line counts each once, as before.
    result.stdout.fnmatch_lines(["*1 solved*"])
    assert "passed" not in result.outlines[-1]
    assert "failed" not in result.outlines[-1]
