"""Functions that models write. A separate process grades each function with tests.

pytest examples/programs --ultrapar-pool examples/programs/pool.toml
"""

import re

import pytest

from pytest_ultrapar import Grader, Llm, cases, grader, prefetch

TASKS = cases("tasks.jsonl", "prompt", "tests", id="id", meta=("level",))


@prefetch
async def program(llm: Llm, prompt: str) -> str:
    """Ask for a program, and return the code in the answer."""
    text = (await llm.chat(f"Write a function in Python.\n{prompt}")).text
    found = re.search(r"```(?:python)?\n(.*?)```", text, re.DOTALL)
    return found[1] if found else text


@grader(jobs=2, timeout_s=2, memory_mb=512)
def n_passed(program: str, tests: str) -> int:
    """How many tests pass. A case that exceeds the time or memory limit is unsolved."""
    passed = 0
    for test in tests.splitlines():
        try:
            exec(f"{program}\n{test}", {})
        # An exception that a grader raises counts as the grader's error, not the model's.
        except Exception:
            continue
        passed += 1
    return passed


@pytest.mark.ultrapar(summary=("model", "meta.level"))
@pytest.mark.parametrize(("prompt", "tests"), TASKS)
def test_program(n_passed: int, program: str, tests: str, grade: Grader) -> None:
    """Grade a program: solved if all tests pass, partial if some pass."""
    n, lines = len(tests.splitlines()), len(program.splitlines())
    outcome = "solved" if n_passed == n else "partial" if n_passed else "unsolved"
    grade(outcome, f"{n_passed} of {n} tests pass", lines=lines)
