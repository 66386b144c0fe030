"""What `ultrapar` says to a word that is none of its own, and does when nobody can read it."""

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
def test_word_for_what_pytest_does_is_answered_by_its_option(capsys, word):
    with pytest.raises(SystemExit) as ended:
        cli.main([word, "--pool", "pool.toml"])
    assert ended.value.code == 4
    said = capsys.readouterr().err.splitlines()[-1]
    expected = f"ultrapar: error: no subcommand {word}: use pytest ... --ultrapar-{word}"
    assert said.startswith(expected)


@pytest.mark.slow
def test_readable_output_ends_as_the_rules_say(folder):
    done = ultrapar(folder, *GATE, stdout=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, "")
    assert "pass" in done.stdout


@pytest.mark.slow
def test_reader_that_is_gone_ends_it_quietly(folder):
    read, write = os.pipe()
    os.close(read)
    try:
        done = ultrapar(folder, *GATE, stdout=write)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.slow
def test_full_disk_is_said_in_one_sentence(folder):
    with Path("/dev/full").open("wb") as full:
        done = ultrapar(folder, *GATE, stdout=full)
    sentence = "ultrapar: error: cannot write to stdout: No space left on device\n"
    assert (done.returncode, done.stderr) == (4, sentence)


def test_closed_stdout_is_said_in_one_sentence(folder):
    done = ultrapar(folder, *GATE, preexec_fn=lambda: os.close(1))
    assert (done.returncode, done.stderr) == (4, "ultrapar: error: stdout is closed\n")


@pytest.fixture
def failing(monkeypatch, capsys):
    """Calls a subcommand that raises an error; its exit code and what it said."""

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
def test_trouble_elsewhere_is_not_said_of_stdout(failing, error):
    code, said = failing(error)
    assert (code, said.out) == (4, "so far\n")
    assert said.err == f"ultrapar fail: error: {error}\n"


@pytest.mark.parametrize("kind", [ConfigError, ResultsError])
def test_what_cannot_be_used_is_no_failed_rule(failing, kind):
    code, said = failing(kind("journal-1.bin is damaged"))
    assert (code, said.err) == (4, "ultrapar fail: error: journal-1.bin is damaged\n")


def test_fault_of_ours_is_no_failed_rule_and_no_traceback(failing):
    code, said = failing(ZeroDivisionError("float division\x1b[2J by zero"))
    assert code == 4
    (line,) = said.err.splitlines()
    assert "internal error of pytest-ultrapar" in line
    assert "ZeroDivisionError: float division" in line
    assert f"({__file__}, line " in line
    assert "\x1b" not in line


@pytest.mark.slow
def test_results_that_cannot_be_made_anew_are_no_failed_rule(tmp_path):
    compact = "pytest_ultrapar.analysis.compact"
    done = subprocess.run(
        [sys.executable, "-m", compact, tmp_path / "no-run"], capture_output=True, check=False
    )
    assert done.returncode == 4
    assert b"no-run" in done.stderr
