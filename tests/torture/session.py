"""One pytest process of a round, with all processes that it starts."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.light import PYTEST

if TYPE_CHECKING:
    from tests.torture.plan import Plan

HANG_S = 300.0
"""Seconds, only against hanging: the longest session takes some 20 s on an idle machine."""
POLL_S = 0.003
GONE_S = 60.0
"""Seconds for processes to notice that their run has ended."""
EPISODE_S = 15
"""An episode's deadline if the provider dies, since it can never get an answer then."""
_LAST_LINE = re.compile(r"^=+ .* in [0-9.]+s\b.*=+$", re.MULTILINE)
_ROLES = (
    ("worker", "sys.stdin.readline"),
    ("broker", "pytest_ultrapar.broker.server"),
    ("simulator", "pytest_ultrapar.simulator"),
    ("compaction", "pytest_ultrapar.analysis.compaction_child"),
)


class Session:
    """A run of pytest, in its own process group, as a shell starts it.

    Attributes:
        pid: The process id of the controller.
        output: The file for standard output and error.
    """

    def __init__(
        self, folder: Path, plan: Plan, *, number: int, resume: bool, simulator: str | None
    ) -> None:
        self.folder = folder
        self.output = folder / f"output-{number}.txt"
        command = [*PYTEST, "-n", str(plan.workers)]
        # Any number of cases that the infrastructure failed is resumed.
        command += ["--ultrapar-pool", "pool.toml", "--ultrapar-coverage", "1"]
        if resume:
            command += ["--ultrapar-resume", "latest"]
        if simulator is None:
            command += ["--ultrapar-episode-timeout", str(EPISODE_S)]
        else:
            command += ["--ultrapar-simulator", simulator]
        self.command = command
        self.started_ns = time.time_ns()
        with self.output.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env=_environment(folder),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.pid = self._process.pid

    @property
    def code(self) -> int | None:
        """The exit code, or minus the signal that ended it; None while it runs."""
        return self._process.poll()

    @property
    def has_said_all(self) -> bool:
        """Whether pytest has written its last line; then only the interpreter still has to end."""
        return (
            _LAST_LINE.search(self.output.read_text(encoding="utf-8", errors="replace")) is not None
        )

    def wait(self) -> bool:
        """Wait for its end; return False if it hangs and had to be killed.

        A session that hangs first prints the stacks of its threads to its output.
        """
        try:
            self._process.wait(HANG_S)
        except subprocess.TimeoutExpired:
            send(signal.SIGABRT, pids_of(self.folder).get("worker", []))
            time.sleep(1)
            send(signal.SIGABRT, [self.pid])
            time.sleep(1)
            self.end()
            return False
        return True

    def end(self) -> None:
        """Kill all its processes, if it hangs or its round is interrupted."""
        send(signal.SIGKILL, [pid for pids in pids_of(self.folder).values() for pid in pids])
        self._process.kill()
        self._process.wait()


def pids_of(folder: Path) -> dict[str, list[int]]:
    """The living processes that work in a folder, by role and in order of their start.

    They are found by their working directory, since an orphan has no other link to its run.
    """
    found: dict[str, list[tuple[int, int]]] = {}
    prefix = f"{folder}/"
    for entry in os.scandir("/proc"):
        if not entry.name.isdecimal():
            continue
        # The process may end between any two of these lines.
        with contextlib.suppress(OSError, IndexError):
            cwd = str(Path(f"/proc/{entry.name}/cwd").readlink()).removesuffix(" (deleted)")
            if cwd != str(folder) and not cwd.startswith(prefix):
                continue
            arguments = Path(f"/proc/{entry.name}/cmdline").read_bytes()
            after_name = Path(f"/proc/{entry.name}/stat").read_text().rpartition(")")[2].split()
            if after_name[0] in {"Z", "X"} or not arguments:
                continue
            role = _role(arguments.decode(errors="replace").replace("\0", " "))
            found.setdefault(role, []).append((int(after_name[19]), int(entry.name)))
    return {role: [pid for _, pid in sorted(pids)] for role, pids in found.items()}


def send(what: signal.Signals, pids: list[int]) -> list[int]:
    """Send a signal to the processes that still exist; return them."""
    reached = []
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, what)
            reached.append(pid)
    return reached


def wait_gone(folder: Path) -> list[str]:
    """Wait until no process works in a folder; describe and kill those that remain."""
    deadline_s = time.monotonic() + GONE_S
    while left := pids_of(folder):
        if time.monotonic() > deadline_s:
            send(signal.SIGKILL, [pid for pids in left.values() for pid in pids])
            return [f"{role} {pid}" for role, pids in left.items() for pid in pids]
        time.sleep(0.02)
    return []


def _role(command: str) -> str:
    for role, sign in _ROLES:
        if sign in command:
            return role
    return "controller" if " pytest " in command else "other"


def _environment(folder: Path) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST_", "ULTRAPAR_")) and name != "PYTHONDONTWRITEBYTECODE"
    }
    return {
        **kept,
        "TMPDIR": str(folder / "tmp"),
        "ULTRAPAR_LOCK_DIR": str(folder / "locks"),
    }
