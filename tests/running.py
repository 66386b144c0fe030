"""Runs of pytest as processes of their own, with the pool and the suite of a folder."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Self

import psutil

from tests.family import family_of, signal_all
from tests.light import PYTEST

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

OPTIONS = ("--ultrapar-pool=pool.toml", "--ultrapar-report=off")
"""Most tests look at tables: a page each would be a tenth of a second each."""
COMMAND = (*PYTEST, *OPTIONS)


def environment(**variables: str) -> dict[str, str]:
    """Of a run that a test starts: what this pytest tells its own workers stays here."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return kept | variables


def run_pytest(
    folder: Path, *options: str, code: int | None = 0, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run it to its end, which has to have this exit code; None for any."""
    done = subprocess.run(
        [*COMMAND, *options],
        cwd=folder,
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert code is None or done.returncode == code, done.stdout + done.stderr
    return done


def wait_until(condition: Callable[[], object], timeout_s: float = 120) -> None:
    """Wait for what another process brings about."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


class Running:
    """pytest in a process group of its own, as a shell starts it, until it is left.

    Attributes:
        process: The controller.
        family: It and all that it had started when that was noted.
    """

    def __init__(self, folder: Path, *options: str, name: str = "output", **variables: str) -> None:
        self._said = folder / f"{name}.txt"
        with self._said.open("wb") as said:
            self.process = subprocess.Popen(
                [*COMMAND, *options],
                cwd=folder,
                env=environment(**variables),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.family: list[psutil.Process] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()

    @property
    def output(self) -> str:
        """What it has said so far."""
        return self._said.read_text(encoding="utf-8", errors="replace")

    def note_family(self) -> None:
        self.family = family_of(self.process.pid)

    def interrupt(self, whom: str = "process") -> None:
        """Ctrl-C, for its `group` as a terminal's or for the `process` alone."""
        send = os.killpg if whom == "group" else os.kill
        send(self.process.pid, signal.SIGINT)

    def kill(self) -> None:
        """All of its processes at once, before any of them notices that another one is gone."""
        self.note_family()
        signal_all(self.family, signal.SIGSTOP)
        signal_all(self.family, signal.SIGKILL)
        self.process.wait()
        psutil.wait_procs(self.family, timeout=60)

    def wait(self, timeout_s: float = 300) -> tuple[int, str]:
        """Its exit code and all that it said."""
        return self.process.wait(timeout_s), self.output

    def left_behind(self) -> list[psutil.Process]:
        """Processes of the run that do not end after it; a slow machine takes its time for that."""
        left = psutil.wait_procs(self.family, timeout=60)[1]
        # Who is not asked seems to run on for ever.
        self.process.poll()
        return left
