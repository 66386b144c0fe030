"""Users' code type-checks against the installed package, and mistakes in it do not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent


def mypy(cache: Path, *files: Path) -> subprocess.CompletedProcess[str]:
    # Not the repository's own settings: a user has none of them.
    options = ["--strict", "--config-file=", f"--cache-dir={cache}", "--no-error-summary"]
    return subprocess.run(
        [sys.executable, "-m", "mypy", *options, *files],
        cwd=cache,
        capture_output=True,
        text=True,
        check=False,
    )


def test_users_code_is_clean_under_strict(tmp_path):
    done = mypy(tmp_path, HERE / "user_suite.py", HERE / "user_conftest.py")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_mistakes_in_users_code_are_found(tmp_path):
    suite = (HERE / "user_suite.py").read_text(encoding="utf-8")
    for right, wrong in (
        ("await llm.chat(messages,", "await llm.chat(3,"),
        ("reply.tokens_out)", "reply.tokens)"),
        ("{case.seed}", "{case.sead}"),
        ('"tool_call_id": call.call_id', '"tool_call_id": call.id'),
        ('grade(talk.answer == "42",', "grade(42,"),
    ):
        assert suite.count(right) == 1, right
        suite = suite.replace(right, wrong)
    path = tmp_path / "user_suite.py"
    path.write_text(suite, encoding="utf-8")
    done = mypy(tmp_path, path)
    found = [line.partition(": error: ")[2] for line in done.stdout.splitlines()]
    assert len([line for line in found if line]) == 5, done.stdout
    assert 'has incompatible type "int"' in done.stdout
    assert '"Reply" has no attribute "tokens"' in done.stdout
    assert '"CaseInfo" has no attribute "sead"' in done.stdout
    assert '"ToolCall" has no attribute "id"' in done.stdout
    assert 'Argument 1 to "__call__" of "Grader" has incompatible type "int"' in done.stdout
