"""Differences between releases of Python, pytest and xdist."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
from xdist import workermanage

from pytest_ultrapar import prefetch
from pytest_ultrapar.session.compatibility import is_of_subtest, n_workers
from pytest_ultrapar.session.prefetch import Prefetched


def defined(text: str) -> dict[str, object]:
    """The names of a module with deferred annotations, the default since Python 3.14."""
    names: dict[str, object] = {"prefetch": prefetch}
    if sys.version_info < (3, 14):
        text = f"from __future__ import annotations\n{text}"
    exec(compile(text, "suite.py", "exec", dont_inherit=True), names)
    return names


def test_annotations_of_arguments_may_name_imports_for_type_checkers():
    names = defined("async def answer(llm: Llm, word: list[Word]) -> str: ...")
    found = Prefetched.of(names["answer"])
    assert found.arguments == ("llm", "word")
    assert found.fault() is None
    assert found.return_type() is str
    defined("@prefetch\nasync def answer(llm: Llm, word: list[Word]) -> str: ...")


def test_undefined_return_annotation_is_reported():
    found = Prefetched.of(defined("async def answer(llm: Llm) -> Nowhere: ...")["answer"])
    assert "cannot be resolved: name 'Nowhere' is not defined" in str(found.fault())


@pytest.mark.parametrize("name", ["parse_tx_spec_config", "parse_spec_config"])
def test_workers_are_counted_with_either_name_of_xdists_function(monkeypatch, name):
    parse = getattr(workermanage, "parse_tx_spec_config", None) or workermanage.parse_spec_config
    for old in ("parse_tx_spec_config", "parse_spec_config"):
        monkeypatch.delattr(workermanage, old, raising=False)
    monkeypatch.setattr(workermanage, name, parse, raising=False)
    config = SimpleNamespace(getvalue=lambda _: ["3*popen", "popen//id=a"])
    assert n_workers(config) == 4


def test_reports_of_subtests_are_recognised_by_the_name_of_their_class():
    class SubTestReport(pytest.TestReport):
        """The class of pytest-subtests."""

    arguments = ("", ("", None, ""), {}, "passed", None, "call")
    assert is_of_subtest(SubTestReport(*arguments))
    assert not is_of_subtest(pytest.TestReport(*arguments))
    if hasattr(pytest, "SubtestReport"):
        assert is_of_subtest(object.__new__(pytest.SubtestReport))
