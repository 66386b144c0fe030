"""`python -m tests.cluster_faults`: whole runs on several hosts under one fault, many times."""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.cluster_faults.faults import FAULTS
from tests.cluster_faults.machines import may_have_namespaces
from tests.cluster_faults.plan import draw
from tests.cluster_faults.rounds import Lateness, as_json, forget, play

_DESCRIPTION = """\
Each round draws a suite, a pool and two or three hosts from its seed. It runs pytest on all
hosts as one cluster run, and causes one fault at a random moment. A host that died joins again; at
the end the round merges all directories. It judges the result by the provider's log, the merged
table and the journals. The exit code is 1 if a rule was broken.

    python -m tests.cluster_faults link --rounds 50 --at-once 3
    python -m tests.cluster_faults all --rounds 5 --results rounds.jsonl
    python -m tests.cluster_faults stopped --rounds 1 --seed 17 --keep
    python -m tests.cluster_faults none --hosts 0 --hosts 2 --hosts 3 --rounds 5

As root, each host is a machine with its own network, processes and clocks (Linux namespaces, which
end with this process). Otherwise hosts are processes on the loopback, and the program refuses
faults of links. The last form runs phase 5.3 of the benchmark on the pool of the quick start and
compares, round by round, one host without a cluster (0) with several hosts.

"""


def main(arguments=None):
    """Play rounds and print a table; return the exit code."""
    options = _parser().parse_args(arguments)
    apart = may_have_namespaces() and not options.plain
    names = [name for name in FAULTS if name != "none"] if options.fault == "all" else []
    names = names or [options.fault]
    refused = [name for name in names if FAULTS[name].is_apart and not apart]
    if refused:
        _say(
            f"{', '.join(refused)} needs network namespaces: run as root, if the system allows them"
        )
        return 4
    out = options.out or Path(tempfile.mkdtemp(prefix="cluster-faults-"))
    if options.hosts:
        from tests.cluster_faults.paired import compare

        return compare(
            options.hosts, options.rounds, out, workers=options.workers, apart=apart, say=_say
        )
    seed = secrets.randbelow(1_000_000) if options.seed is None else options.seed
    plans = [draw(name, seed + n) for n in range(options.rounds) for name in names]
    where = "in namespaces" if apart else "on the loopback, without namespaces"
    _say(f"{len(plans)} rounds from seed {seed}, {where}; folders in {out}")
    results = _play_all(plans, out, apart, options)
    _say(*table(results, names))
    failed = any(result.violations for result in results)
    return int(failed or len(results) < len(plans))


def _play_all(plans, out, apart, options):
    lateness, results, lock = Lateness(), [], threading.Lock()
    stop = threading.Event()

    def one(plan):
        if stop.is_set():
            return
        folder = out / f"{plan.fault}-{plan.seed}"
        result = play(plan, folder, apart=apart, lateness=lateness)
        with lock:
            results.append(result)
            _say(*round_lines(len(results), len(plans), result))
            if options.results is not None:
                with options.results.open("a", encoding="utf-8") as file:
                    file.write(as_json(result) + "\n")
            if not result.violations and not options.keep:
                forget(result)

    with ThreadPoolExecutor(options.at_once) as pool:
        futures = [pool.submit(one, plan) for plan in plans]
        try:
            for future in futures:
                future.result()
        except KeyboardInterrupt:
            stop.set()
            _say("interrupted: rounds in progress are played to their end")
    return results


def round_lines(n, n_all, result):
    """A line for a round, and one for each violation."""
    word = "ok" if not result.violations else "BROKEN" if result.is_broken else "VIOLATED"
    yield (
        f"{n:4}/{n_all} {result.plan.fault:14} seed {result.plan.seed:<7} {word:8} "
        f"{len(result.plan.workers)} hosts, {result.plan.n_cases} cases, {result.n_requests} "
        f"requests, {result.n_twice} twice, {result.n_sessions} sessions, {result.makespan_s:.0f} "
        f"of {result.took_s:.0f} s, machine late {result.late_s:.2f} s; {result.done}"
    )
    for sentence in result.violations:
        yield f"          {sentence}"
    if result.violations:
        yield f"          kept: {result.folder}"


def table(results, names):
    """A row for each fault."""
    columns = ("rounds", "violated", "broken", "requests", "twice", "joined again", "late s")
    yield "".join([f"{'fault':14}", *(f"{column:>14}" for column in columns)])
    for name in names:
        of = [result for result in results if result.plan.fault == name]
        if not of:
            continue
        values = (
            len(of),
            sum(bool(one.violations) and not one.is_broken for one in of),
            sum(one.is_broken for one in of),
            sum(one.n_requests for one in of),
            sum(one.n_twice for one in of),
            sum(max(0, one.n_sessions - len(one.plan.workers)) for one in of),
            f"{max(one.late_s for one in of):.2f}",
        )
        yield "".join([f"{name:14}", *(f"{value:>14}" for value in values)])


def _say(*lines):
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def _parser():
    rows = "\n".join(f"    {name:16} {fault.about}" for name, fault in FAULTS.items())
    parser = argparse.ArgumentParser(
        prog="python -m tests.cluster_faults",
        description=f"{_DESCRIPTION}Faults:\n\n{rows}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "fault", choices=["all", *FAULTS], metavar="FAULT", help="a fault of this list, or all"
    )
    parser.add_argument(
        "--rounds", type=int, default=1, metavar="N", help="rounds of each fault (1)"
    )
    parser.add_argument(
        "--at-once", type=int, default=1, metavar="N", help="rounds at the same time (1)"
    )
    parser.add_argument(
        "--seed", type=int, metavar="N", help="seed of the first round (default: random)"
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="directory for the folders of rounds"
    )
    parser.add_argument(
        "--results", type=Path, metavar="FILE", help="file to which each round adds a line of JSON"
    )
    parser.add_argument("--keep", action="store_true", help="keep folders of rounds that passed")
    parser.add_argument("--plain", action="store_true", help="use no namespaces, even as root")
    parser.add_argument(
        "--hosts",
        type=int,
        action="append",
        metavar="N",
        help="with the fault none: compare phase 5.3 on this many hosts",
    )
    parser.add_argument(
        "--workers", type=int, default=2, metavar="N", help="with --hosts: `-n` of each host (2)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
