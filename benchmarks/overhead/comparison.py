"""Tool and other clients in turn on one workload, against a fresh server each time."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks.overhead.command import ROOT, Checkout, CommandError, Cost, pin_server
from benchmarks.overhead.conversation import Lane, Orders
from benchmarks.overhead.ideal import ideal_of
from benchmarks.overhead.measurement import Measurement, Options, Rows, note
from benchmarks.overhead.workload import Workload
from pytest_ultrapar.analysis.run_summary import RunSummary, read_summary
from pytest_ultrapar.pool.model import Pool
from pytest_ultrapar.records import Grade
from pytest_ultrapar.simulator.address import default_token
from pytest_ultrapar.simulator.process import SimulatorProcess
from pytest_ultrapar.store.journal import decode_record, scan_segment, segments
from pytest_ultrapar.testing import ServerLog, read_server_log

RAW = "raw"
"""The raw client's name where others have their `-n`."""

Client = Callable[[str, Path], list[str]]
"""The command of a client of the simulated provider at a URL, which keeps what it keeps in a
directory."""

_DIVIDED = ("efficiency", "first_s", "phase_s", "end_s", "wall_s", "cpu_ms_per_case")


def measurement_of(workload: Workload) -> Measurement:
    """The tool with each `-n`, and beside it the raw client and the ideal."""
    title = partial(title_of, workload)
    return Measurement(partial(workload_round, workload), title, workload.goals)


def workload_round(workload: Workload, options: Options) -> Rows:
    """Run every client once; the figures of each, and the tool's divided by the others'.

    Raises:
        CommandError: A command ended badly, or not all requests were answered.
        ConfigError: The pool cannot be served.
    """
    workload = sized(workload, options)
    tools = {
        f"-n {n}": pytest_client(workload, n, options.checkout)
        for n in options.n or workload.n_processes
    }
    others = {} if options.before else {RAW: bare_client(workload, "raw_client", sys.executable)}
    rows = run_clients(workload, tools | others, options)
    for tool in tools:
        rows |= quotients(rows, tool, "-n 0") | quotients(rows, tool, RAW)
    return rows


def run_clients(workload: Workload, clients: Mapping[str, Client], options: Options) -> Rows:
    """Run each client once; its figures.

    By the server's log are `phase_s` (first arrival to last reply), `peak_in_flight` and `n_429`;
    `wall_s` and the CPU are of the whole command and all its processes. `first_s` is the command's
    start to the first arrival, `end_s` the last reply to the command's end, `rest_s` the last
    case's report to that end, for clients that keep a journal. `efficiency` is the ideal at the
    declared mean latency / `phase_s`, `of_greedy` is `phase_s` / what list scheduling of the
    latencies takes that were drawn.
    """
    best = ideal_of(workload)
    rows: Rows = {}
    for name, client in clients.items():
        note(f"{workload.name}: {name}")
        with tempfile.TemporaryDirectory(prefix="overhead-") as kept:
            cost, log = run_client(workload, client, options, Path(kept))
            last_s = last_report_s(Path(kept))
        first_s = log.requests[0].t_arrival_s - cost.started_s
        rows[name] = {
            "efficiency": best.mean_s / log.phase_s,
            "of_greedy": log.phase_s / best.greedy_s,
            "first_s": first_s,
            "phase_s": log.phase_s,
            "end_s": cost.wall_s - first_s - log.phase_s,
            "wall_s": cost.wall_s,
            "cpu_ms_per_case": 1000 * cost.cpu_s / workload.n_cases,
            "peak_in_flight": log.max_in_flight(),
            "n_429": log.count(429),
        }
        if last_s is not None:
            rows[name]["rest_s"] = cost.started_s + cost.wall_s - last_s
    return rows


def quotients(rows: Rows, label: str, other: str) -> Rows:
    """Each figure that says how good a client is / the other's, if there is another one."""
    if label == other or other not in rows:
        return {}
    own = {name: rows[label][name] / rows[other][name] for name in _DIVIDED}
    return {f"{label} / {other}": own}


