"""The functions and arguments that can be prefetched, and the errors for the others."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tests.plugin.conftest import cases

FAULTS = {
    "sync function": (
        """
@prefetch
def made(llm) -> str:
    return "x"
""",
        "@prefetch needs an `async def`, but 'made' is not one",
    ),
    "function fixture": (
        """
@pytest.fixture
def narrow(): ...

@prefetch
async def made(llm, narrow) -> str: ...
""",
        "argument 'narrow' of the prefetched function 'made' is not allowed: it is a "
        "function-scoped fixture, "
        'and many episodes run at the same time: give it scope="session", or create its value in '
        "the function; allowed: parametrised values, llm, model, case, and session-scoped, "
        "unparametrised, synchronous fixtures",
    ),
    "session fixture that needs a parametrised one": (
        """
@pytest.fixture(scope="session", params=[1, 2])
def many(request): return request.param

@pytest.fixture(scope="session")
def one(many): return many

@prefetch
async def made(llm, one) -> str: ...
""",
        "argument 'one' of the prefetched function 'made' is not allowed: it depends on the "
        "parametrised "
        "fixture 'many'",
    ),
    "fixture of the whole process": (
        """
@prefetch
async def made(llm, monkeypatch) -> str: ...
""",
        "argument 'monkeypatch' of the prefetched function 'made' is not allowed: it affects the "
        "whole "
        "process, and many episodes run in it at the same time: use it in a plain test, which "
        "grades the value of an episode; ",
    ),
    "fixture for a folder": (
        """
@prefetch
async def made(llm, tmp_path) -> str: ...
""",
        "it is a function-scoped fixture, and many episodes run at the same time: use "
        "tmp_path_factory; ",
    ),
    "fixture of pytest for one test": (
        """
@prefetch
async def made(llm, record_property) -> str: ...
""",
        "it is a function-scoped fixture, and many episodes run at the same time: use it in a "
        "plain test, ",
    ),
    "request": (
        """
@prefetch
async def made(llm, request) -> str: ...
""",
        "it belongs to one test at a time: use `case`, which has parameters and marks; ",
    ),
    "parametrised fixture": (
        """
@pytest.fixture(params=[1, 2])
def many(request): return request.param

@prefetch
async def made(llm, many) -> str: ...
""",
        "it is a parametrised fixture: parametrise the test itself, and create the object from the "
        "value; ",
    ),
    "asynchronous fixture": (
        """
@pytest.fixture(scope="session")
async def late(): return 1

@prefetch
async def made(llm, late) -> str: ...
""",
        "argument 'late' of the prefetched function 'made' is not allowed: it is an asynchronous "
        "fixture",
    ),
    "undefined name": (
        """
@prefetch
async def made(llm, unknown) -> str: ...
""",
        "argument 'unknown' of the prefetched function 'made' is not allowed: no fixture or "
        "parameter has this",
    ),
    "no names": (
        """
@prefetch
async def made(llm, *others) -> str: ...
""",
        "argument *others of the prefetched function 'made' is not allowed; it must be possible "
        "to pass each argument by name",
    ),
    "no annotation": (
        """
@prefetch
async def made(llm): ...
""",
        "'made' has no return annotation; allowed: a dataclass",
    ),
    "annotation that does not exist": (
        """
@prefetch
async def made(llm) -> "Missing": ...
""",
        "the return annotation of 'made' cannot be resolved: name 'Missing' is not",
    ),
    "annotation that cannot be stored": (
        """
class Own: ...

@prefetch
async def made(llm) -> dict[str, list[Own]]: ...
""",
        "the return annotation of 'made' cannot be stored: Own is a custom class",
    ),
    "model that no argument selects": (
        """
@prefetch
async def made(case) -> str: ...
""",
        "the case has no model from the pool (model is None); the prefetched function or its "
        "test must use `llm` or `model`; the pool's models are m",
    ),
}

OTHER_FAULTS = {
    "method": (
        """
class TestGroup:
    @prefetch
    async def made(cls, llm) -> str: ...

    def test_it(self, made): pass
""",
        "argument 'cls' of the prefetched function 'made' is not allowed: no fixture or "
        "parameter has this name",
    ),
    "method of a class with set-up for each test": (
        """
class TestGroup:
    def setup_method(self): ...

    @prefetch
    async def made(self, llm) -> str: ...

    def test_it(self, made): pass
""",
        "argument 'self' of the prefetched function 'made' is not allowed: its class has "
        "setup_method, which ",
    ),
    "indirect": (
        """
