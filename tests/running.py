"""Runs of pytest in their own processes, with the pool and the suite of a folder."""

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
"""Most tests read tables: an HTML report would cost each of them a tenth of a second."""
COMMAND = (*PYTEST, *OPTIONS)


def environment(**variables: str) -> dict[str, str]:
    """The environment of a started run, without this pytest's variables for its workers."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return kept | variables


def run_pytest(
    folder: Path, *options: str, code: int | None = 0, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run pytest to its end and check the exit code; None for any."""
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
    """Wait for an effect of another process."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


class Running:
    """pytest in its own process group, as a shell starts it, during a `with` block.

    Attributes:
        process: The controller.
        family: The controller and its descendants, when they were listed.
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
        """The output so far."""
        return self._said.read_text(encoding="utf-8", errors="replace")

    def note_family(self) -> None:
        self.family = family_of(self.process.pid)

    def interrupt(self, whom: str = "process") -> None:
        """Send Ctrl-C, to its `group` as from a terminal or to the `process` alone."""
        send = os.killpg if whom == "group" else os.kill
        send(self.process.pid, signal.SIGINT)

    def kill(self) -> None:
        """Kill all processes in one step, before any of them notices that another one is gone."""
        self.note_family()
        signal_all(self.family, signal.SIGSTOP)
        signal_all(self.family, signal.SIGKILL)
        self.process.wait()
        psutil.wait_procs(self.family, timeout=60)

    def wait(self, timeout_s: float = 300) -> tuple[int, str]:
        """Wait for its end; return its exit code and output."""
        return self.process.wait(timeout_s), self.output

    def left_behind(self) -> list[psutil.Process]:
        """Processes of the run that outlive it; a slow machine needs time to end them."""
        left = psutil.wait_procs(self.family, timeout=60)[1]
        # Without this, a zombie seems to run forever.
        self.process.poll()
        return left
