"""Suites as users write them: parameters of any type, files of the same name, runs that grow."""

from __future__ import annotations

import json
import signal
from collections import Counter

import pytest

from pytest_ultrapar.analysis.compaction import compact
from pytest_ultrapar.store.cases_file import read_cases
from tests.plugin.conftest import cases, refused, said_by

OBJECTS = """
import dataclasses, enum, threading
import numpy as np

class K:
    def __init__(self, x): self.x = x

@dataclasses.dataclass
class Record:
    tags: set
    lock: object = dataclasses.field(default_factory=threading.Lock)

@prefetch
async def said(llm, value) -> str:
    return (await llm.chat([{"role": "user", "content": "say it"}])).text

@pytest.mark.parametrize("value", VALUES)
def test_it(said, value, grade):
    grade(said == "it")
"""
VALUES = {
    # strands-labs/robots#3823, openedx/openedx-platform#18771
    "instances": ("[K(1), K(2)]", ["K", "K"]),
    "checkers": ("[{'q': 'x', 'check': lambda s: True}]", ['{"q": "x", "check": "<lambda>"}']),
    "sets": ("[{'a', 'b', 'c', 'd'}]", ['["a", "b", "c", "d"]']),
    "lists of instances": ("[[K(1)]]", ['["K"]']),
    # tenstorrent/tt-metal#54015: a factory in place of the value
    "functions": ("[len, lambda: K(1)]", ["len", "<lambda>"]),
    # pytest-dev/pytest-xdist#432: objects whose content no other process can repeat
    "records": (
        "[Record({'x', 'y', 'z'}), threading.Lock(), object()]",
        ['{"tags": ["x", "y", "z"], "lock": "lock"}', "lock", "object"],
    ),
    "numbers of numpy": ("[np.float64(0.5), np.arange(3)]", [0.5, "[0 1 2]"]),
}


@pytest.mark.parametrize("kind", VALUES)
def test_parameters_without_a_stable_text_are_recorded_by_type(project, kind):
    values, kept = VALUES[kind]
    project.suite(OBJECTS.replace("VALUES", values))
    assert project.run("-n0").ret == 0
    found = [case.params["value"] for case in read_cases(project.directory)]
    assert found == kept


@pytest.mark.slow
def test_parameters_without_a_stable_text_work_with_workers_and_in_a_resume(project):
    every = ", ".join(values.strip("[]") for values, _ in VALUES.values() if "[[" not in values)
    project.suite(OBJECTS.replace("VALUES", f"[{every}, [K(1)], K(3)]"))
    assert project.run("-n2").ret == 0
    n_sent = len(project.server.prompts)
    assert n_sent == len(project.rows()) > 10
    for workers in ("-n0", "-n2", "-n0"):
        resumed = project.run(workers, "--ultrapar-resume=latest")
        assert f"{n_sent} finished episodes resumed\n" in said_by(resumed, 0)
    assert len(project.server.prompts) == n_sent