@pytest.fixture(scope="session")
def shaped(request): return request.param

@prefetch
async def made(llm, shaped) -> str: ...

@pytest.mark.parametrize("shaped", [1, 2], indirect=True)
def test_it(made): pass
""",
        "argument 'shaped' of the prefetched function 'made' is not allowed: it is parametrised "
        "through a "
        "fixture (indirect)",
    ),
    "two in one item": (
        """
@prefetch
async def first(llm) -> str: ...

@prefetch
async def made(llm) -> str: ...

def test_it(first, made): pass
""",
        "a test may use only one prefetched fixture, not 2: first, made",
    ),
    "async test with a prefetched fixture": (
        """
@prefetch
async def made(llm) -> str: ...

async def test_it(llm, made): pass
""",
        "test_it: an async test that takes `llm` sends its own requests and cannot use a "
        "prefetched fixture (made): leave out `llm` and `async`, or send the requests in the test",
    ),
    "async test with a fixture of the whole process": (
        "async def test_it(llm, capsys): pass",
        "argument 'capsys' of the async test function 'test_it' is not allowed: it affects the "
        "whole process, "
        "and many episodes run in it at the same time: use it in a plain test, which grades the "
        "value of an episode; allowed: parametrised values, llm, model, case, grade, and "
        "session",
    ),
    "async test that uses a narrow fixture": (
        """
@pytest.fixture
def somewhere(monkeypatch): ...

@pytest.mark.usefixtures("somewhere")
async def test_it(llm): pass
""",
        "argument 'somewhere' of the async test function 'test_it' is not allowed: it is a "
        "function-scoped ",
    ),
    "async test of a class with set-up for each test": (
        """
class TestIt:
    def setup_method(self): ...

    async def test_it(self, llm): pass
""",
        "argument 'self' of the async test function 'test_it' is not allowed: its class has "
        "setup_method, which "
        "pytest calls for one test at a time: do its work in the test; ",
    ),
}
NEAR_MISSES = {
    "test that is not async": (
        """
@pytest.mark.parametrize("prompt", ["x"])
def test_it(llm, prompt): assert llm.chat(prompt)
""",
        """test_it: a test that takes `llm` must be `async def` and await answers; write
    async def test_it(llm, prompt):
        reply = await llm.chat("...")
""",
    ),
    "static method": (
        """
class TestIt:
    @staticmethod
    async def test_it(llm): pass
""",
        "test_it: an async test that takes `llm` must not have a `yield`, be a static or class "
        "method, or have a decorator that hides that it is async",
    ),
    "fixture that is not prefetched": (
        """
@pytest.fixture
def answer(llm, model): return llm.chat("x")

def test_it(answer): pass
""",
        """fixture 'answer' uses `llm`, but requests are sent before any fixture runs; write
    @prefetch
    async def answer(llm, model) -> str:
