"""The layout of results, which follows from the tests' use of their parameters."""

from __future__ import annotations

import itertools

import pytest
from msgspec.structs import replace

from pytest_ultrapar.analysis.compaction import compact
from pytest_ultrapar.analysis.run_summary import read_summary
from pytest_ultrapar.analysis.table_layouts import Uses, shown_tests
from pytest_ultrapar.records import Case
from pytest_ultrapar.store.cases_file import write_tables
from tests.unit.finished_run import episode, grade, make_run, write_journal

MODELS = ("m1", "m2")


def cases_of(test="t/test_x.py::test", repeats=1, **values):
    """A case of each model for each combination of values."""
    combined = itertools.product(MODELS, range(repeats), *values.values())
    return [
        Case(
            n,
            f"{test}{n}",
            f"{test}[{n}]",
            "t",
            model,
            repeat,
            dict(zip(values, own, strict=True)),
            n,
        )
        for n, (model, repeat, *own) in enumerate(combined)
    ]


def layout(cases, tables=()):
    (found,) = Uses(dict(tables), cases).layouts().values()
    return found


WORDS = [f"word{n}" for n in range(9)]


@pytest.mark.parametrize(
    ("values", "chosen"),
    [
        ({"n": range(50)}, ()),
        ({"n": range(5), "word": WORDS}, ("word",)),
        ({"n": range(3), "word": [*map(str, range(100))]}, ()),
        ({"word": WORDS}, ()),
        ({"word": WORDS, "level": ["easy", "hard"]}, ("level",)),
        ({"share": [0.2, 0.8], "strict": [True, False]}, ("strict",)),
        ({"share": [0.2, 0.8], "word": WORDS}, ("word",)),
        ({"share": [0.2, 0.8, 0.9], "n": range(2)}, ("share",)),
        ({"word": ["a", None], "same": [1], "n": range(9)}, ()),
        ({}, ()),
    ],
)
def test_parameter_is_a_dimension_if_its_values_have_several_cases(values, chosen):
    assert layout(cases_of(**values)) == ("model", *chosen)


def test_repetitions_count_as_several_cases():
    assert layout(cases_of(repeats=2, word=WORDS)) == ("model", "word")
    assert layout(cases_of(repeats=2, n=range(9))) == ("model",)
    assert layout(cases_of(repeats=2, pair=('{"a": 1}', '{"a": 2}'))) == ("model",)


def test_mark_overrides_use_also_in_the_form_of_earlier_versions():
    cases = cases_of(word=WORDS, level=["easy", "hard"])
    for name in (cases[0].test, "t"):
        assert layout(cases, {name: ("word", "model")}) == ("word", "model")


def test_pages_have_all_used_dimensions_with_the_requested_ones_first():
    cases = [*cases_of(word=WORDS, level=[1, 2]), *cases_of("t/test_x.py::other", n=range(50))]
    found = Uses({}, cases).dimensions(("model", "level"))
    assert found == ["test_name", "level", "word"]
    assert Uses({}, cases[:36]).dimensions(("model",)) == ["word", "level"]


def test_tests_with_the_same_name_are_shown_with_their_place():
    names = ["a/test_x.py::test_it", "b/test_x.py::test_it", "b/test_x.py::TestA::test_it"]
    assert list(shown_tests(names * 2).values()) == [*names[:2], "TestA::test_it"]


def test_summary_has_each_test_in_its_own_layout(tmp_path):
    cases = [
        *cases_of("t/test_x.py::test_a", word=WORDS[:2], level=["easy", "hard"]),
        *cases_of("t/test_x.py::test_b", word=WORDS[:2]),
    ]
    cases = [replace(one, index=n, case_id=f"case{n}") for n, one in enumerate(cases)]
    run = make_run(tmp_path / "r", cases, summary_by=("model",))
    write_tables(run.path, {"t/test_x.py::test_b": ("word", "model"), "t/test_x.py::test_a": ()})
    for n, one in enumerate(cases):
        how = "solved" if one.params.get("level") == "easy" else "unsolved"
        write_journal(run, f"gw{n}", episode(n, 1, 2), grade(n, how, scores={"share": n / 8}))
    compact(run.path)
    summary = read_summary(run.path)
    assert [(cell.names, cell.n_graded) for cell in summary.cells] == [(("m1",), 6), (("m2",), 6)]
    a, b = summary.tests
    assert (a.test, a.by, b.test, b.by) == (
        "test_a", ("model", "word"), "test_b", ("word", "model"),
    )  # fmt: skip
    assert [(one.names, one.n, one.counts["solved"]) for one in a.wholes] == [
        (("m1",), 4, 2),
        (("m2",), 4, 2),
    ]
    assert [(one.names, one.n) for one in b.cells] == [
        ((word, model), 1) for word in WORDS[:2] for model in MODELS
    ]
    assert a.wholes[0].scores["share"].mean == pytest.approx(1.5 / 8)
    assert a.wholes[0].interval is not None
