"""Features of pytest keep working next to cases that run ahead."""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.plugin.conftest import cases, section

CONFTEST = """
import os
from pathlib import Path
import pytest

EVENTS = Path(__file__).parent / "events"
EVENTS.mkdir(exist_ok=True)

def note(text):
    with EVENTS.joinpath(os.environ.get("PYTEST_XDIST_WORKER", "main")).open("a") as file:
        file.write(text + "\\n")

@pytest.fixture(scope="session")
def base():
    print("base fixture prints")
    note("base up")
    yield "base"
    note("base down")

@pytest.fixture(scope="session")
def shared(base):
    note("shared up")
    yield base + " shared"
    note("shared down")

@pytest.fixture(scope="session")
def broken():
    raise RuntimeError("the fixture is broken")

@pytest.fixture(scope="session")
def skipping():
    pytest.skip("not on this machine")
"""

MIXED = """
import logging, sys
from conftest import note

@prefetch
async def spoken(llm, prompt, shared) -> str:
    note(f"episode {prompt} {shared}")
    print("<printed by", prompt + ">")
    print("<complained by", prompt + ">", file=sys.stderr)
    logging.getLogger("suite").warning("<logged by %s>", prompt)
    return (await llm.chat([{"role": "user", "content": prompt}])).text

@prefetch
async def on_broken(llm, prompt, broken) -> str:
    return (await llm.chat([{"role": "user", "content": prompt}])).text

@prefetch
async def on_skipping(llm, prompt, skipping) -> str:
    return (await llm.chat([{"role": "user", "content": prompt}])).text

@pytest.fixture(scope="module", params=["A", "B"])
def place(request):
    note(f"place {request.param} up")
    yield request.param
    note(f"place {request.param} down")

@pytest.mark.parametrize("prompt", ["say p1", "say p2", "say p3"])
def test_passes(spoken, place):
    print("<test prints>")

@pytest.mark.parametrize("prompt", ["say f1", "say f2"])
def test_fails(spoken):
    print("<test prints", spoken + ">")
    assert spoken == "no"

def test_plain():
    pass

def test_plain_fails():
    assert "plain" == "no"

class TestGroup:
    @pytest.mark.parametrize("prompt", ["say method"])
    def test_method(self, spoken):
        assert spoken == "method"

@pytest.mark.parametrize("prompt", ["say never"])
class TestMarked:
    @pytest.mark.skip(reason="by mark")
    def test_skip(self, spoken): ...

    @pytest.mark.skipif("sys.version_info > (3,)", reason="by condition")
    def test_skipif(self, spoken): ...

    @pytest.mark.xfail(run=False, reason="not run")
    def test_xfail_not_run(self, spoken): ...

@pytest.mark.parametrize("prompt", ["say expected"])
@pytest.mark.xfail(reason="known")
def test_xfail(spoken):
    assert spoken == "no"

@pytest.mark.parametrize("prompt", ["say never"])
def test_on_broken(on_broken): ...

@pytest.mark.parametrize("prompt", ["say never"])
def test_on_skipping(on_skipping): ...

@pytest.mark.parametrize("prompt", ["slow 0.3 late"])
def test_slow(answer):
    assert answer == "late"

@pytest.mark.parametrize("prompt", ["garbage"])
def test_infra(answer): ...
"""


def events(project) -> dict[str, list[str]]:
    folder = project.pytester.path / "events"
    return {path.name: path.read_text().splitlines() for path in sorted(folder.iterdir())}


