"""Unit tests and evaluations in one repository, and plain `pytest` without a pool."""

from __future__ import annotations

import pytest

EVALS = """
@pytest.fixture
def expensive():
    raise AssertionError("set up for an evaluation that is not run")

@pytest.mark.parametrize("prompt", ["say a", "say b"])
def test_asks(answer, expensive): ...

@pytest.mark.parametrize("prompt", ["say c"])
def test_asks_more(answer, model): ...
"""
UNIT = "def test_adds(): assert 1 + 1 == 2\n"
LINE = (
    "ultrapar: {} skipped because no model is given: add --ultrapar-model VENDOR/NAME "
    "or --ultrapar-pool FILE (ini ultrapar_pool)"
)


@pytest.fixture
def both(project):
    project.suite(EVALS, name="test_evals.py")
    project.pytester.path.joinpath("test_unit.py").write_text(UNIT)
    return project


def test_evaluations_are_skipped_and_one_line_explains_how_to_run_them(both):
    result = both.run("-n0", pool=False)
    assert result.ret == 0
    result.assert_outcomes(passed=1, skipped=3)
    said = [line for line in result.outlines if "--ultrapar-pool" in line]
    assert said == [LINE.format("3 evaluations were")]
    one = both.run_here("-k", "adds or more", "-q", pool=False)
    assert one.ret == 0
    assert LINE.format("1 evaluation was") in one.outlines
    assert both.server.prompts == []


def test_run_without_selected_evaluations_prints_no_hint(both):
    result = both.run_here("test_unit.py", "-ra", pool=False)
    assert result.ret == 0
    assert "ultrapar:" not in result.stdout.str()


def test_evaluations_do_not_hide_an_error_of_collection(both, workers):
    both.pytester.path.joinpath("test_unit.py").write_text("import no_such_module\n")
    result = both.run(workers, pool=False)
    # xdist's own exit code for errors of collection is 1.
    assert result.ret == (2 if workers == "-n0" else 1)
    assert "no_such_module" in result.stdout.str()


def test_error_of_a_plain_test_that_takes_llm_says_what_to_write(both, workers):
    both.pytester.path.joinpath("test_unit.py").write_text(
        f"{UNIT}def test_sync(llm): assert llm\ndef test_model(model): assert model\n"
    )
    result = both.run(workers, "-p", "no:rerunfailures", pool=False)
    assert result.ret == 1
    said = result.stdout.str()
    assert (
        "test_unit.py::test_sync: a test that takes `llm` must be `async def` and await answers; "
        'write\n    async def test_sync(llm):\n        reply = await llm.chat("...")\n'
    ) in said
    assert "\nthe fixture 'model' needs --ultrapar-model VENDOR/NAME or --ultrapar-pool" in said
    assert "fixtures.py" not in said
