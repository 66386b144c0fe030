"""Runs the tool and other clients in turn on one workload, each time against a fresh server."""

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
"""The label of the raw client. Runs of the tool have their `-n` as the label."""

Client = Callable[[str, Path], list[str]]
"""Makes the command of a client from the URL of the simulated provider and a directory for its
files."""

_DIVIDED = ("efficiency", "first_s", "phase_s", "end_s", "wall_s", "cpu_ms_per_case")


def measurement_of(workload: Workload) -> Measurement:
    """The measurement of the tool with each `-n`, compared with the raw client and the ideal."""
    title = partial(title_of, workload)
    return Measurement(partial(workload_round, workload), title, workload.goals)


def workload_round(workload: Workload, options: Options) -> Rows:
    """Run every client once; return all figures, and the tool's figures divided by the others'.

    Raises:
        CommandError: A command failed, or not all requests were answered.
        ConfigError: The provider cannot serve the pool.
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
    """Run each client once, and return its figures.

    `phase_s` (first arrival to last reply), `peak_in_flight` and `n_429` come from the server's
    log. `wall_s` and the CPU include the whole command and all its processes. `first_s` is the time
    from the command's start to the first arrival, and `end_s` is the time from the last reply to
    the command's end. `rest_s`, for clients with a journal, is the time from the last case's report
    to the command's end.
    `efficiency` is the ideal time at the declared mean latency, divided by `phase_s`. `of_greedy`
    is `phase_s`, divided by the time of list scheduling with the drawn latencies.
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
    """The quotients of two clients' figures; empty if the other client did not run."""
    if label == other or other not in rows:
        return {}
    own = {name: rows[label][name] / rows[other][name] for name in _DIVIDED}
    return {f"{label} / {other}": own}


def last_report_s(directory: Path) -> float | None:
    """The monotonic time of the last case's grade. The case's report follows immediately.

    The time comes from the journal, since every checkout writes one.

    Args:
        directory: A directory that contains one run, or is empty.
    """
    for journal in directory.rglob("journal"):
        found = (scan_segment(path, decode_record) for path in segments(journal))
        records = (record for each in found for _, record in each)
        last_us = max(record.at_us for record in records if isinstance(record, Grade))
        return last_us / 1e6 - (time.time() - time.monotonic())
    return None


def title_of(workload: Workload, options: Options) -> str:
    """The title of a measurement, with its ideal times."""
    workload = sized(workload, options)
    best = ideal_of(workload)
    return (
        f"{workload.name}: n = {workload.n_cases} cases of {workload.n_turns} turn(s), "
        f"{best.n_seats} seats, {'pinned' if options.pinned else 'not pinned'}. Ideal: "
        f"{best.mean_s:.3f} s at the pool's mean latency. Drawn latencies: lower bound "
        f"{best.bound_s:.3f} s, greedy without overhead {best.greedy_s:.3f} s (efficiency "
        f"{best.bound_s / best.greedy_s:.3f})"
    )


def sized(workload: Workload, options: Options) -> Workload:
    """The workload with the number of cases from the command line."""
    return replace(workload, n_cases=options.cases or workload.n_cases)


def run_client(
    workload: Workload,
    client: Client,
    options: Options,
    directory: Path,
    *,
    watched: bool = False,
) -> tuple[Cost, ServerLog]:
    """Run all cases of a workload once against a fresh server, and check that all were answered.

    The server always runs this checkout's code.

    Args:
        workload: The workload to run.
        client: Makes the command of the client.
        options: The options, with the code of the tool.
        directory: The directory for the client's run.
        watched: Whether to watch the memory of each process.

    Raises:
        CommandError: The command failed, or not all requests were answered.
        ConfigError: The provider cannot serve the pool.
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
        msg = f"{workload.name}: the server answered {answered} of {wanted} requests"
        raise CommandError(msg)
    return cost, log


def summary_of_run(checkout: Checkout, pool: str, *arguments: str) -> tuple[RunSummary, ServerLog]:
    """Run pytest with its own simulated provider; return the run's summary and the provider's log.

    Args:
        checkout: The code of the tool.
        pool: A file in `pools/`.
        arguments: The arguments of pytest.

    Raises:
        CommandError: The run failed.
    """
    with tempfile.TemporaryDirectory(prefix="overhead-") as temporary:
        run = Path(temporary, "run")
        where = f"--ultrapar-pool={ROOT / 'pools' / pool}", f"--ultrapar-out={run}"
        checkout.run(checkout.pytest(*arguments, *where))
        summary = read_summary(run)
        assert summary is not None
        return summary, read_server_log(run / "simulator.jsonl")


def pytest_client(workload: Workload, n_processes: int, checkout: Checkout, *more: str) -> Client:
    """The client that runs the tool of a checkout, with optional arguments."""
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
    """A client that stores nothing, with the same seats, cases and messages."""

    def command(url: str, _: Path) -> list[str]:
        orders: Orders = {
            "lanes": slots(workload.pool(), url),
            "n_cases": workload.n_cases,
            "n_turns": workload.n_turns,
        }
        return [python, "-m", f"benchmarks.overhead.{module}", json.dumps(orders)]

    return command


def slots(pool: Pool, url: str) -> list[Lane]:
    """All seats of the pool as slots of its lanes, up to the limits of each lane."""
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
