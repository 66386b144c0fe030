"""The aggregate as `aggregate.parquet` and `aggregate.csv`."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench_suites.workflow.aggregate import Row
from pytest_ultrapar.publish import write_whole
from pytest_ultrapar.store.tables import SIMULATED_KEY

_KEY = (
    ("model", pa.string()),
    ("prompt_type", pa.string()),
    ("tool_success_rate", pa.float64()),
    ("difficulty", pa.string()),
    ("task_type", pa.string()),
)
_COUNTS = (
    "total",
    "success",
    "full_success",
    "partial_success",
    "successful",
    "partial",
    "failed",
)
_SHARES_AND_MEANS = (
    "success_rate",
    "full_success_rate",
    "partial_success_rate",
    "partial_rate",
    "failure_rate",
    "weighted_success_score",
    "avg_execution_time",
    "avg_turns",
    "avg_tool_calls",
    "tool_coverage_rate",
    "avg_workflow_score",
    "avg_phase2_score",
    "avg_quality_score",
    "avg_final_score",
)
_ERRORS = (
    "total_errors",
    "tool_call_format_errors",
    "timeout_errors",
    "dependency_errors",
    "parameter_config_errors",
    "tool_selection_errors",
    "sequence_order_errors",
    "max_turns_errors",
    "other_errors",
)
_ERROR_RATES = (
    "tool_selection_error_rate",
    "parameter_error_rate",
    "sequence_error_rate",
    "dependency_error_rate",
    "timeout_error_rate",
    "format_error_rate",
    "max_turns_error_rate",
    "other_error_rate",
)
_ASSISTED = (
    "assisted_failure",
    "assisted_success",
    "total_assisted_turns",
    "tests_with_assistance",
)
_ASSISTANCE = ("avg_assisted_turns", "assisted_success_rate", "assistance_rate")
SCHEMA = pa.schema(
    [
        *_KEY,
        *((name, pa.int64()) for name in _COUNTS),
        *((name, pa.float64()) for name in _SHARES_AND_MEANS),
        *((name, pa.int64()) for name in _ERRORS),
        *((name, pa.float64()) for name in _ERROR_RATES),
        *((name, pa.int64()) for name in _ASSISTED),
        *((name, pa.float64()) for name in _ASSISTANCE),
        ("last_updated", pa.timestamp("us", tz="UTC")),
        ("infra", pa.int64()),
    ]
)
"""The original's 51 columns in its order, and `infra`."""


def write_aggregate(directory: Path, rows: Sequence[Row], *, simulated: bool) -> tuple[str, ...]:
    """Write both files, each whole or not at all, and return their names.

    Raises:
        ResultsError: One cannot be written; an earlier file of its name is as it was.
    """
    contents = {
        "aggregate.parquet": _parquet(rows, simulated=simulated),
        "aggregate.csv": _csv(rows),
    }
    for name, content in contents.items():
        write_whole(directory / name, content)
    return tuple(contents)


def _parquet(rows: Sequence[Row], *, simulated: bool) -> bytes:
    schema = SCHEMA.with_metadata({SIMULATED_KEY: "true" if simulated else "false"})
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema), sink, compression="zstd")
    return bytes(sink.getvalue())


def _csv(rows: Iterable[Row]) -> bytes:
    """One line per row below the names; nothing between two commas is a missing value."""
    text = io.StringIO()
    writer = csv.DictWriter(text, SCHEMA.names, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _csv_value(value) for name, value in row.items()})
    return text.getvalue().encode()


def _csv_value(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else value
