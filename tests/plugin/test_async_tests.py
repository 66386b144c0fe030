"""Async tests that take `llm` get the same results as the long form, and can be resumed."""

from __future__ import annotations

import re
import textwrap
from xml.etree import ElementTree

import pytest

from tests.plugin.conftest import refused, said_by, section
from tests.running import Running, wait_until

BODIES = {
    "right": 'assert answer == "yes"',
    "wrong": 'assert answer.split() == ["no", 3]',
    "wrong_below": "below(answer)",
    "true": "grade(True, 'as it should be', steps=3, exact=False)",
    "partly": 'grade("partial", "half of it", share=0.5)',
    "graded_then_wrong": 'grade("partial", share=0.25)\nassert answer == "no"',
    "graded_then_raised": 'grade("solved", share=1)\nraise LookupError(answer)',
    "raised": '{}["missing"]',
    "raised_own": "raise Own(3, answer)",
    "grade_misused": "grade(3)",
    "failed_by_hand": 'pytest.fail("wrong")',
    "expected_inside": 'pytest.xfail("known")',
    "raised_below": "deep(300)",
    "raised_group": "raise ExceptionGroup('two', [LookupError(1), ValueError(2)])",
    "raised_unknown": "class Inner(Exception): pass\nraise Inner('inside')",
    "raised_mute": "raise Mute",
    "raised_of_pytest": "raise pytest.UsageError('of pytest')",
    "raised_nothing": "with pytest.raises(LookupError): pass",
}
MARKED = {
    "expected": ("", 'assert answer == "no"'),
    "expected_none_came": ("", 'assert answer == "yes"'),
    "expected_strictly": ("strict=True, ", 'assert answer == "yes"'),
    "expected_kind": ("raises=LookupError, ", '{}["missing"]'),
    "expected_own_kind": ("raises=Own, ", "raise Own(3, answer)"),
    "expected_other_kind": ("raises=ValueError, ", '{}["missing"]'),
    "not_run": ("run=False, ", 'assert answer == "no"'),
}
BEGINNING = """
import pytest

class Own(Exception):
    def __init__(self, number, text):
        super().__init__(f"{number} of {text}")

class Mute(Exception):
    def __str__(self): raise TypeError

def deep(n):
    return deep(n - 1) if n else {}["deep"]

def below(answer):
    assert answer.split() == ["no"], "it says something else"
"""


def suite_in(form, *, prompt="say yes"):
    """The same tests in one of two forms."""
    every = {name: ("", body) for name, body in BODIES.items()} | {
        name: (f'@pytest.mark.xfail({how}reason="known")', body)
        for name, (how, body) in MARKED.items()
    }
    suite = BEGINNING
    if form == "long":
        suite += f"""
from pytest_ultrapar import prefetch

@prefetch
async def answer(llm) -> str:
    return (await llm.chat({prompt!r})).text
"""
    for name, (mark, body) in every.items():
        if form == "long":
            text = f"def test_{name}(answer, grade):\n"
        else:
            text = f"async def test_{name}(llm, grade):\n"
            text += f"    answer = (await llm.chat({prompt!r})).text\n"
        suite += f"\n{mark}\n{text}{textwrap.indent(body, '    ')}\n"
    return suite


def write(project, suite):
    project.pytester.path.joinpath("test_suite.py").write_text(suite)


def kept(project):
    """The fields of each row that must be equal in both forms."""
    names = ("outcome", "test", "kind", "error", "scores")
    return {
        row["nodeid"].split("::")[-1]: {name: row.get(name) for name in names}
        for row in project.rows()
    }


def shown(result, name):
    """pytest's report of a test without worker, arguments and columns, which a record lacks."""
    lines = section(result.stdout.str(), f"test_{name}[m-r0]").splitlines()
    return [line for line in lines if line.strip() and not re.match(r"\w+ = |\[gw|\s*\^+$", line)]


@pytest.mark.cpu_s(4)
def test_async_tests_have_the_results_of_the_long_form_and_are_resumed_with_them(project, workers):
    options = (workers, "--ultrapar-coverage=0.1")
    write(project, suite_in("long"))
    project.run(*options)
    expected = kept(project)
    write(project, suite_in("short"))
    first = project.run(*options)
    assert kept(project) == expected
    n_sent = len(project.server.prompts)
    resumed = project.run(*options, "--ultrapar-resume=latest")
    assert kept(project) == expected
    assert len(project.server.prompts) == n_sent
    for name in ("wrong", "wrong_below", "raised", "raised_own", "grade_misused", "raised_nothing"):
        assert shown(first, name) == shown(resumed, name)
    said = "\n".join(shown(resumed, "wrong_below"))
    assert ">       below(answer)" in said
    assert '>       assert answer.split() == ["no"], "it says something else"' in said
    assert "At index 0 diff: 'yes' != 'no'" in said


