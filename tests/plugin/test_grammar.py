"""Messages about one of something: "1 request", never "1 requests"."""

from __future__ import annotations

import re

from tests.plugin.conftest import cases

SUITE = cases(["count 1 say yes"], "assert answer")
ODD = re.compile(r"\b1 (?!pass)\w+s\b(?! (in|after))")
"""`1 requests`, but not `1 s`, `1 passed` or a verb."""


def odd(text: str) -> list[str]:
    return [line for line in text.splitlines() if ODD.search(line)]


def test_run_of_one_case_uses_the_singular(project):
    project.suite(SUITE)
    result = project.run_here("-n0")
    assert result.ret == 0
    said = result.stdout.str()
    assert "at most 1 request in flight" in said
    assert odd(said) == []


def test_plan_of_one_case_uses_the_singular(project):
    project.suite(SUITE)
    result = project.run_here("--ultrapar-plan")
    assert result.ret == 0
    assert "m has 4 seats for 1 case" in result.stdout.str()
    assert odd(result.stdout.str()) == []
