"""Rounds of the program, played as a user plays them."""

from __future__ import annotations

import json

import pytest

from tests.cluster_faults.__main__ import main

pytestmark = pytest.mark.slow


def test_a_round_breaks_no_limit_and_loses_nothing(tmp_path, capsys):
    """Play a round, in namespaces if this process may make them."""
    results = tmp_path / "results.jsonl"
    options = ("--seed", "11", "--out", str(tmp_path / "rounds"), "--results", str(results))
    code = main(["controller", *options])
    output = capsys.readouterr().out
    assert code == 0, output
    (result,) = map(json.loads, results.read_text().splitlines())
    assert result["violations"] == []
    assert result["requests"] >= result["cases"]
    assert result["sessions"] == result["hosts"] + 1
    assert "killed after" in result["done"]
