"""The programs in docs/reference/results.md that read the tables of runs."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pytest_ultrapar.analysis.compaction import compact
from tests.unit.finished_run import case, episode, grade, make_run, write_journal

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "reference" / "results.md").read_text(encoding="utf-8")


def write_run(path, outcomes, scores, **params):
    cases = [case(number, **params) for number in range(len(outcomes))]
    run = make_run(path, cases)
    for number, outcome in enumerate(outcomes):
        write_journal(run, "gw0", episode(number, 1.0, 2.0), grade(number, outcome, scores=scores))
    compact(run.path)
    return run.path


@pytest.mark.parametrize("page", ["reference/results.md", "tutorial.md"])
def test_program_with_pyarrow_alone_counts_outcomes(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / ".ultrapar" / "latest", ["solved", "unsolved", "solved"], {})
    programs = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text("utf-8"), re.DOTALL)
    (program,) = [text for text in programs if text.startswith("import pyarrow")]
    exec(compile(program, page, "exec"))
    counts = [row["count_all"] for row in ast.literal_eval(capsys.readouterr().out)]
    assert sorted(counts) == [1, 2]


def test_program_reads_runs_of_different_suites_together(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / ".ultrapar"
    write_run(folder / "first", ["solved", "unsolved"], {"right": 1.0}, level=7, word="a", none=1)
    write_run(folder / "second", ["solved"], {"style": 0.5}, level="hard", share=2, none=None)
    (program,) = re.findall(
        r"```python\n(.*?)```", TEXT.split("## Runs of different suites together")[1], re.DOTALL
    )
    names: dict[str, object] = {}
    exec(compile(program, "docs/reference/results.md", "exec"), names)
    rows = names["together"].to_pylist()
    assert [row["param.level"] for row in rows] == ["7", "7", "hard"]
    assert [row["param.share"] for row in rows] == [0.5, 0.5, 2.0]
    assert [row["param.word"] for row in rows] == ["a", "a", None]
    assert [row["param.none"] for row in rows] == [1, 1, None]
    assert [row["score.right"] for row in rows] == [1.0, 1.0, None]
    assert [row["score.style"] for row in rows] == [None, None, 0.5]
    said = capsys.readouterr().out
    assert "'solved_count': 3" in said
    assert "'solved_mean': 0.6666" in said
    attempts = pq.read_table([f"{run}/attempts.parquet" for run in names["runs"]])
    assert len(attempts) == 3