def last_report_s(directory: Path) -> float | None:
    """When the last case was graded, by the monotonic clock: its report follows at once.

    By the journal, which every checkout writes: a plugin would have to be in each of them.

    Args:
        directory: Holds one run, or nothing.
    """
    for journal in directory.rglob("journal"):
        found = (scan_segment(path, decode_record) for path in segments(journal))
        records = (record for each in found for _, record in each)
        last_us = max(record.at_us for record in records if isinstance(record, Grade))
        return last_us / 1e6 - (time.time() - time.monotonic())
    return None


def title_of(workload: Workload, options: Options) -> str:
    """What is measured, and how long it takes at best."""
    workload = sized(workload, options)
    best = ideal_of(workload)
    return (
        f"{workload.name}: n = {workload.n_cases} cases of {workload.n_turns} turn(s), "
        f"{best.n_seats} seats, {'pinned' if options.pinned else 'not pinned'}; "
        f"ideal {best.mean_s:.3f} s at the pool's mean latency; of the latencies drawn: lower "
        f"bound {best.bound_s:.3f} s, greedy without any cost {best.greedy_s:.3f} s, "
        f"{best.bound_s / best.greedy_s:.3f} of the lower bound"
    )


def sized(workload: Workload, options: Options) -> Workload:
    """The workload with as many cases as the command line says."""
    return replace(workload, n_cases=options.cases or workload.n_cases)


def run_client(
    workload: Workload,
    client: Client,
    options: Options,
    directory: Path,
    *,
    watched: bool = False,
) -> tuple[Cost, ServerLog]:
    """Run all cases of a workload once, and make sure that all were answered.

    The server is always this checkout's, and a fresh one.

    Args:
        workload: What to run, as often as it says.
        client: Its command.
        options: Has the code of the tool.
        directory: Where the client keeps its run.
        watched: Whether to look after the memory of each process.

    Raises:
        CommandError: The command ended badly, or not all requests were answered.
        ConfigError: The pool cannot be served.
    """
    with tempfile.TemporaryDirectory(prefix="overhead-") as temporary:
        log_path = Path(temporary, "server.jsonl")
        with SimulatorProcess.start(workload.pool(), log_path=log_path) as server:
            if options.pinned:
                pin_server(server.pid)
            argv = client(f"http://127.0.0.1:{server.port}", directory / "run")
            cost = options.checkout.run(argv, watched=watched)
        log = read_server_log(log_path)
    answered, wanted = log.count(200), workload.n_cases * workload.n_turns
    if answered != wanted:
        msg = f"{workload.name}: the server answered {answered} requests, {wanted} were expected"
        raise CommandError(msg)
    return cost, log


def summary_of_run(checkout: Checkout, pool: str, *arguments: str) -> tuple[RunSummary, ServerLog]:
    """What a run with a simulated provider of its own says, and what that provider's log does.

    Args:
        checkout: The code of the tool.
        pool: A file in `pools/`.
        arguments: For pytest.

    Raises:
        CommandError: The run ended badly.
    """
    with tempfile.TemporaryDirectory(prefix="overhead-") as temporary:
        run = Path(temporary, "run")
        where = f"--ultrapar-pool={ROOT / 'pools' / pool}", f"--ultrapar-out={run}"
        checkout.run(checkout.pytest(*arguments, *where))
        summary = read_summary(run)
        assert summary is not None
        return summary, read_server_log(run / "simulator.jsonl")


def pytest_client(workload: Workload, n_processes: int, checkout: Checkout, *more: str) -> Client:
    """The tool of a checkout, with more arguments if given."""
    return lambda url, directory: checkout.pytest(
        *more,
        f"-n{n_processes}",
        f"{checkout.suite}/{workload.test}",
        f"--overhead-cases={workload.n_cases}",
        f"--ultrapar-pool={workload.pool_path}",
        f"--ultrapar-simulator={url}",
        f"--ultrapar-out={directory}",
    )


def bare_client(workload: Workload, module: str, python: str) -> Client:
    """A client that keeps nothing: same seats, cases and words."""

    def command(url: str, _: Path) -> list[str]:
        orders: Orders = {
            "lanes": slots(workload.pool(), url),
            "n_cases": workload.n_cases,
            "n_turns": workload.n_turns,
        }
        return [python, "-m", f"benchmarks.overhead.{module}", json.dumps(orders)]

    return command


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
