"""The plan of a session that resumes a run: it counts as soon as the manifest names it."""

from __future__ import annotations

import json
import math

import msgspec
import pytest

from pytest_ultrapar.records import Case
from pytest_ultrapar.store.cases_file import (
    cases_digest,
    changed_message,
    changed_parameter,
    read_cases,
    read_collected,
    settle_cases,
    write_cases,
)


def case(at, **params):
    return Case(at, f"{at:016x}", f"t.py::test_it[{at}]", "t", "m", 0, params or {"p": at}, 7)


THEN = [case(0), case(1)]
NOW = [msgspec.structs.replace(case(1), index=0), case(0), case(2)]


@pytest.fixture
def run(tmp_path):
    """A directory with the plan `THEN`, named by its manifest."""
    write_cases(tmp_path, THEN)
    name(tmp_path)
    return tmp_path


def name(directory):
    """Name the plan in the manifest, as an accepted session does."""
    text = json.dumps({"cases_digest": cases_digest(directory)})
    (directory / "manifest.json").write_text(text)


def files(directory):
    return sorted(path.name for path in directory.iterdir())


def test_unchanged_plan_stays_as_it_is(run):
    assert write_cases(run, THEN, resumes=True) == []
    assert read_collected(run) == read_cases(run) == THEN
    name(run)
    settle_cases(run)
    assert files(run) == ["cases.json", "manifest.json"]
    assert read_cases(run) == THEN


def test_refused_session_leaves_the_earlier_plan(run):
    assert write_cases(run, NOW, resumes=True) == []
    assert read_collected(run) == NOW
    assert read_cases(run) == THEN
    settle_cases(run)
    assert files(run) == ["cases.json", "manifest.json"]
    assert read_collected(run) == read_cases(run) == THEN


def test_accepted_plan_replaces_the_earlier_one(run):
    write_cases(run, NOW, resumes=True)
    name(run)
    # A session killed here leaves two plans, and readers use the one that the manifest names.
    assert read_cases(run) == NOW
    assert files(run) == ["cases.json", "cases.next.json", "manifest.json"]
    settle_cases(run)
    settle_cases(run)
    assert read_cases(run) == NOW
    assert files(run) == ["cases.json", "manifest.json"]


def test_truncated_plan_is_not_used(run):
    write_cases(run, NOW, resumes=True)
    name(run)
    earlier = (run / "cases.json").read_bytes()
    (run / "cases.next.json").write_bytes(b"[")
    (run / "manifest.json").write_text("{}")
    settle_cases(run)
    assert (run / "cases.json").read_bytes() == earlier


def test_workers_of_a_resumed_run_are_compared_only_with_each_other(run):
    assert write_cases(run, NOW, resumes=True) == []
    assert write_cases(run, NOW, resumes=True) == []
    assert write_cases(run, [case(5)], resumes=True) == NOW


@pytest.mark.parametrize("plans", [(THEN, NOW), (NOW, THEN)])
def test_worker_with_the_earlier_plan_is_compared_like_others(run, plans):
    one, other = plans
    assert write_cases(run, one, resumes=True) == []
    assert write_cases(run, other, resumes=True) == one
    assert write_cases(run, one, resumes=True) == []


def test_workers_of_a_run_that_was_killed_before_its_plan_are_compared(tmp_path):
    assert write_cases(tmp_path, THEN, resumes=True) == []
    assert write_cases(tmp_path, NOW, resumes=True) == THEN
    name(tmp_path)
    settle_cases(tmp_path)
    assert read_cases(tmp_path) == THEN


def with_content(at, digest, **params):
    held = {} if digest is None else {"p": digest}
    return msgspec.structs.replace(case(at, **params), content=held)


@pytest.mark.parametrize(
    ("then", "now", "changed"),
    [
        (case(0, p="a", q="b"), case(0, p="a", q="c"), "q"),
        (case(0, p=1), case(0, p=True), "p"),
        (case(0, p=1), case(0, p=1.0), "p"),
        (case(0, p=1), case(0, q=1), "p"),
        (case(0, p=math.nan), case(0, p=math.nan), None),
        (case(0, p=None), case(0, p=math.nan), None),
        (with_content(0, "aa", p="K"), with_content(0, "ab", p="K"), "p"),
        (with_content(0, "aa", p="{1, 2}"), with_content(0, "aa", p="{2, 1}"), None),
        (with_content(0, "aa", p="K"), case(0, p="K"), "p"),
        # An earlier version kept texts that differ between processes, and no digests.
        (case(0, p="<K object at 0x7f12>"), with_content(0, "aa", p="K"), None),
        (case(0, p="<K object at 0x7f12>", q=1), with_content(0, "aa", p="K", q=2), "q"),
    ],
)
def test_changed_parameter_is_found_from_both_plans(then, now, changed):
    assert changed_parameter(then, now) == changed


def test_changed_cases_are_counted_and_new_cases_are_not():
    now = [case(0, p="x"), case(1), case(2), case(3, p="y")]
    assert changed_message([case(0), case(1), case(3)], now) == (
        "the data of t.py::test_it[0] (the first of 2 changed cases) have changed: parameter 'p'"
    )
    assert changed_message(THEN, NOW) is None


def test_message_names_code_of_another_python_version():
    then, now = (with_content(0, f"cpython-31{n}:aa", p="f") for n in (1, 2))
    assert changed_message([then], [now]) == (
        "the data of t.py::test_it[0] have changed: parameter 'p' contains code, which "
        "cpython-311 and cpython-312 represent differently"
    )
