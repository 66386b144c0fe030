"""Users' code type-checks against the installed package, and mypy finds mistakes in it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
MISTAKES = (
    ("await llm.chat(messages,", "await llm.chat(3,", 'has incompatible type "int"'),
    ("reply.tokens_out)", "reply.tokens)", '"Reply" has no attribute "tokens"'),
    ("{case.seed}", "{case.sead}", '"CaseInfo" has no attribute "sead"'),
    ('"tool_call_id": call.call_id', '"tool_call_id": call.id', '"ToolCall" has no attribute "id"'),
    (
        'grade(talk.answer == "42",',
        "grade(42,",
        'Argument 1 to "__call__" of "Grader" has incompatible type "int"',
    ),
)


def test_users_code_is_clean_under_strict_and_mistakes_in_it_are_found(tmp_path):
    suite = (HERE / "user_suite.py").read_text(encoding="utf-8")
    for right, wrong, _ in MISTAKES:
        assert suite.count(right) == 1, right
        suite = suite.replace(right, wrong)
    mistaken = tmp_path / "mistaken_suite.py"
    mistaken.write_text(suite, encoding="utf-8")
    # Not the repository's own settings, which users do not have. The suite does not use these
    # clients, and they are four fifths of the code that mypy would read.
    settings = "[mypy]\n[mypy-openai.*,anthropic.*]\nfollow_imports = skip\n"
    (tmp_path / "mypy.ini").write_text(settings)
    options = ["--strict", "--config-file=mypy.ini", "--cache-dir=.", "--no-error-summary"]
    files = [HERE / "user_suite.py", HERE / "user_conftest.py", mistaken]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *files],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    found = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert [line for line in found if not line.startswith("mistaken_suite.py:")] == [], done.stdout
    assert len(found) == len(MISTAKES), done.stdout
    for _, _, said in MISTAKES:
        assert said in done.stdout
