"""Compare phase 5.3 of the benchmark on several hosts with one host without a cluster, in pairs.

The pool is the pool of the quick start. All runs have the same provider, and its log gives the
figure: seconds from the first arrival to the last answer. One run at a time.
"""

from __future__ import annotations

import shutil
import statistics
from dataclasses import dataclass
from pathlib import Path

from tests.cluster_faults.stage import Stage

ROOT = Path(__file__).parents[2]
SUITE = ROOT / "bench_suites"
DEADLINE_S = 600.0
ALONE = 0
"""The number of hosts of a run without a cluster: one."""


@dataclass(frozen=True)
class _Plan:
    n_hosts: int
    workers: tuple[int, ...]
    ahead_s: tuple[int, ...]
    fault: str = "none"
    seed: int = 0


class _Stage(Stage):
    @property
    def is_shared(self):
        return self.plan.n_hosts != ALONE

    def write_pool(self, path):
        shutil.copy(ROOT / "pool.toml", path)

    def write_suite(self, folder):
        self.write_pool(folder / "pool.toml")
        for name in ("conftest.py", "pyproject.toml"):
            shutil.copy(ROOT / name, folder / name)
        shutil.copytree(SUITE, folder / SUITE.name, ignore=shutil.ignore_patterns("__pycache__"))

    def words_of(self, host):
        return [f"{SUITE.name}/phase53", "-q", *super().words_of(host)]


def compare(numbers, rounds, out, *, workers, apart, say):
    """Play rounds with each number of hosts, in turn; print ratios; return the exit code."""
    taken = {n: [] for n in numbers}
    failed = False
    for number in range(rounds):
        for n in numbers:
            folder = out / f"phase53-{n}-{number}"
            took_s, line, is_well = _run(n, folder, apart=apart, workers=workers)
            failed |= not is_well
            taken[n].append(took_s)
            say(f"round {number + 1}, {_named(n)}: {took_s:.2f} s, {line}")
            if is_well:
                shutil.rmtree(folder)
            else:
                say(f"    kept: {folder}")
    if ALONE in taken and all(taken[ALONE]):
        for n in numbers:
            ratios = [of / alone for of, alone in zip(taken[n], taken[ALONE], strict=True)]
            say(
                f"{_named(n)}: median {statistics.median(ratios):.3f} of one host's time "
                f"({', '.join(f'{ratio:.3f}' for ratio in ratios)})"
            )
    return int(failed)


def _named(n):
    return "one host without a cluster" if n == ALONE else f"{n} hosts"


def _run(n, folder, *, apart, workers):
    n_machines = max(1, n)
    plan = _Plan(n, (workers,) * n_machines, tuple(1000 + 50_000 * at for at in range(n_machines)))
    stage = _Stage(folder, plan, apart=apart)
    try:
        for host in stage.hosts:
            host.join()
        ended = [host.process.wait(DEADLINE_S) for host in stage.hosts]
        codes = [host.process.code for host in stage.hosts]
        log = stage.log
    finally:
        stage.end()
    exceeded = list(_exceeded(log))
    line = f"exit codes {codes}, {len(log.requests)} requests, {log.count(429)} refused"
    line = ", ".join([line, *exceeded])
    return log.phase_s, line, all(ended) and set(codes) == {0} and not exceeded


def _exceeded(log):
    """The limits that the log exceeded; rates with the one late arrival that providers allow."""
    if log.count(429):
        yield f"{log.count(429)} refused with 429"
    for limit in log.limits:
        provider, _, name = limit.name.partition("/")
        for level in ("key", "instance"):
            if limit.level != level:
                continue
            of = {"provider": provider, level: name.rpartition("/")[2]}
            most = log.max_in_flight(**of)
            if limit.workers is not None and most > limit.workers:
                yield f"{limit.name}: {most} in flight"
            most = log.max_in_window(1.0, **of)
            if limit.qps is not None and most > limit.qps + 1:
                yield f"{limit.name}: {most} in a second"
