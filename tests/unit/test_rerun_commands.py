"""The command that runs cases of a run again, and the outputs that show it."""

from __future__ import annotations

import shlex

import msgspec
import pytest

from pytest_ultrapar.report.rerun_commands import rerun_command, rerun_lines
from pytest_ultrapar.store.manifest import read_manifest
from tests.unit.finished_run import case, episode, grade, make_run, run_of_seven, write_journal


@pytest.fixture
def run(tmp_path):
    def make(*arguments):
        own = make_run(tmp_path / ".ultrapar" / "r", [case(0)], arguments=arguments)
        return read_manifest(own.path), own.path

    return make


def test_options_that_define_the_cases_are_kept(run):
    manifest, _ = run(
        "evals", "-n4", "--ultrapar-pool", "my pool.toml", "--ultrapar-model=a*", "-k", "x",
        "--ultrapar-model=b", "--ultrapar-seed", "7", "--ultrapar-out=o", "--ultrapar-resume=r",
    )  # fmt: skip
    assert shlex.split(rerun_command(manifest, "test_x.py::test[it's a]")) == [
        "pytest", "--ultrapar-pool=my pool.toml", "--ultrapar-model=a*", "--ultrapar-model=b",
        "--ultrapar-seed=7", "test_x.py::test[it's a]",
    ]  # fmt: skip


def test_command_selects_unsolved_cases_by_outcome_and_run(run, tmp_path):
    manifest, path = run()
    counts = {"solved": 3, "partial": 1, "infra": 2, "error": 0}
    assert [*rerun_lines(manifest, counts, path)] == [
        "rerun cases that were not solved: "
        "pytest --ultrapar-only=partial,infra --ultrapar-only-of=r"
    ]
    (line,) = rerun_lines(manifest, {"error": 1}, tmp_path / "o")
    assert line.endswith(f"-of={tmp_path}/o")
    assert not [*rerun_lines(manifest, {"solved": 3}, path)]


def test_unfinished_run_is_first_resumed_with_its_own_command(run):
    manifest, path = run(
        "evals", "-x", "-k", "not a", "--ultrapar-pool=p.toml", "--ultrapar-only=partial",
        "--ultrapar-resume", "o", "--maxfail=3",
    )  # fmt: skip
    finish, again = rerun_lines(manifest, {"never ran": 2, "partial": 1}, path)
    assert finish == (
        "finish the run: pytest evals -k 'not a' --ultrapar-pool=p.toml --ultrapar-only=partial"
        " --ultrapar-resume=r"
    )
    assert again.startswith("rerun cases that were not solved: pytest --ultrapar-pool=p.toml ")
    shared = msgspec.structs.replace(manifest, cluster_run="nightly")
    assert [*rerun_lines(shared, {"never ran": 2}, path)] == []


def test_show_prints_the_commands_that_run_cases_again(ultrapar, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_of_seven(tmp_path / "r", arguments=("--ultrapar-pool=p.toml",))
    _, out, _ = ultrapar("show", "r")
    assert out.splitlines()[-2] == (
        f"finish the run: pytest --ultrapar-pool=p.toml --ultrapar-resume={tmp_path}/r"
    )
    assert out.splitlines()[-1] == (
        "rerun cases that were not solved: pytest --ultrapar-pool=p.toml "
        f"--ultrapar-only=unsolved,partial,error --ultrapar-only-of={tmp_path}/r"
    )
    _, out, _ = ultrapar("show", "r", "case4")
    (line,) = [line for line in out.splitlines() if "run again" in line]
    command = "pytest --ultrapar-pool=p.toml 's/phase53/test_x.py::test[4]'"
    assert line.split(maxsplit=2) == ["run", "again", command]


def test_show_of_a_fully_solved_run_prints_no_command(ultrapar, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_journal(make_run(tmp_path / "r", [case(0)]), "gw0", episode(0, 0, 1), grade(0))
    assert "again" not in ultrapar("show", "r")[1]
