"""Tool and raw client in turn on one workload, against a fresh server each time."""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from benchmarks.overhead.command import CommandError, pin_server
from benchmarks.overhead.command_line import note
from benchmarks.overhead.conversation import Lane
from benchmarks.overhead.ideal import ideal_of
from benchmarks.overhead.rounds import Measurement
from benchmarks.overhead.tables import figures, goals, median
from pytest_ultrapar.simulator.process import SimulatorProcess, default_token
from pytest_ultrapar.testing import read_server_log

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.overhead.command import Checkout, Cost
    from benchmarks.overhead.command_line import Options
    from benchmarks.overhead.conversation import Orders
    from benchmarks.overhead.ideal import Ideal
    from benchmarks.overhead.tables import Rows
    from benchmarks.overhead.workload import Workload
    from pytest_ultrapar.pool.model import Pool
    from pytest_ultrapar.testing import ServerLog

RAW = "raw"
"""The raw client's name where others have their `-n`."""


class Client(Protocol):
    """Makes the command that runs a workload's cases with some client."""

    def __call__(self, *, url: str, directory: Path) -> list[str]:
        """Against a simulated provider at `url`; whatever is kept goes into `directory`."""


def measurement_of(workload: Workload) -> Measurement:
    """The tool with each `-n`, and beside it the raw client and the ideal."""
    return Measurement(partial(workload_round, workload), partial(workload_lines, workload))


def workload_round(workload: Workload, options: Options) -> Rows:
    """Run every client once.

    Besides the figures of `client_row`, `ratio` is `wall_s` / that of the raw client, `of_n0` that
    / the same with `-n 0`, `of_plain` that / an xdist session of sleeping tests.

    Raises:
        CommandError: A command ended badly, or not all requests were answered.
        ConfigError: The pool cannot be served.
    """
    workload = sized(workload, options)
    best = ideal_of(workload)
    rows: Rows = {}
    for n in options.n or workload.n_processes:
        client = f"-n {n}"
        note(f"{workload.name}: {client}")
        cost, log = run_workload(workload, n, options)
        rows[client] = client_row(workload, best, cost, log)
        if workload.plain_test is not None and n and not options.before:
            note(f"{workload.name}: plain {client}")
            test = f"{options.checkout.suite}/{workload.plain_test}"
            argv = options.checkout.pytest(f"-n{n}", test, f"--overhead-cases={workload.n_cases}")
            rows[client]["of_plain"] = cost.wall_s / options.checkout.run(argv).wall_s
    if not options.before:
        note(f"{workload.name}: {RAW}")
        rows[RAW] = client_row(workload, best, *run_client(workload, raw_client(workload), options))
    for name, other in {"ratio": RAW, "of_n0": "-n 0"}.items():
        if other in rows:
            for row in rows.values():
                row[name] = row["wall_s"] / rows[other]["wall_s"]
    return rows


def client_row(workload: Workload, best: Ideal, cost: Cost, log: ServerLog) -> dict[str, float]:
    """The figures of a client that ran all cases.

    By the server's log are `phase_s` (first arrival to last reply), `peak_in_flight` and `n_429`;
    `wall_s` and the CPU are of the whole command and all its processes. `first_s` is the command's
    start to the first arrival, `end_s` the last reply to the command's end. `efficiency` is the
    ideal at the declared mean latency / `phase_s`, `of_bound` the lower bound of the latencies that
    were drawn / `phase_s`, `of_greedy` is `phase_s` / what list scheduling of them takes.
    """
    first_s = log.requests[0].t_arrival_s - cost.started_s
    return {
        "efficiency": best.mean_s / log.phase_s,
        "of_bound": best.bound_s / log.phase_s,
        "of_greedy": log.phase_s / best.greedy_s,
        "first_s": first_s,
        "phase_s": log.phase_s,
        "end_s": cost.wall_s - first_s - log.phase_s,
        "wall_s": cost.wall_s,
        "cpu_ms_per_case": 1000 * cost.cpu_s / workload.n_cases,
        "peak_in_flight": log.max_in_flight(),
        "n_429": log.count(429),
    }


def workload_lines(workload: Workload, rounds: Sequence[Rows], options: Options) -> Iterator[str]:
    """Median and range of every figure by client, and the targets."""
    workload = sized(workload, options)
    yield from title(workload, rounds, options)
    yield from figures(rounds)
    judged = []
    for target in workload.targets:
        client = f"-n {target.n_processes}"
        if client in rounds[0] and target.pinned in {None, options.pinned}:
            value = median(rounds, client, target.figure)
            judged.append((f"{client}: {target.figure}", value, target.goal, target.is_met(value)))
    yield from goals(*judged)


