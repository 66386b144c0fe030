"""A run of many cases is compacted in slices, with the same result."""

from __future__ import annotations

import json
import shutil

import msgspec
import pyarrow.parquet as pq
import pytest

from pytest_ultrapar.analysis import compaction
from pytest_ultrapar.analysis.compaction import compact
from pytest_ultrapar.records import EngineSpent
from pytest_ultrapar.store.journal import segments
from pytest_ultrapar.store.manifest import read_manifest, write_manifest
from tests.unit.finished_run import (
    case,
    episode,
    grade,
    run_of_repetitions,
    run_of_seven,
    write_journal,
)

pytestmark = pytest.mark.slow


def known(run_dir):
    tables = {
        name: pq.read_table(run_dir / f"{name}.parquet").to_pylist()
        for name in ("results", "attempts", "transcripts")
    }
    benchmark = json.loads((run_dir / "benchmark.json").read_bytes())
    return tables, {**benchmark, "datetime": None}


@pytest.mark.parametrize("make", [run_of_seven, run_of_repetitions])
@pytest.mark.parametrize("size", [1, 3, 6, 23])
def test_slices_make_the_same_tables_as_one_pass(tmp_path, monkeypatch, make, size):
    made = make(tmp_path / "a")
    run = made.path
    by = msgspec.structs.replace(read_manifest(run), summary_by=("model", "label.answer"))
    write_manifest(run, by)
    # A case that is no longer planned, damage, and an engine.
    write_journal(
        made,
        "gw8",
        episode(99, 1.0, 2.0),
        EngineSpent("gw8", 1.0, 0.5, 10, 0.1, 0.1),
        grade(99),
        # A second grade, by scores alone and with labels.
        grade(0, "scored", 60.0, scores={"style": 7.0}, labels={"answer": "B", "n": "3"}),
    )
    last = segments(run / "journal")[0]
    last.write_bytes(last.read_bytes() + b"no record\n")
    shutil.copytree(run, tmp_path / "b")
    whole = compact(run)
    monkeypatch.setattr(compaction, "MOST_AT_ONCE", 1)
    monkeypatch.setattr(compaction, "SLICE", size)
    said = []
    sliced = compact(tmp_path / "b", lambda *at: said.append(at))
    assert known(tmp_path / "b") == known(run)
    # Files with the same rows may have row groups of other sizes.
    assert msgspec.structs.replace(sliced, digests={}) == msgspec.structs.replace(whole, digests={})
    assert ("m1", "B") in {cell.names for cell in sliced.cells}
    (row,) = (row for row in known(run)[0]["results"] if row["label.answer"] is not None)
    assert (row["label.answer"], row["label.n"], row["score.style"]) == ("B", "3", 7.0)
    assert said[-1] == (sliced.statistics.n_planned,) * 2
    assert case(99).case_id in {row["case_id"] for row in known(run)[0]["attempts"]}
