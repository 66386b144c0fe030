import pytest

from bench_suites.workflow import load_tools
from bench_suites.workflow.arguments import check_arguments
from bench_suites.workflow.steps import effective

WRITER = "file_operations_writer"
KNOWN = {"data/orders/2024-01.csv", "https://orders.example/v1/intake"}


def fault(tool, **arguments):
    return check_arguments(load_tools()[tool], arguments, KNOWN)


def test_valid_arguments_have_no_fault():
    source = "data/orders/2024-01.csv"
    assert fault("data_processing_parser", source=source, format="csv") is None
    assert fault("file_operations_reader", source=f"./{source}") is None
    assert fault("computation_analyzer", metric="mean", threshold=1) is None
    assert fault("data_processing_transformer", transform="pivot", columns=["a", "b"]) is None


def test_arguments_are_compared_as_json_values():
    assert fault("utility_cache", cache_key="a:b", ttl_s=5.0) is None
    assert fault("utility_cache", cache_key="a:b", ttl_s=None) is None
    told = {"cache_key": "a:b", "ttl_s": 5}
    assert effective("utility_cache", told | {"ttl_s": 5.0}) == effective("utility_cache", told)
    assert effective("utility_cache", told | {"ttl_s": None}) == {"cache_key": "a:b"}


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("utility_cache", {}, "parameter cache_key is missing; a string such as"),
        ("utility_cache", {"key": "a:b"}, 'parameter "key" is unknown; allowed are cache_key'),
        ("utility_cache", {"cache_key": "A B"}, 'a string such as "sandbox:last" (got "A B")'),
        ("utility_cache", {"cache_key": "a:b", "ttl_s": 0}, "an integer from 1 to 86400 (got 0)"),
        ("utility_cache", {"cache_key": None}, "parameter cache_key is missing; a string such as"),
        ("utility_cache", {"cache_key": ["a:b", None, True]}, '(got ["a:b", null, true])'),
        ("utility_cache", {"cache_key": "a:b", "ttl_s": 5.5}, "from 1 to 86400 (got 5.5)"),
        ("utility_logger", {"message": "x" * 1001}, "parameter message has over 1000 characters"),
        ("utility_logger", {"message": ""}, 'must be a string of at least 1 character (got "")'),
        (
            "integration_scheduler",
            {"cron": "0 0 * * *", "timezone": "Z"},
            'a string of at least 2 characters (got "Z")',
        ),
        ("computation_predictor", {"horizon_days": 10**4000}, "(got 1000"),
        ("computation_analyzer", {"metric": "mean", "threshold": float("inf")}, "(got Infinity)"),
        ("computation_analyzer", {"metric": "mode"}, "one of mean, median, variance"),
        ("data_processing_transformer", {"transform": "pivot", "columns": [1]}, "array of strings"),
        ("data_processing_validator", {"schema": "s", "strict": 1}, "nothing at"),
        ("network_fetcher", {"url": "https://other.example"}, "there is nothing at"),
        (WRITER, {"destination": "/etc/x.csv", "target_format": "csv"}, "relative"),
        (
            "data_processing_parser",
            {"source": "data/orders/2024-01.csv", "format": "xml"},
            'format must be that of the source, "csv" (got "xml")',
        ),
    ],
)
def test_invalid_arguments_are_named_with_the_allowed_values(tool, arguments, message):
    found = fault(tool, **arguments)
    assert found is not None
    assert found.code == "INVALID_INPUT"
    assert message in found.message
    assert len(found.message) < 400


def test_argument_with_a_missing_file_is_file_not_found():
    found = fault("file_operations_reader", source="data/nowhere.csv")
    assert found is not None
    assert found.code == "FILE_NOT_FOUND"


def test_arguments_with_any_text_give_a_message_that_can_be_sent():
    found = fault("utility_cache", cache_key="\ud800" * 1000, ttl_s=1)
    assert found is not None
    assert found.message.encode()
