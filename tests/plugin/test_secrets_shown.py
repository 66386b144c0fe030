"""No key is in pytest's own output and files: names of tests, live logs, warnings."""

from __future__ import annotations

import re

import pytest

from tests.plugin.conftest import CANARY
from tests.plugin.test_secrets import LEAKY, leaks

ODD = "sk-odd\"7d20b6e1\\c94a8f'aa<51e7d>&7f06/%2b+"
"""Every character that some encoding escapes; each run of letters and digits is a secret, too."""


def pieces_found(project, output: str) -> list[str]:
    """The places with a piece of `ODD`, in any encoding."""
    places = {str(p): p for p in project.pytester.path.rglob("*") if p.is_file()}
    texts = {name: path.read_bytes() for name, path in places.items()} | {"": output.encode()}
    return [
        f"{piece} in {name or 'the output'}"
        for name, content in texts.items()
        for piece in ("7d20b6e1", "c94a8f", "51e7d")
        if piece.encode() in content
    ]


@pytest.mark.slow
@pytest.mark.parametrize("storage", ["json", "parquet"])
def test_no_piece_of_a_key_with_quotes_and_backslashes_is_shown(project, monkeypatch, storage):
    monkeypatch.setenv("TEST_KEY_0", ODD)
    project.write_pool(keys=1)
    project.suite(LEAKY)
    result = project.run(
        "-n0",
        "-rA",
        "--showlocals",
        "--junitxml=junit.xml",
        "-ojunit_logging=all",
        "-vv",
        "--ultrapar-max-attempts=1",
        f"--ultrapar-storage={storage}",
        "--ultrapar-debug-log=all",
        "-Wdefault",
    )
    assert result.ret == 1
    assert any("7d20b6e1" in prompt for prompt in project.server.prompts)
    output = result.stdout.str() + result.stderr.str()
    assert pieces_found(project, output) == []
    if storage == "parquet":
        said = {row["content"] for row in project.rows("transcripts")}
        assert "say ***" in said


NAMED = """
import os
KEY, OTHER = os.environ["TEST_KEY_0"], os.environ["TEST_KEY_1"]

@prefetch
async def spoken(llm, secret) -> str:
    return (await llm.chat([{"role": "user", "content": "say " + secret}])).text

@pytest.mark.parametrize("secret", [KEY, pytest.param("two-" + OTHER, id=OTHER)])
def test_case(spoken, secret):
    assert spoken

@pytest.mark.parametrize("secret", [KEY], ids=["harmless"])
def test_parameter(spoken):
    pass

@pytest.mark.skip(reason="waits for " + KEY)
@pytest.mark.parametrize("secret", ["a"])
def test_skipped(spoken): pass

@pytest.mark.parametrize("plain", [KEY])
def test_plain(plain):
    assert not plain
"""


@pytest.mark.slow
def test_key_as_the_name_of_a_test_is_masked_everywhere(project):
    project.write_pool(keys=2)
    project.suite(NAMED)
    result = project.pytester.runpytest_subprocess(
        "--ultrapar-pool=pool.toml", "-n2", "-v", "-rA", "--junitxml=junit.xml"
    )
    assert result.ret == 1
    assert CANARY not in result.stdout.str() + result.stderr.str()
    assert leaks(project) == []
    assert (project.pytester.path / ".pytest_cache/v/cache/lastfailed").exists()
    # Each is a separate case, with the value that its suite gave it.
    assert project.outcomes() == {
        "test_case[m-***-r0]": "solved",
        "test_case[m-***-r0#2]": "solved",
        "test_parameter[m-harmless-r0]": "solved",
        "test_skipped[m-a-r0]": "skipped",
    }
    assert {row["param.secret"] for row in project.rows()} == {"***", "two-***", "a"}
    expected = [f"say {CANARY}-0", f"say {CANARY}-0", f"say two-{CANARY}-1"]
    assert sorted(project.server.prompts) == expected


@pytest.mark.parametrize("option", ["--collect-only", "--ultrapar-plan"])
def test_key_as_the_name_of_a_test_is_masked_if_nothing_runs(project, option):
    project.write_pool(keys=2)
    project.suite(NAMED)
    result = project.run_here(option, "-v")
    assert result.ret == 0
    assert CANARY not in result.stdout.str() + result.stderr.str()
    assert leaks(project) == []


