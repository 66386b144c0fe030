"""What `ultrapar compare` says first, and which rows it leaves to --all."""

from __future__ import annotations

import pytest

from pytest_ultrapar.analysis.measured_run import find_measured_run
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
    """Model and figure of each row of the table of answers."""
    table = said.split("answers of ")[1].split("changed cells", maxsplit=1)[0].splitlines()[2:]
    return [tuple(line.split()[:2]) for line in table if not line.startswith(" ")][:-1]


def test_scores_that_did_not_move_beyond_chance_are_left_to_all(compared):
    said = compared("base", "worse")
    rates = [("alpha", "solved_rate"), ("beta", "solved_rate"), ("all", "solved_rate")]
    moved = [("beta", "score.workflow"), ("all", "score.workflow")]
    assert sorted(figures(said)) == sorted(rates + moved)
    assert "1 more figure did not change beyond chance; --all lists them" in said
    everything = compared("base", "worse", "--all")
    assert sorted(figures(everything)) == sorted([*rates, *moved, ("alpha", "score.workflow")])
    assert "did not change beyond chance" not in everything


def test_directory_of_several_runs_is_refused_with_their_names(folder):
    with pytest.raises(ConfigError, match="is not a run but holds 2; name one: ") as refused:
        find_measured_run(str(folder))
    assert str(folder / "worse") in str(refused.value)
