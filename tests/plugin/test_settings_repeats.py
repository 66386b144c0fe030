"""`--ultrapar-repeats NxM`: the cases that run, and the errors."""

from __future__ import annotations

import json

import pytest

from tests.plugin.test_bad_input import PLAIN_SUITE, refusal

COUNTING = """
pytestmark = pytest.mark.ultrapar(repeats_over="kind")

@prefetch
async def spoken(llm, kind, word) -> str:
    return (await llm.chat([{"role": "user", "content": f"say {kind} {word}"}])).text

@pytest.mark.parametrize("word", ["a", "b"])
@pytest.mark.parametrize("kind", ["pear", "apple", "plum"])
def test_it(spoken): pass

@pytest.mark.parametrize("word", ["c"])
@pytest.mark.parametrize("kind", ["apple", "fig"])
def test_other(spoken): pass

def test_plain(): pass
"""


def ran(project) -> dict[str, int]:
    """The number of runs of each (kind, word)."""
    asked = [prompt.removeprefix("say ") for prompt in project.server.prompts]
    return {one: asked.count(one) for one in asked}


def collected(project, *options) -> list[str]:
    result = project.run_here("--collect-only", "-q", *options)
    return [line.split("::")[1] for line in result.outlines if "::" in line]


def test_first_values_of_the_named_parameter_run_and_others_are_deselected(project):
    project.suite(COUNTING)

    result = project.run("-n0", "--ultrapar-repeats=2x2")

    assert ran(project) == {"pear a": 2, "pear b": 2, "apple a": 2, "apple b": 2, "apple c": 2}
    # plum a, plum b and fig c; the fourth distinct value of the file is `fig`.
    assert result.parseoutcomes() == {"solved": 10, "passed": 1, "deselected": 6}
    assert result.ret == 0
    said = result.stdout.str()
    assert "2 repetitions of the first 2 values of the parameter that the suite names" in said
    assert "repeats = 2x2 (command line --ultrapar-repeats)" in said
    assert '"repeats": 2,' in (project.directory / "manifest.json").read_text()


@pytest.mark.slow
def test_a_number_above_the_number_of_values_means_all(project, monkeypatch):
    project.suite(COUNTING)
    everything = collected(project, "--ultrapar-repeats=2")

    assert len(everything) == 2 * (6 + 2) + 1
    assert collected(project, "--ultrapar-repeats=2x99") == everything
    monkeypatch.setenv("NUM_INSTANCES", "2x99")
    assert collected(project) == everything
    monkeypatch.setenv("NUM_INSTANCES", "1x1")
    assert collected(project) == ["test_it[m-pear-a-r0]", "test_it[m-pear-b-r0]", "test_plain"]


@pytest.mark.slow
def test_k_selects_from_the_cases_that_run_without_it(project):
    project.suite(COUNTING)

    assert collected(project, "--ultrapar-repeats=1x2", "-k", "apple") == [
        "test_it[m-apple-a-r0]",
        "test_it[m-apple-b-r0]",
        "test_other[m-apple-c-r0]",
    ]
    assert collected(project, "--ultrapar-repeats=1x2", "-k", "plum") == []


@pytest.mark.slow
def test_values_are_counted_for_each_test_file(project):
    project.suite(COUNTING)
    project.suite(COUNTING.replace('"pear", "apple", "plum"', '"fig", "kiwi"'), "test_more.py")

    found = collected(project, "--ultrapar-repeats=1x1", "-k", "not plain")

    assert found == [
        "test_it[m-fig-a-r0]",
        "test_it[m-fig-b-r0]",
        "test_other[m-fig-c-r0]",
        "test_it[m-pear-a-r0]",
        "test_it[m-pear-b-r0]",
    ]


