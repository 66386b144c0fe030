"""The machines on which a round's processes run, and the network between them.

With namespaces, each machine has its own network card on the round's bridge, its own processes, its
own mount of /proc and its own clocks: its "seconds since boot" are ahead of the others'. All
namespaces are unnamed and live only while the harness of their first process (`agent.py`) lives. So
a killed harness leaves nothing behind, and several rounds can run at the same time. Without
namespaces, a machine is a name for some processes on the loopback.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue

import psutil

HERE = Path(__file__).parent
READY_S = 60.0
_NET = "10.77.0"
_UNSHARE = (
    "unshare", "--net", "--pid", "--mount", "--mount-proc", "--fork", "--kill-child",
    "--time", "--boottime", "{ahead_s}", "--monotonic", "{ahead_s}",
)  # fmt: skip


class HarnessError(Exception):
    """The harness itself failed; this says nothing about the product."""


@dataclass(eq=False)
class Running:
    """A process on a machine.

    Attributes:
        output: The file to which it writes.
        code: Its exit code, minus the signal that ended it; None while it runs.
    """

    output: Path
    code: int | None = None
    ended: threading.Event = field(default_factory=threading.Event)

    def wait(self, timeout_s):
        """Wait for the process; return whether it ended in time."""
        return self.ended.wait(timeout_s)

    @property
    def said(self):
        """The output so far."""
        with contextlib.suppress(FileNotFoundError):
            return self.output.read_text(encoding="utf-8", errors="replace")
        return ""

    def wait_for(self, words, timeout_s=READY_S):
        """Wait until the output contains these words."""
        deadline_s = time.monotonic() + timeout_s
        while words not in self.said:
            if self.code is not None or time.monotonic() > deadline_s:
                msg = f"{self.output}: no {words!r} in:\n{self.said[-2000:]}"
                raise HarnessError(msg)
            time.sleep(0.02)


class Machine:
    """One machine.

    Attributes:
        name: The name in messages.
        address: The address at which other machines reach it.
        ahead_s: Seconds by which its "seconds since boot" are ahead of this process.
    """

    def __init__(self, name, address, wrapper=(), *, ahead_s=0):
        self.name, self.address, self.ahead_s = name, address, ahead_s
        self._running = {}
        self._done = Queue()
        self._agent = subprocess.Popen(
            [*wrapper, sys.executable, "-SsE", str(HERE / "agent.py")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def run(self, command, *, cwd, output, env):
        """Start a process in a new session."""
        number = len(self._running)
        running = self._running[number] = Running(Path(output))
        self._tell(
            run=number,
            command=[str(word) for word in command],
            cwd=str(cwd),
            output=str(output),
            env=env,
        )
        return running

    def forward(self, *ways):
        """Forward connections from each `(address, port)` to another `(address, port)`."""
        self._tell(forward=[(*listen, *target) for listen, target in ways])
        try:
            self._done.get(timeout=READY_S)
        except Empty:
            msg = f"the machine {self.name} forwards no connections"
            raise HarnessError(msg) from None

    @property
    def first_pid(self):
        """The id of the first process in its namespaces, as this process sees it."""
        deadline_s = time.monotonic() + READY_S
        while time.monotonic() < deadline_s and self._agent.poll() is None:
            # The process may end between any two of these.
            with contextlib.suppress(psutil.Error):
                found = psutil.Process(self._agent.pid).children()
                if found and "agent.py" in " ".join(found[0].cmdline()):
                    return found[0].pid
            time.sleep(0.005)
        msg = f"the machine {self.name} did not start"
        raise HarnessError(msg)

    def end(self):
        """End the machine and all its processes."""
        with contextlib.suppress(OSError):
            self._agent.stdin.close()
        try:
            self._agent.wait(READY_S)
        except subprocess.TimeoutExpired:
            self._agent.kill()
            self._agent.wait()
        self._listener.join()
        self._agent.stdout.close()

    def _tell(self, **told):
        self._agent.stdin.write(json.dumps(told) + "\n")
        self._agent.stdin.flush()

    def _listen(self):
        for line in self._agent.stdout:
            told = json.loads(line)
            if "ended" in told:
                running = self._running[told["ended"]]
                running.code = told["code"]
                running.ended.set()
            else:
                self._done.put(told)


class Loopback:
    """Machines without a private network: each is a name, and its address is 127.0.0.1."""

    is_apart = False

    def __init__(self):
        self._machines = []

    def machine(self, name, *, ahead_s=0, line=None, localhost=None):
        del ahead_s, localhost
        if line is not None:
            msg = "a slow line needs namespaces: run as root where they are allowed"
            raise HarnessError(msg)
        self._machines.append(Machine(name, "127.0.0.1"))
        return self._machines[-1]

    def port(self, wanted):
        """A port that the machine may use."""
        del wanted
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return probe.getsockname()[1]

    def cut(self, machine, how):
        msg = "links cannot be cut without namespaces: run as root"
        raise HarnessError(msg)

    def end(self):
        for machine in self._machines:
            machine.end()


class Bridge(Loopback):
    """Machines in namespaces, each with a card on one bridge, which has its own namespace."""

    is_apart = True

    def __init__(self):
        super().__init__()
        self._folder = Path(tempfile.mkdtemp(prefix="machines-"))
        self._switch = self._start("switch", 0)
        try:
            self._switch_pid = self._switch.first_pid
            for words in ("add bridge type bridge forward_delay 0", "set bridge up", "set lo up"):
                self._ip(self._switch_pid, "link", *words.split())
        except BaseException:
            self.end()
            raise

    def machine(self, name, *, ahead_s=0, line=None, localhost=None):
        """A machine on the bridge.

        Args:
            name: Its name.
            ahead_s: Seconds by which its clocks since boot are ahead.
            line: `(seconds in one direction, share of frames lost, seed)` of its link.
            localhost: The machine behind the name localhost; by default itself. So clients that
                send plain text only to localhost send it over the network, and no proxy accepts
                connections that the network would lose.
        """
        machine = self._start(name, ahead_s, localhost)
        pid, port = machine.first_pid, f"to{len(self._machines)}"
        if line is None:
            link = ("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
            self._ip(self._switch_pid, *link)
        else:
            self._lay(port, pid, line)
        self._ip(self._switch_pid, "link", "set", port, "master", "bridge", "up")
        self._ip(pid, "link", "set", "lo", "up")
        self._ip(pid, "addr", "add", f"{machine.address}/24", "dev", "eth0")
        self._ip(pid, "link", "set", "eth0", "up")
        return machine

    def port(self, wanted):
        return wanted

    def cut(self, machine, how):
        """Cut a machine's link; return a function that restores it.

        Args:
            machine: The machine.
            how: `carrier` as if a cable was pulled, which its card notices; `silent` otherwise.
        """
        port = f"to{self._machines.index(machine) + 1}"
        words = {"carrier": (["down"], ["up"]), "silent": (["nomaster"], ["master", "bridge"])}
        cut, mend = words[how]
        self._ip(self._switch_pid, "link", "set", port, *cut)
        return lambda: self._ip(self._switch_pid, "link", "set", port, *mend)

    def end(self):
        super().end()
        self._switch.end()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self, name, ahead_s, localhost=None):
        wrapper = [word.format(ahead_s=ahead_s) for word in _UNSHARE]
        if localhost is not None:
            hosts = f"{localhost.address} localhost\n"
            file = self._folder / f"hosts-of-{name}"
            file.write_text(hosts, encoding="utf-8")
            wrapper += ["sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', str(file)]
        address = f"{_NET}.{len(self._machines) + 2}"
        machine = Machine(name, address, wrapper, ahead_s=ahead_s)
        if name != "switch":
            self._machines.append(machine)
        return machine

    def _lay(self, port, pid, line):
        delay_s, loss, seed = line
        command = [sys.executable, "-SsE", HERE / "line.py", port, "far", delay_s, loss, seed]
        self._line = self._switch.run(command, cwd="/", output=os.devnull, env={})
        deadline_s = time.monotonic() + READY_S
        while True:
            try:
                self._ip(self._switch_pid, "link", "set", "far", "netns", str(pid))
                break
            except HarnessError:
                if time.monotonic() > deadline_s or self._line.code is not None:
                    raise
                time.sleep(0.05)
        self._ip(pid, "link", "set", "far", "name", "eth0")

    def _ip(self, pid, *words):
        _call("nsenter", "-t", str(pid), "-n", "ip", *words)


def _call(*words):
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        msg = f"{' '.join(words)}: {done.stderr.strip()}"
        raise HarnessError(msg)


def may_have_namespaces():
    """Whether this process may make a machine's namespaces, and network cards in them."""
    try:
        network = Bridge()
    except (HarnessError, OSError):
        return False
    try:
        network.machine("probe", ahead_s=100, localhost=network.machine("another"))
    except (HarnessError, OSError):
        return False
    else:
        return True
    finally:
        network.end()