SENT = {
    "answered": "say yes",
    "refused": "context",
    "down": "status 500 down",
    "malformed": "status 400",
    "skipped": "skip",
}
LONG = """
import pytest
from pytest_ultrapar import prefetch

@prefetch
async def answer(llm, prompt) -> str:
    if prompt == "skip":
        pytest.skip("no need")
    return (await llm.chat(prompt)).text

@pytest.mark.parametrize("prompt", PROMPTS.values(), ids=PROMPTS)
def test_it(answer): assert answer == "yes"
"""
SHORT = """
import pytest

@pytest.mark.parametrize("prompt", PROMPTS.values(), ids=PROMPTS)
async def test_it(llm, prompt):
    if prompt == "skip":
        pytest.skip("no need")
    try:
        reply = await llm.chat(prompt)
    except Exception:
        assert not "what the model said"
    assert reply.text == "yes"
"""


@pytest.mark.slow
def test_failed_requests_are_not_failures_of_the_test(project, workers):
    options = (workers, "--ultrapar-coverage=0.1", "--ultrapar-max-attempts=1")
    for form in (LONG, SHORT):
        write(project, form.replace("PROMPTS", repr(SENT)))
        project.run(*options)
        rows = kept(project)
        found = {name: (row["outcome"], row["test"], row["kind"]) for name, row in rows.items()}
        assert found == {
            "test_it[m-answered-r0]": ("solved", "passed", None),
            "test_it[m-refused-r0]": ("unsolved", "skipped", "context_length"),
            "test_it[m-down-r0]": ("infra", "skipped", "overload"),
            "test_it[m-malformed-r0]": ("error", "error", "bad_request"),
            "test_it[m-skipped-r0]": ("skipped", "skipped", None),
        }


@pytest.mark.slow
def test_failed_requests_behind_an_sdks_exception_are_not_failures_of_the_test(project):
    write(
        project,
        """
import pytest

PROMPTS = {"answered": "say yes", "refused": "context", "malformed": "status 400"}

@pytest.mark.parametrize("prompt", PROMPTS.values(), ids=PROMPTS)
async def test_it(llm, prompt):
    messages = [{"role": "user", "content": prompt}]
    said = await llm.openai().chat.completions.create(model=llm.model, messages=messages)
    assert said.choices[0].message.content == "yes"
""",
    )
    project.run("-n0", "--ultrapar-coverage=0.1")
    assert {name: (row["outcome"], row["kind"]) for name, row in kept(project).items()} == {
        "test_it[m-answered-r0]": ("solved", None),
        "test_it[m-refused-r0]": ("unsolved", "context_length"),
        "test_it[m-malformed-r0]": ("error", "bad_request"),
    }


@pytest.mark.slow
def test_failed_assert_in_tasks_of_a_group_fails_the_test(project):
    write(
        project,
        """
import asyncio
import pytest

async def judge(llm, wanted):
    assert (await llm.chat("say yes")).text == wanted

@pytest.mark.parametrize("wanted", ["yes", "no"])
async def test_it(llm, wanted):
    async with asyncio.TaskGroup() as group:
        for _ in range(2):
            group.create_task(judge(llm, wanted))

async def test_both(llm):
    async with asyncio.TaskGroup() as group:
        group.create_task(judge(llm, "no"))
        raise LookupError
""",
    )
    first = project.run("-n0")
    outcomes = {"test_it[m-yes-r0]": "solved", "test_it[m-no-r0]": "unsolved"}
    assert project.outcomes() == {**outcomes, "test_both[m-r0]": "error"}
    resumed = project.run("-n0", "--ultrapar-resume=latest")
    assert project.outcomes() == {**outcomes, "test_both[m-r0]": "error"}
    for result in (first, resumed):
        assert "AssertionError: assert 'yes' == 'no'" in result.stdout.str()


METHODS = """
import pytest
from pytest_ultrapar import prefetch

class Shared:
    word = "one"

    @prefetch
    async def answer(self, llm, prompt) -> str:
        return (await llm.chat(f"say {self.word} {prompt}")).text

    @pytest.mark.parametrize("prompt", ["x", "y"])
    def test_long(self, answer, prompt):
        assert answer == f"{self.word} {prompt}"

    async def test_short(self, llm, grade):
        grade((await llm.chat(f"say {self.word}")).text == self.word)

class TestFirst(Shared): pass

class TestSecond(Shared):
    word = "two"
"""