@pytest.mark.slow
def test_values_that_are_objects_are_counted_by_name(project):
    objects = """
class Kind:
    def __init__(self, name): self.name = name

def pytest_generate_tests(metafunc):
    metafunc.parametrize("kind", [Kind("one"), Kind("two"), ["no", "hash"]], ids=["x", "y", "z"])

@pytest.mark.ultrapar(repeats_over="kind")
def test_it(answer): pass

@pytest.mark.ultrapar(repeats_over="kind")
def test_again(answer): pass
"""
    suite = objects.replace("(answer)", "(answer, kind)")
    project.suite(
        "\n@pytest.fixture\ndef prompt(): ...\n" + suite.replace("answer, kind", "spoken")
    )
    text = project.pytester.path.joinpath("test_suite.py")
    spoken = "\n@prefetch\nasync def spoken(llm, kind) -> str:\n    return str(kind)\n"
    text.write_text(text.read_text() + spoken)

    assert collected(project, "--ultrapar-repeats=1x1") == ["test_it[m-x-r0]", "test_again[m-x-r0]"]


@pytest.mark.slow
def test_suite_that_names_no_parameter_is_refused(project, monkeypatch):
    project.suite(PLAIN_SUITE)
    for workers in ("-n0", "-n2"):
        said = refusal(project, workers, "--ultrapar-repeats=20x3", in_process=workers == "-n0")
        assert said == (
            "test_suite.py::test_it: 20x3 (command line --ultrapar-repeats) uses the first 3 "
            "values of a parameter, but the suite names none; name one in "
            'pytest.mark.ultrapar(repeats_over="...") ('
            "the parameters are prompt), or repeat all "
            "values 20 times"
        )
    monkeypatch.setenv("NUM_INSTANCES", "20x3")
    assert "20x3 (environment NUM_INSTANCES)" in refusal(project)
    assert project.run_here("--collect-only").ret == 4
    # Tests that are not selected are not checked.
    project.suite(COUNTING, "test_counting.py")
    assert project.run_here("--collect-only", "-q", "-k", "counting").ret == 0


@pytest.mark.slow
def test_mark_with_an_unknown_parameter_is_refused_even_without_the_option(project):
    project.suite(COUNTING.replace('repeats_over="kind"', 'repeats_over="knd"'))
    message = "mark ultrapar(repeats_over='knd') names no parameter: the parameters are kind"
    for options in ([], ["--ultrapar-repeats=2x2"]):
        assert f"test_suite.py::test_it: {message}" in refusal(project, *options)


EMPTY = """
@pytest.mark.parametrize("word", [])
@pytest.mark.parametrize("prompt", ["say a"])
def test_no_words(answer, word): pass

@pytest.mark.parametrize(("prompt", "word"), [])
def test_no_prompts(answer, word): pass

@pytest.mark.parametrize("prompt", ["say b"])
def test_it(answer): pass
"""


@pytest.mark.slow
def test_case_of_a_parameter_without_values_is_deselected_and_others_are_skipped(project):
    plain = '\n@pytest.mark.parametrize("word", [])\ndef test_plain(word): pass\n'
    project.suite(EMPTY + plain)

    result = project.run("-n0")

    assert result.ret == 0
    assert result.parseoutcomes() == {"solved": 1, "skipped": 1, "deselected": 2}
    assert project.outcomes() == {"test_it[m-say b-r0]": "solved"}


@pytest.mark.slow
def test_suite_with_only_parameters_without_values_selects_nothing(project):
    project.suite(EMPTY.partition('@pytest.mark.parametrize("prompt", ["say b"])')[0])

    result = project.run("-n0")

    assert result.ret == 5
    assert result.parseoutcomes() == {"deselected": 2}


def test_case_cluster_is_the_value_and_the_repetition(project):
    project.suite(COUNTING.replace('repeats_over="kind"', 'cluster=("kind",)'))

    assert project.run_here("--ultrapar-repeats=2").ret == 0

    cases = json.loads((project.directory / "cases.json").read_text())
    clusters = {(case["params"]["kind"], case["repeat"]): case["cluster"] for case in cases}
    assert {len({case["cluster"] for case in cases}), len(clusters)} == {8}
    assert all(
        case["cluster"] == clusters[case["params"]["kind"], case["repeat"]] for case in cases
    )
