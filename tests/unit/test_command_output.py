"""The answer of `ultrapar` to unknown words, and its end if its output cannot be written."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from pytest_ultrapar import cli
from pytest_ultrapar.errors import ConfigError, ResultsError
from tests.unit.finished_run import NOW
from tests.unit.two_runs import run_of

GATE = ("gate", "run", "--rule", "throughput>=0.1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs")
    run_of(path / "run", "ultra", [(float(n), n + 1.0) for n in range(4)], ended_at=NOW)
    return path


def ultrapar(folder, *words, **streams):
    command = [sys.executable, "-m", "pytest_ultrapar.cli", *words]
    return subprocess.run(
        command, cwd=folder, stderr=subprocess.PIPE, text=True, check=False, **streams
    )


@pytest.mark.parametrize("word", ["plan", "resume"])
def test_subcommand_that_is_an_option_of_pytest_is_answered_with_the_option(capsys, word):
    with pytest.raises(SystemExit) as ended:
        cli.main([word, "--pool", "pool.toml"])
    assert ended.value.code == 4
    said = capsys.readouterr().err.splitlines()[-1]
    expected = f"ultrapar: error: {word} is not a subcommand; use pytest ... --ultrapar-{word}"
    assert said.startswith(expected)


@pytest.mark.slow
def test_gate_with_readable_output_exits_by_its_rules(folder):
    done = ultrapar(folder, *GATE, stdout=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, "")
    assert "pass" in done.stdout


@pytest.mark.slow
def test_closed_pipe_ends_the_command_quietly(folder):
    read, write = os.pipe()
    os.close(read)
    try:
        done = ultrapar(folder, *GATE, stdout=write)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.slow
def test_full_disk_is_one_error_line(folder):
    with Path("/dev/full").open("wb") as full:
        done = ultrapar(folder, *GATE, stdout=full)
    sentence = "ultrapar: error: cannot write to stdout: No space left on device\n"
    assert (done.returncode, done.stderr) == (4, sentence)


def test_closed_stdout_is_one_error_line(folder):
    done = ultrapar(folder, *GATE, preexec_fn=lambda: os.close(1))
    assert (done.returncode, done.stderr) == (4, "ultrapar: error: stdout is closed\n")


@pytest.fixture
def failing(monkeypatch, capsys):
    """Call a subcommand that raises an error; return its exit code and output."""

    def call(error):
        def run(_):
            sys.stdout.write("so far\n")
            raise error

        command = ModuleType("failing_command")
        command.NAME, command.SUMMARY, command.DESCRIPTION = "fail", "", ""
        command.add_arguments, command.run = lambda _: None, run
        monkeypatch.setitem(sys.modules, "failing_command", command)
        monkeypatch.setattr(cli, "SUBCOMMANDS", ("failing_command",))
        code = cli.main(["fail"])
        return code, capsys.readouterr()

    return call


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.ENOSPC, "No space left on device", "/somewhere/run.jsonl"),
        ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"),
        BrokenPipeError(errno.EPIPE, "Broken pipe"),
    ],
    ids=["disk", "file", "connection", "child"],
)
def test_failure_elsewhere_is_not_reported_as_a_failure_of_stdout(failing, error):
    code, said = failing(error)
    assert (code, said.out) == (4, "so far\n")
    assert said.err == f"ultrapar fail: error: {error}\n"


@pytest.mark.parametrize("kind", [ConfigError, ResultsError])
def test_unusable_input_exits_with_4_and_not_like_a_failed_rule(failing, kind):
    code, said = failing(kind("journal-1.bin is damaged"))
    assert (code, said.err) == (4, "ultrapar fail: error: journal-1.bin is damaged\n")


def test_internal_error_exits_with_4_and_shows_no_traceback(failing):
    code, said = failing(ZeroDivisionError("float division\x1b[2J by zero"))
    assert code == 4
    (line,) = said.err.splitlines()
    assert "internal error of pytest-ultrapar" in line
    assert "ZeroDivisionError: float division" in line
    assert f"({__file__}, line " in line
    assert "\x1b" not in line


@pytest.mark.slow
def test_results_that_cannot_be_rebuilt_exit_with_4(tmp_path):
    compact = "pytest_ultrapar.analysis.compact"
    done = subprocess.run(
        [sys.executable, "-m", compact, tmp_path / "no-run"], capture_output=True, check=False
    )
    assert done.returncode == 4
    assert b"no-run" in done.stderr
