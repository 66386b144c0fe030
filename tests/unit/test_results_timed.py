"""One rule decides which cases are timed, for every reader of a run."""

from __future__ import annotations

import msgspec
import pytest

from pytest_ultrapar.analysis.compaction import compact
from pytest_ultrapar.analysis.measured_run import find_measured_run, read_rows
from pytest_ultrapar.compare.bench.merged import read_mode_run
from pytest_ultrapar.store.manifest import read_manifest, write_manifest
from pytest_ultrapar.store.timing import MeasuredPart, is_completed
from tests.unit.finished_run import NOW, case, episode, grade, make_run, write_journal


def test_completed_cases_sent_a_request_and_are_not_infra():
    assert is_completed("unsolved", 1)
    assert not is_completed("infra", 2)
    assert not is_completed("skipped", 0)


def test_measured_part_begins_with_the_session_and_excludes_the_sample():
    part = MeasuredPart(from_us=10, serial_sample=frozenset({"a"}))
    assert part.holds("b", 10)
    assert not part.holds("b", 9)
    assert not part.holds("a", 10)


@pytest.mark.parametrize("fields", [{}, {"serial_sample": ("case0", "case1")}])
def test_journal_table_and_summary_agree_on_timed_cases(tmp_path, fields):
    cases = [case(n) for n in range(6)]
    run = make_run(tmp_path / "run", cases, **fields)
    records = []
    for n in range(6):
        failed = n == 3
        records += [
            episode(n, float(n), n + 1.0, "infra" if failed else "returned"),
            grade(n, "infra" if failed else "solved"),
        ]
    write_journal(run, "gw0", *records)
    summary = compact(run.path)
    write_manifest(run.path, msgspec.structs.replace(read_manifest(run.path), ended_at=NOW))
    benched = read_mode_run(run.path, summary)
    timed = {case_id for case_id, each in benched.measures.items() if each.timed}
    rows = read_rows(find_measured_run(str(run.path)))
    assert {case_id for case_id, row in rows.items() if row.timed} == timed
    assert summary.statistics.n_timed == len(timed) == (3 if fields else 5)