def test_live_log_is_masked_and_cannot_control_the_terminal(project):
    project.suite(
        """
import logging, os

def log(where):
    key = os.environ["TEST_KEY_0"]
    logging.getLogger("suite").warning("%s: key %s \\x1b]0;title\\x07\\x1b[45mred", where, key)

@prefetch
async def spoken(llm) -> str:
    log("episode")
    return (await llm.chat([{"role": "user", "content": "say a"}])).text

def test_case(spoken): log("test")
def test_plain(): log("plain")
"""
    )
    result = project.run("-n0", "-olog_cli=true", "--log-file=kept.log", "--color=yes")
    output = result.stdout.str()
    assert result.ret == 0
    for where in ("episode", "test", "plain"):
        assert f"{where}: key *** " in output
        assert f"{where}: key *** " in (project.pytester.path / "kept.log").read_text()
    assert CANARY not in output
    assert leaks(project) == []
    assert "\x07" not in output
    assert "\x1b[45m" not in output
    # The formatter colours the level's name in the same text: that colour is lost with the others.
    assert re.search(r"^WARNING +suite", output, re.MULTILINE)


def test_warnings_cannot_control_the_terminal(project):
    project.suite(
        """
import warnings

@pytest.mark.parametrize("prompt", ["say a"])
def test_case(answer): warnings.warn("a title \\x1b]0;mine\\x07 and \\x1b[8mhidden")
"""
    )
    result = project.run("-n0", "-Wdefault", "--color=yes")
    output = result.stdout.str()
    assert result.ret == 0
    assert r"a title \x1b]0;mine\x07 and \x1b[8mhidden" in output
    assert "\x07" not in output


@pytest.mark.slow
def test_key_with_blanks_around_it_is_masked_without_them(project, monkeypatch):
    # `$(cat file)` and files of variables leave such blanks.
    monkeypatch.setenv("TEST_KEY_0", f"  {CANARY}\n")
    project.write_pool(keys=1)
    project.suite(LEAKY)
    result = project.run("-n0", "-rA", "--showlocals", "--ultrapar-max-attempts=1")
    assert CANARY in project.server.tokens
    assert CANARY not in result.stdout.str() + result.stderr.str()
    assert leaks(project) == []


EXITS = """
import os, pytest

@prefetch
async def spoken(llm) -> str:
    return (await llm.chat([{"role": "user", "content": "say a"}])).text

def test_case(spoken):
    pytest.exit("no quota left for " + os.environ["TEST_KEY_0"], returncode=3)
"""
BREAKS = """
import os

def pytest_ultrapar_finish(run):
    raise RuntimeError("cannot report with " + os.environ["TEST_KEY_0"])

def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line("with " + os.environ["TEST_KEY_0"], bold=True)
"""


@pytest.mark.slow
def test_key_in_the_reason_of_an_exit_is_masked(project):
    project.suite(EXITS)
    result = project.run("-n0", "--junitxml=junit.xml")
    output = result.stdout.str() + result.stderr.str()
    assert "no quota left for ***" in output
    assert CANARY not in output
    assert leaks(project) == []


@pytest.mark.slow
def test_key_in_an_error_of_a_hook_is_masked(project, workers):
    project.suite(EXITS.replace("pytest.exit", "dict"))
    project.pytester.makeconftest(BREAKS)
    result = project.run(workers, "--junitxml=junit.xml", "--color=yes")
    output = result.stdout.str() + result.stderr.str()
    assert "cannot report with ***" in output
    assert CANARY not in output
    assert leaks(project) == []


def test_key_in_another_plugins_summary_is_masked(project):
    project.suite(EXITS.replace("pytest.exit", "dict"))
    project.pytester.makeconftest(
        BREAKS.replace("ultrapar_finish(run)", "sessionstart()").replace("raise", "return")
    )
    result = project.run("-n0")
    result.stdout.fnmatch_lines(["with [*][*][*]"])
    assert CANARY not in result.stdout.str() + result.stderr.str()
