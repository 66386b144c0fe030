"""The precedence of follow-ups over new conversations: `python -m benchmarks.conversations`.

The figures come from the log of a scripted server. For each checkout in turn, the program prints
the seconds from the first request to the last answer. It also prints the share of requests that
were answered when half of the conversations had ended. With `--set-up` it prints the times, in
seconds, of cases that pause before or after their only request. `--before` names another checkout,
for pairs of runs.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from statistics import mean

from tests.faults.request_log import RequestLog
from tests.scripted_server import ScriptedProcess

POOL = """
schema = 1
[role.user]
model = "u"
[[provider]]
name = "p"
api = "openai"
base_url = "{url}"
keys = [{{ name = "key0", env = "KEY0" }}]
per_key = {{ workers = {seats} }}
[[provider.model]]
name = "m"
[[provider.model]]
name = "u"
"""
CONVERSATIONS = """
import asyncio, random
import pytest
from pytest_ultrapar import prefetch

@prefetch
async def talk(llm, number) -> int:
    rng = random.Random(f"{seed} {{number}}")
    n = rng.randint({fewest}, {most})
    for turn in range(n):
        client = llm.role("user") if turn % 2 else llm
        seconds = rng.uniform({shortest}, {longest})
        last = "last" if turn == n - 1 else "turn"

        await client.chat(f"slow {{seconds:.3f}} {{number}} {{last}}")
        await asyncio.sleep(rng.uniform(0, {pause}))
    return n

@pytest.mark.parametrize("number", range({n}))
def test_it(talk, number, grade): grade("solved")
"""
SET_UP = """
import asyncio
import pytest
from pytest_ultrapar import prefetch

@prefetch
async def ask(llm, number) -> str:
    await asyncio.sleep({before})
    said = await llm.chat(f"slow 0.2 {{number}} last")
    await asyncio.sleep({after})
    return said.text

@pytest.mark.parametrize("number", range({n}))
def test_it(ask, number, grade): grade("solved")
"""


def run(checkout: Path, suite: str, seats: int, *options: str) -> RequestLog:
    """Run a suite, and return the server's log.

    Raises:
        SystemExit: The run failed.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        server = ScriptedProcess(folder, {})
        try:
            (folder / "pool.toml").write_text(POOL.format(url=server.base_url, seats=seats))
            (folder / "test_suite.py").write_text(suite)
            (folder / "pytest.ini").write_text("[pytest]\n")
            own = ("--ultrapar-pool=pool.toml", "--ultrapar-report=off", "-q")
            done = subprocess.run(
                [sys.executable, "-m", "pytest", *own, *options],
                cwd=folder,
                env=os.environ | {"PYTHONPATH": str(checkout), "KEY0": "k"},
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                sys.exit(done.stdout + done.stderr)
            return server.log
        finally:
            server.stop()


def seconds(log: RequestLog) -> float:
    """The seconds from the first request to the last answer."""
    return max(one.end_s or 0.0 for one in log.requests) - log.requests[0].t_s


def share_at_half(log: RequestLog) -> float:
    """The share of requests that were answered when half of the conversations had ended."""
    answered = sorted(log.requests, key=lambda one: one.end_s or 0.0)
    n_ends = sum(one.prompt.endswith("last") for one in answered)
    ended = 0
    for at, one in enumerate(answered, 1):
        ended += one.prompt.endswith("last")
        if 2 * ended >= n_ends:
            return at / len(answered)
    return 1.0


def conversations(checkout: Path, seed: int, given: argparse.Namespace) -> tuple[float, float]:
    """Run conversations, and return `seconds` and `share_at_half` of their log."""
    suite = CONVERSATIONS.format(
        seed=seed,
        n=given.cases,
        fewest=given.requests[0],
        most=given.requests[1],
        shortest=given.answers[0],
        longest=given.answers[1],
        pause=given.pause,
    )
    log = run(checkout, suite, given.seats, *given.option)
    open_by: Counter[str] = Counter(one.prompt.split()[2] for one in log.requests)
    assert len(open_by) == given.cases
    return seconds(log), share_at_half(log)


def set_up(checkout: Path, given: argparse.Namespace) -> tuple[float, float]:
    """Run 16 cases on 4 seats that pause 2 s before or after their request; return both times."""
    both = ((2, 0), (0, 2))
    suites = [SET_UP.format(n=16, before=before, after=after) for before, after in both]
    before, after = (2 + seconds(run(checkout, suite, 4, *given.option)) for suite in suites)
    return before, after


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, action="append", default=[])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cases", type=int, default=40)
    parser.add_argument("--seats", type=int, default=20)
    parser.add_argument("--requests", type=int, nargs=2, default=(10, 16))
    parser.add_argument("--answers", type=float, nargs=2, default=(0.5, 0.5))
    parser.add_argument("--pause", type=float, default=0.2)
    parser.add_argument("--option", action="append", default=[], help="pytest option, such as -n2")
    parser.add_argument("--set-up", action="store_true", help="measure cases with pauses instead")
    given = parser.parse_args()
    here = Path(__file__).parents[1]
    found: dict[Path, list[tuple[float, ...]]] = {one: [] for one in (*given.before, here)}
    words = "{:.2f} s, {:.0%} of requests answered when half of the conversations had ended"
    if given.set_up:
        words = "pause before {:.2f} s, after {:.2f} s"
    for seed in range(given.rounds):
        for checkout, rows in found.items():
            row = set_up(checkout, given) if given.set_up else conversations(checkout, seed, given)
            rows.append(row)
            print(f"{checkout} round {seed}:", words.format(*row), flush=True)
    for checkout, rows in found.items():
        means = [mean(column) for column in zip(*rows, strict=True)]
        print(f"{checkout}: n = {len(rows)}, mean", words.format(*means))


if __name__ == "__main__":
    main()
