"""Parts of a run, with its records in any distribution, are merged into the same run."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.analysis.compaction import compact
from pytest_ultrapar.merge.write_merged import merge
from pytest_ultrapar.store.cases_file import read_cases
from pytest_ultrapar.store.journal import decode_record, scan_segment, segments
from tests.examples import examples
from tests.unit.finished_run import NOW, make_run, run_of_seven, write_journal

OF_THE_RUN = {"run_id": None}
N_PARTS = 3


def rows(directory, table):
    path = directory / f"{table}.parquet"
    found = [{**row, **OF_THE_RUN} for row in pq.read_table(path).to_pylist()]
    return sorted(found, key=lambda row: [str(value) for value in row.values()])


def by_case(run):
    """The records of each case, in the order of the segments, then the records of its grades."""
    found = {}
    for path in segments(run / "journal"):
        for _, record in scan_segment(path, decode_record):
            found.setdefault(record.case_id, []).append(record)
    return found


@examples(50)
@given(st.lists(st.integers(0, N_PARTS - 1), min_size=7, max_size=7), st.booleans())
def test_merged_parts_equal_the_run(places, whole_plan):
    """Shards plan their own cases, hosts of a cluster run plan all of them."""
    with TemporaryDirectory() as folder:
        here = Path(folder)
        run = run_of_seven(here / "run")
        summary = compact(run.path)
        cases, records = read_cases(run.path), by_case(run.path)
        parts = []
        for k in range(N_PARTS):
            own = [case for case, place in zip(cases, places, strict=True) if place == k]
            planned, fields = (cases, {"cluster_run": "n"}) if whole_plan else (own, {})
            part = make_run(here / str(k), planned, **fields)
            for case in own:
                write_journal(part, "gw0", *records.get(case.case_id, ()))
            parts.append(str(part.path))
        made = merge(parts, here / "whole", NOW)
        for table in ("results", "attempts", "transcripts"):
            assert rows(here / "whole", table) == rows(run.path, table)
        merged = made.summary
        assert merged.statistics == summary.statistics
        assert (merged.cells, merged.kinds, merged.cost) == (
            summary.cells,
            summary.kinds,
            summary.cost,
        )


@examples(50)
@given(st.lists(st.integers(0, N_PARTS - 1), min_size=20, max_size=20))
def test_cases_with_records_in_several_parts_keep_one_row(places):
    """Records of a case in several parts, for example after a claim expired."""
    with TemporaryDirectory() as folder:
        here = Path(folder)
        run = run_of_seven(here / "run")
        compact(run.path)
        own = [[] for _ in range(N_PARTS)]
        every = [record for records in by_case(run.path).values() for record in records]
        for record, place in zip(every, places, strict=False):
            own[place].append(record)
        parts = []
        for k, records in enumerate(own):
            part = make_run(here / str(k), read_cases(run.path), cluster_run="n")
            write_journal(part, "gw0", *records)
            parts.append(str(part.path))
        merge(parts, here / "whole", NOW)

        def final(directory):
            return {row["case_id"] for row in rows(directory, "results")}

        assert final(here / "whole") == final(run.path)
        assert len(rows(here / "whole", "results")) == len(final(run.path))
        assert len(rows(here / "whole", "attempts")) == len(rows(run.path, "attempts"))
