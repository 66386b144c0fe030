"""Time and memory to merge many cases: `python -m benchmarks.merge_cost CASES PARTS`.

The parts are shards, which the store writes in the same way as in real runs. Each shard has two
segments. Each case has one request and a conversation of 180 words, and all cases use one model.
The command `merge` runs in a separate process.
"""

# The functions of the tests that make runs have no types.
# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks.overhead.command import Checkout
from pytest_ultrapar.records import EpisodeEnded, Grade, TurnMessage
from pytest_ultrapar.store.journal import JournalWriter
from tests.unit.finished_run import NOW, case, episode, grade, make_run

SEATS = 400
"""Seats of the run. An answer takes a second."""
_AT_ONCE = 500
_WORDS = tuple("the model was asked to order steps of a workflow and to say why".split())  # noqa: SIM905


def make_part(path: Path, numbers: range, k: int, n: int) -> None:
    """Write the finished run of one shard.

    Args:
        path: Its directory.
        numbers: The numbers of its cases.
        k: The number of the shard, from 1.
        n: The number of shards.
    """
    cases = [case(number, number=number) for number in numbers]
    run = make_run(path, cases, ended_at=NOW, shard=f"{k}/{n}", host=f"host-{k}")
    dice = random.Random(k)
    for half in range(2):
        writer = JournalWriter(run.journal, f"gw{half}", lambda data: data)
        for begin in range(half, len(cases), 2 * _AT_ONCE):
            own = range(begin, min(begin + 2 * _AT_ONCE, len(cases)), 2)
            writer.append_all([one for at in own for one in _records(numbers[at], at, dice)])
        writer.close()


def _records(number: int, at: int, dice: random.Random) -> tuple[EpisodeEnded, Grade]:
    roles = ("user", "assistant")
    said = (" ".join(dice.choices(_WORDS, k=90)) for _ in range(2))
    messages = [TurnMessage(0, role, text) for role, text in zip(roles, said, strict=True)]
    begin_s, took_s = at // SEATS, 0.6 + 0.3 * dice.random()
    outcome = dice.choice(("solved", "solved", "unsolved"))
    scores = {"workflow": dice.random()}
    ended: EpisodeEnded = episode(number, begin_s, begin_s + took_s, messages=messages)
    graded: Grade = grade(number, outcome, begin_s + took_s, scores=scores)
    return ended, graded


def main() -> None:
    """Make the parts, merge them, and print time and memory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", type=int)
    parser.add_argument("parts", type=int)
    parser.add_argument(
        "--in", dest="folder", type=Path, help="folder in which the parts are kept and reused"
    )
    arguments = parser.parse_args()
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="merge-cost-"))
    n, of = arguments.cases, arguments.parts
    parts = [folder / f"{n}-{k}-{of}" for k in range(1, of + 1)]
    for k, path in enumerate(parts, 1):
        if not (path / "manifest.json").exists():
            make_part(path, range(n * (k - 1) // of, n * k // of), k, of)
    out = folder / "whole"
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, "-m", "pytest_ultrapar.cli", "merge", *map(str, parts)]
    cost = Checkout(os.environ).run([*command, "--out", str(out)], watched=True)
    most = f"peak {cost.peaks_mib['pytest']:.0f} MiB"
    print(f"{n:,} cases in {of} parts: {cost.wall_s:.0f} s, {cost.cpu_s:.0f} s of CPU, {most}")
    if arguments.folder is None:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
