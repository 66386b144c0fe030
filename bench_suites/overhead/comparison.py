"""Tool and raw client in turn, against a fresh server each time."""

from __future__ import annotations

import json
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from bench_suites.overhead import cores
from bench_suites.overhead.command import CommandError, plain_command, pytest_command, run_timed
from bench_suites.overhead.ideal import ideal_of
from bench_suites.overhead.raw_client import Lane, Orders
from pytest_ultrapar.simulator.process import SimulatorProcess, default_token
from pytest_ultrapar.testing import read_server_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench_suites.overhead.environment import Environment
    from bench_suites.overhead.workload import Workload
    from pytest_ultrapar.pool.model import Pool

RAW = "raw"
"""The raw client's name where others have their `-n`."""

_WARM_UP_CASES = 20
"""Enough that every client imports what it needs, so that compiled files and page cache are
there."""


class Measured(msgspec.Struct, frozen=True):
    """One command, measured.

    Attributes:
        client: `-n 0`, ... for the tool, or `raw`.
        round_no: Commands of the same round ran one after another, from 0.
        efficiency: Ideal at the declared mean latency / `phase_s`.
        of_bound: Lower bound of the latencies that were drawn / `phase_s`.
        of_greedy: `phase_s` / what list scheduling of these latencies in this order takes.
        phase_s: First arrival to last reply, by the server's log.
        peak_in_flight: The most requests in flight at one instant, by the server's log.
        wall_s: The whole command.
        ratio: Its wall time / that of the raw client in the same round.
        plain_s: Wall time of a plain xdist session of sleeping tests with the same `-n` in the same
            round; None where the workload compares with none.
        cpu_ms_per_case: User and system time of all client processes per case.
        n_429: Requests that the server refused for going too fast.
    """

    workload: str
    client: str
    round_no: int
    n: int
    efficiency: float
    of_bound: float
    of_greedy: float
    phase_s: float
    peak_in_flight: int
    wall_s: float
    ratio: float
    cpu_ms_per_case: float
    n_429: int
    plain_s: float | None = None

    @property
    def of_plain(self) -> float | None:
        """Wall time / that of the plain session."""
        return None if self.plain_s is None else self.wall_s / self.plain_s


def compare(
    workload: Workload,
    *,
    n_processes: Sequence[int],
    n_rounds: int,
    pinned: bool,
    environment: Environment,
    note: Callable[[str], object],
) -> list[Measured]:
    """Measure the tool with each `-n` and the raw client, `n_rounds` times in turn.

    Args:
        workload: What to run.
        n_processes: Every `-n` to measure.
        n_rounds: How often, >= 1.
        pinned: Whether client and server have a core each.
        environment: See `environment.measured_environment`.
        note: Called with a line before each command.

    Raises:
        CommandError: A command ended badly, or not all requests were answered.
        ConfigError: The pool cannot be served.
    """
    clients = (*n_processes, None)
    warm_up = replace(workload, n_cases=_WARM_UP_CASES)
    for client in clients:
        note(f"{workload.name}, to warm up: {_name(client)}")
        _measure(warm_up, client, 0, pinned=pinned, environment=environment)
    runs: list[Measured] = []
    for round_no in range(n_rounds):
        measured: list[Measured] = []
        for client in clients:
            note(f"{workload.name}, round {round_no + 1} of {n_rounds}: {_name(client)}")
            one = _measure(workload, client, round_no, pinned=pinned, environment=environment)
            if workload.plain_test is not None and client:
                note(f"{workload.name}, round {round_no + 1} of {n_rounds}: plain -n {client}")
                plain = run_timed(plain_command(workload, n_processes=client), environment)
                one = msgspec.structs.replace(one, plain_s=plain.wall_s)
            measured.append(one)
        raw_s = measured[-1].wall_s
        runs += [msgspec.structs.replace(one, ratio=one.wall_s / raw_s) for one in measured]
    return runs


def _name(n_processes: int | None) -> str:
    return RAW if n_processes is None else f"-n {n_processes}"


def _measure(
    workload: Workload,
    n_processes: int | None,
    round_no: int,
    *,
    pinned: bool,
    environment: Environment,
) -> Measured:
    pool = workload.pool()
    with tempfile.TemporaryDirectory(prefix="overhead-") as temporary:
        directory = Path(temporary)
        log_path = directory / "server.jsonl"
        with serving(pool, log_path, pinned=pinned) as url:
            if n_processes is None:
                argv = raw_command(pool, workload, url)
            else:
                argv = pytest_command(
                    workload, url=url, n_processes=n_processes, directory=directory / "run"
                )
            cost = run_timed(argv, environment)
        log = read_server_log(log_path)
    answered, wanted = log.count(200), workload.n_cases * workload.n_turns
    if answered != wanted:
        msg = f"{workload.name}: the server answered {answered} requests, {wanted} were expected"
        raise CommandError(msg)
    best = ideal_of(workload)
    return Measured(
        workload=workload.name,
        client=_name(n_processes),
        round_no=round_no,
        n=workload.n_cases,
        efficiency=best.mean_s / log.phase_s,
        of_bound=best.bound_s / log.phase_s,
        of_greedy=log.phase_s / best.greedy_s,
        phase_s=log.phase_s,
        peak_in_flight=log.max_in_flight(),
        wall_s=cost.wall_s,
        ratio=1.0,
        cpu_ms_per_case=1000 * cost.cpu_s / workload.n_cases,
        n_429=log.count(429),
    )


@contextmanager
def serving(pool: Pool, log_path: Path, *, pinned: bool) -> Iterator[str]:
    """A simulated provider while entered; its root URL."""
    with SimulatorProcess.start(pool, log_path=log_path) as server:
        if pinned:
            cores.pin_server(server.pid)
        yield f"http://127.0.0.1:{server.port}"


def raw_command(pool: Pool, workload: Workload, url: str) -> list[str]:
    """The command of the raw client with the same seats, cases and words."""
    orders: Orders = {
        "lanes": slots(pool, url),
        "n_cases": workload.n_cases,
        "n_turns": workload.n_turns,
    }
    return [sys.executable, "-m", "bench_suites.overhead.raw_client", json.dumps(orders)]


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
        bounds = [left for name in lane.limits if (left := free[name]) is not None]
        n_slots = min(bounds)
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
