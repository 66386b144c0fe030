"""The program of docs/reference/results.md that reads runs of different suites together."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow.parquet as pq

from pytest_ultrapar.analysis.compaction import compact
from tests.unit.finished_run import case, episode, grade, make_run, write_journal

TEXT = (Path(__file__).parents[2] / "docs" / "reference" / "results.md").read_text(encoding="utf-8")


def write_run(path, outcomes, scores, **params):
    cases = [case(number, **params) for number in range(len(outcomes))]
    run = make_run(path, cases)
    for number, outcome in enumerate(outcomes):
        write_journal(run, "gw0", episode(number, 1.0, 2.0), grade(number, outcome, scores=scores))
    compact(run.path)
    return run.path


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