@pytest.mark.slow
def test_mixed_suite_runs_as_pytest_runs_it(project, workers):
    project.pytester.makeconftest(CONFTEST)
    project.suite(MIXED)
    options = ("--junitxml=junit.xml", "--durations=3", "-rA", "-W", "error")
    result = project.run(workers, "--ultrapar-max-attempts=1", *options)
    output, errors = result.stdout.str(), result.stderr.str()
    assert result.ret == 1
    # Cases are shown by their outcomes, plain tests by pytest's words.
    result.assert_outcomes(failed=3, passed=1, skipped=3, xfailed=2, errors=1)
    assert {word: result.parseoutcomes()[word] for word in ("solved", "infra")} == {
        "solved": 8,
        "infra": 1,
    }
    assert "say never" not in project.server.prompts
    sent = Counter(project.server.prompts)
    assert sent == {
        "say p1": 2,
        "say p2": 2,
        "say p3": 2,
        "say f1": 1,
        "say f2": 1,
        "say method": 1,
        "say expected": 1,
        "slow 0.3 late": 1,
        "garbage": 1,
    }

    # Output and logs of an episode appear with its own item, and nowhere else.
    for name, other in (("f1", "f2"), ("f2", "f1")):
        shown = section(output, f"test_fails[m-say {name}-r0]")
        for how in ("printed", "complained", "logged"):
            assert shown.count(f"<{how} by say {name}>") == 1
        assert f"<test prints {name}>" in shown
        assert f"say {other}>" not in shown
    assert "<" not in section(output, "test_plain_fails")
    assert " by say " not in errors
    before_reports = output.partition("= ERRORS =")[0]
    assert "<printed" not in before_reports
    assert "fixture prints" not in before_reports
    assert "RuntimeError: the fixture is broken" in section(
        output, "ERROR at setup of test_on_broken[m-say never-r0]"
    )
    assert "Warning" not in output + errors

    # Fixtures: once per process and parameter, before the first episode, torn down at the end.
    for lines in events(project).values():
        assert lines[:2] == ["base up", "shared up"]
        assert lines[-2:] == ["shared down", "base down"]
        assert all(line.endswith(" base shared") for line in lines if line.startswith("episode"))
        counts = Counter(line for line in lines if not line.startswith("episode"))
        assert counts["base up"] == counts["shared up"] == 1
        if workers == "-n0":
            places = {line: n for line, n in counts.items() if line.startswith("place")}
            assert places == {f"place {name} {way}": 1 for name in "AB" for way in ("up", "down")}
        for name in "AB":
            assert counts[f"place {name} up"] == counts[f"place {name} down"]
    assert len(events(project)) == (1 if workers == "-n0" else 2)

    check_junit(project.pytester.path / "junit.xml")
    slowest = output.partition("slowest 3 durations")[2]
    assert "test_slow[m-slow 0.3 late-r0]" in slowest


def check_junit(path: Path) -> None:
    """Valid XML with pytest's result of each case, including latency."""
    suite = ET.parse(path).getroot().find("testsuite")
    assert suite is not None
    assert {name: suite.get(name) for name in ("tests", "errors", "failures", "skipped")} == {
        "tests": "19",
        "errors": "1",
        "failures": "3",
        "skipped": "6",
    }
    cases = {element.get("name"): element for element in suite.iter("testcase")}
    infra = cases["test_infra[m-garbage-r0]"].find("skipped")
    assert infra is not None
    assert "infra: malformed" in infra.get("message", "")
    assert float(cases["test_slow[m-slow 0.3 late-r0]"].get("time", "0")) >= 0.3
    assert cases["test_slow[m-slow 0.3 late-r0]"].find("skipped") is None
    failure = cases["test_fails[m-say f1-r0]"].find("failure")
    assert failure is not None
    assert "assert 'f1' == 'no'" in failure.get("message", "")


SELECTABLE = """
@pytest.mark.parametrize("prompt", ["say a", "say b", "say c"])
def test_first(answer):
    assert answer in "ab"

@pytest.mark.nightly
@pytest.mark.parametrize("prompt", ["say d"])
def test_second(answer): pass

def test_plain(): pass
"""


@pytest.mark.slow
def test_selection_sends_only_selected_cases(project):
    project.pytester.makeini("[pytest]\nmarkers = nightly: by night\n")
    project.suite(SELECTABLE)
    assert project.run("-n0", "-m", "nightly").ret == 0
    assert project.server.prompts == ["say d"]
    project.server.reset()
    cache = ("-p", "_pytest.cacheprovider")
    first = project.run("-n0", *cache, "-k", "first or plain")
    first.assert_outcomes(failed=1, passed=1)
    assert sorted(project.server.prompts) == ["say a", "say b", "say c"]
    project.server.reset()
    again = project.run("-n2", *cache, "--lf")
    again.assert_outcomes(failed=1)
    assert project.server.prompts == ["say c"]
    project.server.reset()
    assert project.run("-n0", "-k", "no_such_test").ret == 5
    assert project.server.prompts == []


