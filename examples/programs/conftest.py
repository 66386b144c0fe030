"""Two simulated models. The hasty one writes programs with mistakes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from examples.stand_in import serve

if TYPE_CHECKING:
    import pytest

    Message = dict[str, Any]

CAREFUL = {
    "rotated": """
def rotated(text, n):
    n = n % len(text) if text else 0
    return text[n:] + text[:n]
""",
    "digit_sum": """
def digit_sum(n):
    return sum(map(int, str(abs(n))))
""",
    "collatz_steps": """
def collatz_steps(n):
    steps = 0
    while n != 1:
        n = 3 * n + 1 if n % 2 else n // 2
        steps += 1
    return steps
""",
    "overlap": """
def overlap(a, b):
    return max(0, min(a[1], b[1]) - max(a[0], b[0]))
""",
    "balanced": """
def balanced(text):
    pairs, open_ = {")": "(", "]": "[", "}": "{"}, []
    for one in text:
        if one in pairs.values():
            open_.append(one)
        elif one in pairs and (not open_ or open_.pop() != pairs[one]):
            return False
    return not open_
""",
    "runs": """
from itertools import groupby

def runs(values):
    return [(value, len(list(same))) for value, same in groupby(values)]
""",
    "median": """
def median(values):
    values, half = sorted(values), len(values) // 2
    return values[half] if len(values) % 2 else (values[half - 1] + values[half]) / 2
""",
    "powers_below": """
def powers_below(limit):
    return [2**n for n in range(limit) if 2**n < limit]
""",
}
HASTY = CAREFUL | {
    "rotated": "def rotated(text, n):\n    return text[n:] + text[:n]\n",
    "collatz_steps": CAREFUL["collatz_steps"].replace("!= 1", "!= 0"),
    "balanced": "def balanced(text):\n    return text.count('(') == text.count(')')\n",
    "runs": "def runs(values)\n    return []\n",
}


def writes(programs: dict[str, str], messages: list[Message]) -> Message:
    """Return a message with the program that the prompt names."""
    name = messages[-1]["content"].split("\n")[1].split("(")[0]
    return {"content": f"Here it is:\n```python\n{programs[name].strip()}\n```"}


def pytest_configure(config: pytest.Config) -> None:
    """Start the simulated models once, in xdist's controller."""
    if not hasattr(config, "workerinput"):
        serve(8432, {"careful": partial(writes, CAREFUL), "hasty": partial(writes, HASTY)})