def test_methods_are_cases_in_both_forms_and_in_each_class_that_inherits_them(project):
    write(project, METHODS)
    said_by(project.run("-n0"), 0)
    words = ("one", "two")
    asked = [f"say {word}{more}" for word in words for more in ("", " x", " y")]
    assert sorted(project.server.prompts) == sorted(asked)
    assert [row["outcome"] for row in project.rows()] == ["solved"] * 6


SCOPE = ("-oasyncio_default_fixture_loop_scope=function",)
"""The option without which pytest-asyncio warns."""
OTHERS = """
import functools
import pytest

MARKS

@pytest.mark.parametrize("prompt", ["say one", "say two"])
async def test_ours(llm, prompt):
    assert (await llm.chat(prompt)).text in prompt

class TestClass:
    async def test_ours(self, llm, grade):
        grade((await llm.chat("say three")).text == "three")

def passed_on(function):
    @functools.wraps(function)
    async def call(*args, **named):
        await function(*args, **named)
    return call

@passed_on
async def test_ours_decorated(llm, prompt="say four"):
    assert (await llm.chat(prompt)).text == "four"

async def test_theirs():
    assert True
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plugin", "options", "marks"),
    [
        ("anyio", ("-oanyio_mode=auto",), ""),
        ("anyio", (), "pytestmark = pytest.mark.anyio"),
        ("pytest_asyncio", (*SCOPE, "-oasyncio_mode=auto"), ""),
        ("pytest_asyncio", SCOPE, "pytestmark = pytest.mark.asyncio(loop_scope='module')"),
    ],
)
@pytest.mark.parametrize("with_pool", [True, False])
def test_plugins_for_asyncio_do_not_run_async_tests_that_take_llm(
    project, plugin, options, marks, with_pool
):
    pytest.importorskip(plugin)
    name = {"anyio": "anyio.pytest_plugin", "pytest_asyncio": "pytest_asyncio.plugin"}[plugin]
    backend = "\n@pytest.fixture(scope='module')\ndef anyio_backend(): return 'asyncio'\n"
    write(project, OTHERS.replace("MARKS", marks) + backend * (plugin == "anyio"))
    result = project.run_apart("-Werror", f"-p{name}", *options, pool=with_pool)
    if not with_pool:
        result.assert_outcomes(passed=1, skipped=4)
        return
    said_by(result, 0)
    assert set(project.outcomes().values()) == {"solved"}
    assert sorted(project.server.prompts) == ["say four", "say one", "say three", "say two"]
    assert result.parseoutcomes() == {"passed": 1, "solved": 4}


@pytest.mark.slow
@pytest.mark.parametrize(
    "llm",
    [
        "@pytest.fixture\ndef llm(): return 'their own'",
        "pytestmark = pytest.mark.parametrize('llm', ['their own'])",
    ],
)
def test_async_test_with_its_own_llm_fixture_is_not_a_case(project, llm):
    write(
        project,
        f"""
import pytest

{llm}

@pytest.fixture
def anyio_backend(): return "asyncio"

@pytest.mark.anyio
async def test_theirs(llm):
    assert llm == "their own"
""",
    )
    for with_pool in (True, False):
        result = project.run_apart("-Werror", "-panyio.pytest_plugin", pool=with_pool)
        result.assert_outcomes(passed=1)
    assert project.server.prompts == []


ONE = """
import pytest

@pytest.mark.parametrize("prompt", ["say yes", "say no"])
async def test_it(llm, prompt):
    reply = await llm.chat(prompt)
    assert reply.text == WANTED
"""


@pytest.mark.slow
def test_async_test_is_replayed_and_cannot_be_regraded(project, monkeypatch):
    write(project, ONE.replace("WANTED", "'yes'"))
    project.run("-n0")
    n_sent = len(project.server.prompts)
    for n in range(3):
        monkeypatch.delenv(f"TEST_KEY_{n}", raising=False)
    write(project, ONE.replace("WANTED", "'no'"))
    project.run("-n0", "--ultrapar-replay=latest")
    assert project.outcomes() == {
        "test_it[m-say yes-r0]": "unsolved",
        "test_it[m-say no-r0]": "solved",
    }
    said = refused(project.run("-n0", "--ultrapar-regrade=latest"))
    assert (
        "the async test function 'test_it' both sends and grades, so "
        "--ultrapar-regrade cannot grade" in said
    )
    assert "    async def answer(llm, prompt) -> str: ...\n\n    def test_it(answer): ..." in said
    assert len(project.server.prompts) == n_sent


@pytest.mark.slow
@pytest.mark.parametrize("form", ["long", "short"])
def test_terminal_colours_are_not_stored_in_tables(project, form):
    write(project, suite_in(form))
    result = project.run("-n0", "--color=yes", "-k", "wrong", "--ultrapar-coverage=0.1")
    assert "\x1b[31m" in result.stdout.str()
    errors = [row["error"] for row in project.rows()]
    assert "At index 0 diff: 'yes' != 'no'" in "".join(map(str, errors))
    assert not any("\x1b" in str(error) for error in errors)


@pytest.mark.slow
def test_long_texts_are_only_compared_around_their_difference(project, monkeypatch):
    """A whole comparison would take seconds on the loop that all episodes share."""
    write(
        project,
        """
