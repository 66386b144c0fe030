"""`python -m tests.torture`: kill, stop and interrupt whole runs, and check the results."""

from __future__ import annotations

import argparse
import resource
import secrets
import signal
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from tests.torture.kinds import KINDS, kinds_like
from tests.torture.plan import draw_plan
from tests.torture.report import round_lines, summary
from tests.torture.rounds import Result, forget, play

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.torture.plan import Plan

_VIOLATED = 1
_INTERRUPTED = 130
_DESCRIPTION = f"""\
Each round draws a small suite and pool from its seed, and runs pytest on them against a simulated
provider whose own log survives. At a moment of the round's kind it causes one fault: it kills,
stops or interrupts one process, some or all. Then it resumes the run until it is complete. It
checks the rules of docs/fault-catalogue.md with the provider's log, the journal, the tables and the
suite's own log. The exit code is 1 if a rule was broken.

    python -m tests.torture --rounds 200
    python -m tests.torture --rounds 20 --kind 'compaction/*' --kind stop/worker
    python -m tests.torture --rounds 1 --seed 17 --kind running/broker --keep

A round that failed prints the command that plays it again, and keeps its folder. The folder has the
suite, the output of each session, the server's log (server.jsonl), the suite's own (witness.jsonl),
the run with its journal (.ultrapar), and the plan with all violations (round.txt). The same seed
and kind make the same plan, but the timing differs each time.

Kinds, played in turn: {", ".join(KINDS)}.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Play rounds and report them; return the exit code."""
    options = _parser().parse_args(arguments)
    # Signals that a shell or nohup ignores for background jobs; the runs would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    # Without this, a process that gets SIGQUIT would leave a core file.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    kinds = kinds_like(options.kind)
    seed = secrets.randbelow(1_000_000) if options.seed is None else options.seed
    plans = [draw_plan(seed + n, kinds[n % len(kinds)]) for n in range(options.rounds)]
    out = options.out or Path(tempfile.mkdtemp(prefix="torture-"))
    out.mkdir(parents=True, exist_ok=True)
    _say(f"{len(plans)} rounds from seed {seed}; folders in {out}")
    results: list[Result] = []
    try:
        for result in _played(plans, out.resolve(), options.jobs):
            results.append(result)
            _say(*round_lines(len(results), len(plans), result))
            if not result.violations and not options.keep:
                forget(result)
    except KeyboardInterrupt:
        _say("interrupted", *summary(results))
        return _INTERRUPTED
    _say(*summary(results))
    if not any(out.iterdir()):
        out.rmdir()
    return _VIOLATED if any(result.violations for result in results) else 0


def _played(plans: Sequence[Plan], out: Path, n_at_once: int) -> Iterator[Result]:
    def place(plan: Plan) -> Path:
        return Path(tempfile.mkdtemp(prefix=f"{plan.seed}-", dir=out)) / "r"

    if n_at_once == 1:
        yield from (play(plan, place(plan)) for plan in plans)
        return
    with ThreadPoolExecutor(n_at_once) as pool:
        yield from pool.map(lambda plan: play(plan, place(plan)), plans)


def _say(*lines: str) -> None:
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.torture",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--rounds",
        type=_at_least(1),
        default=len(KINDS),
        metavar="N",
        help="number of rounds (default: %(default)s, one of each kind)",
    )
    parser.add_argument(
        "--seed",
        type=_at_least(0),
        metavar="N",
        help="seed of the first round; the others have the next numbers (default: random)",
    )
    parser.add_argument(
        "--kind",
        type=_kind,
        action="append",
        default=[],
        metavar="KIND",
        help="play only this kind, or a pattern such as 'running/*'; may be given several times",
    )
    parser.add_argument(
        "--jobs",
        type=_at_least(1),
        default=1,
        metavar="N",
        help="rounds at the same time (default: %(default)s)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="directory for the folders of rounds (default: a new temporary directory)",
    )
    parser.add_argument(
        "--keep", action="store_true", help="also keep the folders of rounds that passed"
    )
    return parser


def _at_least(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        value = int(text)
        if value < least:
            msg = f"must be at least {least} (got {value})"
            raise argparse.ArgumentTypeError(msg)
        return value

    return number


def _kind(text: str) -> str:
    try:
        kinds_like([text])
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


if __name__ == "__main__":
    sys.exit(main())
