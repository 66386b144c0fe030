"""`python -m tests.proxies`: what runs make of limits that real proxies hold."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.proxies.access_log import n_refused, refused_share
from tests.proxies.catalogue import HIDDEN, LATENCY_S, Hidden
from tests.proxies.fronts import at_work
from tests.proxies.judged_run import Run, play, provider

MODES = ("fixed", "adaptive")
_HEAD = (
    "proxy", "limit", "declared", "mode", "requests", "refused", "after first trip", "infra",
    "time", "known", "ratio",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.proxies", description=__doc__)
    names = [hidden.name for hidden in HIDDEN]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(names)}; default all")
    parser.add_argument("--mode", action="append", choices=MODES, help="default: both")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the files of all runs there")
    parser.add_argument("--pytest", action="append", default=[], metavar="OPTION")
    arguments = parser.parse_args()
    if strange := set(arguments.names) - set(names):
        parser.error(f"no such proxy: {', '.join(sorted(strange))}")
    print(_row(_HEAD), _row(["---"] * len(_HEAD)), sep="\n", flush=True)
    chosen = [one for one in HIDDEN if not arguments.names or one.name in arguments.names]
    with tempfile.TemporaryDirectory(prefix="ultrapar-proxies-") as scratch:
        directory = arguments.keep or Path(scratch)
        with provider(LATENCY_S, directory) as upstream:
            for hidden in chosen:
                judge(hidden, upstream, directory, arguments.mode or MODES, arguments.pytest)
    return 0


def judge(
    hidden: Hidden, upstream: int, directory: Path, modes: list[str], options: list[str]
) -> None:
    def run(limit: str, name: str, mode: str) -> Run:
        place = directory / hidden.name / name
        with at_work(hidden.proxy, upstream, place / "proxy") as front:
            return play(front, place, limit=limit, n=hidden.n, mode=mode, options=tuple(options))

    known = run(hidden.known, "known", "fixed")
    show(hidden, "knows it", known, known)
    for mode in modes:
        show(hidden, mode, run(hidden.declared, mode, mode), known)


def show(hidden: Hidden, mode: str, run: Run, known: Run) -> None:
    print(
        _row(
            [
                hidden.name,
                hidden.limit,
                hidden.known if run is known else hidden.declared,
                mode,
                str(len(run.requests)),
                str(n_refused(run.requests)),
                f"{refused_share(run.requests):.1%}",
                str(run.n_infra),
                f"{run.time_s:.1f} s",
                f"{known.time_s:.1f} s",
                f"{run.time_s / known.time_s:.2f}",
            ]
        ),
        flush=True,
    )


def _row(cells) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