@pytest.mark.slow
def test_listing_sends_nothing_and_starts_nothing(project):
    project.suite(SELECTABLE.replace("@pytest.mark.nightly", ""))
    listed = [
        "test_suite.py::test_first[m-say a-r0]",
        "test_suite.py::test_first[m-say b-r0]",
        "test_suite.py::test_first[m-say c-r0]",
        "test_suite.py::test_second[m-say d-r0]",
        "test_suite.py::test_plain",
    ]
    result = project.run("--collect-only", "-q", "-n2")
    assert result.ret == 0
    assert result.outlines[: len(listed)] == listed
    without_pool = project.run("--co", "-q", pool=False)
    assert without_pool.ret == 0
    assert [line for line in without_pool.outlines if "::" in line] == [
        "test_suite.py::test_first[say a]",
        "test_suite.py::test_first[say b]",
        "test_suite.py::test_first[say c]",
        "test_suite.py::test_second[say d]",
        "test_suite.py::test_plain",
    ]
    assert project.server.prompts == []
    assert not (project.pytester.path / ".ultrapar").exists()


def test_maxfail_stops_the_run(project, workers):
    project.write_pool(key=", qps = 5")
    project.suite(cases(60, 'assert answer == "never"'))
    result = project.run(workers, "--maxfail=2")
    # As in pytest itself: 1 in one process, 2 from xdist, which interrupts its loop.
    assert result.ret == (1 if workers == "-n0" else 2)
    result.stdout.fnmatch_lines(["*stopping after 2 failures*"])
    failed = result.parseoutcomes()["failed"]
    assert 2 <= failed <= (2 if workers == "-n0" else 4)
    assert len(project.server.prompts) < 30
    graded = [row for row in project.rows() if row["outcome"] == "unsolved"]
    assert len(graded) >= 2
    result.stdout.fnmatch_lines(["stopped early: * of 60 cases have a result*"])
    result.stdout.no_fnmatch_line("FAILED: *")


@pytest.mark.skipif(not hasattr(pytest, "Subtests"), reason="pytest has subtests since 9.0")
def test_failed_subtest_fails_its_case(project, workers):
    project.suite(
        """
@pytest.mark.parametrize("prompt", ["say a", "say b"])
def test_parts(answer, subtests):
    with subtests.test("is a letter"):
        assert answer in "ab"
    with subtests.test("is the right one"):
        print("<subtest prints>")
        assert answer == "a"
    with subtests.test("is the last one"):
        pytest.skip("not asked")

@pytest.mark.parametrize("prompt", ["say a"])
def test_parts_raise(answer, subtests):
    with subtests.test("is there"):
        {}[answer]

@pytest.mark.parametrize("prompt", ["say b"])
def test_parts_are_graded(answer, subtests, grade):
    grade("partial")
    with subtests.test("is the right one"):
        assert answer == "a"
"""
    )
    result = project.run(workers)
    assert result.ret == 1
    found = {row["nodeid"].split("::")[1]: (row["outcome"], row["test"]) for row in project.rows()}
    assert found == {
        "test_parts[m-say a-r0]": ("solved", "passed"),
        "test_parts[m-say b-r0]": ("unsolved", "failed"),
        "test_parts_raise[m-say a-r0]": ("error", "failed"),
        "test_parts_are_graded[m-say b-r0]": ("partial", "failed"),
    }
    # As pytest counts them: each failed subtest, and the test that contains it.
    assert result.parseoutcomes() == {"failed": 5, "errors": 1, "solved": 1}
    assert "contains 1 failed subtest" in result.stdout.str()


@pytest.mark.parametrize("option", ["--setup-plan", "--fixtures", "--fixtures-per-test"])
def test_listing_fixtures_sends_nothing_and_starts_nothing(project, option):
    project.suite(SELECTABLE.replace("@pytest.mark.nightly", ""))
    result = project.run_here(option, "-q")
    assert result.ret == 0
    assert "answer" in result.stdout.str()
    assert "ultrapar:" not in result.stdout.str()
    assert project.server.prompts == []
    assert not (project.pytester.path / ".ultrapar").exists()


