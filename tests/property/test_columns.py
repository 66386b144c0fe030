"""Results and figures, which are computed in columns, equal those computed case by case."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.analysis.journal_scan import JournalScan
from pytest_ultrapar.analysis.measures import Measures
from pytest_ultrapar.analysis.repetitions import cells_of
from pytest_ultrapar.analysis.table_layouts import Uses
from pytest_ultrapar.records import Case, Grade
from pytest_ultrapar.store import table_set
from pytest_ultrapar.store.cases_file import read_cases
from pytest_ultrapar.store.cost import Prices
from pytest_ultrapar.store.journal import decode_record, scan_segment, segments
from pytest_ultrapar.store.journal_history import JournalHistory
from pytest_ultrapar.store.manifest import Manifest, read_manifest
from pytest_ultrapar.store.tables import (
    UNREADABLE,
    Charged,
    Placed,
    Spent,
    case_values,
    charged,
    fit,
    grade_columns,
    grade_values,
    parameter_columns,
    placed,
    results_columns,
    spent_by,
)
from tests.examples import examples
from tests.property.test_any_run_is_shown import CELLS, histories, write
from tests.unit.case_measures import measure_case, measures_of
from tests.unit.finished_run import case

PARAMS = st.fixed_dictionaries(
    {
        "mixed": st.sampled_from([None, 1, 0.5, True, "x", 2**70]),
        "level": st.sampled_from([None, 1, 2.0]),
    }
)


@st.composite
def runs(draw):
    told = draw(st.lists(st.tuples(CELLS, PARAMS, st.sampled_from([None, "c"])), max_size=5))
    cases = [
        msgspec.structs.replace(case(at, model, flaw=flaw, **more), repeat=repeat, cluster=cluster)
        for at, ((model, flaw, repeat), more, cluster) in enumerate(told)
    ]
    fields, journals, named = draw(histories(cases))
    # In a resumed run, a case may be graded by another worker than the one that sent its requests.
    journals = [[by_another(one) if isinstance(one, Grade) else one for one in j] for j in journals]
    return cases, (fields, journals, named)


def by_another(grade):
    return msgspec.structs.replace(grade, worker="gw9")


def one_by_one(run):
    """Rows of `results` and of measures, each made from its own records."""
    manifest, cases = read_manifest(run), read_cases(run)
    history, episodes = JournalHistory(), {}
    for path in segments(run / "journal"):
        for position, record in scan_segment(path, decode_record):
            history.add(position, record)
            episodes[position] = record
    grades = [found.grade for found in history.cases.values() if found.grade is not None]
    params = parameter_columns(cases)
    layouts = Uses({}, cases).layouts()
    said = grade_columns({name for grade in grades for name in grade_values(grade)})
    cells = cells_of(cases)
    rows, measures = [], []
    for one in cases:
        found = history.cases.get(one.case_id)
        if found is None or found.grade is None:
            continue
        grade, final = found.grade, found.final_episode()
        spent, units, episode = None, None, None
        if final is not None:
            episode = episodes[final.position]
            spent = spent_by(episode)
            units = Prices(manifest).of_all(episode.own_attempts)
        measure = measure_case(
            one,
            grade,
            spent,
            summary_by=manifest.summary_by,
            part=manifest.measured_part,
            cost=units,
            cell=cells[one.case_id],
            own=(one.test, *map(one.value_of, layouts[one.test])),
        )
        measures.append(measure)
        nothing = Spent(started_at_us=grade.at_us, ended_at_us=grade.at_us)
        told = {
            Manifest: manifest,
            Case: one,
            Grade: msgspec.structs.replace(grade, worker=(episode or grade).worker),
            Spent: spent or (UNREADABLE if found.had_episode else nothing),
            Charged: charged(units),
            Placed: placed(manifest, episode or grade),
        }
        row = {}
        for column in results_columns(params, said):
            if column in params:
                row[column.name] = fit(case_values(one).get(column.name), column.kind)
            elif column in said:
                row[column.name] = grade_values(grade).get(column.name)
            else:
                row[column.name] = getattr(told[column.record], column.field)
        rows.append(row)
    return rows, measures


def plain(table):
    """A table's rows, with times as microseconds."""
    types = [pa.int64() if pa.types.is_timestamp(one.type) else one.type for one in table.schema]
    return table.cast(pa.schema(zip(table.column_names, types, strict=True))).to_pylist()


def taken(run):
    measures = Measures()
    with closing(JournalScan(run)) as intake:
        intake.read_new()
        intake.leave_out_others()
        ended = intake.ended()
        intake.figures(ended, intake.tables.spent(ended), measures)
        case_ids = [one.grade.case_id for one in ended if one.grade is not None]
        return measures, [*measures.each(case_ids)]


@examples(50)
@given(runs())
def test_columns_equal_the_results_of_single_cases(drawn):
    cases, history = drawn
    with TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        with patch.object(table_set, "CASES_PER_GROUP", 2):
            write(run, cases, *history)
        rows, expected = one_by_one(run)
        assert plain(pq.read_table(run / "results.parquet")) == rows
        measures, each = taken(run)
        columns = measures_of(expected)
        assert measures.kinds == columns.kinds
        for name in columns.rows.dtype.names:
            np.testing.assert_array_equal(measures[name], columns[name])
        assert [one.scores for one in each] == [one.scores for one in expected]
        assert [(one.timed, one.service_s) for one in each] == [
            (one.timed, one.service_s) for one in expected
        ]