""",
    ),
}
MARKS = {
    "mark": (
        'models=["m", "gpt"]',
        "mark ultrapar(...) names 'gpt', which matches no model in pool.toml; allowed: m",
    ),
    "mark by position": (
        '"m"',
        "mark ultrapar(...) got 'm'; it takes only the keywords cluster=..., expect=",
    ),
    "mark with an unknown name": (
        'summary=("model", "pormpt")',
        "mark ultrapar(summary=...) names 'pormpt'; allowed: model, suite, repeat, file, "
        "test_name, param_id, marks, prompt",
    ),
    "mark with a summary that is a text": (
        'summary="model"',
        "mark ultrapar(summary=...) must be a tuple of different names such as ('model', "
        "'repeat') (got 'model')",
    ),
    "mark with an empty summary": (
        "summary=()",
        "mark ultrapar(summary=...) must be a tuple of different names such as ('model', "
        "'repeat') (got ())",
    ),
    "mark with a name twice": (
        'summary=("model", "prompt", "model")',
        "must be a tuple of different names such as ('model', 'repeat') (got ('model', 'prompt', ",
    ),
    "mark with a model that is not a text": (
        'models=["m", 7]',
        "mark ultrapar(models=...) must be a pattern such as 'qwen*', or a list of patterns (got [",
    ),
    "mark with a cluster that is not a parameter": (
        'cluster=["model"]',
        "test_it: mark ultrapar(cluster=...) names 'model'; the test's parameters are prompt",
    ),
    "mark with an expectation that is not a dict": (
        "expect=6.5",
        "mark ultrapar(expect=...) must be a dict with some of turns, tokens_in, tokens_out (got ",
    ),
    "mark with a misspelt keyword": (
        'model="m"',
        "mark ultrapar(...) got model; it takes only the keywords cluster=..., expect=",
    ),
}
ALL = {name: (body + "\ndef test_it(made): pass\n", said) for name, (body, said) in FAULTS.items()}
ALL |= OTHER_FAULTS
ALL |= {
    name: (f"@pytest.mark.ultrapar({words})" + cases(["x"]), said)
    for name, (words, said) in MARKS.items()
}


def refused(project, *options):
    said = project.refusal(project.run_here(*options))
    return "\n".join(line for line in said.splitlines() if line)


FIRST = ("sync function", "function fixture", "no annotation", "method", "mark")


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[pytest.mark.slow] * (one not in FIRST)) for one in ALL]
)
def test_error_of_a_suite_names_argument_and_place(project, name):
    body, message = ALL[name]
    project.suite(body)
    for options in ([], ["--collect-only"]):
        said = refused(project, *options)
        assert message in said
        # The place: the file with its line, or the node id.
        assert re.search(r"test_suite\.py(:\d+:|::)", said)
        assert len(said.splitlines()) == 1


@pytest.mark.parametrize(
    "name",
    [pytest.param(one, marks=[pytest.mark.slow] * (n > 0)) for n, one in enumerate(NEAR_MISSES)],
)
def test_error_of_a_nearly_right_test_shows_the_lines_to_write(project, name):
    body, lines = NEAR_MISSES[name]
    project.suite(body)
    for options in ([], ["--collect-only"]):
        said = refused(project, *options)
        assert lines.strip() in said
        assert len(said.splitlines()) == len(lines.strip().splitlines())


@pytest.mark.slow
@pytest.mark.cpu_s(3)
def test_errors_of_a_suite_are_reported_under_xdist_too(project):
    for number, name in enumerate(FIRST):
        project.suite(ALL[name][0], name=f"test_{number}.py")
    said = project.refusal(project.run("-n2"))
    assert all(ALL[name][1] in said for name in FIRST)


def test_episode_cannot_be_requested_by_getfixturevalue(project):
    project.suite(
        """
@pytest.mark.parametrize("prompt", ["say a"])
def test_dynamic(request, prompt):
    request.getfixturevalue("answer")

def test_model(model): pass
"""
    )
    result = project.run_here()
    result.assert_outcomes(failed=1, errors=1)
    words = "*prefetched fixture. Name one as an argument of the test or its fixtures instead of *"
    result.stdout.fnmatch_lines([words, words])
    assert project.server.prompts == []


def test_tests_whose_pattern_matches_no_model_of_the_pool_are_deselected(project):
    project.suite(
        """
@pytest.mark.ultrapar(models="gpt*")
class TestFamily:
    # The inner mark does not hide the outer one.
    @pytest.mark.ultrapar(summary=["prompt"])
    @pytest.mark.parametrize("prompt", ["say a"])
    def test_it(self, answer): pass

@pytest.mark.parametrize("prompt", ["say b"])
def test_of_all(answer): pass
"""
    )
    result = project.run("-n0")
    assert result.ret == 0
    result.assert_outcomes(deselected=1)
    assert project.server.prompts == ["say b"]


@pytest.mark.slow
def test_pydantic_models_are_stored_and_restored(project):
    project.suite("""
import dataclasses
import pydantic

class Step(pydantic.BaseModel):
    number: int

class Answer(pydantic.BaseModel):
    text: str
    steps: list[Step]

@dataclasses.dataclass
class Both:
    first: Answer
    named: dict[str, Answer]

@prefetch
async def both(llm, start) -> Both:
    text = (await llm.chat("say yes")).text
    answer = Answer(text=text, steps=[start])
    return Both(answer, {"again": answer})

@prefetch
async def bent(llm) -> Answer:
    return Step(number=1)

@pytest.mark.parametrize("start", [Step(number=1), Step(number=2)])
def test_both(both, start):
    assert both.first == both.named["again"] == Answer(text="yes", steps=[start])

def test_bent(bent): pass
""")
    for more in ((), ("--ultrapar-resume=latest",)):
        result = project.run("-n0", "--ultrapar-coverage=0.1", *more)
        assert len(project.server.prompts) == 2
        assert Counter(project.outcomes().values()) == {"solved": 2, "error": 1}
        result.stdout.fnmatch_lines(
            ["*the value that 'bent' returned does not fit its annotation*"]
        )