IN_NO_ORDER = {
    # pytest-dev/pytest#596, pytest-dev/pytest-xdist#598
    "a set": ("{f'say {n}' for n in range(40)}", "", "parameter 'prompt' is 'say "),
    # pytest-dev/pytest-xdist#63
    "drawn at random": ("[__import__('random').random()]", "", "parameter 'prompt' is 0."),
    "ids with addresses": ("[object()]", "ids=repr", "parameter 'prompt' is 'object' (content "),
    "objects that change places": (
        "[Item(n) for n in __import__('random').sample(range(40), 40)]",
        "ids=str",
        "parameter 'prompt' is 'Item' (content ",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", IN_NO_ORDER)
def test_tests_that_differ_between_workers_are_refused_in_one_sentence(project, kind):
    values, ids, message = IN_NO_ORDER[kind]
    if ids == "ids=str":
        ids = "ids=map(str, range(40))"
    body = cases(1).replace("['say 0']", f"{values}, {ids}")
    project.suite("class Item:\n    def __init__(self, n): self.n = n\n" + body)
    result = project.run("-n2")
    said = project.refusal(result)
    assert "the tests are not the same in all worker processes: " in said
    assert message in said
    assert " in one process, " in said
    assert len([line for line in said.splitlines() if line]) == 1


THEIR_OWN = """
import os
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
OWN = [f"say {n}" for n in ((0, 1) if WORKER in WORKERS else (1, 0))]
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("alone", "ids"), [("['gw0']", ""), ("['gw1', 'gw2']", ", ids=['one', 'other']")]
)
def test_tests_that_differ_between_workers_are_refused_on_resume_as_in_a_new_run(
    project, alone, ids
):
    suite = THEIR_OWN + cases(2).replace("['say 0', 'say 1']", f"OWN{ids}")
    project.suite(suite.replace("WORKERS", "['gw0', 'gw1', 'gw2']"))
    assert project.run("-n3").ret == 0
    project.suite(suite.replace("WORKERS", alone))
    said = refused(project.run("-n3", "--ultrapar-resume=latest"))
    assert "the tests are not the same in all worker processes: parameter 'prompt' is " in said
    assert " in one process, " in said
    assert len(project.server.prompts) == 2


@pytest.mark.slow
def test_plain_tests_that_differ_between_workers_are_refused_in_one_sentence(project):
    project.suite(
        cases(2)
        + "import os\n@pytest.mark.parametrize('p', [os.getpid()])\ndef test_plain(p): pass\n"
    )
    said = project.refusal(project.run("-n2"))
    assert "one process collected test_suite.py::test_plain[" in said
    assert len([line for line in said.splitlines() if line]) == 1


@pytest.mark.slow
def test_set_of_parameters_in_one_process_is_resumed_in_any_order(project):
    project.suite(cases(1).replace("['say 0']", "{f'say {n}' for n in range(12)}"))
    assert project.run_apart("-n0").ret == 0
    for _ in range(2):
        assert project.run_apart("-n0", "--ultrapar-resume=latest").ret == 0
    assert len(project.server.prompts) == 12


# -- resumed runs that were added to, in another order ---------------------------------------------

SHUFFLED = """
import random, pytest

@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    random.Random({seed}).shuffle(items)
"""


@pytest.mark.parametrize("n_then", [6, 8])
def test_resume_sends_added_cases_in_any_order(project, n_then):
    conftest = project.pytester.path / "conftest.py"
    conftest.write_text(SHUFFLED.format(seed=1))
    project.suite(cases(n_then))
    assert project.run("-n0").ret == 0
    conftest.write_text(SHUFFLED.format(seed=2))
    project.suite(cases(8))
    resumed = project.run("-n0", "--ultrapar-resume=latest", "--ultrapar-repeats=2")
    assert f"{n_then} finished episodes resumed\n" in said_by(resumed, 0)
    assert Counter(project.server.prompts) == Counter(f"say {n}" for n in [*range(8)] * 2)
    assert [row["outcome"] for row in project.rows()] == ["solved"] * 16
    files = {path.name for path in project.directory.iterdir()}
    assert "cases.json" in files
    assert "cases.next.json" not in files


@pytest.mark.slow
def test_resume_with_workers_sends_added_cases_in_any_order(project):
    conftest = project.pytester.path / "conftest.py"
    project.suite(cases(6))
    assert project.run("-n2").ret == 0
    for seed, n in ((1, 6), (2, 9), (3, 9)):
        conftest.write_text(SHUFFLED.format(seed=seed))
        project.suite(cases(n))
        assert project.run("-n2", "--ultrapar-resume=latest").ret == 0
    assert Counter(project.server.prompts) == Counter(f"say {n}" for n in range(9))
    assert len(project.rows()) == 9


@pytest.mark.slow
def test_failed_first_runs_the_failed_tests_first_and_is_resumed(project):
    # pytest-dev/pytest-randomly#376, pytest-dev/pytest-random-order#46
    project.suite(cases([f"{'context' if n == 2 else 'say'} {n}" for n in range(4)], "assert 0"))
    first = project.pytester.runpytest_inprocess("--ultrapar-pool=pool.toml", "-n0", "--ff")
    assert first.ret == 1
    again = project.pytester.runpytest_inprocess(
        "--ultrapar-pool=pool.toml", "-n0", "--ff", "--ultrapar-resume=latest"
    )
    assert "cannot be finished" not in said_by(again, 1)
    assert len(project.server.prompts) == 4


def test_resume_with_missing_cases_is_refused_and_the_run_stays_unchanged(project):
    project.suite(cases(4))
    assert project.run("-n0").ret == 0
    kept = ("cases.json", "manifest.json", "results.parquet")
    before = [(project.directory / name).read_bytes() for name in kept]
    project.suite(cases(["say 0", "say 1", "say 2", "say 4"]))
    said = refused(project.run("-n0", "--ultrapar-resume=latest"))
    assert "(4 then, 4 now; missing: test_suite.py::test_it[m-say 3-r0]; new: " in said
    assert [(project.directory / name).read_bytes() for name in kept] == before
    assert not (project.directory / "cases.next.json").exists()
    project.suite(cases(5))
    assert project.run("-n0", "--ultrapar-resume=latest").ret == 0
    assert project.server.prompts[4:] == ["say 4"]


KILLED = """
import os, signal
from pytest_ultrapar.coordinator import run

def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def pytest_collection_finish():
    run.{step} = killed
"""


@pytest.mark.slow
@pytest.mark.parametrize("step", ["write_manifest", "cases_file.settle_cases"])
def test_resume_can_be_killed_while_its_plan_replaces_the_earlier_one(project, step):
    project.suite(cases(3))
    assert project.run("-n0").ret == 0
    project.suite(cases(["say 4", "say 2", "say 1", "say 0"]))
    conftest = project.pytester.path / "conftest.py"
    conftest.write_text(KILLED.format(step=step))
    assert project.run_apart("-n0", "--ultrapar-resume=latest").ret == -signal.SIGKILL
    is_named = step == "cases_file.settle_cases"
    assert len(read_cases(project.directory)) == (4 if is_named else 3)
    compact(project.directory.resolve())
    conftest.unlink()
    project.finish(4)
    assert project.server.prompts[3:] == ["say 4"]
    assert not (project.directory / "cases.next.json").exists()


# -- data that changed under the same ids ----------------------------------------------------------

DATA = """
import json, pathlib

class Item:
    def __init__(self, name, question): self.name, self.question = name, question

ITEMS = [Item(**one) for one in json.loads(pathlib.Path(__file__).with_name("data").read_text())]

@prefetch
async def said(llm, item) -> str:
    return (await llm.chat([{"role": "user", "content": "say " + item.question}])).text

@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.name)
def test_it(said, item, grade):
    grade(said == item.question)
"""
PLAIN = """
import json, pathlib

ITEMS = json.loads(pathlib.Path(__file__).with_name("data").read_text())

@pytest.mark.parametrize("prompt", [f"say {one['question']}" for one in ITEMS],
                         ids=[one["name"] for one in ITEMS])
def test_it(answer, prompt, grade):
    grade(answer == prompt.removeprefix("say "))
"""


def write_data(project, *questions: str) -> None:
    items = [{"name": f"t{n}", "question": word} for n, word in enumerate(questions)]
    (project.pytester.path / "data").write_text(json.dumps(items))


SAID_BY_FUNCTION = """
@prefetch
async def said(llm, function) -> str:
    return (await llm.chat([{{"role": "user", "content": f"say {{function(3)}}"}}])).text

@pytest.mark.parametrize("function", [{}])
def test_it(said, function, grade):
    grade(said == str(function(3)))
"""


def test_swapped_functions_count_as_changed_data(project):
    project.suite(SAID_BY_FUNCTION.format("lambda x: x + 27, lambda x: x * 11"))
    assert project.run("-n0").ret == 0
    project.suite("\n\n" + SAID_BY_FUNCTION.format("lambda x: x + 27, lambda x: x * 11"))
    assert project.run("-n0", "--ultrapar-resume=latest").ret == 0
    project.suite(SAID_BY_FUNCTION.format("lambda x: x * 11, lambda x: x + 27"))
    said = refused(project.run("-n0", "--ultrapar-resume=latest"))
    assert "(the first of 2 changed cases) have changed: parameter 'function'" in said
    assert len(project.server.prompts) == 2


CHANGED = "the data of test_suite.py::test_it[m-t1-r0] have changed: parameter"
FIRST_CHANGED = CHANGED.replace(" have", " (the first of 2 changed cases) have")


@pytest.mark.parametrize(("suite", "name"), [(DATA, "item"), (PLAIN, "prompt")])
def test_changed_data_are_refused_and_the_error_says_how_to_continue(project, suite, name):
    # promptfoo/promptfoo#10893; letta-ai/letta-evals#19, EleutherAI/lm-evaluation-harness#4105
    project.suite(suite)
    write_data(project, "a", "b", "c")
    assert project.run("-n0").ret == 0
    write_data(project, "a", "B", "C", "d")
    said = refused(project.run("-n0", "--ultrapar-resume=latest"))
    assert f"{FIRST_CHANGED} {name!r}; start a new run, or add " in said
    assert "--ultrapar-keep-changed" in said
    assert len(project.server.prompts) == 3


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_keep_changed_uses_the_answers_to_the_earlier_data(project, workers):
    project.suite(DATA)
    write_data(project, "a", "b", "c")
    assert project.run(workers).ret == 0
    write_data(project, "a", "B", "C", "d")
    refused(project.run(workers, "--ultrapar-resume=latest"))
    kept = project.run(workers, "--ultrapar-resume=latest", "--ultrapar-keep-changed")
    assert f"{FIRST_CHANGED} 'item'; the answers to the earlier data are " in (said_by(kept, 0))
    assert sorted(project.outcomes().values()) == ["solved"] * 2 + ["unsolved"] * 2
    assert project.server.prompts[3:] == ["say d"]
    # It was reported once and is part of the plan now.
    assert project.run(workers, "--ultrapar-resume=latest").ret == 0


def test_data_of_cases_without_an_answer_may_change(project):
    project.suite(DATA)
    project.server.faults["say"] = project.server.faults["status"]
    write_data(project, "500 x", "500 y")
    assert project.run("-n0", "--ultrapar-max-attempts=1").ret == 1
    project.server.reset()
    write_data(project, "a", "b")
    assert project.run("-n0", "--ultrapar-resume=latest").ret == 0
    assert sorted(project.server.prompts) == ["say a", "say b"]
    assert [*project.outcomes().values()] == ["solved"] * 2


def test_keep_changed_needs_a_run_to_resume(project):
    project.suite(cases(1))
    said = project.refusal(project.run("-n0", "--ultrapar-keep-changed"))
    assert "--ultrapar-keep-changed needs a run to resume: add --ultrapar-resume RUN" in said


@pytest.mark.slow
def test_regrade_reports_changed_data_and_grades_by_the_new_data(project):
    project.suite(DATA)
    write_data(project, "a", "b")
    assert project.run("-n0").ret == 0
    write_data(project, "a", "B")
    again = project.run("-n0", "--ultrapar-regrade=latest")
    said = said_by(again, 0)
    assert (
        "the data of test_suite.py::test_it[m-t1-r0] have changed: parameter 'item'; the " in said
    )
    assert len(project.server.prompts) == 2


GRADED_BY = DATA.replace('"say " + item.question', '"say b"')
UNSOLVED, MISSED = ("unsolved", None), ("error", "replay_miss")


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["-n0", "-n2"])
@pytest.mark.parametrize(("suite", "became"), [(GRADED_BY, UNSOLVED), (DATA, MISSED)])
def test_replay_reports_changed_data_and_continues(project, suite, became, workers):
    project.suite(suite)
    write_data(project, "b", "b")
    assert project.run("-n0").ret == 0
    replay = (workers, f"--ultrapar-replay={project.directory.resolve()}", "--ultrapar-coverage=0")
    assert "have changed" not in said_by(project.run(*replay), 0)
    write_data(project, "b", "B", "c")
    said = said_by(project.run(*replay), 1)
    assert said.count(CHANGED) == 1
    assert (
        f"{CHANGED} 'item'; the answers to the earlier data are replayed, and a changed "
        "request has no stored answer" in said
    )
    found = {
        row["nodeid"].split("[m-")[1][:2]: (row["outcome"], row["kind"]) for row in project.rows()
    }
    assert found == {"t0": ("solved", None), "t1": became, "t2": MISSED}
    assert len(project.server.prompts) == 2


# -- files of the same name ------------------------------------------------------------------------


@pytest.mark.parametrize("folders", [("maths", "code"), ("a/x", "b/x")])
def test_files_of_the_same_name_in_different_folders_are_distinguished(project, folders):
    # pytest-dev/pytest#10385, langgenius/dify#41208
    for folder in folders:
        (project.pytester.path / folder).mkdir(parents=True)
        project.suite(cases(2), f"{folder}/test_eval.py")
    assert project.run("-n0", "--import-mode=importlib").ret == 0
    assert len({row["case_id"] for row in project.rows()}) == 4
    again = project.run("-n0", "--import-mode=importlib", "--ultrapar-resume=latest")
    assert "4 finished episodes resumed\n" in said_by(again, 0)
    assert len(project.server.prompts) == 4


# -- tests in processes of their own ---------------------------------------------------------------

PLUGIN = """
def pytest_addoption(parser):
    for option in {options!r}:
        parser.addoption(option, action="store_true")

def pytest_configure(config):
    for mark in {marks!r}:
        config.addinivalue_line("markers", mark)
"""
ELSEWHERE = [
    # pytest-dev/pytest-forked#67, pytest-dev/pytest-rerunfailures#163
    ("pytest_forked", "--forked", ""),
    ("pytest_forked", "", "forked"),
    # meta-pytorch/monarch#1528
    ("pytest_isolate", "--isolate", ""),
    ("pytest_isolate", "", "isolate"),
    ("pytest_isolate", "", "timeout"),
    ("pytest_isolated", "--isolated", ""),
    ("pytest_isolated", "", "isolated"),
    ("pytest_subproc", "", "subproc"),
    ("pytest_insubprocess", "", "insubprocess"),
    ("pytest_mp", "--mp", ""),
    ("pytest_parallel", "--workers", ""),
]


def with_plugin(project, plugin: str, *options: str, marks=()) -> None:
    text = PLUGIN.format(options=options, marks=marks)
    (project.pytester.path / f"{plugin}.py").write_text(text)


def marked(mark: str) -> str:
    return cases(2).replace("def test_it", f"@pytest.mark.{mark}\ndef test_it")


@pytest.mark.parametrize(("plugin", "option", "mark"), ELSEWHERE)
def test_tests_in_processes_of_their_own_are_refused(project, monkeypatch, plugin, option, mark):
    monkeypatch.syspath_prepend(project.pytester.path)
    monkeypatch.delitem(__import__("sys").modules, plugin, raising=False)
    with_plugin(project, plugin, *filter(None, [option]), marks=[mark] if mark else [])
    project.suite(marked(mark) if mark else cases(2))
    said = project.refusal(project.run("-n0", "-p", plugin, *filter(None, [option])))
    what = f"{option} ({plugin.replace('_', '-')})" if option else f"@pytest.mark.{mark}"
    assert f"{what} cannot be used together with --ultrapar-pool" in said
    assert not project.directory.exists()


@pytest.mark.slow
@pytest.mark.parametrize("mark", ["", "forked"])
def test_tests_in_processes_of_their_own_are_refused_with_workers(project, mark):
    with_plugin(project, "pytest_forked", "--forked", marks=["forked"])
    project.suite(marked(mark) if mark else cases(2))
    given = [] if mark else ["--forked"]
    result = project.pytester.runpytest_subprocess(
        "--ultrapar-pool=pool.toml", "-n2", "-p", "pytest_forked", *given
    )
    said = project.refusal(result)
    assert "cannot be used together with --ultrapar-pool" in said


def test_marks_of_missing_or_disabled_plugins_are_ignored(project, monkeypatch):
    # braintrustdata/braintrust-sdk-python#296: the mark was used, the plugin was never installed
    project.suite(marked("forked"))
    assert project.run("-n0", "-W", "ignore::pytest.PytestUnknownMarkWarning").ret == 0
    monkeypatch.syspath_prepend(project.pytester.path)
    monkeypatch.delitem(__import__("sys").modules, "pytest_isolate", raising=False)
    with_plugin(project, "pytest_isolate", "--no-isolate", "--isolate", marks=["isolate"])
    project.suite(marked("isolate"))
    assert project.run("-n0", "-p", "pytest_isolate", "--isolate", "--no-isolate").ret == 0


@pytest.mark.parametrize("option", ["", "--collect-only"])
def test_plugin_with_its_own_way_to_run_tests_is_refused_by_name(project, monkeypatch, option):
    # its loop ran tests twice, or crashed after their requests
    monkeypatch.syspath_prepend(project.pytester.path)
    monkeypatch.delitem(__import__("sys").modules, "pytest_asyncio_cooperative", raising=False)
    with_plugin(project, "pytest_asyncio_cooperative")
    project.suite(cases(2))
    result = project.run("-n0", "-p", "pytest_asyncio_cooperative", *filter(None, [option]))
    said = project.refusal(result)
    assert "pytest-asyncio-cooperative cannot be used together with --ultrapar-pool" in said
    assert "-p no:asyncio-cooperative" in said
    assert not project.server.prompts
    assert not project.directory.exists()


# -- scores ----------------------------------------------------------------------------------------


def test_numbers_of_any_library_are_scores_and_truths_of_numpy_outcomes(project):
    # EleutherAI/lm-evaluation-harness#3885, huggingface/sentence-transformers#3075
    project.suite(
        """
from decimal import Decimal
from fractions import Fraction
import numpy as np

GRADES = [
    lambda grade: grade(np.array([0.9]).mean() > 0.5, "the third step is missing"),
    lambda grade: grade(np.bool_(False)),
    lambda grade: grade(True, a=np.float32(0.5), b=np.int64(3), c=np.float64(0.25)),
    lambda grade: grade("partial", a=Decimal("0.5"), b=Fraction(3), c=np.array(0.25)),
    lambda grade: grade(np.str_("solved"), a=np.bool_(True)),
]

@pytest.mark.parametrize("n", range(5))
def test_it(said, n, grade): GRADES[n](grade)

@prefetch
async def said(llm, n) -> str:
    return (await llm.chat([{"role": "user", "content": f"say {n}"}])).text
"""
    )
    assert project.run("-n0").ret == 0
    rows = project.rows()
    assert [row["outcome"] for row in rows] == ["solved", "unsolved", "solved", "partial", "solved"]
    assert rows[0]["reason"] == "the third step is missing"
    assert rows[0]["error"] is None
    for row in rows[2:4]:
        assert [row[f"score.{name}"] for name in "abc"] == [0.5, 3.0, 0.25]
