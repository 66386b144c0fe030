"""The machines of one round and their processes: provider, server, hosts."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from pytest_ultrapar.errors import ResultsError
from pytest_ultrapar.testing import read_server_log
from tests.cluster_faults.faults import FAULTS
from tests.cluster_faults.machines import HERE, Bridge, HarnessError, Loopback
from tests.key_value_server import _binary
from tests.light import PYTEST
from tests.torture.session import pids_of, send

PASSWORD = "of-this-round"
RUN = "round"
ULTRAPAR = (sys.executable, "-m", "pytest_ultrapar.cli")
_READY = "Ready to accept connections"


class Server:
    """The cluster's server on a machine of its own, with a password."""

    def __init__(self, machine, folder, port, *, keeps, clock):
        self._machine, self._folder, self._port = machine, folder, port
        self._keeps, self._clock = keeps, clock
        self._program = _binary("redis" if shutil.which("redis-server") else "valkey")
        self._n_started = 0
        folder.mkdir()
        self._env = {"PATH": os.environ["PATH"]}
        if clock:
            self._offset = folder / "wall_clock"
            self._offset.write_bytes(bytes(8))
            self._env |= {
                "WALL_CLOCK": str(self._offset),
                "LD_PRELOAD": str(_wall_clock(folder)),
            }
        self.start()

    @property
    def url(self):
        return f"redis://:{PASSWORD}@{self._machine.address}:{self._port}/0"

    def start(self):
        """Start the server on the files of an earlier one, and wait until it is ready."""
        self._n_started += 1
        self.process = self._machine.run(
            [
                self._program, "--port", self._port, "--bind", self._machine.address,
                "--requirepass", PASSWORD, "--dir", self._folder, "--save", "",
                "--appendonly", "yes" if self._keeps else "no", "--daemonize", "no",
            ],
            cwd=self._folder,
            output=self._folder / f"output-{self._n_started}.txt",
            env=self._env,
        )  # fmt: skip
        self.process.wait_for(_READY)

    def kill(self):
        """`kill -9`."""
        send(signal.SIGKILL, [pid for pids in pids_of(self._folder).values() for pid in pids])
        self.process.wait(20)

    def step_clock(self, seconds):
        """Step the server's wall clock, check that it did, and return a description."""
        before_s = self._time_s()
        with self._offset.open("r+b") as file:
            file.write((seconds * 10**9).to_bytes(8, "little", signed=True))
        stepped_s = self._time_s() - before_s
        if not 0 <= stepped_s - seconds < 30:
            msg = f"the server's clock was stepped by {stepped_s:.1f} s"
            raise HarnessError(msg)
        return f"the server's clock stepped by {seconds:+d} s"

    def _time_s(self):
        code = (
            "import sys, redis; print(redis.Redis.from_url(sys.argv[1]).time()[0], file=sys.stderr)"
        )
        output = self._folder / f"time-{time.monotonic_ns()}.txt"
        asked = self._machine.run(
            [sys.executable, "-c", code, self.url],
            cwd="/",
            output=output,
            env={"PATH": os.environ["PATH"]},
        )
        if not asked.wait(30) or asked.code:
            msg = f"cannot read the server's time: {asked.said}"
            raise HarnessError(msg)
        return int(asked.said)


class Host:
    """One host: a machine, a suite of its own, and the sessions of pytest that it ran.

    Attributes:
        suite: The working directory of its processes.
        sessions: `(process, run directory)` of each session; the last one runs or has ended.
        expects: Exit codes other than 0 that the fault explains.
    """

    def __init__(self, stage, number, machine):
        self._stage, self.number, self.machine = stage, number, machine
        self.name = f"h{number}"
        self.folder = stage.folder / self.name
        self.suite = self.folder / "suite"
        self.suite.mkdir(parents=True)
        for name in ("tmp", "locks", "state"):
            (self.folder / name).mkdir(mode=0o700)
        stage.write_suite(self.suite)
        self.sessions = []
        self.expects = set()

    @property
    def process(self):
        return self.sessions[-1][0]

    def join(self):
        """Start pytest, for the first time or again."""
        n = len(self.sessions) + 1
        out = self.folder / f"run-{n}"
        command = [
            *PYTEST, "-pno:valkey", f"-n{self._stage.workers(self.number)}",
            "--ultrapar-pool", "pool.toml", "--ultrapar-simulator", self._stage.provider_url,
            "--ultrapar-out", out, *self._stage.words_of(self),
        ]  # fmt: skip
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "TMPDIR": str(self.folder / "tmp"),
            "ULTRAPAR_LOCK_DIR": str(self.folder / "locks"),
            "ULTRAPAR_STATE_DIR": str(self.folder / "state"),
            "ULTRAPAR_CLUSTER": self._stage.server.url if self._stage.server else "",
            "OPENBLAS_NUM_THREADS": "1",
        }
        output = self.folder / f"output-{n}.txt"
        running = self.machine.run(command, cwd=self.suite, output=output, env=env)
        self.sessions.append((running, out))

    def abort(self):
        """Make a session that hangs print its stacks, and end it."""
        for role in ("worker", "controller"):
            send(signal.SIGABRT, pids_of(self.suite).get(role, []))
            time.sleep(1)
        send(signal.SIGKILL, [pid for pids in pids_of(self.suite).values() for pid in pids])
        self.process.wait(20)


