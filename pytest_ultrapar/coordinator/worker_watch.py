"""In xdist's controller: kill workers that hang, so that other workers take over their cases."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_ultrapar.broker.blocking_client import BlockingBrokerClient
from pytest_ultrapar.system.clock import boot_s

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_ultrapar.coordinator.coordinator import Coordinator


GRACE_S = 30.0
"""Seconds to add to the time limit for an episode. Even on a busy machine, every thread gets to run
within this time."""
LOOK_S = 1.0


class WorkerWatch:
    """Kills workers that are silent for longer than an episode's time limit plus `GRACE_S`.

    Hooks run on the main thread. Checks run on a thread of their own, because the controller does
    not wake up while workers are silent.
    """

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._processes: dict[str, Any] = {}
        self._killed: set[str] = set()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._most_s = 0.0

    def pytest_configure_node(self, node: Any) -> None:  # noqa: ANN401 - xdist ships no types
        """Watch a worker from its start; also called for replacements."""
        # execnet's `Popen2IOMaster` is the only object that knows the process.
        self._processes[node.gateway.id] = node.gateway._io
        if self._thread is None:
            self._most_s = self._coordinator.run.options.episode_timeout_s + GRACE_S
            self._thread = threading.Thread(target=self._watch, name="ultrapar-watch", daemon=True)
            self._thread.start()

    @pytest.hookimpl(tryfirst=True, optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:  # noqa: ANN401
        """Stop watching a worker; if it was killed, print why."""
        worker = node.gateway.id
        self._processes.pop(worker, None)
        if worker in self._killed:
            self._coordinator.warn(
                f"{worker} was killed: it had been silent for {self._most_s:g} s "
                f"(--ultrapar-episode-timeout plus {GRACE_S:g} s)"
            )

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Stop watching, because xdist now ends the workers."""
        self._stopped.set()

    def _watch(self) -> None:
        silence = WorkerSilence(self._most_s, LOOK_S)
        client: BlockingBrokerClient | None = None
        try:
            while not self._stopped.wait(LOOK_S):
                # The broker starts once the run holds its keys; until then workers have no engine.
                broker = self._coordinator.run.services.broker
                if client is None and broker is not None:
                    client = BlockingBrokerClient(broker.path, broker.token, name="watch")
                # The main thread may change the dictionary at any time, so copy it.
                processes = dict(self._processes)
                heard_s = {} if client is None else client.signs()
                now_s = boot_s()
                signs = {
                    worker: heard_s[worker] if worker in heard_s else _sign_of(io.popen.pid, now_s)
                    for worker, io in processes.items()
                    if worker not in self._killed
                }
                for worker in silence.check(signs, now_s):
                    self._killed.add(worker)
                    processes[worker].kill()
        except ConnectionError:
            return  # without a broker all workers end on their own
        if client is not None:
            client.close()


class WorkerSilence:
    """Measures, with regular checks, how long each worker has been silent.

    Each check adds at most twice the usual interval to a worker's silence. If more time has passed,
    the watcher itself did not run (Ctrl-Z, a closed lid, a machine that swaps). Perhaps the workers
    did not run either.
    """

    def __init__(self, most_s: float, look_s: float) -> None:
        """Start with no workers.

        Args:
            most_s: How long a worker may be silent, > 0 seconds.
            look_s: The usual interval between two checks, > 0 seconds.
        """
        self._most_s = most_s
        self._look_s = look_s
        self._looked_s: float | None = None
        self._signs: dict[str, float] = {}
        self._silent_s: dict[str, float] = {}

    def check(self, signs: Mapping[str, float | None], now_s: float) -> list[str]:
        """Return the workers that have been silent for too long, sorted by name.

        Args:
            signs: The time of each worker's last sign of life, on any clock; None if there was no
                sign. Workers that are not in the mapping are forgotten.
            now_s: The current time, in seconds on the monotonic clock.
        """
        passed_s = 0.0 if self._looked_s is None else now_s - self._looked_s
        self._looked_s = now_s
        silent_s: dict[str, float] = {}
        for worker, sign_s in signs.items():
            is_new = sign_s is not None and sign_s != self._signs.get(worker)
            before_s = self._silent_s.get(worker)
            if is_new or before_s is None:
                silent_s[worker] = 0.0
            else:
                silent_s[worker] = before_s + min(passed_s, 2 * self._look_s)
            if sign_s is not None:
                self._signs[worker] = sign_s
        self._silent_s = silent_s
        return sorted(name for name, one_s in silent_s.items() if one_s > self._most_s)


def _sign_of(pid: int, now_s: float) -> float | None:
    """When a worker that is not connected to the broker last showed life.

    The result is `now_s`, or None if the worker's process is stopped.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return now_s
    # proc(5): "pid (name) state ...". State T means stopped by a signal, and t by a debugger.
    return None if stat.rpartition(")")[2].split()[0] in {"T", "t"} else now_s
