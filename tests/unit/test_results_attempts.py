"""The table `attempts` identifies the case of each request without other tables."""

from __future__ import annotations

import msgspec
import pyarrow.parquet as pq

from pytest_ultrapar.analysis.compaction import compact
from tests.unit.finished_run import attempt, case, episode, grade, make_run, write_journal


def test_each_request_has_its_cases_model_and_suite_in_the_last_columns(tmp_path):
    cases = [case(0, "a"), msgspec.structs.replace(case(1, "b"), suite="phase54")]
    run = make_run(tmp_path / "run", cases=cases)
    judged = attempt(2.0, 3.0, role="judge")
    own = [attempt(0.0, 1.0)]
    records = [
        *(episode(0, 0.0, 3.0, attempts=[*own, judged]), grade(0)),
        *(episode(1, 0.0, 1.0, attempts=own), grade(1)),
        # An episode of a case that is no longer planned.
        episode(2, 0.0, 1.0, attempts=own),
    ]
    write_journal(run, "gw0", *records)
    compact(run.path)

    table = pq.read_table(run.path / "attempts.parquet")
    assert table.column_names[-2:] == ["model", "suite"]
    found = table.select(["role", "model", "suite"]).to_pylist()
    assert [tuple(row.values()) for row in found] == [
        ("", "a", "phase53"),
        ("judge", "a", "phase53"),
        ("", "b", "phase54"),
        ("", None, None),
    ]