import pytest

async def test_it(llm):
    answer = (await llm.chat("say yes")).text
    lines = [f"line {n} of what was said" for n in range(300)]
    other = [line.replace("of", "in") if n > 90 else line for n, line in enumerate(lines)]
    assert "\\n".join([*lines, answer]) == "\\n".join([*other, answer])
""",
    )
    monkeypatch.setenv("CI", "1")  # if pytest shows whole differences
    lines = shown(project.run("-n0"), "it")
    assert any("+ line 91 of what was said" in line for line in lines)
    assert len(lines) < 300  # of 840


@pytest.mark.slow
def test_rerun_test_fails_in_the_same_way(project):
    write(project, ONE.replace("WANTED", "'yes'"))
    again = ("-p", "pytest_rerunfailures", "--reruns=2", "--only-rerun=AssertionError: assert 'no'")
    for more in ((), ("--ultrapar-resume=latest",)):
        result = project.run("-n0", *again, *more)
        assert result.parseoutcomes() == {"failed": 1, "solved": 1, "rerun": 2}
        assert sorted(project.server.prompts) == ["say no", "say yes"]


@pytest.mark.slow
def test_debugger_stops_at_the_failed_assert(project):
    write(project, ONE.replace("WANTED", "'yes'"))
    project.pytester.makepyfile(
        watching="""
class Watching:
    quitting = False

    def __init__(self, **_): pass

    def reset(self): pass

    def interaction(self, _, trace):
        trace = getattr(trace, "__traceback__", trace)  # 3.13 gives the exception
        while trace.tb_next:
            trace = trace.tb_next
        locals = trace.tb_frame.f_locals
        print(f"<{trace.tb_frame.f_code.co_name}: {locals['reply'].text}>")
"""
    )
    result = project.run_apart("-n0", "-s", "--pdb", "--pdbcls=watching:Watching")
    result.stdout.fnmatch_lines(["*<test_it: no>*"])


@pytest.mark.slow
def test_killed_run_is_resumed_with_the_results_of_its_tests(project):
    write(
        project,
        """
import pytest

@pytest.mark.parametrize("prompt", ["say yes", "say no", "later yes"])
async def test_it(llm, prompt, grade):
    reply = await llm.chat(prompt)
    grade(reply.text == "yes", length=len(reply.text))
    assert reply.text == "yes"
""",
    )
    with Running(project.pytester.path, "-n2") as running:
        wait_until(lambda: "1 solved, 1 failed" in running.output or _n_ended(project) == 2)
        running.kill()
    assert sorted(project.server.prompts) == ["later yes", "say no", "say yes"]
    project.run("-n0", "--ultrapar-resume=latest")
    assert sorted(project.server.prompts) == ["later yes", "later yes", "say no", "say yes"]
    assert {name: (row["outcome"], row["test"]) for name, row in kept(project).items()} == {
        "test_it[m-say yes-r0]": ("solved", "passed"),
        "test_it[m-say no-r0]": ("unsolved", "failed"),
        "test_it[m-later yes-r0]": ("solved", "passed"),
    }


@pytest.mark.slow
def test_session_fixtures_are_set_up_before_the_first_request(project, workers):
    write(
        project,
        """
import os
import pytest

@pytest.fixture(scope="session", autouse=True)
def autouse(): os.environ["AUTOUSE"] = "yes"

@pytest.fixture(scope="session")
def used(autouse): os.environ["USED"] = os.environ["AUTOUSE"]

@pytest.fixture(scope="session")
def named(used): return os.environ["USED"]

@pytest.mark.usefixtures("used")
@pytest.mark.parametrize("prompt", ["say one", "say two"])
async def test_used(llm, prompt):
    assert os.environ["USED"] == "yes"
    await llm.chat(prompt)

async def test_named(llm, named):
    assert (await llm.chat("say yes")).text == named
