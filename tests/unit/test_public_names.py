"""The names that suites and conftests may rely on."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import typing

import pytest

import pytest_ultrapar
from pytest_ultrapar import hooks, plugin


def test_public_names_are_these():
    assert pytest_ultrapar.__all__ == [
        "Assignment",
        "BadRequestError",
        "CaseInfo",
        "ConfigError",
        "Grader",
        "Group",
        "InfraError",
        "Llm",
        "PromptRefused",
        "Reply",
        "SyncLlm",
        "ToolCall",
        "UltraparError",
        "cases",
        "grader",
        "prefetch",
    ]


@pytest.mark.parametrize("name", pytest_ultrapar.__all__)
def test_public_name_exists_and_has_a_docstring(name):
    assert getattr(pytest_ultrapar, name).__doc__


def test_version_matches_the_distribution():
    assert pytest_ultrapar.__version__ == importlib.metadata.version("pytest-ultrapar")


def test_unknown_name_raises_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = pytest_ultrapar.nonsense


def test_plugin_provides_these_fixtures():
    assert plugin.__all__ == ["case", "grade", "llm", "model", "ultrapar_repeat"]


def test_hooks_are_these():
    names = [name for name in vars(hooks) if name.startswith("pytest_")]
    assert names == [
        "pytest_ultrapar_pool",
        "pytest_ultrapar_policies",
        "pytest_ultrapar_assign",
        "pytest_ultrapar_process",
        "pytest_ultrapar_prompt_types",
        "pytest_ultrapar_data",
        "pytest_ultrapar_attempt",
        "pytest_ultrapar_case",
        "pytest_ultrapar_figures",
        "pytest_ultrapar_finish",
    ]


@pytest.mark.parametrize("name", ["Reply", "ToolCall"])
def test_annotations_of_types_that_episodes_return_resolve(name):
    # msgspec stores a returned reply by its annotations. An import for type checkers alone
    # breaks that.
    public = getattr(pytest_ultrapar, name)
    hints = typing.get_type_hints(public)
    assert set(hints) == {field.name for field in dataclasses.fields(public)}
