"""What merging many cases takes, in time and memory: `python -m benchmarks.merge_cost CASES PARTS`.

Parts are shards as runs leave them, written by the store's own writers: one request and 180 words
of conversation a case, in two segments each. The merge is the command, in a process of its own.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.overhead.command import Checkout
from pytest_ultrapar.pool.model import Lane, LaneId, Limit
from pytest_ultrapar.records import Attempt, Case, EpisodeEnded, Grade, Outcome, TurnMessage
from pytest_ultrapar.store.cases_file import suite_digest, write_cases
from pytest_ultrapar.store.journal import JournalWriter
from pytest_ultrapar.store.manifest import Manifest, describe_versions, write_manifest
from pytest_ultrapar.store.run_directory import RunDirectory

NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
MODELS = ("m1", "m2", "m3", "m4")
SEATS = 100
"""Of each model in each part; an answer takes a second."""
_AT_ONCE = 500
_WORDS = tuple("the model was asked to order steps of a workflow and to say why".split())  # noqa: SIM905


def make_part(path: Path, numbers: range, k: int, n: int) -> None:
    """Write the finished run of one shard.

    Args:
        path: Its directory.
        numbers: Of its cases.
        k: Which shard.
        n: Of how many.
    """
    cases = [_case(index, number) for index, number in enumerate(numbers)]
    lanes = tuple(
        Lane(LaneId(f"lab/{model}/key0"), "lab", model, model, "key0", (f"lab/{model}",), 1.0, 1.0)
        for model in MODELS
    )
    run = RunDirectory.create(path, NOW, parent=path.parent / ".ultrapar")
    write_cases(run.path, cases)
    dice = random.Random(k)
    for half in range(2):
        writer = JournalWriter(run.journal, f"gw{half}", lambda data: data)
        for begin in range(half, len(cases), 2 * _AT_ONCE):
            own = range(begin, min(begin + 2 * _AT_ONCE, len(cases)), 2)
            writer.append_all([one for at in own for one in _records(cases[at], at, k, half, dice)])
        writer.close()
    write_manifest(
        run.path,
        Manifest(
            run_id=run.run_id,
            started_at=NOW,
            ended_at=NOW,
            pool_path="pool.toml",
            pool_digest="0" * 64,
            models=MODELS,
            simulated=True,
            rate_mode="fixed",
            mode="ultra",
            policy="even",
            seed=5,
            repeats=1,
            n_planned=len(cases),
            suite_digest=suite_digest(cases),
            pool_lanes=lanes,
            pool_limits=tuple(Limit(f"lab/{model}", "key", workers=SEATS) for model in MODELS),
            versions=describe_versions(),
            segments={path.name: path.stat().st_size for path in run.journal.iterdir()},
            shard=f"{k}/{n}",
            host=f"host-{k}",
        ),
    )
    run.close()


def _case(index: int, number: int) -> Case:
    model = MODELS[number % len(MODELS)]
    nodeid = f"bench/test_it.py::test_it[{model}-{number}]"
    return Case(index, f"{number:016x}", nodeid, "bench", model, 0, {"n": number}, number)


def _records(
    case: Case, at: int, k: int, half: int, dice: random.Random
) -> tuple[EpisodeEnded, Grade]:
    begin_s = 1_000.0 * k + at // (SEATS * len(MODELS))
    took_s = 0.6 + 0.3 * dice.random()
    begin_us = int((NOW.timestamp() + begin_s - 1_000.0 * k) * 1e6)
    end_us = begin_us + int(took_s * 1e6)
    attempt = Attempt(
        turn=0, attempt=0, provider="lab", instance=case.model, key="key0", t_ready_s=begin_s,
        t_lease_s=begin_s, t_send_s=begin_s, t_end_s=begin_s + took_s, outcome="ok",
        in_flight_at_send=SEATS, tokens_in=200, tokens_out=100, t_first_byte_s=begin_s + 0.1,
    )  # fmt: skip
    said = [" ".join(dice.choices(_WORDS, k=90)) for _ in range(2)]
    messages = [TurnMessage(0, "user", said[0]), TurnMessage(0, "assistant", said[1])]
    worker = f"gw{half}"
    ended = EpisodeEnded(
        case.case_id, worker, "returned", begin_us, end_us, took_s, n_turns=1,
        attempts=[attempt], messages=messages,
    )  # fmt: skip
    outcomes: tuple[Outcome, ...] = ("solved", "solved", "unsolved")
    graded = Grade(
        case.case_id, worker, dice.choice(outcomes), test="passed",
        scores={"workflow": dice.random()}, at_us=end_us,
    )  # fmt: skip
    return ended, graded


def main() -> None:
    """Make the parts, merge them and say what it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", type=int)
    parser.add_argument("parts", type=int)
    parser.add_argument("--in", dest="folder", type=Path, help="parts that are there are kept")
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
    most = f"{cost.peaks_mib['pytest']:.0f} MiB at most"
    print(f"{n:,} cases in {of} parts: {cost.wall_s:.0f} s, {cost.cpu_s:.0f} s of CPU, {most}")
    if arguments.folder is None:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
