"""The brief output of `ultrapar compare`, and the rows that only --full shows."""

from __future__ import annotations

import re

import pytest

from pytest_ultrapar.analysis.measured_run import find_measured_run
from pytest_ultrapar.compare.comparison import compare_runs
from pytest_ultrapar.compare.report import brief_lines
from pytest_ultrapar.errors import ConfigError
from tests.unit.compared_runs import outcomes_of, same_cases, write_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compared")
    worse = {"alpha": outcomes_of(40, solved=0.9), "beta": outcomes_of(40, solved=0.2)}
    write_run(folder / "base", same_cases(), scores=True)
    write_run(folder / "worse", worse, scores=True)
    return folder


@pytest.fixture
def compared(folder, ultrapar, monkeypatch):
    monkeypatch.chdir(folder)

    def call(*words: str) -> str:
        code, said, _ = ultrapar("compare", *words)
        assert code == 0
        return said

    return call


def figures(said: str) -> list[tuple[str, ...]]:
    """The model and figure of each row in the table of answers."""
    table = said.split("answers in ")[1].split("changed cells", maxsplit=1)[0].splitlines()[2:]
    return [tuple(line.split()[:2]) for line in table if not line.startswith(" ")][:-1]


def test_only_full_lists_scores_that_did_not_change_beyond_chance(compared):
    everything = compared("base", "worse", "--full")
    rates = [("alpha", "solved_rate"), ("beta", "solved_rate"), ("all", "solved_rate")]
    scores = [(model, "score.workflow") for model in ("alpha", "beta", "all")]
    assert sorted(figures(everything)) == sorted([*rates, *scores])
    assert compared("base", "worse", "--all") == everything
    assert "no more than chance explains; --full" not in everything
    said = compared("base", "worse", "--markdown")
    assert "1 more figure changed no more than chance explains; --full lists them" in said
    assert said.count("score.workflow") == 2


@pytest.mark.parametrize("others", [["worse"], ["worse", "many"], ["many"], ["base-again"]])
def test_brief_output_fits_fifteen_lines_of_a_terminal(compared, folder, tmp_path, others):
    cells = {f"model-{n}": outcomes_of(10, solved=0.9 - n / 20) for n in range(12)}
    names = {"many": cells | same_cases(), "base-again": same_cases()}
    for name in names.keys() & set(others):
        files = {"test_x.py": name} | {f"prompt{n}.txt": name for n in range(9)}
        write_run(tmp_path / name, names[name], mode="rotate", files=files)
    said = compared("base", *(str((tmp_path if one in names else folder) / one) for one in others))
    lines = said.splitlines()
    assert len(lines) <= 15
    assert max(map(len, lines)) <= 100
    assert not [line for line in lines if line.endswith("...")]
    assert "against" in lines[0]
    assert "the answers are" in said
    rows = [line.split()[:2] for line in lines]
    assert rows.index(["all", "solved_rate"]) + 1 < rows.index(["alpha", "solved_rate"]) + 2
    assert "--full" in lines[-1]
    if "worse" in others[-1:]:
        assert rows.index(["beta", "solved_rate"]) < rows.index(["alpha", "solved_rate"])
    if "many" not in others:
        assert "speed: throughput " in said
        assert re.search(r"\d of \d cells changed", said)


def test_no_line_is_wider_than_the_terminal(folder):
    base, new = (find_measured_run(str(folder / name)) for name in ("base", "worse"))
    for width in (72, 80, 120):
        lines = brief_lines(base, compare_runs(base, [new]), width)
        assert max(map(len, lines)) <= width
        assert len(lines) <= 15


def test_directory_of_several_runs_is_refused_with_their_names(folder):
    with pytest.raises(ConfigError, match=r"is a folder with runs \(2\); specify one") as refused:
        find_measured_run(str(folder))
    assert str(folder / "worse") in str(refused.value)
