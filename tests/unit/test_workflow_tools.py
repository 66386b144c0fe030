from collections import Counter

import pytest

from bench_suites.workflow import load_tools
from bench_suites.workflow.arguments import check_arguments
from bench_suites.workflow.tool import tool_named
from bench_suites.workflow.tool_search import N_HITS, search_tools

NEEDS = {
    "data_processing_transformer": {"data_processing_parser"},
    "data_processing_validator": {"data_processing_parser"},
    "data_processing_aggregator": {"data_processing_parser"},
    "network_validator": {"data_processing_parser", "data_processing_transformer"},
    "computation_calculator": {"data_processing_parser", "network_validator"},
    "file_operations_writer": {"data_processing_transformer", "network_validator"},
    "network_poster": {"data_processing_transformer", "integration_authenticator"},
    "computation_analyzer": {"data_processing_parser", "data_processing_aggregator"},
    "utility_notifier": {"computation_analyzer", "network_monitor"},
}


def test_registry_has_five_tools_in_each_of_six_categories():
    tools = load_tools().values()
    assert Counter(tool.category for tool in tools) == dict.fromkeys(
        ["file_operations", "data_processing", "network", "computation", "integration", "utility"],
        5,
    )
    assert all(tool.name == f"{tool.category}_{tool.operation}" for tool in tools)


def test_registry_dependencies_match_the_fact_sheet():
    found = {t.name: set(t.dependencies) for t in load_tools().values() if t.dependencies}
    assert found == NEEDS


def test_registry_lists_the_tools_whose_output_a_tool_uses():
    takes = {tool.name: set(tool.takes) for tool in load_tools().values()}
    assert takes["utility_cache"] >= {"data_processing_parser", "network_fetcher"}
    assert takes["data_processing_parser"] >= {"network_fetcher", "file_operations_reader"}
    assert "network_monitor" not in {*takes["utility_cache"], *takes["utility_logger"]}
    assert all(own <= load_tools().keys() for own in takes.values())
    for tool in load_tools().values():
        assert not takes[tool.name] & {tool.name, *tool.dependencies}


def test_registry_errors_fit_their_category():
    for tool in load_tools().values():
        assert {"INVALID_INPUT", "OPERATION_FAILED", "TIMEOUT"} <= set(tool.errors)
        assert ("FILE_NOT_FOUND" in tool.errors) == (tool.category == "file_operations")
        assert ("NETWORK_ERROR" in tool.errors) == (tool.category == "network")
        assert ("OVERFLOW" in tool.errors) == (tool.category == "computation")


def test_registry_examples_are_valid_arguments():
    for tool in load_tools().values():
        examples = {parameter.name: parameter.example for parameter in tool.parameters}
        known = {value for value in examples.values() if isinstance(value, str)}
        if tool.name == "data_processing_parser":
            assert str(examples["source"]).endswith(str(examples["format"]))
        assert check_arguments(tool, examples, known) is None, tool.name


def test_registry_parameters_with_the_same_name_have_the_same_type_and_constraint():
    seen = {}
    for tool in load_tools().values():
        for parameter in tool.parameters:
            key = parameter.name
            # A parser accepts files and URLs; other tools accept only files.
            shape = (parameter.type, parameter.required, parameter.constraints.enum)
            assert seen.setdefault(key, shape) == shape, (tool.name, key)


@pytest.mark.parametrize("name", ["network_fetcher", "Network_Fetcher", "NETWORK_FETCHER"])
def test_tool_names_ignore_letter_case(name):
    assert tool_named(name) is load_tools()["network_fetcher"]


@pytest.mark.parametrize("name", ["", "fetcher", "network_fetche", "network-fetcher", "x" * 500])
def test_tool_names_are_never_guessed(name):
    assert tool_named(name) is None


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("download a web page", "network_fetcher"),
        ("zip a file", "file_operations_compressor"),
        ("sum per group", "data_processing_aggregator"),
        ("check rows against a schema", "data_processing_validator"),
        ("send an email to people", "utility_notifier"),
        ("forecast future values", "computation_predictor"),
        ("cron timetable", "integration_scheduler"),
        ("network validator", "network_validator"),
        ("data validator", "data_processing_validator"),
    ],
)
def test_search_finds_the_tool_by_ordinary_words(query, best):
    hits = search_tools(query)
    assert hits[0].name == best
    assert len(hits) <= N_HITS


def test_search_without_a_known_word_finds_nothing():
    assert search_tools("") == search_tools("qqq 123 !!") == ()


def test_search_finds_every_tool_by_its_own_name():
    for tool in load_tools().values():
        assert search_tools(tool.name.replace("_", " "))[0] is tool
        assert search_tools(tool.description)[0] is tool