class Stage:
    """The parts of a round that exist before its fault.

    Attributes:
        plan: The plan of the round.
        hosts: The hosts, before they join.
        log_path: The provider's log.
        chance: The random numbers that the fault draws.
    """

    def __init__(self, folder, plan, *, apart):
        self.folder, self.plan = folder, plan
        self.chance = random.Random(plan.seed)
        fault = FAULTS[plan.fault]
        self.network = Bridge() if apart else Loopback()
        self.server = None
        try:
            self._serve(fault)
        except BaseException:
            self.end()
            raise

    def _serve(self, fault):
        folder, plan, network = self.folder, self.plan, self.network
        (folder / "provider").mkdir(parents=True)
        pool = folder / "provider" / "pool.toml"
        self.write_pool(pool)
        self.log_path = folder / "server.jsonl"
        machine = network.machine("provider")
        port = network.port(8123)
        provider = machine.run(
            [*ULTRAPAR, "simulate", "--pool", pool, "--port", port, "--log", self.log_path],
            cwd=pool.parent,
            output=folder / "provider" / "output.txt",
            env={"PATH": os.environ["PATH"], "PYTHONUNBUFFERED": "1"},
        )
        name = "localhost" if network.is_apart else "127.0.0.1"
        self.provider_url = f"http://{name}:{port}"
        line = None if fault.line is None else (*fault.line, plan.seed)
        if self.is_shared:
            self.server = Server(
                network.machine("server", line=line),
                folder / "server",
                network.port(6379),
                keeps=fault.keeps,
                clock=fault.has_clock,
            )
        self.hosts = [
            Host(self, number, network.machine(f"h{number}", ahead_s=ahead_s, localhost=machine))
            for number, ahead_s in enumerate(plan.ahead_s)
        ]
        provider.wait_for("127.0.0.1")
        if network.is_apart:
            machine.forward(((machine.address, port), ("127.0.0.1", port)))

    is_shared = True
    """Whether hosts share the run; otherwise one host runs alone."""

    def write_pool(self, path):
        path.write_text(self.plan.pool, encoding="utf-8")

    def write_suite(self, folder):
        """Write a host's suite."""
        self.write_pool(folder / "pool.toml")
        (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        (folder / "test_answers.py").write_text(self.plan.suite, encoding="utf-8")

    def workers(self, number):
        return self.plan.workers[number]

    def words_of(self, host):
        """The command line of a host's pytest."""
        words = ["--ultrapar-report", "off"]
        if self.is_shared:
            words += ["--ultrapar-cluster-run", RUN, "--ultrapar-cluster-host", host.name]
        return words

    @property
    def log(self):
        try:
            return read_server_log(self.log_path)
        except ResultsError as error:
            raise HarnessError(str(error)) from None

    def merge(self, out):
        """Run `ultrapar merge` on all directories of hosts; return its exit code and output."""
        parts = [
            run
            for host in self.hosts
            for _, run in host.sessions
            if (run / "manifest.json").exists()
        ]
        done = subprocess.run(
            [*ULTRAPAR, "merge", *map(str, parts), "--out", str(out)],
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr, parts

    def end(self):
        """End all processes and namespaces. Idempotent."""
        self.network.end()


def _wall_clock(folder):
    if shutil.which("gcc") is None:
        msg = "cannot step the clock: its library must be compiled; apt-get install gcc libc6-dev"
        raise HarnessError(msg)
    library = Path(folder) / "wall_clock.so"
    source = HERE / "wall_clock.c"
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", library, source], check=True)
    return library
