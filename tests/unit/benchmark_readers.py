"""How others read `benchmark.json`: the rules of two services, for tests of what is written."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import NamedTuple

_LONGEST_NAME = 1024
_NS = 1_000_000_000


class Bar(NamedTuple):
    """A point of github-action-benchmark: more per second is better."""

    value: float
    range: str
    extra: str


class Metric(NamedTuple):
    """A point of Bencher, in nanoseconds: less is better."""

    value: float
    lower: float
    upper: float


def read_as_github_action(text: str) -> dict[str, Bar]:
    """As `tool: pytest` does.

    Source: github-action-benchmark, src/extract.ts, extractPytestResult. What is missing it calls
    undefined; here it is an error.
    """
    found = {}
    for entry in _strict(text)["benchmarks"]:
        stats = entry["stats"]
        extra = f"mean: {_readable(stats['mean'])}\nrounds: {stats['rounds']}"
        _add(found, entry["fullname"], Bar(stats["ops"], f"stddev: {stats['stddev']}", extra))
    return found


def _readable(seconds: float) -> str:
    for least, factor, unit in ((1.0, 1, "sec"), (1e-3, 1e3, "msec"), (1e-6, 1e6, "usec")):
        if seconds >= least:
            return f"{seconds * factor} {unit}"
    return f"{seconds * 1e9} nsec"


def read_as_bencher(text: str, average: str = "mean") -> dict[str, Metric]:
    """As the adapter `python_pytest` does, which refuses the whole file for one bad entry.

    Source: Bencher, lib/bencher_adapter, adapters/python/pytest.rs; lib/bencher_valid,
    benchmark_name.rs.
    """
    whole = _strict(text)
    assert isinstance(whole["machine_info"], dict)
    assert isinstance(whole["commit_info"], dict)
    found = {}
    for entry in whole["benchmarks"]:
        assert 1 <= len(entry["fullname"].encode()) <= _LONGEST_NAME
        # All four have to be numbers, whichever are used.
        stats = {
            name: float(Decimal(repr(entry["stats"][name])) * _NS)
            for name in ("mean", "stddev", "median", "iqr")
        }
        value = stats[average]
        spread = stats[{"mean": "stddev", "median": "iqr"}[average]]
        _add(found, entry["fullname"], Metric(value, value - spread, value + spread))
    return found


def _add(found: dict, name: str, point: Bar | Metric) -> None:
    # Both keep a series by its name.
    assert name not in found
    found[name] = point


def _strict(text: str) -> dict:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    return json.loads(text, parse_constant=refuse)
