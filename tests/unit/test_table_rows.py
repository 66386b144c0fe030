"""Rows of some cases are read without the rows of other cases."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.store.table_rows import read_columns

N_ROWS = 40


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """A table with row groups of seven rows. Each case has two consecutive rows."""
    path = tmp_path_factory.mktemp("run")
    ids = [f"case{at // 2}" for at in range(N_ROWS)]
    table = pa.table({"case_id": ids, "at": range(N_ROWS)})
    pq.write_table(table, path / "attempts.parquet", row_group_size=7, write_page_checksum=True)
    return path


@given(wanted=st.sets(st.integers(0, N_ROWS // 2 + 3)))
def test_cases_have_all_their_rows_in_order(directory, wanted):
    names = [f"case{number}" for number in wanted]
    found = read_columns(directory, "attempts", ["case_id", "at"], of_cases=names)
    assert found["at"].to_pylist() == [at for at in range(N_ROWS) if at // 2 in wanted]