@pytest.mark.slow
def test_value_that_xdist_cannot_serialize_is_reported_as_without_a_pool(project):
    project.suite("""
import numpy as np

@pytest.mark.parametrize("prompt", ["say a"])
def test_score(answer, record_property):
    record_property("score", np.float64(0.5))
""")
    result = project.run("-n1", "--junitxml=out.xml")
    assert result.ret != pytest.ExitCode.OK
    result.stdout.fnmatch_lines("*can't serialize <class 'numpy.float64'>*")


def test_plugins_see_every_fixture_and_the_location_of_each_test(project, workers):
    project.pytester.makeconftest("""
import json, os, pytest
from pathlib import Path

def note(*said):
    with Path("seen").open("a") as file:
        file.write(json.dumps(said) + "\\n")

@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef, request):
    value = yield
    note("set up", request.node.name, fixturedef.argname, str(value))
    return value

def pytest_fixture_post_finalizer(fixturedef, request):
    note("torn down", request.node.name, fixturedef.argname)

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    path, line, name = item.reportinfo()
    assert item.location == (os.path.relpath(path, item.config.rootpath), line, name)
    assert item.ihook is item.session.gethookproxy(item.path)
    note("stands", *item.location)
""")
    project.suite("""
@pytest.fixture
def about(request, n):
    return f"{request.node.name} {request.param if hasattr(request, 'param') else n}"

@pytest.mark.parametrize(("prompt", "n"), [("say a", 1), ("say b", None)])
def test_it(answer, about): pass

class TestGroup:
    @pytest.mark.parametrize("prompt", ["say a", "say b"])
    def test_in_class(self, answer): pass
""")
    project.run(workers).assert_outcomes()
    lines = (project.pytester.path / "seen").read_text().splitlines()
    seen = Counter(json.loads(line)[0] for line in lines)
    said = {tuple(json.loads(line)) for line in lines}
    assert {place[3] for place in said if place[0] == "stands"} == {
        "test_it[m-say a-1-r0]",
        "test_it[m-say b-None-r0]",
        "TestGroup.test_in_class[m-say a-r0]",
        "TestGroup.test_in_class[m-say b-r0]",
    }
    name = "test_it[m-say b-None-r0]"
    fixtures = {"model": "m", "prompt": "say b", "n": "None"}
    fixtures |= {"answer": "b", "about": f"{name} None"}
    assert {(one[2], one[3]) for one in said if one[:2] == ("set up", name)} == {*fixtures.items()}
    assert {one[2] for one in said if one[:2] == ("torn down", name)} == {*fixtures}
    assert seen["set up"] == 2 * 5 + 2 * 3
    # pytest 8.3 reports the teardown of a fixture twice.
    assert seen["torn down"] >= seen["set up"]


@pytest.mark.slow
def test_conftest_that_only_watches_fixtures_sees_parametrised_values_too(project):
    project.pytester.makeconftest("""
from pathlib import Path

def pytest_fixture_setup(fixturedef):
    with Path("seen").open("a") as file:
        file.write(fixturedef.argname + "\\n")
""")
    project.suite("""
@pytest.mark.parametrize(("prompt", "n"), [("say a", 1), ("say b", None)])
def test_it(answer, n): pass
""")
    project.run("-n0").assert_outcomes()
    seen = Counter((project.pytester.path / "seen").read_text().split())
    assert {name: seen[name] for name in ("model", "prompt", "n", "answer")} == {
        "model": 2,
        "prompt": 2,
        "n": 2,
        "answer": 2,
    }


def test_cases_get_their_values_if_no_plugin_watches_fixtures(project):
    """Each case gets its own, also next to wider fixtures and after a case without a value."""
    project.suite("""
import asyncio

@prefetch
async def said(llm, prompt) -> str:
    if prompt == "fail":
        await asyncio.sleep(0.1)  # after those that have a value
        raise RuntimeError("no value")
    return (await llm.chat([{"role": "user", "content": prompt}])).text

@pytest.fixture(scope="module")
def wide(place):
    return f"wide {place}"

@pytest.fixture
def narrow(prompt, said, grade):
    return f"narrow {prompt} {said} {type(grade).__name__}"

@pytest.mark.parametrize("place", ["here", "there"], scope="module")
@pytest.mark.parametrize("prompt", ["say a", "fail", "say b"])
def test_it(place, prompt, said, wide, narrow, request, grade):
    assert wide == f"wide {place}"
    assert narrow == f"narrow {prompt} {said} Grader"
    assert said == prompt.removeprefix("say ") == request.getfixturevalue("said")
    grade(True)
""")
    project.run("-n0").assert_outcomes(errors=2)
    assert Counter(row["outcome"] for row in project.rows()) == {"solved": 4, "error": 2}


