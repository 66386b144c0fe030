"""The faults of a round: each is a function of its stage, listed in one table.

A function causes its fault, ends it if the fault has an end, and returns a description.
"""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.torture.session import pids_of, send

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cluster_faults.stage import Stage

LINK_DOWN_S, STOPPED_S = 10.0, 20.0
CLOCK_STEP_S = 600
SLOW_LINE = (0.15, 0.05)
"""Seconds in one direction, share of frames lost."""


def nothing(stage):
    """Cause no fault during the run."""
    del stage
    return "nothing was done"


def kill_controller(stage):
    """`kill -9` of pytest's first process on one host, which joins again a little later."""
    host = stage.hosts[stage.plan.victim]
    killed = send(signal.SIGKILL, pids_of(host.suite).get("controller", [])[:1])
    host.expects.add(-signal.SIGKILL)
    return f"controller {killed} of {host.name} killed"


def kill_worker(stage):
    """`kill -9` of one of xdist's workers."""
    host = stage.hosts[0]
    deadline_s = time.monotonic() + 20
    while not (workers := pids_of(host.suite).get("worker")):
        if time.monotonic() > deadline_s or host.process.code is not None:
            return f"{host.name} had no worker"
        time.sleep(0.02)
    killed = send(signal.SIGKILL, [stage.chance.choice(workers)])
    return f"worker {killed} of {host.name} killed"


def kill_server(stage):
    """`kill -9` of the server; 1 to 3 s later a new one starts on the files of the old one."""
    stage.server.kill()
    time.sleep(stage.plan.away_s)
    stage.server.start()
    return f"server away for {stage.plan.away_s:.1f} s"


def cut_link(stage):
    """One host's link to provider and server is down for 10 s; its processes continue."""
    host = stage.hosts[stage.plan.victim]
    mend = stage.network.cut(host.machine, stage.plan.cut)
    time.sleep(LINK_DOWN_S)
    mend()
    return f"link of {host.name} down ({stage.plan.cut})"


def stop_host(stage):
    """All processes of a host stop for 20 s without notice."""
    host = stage.hosts[stage.plan.victim]
    pids = [pid for pids in pids_of(host.suite).values() for pid in pids]
    reached = send(signal.SIGSTOP, pids)
    time.sleep(STOPPED_S)
    send(signal.SIGCONT, reached)
    return f"{len(reached)} processes of {host.name} stopped"


def step_clock(seconds):
    def step(stage):
        """Step the server's wall clock during the run."""
        return stage.server.step_clock(seconds)

    return step


@dataclass(frozen=True)
class Fault:
    """A row of the table.

    Attributes:
        strike: The function that causes the fault.
        keeps: Whether the server writes its data to disk (AOF).
        line: The server's link for the whole round: seconds in one direction, share of frames lost.
        has_clock: Whether the server's wall clock can be stepped.
        is_apart: Whether the fault needs a private network.
    """

    strike: Callable[[Stage], str]
    keeps: bool = True
    line: tuple[float, float] | None = None
    has_clock: bool = False
    is_apart: bool = False

    @property
    def about(self):
        return (self.strike.__doc__ or "").strip().partition("\n")[0]


FAULTS = {
    "none": Fault(nothing),
    "controller": Fault(kill_controller),
    "worker": Fault(kill_worker),
    "server-aof": Fault(kill_server),
    "server-forgets": Fault(kill_server, keeps=False),
    "link": Fault(cut_link, is_apart=True),
    "stopped": Fault(stop_host),
    "slow": Fault(nothing, line=SLOW_LINE, is_apart=True),
    "clock-ahead": Fault(step_clock(CLOCK_STEP_S), has_clock=True),
    "clock-behind": Fault(step_clock(-CLOCK_STEP_S), has_clock=True),
}