""",
    )
    said_by(project.run(workers), 0)
    assert set(project.outcomes().values()) == {"solved"}


@pytest.mark.slow
def test_options_of_pytest_and_the_plugin_apply_to_async_tests(project, workers):
    write(project, ONE.replace("WANTED", "'yes'") + "\nasync def test_other(llm): assert False\n")
    chosen = (workers, "-k", "test_it")
    project.run(*chosen, "--ultrapar-repeats=2", "--junitxml=junit.xml")
    assert project.outcomes() == {
        "test_it[m-say yes-r0]": "solved",
        "test_it[m-say yes-r1]": "solved",
        "test_it[m-say no-r0]": "unsolved",
        "test_it[m-say no-r1]": "unsolved",
    }
    (suite,) = ElementTree.parse(project.pytester.path / "junit.xml").getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("4", "2")
    (failed, *_) = suite.iter("failure")
    assert failed.get("message") == "AssertionError: assert 'no' == 'yes'\n  \n  - yes\n  + no"
    n_sent = len(project.server.prompts)
    for shard in ("1/2", "2/2"):
        project.run(*chosen, f"--ultrapar-shard={shard}", f"--ultrapar-out=shard-{shard[0]}")
    assert len(project.server.prompts) == n_sent + 2


def _n_ended(project):
    journal = project.directory / "journal"
    return sum(path.read_text().count('"type":"ended"') for path in journal.glob("*.jsonl"))


def test_output_logs_and_return_values_of_async_tests_are_reported_as_usual(project):
    write(
        project,
        """
import logging

async def test_it(llm):
    print("printed here")
    logging.warning("logged here")
    await llm.chat("say yes")
    assert False

async def test_returns(llm):
    await llm.chat("say yes")
    return 1.5

def test_plain(): return 1.5
""",
    )
    for more in ((), ("--ultrapar-resume=latest",)):
        result = project.run("-n0", "-Wdefault", *more)
        said = result.stdout.str()
        lines = said.splitlines()
        for when, text in (("stdout", "printed here"), ("log", "logged here")):
            (at,) = [n for n, line in enumerate(lines) if f"- Captured {when} call -" in line]
            assert text in lines[at + 1]
        for name in ("test_plain", "test_returns[m-r0]"):
            assert any("Warning: " in line and f"::{name} returned" in line for line in lines)


WARNS = """
import warnings
import pytest

async def nothing(): pass

async def test_it(llm):
    await llm.chat("say yes")
    nothing()

async def test_old(llm):
    await llm.chat("say yes")
    warnings.warn("old thing", DeprecationWarning)

async def test_skips(llm):
    await llm.chat("say yes")
    pytest.skip("no need")
"""


def test_warnings_of_async_tests_are_in_the_summary_and_skips_have_their_line(project, workers):
    write(project, WARNS)
    result = project.run(workers, "-rs", "-Wdefault")
    at = [line.split(":")[-2:] for line in result.outlines if "Warning: " in line]
    assert sorted(at) == [
        [" DeprecationWarning", " old thing"],
        [" RuntimeWarning", " coroutine 'nothing' was never awaited"],
    ]
    result.stdout.fnmatch_lines(["SKIPPED [[]1] test_suite.py:*: no need"])


def test_warning_that_is_an_error_fails_its_async_test(project):
    write(project, WARNS)
    result = project.run("-n0", "-Werror::DeprecationWarning")
    said_by(result, 1)
    assert {row["test_name"]: row["outcome"] for row in project.rows()}["test_old"] == "error"


def test_error_of_prefetch_on_a_test_says_what_to_write(project):
    project.suite("@prefetch\nasync def test_it(llm) -> str:\n    return 'a'\n")
    said = project.refusal(project.run("-n0"))
    assert "'test_it' is named like a test. Leave out @prefetch (an async test" in said


def test_large_lists_and_dicts_are_not_compared_whole_on_the_loop(project, monkeypatch):
    write(
        project,
        """
import pytest

@pytest.mark.parametrize("form", [list, lambda lines: dict(enumerate(lines))])
async def test_it(llm, form):
    lines = [f"{n} of what {(await llm.chat('say yes')).text} said" for n in range(2)] * 150
    other = [line.replace("of", "in") if n > 90 else line for n, line in enumerate(lines)]
    assert form(lines) == form(other)
""",
    )
    monkeypatch.setenv("CI", "1")  # if pytest shows whole differences
    said = project.run("-n0", "-vv").stdout.str()
    assert "At index 91 diff: '1 of what yes said' != '1 in what yes said'" in said
    assert (
        said.count(
            "E         The full diff is left out: computing it would delay all other episodes"
        )
        == 2
    )