def test_request_is_passed_without_reading_its_signature(project):
    project.suite("""
@pytest.mark.parametrize("prompt", ["say a", "say b"])
def test_it(answer, prompt, request):
    assert request.node.callspec.params["prompt"] == prompt
    assert request.getfixturevalue("answer") == answer
""")
    with patch("_pytest.fixtures.RequestFixtureDef", None, create=True):
        project.run("-n0")
    assert [row["outcome"] for row in project.rows()] == ["solved"] * 2


@pytest.mark.cpu_s(3)
def test_workers_keep_no_reports(project):
    project.pytester.makeconftest("""
def pytest_sessionfinish(session):
    if hasattr(session.config, "workerinput"):
        reporter = session.config.pluginmanager.getplugin("terminalreporter")
        session.config.workeroutput["kept"] = [*reporter.stats]

def pytest_testnodedown(node):
    print(node.workerinput["workerid"], "kept", node.workeroutput["kept"])
""")
    project.suite(cases(4))
    done = project.run("-n2", "-s")
    done.stdout.fnmatch_lines_random([f"*gw{n} kept [[][]]" for n in range(2)])
    done.stdout.fnmatch_lines(["*4 solved*"])


LOADERS = """
import sys

OWN = ("conftest", "pytest_ultrapar.engine.engine", "pytest_ultrapar.pool.model")

def pytest_sessionfinish():
    print()
    for name in OWN:
        print(name, type(sys.modules[name].__spec__.loader).__name__)
"""


@pytest.mark.slow
def test_asserts_of_suites_are_rewritten_but_not_those_in_this_package(project):
    project.pytester.makeconftest(LOADERS)
    project.suite(cases(["say a"], "assert len(answer) == 3"))
    done = project.run_apart("-s", "-n0")
    done.stdout.fnmatch_lines(["E * assert 1 == 3"])
    done.stdout.fnmatch_lines(
        [
            "conftest AssertionRewritingHook",
            "pytest_ultrapar.engine.engine SourceFileLoader",
            "pytest_ultrapar.pool.model SourceFileLoader",
        ]
    )


@pytest.mark.slow
def test_module_finders_are_restored_when_pytest_has_ended(project):
    script = (
        "import sys; before = [*sys.meta_path]; import pytest;"
        "assert pytest.main(['--collect-only', '-q']) == pytest.ExitCode.NO_TESTS_COLLECTED;"
        "assert 'pytest_ultrapar.session.own_imports' in sys.modules;"
        "assert sys.meta_path == before, sys.meta_path"
    )
    done = project.pytester.run(sys.executable, "-c", script)
    assert done.ret == 0


@pytest.mark.slow
def test_a_nested_run_keeps_the_finders_of_the_outer_one(project):
    project.pytester.makepyfile(
        test_nested="""
import sys
import pytest

def test_nested(tmp_path):
    before = [*sys.meta_path]
    # One run that is configured, and one that is not.
    for options in (["--collect-only"], ["--no-such-option"]):
        pytest.main([*options, "-q", "--rootdir", str(tmp_path), str(tmp_path)])
    assert sys.meta_path == before
"""
    )
    done = project.pytester.runpytest_subprocess("-q")
    done.assert_outcomes(passed=1)


def test_run_works_without_the_optional_plugins_of_pytest(project):
    project.suite(cases(["say a"]))
    names = ("setuponly", "setupplan", "skipping", "capture", "junitxml", "debugging", "terminal")
    result = project.run("-n0", *(f"-pno:{name}" for name in names))
    assert result.ret == 0, result.stderr.str()
    assert list(project.outcomes().values()) == ["solved"]
