"""`python -m tests.proxies`: runs under limits that real proxies enforce."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tests.proxies.access_log import n_refused, refused_share
from tests.proxies.catalogue import HIDDEN, LATENCY_S, Hidden
from tests.proxies.daemon import MissingError
from tests.proxies.fronts import running
from tests.proxies.judged_run import Run, play, provider

MODES = ("fixed", "adaptive")
_DESCRIPTION = """\
Runs a suite through nginx and HAProxy, which enforce a limit that the pool does not know, and
prints a table. Behind them is the simulated provider, which answers every request in 0.2 s. Each
limit is run three times: with a pool that knows it, in fixed mode and in adaptive mode. All figures
come from the proxy's own log. Times are from the first request to the last answer; "after the first
trip" is the share of all requests that were refused after the first answer. All runs together take
nearly an hour, half of it for nginx-req-1.
"""
_HEAD = (
    "limit", "the pool says", "mode", "cases", "requests", "refused", "after the first trip",
    "infra", "time", "time / known",
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; return the exit code."""
    names = [hidden.name for hidden in HIDDEN]
    parser = argparse.ArgumentParser(
        prog="python -m tests.proxies",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(names)} (all)")
    parser.add_argument("--mode", action="append", choices=MODES, help="default: both")
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="directory for the files of all runs"
    )
    parser.add_argument(
        "--pytest",
        action="append",
        default=[],
        metavar="OPTION",
        help="pytest option of all runs, such as -n4",
    )
    parser.add_argument(
        "--cases", type=int, metavar="N", help="cases of each run (600; 1,200 at large rates)"
    )
    arguments = parser.parse_args(argv)
    if strange := sorted({*arguments.names} - {*names}):
        parser.error(f"no such limit: {', '.join(strange)}; there are {', '.join(names)}")
    chosen = [one for one in HIDDEN if not arguments.names or one.name in arguments.names]
    with tempfile.TemporaryDirectory(prefix="ultrapar-proxies-") as scratch:
        directory = (arguments.keep or Path(scratch)).absolute()
        if arguments.cases is not None:
            chosen = [replace(one, n=arguments.cases) for one in chosen]
        try:
            with provider(LATENCY_S, directory) as upstream:
                _show(_HEAD)
                _show(["---"] * len(_HEAD))
                for hidden in chosen:
                    modes = arguments.mode or MODES
                    place = directory / hidden.name
                    judge(hidden, upstream, place, modes, arguments.pytest)
        except (MissingError, FileExistsError) as error:
            sys.stderr.write(f"proxies: {error}\n")
            return 4
    return 0


def judge(
    hidden: Hidden, upstream: int, directory: Path, modes: Sequence[str], options: Sequence[str]
) -> None:
    """Run the pool that knows the limit, then the other one in each mode; return a row each."""
    known: Run | None = None
    for limit, mode, place in (
        (hidden.known, "fixed", "known"),
        *((hidden.declared, mode, mode) for mode in modes),
    ):
        with running(hidden.proxy, upstream, directory / place / "proxy") as proxy:
            run = play(
                proxy, directory / place, limit=limit, n=hidden.n, mode=mode, options=tuple(options)
            )
        known = known or run
        _show(row(hidden, limit, mode, run, known))


def row(hidden: Hidden, limit: str, mode: str, run: Run, known: Run) -> list[str]:
    """The cells of a run's row."""
    return [
        hidden.limit,
        limit,
        "fixed, knows it" if run is known else mode,
        str(hidden.n),
        str(len(run.requests)),
        str(n_refused(run.requests)),
        f"{refused_share(run.requests):.1%}",
        str(run.n_infra),
        f"{run.time_s:.1f} s",
        "" if run is known else f"{run.time_s / known.time_s:.2f}",
    ]


def _show(cells: Sequence[str]) -> None:
    sys.stdout.write(f"| {' | '.join(cells)} |\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