def title(workload: Workload, rounds: Sequence[Rows], options: Options) -> Iterator[str]:
    """What was measured, and how long it takes at best."""
    best = ideal_of(workload)
    yield (
        f"{workload.name}: n = {workload.n_cases} cases of {workload.n_turns} turn(s), "
        f"{best.n_seats} seats, {'pinned' if options.pinned else 'not pinned'}, simulated; "
        f"median [min-max] of {len(rounds)}"
    )
    yield (
        f"ideal {best.mean_s:.3f} s at the pool's mean latency; of the latencies drawn: "
        f"lower bound {best.bound_s:.3f} s ({best.total_s:.1f} s of service / {best.n_seats} "
        f"seats, longest episode {best.longest_s:.3f} s); "
        f"greedy without any cost {best.greedy_s:.3f} s, "
        f"{best.bound_s / best.greedy_s:.3f} of the lower bound"
    )


def sized(workload: Workload, options: Options) -> Workload:
    """The workload with as many cases as the command line says."""
    return replace(workload, n_cases=options.cases or workload.n_cases)


def run_workload(
    workload: Workload,
    n_processes: int,
    options: Options,
    *,
    watched: bool = False,
    directory: Path | None = None,
) -> tuple[Cost, ServerLog]:
    """Run all cases of a workload once with the tool; otherwise like `run_client`.

    Args:
        workload: What to run, as often as it says.
        n_processes: pytest-xdist's `-n`.
        options: Has the code of the tool.
        watched: Whether to look after the memory of each process.
        directory: Where the run is kept; for nobody unless told.
    """
    client = partial(pytest_command, workload, n_processes=n_processes, checkout=options.checkout)
    return run_client(workload, client, options, watched=watched, directory=directory)


def run_client(
    workload: Workload,
    client: Client,
    options: Options,
    *,
    watched: bool = False,
    directory: Path | None = None,
) -> tuple[Cost, ServerLog]:
    """Run all cases of a workload once, and make sure that all were answered.

    The server is always this checkout's, and a fresh one. Arguments are as for `run_workload`.

    Raises:
        CommandError: The command ended badly, or not all requests were answered.
        ConfigError: The pool cannot be served.
    """
    with tempfile.TemporaryDirectory(prefix="overhead-") as temporary:
        log_path = Path(temporary, "server.jsonl")
        with SimulatorProcess.start(workload.pool(), log_path=log_path) as server:
            if options.pinned:
                pin_server(server.pid)
            kept = directory or Path(temporary, "run")
            argv = client(url=f"http://127.0.0.1:{server.port}", directory=kept)
            cost = options.checkout.run(argv, watched=watched)
        log = read_server_log(log_path)
    answered, wanted = log.count(200), workload.n_cases * workload.n_turns
    if answered != wanted:
        msg = f"{workload.name}: the server answered {answered} requests, {wanted} were expected"
        raise CommandError(msg)
    return cost, log


def pytest_command(
    workload: Workload,
    more: Sequence[str] = (),
    *,
    url: str,
    n_processes: int,
    directory: Path,
    checkout: Checkout,
) -> list[str]:
    """The command that runs a workload's cases on a simulated provider that runs at `url`."""
    return checkout.pytest(
        *more,
        f"-n{n_processes}",
        f"{checkout.suite}/{workload.test}",
        f"--overhead-cases={workload.n_cases}",
        f"--ultrapar-pool={workload.pool_path}",
        f"--ultrapar-simulator={url}",
        f"--ultrapar-out={directory}",
    )


def raw_client(workload: Workload) -> Client:
    """The raw client, in this environment."""
    return partial(bare_command, workload, "raw_client", Path(sys.executable))


def bare_command(
    workload: Workload, module: str, python: Path, *, url: str, directory: Path
) -> list[str]:
    """The command of a client that keeps nothing, in no directory: same seats, cases and words."""
    orders: Orders = {
        "lanes": slots(workload.pool(), url),
        "n_cases": workload.n_cases,
        "n_turns": workload.n_turns,
    }
    return [str(python), "-m", f"benchmarks.overhead.{module}", json.dumps(orders)]


def slots(pool: Pool, url: str) -> list[Lane]:
    """All seats of the pool as slots of its lanes, each lane filled as far as its limits go."""
    free = {name: limit.workers for name, limit in pool.limits.items()}
    api_names = {
        instance.name: instance.api_name
        for provider in pool.providers
        for model in provider.models
        for instance in model.instances
    }
    lanes: list[Lane] = []
    for lane in pool.lanes:
        n_slots = min(left for name in lane.limits if (left := free[name]) is not None)
        for name in lane.limits:
            left = free[name]
            free[name] = None if left is None else left - n_slots
        lanes.append(
            Lane(
                url=f"{url}/{lane.provider}/v1/chat/completions",
                token=default_token(lane.provider, lane.key),
                api_name=api_names[lane.instance],
                n_slots=n_slots,
            )
        )
    return [lane for lane in lanes if lane["n_slots"]]
