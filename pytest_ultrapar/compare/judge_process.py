"""A gate judged in a process of its own: `python -m pytest_ultrapar.compare.judge_process`.

Reading the tables needs pyarrow, which weighs 50 MB in whoever imports it. The order comes as JSON
on standard input, the judgement goes out on standard output.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.compare.gate import GateResult, Undecided, judge
from pytest_ultrapar.compare.rules import Rule
from pytest_ultrapar.errors import UltraparError
from pytest_ultrapar.results.apart import run_apart
from pytest_ultrapar.results.measured_run import find_measured_run

if TYPE_CHECKING:
    from pathlib import Path


class Order(msgspec.Struct, frozen=True):
    """What to judge: directories of runs, and rules (none takes the default ones)."""

    run: str
    baseline: str | None
    rules: tuple[Rule, ...]
    undecided: Undecided


def judge_in_subprocess(
    run_dir: Path, baseline: Path | None, rules: tuple[Rule, ...], undecided: Undecided
) -> GateResult:
    """Judge a finished run in a new process and wait for it.

    Raises:
        ResultsError: It could not be judged.
    """
    base = str(baseline) if baseline is not None else None
    order = Order(str(run_dir), base, rules, undecided)
    said = run_apart(__name__, stdin=msgspec.json.encode(order))
    return msgspec.json.decode(said, type=GateResult)


def main() -> int:
    """Judge what standard input says; 0, or 1 after a message on standard error."""
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    try:
        baseline = find_measured_run(order.baseline) if order.baseline is not None else None
        run = find_measured_run(order.run)
        result = judge(order.rules, run, baseline, undecided=order.undecided)
    except UltraparError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.buffer.write(msgspec.json.encode(result))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
