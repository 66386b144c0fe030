"""A column of `attempts` is a field of `Attempt`, and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pytest_ultrapar import records

pytestmark = pytest.mark.slow

# Another field, written as somebody would write it, before anything else is imported; then a run
# whose episode has a value of it.
PROGRAM = """
import sys, types
from pathlib import Path

source = Path(sys.argv[1]).read_text(encoding="utf-8")
changed = source.replace(
    "        seat_wait_s: Of the",
    "        price: What it cost, by the pool's prices.\\n        seat_wait_s: Of the",
).replace(
    "    seat_wait_s: NoColumn",
    "    price: float | None = None\\n    seat_wait_s: NoColumn",
)
assert changed != source
import pytest_ultrapar
module = types.ModuleType("pytest_ultrapar.records")
sys.modules[module.__name__] = module
exec(compile(changed, sys.argv[1], "exec"), module.__dict__)
pytest_ultrapar.records = module

from pytest_ultrapar.analysis.compaction import compact
from tests.unit.finished_run import attempt, case, episode, grade, make_run, write_journal

run = make_run(Path(sys.argv[2]), [case(0)], storage_format=sys.argv[3])
attempts = [attempt(1.0, 1.5, outcome="rate"), attempt(2.0, 3.0, price=0.25)]
write_journal(run, "gw0", episode(0, 1.0, 3.0, attempts=attempts), grade(0))
compact(run.path)

from tests.column_tables import made

print(made("attempts"))
"""


def run_with_a_price(path, storage_format):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, records.__file__, str(path), storage_format],
        check=True,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    return done.stdout


@pytest.mark.parametrize("storage_format", ["parquet", "json"])
def test_new_field_of_an_attempt_is_a_column_without_more_ado(tmp_path, storage_format):
    run = tmp_path / "out"
    reference = run_with_a_price(run, storage_format)
    assert "| `price` | double or null | What it cost, by the pool's prices |" in reference
    if storage_format == "parquet":
        field = pq.read_schema(run / "attempts.parquet").field("price")
        assert (str(field.type), field.nullable) == ("double", True)
        rows = pq.read_table(run / "attempts.parquet").to_pylist()
    else:
        rows = [json.loads(line) for line in (run / "attempts.jsonl").read_text().splitlines()]
    assert [row["price"] for row in rows] == [None, 0.25]
    assert [row["outcome"] for row in rows] == ["rate", "ok"]
    (segment,) = (run / "journal").iterdir()
    assert '"price":0.25' in segment.read_text()
